"""The page: all sections as one HTML file that needs nothing but itself."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from pellucid.report.html import Html, element, joined
from pellucid.report.section import Section
from pellucid.report.sheet import Highlight, Sheet
from pellucid.views.interactive.page import POLICY, starter


@dataclass(frozen=True)
class Written:
    """A section with what it wrote, or with the reason why it does not apply."""

    section: Section
    sheet: Sheet
    absent: str | None

    @staticmethod
    def filled(title: str, explanation: str, sheet: Sheet) -> Written:
        """A section of a page of its own, whose sheet is filled already."""
        return Written(Section(title, 0, explanation, render=_done), sheet, None)

    @property
    def anchor(self) -> str:
        """The section's name in addresses."""
        return anchor(self.section.title)


def _done(*_: object) -> None:
    """There is nothing left to render."""


def anchor(title: str) -> str:
    """A title as the name of a place in the page."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def page(
    title: str, about: str, reading: Sequence[str], written: Sequence[Written], *, opened: int | None = None
) -> str:
    """The whole HTML file: title, what it is about, how to read it, and the sections in their order.

    The first `opened` sections stand open and the others open at a click; all stand open where it is None. A title that
    is the folder of a model is shown without the folders above it.
    """
    title = Path(title).name or title if os.path.exists(title) else title  # Path's raises at long ones
    sections = [_section(each, open_=opened is None or place < opened) for place, each in enumerate(written)]
    main = element("main", *sections, id="main")
    columns = element("div", _contents(written), main, class_="columns")
    layout = element("div", _header(title, about, reading, written), columns, _footer(), class_="layout")
    head = joined(
        [
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", http_equiv="Content-Security-Policy", content=POLICY),
            element("meta", name="generator", content="Pellucid"),
            element("title", f"{title} – Pellucid report"),
            element("style", _part("page.css")),
        ],
        "\n",
    )
    skip = element("a", "Skip to the report", href="#main", class_="skip")
    views = Html(starter()) if any(each.sheet.views for each in written) else None
    body = joined([skip, layout, element("script", _part("page.js")), views], "\n")
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _part(name: str) -> Html:
    """A file that lies beside this one, put into the page as it is."""
    return Html("\n" + files("pellucid.report").joinpath(name).read_text(encoding="utf-8"))


def _header(title: str, about: str, reading: Sequence[str], written: Sequence[Written]) -> Html:
    tiles = [_tile(highlight, each.anchor) for each in written for highlight in each.sheet.highlights]
    return element(
        "header",
        element("p", "Pellucid report", class_="kicker"),
        element("h1", title, dir="auto", class_="long" if len(title) > 40 else None),
        element("p", about, class_="about", dir="auto"),
        element("ul", *tiles, class_="highlights") if tiles else None,
        element("div", *(element("p", sentence) for sentence in reading), class_="reading"),
    )


def _tile(highlight: Highlight, place: str) -> Html:
    inside = [
        element("span", highlight.label, class_="label"),
        element("span", highlight.value, class_="value", dir="auto"),
        element("span", highlight.chance, class_="chance"),
    ]
    return element("li", element("a", joined(inside, " "), href=f"#{place}"))


def _contents(written: Sequence[Written]) -> Html:
    entries = [
        element(
            "li",
            element("a", each.section.title, href=f"#{each.anchor}"),
            class_="missing" if each.absent is not None else None,
        )
        for each in written
    ]
    return element("nav", element("h2", "In this report"), element("ol", *entries), aria_label="Contents")


def _section(each: Written, *, open_: bool) -> Html:
    heading = element("h2", each.section.title, id=f"{each.anchor}-title")
    explanation = element("p", each.section.explanation, class_="explanation")
    content = (
        each.sheet.written()
        if each.absent is None
        else element("p", "Not in this report: ", each.absent, class_="absent")
    )
    folded = element("details", element("summary", heading, explanation), content, open=open_)
    return element("section", folded, id=each.anchor, aria_labelledby=f"{each.anchor}-title")


def _footer() -> Html:
    from pellucid import __version__

    return element(
        "footer",
        element("p", f"Made by Pellucid {__version__}. This file needs no network and no other file to be read."),
    )
