"""Rows and streams: what stands in which batch, and that nothing is lost, doubled or counted that is padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid.errors import TrainError
from pellucid.train.tasks import IGNORED
from pellucid.train.tasks.rows import Order, Padded, Ragged, Split, Stream
from tests.train.tasks.making import all_batches, settings

TRAINING = Split("text", 7, 100, 0, shuffled=True)
HELD_OUT = Split("text", 7, 100, 0, shuffled=False)


def numbered(count):
    """Tokens 1 to `count`, each with itself plus 1000 as goal."""
    ids = np.arange(1, count + 1, dtype=np.int32)
    return ids, ids + 1000


def test_a_stream_runs_down_its_columns():
    ids, goals = numbered(3 * 4 * 5 + 7)
    found = Stream.of(ids, goals, TRAINING, settings("lm", batch=3, length=4))
    assert (found.steps(), found.tokens, found.fixed, found.sentences) == (5, 60, True, 7)
    for step, batch in enumerate(all_batches(found)):
        assert set(batch) == {"input_ids", "goals"}
        for column in range(3):
            first = column * 20 + step * 4 + 1
            assert batch["input_ids"][column].tolist() == list(range(first, first + 4))
        assert torch.equal(batch["goals"], batch["input_ids"] + 1000)
        assert batch["goals"].dtype == torch.int64


def test_a_stream_is_the_same_in_every_epoch():
    found = Stream.of(*numbered(100), TRAINING, settings("lm"))
    for one, other in zip(all_batches(found, 1), all_batches(found, 2), strict=True):
        assert torch.equal(one["input_ids"], other["input_ids"])


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 29])
def test_evaluation_reads_every_token_once_and_ignores_padding(count):
    ids, goals = numbered(count)
    found = Stream.of(ids, goals, HELD_OUT, settings("lm", batch=2, length=4))
    batches = all_batches(found)
    read = torch.cat([batch["goals"].flatten() for batch in batches])
    assert read[read != IGNORED].tolist() == goals.tolist()
    for batch in batches:
        real = batch["goals"] != IGNORED
        assert torch.equal(batch["input_ids"] != 0, real)
        assert ("attention_mask" in batch) == (not bool(real.all()))
        if "attention_mask" in batch:  # and a row that is all padding looks at its first token
            real[:, 0] = True
            assert torch.equal(batch["attention_mask"] == 1, real)


def test_a_text_that_fills_no_batch_is_refused():
    with pytest.raises(TrainError, match=r"text has 7 tokens to read, and one batch takes 8 \(2 rows of 4\)"):
        Stream.of(*numbered(7), TRAINING, settings("lm"))
    assert Stream.of(*numbered(8), TRAINING, settings("lm")).steps() == 1
    with pytest.raises(TrainError, match="has 1 rows of use, and one batch takes 2"):
        Padded.of([[1, 2]], [[1, 2]], TRAINING, settings("lm"))
    with pytest.raises(TrainError, match="has 0 rows of use"):
        Padded.of([], [], HELD_OUT, settings("lm"))


def lengths(count=1000):
    return torch.from_numpy(np.random.default_rng(1).integers(1, 60, count))


def test_order_depends_on_seed_and_epoch_alone():
    made = [Order(lengths(), batch=32, seed=seed, shuffled=True) for seed in (5, 5, 6)]
    steps = range(made[0].steps())
    forward = [made[0].rows(2, step).tolist() for step in steps]
    made[1].rows(9, 3)
    backward = [made[1].rows(2, step).tolist() for step in reversed(steps)][::-1]
    assert forward == backward
    assert forward != [made[0].rows(3, step).tolist() for step in steps]
    assert forward != [made[2].rows(2, step).tolist() for step in steps]


@pytest.mark.parametrize("shuffled", [True, False])
def test_every_row_stands_in_one_batch_with_others_of_its_length(shuffled):
    sizes = lengths()
    order = Order(sizes, batch=32, seed=0, shuffled=shuffled)
    rows = [order.rows(1, step) for step in range(order.steps())]
    assert sorted(torch.cat(rows).tolist()) == list(range(1000))
    assert sorted(len(part) for part in rows) == [8] + [32] * 31
    padded = sum(int(sizes[part].max()) * len(part) for part in rows)
    assert padded < 1.1 * int(sizes.sum())  # where chance would give 1.9 times as many


def test_batches_of_one_epoch_are_not_sorted_by_length():
    sizes = lengths()
    order = Order(sizes, batch=32, seed=0, shuffled=True)
    longest = [int(sizes[order.rows(1, step)].max()) for step in range(order.steps())]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


def test_evaluation_ignores_the_epoch():
    order = Order(lengths(), batch=32, seed=0, shuffled=False)
    assert order.rows(0, 4).tolist() == order.rows(7, 4).tolist()


def test_ragged_rows_are_filled_up_on_the_right():
    rows = Ragged.of([[5, 6, 7], [8], [9, 10]])
    values, real = rows.padded(torch.tensor([2, 0]), -1)
    assert values.tolist() == [[9, 10, -1], [5, 6, 7]]
    assert real.tolist() == [[True, True, False], [True, True, True]]
    assert rows.lengths.tolist() == [3, 1, 2]


def test_padded_rows_keep_ids_types_and_goals_together():
    ids = [[10, 11, 12], [20], [30, 31]]
    goals = [[1, IGNORED, 2], [3], [IGNORED, 4]]
    found = Padded.of(ids, goals, HELD_OUT, settings("tagger"), types=[[0, 0, 1], [0], [0, 1]])
    short, long = all_batches(found)
    assert short["input_ids"].tolist() == [[20, 0], [30, 31]]
    assert short["attention_mask"].tolist() == [[1, 0], [1, 1]]
    assert short["token_type_ids"].tolist() == [[0, 0], [0, 1]]
    assert short["goals"].tolist() == [[3, IGNORED], [IGNORED, 4]]
    assert long["goals"].tolist() == [[1, IGNORED, 2]]
    assert found.tokens == 6
    of_rows = Padded.of(ids, torch.tensor([7, 8, 9]), HELD_OUT, settings("classify"))
    assert [batch["goals"].tolist() for batch in all_batches(of_rows)] == [[8, 9], [7]]
