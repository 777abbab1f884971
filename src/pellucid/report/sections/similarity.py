"""Similarity: how alike the layers are, and what a random model of the same architecture would show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.report.comparison import show_grid
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import Sheet

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.similarity.planning import SimilarityPlan, Wanted

SITES = "*.resid.*"
LIMIT = 1 << 30
"""Bytes of moments in a report; with more layers the map comes from a sample of words."""


def _planned(subject: Subject) -> tuple[SimilarityPlan, Wanted]:
    from pellucid.collect.job import facts_of
    from pellucid.similarity.metrics import chosen
    from pellucid.similarity.planning import SAMPLE, Wanted, make_plan

    models = [subject.model] if subject.twin is None else [subject.model, subject.twin]
    pairs = ((0, 0),) if subject.twin is None else ((0, 0), (0, 1))
    wanted = Wanted(tuple(chosen("cka")), SITES, SITES, pairs)
    facts = [facts_of(model, side="source") for model in models]
    return make_plan(wanted, facts, words=None, sample=SAMPLE, most=SAMPLE, memory_limit=LIMIT), wanted


def collectors(subject: Subject) -> tuple[Collector, ...]:
    """Moments of all pairs of layers, or a sample of words where there are too many."""
    return _planned(subject)[0].collectors


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """The map of all layers, and the random model's beside it."""
    from pellucid.similarity import grid

    plan, wanted = _planned(subject)
    left, right = wanted.patterns(len(found.models))[0]
    result = grid(found, "cka", left=left, right=right, method=plan.method)
    sheet.text(f"The score is {result.measures['cka']}.")
    show_grid(sheet, result, name="similarity")
    sheet.note(*plan.lines)


SECTION = Section(
    title="Layers compared",
    order=35,
    explanation="How alike the representations of any two layers are, from 0 (unrelated) to 1 (the same up to rotation "
    "and scale).",
    render=render,
    collectors=collectors,
)
