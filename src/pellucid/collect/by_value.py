"""Statistics by the value of a label: what collectors of class moments and of class histograms have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from pellucid.collect.collector import Collector, Patterns, Setting
from pellucid.collect.state import Array, State
from pellucid.collect.sums import Columns
from pellucid.collect.value_groups import grouped_value, of_groups
from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch


USUAL_VALUES = 16
"""Values of a label that memory is reckoned for, before it is known how many it has."""


def usual_values(label: str) -> int:
    """How many values a label is reckoned to have: two where its name is a question (`upos=NOUN`)."""
    _, equals, values = label.partition("=")
    return 2 if equals and "," not in values else USUAL_VALUES


@dataclass(frozen=True)
class ByValue(Collector):
    """A statistic of the rows of some sites, apart for each value of a word or sentence label.

    Values appear as they are met; rows without a value are only counted. `groups` keeps document groups apart.
    """

    sites: Patterns
    label: str = field(kw_only=True)
    groups: bool = field(default=False, kw_only=True)
    memory_limit: int = field(default=4 * 2**30, kw_only=True)

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.sites,) if isinstance(self.sites, str) else self.sites

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.label,)

    def columns(self, setting: Setting) -> Columns:
        """Where the columns of the sites lie."""
        keys = setting.keys(self.sites)
        return Columns(keys, [setting.width(key) for key in keys])

    def refuse_other(self, left: State, right: State, names: Sequence[str], *, same: bool = True) -> None:
        """Raises where two states are not of the same keys and label (and further facts), or not on one grid."""
        if not same or any(left.facts[name] != right.facts[name] for name in ("keys", "widths", "label", *names)):
            raise SweepError(
                f"Statistics ({self.kind}) of {left.facts['label']!r} at {left.facts['keys']} and of "
                f"{right.facts['label']!r} at {right.facts['keys']}, or on different grids, cannot be merged; take all "
                "shards from one sweep."
            )

    def within_limit(self, needed: int, units: int, values: int, advice: str) -> None:
        """Raises where a state needs more bytes than the limit."""
        if needed > self.memory_limit:
            raise SweepError(
                f"Statistics ({self.kind}) of {units:,} units for {values:,} values of {self.label!r} need {needed:,} "
                f"bytes, and memory_limit is {self.memory_limit:,}; {advice}, or raise memory_limit."
            )


class Values:
    """The values met so far: their numbers in the order of meeting, the rows of each, and the rows without one."""

    def __init__(self, label: str, *, grouped: bool = False) -> None:
        self._label, self._grouped = label, grouped
        self._code: dict[str, int] = {}
        self._rows = np.zeros(0, np.int64)
        self.unlabelled = 0

    def __len__(self) -> int:
        return len(self._code)

    def of(self, batch: WordBatch) -> tuple[Array, Array]:
        """Which rows of a batch have a value, [n] each: their places, and the numbers of their values."""
        labels = batch.labels(self._label)
        present = {value: self._number(batch.group, value) for value in dict.fromkeys(labels) if value is not None}
        every = np.array([-1 if value is None else present[value] for value in labels], np.int64)
        chosen = np.flatnonzero(every >= 0)
        codes = every[chosen]
        self.unlabelled += len(every) - len(chosen)
        counted = np.bincount(codes, minlength=len(self._code))
        counted[: len(self._rows)] += self._rows
        self._rows = counted
        return chosen, codes

    def _number(self, group: int, value: str) -> int:
        name = grouped_value(group, value) if self._grouped else value
        return self._code.setdefault(name, len(self._code))

    def sorted(self) -> tuple[list[str], list[int], Array]:
        """The values in their order, the number of each, and how many rows each has."""
        names = sorted(self._code)
        order = [self._code[name] for name in names]
        return names, order, self._rows[order].astype(np.int64)


@dataclass(frozen=True, eq=False)
class ByValueView:
    """Statistics by the value of a label; `parts` are the document groups, if they were kept apart."""

    common: ClassVar[tuple[str, ...]] = ()
    """Arrays of a state that hold for all values."""
    what: ClassVar[str] = "statistics"

    columns: Columns
    state: State
    parts: Mapping[int, State] = field(default_factory=dict[int, State])

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that were read."""
        return self.columns.keys

    @property
    def label(self) -> str:
        """The label whose values tell the rows apart."""
        return self.state.facts["label"]

    @property
    def values(self) -> tuple[str, ...]:
        """The label's values, sorted."""
        return tuple(self.state.facts["values"])

    @property
    def counts(self) -> Array:
        """Rows of each value, [values]."""
        return self.state.arrays["n"]

    @property
    def unlabelled(self) -> int:
        """Rows without a value."""
        return int(self.state.arrays["unlabelled"][0])

    @property
    def groups(self) -> tuple[int, ...]:
        """Numbers of the document groups that have rows; none unless they were kept apart."""
        return tuple(self.parts)

    def group(self, number: int) -> Self:
        """The statistics of one document group alone."""
        return type(self)(self.columns, self.parts[number])

    def without(self, number: int) -> Self:
        """The statistics of all rows but those of one document group, for the jackknife."""
        rest = [part for group, part in self.parts.items() if group != number]
        return type(self)(self.columns, of_groups(rest, self.state, self.common))

    def place(self, key: str) -> slice:
        """Where a key's columns lie; one that was not gathered raises."""
        if key not in self.keys:
            raise SweepError(
                f"No {self.what} of {key!r} were gathered; there are those of {listing(self.keys, most=40)}."
            )
        return self.columns.slices[self.keys.index(key)]
