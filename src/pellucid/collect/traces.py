"""Traces: a few chosen units at every word of the corpus, to read them one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.collector import Accumulator, Collector, Setting
from pellucid.collect.state import Array, State
from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch

_PARTS = ("values", "ordinal", "sentence", "position", "group")


@dataclass(frozen=True)
class Traces(Collector):
    """The activations of the first model's units named `units` (`"neurons.3:17"`) at every word, in float32.

    All sentences are kept with them. It takes 4 bytes per unit and word, so it is for tens of units, not for layers.
    """

    kind: ClassVar[str] = "traces"
    units: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.units or isinstance(self.units, str):
            raise SweepError("Traces are of one or more units, given as a list: ('neurons.3:17',).")
        if len(set(self.units)) < len(self.units):
            raise SweepError(f"Some of the units {listing(self.units)} are named twice; name each once.")

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_first(_split(unit)[0]) for unit in self.units))

    @property
    def grouped(self) -> bool:
        return True  # every word's document group is kept beside it

    def open(self, setting: Setting) -> Accumulator:
        places: list[tuple[str, int]] = []
        for unit in self.units:
            site, index = _split(unit)
            key = setting.keys(_first(site))[0]
            if index >= setting.width(key):
                raise SweepError(f"{site} has units 0 to {setting.width(key) - 1}; there is no unit {index}.")
            places.append((key, index))
        return _Trace(self.units, places)

    def merge(self, left: State, right: State) -> State:
        if left.facts != right.facts:
            raise SweepError(f"Traces of {listing(left.facts['units'])} and of other units cannot be merged.")
        return State({name: np.concatenate([left.arrays[name], right.arrays[name]]) for name in _PARTS}, left.facts)

    def view(self, state: State, setting: Setting) -> TracesView:
        order = np.argsort(state.arrays["ordinal"], kind="stable")
        return TracesView(self.units, *(state.arrays[name][order] for name in _PARTS))

    def sentences(self, state: State) -> set[int]:
        return {int(number) for number in np.unique(state.arrays["sentence"])}


@dataclass(frozen=True, eq=False)
class TracesView:
    """Units at every word: `values` [words, units], and [words] each the number of the word, of its sentence, its
    position there and its document group."""

    units: tuple[str, ...]
    values: Array
    ordinal: Array
    sentence: Array
    position: Array
    group: Array


class _Trace(Accumulator):
    """The chosen columns so far."""

    def __init__(self, units: Sequence[str], places: Sequence[tuple[str, int]]) -> None:
        self._units, self._places = units, places
        self._parts: list[tuple[Array, ...]] = []

    def add(self, batch: WordBatch) -> None:
        columns = [batch.rows[key][:, index].cpu().numpy() for key, index in self._places]
        values = np.stack(columns, axis=1).astype(np.float32)
        if not np.isfinite(values).all():
            unit = self._units[int(np.flatnonzero(~np.isfinite(values).all(0))[0])]
            raise SweepError(f"{unit} is NaN or infinite for some word; leave it out, or run the model in float32.")
        self._parts.append((values, batch.ordinal, batch.sentence, batch.position, np.full(batch.size, batch.group)))

    def state(self) -> State:
        empty = (np.zeros((0, len(self._units)), np.float32), *[np.zeros(0, np.int64)] * 4)
        parts = zip(empty, *self._parts, strict=True)
        arrays = {name: np.concatenate(list(part)) for name, part in zip(_PARTS, parts, strict=True)}
        return State(arrays, {"units": list(self._units)})


def _first(site: str) -> str:
    """The pattern of a site of the first of several models, which may also be written before it."""
    return f"0:{site.removeprefix('0:')}"


def _split(unit: str) -> tuple[str, int]:
    site, colon, index = unit.rpartition(":")
    if not colon or not site or not index.isdecimal():
        raise SweepError(f"{unit!r} names no unit; write its site and its number, as in 'neurons.3:17'.")
    return site, int(index)
