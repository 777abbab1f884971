"""Layouts and slots: reading a tensor out of a module's arguments and writing it back."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.modeling_outputs import BaseModelOutput

from pellucid.model.taps import Layout, find_slot, get_slot, put_slot

B, T, H, DH = 2, 5, 3, 4


def numbered(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + int(torch.tensor(shape).prod()), dtype=torch.float32).reshape(shape)


@pytest.mark.parametrize(
    ("layout", "shape", "expected"),
    [
        (Layout(), (B, T, H * DH), (B, T, H * DH)),
        (Layout(), (B * T, H * DH), (B, T, H * DH)),
        (Layout(time_first=True), (T, B, H * DH), (B, T, H * DH)),
        (Layout(heads=H), (B, T, H * DH), (B, H, T, DH)),
        (Layout(heads=H), (B * T, H * DH), (B, H, T, DH)),
        (Layout(time_first=True, heads=H), (T, B, H * DH), (B, H, T, DH)),
        (Layout(crop=True), (B, T + 3, H * DH), (B, T, H * DH)),
        (Layout(heads=H, crop=True), (B, T + 3, H * DH), (B, H, T, DH)),
        (Layout(time_first=True, heads=H, crop=True), (T + 3, B, H * DH), (B, H, T, DH)),
        (Layout(native=True), (7, 3), (7, 3)),
    ],
)
def test_write_undoes_read_and_carries_changes(layout, shape, expected):
    native = numbered(*shape)
    value = layout.read(native, B, T)
    assert tuple(value.shape) == expected
    assert torch.equal(layout.write(value, native, B), native)
    changed = layout.write(value * 2, native, B)
    assert torch.equal(layout.read(changed, B, T), value * 2)
    assert changed.shape == native.shape
    if layout.crop:  # what was cropped away comes back untouched
        assert int((changed == native).sum()) == 3 * B * H * DH


def test_read_puts_heads_where_attention_left_them():
    """Head h of token t is the h-th slice of that token's vector."""
    native = numbered(B, T, H * DH)
    value = Layout(heads=H).read(native, B, T)
    assert torch.equal(value[1, 2, 3], native[1, 3, 2 * DH : 3 * DH])


def test_time_first_is_not_batch_first():
    native = numbered(T, B, 2)
    assert torch.equal(Layout(time_first=True).read(native, B, T)[1, 3], native[3, 1])


def test_one_row_per_token_keeps_its_token_axis_even_for_one_token():
    """OPT flattens its tokens: with one token a row must not be taken for a text."""
    flat = numbered(B, 6)
    assert Layout().read(flat, B, None).shape == (B, 1, 6)
    assert torch.equal(Layout().write(Layout().read(flat, B, None), flat, B), flat)
    assert Layout(native=True).read(flat, B, T) is flat


def test_find_slot_takes_the_first_floating_tensor_in_depth():
    ids, states = torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3, 4)
    container = {"args": (ids, None, [(states,)]), "kwargs": {"later": states * 2}}
    slot = find_slot(container)
    assert slot == ("args", 2, 0, 0)
    assert get_slot(container, slot) is states
    assert find_slot({"args": (ids,), "kwargs": {}}) is None
    assert find_slot(torch.ones(3)) is None
    assert find_slot(torch.ones(3), dims=(1,)) == ()


@given(st.lists(st.integers(0, 2), min_size=0, max_size=4), st.booleans())
def test_put_slot_replaces_one_leaf_and_leaves_the_original(path, as_list):
    def build(depth: int):
        if depth == len(path):
            return torch.zeros(2, 2)
        items = [build(depth + 1) for _ in range(3)]
        return items if as_list else tuple(items)

    container, new = build(0), torch.ones(2, 2)
    changed = put_slot(container, tuple(path), new)
    assert get_slot(changed, tuple(path)) is new
    assert not get_slot(container, tuple(path)).any()
    assert type(changed) is type(container) or not path


def test_put_slot_keeps_the_kind_of_container():
    pair = namedtuple("pair", "first second")(torch.zeros(1, 1), torch.zeros(1, 1))
    changed = put_slot(pair, (1,), torch.ones(1, 1))
    assert type(changed) is type(pair)
    assert changed.second.all()
    assert not changed.first.any()
    output = BaseModelOutput(last_hidden_state=torch.zeros(1, 1, 1))
    changed = put_slot(output, ("last_hidden_state",), torch.ones(1, 1, 1))
    assert changed.last_hidden_state.all()
    assert changed[0].all()
    assert not output.last_hidden_state.any()
