"""Two models side by side: panels, the difference of heads, and why there may be none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pellucid.errors import PellucidError
from pellucid.model import Model
from pellucid.views import compare_view
from pellucid.views.interactive import scene
from tests.tiny_models import network, word_tokenizer
from tests.views.interactive.decoding import TEXT, block, head_codes, model, statistics


def test_the_difference_is_the_divergence_of_heads_of_the_same_number():
    one = model("gpt2")
    other = Model.load(network("gpt2", seed=1), tokenizer=word_tokenizer())
    view = compare_view(one, other, TEXT)
    assert view.header["kind"] == "compare"
    assert [panel["fingerprint"] for panel in view.header["panels"]] == [one.fingerprint, other.fingerprint]
    runs = [each.run(TEXT, "pattern.*") for each in (one, other)]
    found = [statistics(view, panel=panel)["difference"] for panel in (0, 1)]
    assert (found[0] == found[1]).all()
    for layer in range(3):
        for head in range(4):
            p, q = (run[f"pattern.{layer}"][0, head].double().numpy() for run in runs)
            rows = []
            for a, b in zip(p, q, strict=True):
                m = (a + b) / 2
                rows.append(sum(x * math.log(x / z) for x, z in zip(a, m, strict=True) if x > 0) / 2)
                rows[-1] += sum(y * math.log(y / z) for y, z in zip(b, m, strict=True) if y > 0) / 2
            assert found[0][layer, head] == pytest.approx(np.mean(rows) / math.log(2), rel=5e-3, abs=1e-4)
    for panel, run in enumerate(runs):
        exact = run["pattern.2"][0, 1].double().numpy()
        assert np.abs(head_codes(view, 2, 1, panel=panel)[0] / 255 - np.sqrt(exact)).max() <= 0.5 / 255 + 1e-6


def test_a_model_does_not_differ_from_itself():
    view = compare_view(model("bert"), model("bert"), TEXT, layers=[1])
    assert (statistics(view)["difference"] == 0).all()
    assert view.state["colour"] == "difference"
    assert block(view, panel=1)["layers"] == [1]


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        (("gpt2", None), ("bert", False), "one model sees later tokens"),
        (("bert", True), ("bert", False), "different tokens"),
    ],
)
def test_heads_that_cannot_be_paired_say_why(left, right, reason):
    view = compare_view(*(model(name, closing=closing) for name, closing in (left, right)), TEXT)
    assert "difference" not in block(view)["statistics"]
    assert reason in view.notes[0]
    assert "colour" not in view.state
    assert len(view.header["panels"]) == 2


def test_other_layers_and_blocks_say_why():
    from pellucid.families import configs

    assert "has no such block" in compare_view(model("gpt2"), model("bart"), TEXT).notes[0]
    smaller = configs.FAMILIES["gpt2"]
    changed = type(smaller)(smaller.name, smaller.model_type, smaller.head, {**smaller.settings, "n_layer": 2})
    other = Model.load(configs.build(changed, attention="eager", dtype=None, seed=0), tokenizer=word_tokenizer())
    view = compare_view(model("gpt2"), other, TEXT)
    assert "3 layers of 4 heads" in view.notes[0]
    assert "2 layers of 4 heads" in view.notes[0]


def test_long_texts_are_not_paired(monkeypatch):
    monkeypatch.setattr(scene, "LARGEST", 10)
    view = compare_view(model("gpt2"), model("gpt2"), TEXT)
    assert "too long" in view.notes[0]
    exact = model("gpt2").run(TEXT, ["pattern.0"])["pattern.0"][0, 2].double().numpy()
    assert np.abs(head_codes(view, 0, 2, panel=1)[0] / 255 - np.sqrt(exact)).max() <= 0.5 / 255 + 1e-6


def test_a_layer_that_one_model_lacks_is_refused():
    with pytest.raises(PellucidError, match="layers 0 to 2"):
        compare_view(model("gpt2"), model("gpt2"), TEXT, layers=[5])
