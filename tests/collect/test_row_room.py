"""Room for rows: memory is lent again when nobody has a tensor in it, and never before."""

from __future__ import annotations

import pytest
import torch

from pellucid.collect.row_room import RowRoom
from pellucid.collect.sweep import sweep
from tests.collect.sweeping import Rows, by_hand, reader, stories

SHAPES = {"a": (5, 7), "b": (5, 300), "c": (5, 1)}


def addresses(lent: dict[str, torch.Tensor]) -> list[int]:
    return [each.data_ptr() for each in lent.values()]


def test_tensors_have_their_shapes_and_nothing_in_common():
    lent = RowRoom().lend(SHAPES)
    assert {key: tuple(each.shape) for key, each in lent.items()} == SHAPES
    assert all(each.dtype == torch.float32 and each.is_contiguous() for each in lent.values())
    assert all(address % 64 == 0 for address in addresses(lent))
    for number, each in enumerate(lent.values()):
        each.fill_(number)
    assert [set(each.flatten().tolist()) for each in lent.values()] == [{0.0}, {1.0}, {2.0}]


def test_memory_is_lent_again_once_it_is_free():
    room = RowRoom()
    lent = room.lend(SHAPES)
    before = addresses(lent)
    del lent
    assert addresses(room.lend({key: (4, width) for key, (_, width) in SHAPES.items()}))[0] == before[0]
    assert addresses(room.lend(SHAPES)) == before


@pytest.mark.parametrize(
    "kept", [lambda rows: rows, lambda rows: rows[2:3, 1], lambda rows: rows.numpy()[:, ::2], lambda rows: rows.T]
)
def test_whoever_keeps_a_part_keeps_it_whole(kept):
    room = RowRoom()
    lent = room.lend(SHAPES)
    lent["b"].fill_(3.0)
    mine, copied = kept(lent["b"]), lent["a"].clone()
    del lent
    for _ in range(3):
        for each in room.lend(SHAPES).values():
            each.fill_(-1.0)
    assert set(torch.as_tensor(mine).flatten().tolist()) == {3.0}
    assert copied.shape == (5, 7)


def test_rows_of_two_models_are_there_at_once():
    room = RowRoom()
    one, other = room.lend(SHAPES), room.lend(SHAPES)
    one["a"].fill_(1.0)
    other["a"].fill_(2.0)
    assert set(one["a"].flatten().tolist()) == {1.0}
    places = {*addresses(one), *addresses(other)}
    del one, other
    assert {*addresses(room.lend(SHAPES))} < places


def test_larger_rows_take_more_room_and_nothing_is_needed_for_none():
    room = RowRoom()
    assert room.lend({}) == {}
    assert room.lend({"a": (0, 9)})["a"].shape == (0, 9)
    large = room.lend({"a": (1000, 100)})["a"]
    large.fill_(1.0)
    assert float(large.sum()) == 100_000
    room.clear()
    assert float(large.sum()) == 100_000


def test_rows_that_a_collector_keeps_stay_as_they_were():
    """`Rows` of the tests keeps what it is shown, batch after batch."""
    model, corpus = reader("gpt2"), stories(20)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    class Keeping(Rows):
        def open(self, setting):
            inner = super().open(setting)
            add = inner.add

            def also(batch):
                rows = batch.rows["resid.2"]
                seen.append((rows, rows.clone()))
                add(batch)

            inner.add = also
            return inner

    sweep(model, corpus, Keeping(("resid.2",)), token_budget=60, shard_tokens=300)
    assert len(seen) > 10
    assert all(torch.equal(rows, before) for rows, before in seen)
    assert sum(len(rows) for rows, _ in seen) == len(by_hand(model, corpus, "resid.2"))
