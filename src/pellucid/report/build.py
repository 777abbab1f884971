"""Building a report: one pass over the text for all sections, then one folder, written whole or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.report.page import Written, page
from pellucid.report.section import Section, Subject, all_sections, gathered
from pellucid.report.sheet import Sheet
from pellucid.results import ResultError
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus
    from pellucid.heads import Pruning
    from pellucid.model import Model

FORMAT = 1
QUICK = 200
"""Sentences that a quick report reads."""
OPENED = 2
"""Sections that stand open at first: what the model is, and what it read."""

READING = (
    "Every number stands beside what chance gives, which is grey in every figure. The control is a model of the same "
    "architecture with random weights, reading the same text: what it shows too was not learned. Intervals (95%) come "
    "from leaving out or drawing again whole documents, never single words, because words of one text resemble each "
    "other too much to count as separate evidence."
)


def report(
    model: Model,
    corpus: Corpus,
    folder: str | Path,
    *,
    quick: bool = False,
    control: bool = True,
    seed: int = 0,
    long: str = "window",
    sweep_folder: str | Path | None = None,
    engine: str = "inline",
    workers: int | None = None,
    threads: int | None = None,
    token_budget: int | None = None,
    command: str | None = None,
    marker: str | None = None,
    pruning: Pruning | None = None,
    say: Callable[[str], None] | None = None,
) -> Path:
    """Reads a corpus with a model once, and writes a folder with report.html; returns the path of that file.

    `control` reads the same text with a randomly initialised model of the same architecture, made from `seed`. `quick`
    reads the first 200 sentences only. `long`, `engine`, `workers`, `threads`, `token_budget` and `sweep_folder` (where
    the pass is kept, to go on after an interruption) are those of `sweep`. `command` and `marker` are noted in the
    folder's result.json; `pruning` is one of this model, to be shown too; `say` is told what is being done.
    """
    from pellucid.collect.sweep import sweep

    started = time.perf_counter()
    if pruning is not None:
        _check_pruning(model, pruning)
    tell = say or (lambda _: None)
    place = Path(folder)
    with whole_folder(place) as work:
        subject = _subject(model, corpus, quick=quick, control=control, seed=seed, command=command, started=started)
        reasons = {section: section.absent(subject) for section in _sections(pruning)}
        present = [section for section, reason in reasons.items() if reason is None]
        models = [model] if subject.twin is None else [model, subject.twin]
        found = sweep(
            models,
            subject.corpus,
            gathered(present, subject),
            folder=sweep_folder,
            engine=engine,
            workers=workers,
            threads=threads,
            token_budget=token_budget,
            long=long,
        )
        written = [_written(section, reason, work, subject, found, tell) for section, reason in reasons.items()]
        _write(work, subject, found, written, marker)
    return place / "report.html"


def _sections(pruning: Pruning | None) -> tuple[Section, ...]:
    """All sections, and that of a pruning where one is given: it needs a training of its own."""
    if pruning is None:
        return all_sections()
    from pellucid.report.pruning import section_of

    return tuple(sorted((*all_sections(), section_of(pruning)), key=lambda section: section.order))


def _check_pruning(model: Model, pruning: Pruning) -> None:
    """Raises where a pruning is of another model."""
    made = pruning.provenance.models[0]
    if made["fingerprint"] != model.fingerprint:
        raise ResultError(
            f"The pruning was made with {made['name']!r}, and this report is on {model.name!r}; give one of this model."
        )


def _subject(
    model: Model, corpus: Corpus, *, quick: bool, control: bool, seed: int, command: str | None, started: float
) -> Subject:
    notes: list[str] = []
    if quick:
        corpus = corpus.take(QUICK)
        notes.append(f"This is a quick report: it reads at most the first {QUICK} sentences.")
    twin = type(model).random_like(model, seed) if control else None
    if twin is None:
        notes.append("There is no randomly initialised control model in this report: it was not asked for.")
    return Subject(
        model=model,
        twin=twin,
        corpus=corpus,
        seed=seed,
        command=command or _call(model, corpus, quick=quick, control=control, seed=seed),
        notes=tuple(notes),
        started=started,
    )


def _call(model: Model, corpus: Corpus, *, quick: bool, control: bool, seed: int) -> str:
    """The Python call, for reports that no command made."""
    options = f"quick={quick}, control={control}, seed={seed}"
    return f"pellucid.report.report(Model {model.name!r}, Corpus {corpus.name!r}, …, {options})"


def _written(
    section: Section,
    reason: str | None,
    work: Path,
    subject: Subject,
    found: Found,
    tell: Callable[[str], None],
) -> Written:
    sheet = Sheet(work, subject.command)
    if reason is None:
        tell(section.title)
        section.render(sheet, subject, found)
    return Written(section, sheet, reason)


def _write(work: Path, subject: Subject, found: Found, written: Sequence[Written], marker: str | None) -> None:
    """The page, the command and the folder's own description."""
    about = f"What the model does while it reads {found.words:,} words of {subject.corpus.name}."
    text = page(subject.model.name, about, (*subject.notes, READING), written, opened=OPENED)
    (work / "report.html").write_text(text, encoding="utf-8")
    (work / "command.txt").write_text(subject.command + "\n", encoding="utf-8", errors="replace")
    (work / "result.json").write_text(
        json.dumps(_description(subject, found, written, marker), indent=2, ensure_ascii=False) + "\n",
        encoding="utf-8",
        errors="replace",
    )


def _description(subject: Subject, found: Found, written: Sequence[Written], marker: str | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kind": "report",
        "made by": marker,
        "page": "report.html",
        "sections": [
            {"title": each.section.title, "files": each.sheet.files, "absent": each.absent} for each in written
        ],
        "provenance": replace(
            found.provenance("pellucid.report.report", seed=subject.seed), command=subject.command
        ).to_json(),
    }
