"""Hidden token attribution: Jacobian norms against reverse mode and finite differences, and the measures of mixing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid import Batch, Corpus, Edit, Model
from pellucid.errors import ModelError
from pellucid.identifiability import hidden_flow, jacobians, mixing, reactions
from pellucid.identifiability.jacobians import Reactions
from pellucid.identifiability.notes import notes_of
from pellucid.identifiability.token_mixing import MEASURES, _measured
from pellucid.results import Result, ResultError
from pellucid.uncertainty import jackknife
from tests.tiny_models import network, opened, padded, word_tokenizer

TEXT = "the old red dog runs"


@pytest.fixture(scope="module", params=["gpt2_folder", "bert_folder"])
def model(request):
    return Model.load(request.getfixturevalue(request.param), dtype=torch.float64)


def test_norms_are_those_of_the_jacobian(model):
    batch = model.tokenize(TEXT)
    found = reactions(model, batch, budget=64).norms
    start = model.run(batch, sites=["resid.0"])["resid.0"].detach()
    for layer in range(1, len(found)):

        def state(x, layer=layer):
            edits = [Edit.patch("resid.0", x)]
            return model.run(batch, sites=[f"resid.{layer}"], edits=edits, gradients=True)[f"resid.{layer}"][0]

        whole = torch.autograd.functional.jacobian(state, start)[:, :, 0]  # [token, width, input, width]
        torch.testing.assert_close(found[layer], whole.square().sum((1, 3)).sqrt(), rtol=1e-8, atol=1e-10)
    assert bool((found[0] - found[0].diagonal().diag()).abs().max() < 1e-12)  # the input reacts to itself alone


def test_norms_agree_with_finite_differences(model):
    batch, step = model.tokenize(TEXT), 1e-5
    last = f"resid.{len(reactions(model, batch).norms) - 1}"
    start = model.run(batch, sites=["resid.0"])["resid.0"].detach()
    token, squares = 1, 0.0
    for feature in range(start.shape[2]):
        ends = []
        for sign in (1, -1):
            moved = start.clone()
            moved[0, token, feature] += sign * step
            ends.append(model.run(batch, sites=[last], edits=[Edit.patch("resid.0", moved)])[last][0])
        squares = squares + ((ends[0] - ends[1]) / (2 * step)).square().sum(-1)
    torch.testing.assert_close(reactions(model, batch).norms[-1, :, token], squares.sqrt(), rtol=1e-6, atol=1e-8)


def test_back_propagating_ones_is_not_the_norm(model):
    """The trap: the gradient of a state's sum is another number."""
    batch = model.tokenize(TEXT)
    run = model.run(batch, sites=["resid.0", "resid.1"], gradients=True)
    (ones,) = torch.autograd.grad(run["resid.1"][0, 2].sum(), run["resid.0"])
    assert float((ones[0].norm(dim=-1) - reactions(model, batch).norms[1, 2]).abs().max()) > 0.01


def test_estimates_are_as_far_off_as_they_say(model):
    batch = model.tokenize(TEXT)
    exact = reactions(model, batch).norms
    there = exact > 1e-9
    told = [reactions(model, batch, probes=64, seed=seed) for seed in range(12)]
    off = torch.stack([(each.norms - exact)[there] / exact[there] for each in told])
    said = torch.stack([each.error[there] for each in told]).mean(0)
    assert float(off.square().mean().sqrt()) == pytest.approx(float(said.square().mean().sqrt()), rel=0.35)
    assert float(off.mean()) == pytest.approx(0, abs=0.02)


def test_a_causal_state_reacts_to_nothing_behind_it(gpt2_folder):
    norms = reactions(Model.load(gpt2_folder), Model.load(gpt2_folder).tokenize(TEXT)).norms
    assert not norms.triu(1).any()


def test_measures_by_hand():
    norms = torch.tensor([[[1.0, 0, 0], [0, 1, 0], [0, 0, 1]], [[2.0, 1, 1], [3, 1, 0], [0, 0, 5]]]).double()
    halves = torch.stack([norms, norms.flip(-1)])
    told = _measured(
        "d", Reactions(norms, torch.zeros_like(norms), halves), np.array([True, True, False]), causal=False
    )
    own, not_largest, reach, near = (told.told[list(MEASURES).index(name)] for name in MEASURES)
    np.testing.assert_allclose(own, [2, 0.5 + 0.25])
    np.testing.assert_allclose(not_largest, [0, 1])
    np.testing.assert_allclose(reach, [0, (0.25 + 2 * 0.25) + 0.75])
    np.testing.assert_allclose(near, [0, 2])
    assert told.tokens == 2
    np.testing.assert_allclose(told.half, [(0 + 1) / 2, (1 + 2) / 2])
    np.testing.assert_allclose(told.even, [2 / 3, 4 / 3, 1 + 2 / 3, 2])
    middle = told.offsets.shape[1] // 2
    np.testing.assert_allclose(told.offsets[1, middle - 1 : middle + 3], [0.75, 0.5 + 0.25, 0.25, 0.25])


def test_a_corpus_with_intervals_and_a_random_model(model, tmp_path):
    corpus = Corpus.of([TEXT, "a cat sleeps", "the keys of the cabinet are old", "the dog runs to the red cat"])
    found = mixing(model, corpus)
    assert found.low is not None
    assert found.values.shape == (4, len(found.axes["layer"]))
    assert (found.measure("own")[1:] < 1).all()
    assert found.measure("own")[0] == 1
    drawn = found.table("random model").columns
    assert drawn["value"].shape == found.values.shape
    assert (drawn["low"] <= drawn["value"]).all()
    assert found.table("texts").columns["error"].max() == 0  # short and narrow: exact
    offsets = found.table("offsets").columns
    middle = found.table("offsets").axes["offset"].index(0)
    np.testing.assert_allclose(offsets["low"][middle], found.low[0], atol=1e-9)  # own, told in two ways
    np.testing.assert_allclose(offsets["high"][middle], found.high[0], atol=1e-9)
    np.testing.assert_allclose(found.table("directions").columns["not largest by half"], found.measure("not largest"))
    np.testing.assert_allclose(found.table("offsets").columns["share"].sum(0), 1, atol=1e-9)
    own = found.table("offsets").columns["share"][found.table("offsets").axes["offset"].index(0)]
    np.testing.assert_allclose(own, found.measure("own"), atol=1e-12)
    found.save(tmp_path / "kept")
    assert Result.load(tmp_path / "kept").same(found)
    found.plot().savefig(tmp_path / "figure.png")


@pytest.mark.parametrize("name", ["llama", "t5", "deberta-v2", "albert", "led"])
def test_other_families_carry_derivatives_too(name):
    given = padded(name)
    target = None if given.target_ids is None else given.target_ids[:1]
    found = reactions(opened(name), Batch.of_ids(given.ids[:1], target_ids=target), probes=2)
    assert bool(torch.isfinite(found.norms).all())
    assert bool((found.norms[-1].diagonal() > 0).all())


def test_documents_weigh_as_their_tokens(gpt2_folder):
    """The interval is that of a jackknife of token means, with groups of unequal size."""
    model, texts = Model.load(gpt2_folder), [TEXT, "a cat", "the keys of the cabinet are old"]
    found = mixing(model, Corpus.of(texts), random=False)
    tokens = found.table("texts").columns["tokens"].astype(float)
    own = found.table("by text").columns["value"][:, 0, -1]
    without = [np.average(np.delete(own, each), weights=np.delete(tokens, each)) for each in range(3)]
    wanted = jackknife(np.array(np.average(own, weights=tokens)), [np.array(each) for each in without], tokens.tolist())
    assert found.low[0, -1] == pytest.approx(float(wanted.low))
    assert found.high[0, -1] == pytest.approx(float(wanted.high))


def test_exact_norms_can_be_asked_for_and_are_taken_where_that_is_quick(gpt2_folder, monkeypatch):
    model, corpus = Model.load(gpt2_folder), Corpus.of([TEXT])
    monkeypatch.setattr(jacobians, "QUICK", 0)
    guessed = mixing(model, corpus, random=False)
    exact = mixing(model, corpus, random=False, probes="exact")
    assert guessed.table("texts").columns["error"].min() > 0
    assert exact.table("texts").columns["error"].max() == 0
    assert jacobians.probes_for(model, 5, None) == jacobians.PROBES
    assert jacobians.probes_for(model, 5, "exact") is None
    assert jacobians.probes_for(model, 5, 7) == 7
    sites = jacobians.stream(model)
    width = model.size(sites[0])[-1]
    assert jacobians.operations(model, 10) == 100 * width * 24 * width**2 * (len(sites) - 1)


def test_halves_of_the_directions_make_the_whole(model):
    batch = model.tokenize(TEXT)
    for probes, parts in ((4, (2, 2)), (5, (3, 2))):
        found = reactions(model, batch, probes=probes)
        whole = sum(part * half.square() for part, half in zip(parts, found.halves, strict=True)) / probes
        torch.testing.assert_close(whole, found.norms.square())
    assert not torch.equal(found.halves[0], found.halves[1])
    exact = reactions(model, batch)
    assert torch.equal(exact.halves[0], exact.norms)


def test_a_layer_that_is_no_number_is_named():
    broken = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    with torch.no_grad():
        broken.hf.transformer.h[1].mlp.c_proj.bias.fill_(torch.nan)
        broken.hf.transformer.h[1].mlp.c_proj.weight.fill_(torch.nan)
    for told in (lambda: mixing(broken, Corpus.of([TEXT]), random=False), lambda: hidden_flow(broken, TEXT)):
        with pytest.raises(ModelError, match=r"Derivatives at resid\.2 of .* are not numbers"):
            told()


def test_texts_that_are_left_out_are_told():
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    long = " ".join(["dog"] * (model.limit + 1))
    found = mixing(model, Corpus.of([TEXT, long, "dog", "dog"]), probes=2)
    assert notes_of(found) == [
        f"1 of the texts has more than the {model.limit} tokens that the model reads, and is left out.",
        "2 of the texts have one token alone, and are left out.",
    ]
    assert notes_of(mixing(model, Corpus.of([TEXT]), probes=2, random=False)) == []


def test_eager_attention_is_tried_where_fused_attention_fails(monkeypatch):
    """Fused attention that cannot carry derivatives gives way to eager attention, with the same norms."""
    plain, fused = opened("gpt2"), opened("gpt2", "sdpa")
    batch = Batch.of_ids(padded("gpt2").ids[:1])
    wanted = reactions(plain, batch, probes=2).norms
    torch.testing.assert_close(reactions(fused, batch, probes=2).norms, wanted, rtol=1e-4, atol=1e-6)
    attend, refused = torch.nn.functional.scaled_dot_product_attention, []

    def refusing(*given, **named):
        if torch._C._functorch.peek_interpreter_stack() is not None:
            refused.append(True)
            raise RuntimeError("no forward mode here")
        return attend(*given, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refusing)
    torch.testing.assert_close(reactions(fused, batch, probes=2).norms, wanted, rtol=1e-4, atol=1e-6)
    assert refused == [True]  # tried once, and not again for what follows
    assert fused.attention == "fused"


def test_a_family_that_cannot_is_named():
    with pytest.raises(ModelError, match="nor with eager attention"):
        reactions(opened("bloom"), Batch.of_ids(padded("bloom").ids[:1]), probes=2)


def test_what_cannot_be_looked_at_is_refused(model):
    with pytest.raises(ModelError, match="one text, and 2 were given"):
        reactions(model, model.tokenize([TEXT, TEXT]))
    with pytest.raises(ModelError, match="probes=1 cannot tell its own error"):
        reactions(model, model.tokenize(TEXT), probes=1)
    with pytest.raises(ModelError, match="probes='many' is no number of directions"):
        mixing(model, Corpus.of([TEXT]), probes="many")
    with pytest.raises(ModelError, match="sentences=0"):
        mixing(model, Corpus.of([TEXT]), sentences=0)
    if model.causal:
        with pytest.raises(ResultError, match="nothing can mix"):
            mixing(model, Corpus.of(["dog"]))
