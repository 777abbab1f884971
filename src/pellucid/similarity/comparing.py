"""Comparing models: plans, sweeps once, and scores; with one model, its layers with each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pellucid.collect.collector import Setting
from pellucid.collect.job import facts_of
from pellucid.collect.moments import Moments
from pellucid.collect.sweep import sweep
from pellucid.similarity.grid import SimilarityGrid, grid
from pellucid.similarity.metrics import chosen
from pellucid.similarity.pair import LEAST
from pellucid.similarity.permutations import PERMUTATIONS, SimilaritySignificance, significance
from pellucid.similarity.planning import (
    MOST_SAMPLED,
    SAMPLE,
    TOLERANCE,
    SimilarityPlan,
    Wanted,
    float32_error,
    make_plan,
    words_up_to,
)
from pellucid.similarity.sources import MomentPairs, too_little

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus
    from pellucid.model import Model

PILOT = 4
"""Words per feature that the condition of a site is judged from."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """A finished sweep for a comparison, and the plan it followed."""

    found: Found
    plan: SimilarityPlan
    wanted: Wanted

    def grid(self, score: str, *, interval: bool | None = None) -> SimilarityGrid:
        """One of the scores."""
        left, right = self.wanted.patterns(len(self.found.models))[0]
        return grid(self.found, score, left=left, right=right, interval=interval, method=self.plan.method)

    def significance(
        self, scores: str | Iterable[str] = "cka", *, permutations: int = PERMUTATIONS, seed: int = 0
    ) -> SimilaritySignificance:
        """The p-values of the same sites, where the comparison was made with `significance=True`."""
        left, right = self.wanted.patterns(len(self.found.models))[0]
        return significance(self.found, scores, left=left, right=right, permutations=permutations, seed=seed)


def compare(
    left: Model,
    right: Model | None,
    corpus: Corpus,
    *,
    scores: str | Iterable[str] = "cka",
    sites: str = "resid.*",
    right_sites: str | None = None,
    random: bool = True,
    significance: bool = False,
    method: str = "auto",
    precision: str = "auto",
    sample: int = SAMPLE,
    memory_limit: int | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    engine: str = "inline",
    workers: int | None = None,
    threads: int | None = None,
    token_budget: int | None = None,
    long: str = "window",
    say: Callable[[str], None] | None = None,
) -> Comparison:
    """Everything that some scores of two models (or of the layers of one) need, from one pass over a corpus.

    `random` reads the text with a randomly initialised model of each architecture too. `method` is auto, moments, gram
    or minibatch; `precision` auto, float32 or float64. `sample` is how many words are kept for scores that need words
    themselves, `seed` that of the random models and the sample. `folder` keeps the pass, to go on if it is stopped.
    Then `comparison.grid("cka")` is the map of a score and, with `significance`, `comparison.significance()` its
    p-values.
    """
    tell = say or (lambda _: None)
    read = [left] if right is None else [left, right]
    twins = [type(model).random_like(model, seed) for model in read] if random else []
    models, pairs = [*read, *twins], _pairs(alone=right is None, same=right_sites in (None, sites), random=random)
    words = words_up_to(corpus, MOST_SAMPLED)
    if words is not None and words < LEAST:
        raise too_little(words)
    wanted = Wanted(tuple(chosen(scores)), sites, right_sites or sites, pairs)
    if precision == "auto":
        precision = _precision(wanted, read, corpus, long, token_budget, tell)
    plan = make_plan(
        wanted,
        [facts_of(model, side="source") for model in models],
        words=words,
        method=method,
        precision=precision,
        sample=sample,
        significance=significance,
        memory_limit=memory_limit,
        folder=folder,
        seed=seed,
    )
    for line in plan.lines:
        tell(line)
    found = sweep(
        models,
        corpus,
        plan.collectors,
        folder=folder,
        engine=engine,
        workers=workers,
        threads=threads,
        token_budget=token_budget,
        long=long,
        memory_limit=plan.memory_limit,
    )
    return Comparison(found, plan, wanted)


def _pairs(*, alone: bool, same: bool, random: bool) -> tuple[tuple[int, int], ...]:
    """Which models meet, by number: those asked for, then each with the random twin of the other.

    Twins come after the models; one model `alone` whose `same` sites stand on both sides meets its twin once.
    """
    asked = (0, 0 if alone else 1)
    if not random:
        return (asked,)
    if not alone:
        return asked, (0, 3), (2, 1)
    return (asked, (0, 1)) if same else (asked, (0, 1), (1, 0))


def _precision(
    wanted: Wanted,
    models: list[Model],
    corpus: Corpus,
    long: str,
    token_budget: int | None,
    tell: Callable[[str], None],
) -> str:
    """float64 where scores need the weakest directions and float32 would blur them, judged from a few words."""
    if not any(metric.whole for metric in wanted.scores):
        return "float32"
    sides = wanted.patterns(len(models))[0]
    setting = Setting(tuple(facts_of(model, side="source") for model in models), "mean", torch.device("cpu"))
    widest = max(setting.width(key) for key in setting.keys(sides))
    pilot = Moments(sides, pairs="diagonal", precision="float64", memory_limit=1 << 62)
    few = corpus.take(_sentences(corpus, PILOT * widest))
    found = sweep(models, few, pilot, long=long, token_budget=token_budget, progress=False)
    pairs = MomentPairs(found[pilot], "float64")
    error = float32_error(pairs.side(key) for key in pairs.view.keys)
    precision = "float64" if error > TOLERANCE else "float32"
    off = f"off by up to {error:.0e}" if error < 1 else "wrong (their weakest directions are lost in rounding)"
    tell(
        f"Scores that use every direction would be {off} with float32 products (judged from {found.words:,} words); "
        f"they are made in {precision}."
    )
    return precision


def _sentences(corpus: Corpus, words: int) -> int:
    """How many sentences hold so many words."""
    seen = count = 0
    for sentence in corpus:
        seen, count = seen + len(sentence.words), count + 1
        if seen >= words:
            break
    return max(1, count)
