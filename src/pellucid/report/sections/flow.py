"""Information flow: which tokens the tokens of one sentence draw on, beside the control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.errors import PellucidError
from pellucid.report.flow import EXPLANATION, TITLE, show_flow
from pellucid.report.section import Section, Subject
from pellucid.report.sections import sentence
from pellucid.report.sheet import Sheet

if TYPE_CHECKING:
    from pellucid.collect.found import Found

METHODS = ("rollout", "norms_layernorm")


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """Rollout and norms on the sentence that the report looks at, and how to ask for more."""
    from pellucid.heads import information_flow

    text = sentence.chosen(subject.corpus)
    if text is None:
        sheet.text(f"No sentence of this text has at most {sentence.LONGEST} words, so none is shown.")
        return
    try:
        result = information_flow(subject.model, text, METHODS)
        twin = None if subject.twin is None else information_flow(subject.twin, text, METHODS)
    except PellucidError as error:
        sheet.text(f"Information could not be followed through this sentence: {error}")
        return
    show_flow(sheet, result, twin=twin)
    sheet.note(
        "pellucid flow MODEL TEXT follows any text, also by maximum flow, by gradients and by hidden states; with "
        "--corpus FILE it tells how far the methods agree."
    )


SECTION = Section(title=TITLE, order=56, explanation=EXPLANATION, render=render, absent=sentence.absent)
