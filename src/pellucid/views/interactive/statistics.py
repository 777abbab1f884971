"""Statistics of every head on one text, and the tokens that draw attention whatever the text says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pellucid.views.interactive.tokens import TokenList

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]

MEASURES = {
    "confidence": "The largest weight on a token that is not special, mean over queries.",
    "entropy": "How spread out the attention is, in nats: −Σ w ln w, mean over queries.",
    "distance": "Tokens between query and key, weighted by attention to tokens that are not special.",
    "first token": "Share of the attention on the first token of the text.",
    "sinks": "Share of the attention on tokens that draw attention whatever the text says.",
    "special tokens": "Share of the attention on special tokens such as [CLS] or <s>.",
    "previous token": "Share of the attention on the token just before the query.",
    "same token": "Share of the attention on other copies of the query's token, where there are any.",
}
"""Every statistic, with its sentence; special tokens are no queries, and nothing is renormalised."""

ACROSS = ("confidence", "entropy", "first token", "sinks", "special tokens")
"""Those that make sense where queries and keys are different texts."""

SINK_SHARE, SINK_TIMES = 0.05, 2.0
SINKS = (
    "A token counts as a sink where at least 5% of all attention of this view goes to it, averaged over layers, heads "
    "and queries, and at least twice as much as uniform attention would give it."
)


@dataclass(frozen=True)
class LayerFacts:
    """One layer's sums: measures [H] by name, mean weight of each key over counted queries [H, K] and over all [K]."""

    measures: dict[str, Array]
    keys: Array
    received: Array


class Gauge:
    """Measures patterns of one block; what depends on the tokens alone is made once."""

    def __init__(self, queries: TokenList, keys: TokenList, *, causal: bool) -> None:
        import torch

        self.own = queries is keys
        self.counted = torch.tensor(queries.ordinary)
        self.worded = torch.tensor(keys.ordinary)
        self.causal = causal
        if self.own:
            places = torch.arange(len(queries))
            ids = torch.tensor(queries.ids)
            away = (places[:, None] - places[None, :]).abs().float()
            off = torch.ones(len(keys), dtype=torch.bool)
            off[self.worded] = False
            self.away = away.masked_fill(off[None, :], 0)
            copies = (ids[:, None] == ids[None, :]) & (away > 0)
            self.copies = copies.tril() if causal else copies
            repeated = self.copies.any(1)
            kept = [place for place in queries.ordinary if bool(repeated[place])]
            self.repeated = torch.tensor(kept, dtype=torch.long)

    def measure(self, pattern: Tensor) -> LayerFacts:
        """All facts of a layer's weights [H, queries, keys], one head after the other to keep copies small."""
        import torch

        each = [self._head(head.float().cpu()) for head in pattern]
        measures = {name: np.array([head[name] for head, _, _ in each]) for name in each[0][0]}
        keys = torch.stack([mean for _, mean, _ in each]).numpy()
        received = torch.stack([share for _, _, share in each]).mean(0).numpy()
        return LayerFacts(measures, keys, received)

    def _head(self, weights: Tensor) -> tuple[dict[str, float], Tensor, Tensor]:
        """Measures of one head [queries, keys], and the mean weight of each key over counted and over all queries."""
        import torch

        whole = len(self.worded) == weights.shape[1]
        ordinary = weights if whole else weights[:, self.worded]
        found = {
            "confidence": _mean(ordinary.amax(1)[self.counted]),
            "entropy": _mean(torch.special.entr(weights).sum(1)[self.counted]),
        }
        if self.own:
            far = (weights * self.away).sum(1)[self.counted].double().sum()
            on = ordinary.sum(1)[self.counted].double().sum()
            found["distance"] = float(far / on) if on > 0 else 0.0
            later = self.counted[self.counted > 0]
            found["previous token"] = _mean(weights.diagonal(-1)[later - 1])
            found["same token"] = _mean((weights * self.copies).sum(1)[self.repeated])
        total = weights.sum(0, dtype=torch.float64)
        share = total / len(weights)
        if len(self.counted) == len(weights):
            return found, share, share
        return found, weights[self.counted].sum(0, dtype=torch.float64) / len(self.counted), share


def _mean(values: Tensor) -> float:
    """The mean in float64; 0 of nothing."""
    return float(values.double().mean()) if len(values) else 0.0


def names(*, own: bool) -> tuple[str, ...]:
    """The statistics that a block has: all of them where queries and keys are the same tokens."""
    return tuple(MEASURES) if own else ACROSS


def uniform(queries: int, keys: int, *, causal: bool) -> Array:
    """The share of all attention that each key gets where every query looks at all it may see alike, [K]."""
    if not causal:
        return np.full(keys, 1 / keys)
    seen = 1 / np.arange(1, queries + 1)
    return np.cumsum(seen[::-1])[::-1][:keys] / queries


def sinks(received: Sequence[Array], chance: Array) -> list[int]:
    """Places of the sinks among keys, from the share each received in every layer, [layers][K] (see `SINKS`)."""
    share = np.mean(received, axis=0)
    return [int(place) for place in np.flatnonzero((share >= SINK_SHARE) & (share >= SINK_TIMES * chance))]


def table(facts: Sequence[LayerFacts], keys: TokenList, sunk: Sequence[int], *, own: bool) -> NDArray[np.float32]:
    """All statistics of a block, [statistics, layers, most heads]; absent heads are zero."""
    wanted = names(own=own)
    most = max(len(each.keys) for each in facts)
    found = np.zeros((len(wanted), len(facts), most), np.float32)
    columns = {"first token": [0], "sinks": list(sunk), "special tokens": list(keys.special)}
    for layer, each in enumerate(facts):
        for number, name in enumerate(wanted):
            values = each.keys[:, columns[name]].sum(1) if name in columns else each.measures[name]
            found[number, layer, : len(values)] = values
    return found
