"""Which groups of tokens are present in each copy of a text, and how the target's values there become attributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.attribution.removal import lime, shapley
from pellucid.errors import AttributionError
from pellucid.uncertainty import t_quantile

Array = np.ndarray[Any, Any]
Read = Callable[[Array], tuple[Array, Array]]
_LEVEL = 0.95
MEANS = ("ablation", "occlusion", "shapley", "lime")


@dataclass(frozen=True, eq=False)
class Plan:
    """Copies of one text: `present` [K, players] tells who is there in each; the first holds all, the second none.

    `read` turns the targets' values [K, targets] into attributions and half-widths of their intervals, both
    [players, targets].
    """

    present: Array
    read: Read
    note: str = ""


def ablated(players: int) -> Plan:
    """One player away at a time: F(all) − F(all but one)."""

    def read(values: Array) -> tuple[Array, Array]:
        found = values[0] - values[2:]
        return found, np.zeros_like(found)

    return _plan(~np.eye(players, dtype=bool), read)


def occluded(lengths: Sequence[int], window: int, stride: int) -> Plan:
    """A window of players away at a time: the effect of a window, averaged over those that hold the player.

    Windows start every `stride` players and none begins after the last player is covered; `lengths` are those of the
    sides of the text, which no window straddles.
    """
    shortest = min(lengths)
    if not 1 <= stride <= window:
        raise AttributionError(
            f"A window of {window} tokens moved by {stride} would pass over some; the stride is 1 to the window's size."
        )
    if window > shortest:
        raise AttributionError(
            f"A window of {window} tokens does not fit into a text of {shortest}; take a smaller one."
        )
    hidden: list[Array] = []
    first = 0
    for length in lengths:
        for start in range(0, length - window + stride, stride):
            mine = np.zeros(sum(lengths), dtype=bool)
            mine[first + start : first + min(start + window, length)] = True
            hidden.append(mine)
        first += length
    away = np.stack(hidden)

    def read(values: Array) -> tuple[Array, Array]:
        effects = values[0] - values[2:]  # [windows, targets]
        found = away.T.astype(np.float64) @ effects / away.sum(axis=0)[:, None]
        return found, np.zeros_like(found)

    return _plan(~away, read, f"occlusion: windows of {window} tokens, stride {stride}")


def shared_out(players: int, samples: int, seed: int) -> Plan:
    """Shapley values: from all coalitions where those are no more than what sampling would run, else from orders."""
    if 2**players <= 2 * samples * (players - 1) + 2:
        everyone = shapley.subsets(players)

        def exactly(values: Array) -> tuple[Array, Array]:
            found = shapley.exact(np.concatenate([values[1:2], values[2:], values[:1]]))
            return found, np.zeros_like(found)

        return _plan(everyone[1:-1], exactly, f"shapley: exact, {2**players} coalitions of {players} groups")
    drawn = shapley.orders(players, samples, seed)
    inner = shapley.beginnings(drawn)

    def read(values: Array) -> tuple[Array, Array]:
        grid = values[2:].reshape(len(drawn), players - 1, -1)
        found, error = shapley.sampled(drawn, grid, values[1], values[0])
        return found, _reach(error, samples)

    note = f"shapley: {samples} random orders of {players} groups and their reverses, seed {seed}"
    return _plan(inner.reshape(-1, players), read, note)


def linear(players: int, samples: int, seed: int) -> Plan:
    """LIME: from all coalitions where those are no more than what sampling would run, else from random ones."""
    count = 2 * samples * players
    if 2**players <= count:
        there, weights = lime.everything(players)

        def exactly(values: Array) -> tuple[Array, Array]:
            found = lime.fitted(there, weights, np.concatenate([values[1:2], values[2:], values[:1]]))
            return found, np.zeros_like(found)

        return _plan(there[1:-1], exactly, f"lime: exact, {2**players} coalitions of {players} groups")
    chosen = lime.masks(players, count, seed)

    def read(values: Array) -> tuple[Array, Array]:
        found, error = lime.drawn(chosen, values[2:], samples)
        return found, _reach(error, samples)

    return _plan(chosen, read, f"lime: {count} random coalitions of {players} groups, seed {seed}")


def _plan(inner: Array, read: Read, note: str = "") -> Plan:
    players = inner.shape[1]
    ends = np.stack([np.ones(players, dtype=bool), np.zeros(players, dtype=bool)])
    return Plan(np.concatenate([ends, inner]), read, note)


def _reach(error: Array, samples: int) -> Array:
    return t_quantile((1 + _LEVEL) / 2, samples - 1) * error
