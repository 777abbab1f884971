"""The sheet: what a section writes on, and the files that go with it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.report.drawing import inlined
from pellucid.report.html import Content, Html, Row, element, facts, folded, joined, plain, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pellucid.results import Result
    from pellucid.views import View


WIDTH = 9.2
"""Width in inches of a figure that fills the page's column."""


@dataclass(frozen=True)
class Highlight:
    """A number for the top of the page: what it is, its value, and what chance would have given."""

    label: str
    value: str
    chance: str


@dataclass
class Sheet:
    """Collects one section's text, tables and figures; files go to `folder` at once.

    Everything given as plain text is escaped; only `Html` stands as it is.
    """

    folder: Path
    command: str | None = None
    parts: list[Html] = field(default_factory=list[Html])
    files: list[str] = field(default_factory=list[str])
    highlights: list[Highlight] = field(default_factory=list[Highlight])
    views: list[str] = field(default_factory=list[str])

    def text(self, *content: Content) -> None:
        """A paragraph."""
        self.parts.append(element("p", *content))

    def note(self, *content: Content) -> None:
        """A paragraph in small print: how something was computed, what to be careful with."""
        self.parts.append(element("p", *content, class_="note"))

    def heading(self, title: str) -> None:
        """A heading inside the section."""
        self.parts.append(element("h3", title))

    def html(self, markup: Html) -> None:
        """Markup of the section's own."""
        self.parts.append(markup)

    def facts(self, pairs: Sequence[tuple[str, Content]]) -> None:
        """Names and what they are."""
        self.parts.append(facts(pairs))

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Row],
        *,
        caption: str,
        name: str | None = None,
        right: Sequence[str] = (),
        fold: str | None = None,
    ) -> None:
        """A table, also written to tables/NAME.csv where it has a name; `fold` puts it behind that line."""
        drawn = table(columns, rows, caption=caption, right=right)
        self.parts.append(folded(fold, drawn) if fold is not None else drawn)
        if name is not None:
            self._write(f"tables/{name}.csv", _csv(columns, rows))

    def figure(
        self, figure: Figure, *, name: str, caption: Content, alt: str, links: Mapping[str, str] | None = None
    ) -> None:
        """A matplotlib figure, drawn into the page and written to figures/NAME.svg.

        Where parts of it lead somewhere, `links` says what is there: {"../views/a.html": "head 3"}.
        """
        from pellucid.views import figure_svg

        svg = figure_svg(figure)
        self._write(f"figures/{name}.svg", svg)
        drawn = element("div", inlined(svg, prefix=name, alt=alt, links=links), class_="drawing")
        self.parts.append(element("figure", drawn, element("figcaption", caption)))

    def view(self, view: View, *, name: str, caption: Content) -> None:
        """An interactive view, shown in the page and written to views/NAME.html, where it stands alone."""
        from pellucid.views.interactive.page import embedded

        self.views.append(name)
        (self.folder / "views").mkdir(exist_ok=True)
        view.save(self.folder / "views" / f"{name}.html")
        self.files.append(f"views/{name}.html")
        self.parts.append(
            element("figure", Html(embedded(view.payload)), element("figcaption", caption), class_="view")
        )

    def result(self, result: Result, *, name: str) -> None:
        """Saves a Result, with the command that made it, to results/NAME/ and tables/NAME.csv, and links both."""
        (self.folder / "results").mkdir(exist_ok=True)
        (self.folder / "tables").mkdir(exist_ok=True)
        result = replace(result, provenance=replace(result.provenance, command=self.command))
        result.save(self.folder / "results" / name)
        result.save_table(self.folder / "tables" / f"{name}.csv")
        self.files += [f"results/{name}/", f"tables/{name}.csv"]

    def highlight(self, label: str, value: str, *, chance: str) -> None:
        """A number for the top of the page; its label begins with a capital letter."""
        self.highlights.append(Highlight(label[:1].upper() + label[1:], value, chance))

    def written(self) -> Html:
        """All parts, and links to the files."""
        links = [element("a", element("code", file), href=file) for file in self.files]
        files = element("p", "Files: ", joined(links, " · "), class_="files") if links else Html("")
        return joined([*self.parts, files])

    def _write(self, place: str, text: str) -> None:
        path = self.folder / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
        self.files.append(place)


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    held = [[plain(cell) for cell in row] for row in rows]
    wide = {place for row in held for place, value in enumerate(row) if isinstance(value, tuple)}
    ends = (" from", " to")
    writer.writerow([name + end for place, name in enumerate(columns) for end in (ends if place in wide else ("",))])
    for row in held:
        parts = [value if isinstance(value, tuple) else (value,) * (2 if place in wide else 1)
                 for place, value in enumerate(row)]  # fmt: skip
        writer.writerow(["" if each is None else each for part in parts for each in part])
    return file.getvalue()
