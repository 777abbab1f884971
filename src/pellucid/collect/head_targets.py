"""Head targets: whether heads look at syntactic neighbours, rare words, repeated words, tags, and in what shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting, split_key
from pellucid.collect.effective_weights import RAW, PatternReader, check_weights, sites_read
from pellucid.collect.head_frames import ROWS, Frame, taken
from pellucid.collect.head_links import CASES, FIXED, Names
from pellucid.collect.state import Array, State
from pellucid.collect.sums import added, by_group, total_of
from pellucid.collect.word_weights import WordWeights, is_causal, no_numbers, without_padding
from pellucid.collect.words import Words
from pellucid.errors import SweepError, listing

_EXPECTED_NAMES = 128
"""Tags and kinds of links that a corpus is expected to have, for the memory told beforehand."""


@dataclass(frozen=True)
class HeadTargets(Collector):
    """Counts of what each head's largest weight finds, and sums of the attention there, between words as `HeadCounts`.

    For every dependency relation in both directions, the rarest word in sight (by the corpus's own counts), the same
    word elsewhere and what followed it before: hits of the largest weight, attention, what a largest weight on a random
    visible word would hit, and the offsets at which these words stand (up to `reach`), all over queries that can see
    such a word; and texts in which most words hit a rarest one. Attention on every value of `label`; hits at offsets up
    to `offsets`; how vertical, diagonal and block-like patterns are. Squared deviations of each text from chance come
    along, for tests. `weights` as in `HeadCounts`.
    """

    kind: ClassVar[str] = "head-targets"
    sites: Patterns = "pattern.*"
    label: str = field(default="upos", kw_only=True)
    arcs: bool = field(default=True, kw_only=True)
    offsets: int = field(default=8, kw_only=True)
    reach: int = field(default=20, kw_only=True)
    groups: bool = field(default=True, kw_only=True)
    weights: str = field(default=RAW, kw_only=True)

    def __post_init__(self) -> None:
        if self.offsets < 1 or self.reach < 1:
            raise SweepError(f"offsets={self.offsets} and reach={self.reach} must both be 1 or more.")
        check_weights(self.weights)

    @property
    def raw(self) -> tuple[str, ...]:
        return sites_read(self.sites, self.weights)

    def open(self, setting: Setting) -> Accumulator:
        if setting.pooling == "all":
            raise SweepError("HeadTargets reads words, and pooling='all' keeps sub-words; sweep with pooling='mean'.")
        keys = setting.keys(self.sites)
        frames = [_frame_name(key, is_causal(key, setting, reader="HeadTargets")) for key in keys]
        frequent = None if setting.pilot is None else setting.pilot.facts.get("frequent")
        return _Targets(self, keys, frames, frequent)

    def foreseen(self, frequent: Mapping[str, int]) -> State | None:
        return State({}, {"frequent": dict(frequent)})

    def merge(self, left: State, right: State) -> State:
        if _settled(left.facts) != _settled(right.facts):
            raise SweepError(f"Head targets of {left.facts['keys']} and of {right.facts['keys']} cannot be merged.")
        names = {axis: _union(left.facts[axis], right.facts[axis]) for axis in ("kinds", "tags")}
        parts = [_aligned(state, names) for state in (left, right)]
        return State(added(*parts), {**left.facts, **names})

    def view(self, state: State, setting: Setting) -> HeadTargetsView:
        parts = by_group(state.arrays)
        return HeadTargetsView(state.facts, total_of(parts), parts)

    def memory(self, setting: Setting, groups: int) -> int:
        heads = sum(setting.width(key) for key in setting.keys(self.sites))
        one = 8 * heads * (4 * _EXPECTED_NAMES + 2 * (2 * self.offsets + 1) + len(ROWS) + 1)
        frames = 16 * _EXPECTED_NAMES * (2 * self.reach + 1 + len(CASES) + 1)
        return (one + frames) * (groups if self.groups else 1)


def _frame_name(key: str, causal: bool) -> str:
    """Which keys see the same words: those of one model with one direction."""
    return f"{split_key(key)[0]}{'back' if causal else 'both'}"


def _settled(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in ("kinds", "tags")}


def _union(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """Names of both: those that are always there first, then the others sorted."""
    return [*(name for name in FIXED if name in (*left, *right)), *sorted({*left, *right} - set(FIXED))]


def _aligned(state: State, names: Mapping[str, Sequence[str]]) -> dict[str, Array]:
    """A state's arrays with the rows of named axes moved to where `names` have them."""
    places = {axis: [list(names[axis]).index(name) for name in state.facts[axis]] for axis in names}
    moved: dict[str, Array] = {}
    for name, array in state.arrays.items():
        axis = name.split("/")[1]
        if axis in names:
            wide = np.zeros((len(names[axis]), *array.shape[1:]), array.dtype)
            wide[places[axis]] = array[: len(places[axis])]
            array = wide
        moved[name] = array
    return moved


@dataclass(frozen=True, eq=False)
class HeadTargetsView:
    """Sums of head targets; `sums` are of all words, `parts` of each document group, `facts` what was counted.

    Every array is a sum over query words, so that what is read here can be divided as one likes.
    """

    facts: Mapping[str, Any]
    sums: Mapping[str, Array]
    parts: Mapping[str, Mapping[str, Array]]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that were read."""
        return tuple(self.facts["keys"])

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of links: `rare`, `same word`, `followed before`, then `nsubj to head`, `nsubj to dependent` …"""
        return tuple(self.facts["kinds"])

    @property
    def tags(self) -> tuple[str, ...]:
        """Values of the label."""
        return tuple(self.facts["tags"])

    @property
    def offsets(self) -> tuple[int, ...]:
        """Offsets (key − query) at which hits were counted."""
        return tuple(range(-self.facts["offsets"], self.facts["offsets"] + 1))

    @property
    def groups(self) -> tuple[int, ...]:
        """Numbers of the document groups that have words; none unless they were kept apart."""
        return tuple(int(group) for group in self.parts if group != "all")

    def group(self, number: int) -> HeadTargetsView:
        """One document group alone."""
        return HeadTargetsView(self.facts, self._part(number), {})

    def without(self, number: int) -> HeadTargetsView:
        """All words but those of one document group, for the jackknife."""
        part = self._part(number)
        rest = {name: array - part[name] if name in part else array for name, array in self.sums.items()}
        return HeadTargetsView(self.facts, rest, {})

    def only(self, numbers: Sequence[int]) -> HeadTargetsView:
        """Several document groups together."""
        return HeadTargetsView(self.facts, total_of({str(number): self._part(number) for number in numbers}), {})

    def n(self, key: str) -> int:
        """Query words at a key."""
        name = f"rows/n/{self._frame(key)}"
        return int(self.sums[name][0]) if name in self.sums else 0

    def links(self, key: str) -> Array:
        """Hits and attention of every kind of link, [kinds, 2, heads]."""
        return self._of(f"kinds/sums/{self._number(key)}")

    def spread(self, key: str) -> Array:
        """Σ over sentences of (hits − expected hits)² of every kind of link, [kinds, heads]."""
        return self._of(f"kinds/spread/{self._number(key)}")

    def cases(self, key: str) -> Array:
        """`CASES` of every kind of link, [kinds, 4]."""
        return self._of(f"kinds/cases/{self._frame(key)}")

    def texts(self, key: str) -> tuple[Array, Array]:
        """Texts in which most queries hit a rarest word, and Σ over texts of (that − chance)², [2, heads]; n, expected
        and variance of texts with such a word, [3]."""
        name = f"texts/cases/{self._frame(key)}"
        if name not in self.sums and self.n(key):
            raise SweepError("This sweep was kept before texts with rare words were counted; make it again.")
        return self._of(f"texts/sums/{self._number(key)}"), self._of(name)

    def distances(self, key: str) -> Array:
        """Queries with a link at each offset from −reach to reach, [kinds, 2·reach + 1]."""
        return self._of(f"kinds/distances/{self._frame(key)}")

    def at_offsets(self, key: str) -> tuple[Array, Array]:
        """Hits and Σ over sentences of (hits − expected)² at each offset, [offsets, 2, heads]; n, expected and variance
        of queries with a word there, [offsets, 3]."""
        frame = self._of(f"offsets/cases/{self._frame(key)}")
        return self._of(f"offsets/sums/{self._number(key)}"), frame

    def on_tags(self, key: str) -> tuple[Array, Array]:
        """Attention on every value of the label, [tags, heads], and of uniform attention, [tags]."""
        return self._of(f"tags/mass/{self._number(key)}"), self._of(f"tags/chance/{self._frame(key)}")

    def rows(self, name: str, key: str) -> tuple[Array, float]:
        """One of the sums that make up shapes, see `ROWS`, [heads], and the same of uniform attention."""
        if name not in ROWS:
            raise SweepError(f"Head targets have no {name!r}; they have {listing(ROWS)}.")
        place = ROWS.index(name)
        return (
            self._of(f"rows/sums/{self._number(key)}")[place],
            float(self._of(f"rows/chance/{self._frame(key)}")[place]),
        )

    def _of(self, name: str) -> Array:
        if name not in self.sums:
            raise SweepError("No query word was counted; give the sweep a corpus with words.")
        return self.sums[name]

    def _number(self, key: str) -> int:
        if key not in self.keys:
            raise SweepError(f"No heads of {key!r} were counted; there are those of {listing(self.keys, most=40)}.")
        return self.keys.index(key)

    def _frame(self, key: str) -> str:
        return self.facts["frames"][self._number(key)]

    def _part(self, number: int) -> Mapping[str, Array]:
        if str(number) not in self.parts:
            raise SweepError(
                f"There is no document group {number}; there are {listing(self.groups)} (groups=True keeps them)."
            )
        return self.parts[str(number)]


class _Targets(Accumulator):
    """Sums per head and group, on the CPU: they are small."""

    def __init__(
        self, collector: HeadTargets, keys: tuple[str, ...], frames: list[str], frequent: Mapping[str, int] | None
    ) -> None:
        self._collector, self._keys, self._frames, self._frequent = collector, keys, frames, frequent
        self._kinds, self._tags = Names(FIXED), Names()
        self._reader = PatternReader(keys, collector.weights)
        self._arrays: dict[str, Array] = {}
        self._open: dict[str, Frame] = {}

    def see(self, key: str, tensor: Tensor, words: Words) -> None:
        read = self._reader.read(key, tensor, words)
        if read is None:
            return
        number = self._keys.index(read.key)
        name = self._frames[number]
        group = str(words.group) if self._collector.groups else "all"
        frame = self._open.get(name)
        if frame is None or frame.words is not words:
            frame = self._open[name] = self._framed(words, name)
            for what, array in frame.known().items():
                self._add(f"{group}/{what}/{name}", array)
        found = taken(read.between_words(), frame)
        if not found.finite():  # queries of padding may be NaN, and are not read
            found = taken(WordWeights(without_padding(read.summed, words), frame.keys, read.signed), frame)
        if not found.finite():
            raise no_numbers(read.key, found.broken())
        for what, array in found.arrays().items():
            self._add(f"{group}/{what}/{number}", array)

    def _framed(self, words: Words, name: str) -> Frame:
        collector = self._collector
        return Frame(
            words,
            causal=name.endswith("back"),
            kinds=self._kinds,
            tags=self._tags,
            label=collector.label,
            arcs=collector.arcs,
            frequent=self._frequent,
            offsets=collector.offsets,
            reach=collector.reach,
        )

    def _add(self, name: str, array: Array) -> None:
        """Adds to an array, which grows with the names met so far."""
        before = self._arrays.get(name)
        if before is None:
            self._arrays[name] = np.array(array)
            return
        if len(before) < len(array):
            before = self._arrays[name] = np.concatenate(
                [before, np.zeros((len(array) - len(before), *array.shape[1:]), before.dtype)]
            )
        before[: len(array)] += array

    def state(self) -> State:
        facts: dict[str, Any] = {
            "keys": list(self._keys),
            "frames": self._frames,
            "kinds": list(self._kinds),
            "tags": list(self._tags),
            "offsets": self._collector.offsets,
            "reach": self._collector.reach,
            "label": self._collector.label,
            "counted": self._frequent is not None,
        }
        whole = State({name: _tall(name, array, facts) for name, array in self._arrays.items()}, facts)
        names = {axis: _union(facts[axis], ()) for axis in ("kinds", "tags")}
        return State(_aligned(whole, names), {**facts, **names})


def _tall(name: str, array: Array, facts: Mapping[str, Any]) -> Array:
    """An array of a named axis with a row for every name."""
    axis = name.split("/")[1]
    if axis not in ("kinds", "tags"):
        return array
    return np.concatenate([array, np.zeros((len(facts[axis]) - len(array), *array.shape[1:]), array.dtype)])
