"""Panels of an attribution's figure: bars by token, coloured text, and maps of places × tokens or layers × heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pellucid.results import Array
from pellucid.views.interactive.colours import Scale, css
from pellucid.views.interactive.sheet import Sheet, fitted, short, text_width, visible
from pellucid.views.interactive.text_figure import Flow, Heading
from pellucid.views.interactive.token_table import TokenTable
from pellucid.views.style import FAINT, INK, NOTE

_ROW, _BAR, _LABEL = 0.152, 0.11, 7.0
_LONGEST = 1.1  # inches of a token's name beside its bar
_NUMBER = 0.42
_COLUMN = 0.125  # inches of a token's column
_BETWEEN = 0.1
_LINES = 40
_TALLEST = 9.5  # inches of all strips of a map


class Panel(Protocol):
    """A part of a figure: its height in inches, and what is to be said below."""

    height: float
    notes: list[str]

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draws it with its top left corner at (x, y)."""
        ...


class Headed:
    """A panel below its heading: a name, what the colours stand for, and a sentence."""

    def __init__(self, name: str, about: str, scale: Scale, panel: Panel, *, width: float) -> None:
        self.heading, self.panel = Heading(name, about, scale, "", width), panel
        self.head = self.heading.height
        self.notes = panel.notes

    @property
    def height(self) -> float:
        """Inches of heading and panel."""
        return self.head + self.panel.height

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draws heading and panel."""
        self.heading.draw(sheet, x, y)
        self.panel.draw(sheet, x, y + self.head)


def levelled(row: Sequence[Headed]) -> list[Headed]:
    """Panels side by side whose headings are made equally high, so that their rows stand beside each other."""
    head = max(panel.head for panel in row)
    for panel in row:
        panel.head = head
    return list(row)


class TokenBars:
    """A bar for every token, to the right of zero where it speaks for the target and to the left where against.

    Bars `reach` from the smallest to the largest number; an `interval` (low, high) is a whisker on the bar.
    """

    def __init__(
        self,
        tokens: Mapping[str, Any],
        values: Array,
        scale: Scale,
        *,
        reach: tuple[float, float],
        width: float,
        interval: tuple[Array, Array] | None = None,
    ) -> None:
        self.values, self.width, self.reach, self.interval = values, width, reach, interval
        self.colours, self.special = scale.colours(values), set(tokens["special"])
        room = min(_LONGEST, 0.34 * width)
        self.names = [fitted(visible(text), room, _LABEL) for text in tokens["text"]]
        self.labels = max(text_width(name, _LABEL) for name in self.names) + 0.08
        self.height, self.notes = len(values) * _ROW + 0.04, list[str]()

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draws names, bars and numbers; numbers stand beyond the end of their bar."""
        low, high = self.reach if self.reach[1] > self.reach[0] else (0.0, 1.0)
        left, right = x + self.labels + (_NUMBER if low < 0 else 0.0), x + self.width - _NUMBER
        zero = left + (right - left) * (0 - low) / (high - low)
        sheet.line(zero, y, zero, y + len(self.values) * _ROW, FAINT, 0.8)
        for place, value in enumerate(self.values.tolist()):
            middle = y + (place + 0.5) * _ROW
            colour = NOTE if place in self.special else INK
            sheet.text(x + self.labels - 0.08, middle, self.names[place], size=_LABEL, colour=colour, align="right")
            end = left + (right - left) * (value - low) / (high - low)
            sheet.rect(min(zero, end), middle - _BAR / 2, abs(end - zero), _BAR, _ink(self.colours[place], value))
            side = "left" if value >= 0 else "right"
            if self.interval is not None:
                ends = [left + (right - left) * (float(part[place]) - low) / (high - low) for part in self.interval]
                sheet.line(ends[0], middle, ends[1], middle, INK, 0.7)
                end = max(end, *ends) if value >= 0 else min(end, *ends)
            away = 0.04 if value >= 0 else -0.04
            sheet.text(end + away, middle, short(value), size=6.0, colour=NOTE, align=side)


class ColouredText:
    """The text in lines, every token on the colour of its value."""

    def __init__(self, tokens: Mapping[str, Any], values: Array, scale: Scale, *, width: float) -> None:
        self.flow = Flow(tokens, scale.colours(values), values, -1, width=width, most=_LINES)
        self.height, self.notes = self.flow.height, self.flow.notes

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draws the lines."""
        self.flow.draw(sheet, x, y)


class Grid:
    """Rows × tokens as colours; a long text goes on in further strips below."""

    def __init__(
        self, rows: Sequence[str], tokens: Mapping[str, Any], values: Array, scale: Scale, *, width: float
    ) -> None:
        total = values.shape[1]
        strips = -(-total // columns(rows, width))
        count = -(-total // strips)
        colours = scale.colours(values)
        self.tables = [
            TokenTable(
                "map",
                rows,
                {"text": tokens["text"][start : start + count], "rtl": tokens["rtl"]},
                colours[:, start : start + count],
                -1,
                width=width,
            )
            for start in range(0, total, count)
        ]
        cell = min(table.cell for table in self.tables)
        for table in self.tables:
            table.narrow(cell)  # the last strip has no wider columns for having fewer
        most = max(1, int(_TALLEST / max(table.height + _BETWEEN for table in self.tables)))
        sizes = [np.nansum(np.abs(values[:, start : start + count])) for start in range(0, total, count)]
        kept = sorted(np.argsort(-np.array(sizes), kind="stable")[:most].tolist())
        self.notes = [note for table in self.tables for note in table.notes]
        if len(kept) < strips:
            shown = ", ".join(f"{at * count}–{min(total, (at + 1) * count) - 1}" for at in kept)
            self.notes.append(f"Only tokens {shown} of {total:,} are drawn, where attributions are largest.")
        self.tables = [self.tables[at] for at in kept]
        self.height = sum(table.height + _BETWEEN for table in self.tables) - _BETWEEN

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draws the strips from the top down."""
        for table in self.tables:
            table.draw(sheet, x, y)
            y += table.height + _BETWEEN


def columns(rows: Sequence[str], width: float) -> int:
    """How many tokens stand side by side beside the names of rows."""
    return max(1, int((width - max(text_width(row, 6.4) for row in rows) - 0.08) / _COLUMN))


def _ink(colour: Any, value: float) -> str:
    """A bar's colour: that of its value, never so pale that the bar is not seen."""
    if value == 0:
        return css(colour)
    pale = np.asarray(colour, np.float64)
    return css(np.minimum(pale, [163, 196, 232] if value < 0 else [246, 199, 150]).astype(np.uint8))
