"""The page of a study: a new folder with one offline HTML file, its tables and figures, and the numbers behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pellucid.report.page import Written, page
from pellucid.report.sheet import Sheet
from pellucid.saving import whole_folder

S = TypeVar("S")


@dataclass(frozen=True)
class StudyPage(Generic[S]):
    """What a study's page is made of: its file, its title, and for every section a sentence and what fills it."""

    file: str
    title: str
    sections: Mapping[str, tuple[str, Callable[[Sheet, S], None]]]
    keep: Callable[[S, Path], None]
    """Writes the study's numbers into the folder, so that the page can be drawn again."""

    def write(self, study: S, folder: str | Path, *, about: str, reading: Sequence[str], command: str | None) -> Path:
        """The folder, whole or not at all; answers the page's path."""
        place = Path(folder)
        with whole_folder(place) as work:
            written: list[Written] = []
            for title, (explanation, render) in self.sections.items():
                sheet = Sheet(work, command)
                render(sheet, study)
                written.append(Written.filled(title, explanation, sheet))
            (work / self.file).write_text(page(self.title, about, reading, written), encoding="utf-8")
            self.keep(study, work)
        return place / self.file
