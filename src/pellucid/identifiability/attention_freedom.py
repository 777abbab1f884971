"""Attention identifiability: whether a head's output leaves its weights open, and what they are without that part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.found import Found
from pellucid.collect.freedom import EDGES, AttentionFreedom
from pellucid.reading import view_with
from pellucid.results import Array, Coordinate, Result, ResultError, Table
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.collect.freedom import FreedomView
    from pellucid.corpus import Corpus
    from pellucid.model import Model

MEASURES = {
    "free": "dimensions in which a query's weights may move without changing the head's output",
    "free with sum": "the same where the weights must still sum to one",
    "unique": "share of queries whose weights could be no others",
    "moved": "length of the part that has no effect over the length of the weights",
    "shifted": "attention that lies elsewhere in effective attention (its absolute values, summing to one)",
    "argmax": "share of queries whose largest weight stands elsewhere in effective attention",
}
_SUMMED = {"free with sum": "free_with_sum"}
CLASSES = (*(f"{low + 1}–{high}" for low, high in zip((0, *EDGES), EDGES, strict=False)), f"{EDGES[-1] + 1}–")
"""Classes of length, by the keys that a query sees."""


@dataclass(frozen=True, eq=False)
class AttentionIdentifiability(Result):
    """How far the attention of every head is identifiable, [measure, layer, head].

    Tables: `lengths` (every measure by the keys that a query sees), `heads` (the width of a head's values, and the
    share of queries whose rank hangs on the cut).
    """

    kind: ClassVar[str] = "identifiability.attention"
    title: ClassVar[str] = "What attention leaves open"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "nothing is open (moved: a random direction)"


def attention(source: Found | Model, corpus: Corpus | None = None) -> AttentionIdentifiability:
    """How much of every head's attention its output leaves open, from `AttentionFreedom()` of a sweep, or a model and a
    corpus (Brunner et al. 2020).

    A head's output is Σ a_j·v_j: with more keys in sight than values are wide, other weights give the same output. A
    query of a causal model sees its prefix alone. Ranks count eigenvalues of VᵀV above n·ε·λ_max in float64.
    """
    found = _swept(source, corpus)
    chosen, mine = view_with(found, AttentionFreedom, "pattern", ask="AttentionFreedom()")
    view: FreedomView = chosen
    keys = list(mine.values())
    values = _measured(view, keys)
    interval = over_groups(view, partial(_measured, keys=keys), lambda part: part.n(keys[0]))
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": tuple(MEASURES),
        "layer": tuple(mine),
        "head": tuple(range(values.shape[2])),
    }
    null = np.zeros_like(values)
    null[list(MEASURES).index("moved")] = np.stack([view.mean("moved_by_chance", key) for key in keys])
    null[list(MEASURES).index("unique")] = 1.0
    return AttentionIdentifiability(
        axes=axes,
        values=values,
        null=null,
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("identifiability.attention"),
        tables=_tables(found, view, mine, axes),
    )


def _swept(source: Found | Model, corpus: Corpus | None) -> Found:
    """The given sweep, or a new one of a model over a corpus."""
    if isinstance(source, Found):
        if corpus is not None:
            raise ResultError("A finished sweep has its corpus already; give a sweep, or a model and a corpus.")
        return source
    if corpus is None:
        raise ResultError(f"The model {source.name!r} alone shows nothing; give a corpus to read, or a finished sweep.")
    from pellucid.collect.sweep import sweep

    return sweep(source, corpus, [AttentionFreedom(patterns_with_values(source))], progress=False)


def patterns_with_values(model: Model) -> str:
    """The self-attention patterns over the text whose values can be read; a model without any is refused."""
    stacks = [site.stack for site in model.sites if site.kind == "value" and site.beside("pattern") in model.sites]
    for stack in (None, "encoder"):
        if stack in stacks:
            return "pattern.*" if stack is None else f"{stack}.pattern.*"
    missing = [f"{name}: {reason}" for name, reason in model.missing.items() if "pattern" in name or "value" in name]
    raise ResultError(
        f"{model.name!r} does not show both weights and values of its attention "
        f"({'; '.join(missing) or 'it has none'}), so nothing can be told about what they leave open."
    )


def _measured(view: FreedomView, keys: Sequence[str]) -> Array:
    """Every measure, [measure, layer, head]."""
    return np.array([[view.mean(_SUMMED.get(name, name), key) for key in keys] for name in MEASURES])


def _tables(
    found: Found,
    view: FreedomView,
    mine: Mapping[Coordinate, str],
    axes: Mapping[str, tuple[Coordinate, ...]],
) -> dict[str, Table]:
    keys = list(mine.values())
    counts = view.counts(keys[0])
    there = [place for place, count in enumerate(counts) if count]
    by_length = {
        name: np.stack([view.by_length(_SUMMED.get(name, name), key)[:, there] for key in keys])
        for name in (*MEASURES, "moved_by_chance", "sees")
    }
    columns: dict[str, Array] = {
        ("moved by chance" if name == "moved_by_chance" else name): array.transpose(2, 0, 1)
        for name, array in by_length.items()
    }
    shape = (len(there), len(keys), len(axes["head"]))
    columns["queries"] = np.broadcast_to(counts[there].astype(np.int64)[:, None, None], shape)
    grid = {"layer": axes["layer"], "head": axes["head"]}
    sizes = [found.models[0].sizes[key.split(":")[-1].replace("pattern", "value")] for key in keys]
    width = np.array([[size[-1]] * shape[2] for size in sizes])
    uncertain = np.stack([view.mean("uncertain", key) for key in keys])
    return {
        "lengths": Table({"keys in sight": tuple(CLASSES[place] for place in there), **grid}, columns),
        "heads": Table(grid, {"width": width, "uncertain": uncertain}),
    }
