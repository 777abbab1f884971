"""Edits on plain tensors: each action against values computed by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import EditError, SiteError
from pellucid.model.edits import ACTIONS, Edit, View
from pellucid.model.sites import Site

HEADS, NEURONS = Site("heads", 0), Site("neurons", 0)


def head_tensor() -> torch.Tensor:
    """[B=2, H=3, T=4, dh=2], every entry different and none zero."""
    return torch.arange(1, 49, dtype=torch.float64).reshape(2, 3, 4, 2)


def unit_tensor() -> torch.Tensor:
    """[B=2, T=3, n=5], every entry different and none zero."""
    return torch.arange(1, 31, dtype=torch.float64).reshape(2, 3, 5)


def expected(tensor, change, *, units=None, positions=None, per_head=True):
    """The tensor with `change(entry, b, unit, position, last)` made entry by entry."""
    out = tensor.clone()
    for index in torch.cartesian_prod(*(torch.arange(size) for size in tensor.shape)).tolist():
        unit, position = (index[1], index[2]) if per_head else (index[2], index[1])
        if (units is None or unit in units) and (positions is None or position in positions):
            out[tuple(index)] = change(tensor[tuple(index)], *index)
    return out


@pytest.mark.parametrize("units", [None, [1], [2, 0]])
@pytest.mark.parametrize("positions", [None, [0], [3, 1]])
def test_zero_at_heads_and_positions(units, positions):
    x = head_tensor()
    got = Edit.zero(HEADS, heads=units, positions=positions).apply(x, HEADS)
    assert torch.equal(got, expected(x, lambda *_: 0.0, units=units, positions=positions))


@pytest.mark.parametrize("units", [None, [4], [3, 0, 1]])
@pytest.mark.parametrize("positions", [None, [2], [2, 0]])
def test_scale_and_add_at_neurons_and_positions(units, positions):
    x = unit_tensor()
    options = {"neurons": units, "positions": positions}
    where = {"units": units, "positions": positions, "per_head": False}
    scaled = Edit.scale(NEURONS, 2.5, **options).apply(x, NEURONS)
    assert torch.equal(scaled, expected(x, lambda v, *_: 2.5 * v, **where))
    added = Edit.add(NEURONS, -3.0, **options).apply(x, NEURONS)
    assert torch.equal(added, expected(x, lambda v, *_: v - 3.0, **where))


def test_negative_positions_count_from_the_end():
    x = head_tensor()
    got = Edit.zero(HEADS, positions=[-1, -4]).apply(x, HEADS)
    assert torch.equal(got, expected(x, lambda *_: 0.0, positions=[3, 0]))


def test_one_number_per_chosen_head_follows_the_order_in_which_heads_are_named():
    x = head_tensor()
    got = Edit.scale(HEADS, torch.tensor([10.0, 100.0]), heads=[2, 0]).apply(x, HEADS)
    factors = {2: 10.0, 0: 100.0}
    assert torch.equal(got, expected(x, lambda v, b, h, *_: v * factors[h], units=[0, 2]))


def test_one_gate_per_neuron():
    x = unit_tensor()
    gates = torch.tensor([0.0, 0.5, 1.0, 2.0, -1.0], dtype=torch.float64)
    got = Edit.gate(NEURONS, gates).apply(x, NEURONS)
    assert torch.equal(got, expected(x, lambda v, b, t, n: v * gates[n], per_head=False))


def test_set_takes_a_number_a_vector_one_vector_per_head_or_a_whole_tensor():
    x = head_tensor()
    vector = torch.tensor([7.0, 8.0], dtype=torch.float64)
    each = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    whole = -head_tensor()
    assert torch.equal(Edit.set(HEADS, 9).apply(x, HEADS), torch.full_like(x, 9))
    got = Edit.set(HEADS, vector, heads=1, positions=2).apply(x, HEADS)
    assert torch.equal(got, expected(x, lambda v, b, h, t, k: vector[k], units=[1], positions=[2]))
    got = Edit.set(HEADS, each, heads=[2, 1]).apply(x, HEADS)
    assert torch.equal(got, expected(x, lambda v, b, h, t, k: each[{2: 0, 1: 1}[h], k], units=[1, 2]))
    assert torch.equal(Edit.set(HEADS, whole).apply(x, HEADS), whole)


def test_add_of_a_vector_at_one_position():
    x = unit_tensor()
    vector = torch.arange(5, dtype=torch.float64) * 100
    got = Edit.add(NEURONS, vector, positions=1).apply(x, NEURONS)
    assert torch.equal(got, expected(x, lambda v, b, t, n: v + vector[n], positions=[1], per_head=False))


def test_set_on_a_pattern_takes_one_matrix_for_all_heads():
    site = Site("pattern", 0)
    x = torch.rand(2, 3, 4, 4, dtype=torch.float64)
    matrix = torch.eye(4, dtype=torch.float64)
    got = Edit.set(site, matrix, heads=1).apply(x, site)
    assert torch.equal(got, expected(x, lambda v, b, h, t, s: matrix[t, s], units=[1]))


def test_patch_takes_the_same_place_of_the_other_tensor():
    x, other = head_tensor(), -head_tensor() * 3
    got = Edit.patch(HEADS, other, heads=[0, 2], positions=[1]).apply(x, HEADS)
    assert torch.equal(got, expected(x, lambda v, *i: other[tuple(i)], units=[0, 2], positions=[1]))
    from_mapping = Edit.patch(HEADS, {HEADS: other}, heads=[0, 2], positions=[1]).apply(x, HEADS)
    assert torch.equal(got, from_mapping)


def test_mean_is_over_batch_and_real_tokens_only():
    x = unit_tensor()
    x[1, 1:] = 1e6  # padding that must not count
    real = torch.tensor([[True, True, True], [True, False, False]])
    by_hand = (x[0, 0] + x[0, 1] + x[0, 2] + x[1, 0]) / 4
    got = Edit.mean(NEURONS, neurons=[1, 3]).apply(x, NEURONS, view=View(0, 3, real=real))
    assert torch.allclose(got, expected(x, lambda v, b, t, n: by_hand[n], units=[1, 3], per_head=False))


def test_mean_per_head_keeps_heads_apart():
    x = head_tensor()
    x[0, :, 0] = -1e6
    real = torch.tensor([[False, True, True, True], [True, True, True, True]])
    total = x[0, :, 1:].sum(1) + x[1].sum(1)  # [H, dh]
    got = Edit.mean(HEADS, heads=2, positions=3).apply(x, HEADS, view=View(0, 4, real=real))
    assert torch.allclose(got, expected(x, lambda v, b, h, t, k: total[h, k] / 7, units=[2], positions=[3]))


def test_mean_with_a_given_value_uses_it():
    x = unit_tensor()
    value = torch.tensor([5.0, 6.0], dtype=torch.float64)
    got = Edit.mean(NEURONS, value, neurons=[0, 4]).apply(x, NEURONS)
    assert torch.equal(got, expected(x, lambda v, b, t, n: value[{0: 0, 4: 1}[n]], units=[0, 4], per_head=False))


def test_mean_of_scores_per_text_is_over_texts():
    site = Site("logits")
    x = torch.tensor([[1.0, 2.0, 3.0], [5.0, 0.0, 1.0]])
    got = Edit.mean(site).apply(x, site)
    assert torch.equal(got, torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]]))


@pytest.mark.parametrize("action", ACTIONS)
def test_no_action_changes_the_tensor_it_was_given(action):
    x = head_tensor()
    value = {"patch": -x, "gate": torch.zeros(3), "zero": None, "mean": None}.get(action, 0.5)
    got = Edit(HEADS, action, value, (0, 1, 2), (0,)).apply(x, HEADS)
    assert torch.equal(x, head_tensor())
    assert not torch.equal(got, x)


def test_positions_are_those_of_the_whole_text():
    x, later = head_tensor(), View(10, 10, growing=True)  # four tokens that stand at positions 10 to 13
    got = Edit.zero(HEADS, positions=[11, 3, 20]).apply(x, HEADS, view=later)
    assert torch.equal(got, expected(x, lambda *_: 0.0, positions=[1]))
    untouched = Edit.zero(HEADS, positions=[9, 14, -1]).apply(x, HEADS, view=later)
    assert torch.equal(untouched, x)


def test_gate_is_differentiable_in_its_values_and_in_the_tensor():
    x, weight = head_tensor().requires_grad_(), torch.randn(2, 3, 4, 2, dtype=torch.float64)
    gate = torch.tensor([0.3, 0.9], dtype=torch.float64, requires_grad=True)

    def loss(g, t):
        return (Edit.gate(HEADS, g, heads=[2, 0]).apply(t, HEADS) ** 2 * weight).sum()

    assert torch.autograd.gradcheck(loss, (gate, x))


@pytest.mark.parametrize("position", [4, -5, 17])
def test_positions_outside_raise_and_say_how_many_there_are(position):
    with pytest.raises(SiteError, match=rf"4 positions, 0 to 3; position {position} does not exist"):
        Edit.zero(HEADS, positions=[0, position]).apply(head_tensor(), HEADS)


def test_a_position_outside_a_text_of_one_token_raises():
    with pytest.raises(SiteError, match="position 5"):
        Edit.zero(HEADS, positions=[5]).apply(head_tensor()[:, :, :1], HEADS)


@pytest.mark.parametrize("unit", [3, -1])
def test_units_outside_raise_and_say_how_many_there_are(unit):
    with pytest.raises(SiteError, match=rf"heads.0 has 3 heads, numbered 0 to 2; head {unit} does not exist"):
        Edit.zero(HEADS, heads=[0, unit]).check(HEADS, (3, 2))
    with pytest.raises(SiteError, match=r"neurons.0 has 5 units, numbered 0 to 4; unit 5 does not exist"):
        Edit.zero(NEURONS, neurons=5).check(NEURONS, (5,))


def test_values_of_the_wrong_shape_raise_and_name_both_shapes():
    with pytest.raises(EditError, match=r"shape \(3, 5\), which does not fit the chosen part, of shape \(2, 3, 4, 2\)"):
        Edit.set(HEADS, torch.ones(3, 5)).apply(head_tensor(), HEADS)
    with pytest.raises(EditError, match=r"patch for heads.0 has shape \(1, 2\) and the run has \(2, 3, 4, 2\)"):
        Edit.patch(HEADS, torch.ones(1, 2)).apply(head_tensor(), HEADS)
    with pytest.raises(EditError, match=r"gate at heads.0 got 2 values for 3 heads"):
        Edit.gate(HEADS, torch.ones(2)).check(HEADS, (3, 2))
    with pytest.raises(EditError, match=r"scale at neurons.0 got 3 values for 2 units"):
        Edit.scale(NEURONS, torch.ones(3), neurons=[0, 1]).check(NEURONS, (5,))


def test_heads_and_neurons_together_are_refused():
    with pytest.raises(EditError, match="heads or at neurons, not both"):
        Edit.zero(HEADS, heads=0, neurons=0)


def test_unknown_actions_are_refused():
    with pytest.raises(EditError, match=r"no edit called 'blur'; the edits are zero, mean"):
        Edit(HEADS, "blur").check(HEADS, (3, 2))


@pytest.mark.parametrize("wrong", [{"heads": []}, {"positions": []}])
def test_an_empty_choice_of_units_or_positions_is_refused(wrong):
    """An edit that touches nothing would look like an edit without effect."""

    def checked():
        Edit.zero(HEADS, **wrong).check(HEADS, (3, 2))

    with pytest.raises((EditError, SiteError)):
        checked()


# -- edits as text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "site", "action", "value", "units", "positions"),
    [
        ("heads.3:2=zero", "heads.3", "zero", None, (2,), None),
        ("heads.3:2,5-7=mean", "heads.3", "mean", None, (2, 5, 6, 7), None),
        ("neurons.4:17@0=set:3", "neurons.4", "set", 3.0, (17,), (0,)),
        ("resid.0@-1,2=add:-1.5e-3", "resid.0", "add", -0.0015, None, (-1, 2)),
        (" cross.heads.1:0 = scale:0.5 ", "cross.heads.1", "scale", 0.5, (0,), None),
        ("embed=zero", "embed", "zero", None, None, None),
        ("my-place:1=zero", "my-place", "zero", None, (1,), None),
    ],
)
def test_parse_reads_every_part(text, site, action, value, units, positions):
    edit = Edit.parse(text)
    assert (edit.site, edit.action, edit.value, edit.units, edit.positions) == (site, action, value, units, positions)
    again = Edit.parse(str(edit))
    assert (again.site, again.action, again.value, again.units, again.positions) == (
        site,
        action,
        value,
        units,
        positions,
    )


@given(
    st.sampled_from(["heads.3", "encoder.neurons.11", "logits"]),
    st.sampled_from(["zero", "mean", "set", "scale", "add"]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.lists(st.integers(0, 99), min_size=1).map(tuple),
    st.none() | st.lists(st.integers(-9, 99), min_size=1).map(tuple),
)
def test_text_of_an_edit_means_the_same_edit(site, action, number, units, positions):
    value = number if action in ("set", "scale", "add") else None
    again = Edit.parse(str(Edit(site, action, value, units, positions)))
    assert (again.site, again.action, again.value, again.units, again.positions) == (
        site,
        action,
        value,
        units,
        positions,
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "cannot be read"),
        ("heads.3", "cannot be read"),
        ("heads.3:=zero", "cannot be read"),
        ("heads.*=zero", "cannot be read"),
        ("heads.3=erase", "asks for 'erase'; the actions are zero, mean"),
        ("heads.3=patch", "asks for 'patch'"),
        ("heads.3=set", "needs a number after 'set'"),
        ("heads.3=zero:1", "takes no number after 'zero'"),
        ("heads.3=set:much", "not a number"),
        ("heads.3:1,,2=zero", "not a number"),
        ("heads.3:5-3=zero", ""),
        ("heads.3=scale:nan", ""),
    ],
)
def test_parse_refuses_and_says_what_to_write(text, complaint):
    with pytest.raises(EditError) as caught:
        Edit.parse(text)
    assert complaint in str(caught.value)
