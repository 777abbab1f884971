"""The model, neuron and text views and comparisons in a browser."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest

from pellucid.model import Model
from pellucid.views import compare_view, model_view, neuron_view, text_view
from pellucid.views.interactive.held import Held
from tests.browser.inputs import TEXT, minilm, tiny, told, words
from tests.tiny_models import network, word_tokenizer

pytestmark = pytest.mark.browser


def number(text: str) -> float:
    return float(text.replace("−", "-").rstrip("."))


def test_sorting_ranks_heads_by_a_statistic(show):
    view = model_view(minilm(), TEXT)
    block = view.header["panels"][0]["blocks"][0]
    name = next(iter(block["statistics"]))
    values = Held(view).statistic(block, name)
    page = show(view.with_state(sort=name, colour=name))
    svg = page.saved("Save SVG").decode()
    ranked = [(int(a), int(b)) for a, b in re.findall(r">Layer (\d+), head (\d+)<", svg)]
    assert len(ranked) == 72
    found = np.array([values[place] for place in ranked])
    assert (np.diff(found) <= 1e-6).all() or (np.diff(found) >= -1e-6).all()
    page.page.locator(".stage label:has(> span:text-is('Sort by')) select").select_option("")
    page.until(lambda: _equal(">Layer 0<" in page.saved("Save SVG").decode(), True))


def _equal(one, other) -> None:
    assert one == other


def test_thumbnails_have_the_colours_of_their_weights(show):
    """More weight is darker, pixel by pixel, in every head's picture."""
    from matplotlib.image import imread

    view = model_view(minilm(), TEXT, layers=[1, 3])
    block = view.header["panels"][0]["blocks"][0]
    thumbs = Held(view).thumbs(block, "attention").reshape(24, block["thumb"], block["thumb"])
    page = show(view.with_state(theme="light"))
    pictures = re.findall('href="data:image/png;base64,([^"]+)"', page.saved("Save SVG").decode())
    assert len(pictures) == 24
    for picture, codes in zip(pictures, thumbs, strict=True):
        light = imread(io.BytesIO(base64.b64decode(picture)))[..., :3].sum(-1)
        assert len(light) >= len(codes)  # every token has its pixels
        places = np.arange(len(light)) * len(codes) // len(light)
        shown = codes[np.ix_(places, places)]
        levels = np.array([light[shown == code].mean() for code in np.unique(shown)])
        assert (np.diff(levels) <= 1e-6).all()
        assert light.max() - light.min() > 0.3


def test_neuron_view_shows_the_dot_product(show):
    model = minilm()
    view = neuron_view(model, TEXT, state={"layer": 1, "head": 4, "left": [7]})
    run = model.run(TEXT, ["query.1", "key.1", "pattern.1"])
    query, key = (run[site][0].double().numpy() for site in ("query.1", "key.1"))
    if query.shape[0] != 12:  # [tokens, H, width]
        query, key = query.transpose(1, 0, 2), key.transpose(1, 0, 2)
    dots = key[4] @ query[4, 7]
    weights = run["pattern.1"][0, 4, 7].double().numpy()
    page = show(view)
    page.until(lambda: _equal(page.page.locator(".keys [role=option]:visible").count(), 17))
    labels = [each.get_attribute("aria-label") for each in page.page.locator(".keys [role=option]:visible").all()]
    for place, label in enumerate(labels):
        found = re.search(r"\((\d+)\): q·k (\S+), scaled (\S+), weight (\S+?)\. ", label)
        assert found is not None, label
        assert int(found[1]) == place
        assert number(found[2]) == pytest.approx(dots[place], rel=0.01, abs=0.02)
        assert number(found[3]) == pytest.approx(dots[place] / np.sqrt(query.shape[-1]), rel=0.01, abs=0.02)
        assert number(found[4]) == pytest.approx(weights[place], abs=0.008)
    page.says("Layer 1, head 4, query “\u2068un\u2069” (7)", f"({weights.argmax()})")
    page.page.locator(".keys").focus()
    page.page.keyboard.press("ArrowDown")
    assert page.state()["left"] == [8]
    page.says("query “\u2068bel\u2069” (8)")
    page.page.keyboard.press("ArrowRight")
    page.says("Layer 2, head 4")


def test_neuron_view_says_where_positions_are_added(show):
    view = neuron_view(tiny("t5"), "the keys near the cabinet", target="a dog")
    page = show(view)
    page.until(lambda: _equal("position terms" in page.page.locator(".remark").inner_text(), True))


def test_text_view_colours_by_a_track(show):
    model = tiny("gpt2")
    text = words(20)
    view = text_view(model, text, neurons=["neurons.1:3"])
    unit = "neurons.1:3"
    right = model.run(text, ["neurons.1"])["neurons.1"][0, :, 3].double().numpy()
    page = show(view.with_state(track=unit))
    page.until(lambda: _equal(page.page.locator(".flow .token").count(), 20))
    page.page.locator(".flow .token").nth(6).hover()
    page.says(f"“\u2068{told(view)[6]}\u2069” (6): {unit}")
    found = re.search(rf"{re.escape(unit)} (\S+)", page.status)
    assert found is not None
    assert number(found[1]) == pytest.approx(right[6], rel=0.01, abs=0.001)
    colours = [each.evaluate("it => it.style.backgroundColor") for each in page.page.locator(".flow .token").all()]
    assert colours[int(right.argmax())] != colours[int(right.argmin())]
    page.choose("Colour", "surprise")
    page.page.locator(".flow .token").nth(5).hover()
    page.says("surprise")
    logits = model.run(text, [], logits=True).logits[0, 4].double().log_softmax(-1)
    token = model.tokenize(text).ids[0, 5]
    found = re.search(r"surprise (\S+)", page.status)
    assert number(found[1]) == pytest.approx(-float(logits[token]), rel=0.01)
    page.page.locator(".flow .token").nth(0).hover()
    page.says("no value")


def test_text_view_lens_shows_predictions(show):
    model, text = tiny("gpt2"), words(8)
    view = text_view(model, text)
    _, _, probabilities = Held(view).lens()
    page = show(view)
    grid = page.page.get_by_label("Predictions: arrow keys move")
    grid.focus()
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("End")
    for _ in range(6):
        page.page.keyboard.press("ArrowDown")
    page.says("after “")
    best = float(model.run(text, [], logits=True).logits[0, -1].double().softmax(-1).max())
    assert page.named()[0][1] == pytest.approx(best, abs=0.01)
    assert probabilities.shape[1] == 8


def test_comparisons_share_one_state(show):
    one, other = tiny("gpt2"), Model.load(network("gpt2", seed=1), tokenizer=word_tokenizer())
    text = words(10)
    view = compare_view(one, other, text)
    page = show(view)
    assert page.page.locator(".panel").count() == 2
    boxes = [page.page.locator(".panel").nth(place).bounding_box() for place in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert page.state()["colour"] == "difference"
    page.set(mode="heads", heads=[2], left=[6])
    page.ready()
    for panel, model in enumerate((one, other)):
        row = model.run(text, ["pattern.0"])["pattern.0"][0, 2, 6].double().numpy()
        tokens = page.page.locator(".panel").nth(panel).locator(".tokens.from .token")
        tokens.nth(6).hover()
        page.says(view.header["panels"][panel]["name"], "looks at")
        assert page.named()[0][1] == pytest.approx(row.max(), abs=0.013)
    narrow = show(view, viewport={"width": 700, "height": 900})
    boxes = [narrow.page.locator(".panel").nth(place).bounding_box() for place in (0, 1)]
    assert boxes[0]["x"] == boxes[1]["x"]
    assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"]
