"""Every rule of relevance propagation against its formula, written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

from pellucid.attribution.lrp import rules
from pellucid.attribution.lrp.ledger import Ledger
from pellucid.attribution.lrp.rules import Rules, nonlinearities
from pellucid.errors import AttributionError
from pellucid.model.changed_outputs import changed_outputs

ALL = ("lrp_voita", "lrp_attn", "lrp_cp")


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def relevance(name, function, *given, rows=1, top=None):
    """Relevance of every live input, of the output, and what was kept, of a function run under a set of rules."""
    inputs = [one.clone().requires_grad_() for one in given]
    rules = Rules(name, Ledger(rows))
    with rules:
        made = function(*(one * 1 for one in inputs))
    assert torch.equal(made, function(*given)), "a rule changed the value"
    slope = drawn(*made.shape, seed=9) if top is None else top / made.detach()
    found = torch.autograd.grad(made, inputs, slope, allow_unused=True)
    parts = [None if one is None else (one * value).numpy() for one, value in zip(found, given, strict=True)]
    return parts, (made.detach() * slope).numpy(), rules.ledger.taken()


def shared(impacts, output):
    """The alpha-beta rule by loops: impacts [i, j] of inputs on outputs, relevance [j] of the outputs."""
    found = np.zeros(len(impacts))
    for j, total in enumerate(output):
        column = impacts[:, j]
        chosen = np.where(column > 0, column, 0) if (column > 0).any() else np.where(column < 0, column, 0)
        if chosen.any():
            found += chosen / chosen.sum() * total
    return found


@pytest.mark.parametrize("name", ["lrp_attn", "lrp_cp"])
def test_a_linear_network_gives_input_times_gradient(name, monkeypatch):
    monkeypatch.setattr(rules, "EPSILON", 1e-15)
    first, second, x = drawn(5, 4, seed=1), drawn(3, 5, seed=2), drawn(1, 4)
    parts, output, kept = relevance(name, lambda x: F.linear(F.linear(x, first), second), x)
    slope = output / (x @ first.T @ second.T).numpy()
    np.testing.assert_allclose(parts[0], x.numpy() * (slope @ second.numpy() @ first.numpy()), rtol=1e-9)
    assert set(kept) == {"stabiliser"}


@pytest.mark.parametrize("name", ["lrp_attn", "lrp_cp"])
def test_the_epsilon_rule_and_what_biases_keep(name, monkeypatch):
    monkeypatch.setattr(rules, "EPSILON", 0.5)
    weight, bias, x = drawn(5, 4, seed=1), drawn(5, seed=2), drawn(1, 4)
    parts, output, kept = relevance(name, lambda x: F.linear(x, weight, bias), x)
    w, b, at = weight.numpy(), bias.numpy(), x.numpy()[0]
    z = w @ at + b
    messages = at[:, None] * w.T / (z + 0.5 * np.sign(z)) * output[0]
    np.testing.assert_allclose(parts[0][0], messages.sum(axis=1))
    np.testing.assert_allclose(kept["biases"], (b / (z + 0.5 * np.sign(z)) * output[0]).sum())
    np.testing.assert_allclose(kept["stabiliser"], (0.5 * np.sign(z) / (z + 0.5 * np.sign(z)) * output[0]).sum())


def test_alpha_beta_of_a_linear_layer_leaves_nothing_to_biases():
    weight, bias, x = drawn(6, 4, seed=1), drawn(6, seed=2), drawn(1, 4)
    weight[2] = -weight[2].abs() * x[0].sign()  # an output that everything pushes down
    weight[3] = 0  # an output of the bias alone
    parts, output, kept = relevance("lrp_voita", lambda x: F.linear(x, weight, bias), x)
    np.testing.assert_allclose(parts[0][0], shared((x[0, :, None] * weight.T).numpy(), output[0]))
    np.testing.assert_allclose(kept["nothing to share"], output[0, 3])
    moved, _, _ = relevance("lrp_voita", lambda x: torch.addmm(bias, x, weight.T), x)
    np.testing.assert_allclose(moved[0], parts[0])


def test_a_product_of_activations_is_halved(monkeypatch):
    """R_A[j, i] = Σ_p A_ji·V_ip·R_jp / 2·O_jp, and the same for V."""
    monkeypatch.setattr(rules, "EPSILON", 1e-15)
    a, v = drawn(1, 3, 4), drawn(1, 4, 5, seed=1)
    (on_a, on_v), output, _ = relevance("lrp_attn", torch.matmul, a, v)
    left, right = a[0].numpy(), v[0].numpy()
    shares = output[0] / (2 * left @ right)
    np.testing.assert_allclose(on_a[0], left * (shares @ right.T), rtol=1e-9)
    np.testing.assert_allclose(on_v[0], right * (left.T @ shares), rtol=1e-9)
    np.testing.assert_allclose(on_a.sum() + on_v.sum(), output.sum(), rtol=1e-9)


def test_alpha_beta_of_a_product_by_loops():
    a, v = drawn(1, 3, 4).softmax(dim=-1), drawn(1, 4, 5, seed=1)
    a[0, 0] = torch.tensor([0.0, 1.0, 0.0, 0.0])
    (on_a, on_v), output, _ = relevance("lrp_voita", torch.matmul, a, v)
    wanted_a, wanted_v = np.zeros((3, 4)), np.zeros((4, 5))
    for j in range(3):
        for p in range(5):
            terms = a[0, j].numpy() * v[0, :, p].numpy()
            got = shared(terms[:, None], output[0, j : j + 1, p])
            for i in range(4):
                alone = a[0, j, i] == 1
                wanted_a[j, i] += 0 if alone else got[i] / 2
                wanted_v[i, p] += got[i] if alone else got[i] / 2
    np.testing.assert_allclose(on_a[0], wanted_a)
    np.testing.assert_allclose(on_v[0], wanted_v)


def test_attention_aware_softmax():
    """R_i = x_i·(R_i − s_i·ΣR); the constant of the expansion keeps the rest."""
    x = drawn(1, 2, 5)
    (on_x,), output, kept = relevance("lrp_attn", lambda x: F.softmax(x, dim=-1), x)
    s = np.exp(x.numpy()) / np.exp(x.numpy()).sum(axis=-1, keepdims=True)
    wanted = x.numpy() * (output - s * output.sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(on_x, wanted)
    np.testing.assert_allclose(kept["softmax"], output.sum() - wanted.sum())


def test_alpha_beta_of_a_softmax_by_its_jacobian():
    x = drawn(1, 1, 5)
    x[0, 0, 1] = -torch.inf
    (on_x,), output, _ = relevance("lrp_voita", lambda x: F.softmax(x, dim=-1), x)
    s = F.softmax(x, dim=-1).numpy()[0, 0]
    at = np.where(s > 0, x.numpy()[0, 0], 0)
    impacts = (np.diag(s) - np.outer(s, s)) * at[:, None]  # [i, j]
    np.testing.assert_allclose(np.nan_to_num(on_x[0, 0]), shared(impacts, output[0, 0]), atol=1e-12)


def test_a_constant_pattern_passes_nothing_to_the_scores():
    (on_x, on_v), output, _ = relevance(
        "lrp_cp", lambda x, v: F.softmax(x, dim=-1) @ v, drawn(1, 2, 5), drawn(1, 5, 3, seed=1)
    )
    assert on_x is None
    np.testing.assert_allclose(on_v.sum(), output.sum(), rtol=1e-4)


@pytest.mark.parametrize("name", ["lrp_attn", "lrp_cp"])
def test_a_normalisation_is_a_centred_constant_scale(name):
    x, weight, bias = drawn(1, 6), drawn(6, seed=1), drawn(6, seed=2)
    (on_x,), output, kept = relevance(name, lambda x: F.layer_norm(x, (6,), weight, bias, 1e-3), x)
    at, w = x.numpy()[0], weight.numpy()
    factor = 1 / np.sqrt(at.var() + 1e-3)
    y = (at - at.mean()) * factor * w + bias.numpy()
    messages = at[:, None] * (np.eye(6) - 1 / 6) * (factor * w) * (output[0] / y)
    np.testing.assert_allclose(on_x[0], messages.sum(axis=1))
    np.testing.assert_allclose(kept["biases"], (bias.numpy() * output[0] / y).sum())


def test_alpha_beta_of_a_normalisation_by_its_jacobian(monkeypatch):
    monkeypatch.setattr("pellucid.attribution.lrp.alpha_beta._CHUNK", 100)  # two rows at a time
    x, weight, bias = drawn(5, 6), drawn(6, seed=1), drawn(6, seed=2)

    def norm(x):
        return F.layer_norm(x, (6,), weight, bias, 1e-3)

    (on_x,), output, _ = relevance("lrp_voita", norm, x, rows=5)
    for row in range(5):
        slopes = torch.autograd.functional.jacobian(norm, x[row])
        impacts = (slopes.T * x[row, :, None]).numpy()
        np.testing.assert_allclose(on_x[row], shared(impacts, output[row]))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("function", [F.gelu, F.silu, torch.tanh, F.mish, lambda x: x**3, lambda x: x.clamp(-0.4, 0.3)])
def test_a_non_linearity_passes_relevance_on(name, function):
    (on_x,), output, kept = relevance(name, function, drawn(1, 7))
    np.testing.assert_allclose(on_x, output)
    assert not kept


@pytest.mark.parametrize("kind", ["gelu_new", "gelu_fast", "quick_gelu", "gelu", "relu2", "sqrtsoftplus"])
def test_a_non_linearity_of_several_operations_is_taken_as_one(kind):
    network = nn.Sequential(nn.Linear(4, 6), ACT2FN[kind]).double()
    parts = list(nonlinearities(network))
    x = drawn(1, 6).requires_grad_()
    rules = Rules("lrp_attn", Ledger(1))
    with changed_outputs(parts, rules.straight), rules:
        made = network[1](x * 1)
    plain = ACT2FN[kind](x)
    assert torch.equal(made, plain)
    (slope,) = torch.autograd.grad(made.sum(), x)
    torch.testing.assert_close(slope * x, plain)
    assert not any(part._forward_hooks for part in network.modules())


@pytest.mark.parametrize("name", ALL)
def test_a_gate_and_what_it_gates_get_half_each(name):
    (on_gate, on_up), output, _ = relevance(name, lambda gate, up: F.silu(gate) * up, drawn(1, 5), drawn(1, 5, seed=1))
    np.testing.assert_allclose(on_gate, output / 2, rtol=1e-4)
    np.testing.assert_allclose(on_up, output / 2, rtol=1e-4)


@pytest.mark.parametrize("name", ["lrp_attn", "lrp_cp"])
@pytest.mark.parametrize("sign", [1, -1])
def test_constants_added_are_booked(name, sign):
    x, places = drawn(2, 3, 4), drawn(1, 3, 4, seed=1)
    parts, output, kept = relevance(name, lambda x: x + places if sign > 0 else places - x, x, rows=2)
    slope = drawn(2, 3, 4, seed=9).numpy()
    np.testing.assert_allclose(kept["positions and other constants"], (slope * places.numpy()).sum(axis=(1, 2)))
    np.testing.assert_allclose(parts[0], sign * slope * x.numpy())
    np.testing.assert_allclose(parts[0].sum() + kept["positions and other constants"].sum(), output.sum())


@pytest.mark.parametrize("name", ALL)
def test_a_sigmoid_gate_is_a_constant(name):
    (on_x,), output, _ = relevance(name, lambda x: F.glu(x, dim=-1), drawn(1, 8))
    np.testing.assert_allclose(on_x, np.concatenate([output, np.zeros((1, 4))], axis=1))


def test_a_bias_added_by_itself_leaves_its_share_too():
    bias = drawn(4, seed=1)
    (on_x,), output, kept = relevance("lrp_voita", lambda x: x + bias, drawn(1, 3, 4))
    np.testing.assert_allclose(on_x, output)
    assert not kept


@pytest.mark.parametrize("name", ["lrp_attn", "lrp_cp"])
def test_a_number_less_something_is_a_constant(name):
    (on_x,), output, kept = relevance(name, lambda x: 2.0 - x, drawn(1, 5))
    np.testing.assert_allclose(kept["positions and other constants"], 2 * drawn(1, 5, seed=9).sum())
    np.testing.assert_allclose(on_x.sum() + float(kept["positions and other constants"]), output.sum())


def test_constants_put_beside_are_booked():
    x, beside = drawn(1, 3, 4), drawn(1, 3, 2, seed=1)
    (on_x,), output, kept = relevance("lrp_attn", lambda x: torch.cat([beside, x], dim=-1), x)
    np.testing.assert_allclose(on_x, output[..., 2:])
    np.testing.assert_allclose(kept["positions and other constants"], output[..., :2].sum())


@pytest.mark.parametrize("name", ALL)
def test_what_divides_is_a_constant(name):
    """x / |x| and x · rsqrt(x²) scale x, and hand it all they get."""
    for scaled in (
        lambda x: x / x.norm(dim=-1, keepdim=True),
        lambda x: x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True)),
        lambda x: F.normalize(x, dim=-1),
        lambda x: F.rms_norm(x, (6,)),
    ):
        (on_x,), output, _ = relevance(name, scaled, drawn(1, 6))
        np.testing.assert_allclose(on_x, output)


def test_alpha_beta_of_sums_by_loops():
    x, y, places = drawn(1, 3, 4), drawn(1, 3, 4, seed=1), drawn(1, 3, 4, seed=2)
    (on_x, on_y), output, _ = relevance("lrp_voita", lambda x, y: x - y, x, y)
    (alone,), above, kept = relevance("lrp_voita", lambda x: x + places, x)
    for place in np.ndindex(1, 3, 4):
        pair = np.array([[float(x[place])], [-float(y[place])]])
        np.testing.assert_allclose([on_x[place], on_y[place]], shared(pair, output[place].reshape(1)), atol=1e-12)
        pair = np.array([[float(x[place])], [float(places[place])]])
        np.testing.assert_allclose(alone[place], shared(pair, above[place].reshape(1))[0], atol=1e-12)
    np.testing.assert_allclose(kept["positions and other constants"], above.sum() - alone.sum())


def test_a_sum_made_in_place_is_shared_like_any_other():
    x, y = drawn(1, 3), drawn(1, 3, seed=1)

    def in_place(x, y):
        x = x.clone()
        x += y
        return x

    found, _, _ = relevance("lrp_voita", in_place, x, y)
    wanted, _, _ = relevance("lrp_voita", torch.add, x, y)
    np.testing.assert_allclose(found, wanted)


def test_a_layer_changed_in_place_afterwards_keeps_its_books():
    weight, bias, x = drawn(5, 4, seed=1), drawn(5, seed=2), drawn(1, 4)

    def scaled(x):
        made = F.linear(x, weight, bias)
        made /= 3
        return made

    _, output, kept = relevance("lrp_attn", scaled, x)
    slope = output / scaled(x).numpy()
    np.testing.assert_allclose(kept["biases"], (slope * bias.numpy() / 3).sum(), rtol=1e-4)


def test_clamping_in_place_reaches_those_who_hold_the_tensor():
    def clamped(x):
        held = x * 1
        held.clamp_(min=-0.2, max=0.2)
        return held

    (on_x,), output, _ = relevance("lrp_cp", clamped, drawn(1, 6))
    np.testing.assert_allclose(on_x, output)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("form", ["plain", "causal", "mask", "bias", "grouped"])
def test_fused_attention_is_the_same_as_its_steps(name, form):
    query, key, value = drawn(2, 4, 5, 3), drawn(2, 4, 5, 3, seed=1), drawn(2, 4, 5, 3, seed=2)
    options, seen, scale = {}, torch.ones(5, 5, dtype=torch.bool), 3**-0.5
    if form == "causal":
        options, seen = {"is_causal": True}, seen.tril()
    if form == "mask":
        seen = seen.clone()
        seen[:, 3] = False
        options = {"attn_mask": seen, "scale": 0.7}
        scale = 0.7
    bias = drawn(1, 1, 5, 5, seed=5) if form == "bias" else None
    if form == "bias":
        options = {"attn_mask": bias}
    if form == "grouped":
        key, value, options = key[:, :2], value[:, :2], {"enable_gqa": True}

    def fused(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, **options)

    def steps(query, key, value):
        if form == "grouped":
            key, value = (one[:, :, None].expand(2, 2, 2, 5, 3).flatten(1, 2) for one in (key, value))
        scores = query @ key.transpose(-1, -2) * scale
        scores = scores + bias if bias is not None else scores.masked_fill(~seen, -1e300)
        return scores.softmax(dim=-1) @ value

    top = drawn(2, 4, 5, 3, seed=7)
    one, _, kept = relevance(name, fused, query, key, value, rows=2, top=top)
    other, _, also = relevance(name, steps, query, key, value, rows=2, top=top)
    for got, wanted in zip(one, other, strict=True):
        if wanted is None:
            assert got is None
        else:
            np.testing.assert_allclose(got, wanted, atol=1e-9)
    assert set(kept) == set(also)
    for keeper in kept:
        np.testing.assert_allclose(kept[keeper], also[keeper], atol=1e-9)


def test_attention_in_one_call_is_refused():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.ones(1, 3, 8, requires_grad=True)
    with pytest.raises(AttributionError, match="MultiheadAttention"), Rules("lrp_cp", Ledger(1)):
        attention(x, x, x)
