"""Text views: tracks, maps and the lens against what the model gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid.errors import ModelError, SiteError, TextError
from pellucid.views import text_view
from tests.views.interactive.decoding import TEXT, inflated, model, weight


def text_data(view) -> dict:
    return view.header["panels"][0]["text"]


def tracks(view) -> dict[str, np.ndarray]:
    about = text_data(view)["tracks"]
    rows = np.frombuffer(inflated(view, "text/0/tracks"), "<f4").reshape(len(about), -1)
    return dict(zip(about, rows, strict=True))


def test_tracks_are_activations_and_surprise():
    opened = model("gpt2")
    view = text_view(opened, TEXT, neurons=["neurons.1:17", "resid.3:2"])
    run = opened.run(TEXT, ["neurons.1", "resid.3"])
    found = tracks(view)
    assert list(found) == ["neurons.1:17", "resid.3:2", "surprise"]
    assert np.allclose(found["neurons.1:17"], run["neurons.1"][0, :, 17].numpy())
    assert np.allclose(found["resid.3:2"], run["resid.3"][0, :, 2].numpy())
    ids, logits = run.batch.ids[0], run.logits[0].double()
    assert np.isnan(found["surprise"][0])
    for place in range(1, len(ids)):
        nats = -float(torch.log_softmax(logits[place - 1], -1)[ids[place]])
        assert found["surprise"][place] == pytest.approx(nats, rel=1e-5)
    assert view.state["track"] == "neurons.1:17"
    assert view.header["kind"] == "text"
    assert view.header["panels"][0]["blocks"] == []


def test_tracks_of_ones_own():
    opened = model("gpt2")
    count = opened.tokenize(TEXT).ids.shape[1]
    mine = np.linspace(-1, 2, count)
    view = text_view(opened, TEXT, tracks={"attribution": mine, "length": range(count)}, neurons=["neurons.1:17"])
    found = tracks(view)
    assert list(found) == ["attribution", "length", "neurons.1:17", "surprise"]
    assert np.allclose(found["attribution"], mine)
    assert [text_data(view)["tracks"][name]["signed"] for name in ("attribution", "length")] == [True, False]
    assert view.state["track"] == "attribution"
    with pytest.raises(TextError, match=f"'attribution' has the shape \\[3\\], and the text has {count} tokens"):
        text_view(opened, TEXT, tracks={"attribution": [1, 2, 3]})
    mine[4] = np.nan
    with pytest.raises(TextError, match="not a number at token 4"):
        text_view(opened, TEXT, tracks={"attribution": mine})


def test_norms_of_the_stream_by_layer():
    for name, prefix in (("bert", ""), ("t5", "encoder.")):
        opened = model(name)
        view = text_view(opened, TEXT)
        about = text_data(view)["maps"]["norms"]
        assert about["rows"] == ["input", "layer 0", "layer 1", "layer 2"]
        found = np.frombuffer(inflated(view, "text/0/map/norms"), "<f4").reshape(4, -1)
        run = opened.run(TEXT, f"{prefix}resid.*")
        for row in range(4):
            assert np.allclose(found[row], run[f"{prefix}resid.{row}"][0].norm(dim=-1).numpy(), rtol=1e-5)
        assert text_data(view)["lens"] is None
        assert text_data(view)["tracks"] == {}


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "granite", "cohere", "opt"])
def test_the_lens_shows_what_each_layer_would_predict(name):
    opened = model(name)
    view = text_view(opened, TEXT)
    about = text_data(view)["lens"]
    rows, count = 4, len(view.header["panels"][0]["tokens"]["text"]["text"])
    assert (len(about["rows"]), about["most"]) == (rows, 5)
    words = inflated(view, "text/0/lens/words").decode().split("\n")
    ids = np.frombuffer(inflated(view, "text/0/lens/ids"), "<u4").reshape(rows, count, 5)
    codes = np.frombuffer(inflated(view, "text/0/lens/probs"), np.uint8).reshape(rows, count, 5)
    run = opened.run(TEXT, "resid.*")
    best = run.logits[0].float().softmax(-1).topk(5)
    assert np.abs(np.sqrt(weight(codes[-1])) - best.values.sqrt().numpy()).max() <= 0.5 / 255 + 1e-6
    known = {opened.tokenizer.convert_ids_to_tokens(place): place for place in range(22)}
    for place in range(count):
        for rank in range(5):
            word = words[ids[-1, place, rank]]
            if word in known:
                assert known[word] == best.indices[place, rank]
    if name in ("gpt2", "llama"):  # the norm and head by name
        norm = opened.hf.transformer.ln_f if name == "gpt2" else opened.hf.model.norm
        with torch.no_grad():
            early = opened.hf.lm_head(norm(run["resid.1"][0])).softmax(-1).topk(5)
        assert np.abs(np.sqrt(weight(codes[1])) - early.values.sqrt().numpy()).max() <= 0.5 / 255 + 1e-6


def test_a_model_whose_readout_is_not_found_says_so(monkeypatch):
    monkeypatch.setattr("pellucid.views.interactive.lens.readout", lambda *_: None)
    view = text_view(model("gpt2"), TEXT)
    assert text_data(view)["lens"] is None
    assert any("There is no lens" in note for note in view.notes)


def test_parts_can_be_left_out():
    view = text_view(model("gpt2"), TEXT, surprise=False, lens=False)
    assert text_data(view)["tracks"] == {}
    assert text_data(view)["lens"] is None
    assert list(view.payload.chunks) == ["text/0/map/norms"]
    with pytest.raises(ModelError, match=r"Nothing of .* was asked for"):
        text_view(model("bert"), TEXT, norms=False)


@pytest.mark.parametrize(
    ("neuron", "complaint"),
    [
        ("neurons.1", "names no unit"),
        ("neurons.1:x", "names no unit"),
        ("neurons.1:56", "units 0 to 55"),
        ("neurons.9:1", "No site matches 'neurons.9'"),
        ("neurons.*:1", "exactly one is needed"),
        ("heads.1:1", "not one number per token"),
        ("logits:1", "not one number per token"),
    ],
)
def test_bad_units_are_refused(neuron, complaint):
    with pytest.raises(SiteError, match=complaint):
        text_view(model("gpt2"), TEXT, neurons=[neuron])


def test_other_bad_input():
    with pytest.raises(SiteError, match="belongs to the decoder"):
        text_view(model("t5"), TEXT, neurons=["decoder.neurons.1:1"])
    for option in ({"surprise": True}, {"lens": True}):
        with pytest.raises(ModelError, match="needs a causal language model"):
            text_view(model("bert"), TEXT, **option)
    with pytest.raises(TextError, match="at least one word"):
        text_view(model("gpt2"), "")


def test_one_token_has_no_surprise():
    view = text_view(model("gpt2"), "dog")
    assert np.isnan(tracks(view)["surprise"]).all()
