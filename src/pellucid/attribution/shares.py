"""Shares of attribution: how much of a sentence's attribution falls to each group of its tokens, summed over texts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Estimates(NamedTuple):
    """Means over sentences, [..., P, G]; the places' own shares and what chance gives for them are [..., P]."""

    share: Array
    signed: Array
    lift: Array
    share_chance: Array
    signed_chance: Array
    place: Array


class Shares:
    """Running sums over sentences for attributions [..., P, n] to the n tokens of each, kept apart by document group.

    A token's share is |a_i| / Σ_j|a_j| among the tokens of its sentence at the same place, and its signed share has the
    sign of a_i, so that every sentence weighs the same. Where tokens change places at random within a sentence, a group
    of k of n tokens gets k/n of its attribution. Sentences without any attribution at a place do not count there.
    """

    def __init__(self, documents: int, shape: tuple[int, ...], groups: int) -> None:
        full = (documents, *shape, groups)
        self.share, self.signed = np.zeros(full), np.zeros(full)
        self.frequency, self.spread = np.zeros(full), np.zeros(full)
        self.alive, self.place = np.zeros(full[:-1]), np.zeros(full[:-1])
        self.sentences = np.zeros(documents, dtype=np.int64)

    def add(self, values: Array, codes: Array, document: int, held: Array) -> None:
        """One sentence of a document group: its attributions [..., P, n] and the group [n] of each token.

        `held` [..., P] is the size of all attribution at each place, that of tokens which do not count included.
        """
        sizes = np.abs(values)
        totals = sizes.sum(axis=-1)  # [..., P]
        alive = totals > 0
        scale = np.where(alive, totals, 1.0)[..., None]
        belongs = np.zeros((len(codes), self.share.shape[-1]))
        belongs[np.arange(len(codes)), codes] = 1.0
        frequency = belongs.mean(axis=0)
        signed = values / scale
        self.share[document] += sizes / scale @ belongs
        self.signed[document] += signed @ belongs
        self.frequency[document] += alive[..., None] * frequency
        self.spread[document] += signed.sum(axis=-1, keepdims=True) * frequency
        self.alive[document] += alive
        whole = held.sum(axis=-1, keepdims=True)
        self.place[document] += held / np.where(whole > 0, whole, 1.0)
        self.sentences[document] += 1

    @property
    def kept(self) -> list[int]:
        """The document groups that hold sentences."""
        return np.flatnonzero(self.sentences).tolist()

    def estimates(self, *, without: int | None = None) -> Estimates:
        """The means over all sentences, or over all but those of one document group.

        The lift is a group's share over what chance gives it. Where a group has no token, nothing is known: its lift
        is that of chance.
        """
        chosen = [group for group in self.kept if group != without]
        alive = self.alive[chosen].sum(axis=0)
        count = np.where(alive > 0, alive, 1.0)[..., None]
        share, frequency = self.share[chosen].sum(axis=0), self.frequency[chosen].sum(axis=0)
        return Estimates(
            share / count,
            self.signed[chosen].sum(axis=0) / count,
            np.where(frequency > 0, share / np.where(frequency > 0, frequency, 1.0), 1.0),
            frequency / count,
            self.spread[chosen].sum(axis=0) / count,
            self.place[chosen].sum(axis=0) / max(1, int(self.sentences[chosen].sum())),
        )
