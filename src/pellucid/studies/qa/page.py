"""The page of the question-answering study: one offline HTML file, drawn from the numbers alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pellucid.report.html import number, share
from pellucid.report.sheet import Sheet
from pellucid.studies.qa import figures
from pellucid.studies.qa.claims import claims
from pellucid.studies.qa.tables import ENDS, PARTS, Example, Question, Study, write
from pellucid.studies.study_page import StudyPage

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_page(study: Study, folder: str | Path, *, command: str | None = None) -> Path:
    """A new folder with qa.html, its tables and figures, and the numbers that it was drawn from."""
    facts = study.facts
    asked = f"{len(study.questions):,} questions ({facts['corpus']['name']})"
    about = f"{facts['model']['name']} answers {asked}: what the start and the end of its answers rest on."
    return _PAGE.write(study, folder, about=about, reading=_reading(study, command), command=command)


def _reading(study: Study, command: str | None) -> list[str]:
    facts = study.facts
    method = facts["method"]
    told = (
        f"Each answer has a start and an end. Of both, {method['name'].replace('_', ' ')} ({method['phrase']}) is "
        f"worked out at the input and at every layer's output, for every token; the baseline is {method['baseline']}."
    )
    controls = (
        "Spread is the entropy of the tokens' shares of a layer, as a part of the most that it can be: 0 where one "
        "token has all, 1 where all have the same. Beside it stands what a network of the same architecture with "
        f"random weights (seed {facts['random']}) gives for the same tokens: it hardly moves anything between tokens, "
        "so that every place rests mostly on its own token. In the last layer start and end are read off their own "
        "tokens alone, so that the spread there is 0 in every network whose head reads single tokens."
    )
    resampled = study.mean(lambda one: one.f1)
    assert resampled is not None
    intervals = f"Intervals: {resampled.resampled}; a story or article is left out with all its questions."
    dropped = f" {facts['left_out']} questions were too long for the model." if facts["left_out"] else ""
    made = [f"Made by: {command}"] if command else []
    return [f"This run: {facts['scale']['about']}{dropped}", told, controls, intervals, *made]


def _claims(sheet: Sheet, study: Study) -> None:
    found = claims(study)
    standing = sum(each.holds is True for each in found)
    open_ = sum(each.holds is None for each in found)
    sheet.text(f"{standing} of {len(found)} claims stand by these rules; {open_} cannot be told from these questions.")
    rows = [(each.claim, each.verdict, each.found) for each in found]
    sheet.table(("claim", "verdict", "numbers"), rows, caption="What stands", name="claims")
    sheet.table(("claim", "rule"), [(each.claim, each.rule) for each in found], caption="The rules", fold="The rules")
    right, guessed = (
        float(np.mean([getattr(one, kind) for one in study.questions])) for kind in ("right", "random_right")
    )
    error = max(one.error for one in study.questions)
    sheet.highlight("answers that are right", share(right), chance=f"random network {share(guessed)}")
    for which, end in enumerate(ENDS):
        spread = study.mean(lambda one, which=which: [one.trained.spread[which][0], one.random.spread[which][0]])
        assert spread is not None
        trained, random = (number(float(value)) for value in spread.value)
        sheet.highlight(f"spread over tokens, {end}", trained, chance=f"random network {random}, at most 1")
    sheet.note(f"Sums miss the change that is explained by at most {error:.1%}, whichever the question.")


def _all(sheet: Sheet, study: Study) -> None:
    for figure, name, caption in (
        (figures.spreads(study), "spread", "Entropy of the tokens' shares at each layer; bands are intervals."),
        (
            figures.features(study),
            "features",
            "Entropy of the histogram of the explained token's attributions over the features of a layer.",
        ),
        (
            figures.overlaps(study),
            "overlap",
            "What the shares of start and end have in common: 1 where both rest on the same tokens alike.",
        ),
    ):
        sheet.figure(figure, name=name, caption=caption, alt=caption)
    rows = figures.spread_rows(study)
    sheet.table(
        figures.SPREAD_COLUMNS, rows, caption="Spread and entropy by layer", name="layers", right=figures.NUMBERS
    )


def _where(sheet: Sheet, study: Study) -> None:
    caption = "Share of the attribution that falls to each part; dotted: the part's share of all tokens."
    sheet.figure(figures.parts(study), name="parts", caption=caption, alt=caption)
    sheet.table(
        figures.PART_COLUMNS, figures.part_rows(study), caption="Parts by layer", name="parts", right=figures.NUMBERS
    )


def _right(sheet: Sheet, study: Study) -> None:
    right = sum(one.right for one in study.questions)
    sheet.text(f"{right} answers are right to the letter, {len(study.questions) - right} are not.")
    if 0 < right < len(study.questions):
        caption = "Spread over tokens of right and of wrong answers, with intervals over stories."
        sheet.figure(figures.right_and_wrong(study), name="right-and-wrong", caption=caption, alt=caption)
    else:
        sheet.note("All answers are of one kind, so that there is nothing to compare.")


def _single(sheet: Sheet, study: Study) -> None:
    asked = {one.name: one for one in study.questions}
    for place, example in enumerate(study.examples, start=1):
        question = asked[example.name]
        sheet.heading(question.asked)
        sheet.text(_said(question))
        for figure, name, caption in _drawn(study, example, question, place):
            sheet.figure(figure, name=name, caption=caption, alt=caption)


def _said(question: Question) -> str:
    first, second = (share(chance) for chance in question.chances)
    kind = "right" if question.right else f"wrong: it should be “{question.wanted}”"
    answered = f"“{question.answered}”" if question.answered else "that there is none"
    return f"The answer given is {answered}, {kind}. P(start) = {first}, P(end) = {second}."


_MAPS = (
    "Start and end side by side. On the left each token's signed share of a layer (orange speaks for that end, blue "
    "against it), on the right how a token's attribution is distributed over the layers. ▸ marks the explained token."
)
_FEATURES = (
    "The explained token alone: its attributions over the features of each layer as boxes, their probability mass in "
    "equal bins, and the entropy of that."
)


def _drawn(study: Study, example: Example, question: Question, place: int) -> list[tuple[Figure, str, str]]:
    return [
        (figures.maps(study, example, question), f"question-{place}", _MAPS),
        (figures.token_features(study, example, question), f"question-{place}-features", _FEATURES),
    ]


def _listed(sheet: Sheet, study: Study) -> None:
    columns = ("question", "answer", "given", "right", "F1", "P(start)", "P(end)", "spread start", "spread end")
    rows = [
        (
            one.asked,
            one.wanted,
            one.answered,
            "yes" if one.right else "no",
            number(one.f1),
            *(number(chance) for chance in one.chances),
            *(number(one.trained.spread[which][0]) for which in range(len(ENDS))),
        )
        for one in study.questions
    ]
    right = ("F1", "P(start)", "P(end)", "spread start", "spread end")
    sheet.table(columns, rows, caption="Every question, with the spread at the input", name="questions", right=right)
    sheet.note(f"Parts: {', '.join(PARTS)}. Every number is in numbers.json.")


_PAGE: StudyPage[Study] = StudyPage(
    "qa.html",
    "What answers rest on",
    {
        "What stands": ("What was found about the answers, each claim judged by a stated rule.", _claims),
        "All questions": (
            "How many tokens and features an answer rests on at each layer, beside a network that has learned nothing.",
            _all,
        ),
        "Where it lies": (
            "How much of the attribution falls to the question, the answer, the rest of the text and special tokens.",
            _where,
        ),
        "Right and wrong": ("Answers that are right beside those that are wrong.", _right),
        "Single questions": ("What start and end of an answer rest on, token by token and layer by layer.", _single),
        "The questions": ("Every question with its answer and how spread out its attributions are.", _listed),
    },
    write,
)
