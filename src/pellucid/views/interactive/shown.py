"""What a head figure shows of the weights, in the order of the interactive views: mean, words, hiding, sums, cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import PellucidError, listing
from pellucid.views.interactive.held import WEIGHT, Floats, HeadMatrix, Held

Places = NDArray[np.intp]


@dataclass(frozen=True)
class Unit:
    """A token, or a word made of the neighbouring tokens from `start` up to, not including, `end`."""

    start: int
    end: int
    text: str
    special: bool
    sink: bool
    segment: int


def units(tokens: Mapping[str, Any], unit: str) -> list[Unit]:
    """Tokens as they are, or gathered into words; a special token is always a unit of its own."""
    special, sinks, word = set(tokens["special"]), set(tokens["sinks"]), tokens["word"]
    found: list[Unit] = []
    for place, text in enumerate(tokens["text"]):
        last = found[-1] if found else None
        same_word = unit == "words" and place > 0 and word[place] >= 0 and word[place] == word[place - 1]
        if last is not None and same_word and place not in special and not last.special:
            sink = last.sink or place in sinks
            found[-1] = Unit(last.start, place + 1, last.text + text, last.special, sink, last.segment)
        else:
            found.append(Unit(place, place + 1, text, place in special, place in sinks, tokens["segment"][place]))
    return found


def places_shown(given: Sequence[Unit], segment: int | None, *, hide_special: bool, hide_sinks: bool) -> Places:
    """Places of the units that stay: of the chosen segment, without those that are hidden."""
    kept = [
        place
        for place, unit in enumerate(given)
        if segment in (None, unit.segment) and not (hide_special and unit.special) and not (hide_sinks and unit.sink)
    ]
    return np.array(kept, np.intp)


def totals(rows: Floats) -> NDArray[np.float64]:
    """Sum of each row, [rows]."""
    if not rows.shape[-1]:
        return np.zeros(rows.shape[:-1])
    return np.cumsum(rows, axis=-1, dtype=np.float64)[..., -1]


def mass_cut(rows: Floats, mass: float) -> tuple[Floats, NDArray[np.float64]]:
    """Rows [rows, keys] with zeros for all but the largest weights that reach `mass` of each row's total.

    Of equal weights the first is taken first. With it, the mass [rows] that was cut.
    """
    if mass >= 1 or not rows.shape[1]:
        return rows, np.zeros(len(rows))
    whole = totals(rows)
    order = np.argsort(-rows, axis=1, kind="stable")
    falling = np.take_along_axis(rows, order, 1)
    reached = np.cumsum(falling, axis=1, dtype=np.float64)
    before = np.concatenate([np.zeros((len(rows), 1)), reached[:, :-1]], axis=1)
    taken = (before < whole[:, None] * mass) & (falling > 0)
    kept = np.zeros_like(rows)
    np.put_along_axis(kept, order, np.where(taken, falling, np.float32(0)), 1)
    count = taken.sum(1)
    last = np.where(count > 0, reached[np.arange(len(rows)), np.maximum(count - 1, 0)], 0.0)
    return kept, np.maximum(0.0, whole - last)


@dataclass(frozen=True)
class Rows:
    """Weights of shown queries over the shown keys, [rows, keys], whole and after the cut.

    Per row: the mass that the cut `dropped`, that goes to `hidden` keys, and that the file does not keep (`unkept`).
    """

    values: Floats
    kept: Floats
    dropped: NDArray[np.float64]
    hidden: NDArray[np.float64]
    unkept: NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One colour of lines: a head, or the mean of several (`head` is None)."""

    name: str
    head: int | None
    heads: int
    matrices: tuple[HeadMatrix, ...]


@dataclass(frozen=True)
class Shown:
    """Units and weights of one panel: `queries` and `keys` are those shown, `left` and `right` the chosen of them."""

    queries: list[Unit]
    keys: list[Unit]
    series: list[Series]
    left: list[int]
    right: list[int]
    mass: float
    all_keys: list[Unit]
    shown_keys: Places

    def rows(self, series: int, places: Sequence[int]) -> Rows:
        """The rows of some shown queries, each cut by itself."""
        matrices = self.series[series].matrices
        whole = np.stack([_unit_row(matrices, self.queries[place], self.all_keys) for place in places])
        values = whole[:, self.shown_keys]
        kept, dropped = mass_cut(values, self.mass)
        hidden = np.maximum(0.0, totals(whole) - totals(values))
        return Rows(values, kept, dropped, hidden, np.array([_unkept(matrices, self.queries[at]) for at in places]))

    def sum(self, series: int, places: Sequence[int]) -> Rows:
        """One row: those of several shown queries added up, and the cut made on the sum."""
        own = self.rows(series, places)
        values = np.zeros((1, own.values.shape[1]), np.float32)
        for row in own.values:
            values[0] += row
        kept, dropped = mass_cut(values, self.mass)
        return Rows(values, kept, dropped, own.hidden.sum(keepdims=True), own.unkept.sum(keepdims=True))

    def column(self, series: int, places: Sequence[int], queries: Sequence[int]) -> NDArray[np.float64]:
        """What each of some shown queries gives to these shown keys together, [queries]."""
        return self.rows(series, queries).values[:, list(places)].sum(axis=1, dtype=np.float64)


def shown(held: Held, state: Mapping[str, Any]) -> Shown:
    """What a state (with all its names) shows of a panel's heads."""
    block = held.block(state["block"])
    layer, words = state["layer"], state["unit"]
    if state["average"] != "layers" and layer not in block["layers"]:
        raise PellucidError(f"{held.name} has no layer {layer}; it has {listing(block['layers'])}.")
    queries, keys = (units(held.tokens(block[side]), words) for side in ("queries", "keys"))
    hiding = {"hide_special": state["hideSpecial"], "hide_sinks": state["hideSinks"]}
    rows = places_shown(queries, state["from"], **hiding)
    columns = places_shown(keys, state["to"], **hiding)
    return Shown(
        queries=[queries[place] for place in rows],
        keys=[keys[place] for place in columns],
        series=_series(held, block, state),
        left=_found(state["left"], rows),
        right=_found(state["right"], columns),
        mass=state["mass"],
        all_keys=keys,
        shown_keys=columns,
    )


def _found(chosen: Sequence[int], places: Places) -> list[int]:
    """Chosen units as places among those shown; hidden ones rest."""
    where = {int(unit): place for place, unit in enumerate(places)}
    return [where[unit] for unit in chosen if unit in where]


def _series(held: Held, block: Mapping[str, Any], state: Mapping[str, Any]) -> list[Series]:
    """The chosen heads one by one, or their mean over heads, or over heads and layers."""
    counts = dict(zip(block["layers"], block["heads"], strict=True))
    average, chosen = state["average"], list(state["heads"])
    layers = block["layers"] if average == "layers" else [state["layer"]]
    wanted = [(layer, head) for layer in layers for head in chosen if head < counts[layer]]
    matrices = [held.matrix(block, state["weighting"], layer, head) for layer, head in wanted]
    if average == "none":
        total = counts[state["layer"]]
        return [
            Series(f"head {head}", head, total, (matrix,)) for (_, head), matrix in zip(wanted, matrices, strict=True)
        ]
    if not matrices:
        return []
    over = f"head {chosen[0]}" if len(chosen) == 1 else f"{len(chosen)} heads"
    name = f"mean of {over} over {len(layers)} layers" if len(layers) > 1 else f"mean of {over}"
    return [Series(name, None, max(counts.values()), tuple(matrices))]


def _unit_row(matrices: Sequence[HeadMatrix], query: Unit, keys: Sequence[Unit]) -> Floats:
    """Weights of one query unit over all key units: mean over matrices and the unit's queries, sum over keys."""
    starts = np.array([key.start for key in keys], np.intp)
    row = np.zeros(len(keys), np.float32)
    for matrix in matrices:
        for codes in matrix.rows(np.arange(query.start, query.end)):
            row += np.add.reduceat(WEIGHT[codes].astype(np.float64), starts)  # keys leave no gaps between them
    share = 1 / (len(matrices) * (query.end - query.start))
    return (row.astype(np.float64) * share).astype(np.float32)


def _unkept(matrices: Sequence[HeadMatrix], query: Unit) -> float:
    """Mean mass that the file does not keep of one query unit."""
    places = np.arange(query.start, query.end)
    return float(np.mean([WEIGHT[matrix.dropped(places)].astype(np.float64) for matrix in matrices]))
