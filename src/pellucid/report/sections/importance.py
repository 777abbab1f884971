"""Importance of heads: a small measurement of which ones the model needs for its task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.errors import PellucidError
from pellucid.report.importance import EXPLANATION, show_importance
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import Sheet

if TYPE_CHECKING:
    from pellucid.collect.found import Found

SENTENCES = 40
WORK = 4e12
"""Floating-point operations that ablation may take in a report, about a minute on a small machine."""
_TOKENS = 25  # of a sentence, about


def absent(subject: Subject) -> str | None:
    """Why no head can be weighed."""
    from pellucid.heads.weighing.measuring import head_tasks

    model = subject.model
    if model.tokenizer is None:
        return "this model has no tokenizer, so that it cannot be measured on a text."
    if not any(site.kind == "heads" for site in model.sites):
        return "this model has no attention heads that can be told apart."
    if head_tasks(model) is None:
        return "this model has no head, so that there is no loss which its attention heads could be measured by."
    return None


def affordable(subject: Subject) -> int:
    """How many sentences ablation of every head can look at in a report; few for large models."""
    model = subject.model
    weights = sum(parameter.numel() for parameter in model.hf.parameters())
    heads = sum(model.size(site)[0] for site in model.sites if site.kind == "heads")
    return int(min(SENTENCES, WORK / (2 * weights * heads * _TOKENS)))


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """Gradient and ablation on a few sentences, and how to ask for more."""
    from pellucid.heads import importance

    few = affordable(subject)
    ablated = few >= 5
    try:
        result = importance(
            subject.model,
            subject.corpus.take(few if ablated else SENTENCES),
            methods=("confidence", "gradient", "zero") if ablated else ("confidence", "gradient"),
            random=subject.twin is not None,
            seed=subject.seed,
            progress=False,
        )
    except PellucidError as error:
        sheet.text(f"Heads could not be weighed on this text: {error}")
        return
    show_importance(sheet, result)
    why = "" if ablated else " Ablating every head of a model of this size takes too long for a report."
    sheet.note(
        f"This is a small measurement on the first {few if ablated else SENTENCES} sentences;{why} pellucid importance "
        "MODEL --corpus FILE measures on all of a text, by more methods."
    )


SECTION = Section(title="Which heads matter", order=52, explanation=EXPLANATION, render=render, absent=absent)
