"""Sections: the parts of a report. A new one is a new file in `sections/` that holds `SECTION = Section(…)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.report.sheet import Sheet


@dataclass(frozen=True, eq=False)
class Subject:
    """What a report is about, and how it was asked for.

    `twin` is the randomly initialised model of the same architecture, None where it was not asked for. `notes` are
    things the reader must know of the whole report.
    """

    model: Model
    twin: Model | None
    corpus: Corpus
    seed: int
    command: str
    notes: tuple[str, ...]
    started: float


def _none(_: Subject) -> tuple[Collector, ...]:
    return ()


def _applies(_: Subject) -> str | None:
    return None


@dataclass(frozen=True)
class Section:
    """One part of the report.

    `explanation` is one sentence. `absent(subject)` says why the section does not apply, None where it does;
    `collectors(subject)` what the one pass must gather for it; `render(sheet, subject, found)` writes it.
    """

    title: str
    order: int
    explanation: str
    render: Callable[[Sheet, Subject, Found], None]
    collectors: Callable[[Subject], Sequence[Collector]] = _none
    absent: Callable[[Subject], str | None] = _applies


def all_sections() -> tuple[Section, ...]:
    """Every section, in the order of the page."""
    package = import_module("pellucid.report.sections")
    found = [
        import_module(f"{package.__name__}.{module.name}").SECTION
        for module in iter_modules(package.__path__)
        if not module.name.startswith("_")
    ]
    return tuple(sorted(found, key=lambda section: (section.order, section.title)))


def gathered(chosen: Sequence[Section], subject: Subject) -> tuple[Collector, ...]:
    """The collectors of all sections for one pass, equal ones once; a section finds its own by `found[collector]`."""
    return tuple(dict.fromkeys(collector for section in chosen for collector in section.collectors(subject)))
