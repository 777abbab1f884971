"""The plan of a comparison: which way to the scores, how exact it is, and what it needs, worked out before it runs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pellucid.collect.collector import Collector, ModelFacts, Setting
from pellucid.collect.documents import DocumentSample
from pellucid.collect.moments import Moments
from pellucid.collect.progress import readable_bytes
from pellucid.collect.sample import TokenSample
from pellucid.collect.sweep import disk_bytes
from pellucid.errors import listing
from pellucid.similarity.metrics import Metric
from pellucid.similarity.pair import ROUNDING, Side, SimilarityError
from pellucid.uncertainty import GROUPS

if TYPE_CHECKING:
    from pellucid.corpus import Corpus

METHODS = ("auto", "moments", "gram", "minibatch")
MOST_SAMPLED = 20_000
"""Words of which all pairs are looked at: more take too long, and say nothing new."""
SAMPLE = 4096
TOLERANCE = 1e-5
"""Error of a score that float32 products may cause before float64 is taken."""


@dataclass(frozen=True)
class Wanted:
    """What is to be compared: scores, patterns of sites left and right, and the models' numbers in the sweep.

    `pairs` are numbers of models whose sites are compared: the two themselves, and each with the other's random twin.
    """

    scores: tuple[Metric, ...]
    left: str
    right: str
    pairs: tuple[tuple[int, int], ...]

    def patterns(self, count: int) -> tuple[tuple[str, str], ...]:
        """Both sides of every pair of models as patterns of a sweep of `count` models."""
        return tuple((_of(one, self.left, count), _of(other, self.right, count)) for one, other in self.pairs)


def _of(model: int, pattern: str, count: int) -> str:
    parts = [part.strip() for part in pattern.split(",")]
    return ",".join(f"{model}:{part}" if count > 1 else part for part in parts)


@dataclass(frozen=True)
class SimilarityPlan:
    """What will be done: the method, what is gathered, sentences that say so, and the memory for what is gathered."""

    method: str
    collectors: tuple[Collector, ...]
    lines: tuple[str, ...]
    memory_limit: int


def make_plan(
    wanted: Wanted,
    models: Sequence[ModelFacts],
    *,
    words: int | None,
    method: str = "auto",
    precision: str = "float32",
    sample: int = SAMPLE,
    most: int = MOST_SAMPLED,
    significance: bool = False,
    memory_limit: int | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
) -> SimilarityPlan:
    """Chooses moments (all words, memory for every pair of sites) or Gram tiles (all pairs of at most 20,000 words).

    `words` is the size of the corpus, None where it is not known to be under `most`. Gram tiles are taken where they
    are cheaper and see every word, or where moments do not fit in `memory_limit` bytes (by default a fifth of the free
    memory, at most 4 GB: while parts are put together, several copies are there); then the scores are of a sample.
    Where only the sums of all document groups together do not fit, they stay on disk, in the `folder` of the pass or a
    temporary one; where the disk has no room either, intervals come from a sample. Words are sampled by the `seed`.
    """
    limit = min(4 << 30, free_memory() // 5) if memory_limit is None else memory_limit
    if method not in METHODS:
        raise SimilarityError(f"There is no method {method!r}; the methods are {listing(METHODS)}.")
    setting = Setting(tuple(models), "mean", torch.device("cpu"))
    room = _Room(setting, limit, folder)
    patterns = wanted.patterns(len(models))
    some = TokenSample(tuple(dict.fromkeys(side for pair in patterns for side in pair)), size=sample, seed=seed)
    tests = (DocumentSample(patterns[0], seed=seed),) if significance else ()
    seen = (some,) if any(metric.needs == "sample" for metric in wanted.scores) else ()
    size = sample
    if any(metric.name == "cka" for metric in wanted.scores):
        held = (limit - room.needed(tests)) // room.needed((replace(some, size=1),))
        size = max(sample, min(most, held))
    exact = words is not None and words <= size
    if method == "auto":
        fits = room.needed((*_moments(patterns, False, precision), *seen, *tests)) <= limit
        method = _cheapest(wanted, setting, words if exact else None, fits=fits)
    lacking = [metric.name for metric in wanted.scores if metric.needs == "moments" and metric.name != "cka"]
    if method == "moments":
        return _by_moments(room, patterns, precision, some, (*seen, *tests))
    if lacking:
        raise SimilarityError(f"The method {method!r} gives 'cka', not {listing(lacking)}; use method='moments'.")
    collectors = (replace(some, size=min(words or size, size)), *tests)
    room.refuse(collectors, f"{collectors[0].size:,} words of {listing(some.rows)}", "take a smaller sample")
    return SimilarityPlan(method, collectors, _gram_lines(method, collectors[0].size, exact), limit)


@dataclass(frozen=True)
class _Room:
    """The memory and the disk that there are."""

    setting: Setting
    limit: int
    folder: str | Path | None

    def needed(self, collectors: Iterable[Collector]) -> int:
        """Bytes of everything that is gathered."""
        return sum(each.memory(self.setting, GROUPS) for each in collectors)

    def refuse(self, collectors: Iterable[Collector], what: str, advice: str) -> None:
        """Raises where it is more than the limit."""
        needed = self.needed(collectors)
        if needed > self.limit:
            raise SimilarityError(
                f"{what} need {readable_bytes(needed)}, and the limit is {readable_bytes(self.limit)}; compare fewer "
                f"sites, {advice}, or raise the limit."
            )


def _by_moments(
    room: _Room, patterns: Sequence[tuple[str, str]], precision: str, some: TokenSample, others: tuple[Collector, ...]
) -> SimilarityPlan:
    """Moments, with document groups apart in memory or on disk, else with some words for the intervals."""
    apart, together = ((*_moments(patterns, groups, precision), *others) for groups in (True, False))
    sites, advice = listing(some.rows), "ask for 'cka' alone with method='gram' (from a sample)"
    room.refuse(together, f"The moments of {sites}", advice)
    collectors, needed = apart, room.needed(apart)
    disk, place = readable_bytes(disk_bytes(needed)), str(disk_folder(room.folder))
    if needed <= room.limit:
        how = f"{readable_bytes(needed)} of memory, document groups kept apart"
    elif disk_bytes(needed) <= free_disk(room.folder):
        how = (
            f"{readable_bytes(room.needed(together))} of memory, document groups kept apart on disk: "
            f"{readable_bytes(needed)} in {place!r}, up to {disk} while it runs"
        )
    else:
        collectors = together if some in together else (*together, some)
        room.refuse(collectors, f"The moments and {some.size:,} words of {sites}", advice)
        how = (
            f"{readable_bytes(room.needed(collectors))} of memory, intervals from a sample of {some.size:,} words "
            f"(document groups would take up to {disk} of disk, which {place!r} does not have)"
        )
    error = "about 1e-7 of a score" if precision == "float32" else "rounding of float64"
    line = f"Method moments: all words in one pass, {precision} products, {how}. Error: {error}."
    return SimilarityPlan("moments", collectors, (line,), room.limit)


def _moments(patterns: Sequence[tuple[str, str]], groups: bool, precision: str) -> tuple[Moments, ...]:
    """Moments of the first pair of models, and of those with a random one, which need no document groups."""
    found: list[Moments] = []
    for part, apart in ((tuple(patterns[:1]), groups), (tuple(patterns[1:]), False)):
        if part:
            sites = tuple(dict.fromkeys(side for pair in part for side in pair))
            found.append(Moments(sites, pairs=part, groups=apart, precision=precision, memory_limit=1 << 62))
    return tuple(found)


def _cheapest(wanted: Wanted, setting: Setting, words: int | None, *, fits: bool) -> str:
    """Gram tiles where nothing needs moments, where they are cheaper, or where moments do not fit; else moments."""
    others = [metric for metric in wanted.scores if metric.needs == "moments" and metric.name != "cka"]
    if others:
        return "moments"
    if all(metric.needs == "sample" for metric in wanted.scores) or not fits:
        return "gram"
    cheaper = words is not None and _gram_flop(wanted, setting, words) < _flop(wanted, setting, words)
    return "gram" if cheaper else "moments"


def _gram_lines(method: str, size: int, exact: bool) -> tuple[str, ...]:
    how = "all pairs of words, tile by tile" if method == "gram" else "shuffled minibatches of words"
    error = "exact up to rounding" if exact and method == "gram" else "an estimate; its interval says how good"
    which = "all words" if exact else f"a sample of {size:,} words"
    return (f"Method {method}: {how}, over {which}. Error: {error}.",)


def _flop(wanted: Wanted, setting: Setting, words: int) -> float:
    """Multiplications and additions of moments: 2n·d_x·d_y for every pair of sites, and each site with itself."""
    total = 0.0
    for left, right in wanted.patterns(len(setting.models)):
        sides = [[setting.width(key) for key in setting.keys(side)] for side in (left, right)]
        total += sum(sides[0]) * sum(sides[1]) + sum(width**2 for side in sides for width in side)
    return 2 * words * total


def _gram_flop(wanted: Wanted, setting: Setting, words: int) -> float:
    """The same of Gram tiles: 2n²·d for every site, 2n² for every pair."""
    total = 0.0
    for left, right in wanted.patterns(len(setting.models)):
        sides = [[setting.width(key) for key in setting.keys(side)] for side in (left, right)]
        total += sum(map(sum, sides)) + len(sides[0]) * len(sides[1])
    return 2 * words**2 * total


def words_up_to(corpus: Corpus, most: int) -> int | None:
    """The words of a corpus, None where there are more than `most`; no more are read than that."""
    words = 0
    for sentence in corpus:
        words += len(sentence.words)
        if words > most:
            return None
    return words


def free_memory() -> int:
    """Bytes of memory that this machine could still give."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux: half of what there is
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 8 << 30


def disk_folder(folder: str | Path | None) -> Path:
    """Where a pass keeps what memory does not hold: in its folder, or among the system's temporary files."""
    return Path(tempfile.gettempdir()) if folder is None else Path(folder)


def free_disk(folder: str | Path | None) -> int:
    """Bytes that the disk of a folder, which need not be there yet, has room for."""
    place = disk_folder(folder).absolute()
    return shutil.disk_usage(next(each for each in (place, *place.parents) if each.is_dir())).free


def float32_error(sides: Iterable[Side]) -> float:
    """A bound on the error that float32 products cause in scores that use every direction: rounding times condition.

    Infinite where the sides themselves came from float32 products and have directions that are lost in rounding.
    """
    errors = [float("inf") if lost(side) else ROUNDING["float32"] / 2 * side.condition for side in sides]
    return max(errors, default=0.0)


def lost(side: Side) -> int:
    """Directions that float32 products cannot tell from rounding."""
    return min(side.width, side.n - 1) - side.rank if side.precision == "float32" else 0
