"""The same promises on real models: outputs untouched, captured tensors recomposed by the oracle, edits undone."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise

import pytest
import torch

from pellucid import Batch, Edit, Model
from pellucid.families.configs import FAMILIES
from pellucid.families.oracle import recompose
from tests.real.packaged import TEXTS, defender, minilm, reaction_batch, rxnmapper, smollm2

REACTIONS = ["CC(=O)O.OCC>>CC(=O)OCC", "BrCCc1ccccc1.[Na]O>>OCCc1ccccc1"]


def expect_faithful(model: Model, eager: Model, family: str, batch: Batch, *, tolerance: float = 5e-5) -> None:
    """Capture of every site leaves the output bit-equal, and the oracle recomposes what was captured."""
    with torch.no_grad():
        arguments = batch.inputs(frozenset({"token_type_ids", "position_ids"}), causal=family == "llama")
        plain = next(iter(model.hf(**arguments).values()))
    run = model.run(batch, model.sites)
    assert torch.equal(next(iter(run.output.values())), plain)
    captured = {str(site): run[site] for site in run}
    found = recompose(FAMILIES[family], model.hf, captured, arguments, eager_model=eager.hf, tolerance=tolerance)
    assert len(found) >= 9 * len([site for site in model.sites if site.kind == "mlp"])
    assert [finding for finding in found if not finding.ok and "not applicable" not in finding.note] == []


def expect_undone(model: Model, batch: Batch, edit: Edit) -> None:
    """An edit shows in the output, and afterwards every bit is as before."""
    before = next(iter(model.run(batch).output.values()))
    assert not torch.equal(next(iter(model.run(batch, (), edit).output.values())), before)
    assert torch.equal(next(iter(model.run(batch).output.values())), before)


@pytest.mark.parametrize("side", ["right", "left"])
def test_minilm_is_faithful(side: str) -> None:
    model = minilm()
    batch = model.tokenize(TEXTS, padding_side=side)
    expect_faithful(model, minilm(attention="eager"), "bert", batch)
    expect_undone(model, batch, Edit.zero("heads.3", heads=[2, 7]))


def test_minilm_embeds_meaning() -> None:
    """A paraphrase is nearer than an unrelated sentence: the weights are the trained ones, and padding is left out."""
    model = minilm()
    batch = model.tokenize(
        [
            "A man is playing a guitar.",
            "Someone plays an instrument on a stage.",
            "The stock market fell sharply today.",
        ]
    )
    last = model.run(batch, "resid.6")["resid.6"]
    weights = batch.mask[:, :, None].float()
    sentences = torch.nn.functional.normalize((last * weights).sum(1) / weights.sum(1), dim=-1)
    near, far = float(sentences[0] @ sentences[1]), float(sentences[0] @ sentences[2])
    assert near > 0.4 > 0.2 > far


def test_random_minilm_is_not_the_trained_one() -> None:
    model = minilm()
    control = Model.random_like(model, seed=1)
    trained, fresh = dict(model.hf.named_parameters()), dict(control.hf.named_parameters())
    matrices = [name for name, value in trained.items() if value.dim() == 2]
    assert matrices
    assert not [name for name in matrices if torch.allclose(trained[name], fresh[name], atol=1e-3)]
    again = dict(Model.random_like(model, seed=1).hf.named_parameters())
    assert all(torch.equal(fresh[name], again[name]) for name in fresh)


@pytest.mark.real
@pytest.mark.parametrize("side", ["right", "left"])
def test_smollm2_is_faithful(side: str) -> None:
    """Thirty layers of a grouped-query Llama with large outliers; in float32 its sums keep about four digits."""
    model = smollm2()
    batch = model.tokenize(TEXTS, padding_side=side)
    expect_faithful(model, smollm2(attention="eager"), "llama", batch, tolerance=5e-4)
    expect_undone(model, batch, Edit.zero("neurons.12", neurons=range(100)))


@pytest.mark.real
def test_smollm2_generates_with_a_head_ablated_and_restored() -> None:
    model = smollm2()
    prompt = "The capital of France is"
    before = model.generate(prompt, max_new_tokens=8)
    assert before.texts[0].startswith(" Paris")
    ablated = model.generate(prompt, max_new_tokens=8, edits=[Edit.zero("heads.0", heads=range(9))], sites="heads.0")
    assert ablated.texts != before.texts
    assert [step["heads.0"].shape[2] for step in ablated.steps] == [5] + [1] * (len(ablated.steps) - 1)
    assert all(not bool(step["heads.0"].any()) for step in ablated.steps)
    assert torch.equal(model.generate(prompt, max_new_tokens=8).ids, before.ids)


@pytest.mark.real
def test_rxnmapper_shares_one_block_and_keeps_twelve_layers_apart() -> None:
    model = rxnmapper()
    batch = reaction_batch(REACTIONS)
    expect_faithful(model, rxnmapper(attention="eager"), "albert", batch)
    run = model.run(batch, "pattern.*")
    patterns = [run[site] for site in run]
    assert len(patterns) == 12
    assert all(not torch.equal(one, other) for one, other in pairwise(patterns))
    expect_undone(model, batch, Edit.zero("heads.10", heads=5))


@pytest.mark.real
def test_defender_shares_its_first_layers_with_minilm() -> None:
    """Layers 0 to 3 are frozen copies (up to int8 rounding), 4 and 5 were tuned: the streams part only there."""
    tuned, base = defender(), minilm()
    batch = base.tokenize(TEXTS)
    expect_faithful(tuned, _eager(tuned), "bert", batch)
    sites = [f"mlp.{layer}" for layer in range(6)]
    one, other = tuned.run(batch, sites), base.run(batch, sites)
    real = batch.mask.bool()

    def distance(site: str) -> float:
        return float((one[site] - other[site])[real].norm() / other[site][real].norm())

    frozen, moved = max(map(distance, sites[:4])), min(map(distance, sites[4:]))
    assert frozen < 0.1 < moved, (frozen, moved)


def _eager(model: Model) -> Model:
    network = type(model.hf)._from_config(
        deepcopy(model.hf.config), attn_implementation="eager", add_pooling_layer=False
    )  # type: ignore[operator]
    network.load_state_dict(model.hf.state_dict())
    return Model.load(network.eval(), tokenizer=model.tokenizer)
