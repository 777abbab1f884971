"""What the buttons save: the drawing, the picture and the settings."""

from __future__ import annotations

import io
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from pellucid.views import compare_view, head_view, neuron_view, text_view
from tests.browser.inputs import TEXT, in_python, minilm, patterns, tiny, told, words

pytestmark = pytest.mark.browser
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("pins", [{}, {"left": [6]}, {"left": [4, 7]}, {"right": [0]}, {"left": [3], "right": [0, 5]}])
def test_the_drawing_has_the_tokens_and_every_line(show, pins):
    view = head_view(minilm(), TEXT, state={"layer": 2, "heads": [1, 8], "mass": 0.6, **pins})
    page = show(view)
    page.ready()
    page.says("Layer 2")
    drawn = ElementTree.fromstring(page.saved("Save SVG"))
    texts = [each.text for each in drawn.iter(f"{SVG}text")]
    for token in told(view):
        assert texts.count(token) >= 2, token
    assert view.header["title"] in texts
    found = in_python(view, page.state())
    weights = []
    for series in range(2):
        rows = found.rows(series, range(17))
        if "right" in pins:
            queries = pins.get("left", range(17))
            weights += [rows.values[query, key] for query in queries for key in pins["right"]]
        elif len(pins.get("left", [])) > 1:
            kept = found.sum(series, found.left).kept[0] > 0
            weights += [value for query in found.left for value in rows.values[query][kept]]
        else:
            weights += list(rows.kept[pins.get("left", range(17))].ravel())
    seen = [value for value in weights if value > 0]
    faint = [value for value in seen if value < 0.01]  # fainter lines may be left out
    lines = len(list(drawn.iter(f"{SVG}path")))
    assert len(seen) - len(faint) <= lines <= len(seen)
    assert lines > 0


def test_lines_are_stronger_where_weights_are_larger(show):
    view = head_view(minilm(), TEXT)
    weights = patterns(minilm(), TEXT)
    layer, head, query = np.unravel_index(weights.min(-1).argmax(), weights.shape[:3])  # no line is too faint
    page = show(view.with_state(layer=int(layer), heads=[int(head)], mass=1, left=[int(query)]))
    page.ready()
    page.says("looks at")
    drawn = ElementTree.fromstring(page.saved("Save SVG"))
    values = in_python(view, page.state()).rows(0, [query]).values[0]
    strengths = {}
    for path in drawn.iter(f"{SVG}path"):
        end = float(path.attrib["d"].split()[-1])
        strengths[end] = float(path.attrib.get("stroke-opacity", 1))
    ordered = np.array([strengths[end] for end in sorted(strengths)])  # from the first key down
    assert len(ordered) == 17
    order = np.argsort(values, kind="stable")
    assert (np.diff(ordered[order]) >= -0.001).all()
    assert ordered[order][-1] > ordered[order][0]


@pytest.mark.parametrize("mode", ["model", "heads", "neurons"])
def test_the_picture_is_not_empty(show, mode):
    from matplotlib.image import imread

    page = show(neuron_view(minilm(), TEXT, state={"mode": mode, "theme": "light"}))
    pixels = imread(io.BytesIO(page.saved("Save PNG")))
    assert min(pixels.shape[:2]) > 300
    paper = pixels[2, 2]
    share = float((np.abs(pixels - paper).max(-1) > 0.05).mean())
    assert 0.005 < share < 0.95
    assert page.status.startswith("Saved as ")


def test_every_view_draws_itself(show):
    text = words(9)
    for view in (
        text_view(tiny("gpt2"), text),
        compare_view(tiny("gpt2"), tiny("llama"), text),
        neuron_view(tiny("llama"), text),
    ):
        page = show(view)
        drawn = page.saved("Save SVG").decode()
        ElementTree.fromstring(drawn)
        assert len(re.findall("<(?:image|rect|path|line)", drawn)) > 10
    assert text.split()[0] in drawn


def test_settings_are_copied_as_json(show):
    view = head_view(tiny("gpt2"), words(5))
    page = show(view, permissions=["clipboard-read", "clipboard-write"])
    page.ready()
    page.set(layer=2, left=[1, 3], mass=0.5)
    page.page.get_by_role("button", name="Copy settings").click()
    page.says("clipboard")
    copied = json.loads(page.page.evaluate("navigator.clipboard.readText()"))
    assert copied == page.state()
    assert view.with_state(**copied).state == copied
