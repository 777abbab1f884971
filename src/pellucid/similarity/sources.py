"""Where scores read from: the moments and the sampled words of a sweep, as pairs of sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from pellucid.collect.collector import keys as keys_of
from pellucid.collect.collector import split_key
from pellucid.collect.moments import Moments
from pellucid.collect.sample import TokenSample
from pellucid.collect.words import all_words
from pellucid.errors import listing
from pellucid.reading import is_random, random_twin
from pellucid.similarity.metrics import Metric
from pellucid.similarity.pair import LEAST, Array, Pair, Side, SimilarityError, pair_of, side_of
from pellucid.similarity.sampled import Samples, SampleSet
from pellucid.uncertainty import Interval

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.moment_sums import MomentsView
    from pellucid.collect.sample import TokenSampleView

Sides = tuple[tuple[str, ...], tuple[str, ...]]
"""Keys on the left and on the right."""


FLAT = 2.0**-21
"""Spread over length of rows that differ by the rounding of float32 alone."""
FEW_WORDS = Interval(None, None, "no interval: without one of its document groups the text has too few words")


def too_few(words: int, sizes: Sequence[int]) -> bool:
    """Whether leaving out one of some document groups leaves too few words to compare."""
    return bool(sizes) and words - max(sizes) < LEAST


def too_little(words: int) -> SimilarityError:
    """The refusal of a text with so few words."""
    there = "There is 1 word" if words == 1 else f"There are {words} words"
    return SimilarityError(f"{there} to compare, and a similarity needs at least {LEAST}; use more text.")


class Source(Protocol):
    """Gives what a score reads of two keys."""

    @property
    def n(self) -> int: ...
    def pair(self, left: str, right: str) -> Any: ...
    def flat(self, key: str) -> bool: ...


class MomentPairs:
    """Pairs of gathered moments; what belongs to one key alone is worked out once."""

    def __init__(self, view: MomentsView, precision: str) -> None:
        self.view, self.precision = view, precision
        self._sides: dict[str, Side] = {}

    @property
    def n(self) -> int:
        """Words."""
        return self.view.n

    def side(self, key: str) -> Side:
        """One key alone."""
        if key not in self._sides:
            self._sides.setdefault(key, side_of(self.view, key, precision=self.precision))  # threads agree on one
        return self._sides[key]

    def pair(self, left: str, right: str) -> Pair:
        """Two keys."""
        return pair_of(self.view, self.side(left), self.side(right))

    def flat(self, key: str) -> bool:
        """Whether a key has the same row for every word, up to float32 rounding."""
        return self.view.norm_sum(key) <= self.n * (FLAT * self.view.mean_length(key)) ** 2


class SamplePairs:
    """Pairs of sampled words, all of them or those of some numbers."""

    def __init__(self, view: TokenSampleView, keys: Sequence[str], rows: Array | None = None) -> None:
        chosen = slice(None) if rows is None else rows
        self.set = SampleSet({key: view.rows(key)[chosen] for key in dict.fromkeys(keys)})

    @property
    def n(self) -> int:
        """Words."""
        return self.set.n

    def pair(self, left: str, right: str) -> Samples:
        """Two keys."""
        return Samples(self.set, left, right)

    def flat(self, key: str) -> bool:
        """Whether a key has the same row for every word, up to float32 rounding."""
        rows = self.set.rows[key].astype(np.float64)
        spread = ((rows - rows.mean(0)) ** 2).sum()
        return bool(spread <= len(rows) * (FLAT * np.linalg.norm(rows, axis=1).mean()) ** 2)


class Gathered:
    """What a sweep gathered that scores can read."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.moments: list[tuple[Moments, MomentsView]] = [
            (collector, found[name])
            for name, collector in found.collectors.items()
            if isinstance(collector, Moments) and collector.pairs != "units"
        ]
        self.samples: list[tuple[TokenSample, TokenSampleView]] = [
            (collector, found[name])
            for name, collector in found.collectors.items()
            if isinstance(collector, TokenSample)
        ]

    def keys(self, wanted: Sequence[Metric]) -> list[str]:
        """The keys that all these scores can read."""
        found: list[list[str]] = []
        for needs, ask in (("moments", "Moments"), ("sample", "TokenSample")):
            names = [metric.name for metric in wanted if metric.needs == needs]
            if not names:
                continue
            views = [view.keys for _, view in (self.moments if needs == "moments" else self.samples)]
            if not views:
                raise SimilarityError(
                    f"The score {names[0]!r} reads {ask}, which this sweep did not collect; sweep with {ask}(…)."
                )
            found.append([key for keys in views for key in keys])
        return [key for key in dict.fromkeys(found[0]) if all(key in each for each in found)]

    def sides(self, wanted: Sequence[Metric], left: str | None, right: str | None) -> Sides:
        """The keys of both sides; what was not gathered for these scores is refused."""
        return self.chosen_sides(self.keys(wanted), left, right)

    def chosen_sides(self, there: Sequence[str], left: str | None, right: str | None) -> Sides:
        """The keys of both sides among those that are `there`; by default the first two trained models'."""
        models = self.found.models
        trained = [number for number in range(len(models)) if not is_random(models, number)] or [0]
        numbers = (trained[0], trained[min(1, len(trained) - 1)])
        sides = [
            tuple(key for key in there if split_key(key)[0] == number) if pattern is None else keys_of(models, pattern)
            for pattern, number in zip((left, right), numbers, strict=True)
        ]
        for key in (*sides[0], *sides[1]):
            if key not in there:
                raise SimilarityError(
                    f"The sweep gathered nothing of {key!r} for this; it has {listing(there, most=40)}."
                )
        return sides[0], sides[1]

    def random_sides(self, sides: Sides) -> dict[str, Sides]:
        """The same sides with a random model in place of the left or the right one, where the sweep has such models."""
        found: dict[str, Sides] = {}
        for name, side in (("random left", 0), ("random right", 1)):
            number = split_key(sides[side][0])[0]
            twin = random_twin(self.found.models, number)
            if twin is None or {split_key(key)[0] for key in sides[side]} != {number}:
                continue
            other = tuple(f"{twin}:{split_key(key)[1]}" for key in sides[side])
            found[name] = (other, sides[1]) if side == 0 else (sides[0], other)
        if sides[0] == sides[1]:
            found.pop("random left", None)  # the same as the right one, turned round
        return found

    def has(self, wanted: Sequence[Metric], sides: Sides) -> bool:
        """Whether everything is there to compare these sides."""
        there = self.keys(wanted)
        known = all(key in there for side in sides for key in side)
        return known and (all(metric.needs == "sample" for metric in wanted) or self._view(sides) is not None)

    def sources(self, wanted: Sequence[Metric], sides: Sides) -> dict[str, Source]:
        """What the scores read, by their `needs`."""
        found: dict[str, Source] = {}
        for needs in {metric.needs for metric in wanted}:
            found[needs] = self.moment_pairs(sides) if needs == "moments" else self.sample_pairs(sides)
            if found[needs].n < LEAST:
                raise too_little(found[needs].n)
        return found

    def moment_pairs(self, sides: Sides) -> MomentPairs:
        """The moments of these sides; a pair that was not gathered is named."""
        found = self._view(sides)
        if found is None:
            lacking = [
                (one, other)
                for one in sides[0]
                for other in sides[1]
                if not any(view.has(one, other) for _, view in self.moments)
            ]
            one, other = lacking[0] if lacking else (sides[0][0], sides[1][0])
            raise SimilarityError(
                f"The products of {one!r} and {other!r} were not gathered; sweep with Moments(…, pairs='all'), or with "
                f"pairs=(({one!r}, {other!r}),)."
            )
        return MomentPairs(found[1], found[0].precision)

    def sample_view(self, sides: Sides) -> TokenSampleView | None:
        """The sample that has all these keys, if one has."""
        keys = [key for side in sides for key in side]
        return next((view for _, view in self.samples if all(key in view.keys for key in keys)), None)

    def whole(self, view: TokenSampleView) -> bool:
        """Whether a sample was large enough for all words of the corpus."""
        return any(collector.size >= self.found.words for collector, each in self.samples if each is view)

    def sample_pairs(self, sides: Sides) -> SamplePairs:
        """The sampled words of these sides; NaN or infinity is refused by its word."""
        view = self.sample_view(sides)
        if view is None:
            raise SimilarityError(
                f"No sample of this sweep has both {sides[0][0]!r} and {sides[1][0]!r}; sweep with one TokenSample."
            )
        keys = [key for side in sides for key in side]
        for key in dict.fromkeys(keys):
            bad = np.flatnonzero(~np.isfinite(view.rows(key)).all(1))
            if len(bad):
                where = self._place(int(view.sentence[bad[0]]), int(view.position[bad[0]]))
                raise SimilarityError(
                    f"{key!r} is NaN or infinite for {where}; leave that site out, or run the model in float32."
                )
        return SamplePairs(view, keys)

    def _place(self, number: int, position: int) -> str:
        """A word by its place, as a message names it."""
        place = f"word {position + 1} of sentence"
        if number not in self.found.sentences or position < 0:
            return f"{place} {number + 1}"
        sentence = self.found.sentences[number]
        return f"{all_words(sentence)[position]!r}, {place} {sentence.id!r}"

    def _view(self, sides: Sides) -> tuple[Moments, MomentsView] | None:
        """The moments in which all these pairs were gathered."""
        for collector, view in self.moments:
            if all(view.has(one, other) for one in sides[0] for other in sides[1]):
                return collector, view
        return None


def sample_moments(view: TokenSampleView, left: str, right: str) -> MomentsView:
    """The moments of two keys over the sampled words, in float64, with the document groups apart."""
    from pellucid.collect.moments import of_rows

    keys = tuple(dict.fromkeys((left, right)))
    return of_rows({key: torch.from_numpy(view.rows(key)) for key in keys}, view.group)
