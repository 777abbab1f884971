"""HTML from plain values: everything is escaped unless it already is `Html`, so that text can never become markup."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pellucid.written import number

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")
_TAG = re.compile("<[^>]*>")
_EMPTY = frozenset({"br", "hr", "img", "meta"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Content = str | int | float | None
"""What may stand in an element: markup as it is, text escaped, numbers written out, None as nothing."""


def escaped(text: str) -> Html:
    """Text as markup that shows exactly it; characters that no page may hold become the replacement sign."""
    return text if isinstance(text, Html) else Html(html.escape(_FORBIDDEN.sub("\ufffd", text), quote=True))


def joined(parts: Iterable[Content], between: str = "") -> Html:
    """Several pieces of content one after another."""
    return Html(escaped(between).join(_shown(part) for part in parts))


def element(tag: str, /, *content: Content, **attributes: str | int | bool | None) -> Html:
    """An element; `class_`, `data_sort` and the like stand for class, data-sort; None and False leave one out."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escaped(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _EMPTY:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{joined(content)}</{tag}>")


def _shown(part: Content) -> Html:
    if part is None:
        return Html("")
    return escaped(part) if isinstance(part, str) else escaped(number(part))


def share(value: float | None) -> str:
    """A share between 0 and 1 as per cent."""
    if value is None or math.isnan(value):
        return "not defined"
    per_cent = 100 * value
    if 0 < per_cent < 0.1:
        return "< 0.1%"
    return f"{per_cent:.0f}%" if per_cent >= 10 or per_cent == 0 else f"{per_cent:.1f}%"


def interval(low: float | None, high: float | None, *, write: Callable[[float], str] = number) -> str:
    """An interval, or a sign that there is none; `write` writes its ends."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "none"
    return f"{write(low)} to {write(high)}"


def word(text: str) -> Html:
    """A word of the user's text, whichever way its script runs."""
    return element("bdi", text, class_="word")


Plain = str | int | float | tuple[float, float] | None
"""What a cell holds: a text, a number, both ends of an interval, or nothing."""


@dataclass(frozen=True)
class Cell:
    """A table's cell that shows one thing and stands for another when sorted or written to a file."""

    shown: Content
    plain: Plain


Row = Sequence[Content | Cell]


def plain(cell: Content | Cell) -> Plain:
    """What a cell holds, for files; of markup, its text."""
    if isinstance(cell, Cell):
        return cell.plain
    return html.unescape(_TAG.sub("", cell)) if isinstance(cell, Html) else cell


def bounds(low: float | None, high: float | None, *, write: Callable[[float], str] = number) -> Cell:
    """A cell with an interval, or a sign that there is none; files have its ends in two columns."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return Cell(interval(None, None), None)
    return Cell(interval(low, high, write=write), (low, high))


def bar(value: float, most: float, *, shown: str | None = None, chance: float | None = None) -> Cell:
    """A number with a bar beside it, as long as its share of `most`; chance is a grey mark across the bar."""
    length = 0.0 if most <= 0 or math.isnan(value) else max(0.0, min(1.0, value / most))
    marks = [element("span", class_="fill", style=f"width:{100 * length:.1f}%")]
    if chance is not None and most > 0 and not math.isnan(chance):
        marks.append(element("span", class_="mark", style=f"left:{100 * max(0.0, min(1.0, chance / most)):.1f}%"))
    drawn = element("span", *marks, class_="bar", aria_hidden="true")
    return Cell(joined([element("span", shown or number(value), class_="amount"), drawn]), value)


def table(
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    caption: str,
    right: Sequence[str] = (),
    sortable: bool = True,
) -> Html:
    """A table with a caption; columns named in `right` hold numbers."""
    numeric = {place for place, column in enumerate(columns) if column in right}
    head = [
        element("th", column, scope="col", class_="number" if place in numeric else None)
        for place, column in enumerate(columns)
    ]
    sortable = sortable and len(rows) > 2
    body = [element("tr", *(_cell(place, cell, numeric, sortable) for place, cell in enumerate(row))) for row in rows]
    drawn = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", element("tr", *head)),
        element("tbody", *body),
        class_="sortable" if sortable else None,
    )
    return element("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _cell(place: int, cell: Content | Cell, numeric: set[int], sortable: bool) -> Html:
    shown = cell.shown if isinstance(cell, Cell) else cell
    key = _key(plain(cell), _shown(shown)) if sortable else None
    if place == 0:
        return element("th", shown, scope="row", data_sort=key, class_="number" if place in numeric else None)
    return element("td", shown, data_sort=key, class_="number" if place in numeric else None)


def _key(value: object, shown: str) -> str | None:
    """What a cell is sorted by: a number, with more digits than are shown; none where what is shown does it. Intervals
    go by their lower end."""
    if isinstance(value, tuple):
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    key = f"{value:.7g}" if isinstance(value, float) else str(value)
    return None if key == shown else key


def facts(pairs: Iterable[tuple[str, Content]]) -> Html:
    """Names and what they are, as a definition list."""
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", value)) for name, value in pairs),
        class_="facts",
    )


def folded(summary: Content, *content: Content, opened: bool = False) -> Html:
    """Something long behind one line; it opens without any script, and prints open where opened."""
    return element("details", element("summary", summary), *content, open=opened)
