"""Attribution of written text: each token from what stands before it, all from the same passes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid.attribution import Target, attribute, generation
from pellucid.errors import AttributionError, TextError
from pellucid.model import Batch, Model
from pellucid.results import Result
from tests.tiny_models import WORDS, network, opened, word_tokenizer

PROMPT = "the keys near cabinet"


@pytest.fixture(scope="module")
def lm() -> Model:
    return Model.load(network("gpt2"), tokenizer=word_tokenizer())


@pytest.fixture(scope="module")
def written(lm):
    return generation(lm, PROMPT, max_new_tokens=4, steps=12)


def by_hand(hf, ids: list[int], steps: int) -> np.ndarray:
    """Integrated gradients of the last token's logit from the tokens before it, by autograd alone."""
    before = hf.get_input_embeddings()(torch.tensor([ids[:-1]])).detach()
    points, weights = np.polynomial.legendre.leggauss(steps - 1)
    total = torch.zeros_like(before)
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        moved = (before * point).float().requires_grad_()
        hf(inputs_embeds=moved).logits[0, -1, ids[-1]].backward()
        total += float(weight) * moved.grad
    hf.zero_grad()
    return (total * before).sum(-1)[0].double().numpy()


def test_every_token_is_explained_by_its_own_prefix(lm, written):
    ids = [int(token) for token in lm.generate(PROMPT, max_new_tokens=4).ids[0]]
    assert written.values.shape == (1, len(ids) - 4, 1, len(ids))
    for place in range(4, len(ids)):
        expected = by_hand(lm.hf, ids[: place + 1], 12)
        assert written.values[0, place - 4, 0, :place] == pytest.approx(expected, abs=1e-5)


def test_tokens_at_or_after_the_target_are_exactly_zero(lm, written):
    for place in range(4):
        assert (written.values[:, place, :, 4 + place :] == 0.0).all()
        assert (written.values[:, place, :, : 4 + place] != 0.0).any(axis=-1).all()


def test_the_zeros_are_the_models_own(lm):
    """Without setting anything to zero, gradients of a causal model say the same."""
    ids = lm.generate(PROMPT, max_new_tokens=4).ids
    plain = attribute(lm, Batch.of_ids(ids), Target.token(3, position=4), "gradient_x_activation")
    assert (plain.values[..., 5:] == 0.0).all()


def test_targets_bear_the_names_of_their_tokens(written):
    assert written.axes["target"] == written.axes["token"][4:]
    assert written.kind == "attribution.generation"


def test_sums_are_complete(written):
    table = written.completeness
    assert table.columns["relative error"].max() < 1e-3
    assert table.columns["sum"] == pytest.approx(written.values[0].sum(axis=(1, 2)), rel=1e-5, abs=1e-5)


def test_one_pass_serves_all_tokens(lm, monkeypatch):
    """Explaining five tokens takes as many passes of the network as explaining one of them."""
    ids = [int(token) for token in lm.generate(PROMPT, max_new_tokens=5).ids[0]]
    seen: list[int] = []
    forward = lm.hf.forward

    def counting(*given, **named):
        seen.append(1)
        return forward(*given, **named)

    monkeypatch.setattr(lm.hf, "forward", counting)
    generation(lm, PROMPT, text=ids[4:], steps=10)
    every, seen[:] = len(seen), []
    generation(lm, PROMPT, text=ids[4:5], steps=10)
    assert every == len(seen)


def test_a_given_continuation_is_explained_instead(lm):
    given = generation(lm, PROMPT, text=" are old red", steps=12, method="ig,saliency")
    ids = [5 + WORDS.index(word) for word in f"{PROMPT} are old red".split()]
    assert given.axes["measure"] == ("integrated_gradients", "saliency")
    assert [name.split()[1] for name in given.axes["target"]] == ["are", "old", "red"]
    for place in (4, 5, 6):
        expected = by_hand(lm.hf, ids[: place + 1], 12)
        assert given.values[0, place - 4, 0, :place] == pytest.approx(expected, abs=1e-5)
    same = generation(lm, PROMPT, text=ids[4:], steps=12)
    assert same.values[0] == pytest.approx(given.values[0], abs=1e-12)


def test_log_probabilities(lm):
    told = generation(lm, PROMPT, text=" are", log=True, steps=12)
    logits = lm.run(f"{PROMPT} are").logits[0, 3]
    token = 5 + WORDS.index("are")
    assert told.targets.columns["score"][0] == pytest.approx(float(logits.log_softmax(-1)[token]), abs=1e-5)


def test_closing_tokens_of_a_given_text_stay_out():
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer(closing=True))
    told = generation(model, PROMPT, text=" are", steps=4)
    assert told.axes["token"][-1].split()[1] == "are"
    assert len(told.axes["token"]) == 6  # <s>, four words, are


def test_heads_of_every_layer(lm):
    told = generation(lm, PROMPT, text=" are old", sites="heads.*", by="head", method="conductance", steps=8)
    heads = sum(lm.size(site)[0] for site in lm.sites if site.kind == "heads")
    assert told.values.shape == (1, 2, heads, 6)


def test_saved_and_loaded(written, tmp_path):
    written.save(tmp_path / "one")
    assert Result.load(tmp_path / "one").same(written)


# -- encoder–decoders ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def translated():
    model = opened("bart")
    source = torch.tensor([[40, 41, 42, 43, 44]])
    batch = Batch.of_ids(source, target_ids=[[2]])
    return model, batch, generation(model, batch, max_new_tokens=3, steps=12)


def test_a_decoder_is_explained_by_source_and_prefix(translated):
    model, batch, told = translated
    read = model.generate(batch, max_new_tokens=3).ids
    assert told.axes["place"] == ("encoder.embed", "decoder.embed")
    assert told.tokens.columns["side"].tolist() == ["source"] * 5 + ["target"] * read.shape[1]
    for place in range(1, read.shape[1]):
        prefix = Batch.of_ids(batch.ids, target_ids=read[:, :place])
        alone = attribute(model, prefix, Target.token(int(read[0, place]), position=-1), steps=12)
        own = told.values[0, place - 1]  # [places, tokens]
        assert own[:, : 5 + place] == pytest.approx(alone.values[0, 0], abs=1e-5)
        assert (own[:, 5 + place :] == 0.0).all()
    assert (told.values[0, :, 0, :5] != 0).all()
    assert (told.values[0, :, 0, 5:] == 0).all()
    assert (told.values[0, :, 1, :5] == 0).all()


def test_what_cross_attention_looks_at_is_the_source(translated):
    model, batch, _ = translated
    told = generation(model, batch, max_new_tokens=2, steps=4, sites="cross.pattern.0,cross.value.0,cross.heads.0")
    assert (told.values[0, :, :2, :5] != 0).all()
    assert (told.values[0, :, :2, 5:] == 0).all()
    assert (told.values[0, :, 2, :5] == 0).all()
    assert (told.values[0, :, 2, 5] != 0).all()


def test_a_given_translation_is_explained():
    model = Model.load(network("bart"), tokenizer=word_tokenizer(closing=True))
    told = generation(model, "the keys", text="old red", steps=6)
    assert [name.split()[1] for name in told.axes["target"]] == ["<s>", "old", "red", "</s>"]
    assert told.axes["token"][-1] == told.axes["target"][-1]


# -- what cannot be done ---------------------------------------------------------------------------------------------


def test_refusals(lm):
    with pytest.raises(AttributionError, match="writes no text"):
        generation(opened("bert"), Batch.of_ids([[1, 2]]))
    with pytest.raises(TextError, match="both the end of the prompt"):
        generation(lm, PROMPT, text="are old")
    with pytest.raises(AttributionError, match="is empty"):
        generation(lm, PROMPT, text="")
    with pytest.raises(AttributionError, match="is empty"):
        generation(lm, PROMPT, text="   ")
    with pytest.raises(AttributionError, match="one prompt"):
        generation(lm, Batch.of_ids([[1, 2], [3, 4]]))
    with pytest.raises(AttributionError, match="ready ids"):
        generation(lm, Batch.of_ids([[1, 2]]), text=" are")
    with pytest.raises(AttributionError, match="by site, head, unit"):
        generation(lm, PROMPT, by="layer")


def test_what_is_drawn_at_random_keeps_its_interval(lm):
    """Shapley values of written tokens say how sure they are, as those of one prediction do."""
    text = f"{PROMPT} and the old dog runs near a red cat"
    first = len(lm.tokenizer(text)["input_ids"])
    found = generation(lm, text, max_new_tokens=2, method=["shapley", "ablation"], samples=4)
    assert found.low is not None
    assert (found.low <= found.values).all()
    assert (found.values <= found.high).all()
    assert (found.low[0, 0, :, :first] < found.high[0, 0, :, :first]).any()
    assert np.array_equal(found.low[1], found.high[1]), "ablation draws nothing"
    for place in range(2):
        for part in (found.low, found.high):
            assert (part[:, place, :, first + place :] == 0.0).all()


def test_occlusion_has_the_window_that_is_asked_for(lm):
    """Hiding one token at a time is ablation; hiding three is not."""
    asked = {"max_new_tokens": 2, "baseline": "zero"}
    one, wide = (generation(lm, PROMPT, method="occlusion", window=window, **asked) for window in (1, 3))
    alone = generation(lm, PROMPT, method="ablation", **asked)
    assert one.values == pytest.approx(alone.values, abs=1e-6)
    assert np.abs(wide.values - one.values).max() > 1e-4
    spans = generation(lm, PROMPT, method="ablation", groups=[(0, 2)], **asked)
    assert spans.values[0, 0, 0, 0] == pytest.approx(spans.values[0, 0, 0, 1])
    assert spans.provenance.arguments["groups"] == [[0, 2]]
