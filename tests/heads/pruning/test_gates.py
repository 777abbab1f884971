"""Hard-concrete gates: their law in closed form and by draws, and gates on the heads of every kind of model."""

from __future__ import annotations

import math

import pytest
import torch

from pellucid.errors import ModelError, SiteError
from pellucid.heads.naming import all_heads, find_heads, head_name
from pellucid.heads.pruning.gates import HardConcrete, HeadGates
from pellucid.model import Edit, Model
from tests.tiny_models import opened, padded

DRAWS = 200_000
FAMILIES = ["bert", "gpt2", "llama", "bart", "albert"]


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize("location", [-3.0, -1.0, 0.0, 0.7, 2.5])
def test_the_shares_of_exact_zeros_and_ones_are_those_of_the_closed_form(location):
    """P(gate = 0) = P(s ≤ 1/12) and P(gate = 1) = P(s ≥ 11/12), solved for u by hand."""
    law = HardConcrete()
    drawn = law.drawn(torch.full((DRAWS,), location), torch.Generator().manual_seed(1))
    zero = sigmoid(0.33 * math.log(0.1 / 1.1) - location)
    one = sigmoid(location - 0.33 * math.log(11))
    for share, wanted in ((drawn == 0, zero), (drawn == 1, one)):
        spread = math.sqrt(wanted * (1 - wanted) / DRAWS)
        assert abs(float(share.double().mean()) - wanted) < 4.5 * spread
    place = torch.tensor([location], dtype=torch.float64)
    assert float(law.chance_open(place)) == pytest.approx(1 - zero, abs=1e-12)
    assert float(law.chance_whole(place)) == pytest.approx(one, abs=1e-12)


@pytest.mark.parametrize("location", [-1.0, 0.5, 2.0])
def test_draws_between_zero_and_one_follow_the_law(location):
    """P(gate ≤ g) = σ(T·logit((g + 0.1)/1.2) − log a), at places inside the interval."""
    drawn = HardConcrete().drawn(torch.full((DRAWS,), location), torch.Generator().manual_seed(2))
    for gate in (0.2, 0.5, 0.8):
        share = (gate + 0.1) / 1.2
        wanted = sigmoid(0.33 * math.log(share / (1 - share)) - location)
        assert float((drawn <= gate).double().mean()) == pytest.approx(wanted, abs=0.006)


def test_a_draw_is_the_formula_of_its_uniform_number():
    uniform = torch.rand(5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    uniform = 1e-6 + (1 - 2e-6) * uniform
    location = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0], dtype=torch.float64)
    drawn = HardConcrete().drawn(location, torch.Generator().manual_seed(3))
    for one, place, found in zip(uniform.tolist(), location.tolist(), drawn.tolist(), strict=True):
        share = sigmoid((math.log(one / (1 - one)) + place) / 0.33)
        assert found == pytest.approx(min(1.0, max(0.0, 1.2 * share - 0.1)), abs=1e-9)


def test_evaluation_has_no_noise_and_no_temperature():
    """clip(1.2·σ(log a) − 0.1): exactly 0 up to −ln 11, exactly 1 from ln 11 on."""
    location = torch.tensor([-9.0, -2.398, -2.39, 0.0, 1.0, 2.39, 2.398, 9.0], dtype=torch.float64)
    gates = HardConcrete().settled(location).tolist()
    assert gates[:2] == [0, 0]
    assert gates[-2:] == [1, 1]
    assert gates[3] == pytest.approx(0.5)
    assert gates[4] == pytest.approx(1.2 / (1 + math.exp(-1)) - 0.1)
    assert 0 < gates[2] < 0.01
    assert 0.99 < gates[5] < 1


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_the_ends_of_the_uniform_numbers_give_no_infinite_noise(end, monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, end, dtype=torch.float64))
    location = torch.full((3,), 9.0 - 18.0 * end, requires_grad=True)  # against the noise, so that neither wins alone
    drawn = HardConcrete(temperature=5.0).drawn(location)
    drawn.sum().backward()
    assert ((drawn > 0) & (drawn < 1)).all()
    assert location.grad is not None
    assert (location.grad > 0).all()


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"low": 0.1}, {"high": 0.9}, {"eps": 0.0}])
def test_a_law_that_gives_no_zeros_and_ones_is_refused(wrong):
    with pytest.raises(SiteError, match="hard-concrete gate needs"):
        HardConcrete(**wrong)


@pytest.mark.parametrize("family", FAMILIES)
def test_fresh_gates_leave_the_model_as_it_is_and_closed_ones_silence_heads(family):
    model, batch = opened(family), padded(family)
    gates = HeadGates.of(model)
    plain = model.run(batch).logits
    assert torch.equal(model.run(batch, edits=gates.edits()).logits, plain)
    assert len(gates) == sum(model.size(site)[0] for site in model.sites if site.kind == "heads")
    with torch.no_grad():
        for location in gates.locations.values():
            location[0] = -5.0
    shut = [name for name, _, _ in gates.table() if name.endswith(".0")]
    assert gates.closed() == shut
    zero = [Edit.zero(site, heads=0) for site in gates.locations]
    assert torch.allclose(model.run(batch, edits=gates.edits()).logits, model.run(batch, edits=zero).logits, atol=1e-6)
    assert not torch.allclose(model.run(batch, edits=gates.edits()).logits, plain, atol=1e-4)


def test_encoder_decoder_and_cross_heads_all_have_gates():
    names = [name for name, _, _ in HeadGates.of(opened("bart")).table()]
    assert {name.partition(".")[0] for name in names} == {"encoder", "decoder", "cross"}
    assert len(set(names)) == len(names)


def test_the_penalty_counts_open_heads_and_has_the_right_slope():
    gates = HeadGates.of(opened("gpt2"), start=0.4)
    gates.penalty().backward()
    chance = sigmoid(0.4 + 0.33 * math.log(11))
    assert float(gates.penalty().detach()) == pytest.approx(len(gates) * chance, rel=1e-6)
    for location in gates.parameters:
        assert location.grad is not None
        assert location.grad.tolist() == pytest.approx([chance * (1 - chance)] * len(location), rel=1e-5)


def test_gradients_of_the_output_reach_the_gates():
    model, batch = opened("bart"), padded("bart")
    gates = HeadGates.of(model, start=0.5)
    generator, reached = torch.Generator().manual_seed(0), [False] * len(gates.parameters)
    for _ in range(8):  # a gate that is drawn as exactly 0 or 1 has no slope
        edits = gates.training_edits(generator)
        loss = model.run(batch, edits=edits, gradients=True).logits.square().mean()
        grads = torch.autograd.grad(loss, gates.parameters)
        reached = [known or bool(grad.ne(0).any()) for known, grad in zip(reached, grads, strict=True)]
    assert all(reached)


def test_the_same_generator_gives_the_same_gates():
    gates = HeadGates.of(opened("gpt2"), start=0.0)
    draws = [
        torch.cat([edit.value for edit in gates.training_edits(torch.Generator().manual_seed(seed))])
        for seed in (4, 4, 5)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_model_without_heads_says_so():
    wrapped = Model.wrap(torch.nn.Linear(4, 4), sites={"out": ""})
    with pytest.raises(ModelError, match="no attention heads"):
        HeadGates.of(wrapped)


def test_names_of_heads():
    model = opened("bart")
    for site, head in all_heads(model):
        assert find_heads(model, [head_name(site, head)]) == ((site, head),)
    assert find_heads(model, ["cross.1.0", "encoder.0.2", "cross.1.0"]) == tuple(
        (site, head)
        for site, head in all_heads(model)
        if (str(site), head) in {("cross.heads.1", 0), ("encoder.heads.0", 2)}
    )
    with pytest.raises(SiteError, match=r"no head 'encoder\.0\.9'.*encoder\.0\.0 to encoder\.0\.3"):
        find_heads(model, ["encoder.0.9"])
