"""Views of effective attention: absolute values are drawn, signs are told, and exact rows are its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid import Model
from pellucid.collect.null_space import effective
from pellucid.errors import ModelError, SweepError
from pellucid.views import head_view, model_view
from pellucid.views.interactive.held import Held
from tests.tiny_models import TEXT, network, word_tokenizer


def model_of(family: str) -> Model:
    return Model.load(network(family), tokenizer=word_tokenizer())


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_drawn_are_absolute_values_and_the_negative_part(family):
    model = model_of(family)
    view = head_view(model, TEXT, weights="effective")
    block = view.header["panels"][0]["blocks"][0]
    assert list(block["weightings"]) == ["effective", "negative"]
    assert "has signs" in view.notes[0]
    run = model.run(model.tokenize([TEXT]), sites=["pattern.1", "value.1"])
    signed = effective(run["pattern.1"][0], run["value.1"][0]).numpy()
    assert (signed < 0).any()
    held = Held(view, 0)
    for name, expected in (("effective", np.abs(signed)), ("negative", np.maximum(-signed, 0))):
        for head in range(len(signed)):
            shown = held.matrix(block, name, 1, head)
            rows = shown.rows(np.arange(signed.shape[1])) / 255  # bytes stand for √w
            np.testing.assert_allclose(rows, np.sqrt(expected[head]), atol=1 / 500)
        assert view.live is not None
        exact = view.live.exact(0, block["name"], name, 1, 2, signed.shape[1] - 1)
        np.testing.assert_allclose(exact, expected[2, -1], atol=1e-6)
    if model.causal:
        assert not np.triu(rows, 1).any()


def test_the_model_view_has_thumbnails_of_both_and_saves(tmp_path):
    view = model_view(model_of("gpt2"), TEXT, weights="effective")
    assert {"t/0/self/effective", "t/0/self/negative"} <= set(view.payload.chunks)
    for name in ("view.html", "view.svg"):
        assert view.save(tmp_path / name).stat().st_size > 1000
    assert (
        view.with_state(weighting="negative").save(tmp_path / "negative.svg").read_bytes()
        != (tmp_path / "view.svg").read_bytes()
    )


def test_raw_weights_stay_as_they_were():
    one, other = head_view(model_of("gpt2"), TEXT), head_view(model_of("gpt2"), TEXT, weights="raw")
    assert one.payload.chunks == other.payload.chunks
    assert list(one.header["panels"][0]["blocks"][0]["weightings"]) == ["attention"]


def test_cross_attention_has_effective_weights_too():
    model = Model.load(network("t5"), tokenizer=word_tokenizer())
    view = head_view(model, TEXT, target="the old dog", weights="effective")
    names = [block["name"] for block in view.header["panels"][0]["blocks"]]
    assert names == ["encoder", "decoder", "cross"]
    assert any(name.startswith("a/0/cross/negative/") for name in view.payload.chunks)


def test_unknown_weights_and_broken_layers_are_told():
    with pytest.raises(SweepError, match=r"no 'sharp' weights of heads; there are raw, effective"):
        head_view(model_of("gpt2"), TEXT, weights="sharp")
    model = model_of("gpt2")
    with torch.no_grad():
        model.hf.transformer.h[2].attn.c_attn.weight[:, -1] = torch.nan
    with pytest.raises(ModelError, match=r"Values of pattern\.2 are NaN or infinite in head 3"):
        head_view(model, TEXT, weights="effective")
