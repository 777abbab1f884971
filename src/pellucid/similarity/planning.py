"""The plan of a comparison: which way to the scores, how exact it is, and what it needs, worked out before it runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pellucid.collect.collector import Collector, ModelFacts, Setting
from pellucid.collect.documents import DocumentSample
from pellucid.collect.moments import Moments
from pellucid.collect.progress import readable_bytes
from pellucid.collect.sample import TokenSample
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
    """What will be done: the method, what is gathered, and sentences that say so."""

    method: str
    collectors: tuple[Collector, ...]
    lines: tuple[str, ...]


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
    seed: int = 0,
) -> SimilarityPlan:
    """Chooses moments (all words, memory for every pair of sites) or Gram tiles (all pairs of at most 20,000 words).

    `words` is the size of the corpus, None where it is not known to be under `most`. Gram tiles are taken where they
    are cheaper and see every word, or where moments do not fit in `memory_limit` bytes (by default a fifth of the free
    memory, at most 4 GB: while parts are put together, several copies are there); then the scores are of a sample.
    Words are sampled by the `seed`.
    """
    memory_limit = min(4 << 30, free_memory() // 5) if memory_limit is None else memory_limit
    if method not in METHODS:
        raise SimilarityError(f"There is no method {method!r}; the methods are {listing(METHODS)}.")
    setting = Setting(tuple(models), "mean", torch.device("cpu"))
    patterns = wanted.patterns(len(models))
    sites = tuple(dict.fromkeys(side for pair in patterns for side in pair))
    tests = (DocumentSample(patterns[0], seed=seed),) if significance else ()
    gathered = {groups: _moments(patterns, groups, precision) for groups in (True, False)}
    needed = {groups: sum(each.memory(setting, GROUPS) for each in parts) for groups, parts in gathered.items()}
    if method == "auto":
        method = _cheapest(wanted, setting, words, fits=needed[False] <= memory_limit)
    others = [metric.name for metric in wanted.scores if metric.needs == "moments" and metric.name != "cka"]
    if method in ("gram", "minibatch"):
        if others:
            raise SimilarityError(f"The method {method!r} gives 'cka', not {listing(others)}; use method='moments'.")
        room = most if any(metric.name == "cka" for metric in wanted.scores) else sample
        size, exact = min(words or room, room), words is not None and words <= room
        collectors = (TokenSample(sites, size=size, seed=seed), *tests)
        return SimilarityPlan(method, collectors, _gram_lines(method, size, exact))
    if needed[False] > memory_limit:
        raise SimilarityError(
            f"The moments of {listing(sites)} need {readable_bytes(needed[False])}, and the limit is "
            f"{readable_bytes(memory_limit)}; compare fewer sites, ask for 'cka' alone with method='gram' (from a "
            "sample), or raise the limit."
        )
    groups = needed[True] <= memory_limit
    single = not groups or any(metric.needs == "sample" for metric in wanted.scores)
    sampled = (TokenSample(sites, size=sample, seed=seed),) if single else ()
    lines = _moment_lines(precision, needed[groups], groups, sample)
    return SimilarityPlan("moments", (*gathered[groups], *sampled, *tests), lines)


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


def _moment_lines(precision: str, needed: int, groups: bool, sample: int) -> tuple[str, ...]:
    error = "about 1e-7 of a score" if precision == "float32" else "rounding of float64"
    apart = "document groups kept apart" if groups else f"intervals from a sample of {sample:,} words"
    sums = f"{readable_bytes(needed)} for their sums, {apart}"
    return (f"Method moments: all words in one pass, {precision} products, {sums}. Error: {error}.",)


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


def float32_error(sides: Iterable[Side]) -> float:
    """A bound on the error that float32 products cause in scores that use every direction: rounding times condition.

    Infinite where the sides themselves came from float32 products and have directions that are lost in rounding.
    """
    errors = [float("inf") if lost(side) else ROUNDING["float32"] / 2 * side.condition for side in sides]
    return max(errors, default=0.0)


def lost(side: Side) -> int:
    """Directions that float32 products cannot tell from rounding."""
    return min(side.width, side.n - 1) - side.rank if side.precision == "float32" else 0
