"""Attention identifiability: whether a head's output leaves its weights open, and what they are without that part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.found import Found
from pellucid.collect.freedom import EDGES, AttentionFreedom
from pellucid.collect.output_space import deficient
from pellucid.collect.output_space import told as outputs_told
from pellucid.identifiability.notes import notes_table, rounding_told
from pellucid.model.sites import expand
from pellucid.reading import view_with
from pellucid.results import Array, Coordinate, Result, ResultError, Table
from pellucid.uncertainty import jackknife, over_groups

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
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
_CHANCE = {name: f"{name} by chance" for name in MEASURES}
CLASSES = (*(f"{low + 1}–{high}" for low, high in zip((0, *EDGES), EDGES, strict=False)), f"{EDGES[-1] + 1}–")
"""Classes of length, by the keys that a query sees."""


@dataclass(frozen=True, eq=False)
class AttentionIdentifiability(Result):
    """How far the attention of every head is identifiable, [measure, layer, head].

    Tables: `lengths` (every measure by the keys that a query sees, what chance gives, and in how many groups of
    documents there are such queries), `length intervals` (the ends of their intervals, for lengths that two or more
    groups have), `heads` (the width of a head's values, and the share of queries whose rank hangs on the cut), `notes`.
    """

    kind: ClassVar[str] = "identifiability.attention"
    title: ClassVar[str] = "What attention leaves open"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "random values (moved: a random direction)"


def attention(
    source: Found | Model, corpus: Corpus | None = None, *, long: str = "truncate"
) -> AttentionIdentifiability:
    """How much of every head's attention its output leaves open, from `AttentionFreedom()` of a sweep, or a model and a
    corpus (Brunner et al. 2020).

    A head's output is Σ a_j·v_j: with more keys in sight than values are wide, other weights give the same output. A
    query of a causal model sees its prefix alone. Ranks count eigenvalues of VᵀV above n·ε·λ_max in float64. Where a
    head's output projection lets only a part of the values through, that part counts alone. `long` says what happens to
    texts over the model's limit, as in `sweep`; the notes tell how many there were. Chance is random values: `free` and
    `unique` of values in general position, `shifted` and `argmax` of the same weights with Gaussian values in the place
    of the head's own; for `moved` it is a random direction of the weights.
    """
    found = swept(source, corpus, lambda model: [freedom_of(model)], long=long)
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
    return AttentionIdentifiability(
        axes=axes,
        values=values,
        null=_measured(view, keys, chance=True),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("identifiability.attention"),
        tables={**_tables(found, view, mine, axes), **notes_table(_notes(found))},
    )


def swept(
    source: Found | Model, corpus: Corpus | None, gather: Callable[[Model], Sequence[Collector]], *, long: str
) -> Found:
    """The given sweep, or a new one of a model over a corpus with what `gather` names."""
    if isinstance(source, Found):
        if corpus is not None:
            raise ResultError("A finished sweep has its corpus already; give a sweep, or a model and a corpus.")
        return source
    if corpus is None:
        raise ResultError(f"The model {source.name!r} alone shows nothing; give a corpus to read, or a finished sweep.")
    from pellucid.collect.sweep import sweep

    return sweep(source, corpus, gather(source), long=long, progress=False)


def freedom_of(model: Model) -> AttentionFreedom:
    """The collector for a model: its self-attention over the text, and what its output projections let through."""
    sites = patterns_with_values(model)
    return AttentionFreedom(sites, outputs=deficient(model, expand(sites, model.sites)))


def _notes(found: Found) -> list[str]:
    """What is to be said of the text, of output projections and of half precision."""
    outputs = found.collector(AttentionFreedom).outputs
    return [*found.about.get("notes", []), *outputs_told(outputs), *rounding_told(found.models[0].dtype)]


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


def _measured(view: FreedomView, keys: Sequence[str], *, chance: bool = False) -> Array:
    """Every measure, or what chance gives of it, [measure, layer, head]."""
    names = _CHANCE.values() if chance else MEASURES
    return np.array([[view.mean(_summed(name), key) for key in keys] for name in names])


def _by_length(view: FreedomView, keys: Sequence[str], names: Sequence[str], classes: Sequence[int]) -> Array:
    """Measures by class of length, [measure, class, layer, head]."""
    told = [[view.by_length(_summed(name), key)[:, list(classes)].T for key in keys] for name in names]
    return np.array(told).transpose(0, 2, 1, 3)


def _summed(name: str) -> str:
    """A measure as the collector calls it."""
    return name.replace(" ", "_")


def _tables(
    found: Found,
    view: FreedomView,
    mine: Mapping[Coordinate, str],
    axes: Mapping[str, tuple[Coordinate, ...]],
) -> dict[str, Table]:
    keys = list(mine.values())
    counts = view.counts(keys[0])
    there = [place for place, count in enumerate(counts) if count]
    names = [*MEASURES, *_CHANCE.values(), "sees"]
    columns: dict[str, Array] = dict(zip(names, _by_length(view, keys, names, there), strict=True))
    shape = (len(there), len(keys), len(axes["head"]))
    groups = np.array([len(_groups_with(view, keys[0], place)) for place in there])
    columns["queries"] = np.broadcast_to(counts[there].astype(np.int64)[:, None, None], shape)
    columns["groups"] = np.broadcast_to(groups[:, None, None], shape)
    grid = {"layer": axes["layer"], "head": axes["head"]}
    sizes = [found.models[0].sizes[key.split(":")[-1].replace("pattern", "value")] for key in keys]
    width = np.array([[size[-1]] * shape[2] for size in sizes])
    uncertain = np.stack([view.mean("uncertain", key) for key in keys])
    return {
        "lengths": Table({"keys in sight": tuple(CLASSES[place] for place in there), **grid}, columns),
        **_length_intervals(view, keys, there, grid),
        "heads": Table(grid, {"width": width, "uncertain": uncertain}),
    }


def _groups_with(view: FreedomView, key: str, place: int) -> list[int]:
    """The groups of documents that have queries of a class of length."""
    return [number for number in view.groups if view.group(number).n(key) and view.group(number).counts(key)[place]]


def _length_intervals(
    view: FreedomView, keys: Sequence[str], there: Sequence[int], grid: Mapping[str, tuple[Coordinate, ...]]
) -> dict[str, Table]:
    """The ends of the intervals by length, of lengths that several groups of documents have."""
    ends: dict[int, tuple[Array, Array]] = {}
    for place in there:
        groups = _groups_with(view, keys[0], place)
        if len(groups) < 2:
            continue
        sizes = [float(view.group(number).counts(keys[0])[place]) for number in groups]
        without = [_by_length(view.without(number), keys, list(MEASURES), [place])[:, 0] for number in groups]
        found = jackknife(_by_length(view, keys, list(MEASURES), [place])[:, 0], without, sizes)
        assert found.low is not None and found.high is not None
        ends[place] = found.low, found.high  # [measure, layer, head]
    if not ends:
        return {}
    low, high = (np.stack([each[side] for each in ends.values()], axis=1) for side in (0, 1))
    columns = {f"{name} low": low[row] for row, name in enumerate(MEASURES)}
    columns |= {f"{name} high": high[row] for row, name in enumerate(MEASURES)}
    return {"length intervals": Table({"keys in sight": tuple(CLASSES[place] for place in ends), **grid}, columns)}
