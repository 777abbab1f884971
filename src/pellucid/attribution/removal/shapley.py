"""Shapley values of a game: exact over all coalitions, or over pairs of random orders with their error."""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def subsets(players: int) -> Array:
    """Every coalition, [2^players, players]: player i is in number c where bit i of c is set."""
    return (np.arange(2**players)[:, None] >> np.arange(players)) % 2 == 1


def exact(values: Array) -> Array:
    """Shapley values [players, …] from the values [2^players, …] of all coalitions in the order of `subsets`.

    φ_i = Σ_S |S|!·(n−|S|−1)!/n! · (v(S ∪ i) − v(S)) over the coalitions S without i (Shapley 1953).
    """
    players = len(values).bit_length() - 1
    there = subsets(players)
    sizes = there.sum(axis=1)
    chance = np.array([factorial(size) * factorial(players - size - 1) for size in range(players)], dtype=object)
    weights = np.array([float(each) for each in chance / factorial(players)]) if players else np.empty(0)
    found: list[Array] = []
    for player in range(players):
        without = np.flatnonzero(~there[:, player])
        gains = values[without + 2**player] - values[without]
        found.append(np.tensordot(weights[sizes[without]], gains, axes=1))
    return np.stack(found)


def orders(players: int, pairs: int, seed: int) -> Array:
    """Random orders, each followed by its reverse, [2·pairs, players]."""
    generator = np.random.default_rng(seed)
    drawn = np.stack([generator.permutation(players) for _ in range(pairs)])
    return np.stack([drawn, drawn[:, ::-1]], axis=1).reshape(-1, players)


def beginnings(drawn: Array) -> Array:
    """The coalitions of the first 1, 2, … n−1 players of each order, [orders, n−1, players]."""
    rank = np.argsort(drawn, axis=1)  # where each player stands in each order
    return rank[:, None, :] < np.arange(1, drawn.shape[1])[None, :, None]


def sampled(drawn: Array, values: Array, empty: Array, full: Array) -> tuple[Array, Array]:
    """Shapley values [players, …] from the values [orders, n−1, …] of `beginnings`, and their standard errors.

    A player's gain on joining is averaged over orders (Castro, Gómez & Tejada 2009); an order and its reverse make one
    draw (Mitchell et al. 2022), and the error is that of the mean over such pairs. In every order the gains add up to
    v(all) − v(none), and so do the values.
    """
    count, players = drawn.shape
    ends = [np.broadcast_to(end, (count, 1, *end.shape)) for end in (empty, full)]
    gains = np.diff(np.concatenate([ends[0], values, ends[1]], axis=1), axis=1)  # by place in the order
    rank = np.argsort(drawn, axis=1).reshape(count, players, *[1] * empty.ndim)
    mine = np.take_along_axis(gains, rank, axis=1)  # by player
    pairs = mine.reshape(count // 2, 2, *mine.shape[1:]).mean(axis=1)
    return pairs.mean(axis=0), pairs.std(axis=0, ddof=1) / np.sqrt(len(pairs))
