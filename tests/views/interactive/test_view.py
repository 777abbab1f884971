"""The view itself: its state, its files, its page, its widget."""

from __future__ import annotations

import base64
import json
import re
import sys
from types import ModuleType

import pytest

from pellucid import __version__
from pellucid.errors import PellucidError
from pellucid.views import View, compare_view, head_view, model_view, neuron_view, text_view
from pellucid.views.interactive import page, widget
from pellucid.views.interactive.view import shown_text
from tests.views.interactive.decoding import STAND_IN, TEXT, model
from tests.views.interactive.test_tokens import opened, single_bytes

NASTY = '</script><script>alert("x")</script><!--\u2028&amp;'


@pytest.fixture(scope="module")
def view() -> View:
    return head_view(model("gpt2"), TEXT)


def read_page(content: bytes) -> tuple[dict, dict[str, bytes]]:
    """Header and chunks of a page, found as a browser would."""
    text = content.decode()
    header = re.search(r'<script type="application/json" data-header>(.*?)</script>', text, re.S)
    chunks = re.findall(r'<script type="text/plain" data-chunk="([^"]+)">([^<]*)</script>\n', text)
    return json.loads(header[1]), {name: base64.b64decode(stored) for name, stored in chunks}


def test_the_page_holds_header_chunks_and_script(view, tmp_path):
    place = view.save(tmp_path / "x.html")
    content = place.read_bytes()
    header, chunks = read_page(content)
    assert header == json.loads(json.dumps(view.header))
    assert (header["format"], header["kind"], header["pellucid"]) == (1, "attention", __version__)
    assert chunks == {name: chunk.stored for name, chunk in view.payload.chunks.items()}
    assert set(header["chunks"]) == set(chunks)
    [script] = re.findall(rb'id="pellucid-bundle">(.*?)</script>', content, re.S)
    assert script == STAND_IN
    assert b'<main id="pellucid" data-pellucid>' in content
    assert list(tmp_path.glob("*.part")) == []


def test_a_script_cannot_end_its_own_tag(view, monkeypatch):
    monkeypatch.setattr(page, "bundle", lambda: b'const a = "</script><!--<SCRIPT>", b = 1 < 2;')
    held = page.starter().split(">", 1)[1].split("</script>")[0]
    assert held == r'const a = "\x3c/script>\x3c!--\x3cSCRIPT>", b = 1 < 2;'


def test_what_is_needed_first_stands_first(view):
    content = page.page(view.payload).decode()
    places = [
        content.index(sign)
        for sign in (
            "data-header",
            'data-chunk="t/',
            'data-chunk="s/',
            "pellucid-bundle",
            "openEmbedded(document)",
            'data-chunk="a/0/self/attention/0/0/0',
            'data-chunk="a/0/self/attention/0/1/0',
            'data-chunk="a/0/self/attention/1/0/0',
        )
    ]
    assert places == sorted(places)
    assert not re.search(r"(src|href)=|https?://", content)  # nothing from anywhere


def test_the_same_call_gives_the_same_bytes(tmp_path):
    one, other = (neuron_view(model("llama"), TEXT, quality=0.9).save(tmp_path / name) for name in ("a.html", "b.html"))
    assert one.read_bytes() == other.read_bytes()


def test_text_never_becomes_markup(tmp_path):
    made = head_view(opened(single_bytes(), "gpt2"), NASTY, title=NASTY)
    content = made.save(tmp_path / "x.html").read_text(encoding="utf-8")
    assert "alert(" not in content.replace("alert(&quot;x&quot;)", "").replace('alert(\\"x\\")', "")
    header, _ = read_page(content.encode())
    assert header["title"] == NASTY
    assert "".join(header["panels"][0]["tokens"]["text"]["text"]).startswith("</script>")
    head = content[content.index("data-header") : content.index("data-chunk")]
    assert head.count("<") == 2  # of the closing tag, and of the next script
    assert content.count("</script>") == 3 + len(header["chunks"])
    assert "<!--" not in content
    assert "\u2028" not in head


def test_state_is_merged_and_checked(view):
    changed = view.with_state(layer=2, heads=(0, 3), unit="words", mass=0.9, hideSinks=True, left=[1], sort="entropy")
    expected = {"mode": "heads", "layer": 2, "heads": [0, 3], "unit": "words", "mass": 0.9, "hideSinks": True}
    assert changed.state == {**expected, "left": [1], "sort": "entropy"}
    assert view.state == {"mode": "heads"}  # the first one stays as it was
    assert changed.with_state(layer=1).state["heads"] == [0, 3]
    assert changed.payload.chunks is view.payload.chunks
    again = head_view(model("gpt2"), TEXT, state=changed.state)
    assert again.header == changed.header
    changed.state["layer"] = 7
    assert changed.state["layer"] == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"layers": 3}, "There is no layers in a view's state; it has mode, block, weighting, layer, heads"),
        ({"layer": 3}, "layer=3 is not in this view; it has 0, 1, 2"),
        ({"layer": True}, "layer=True is not"),
        ({"heads": [4]}, "numbers of heads, from 0 to 3"),
        ({"heads": 2}, "give a list of numbers of heads"),
        ({"head": 9}, "head=9"),
        ({"mode": "neurons"}, "mode='neurons' is not in this view; it has model, heads"),
        ({"mode": "text"}, "it has model, heads"),
        ({"block": "cross"}, "it has self"),
        ({"weighting": "norm"}, "it has attention"),
        ({"average": "all"}, "it has none, heads, layers"),
        ({"unit": "letters"}, "it has tokens, words"),
        ({"theme": "grey"}, "it has auto, light, dark"),
        ({"hideSpecial": 1}, "use True or False"),
        ({"mass": 0}, "above 0 and at most 1"),
        ({"left": [11]}, "numbers of queries, from 0 to 10"),
        ({"right": ["a"]}, "numbers of keys"),
        ({"from": 1}, "from=1"),
        ({"colour": "beauty"}, "it has confidence, entropy"),
        ({"track": "surprise"}, "it has none"),
    ],
)
def test_a_state_that_the_view_does_not_have_is_refused(view, change, complaint):
    with pytest.raises(PellucidError, match=re.escape(complaint)):
        view.with_state(**change)
    with pytest.raises(PellucidError, match=re.escape(complaint)):
        head_view(model("gpt2"), TEXT, state=change)


def test_each_view_opens_in_its_own_mode():
    assert model_view(model("gpt2"), TEXT).state["mode"] == "model"
    assert neuron_view(model("gpt2"), TEXT).state["mode"] == "neurons"
    assert neuron_view(model("gpt2"), TEXT, state={"mode": "model"}).state["mode"] == "model"
    assert text_view(model("gpt2"), TEXT).state == {"mode": "text", "track": "surprise"}
    assert compare_view(model("gpt2"), model("gpt2"), TEXT).state == {"mode": "model", "colour": "difference"}


@pytest.mark.parametrize("name", ["x.txt", "x", "x.html.gz"])
def test_other_endings_are_refused(view, tmp_path, name):
    with pytest.raises(PellucidError, match=r"the endings are \.html, \.svg, \.png, \.pdf"):
        view.save(tmp_path / name)
    assert list(tmp_path.glob("x*")) == []


def test_a_missing_folder_is_said_before_anything_is_drawn(view, tmp_path):
    with pytest.raises(PellucidError, match="no folder"):
        view.save(tmp_path / "none" / "x.svg")


def test_a_page_without_its_script_is_not_written(view, tmp_path, stand_in):
    stand_in.unlink()
    with pytest.raises(PellucidError, match=r"npm run build"):
        view.save(tmp_path / "x.html")
    with pytest.raises(PellucidError, match=r"npm run build"):
        view.serve()
    assert list(tmp_path.iterdir()) == []


def test_figures_are_drawn_late(view, tmp_path, monkeypatch):
    from pellucid.views.style import new_figure

    drawn = []
    module = ModuleType("pellucid.views.interactive.figures")
    module.draw = lambda each, width=None: drawn.append(each) or new_figure(2, 1)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for kind, start in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
        assert view.save(tmp_path / f"x.{kind}").read_bytes().startswith(start)
    assert drawn == [view] * 3
    monkeypatch.setattr("pellucid.views.interactive.view.find_spec", lambda name: None)
    bundle = view._repr_mimebundle_()
    assert "<svg" in bundle["image/svg+xml"]
    assert "pellucid[notebook]" in bundle["text/plain"]


def test_show_outside_a_notebook_says_what_to_do(view):
    with pytest.raises(PellucidError, match=r"save\('view.html'\).*serve\(\)"):
        view.show()


def test_the_widget_answers_the_page(view):
    pytest.importorskip("anywidget")
    widget._widget_class.cache_clear()
    made = view.with_state(layer=1).widget()
    assert made.header == made.get_state()["header"]
    assert (made.state, made.live) == ({"mode": "heads", "layer": 1}, True)
    assert made._esm == STAND_IN.decode()
    sent = []
    made.send = lambda content, buffers=None: sent.append((content, buffers))
    name = "a/0/self/attention/1/2/0"
    place = {"panel": 0, "block": "self", "weighting": "attention", "layer": 1, "head": 2, "query": 3}
    made._handle_custom_msg({"kind": "chunk", "id": 7, "name": name}, [])
    made._handle_custom_msg({"kind": "exact", "id": 8, **place}, [])
    made._handle_custom_msg({"kind": "chunk", "id": 9, "name": "a/nothing"}, [])
    made._handle_custom_msg({"kind": "exact", "id": 10, **place, "query": 99}, [])
    made._handle_custom_msg({"kind": "tea", "id": 11}, [])
    exact = model("gpt2").run(TEXT, ["pattern.1"])["pattern.1"][0, 2, 3].numpy().astype("<f4").tobytes()
    assert sent[0] == ({"kind": "chunk", "id": 7}, [view.payload.chunks[name].stored])
    assert sent[1] == ({"kind": "exact", "id": 8}, [exact])
    assert [(content["kind"], content["id"]) for content, _ in sent[2:]] == [("error", 9), ("error", 10), ("error", 11)]
    assert "query 99" in sent[3][0]["message"]
    assert "application/vnd.jupyter.widget-view+json" in str(view._repr_mimebundle_())
    widget._widget_class.cache_clear()


def test_a_view_is_titled_with_its_text_on_one_line():
    assert shown_text("A  short\ntext.") == "“A short text.”"
    assert shown_text("One.", None, "Two.") == "“One.” · “Two.”"
    cut = shown_text("word " * 40)
    assert cut == "“" + " ".join(["word"] * 18) + "…”"
    assert shown_text("x" * 200) == "“" + "x" * 90 + "…”"
    made = head_view(opened(single_bytes(), "gpt2"), "ab cd")
    assert made.header["title"] == "“ab cd”"
