"""The figure of an attribution: bars or coloured text for one place, maps for many, with colours centred on zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Array, Coordinate
from pellucid.views.attribution_panels import ColouredText, Grid, Headed, Panel, TokenBars, columns, levelled
from pellucid.views.attribution_parts import (
    layers_and_heads,
    origin,
    shown_tokens,
    signed,
    signs,
    strongest,
    told,
)
from pellucid.views.interactive.colours import Scale, scale_of
from pellucid.views.interactive.legend import titled
from pellucid.views.interactive.sheet import Sheet, paragraph_height, wrapped, write_lines
from pellucid.views.style import NOTE, house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pellucid.attribution import Attribution

MOST_PLACES = 24
"""Rows of a map: of more places, the strongest are drawn."""
MOST_BARS = 34
"""Tokens with bars of their own; a longer text is coloured instead."""
MOST_PANELS = 4
"""Targets with panels of their own at one place; more become the rows of one map."""

CONTROL = "random model"
"""The table with the attributions of a control, where a result has one: it is drawn beside them."""
RANDOM = "The same in a model of the same architecture with random weights: what it shows too was not learned."

_EDGE, _BETWEEN, _TOP = 0.1, 0.22, 0.3
_TALLEST = 10.5
_NARROWEST = 2.2
_NOTE = 6.8


def attribution_figure(result: Attribution, *, width: float = WIDTH) -> Figure:
    """What tokens and places did for the targets: a panel for every method and target, `width` inches wide.

    One place gives bars (coloured text where it is long), many give a map of places × tokens, heads of several layers a
    map of layers × heads summed over tokens, and many targets at one place a map of targets × tokens.
    """
    with house_style():
        rows = _Panels(result, width - 2 * _EDGE).rows()
        kept = _fitting(rows)
        notes = [
            *signs(result),
            origin(result),
            *dict.fromkeys(note for row in kept for panel in row for note in panel.notes),
        ]
        if len(kept) < len(rows):
            left_out = sum(len(row) for row in rows[len(kept) :])
            notes.append(f"{left_out} further panels do not fit; plot fewer targets or methods at a time.")
        lines = [line for note in notes for line in wrapped(note, width - 2 * _EDGE, _NOTE)]
        body = sum(_height(row) + _BETWEEN for row in kept)
        sheet = Sheet(width, _TOP + body - _BETWEEN + 0.12 + paragraph_height(lines, _NOTE) + _EDGE)
        sheet.axes.set_title(result.title, fontsize=10, y=1 - 0.2 / sheet.height, pad=0)
        y = _TOP
        for row in kept:
            wide = (width - 2 * _EDGE + _BETWEEN) / len(row)
            for place, panel in enumerate(row):
                panel.draw(sheet, _EDGE + place * wide, y)
            y += _height(row) + _BETWEEN
        write_lines(sheet, _EDGE, y - _BETWEEN + 0.12, lines, size=_NOTE, colour=NOTE)
        return sheet.figure


def _height(row: Sequence[Headed]) -> float:
    return max(panel.height for panel in row)


def _fitting(rows: Sequence[Sequence[Headed]]) -> Sequence[Sequence[Headed]]:
    """The first rows that fit on a page, and one at least."""
    total, kept = 0.0, 0
    for row in rows:
        total += _height(row) + _BETWEEN
        if kept and total > _TALLEST:
            break
        kept += 1
    return rows[:kept]


@dataclass(frozen=True, eq=False)
class _Shown:
    """A method's numbers [target, place, token], of the result (without a name) or of its control, and their colours.

    `ends` are low and high ends of intervals, where there are any.
    """

    measure: Coordinate
    name: str
    values: Array
    scale: Scale
    ends: tuple[Array, Array] | None = None

    def interval(self, target: int) -> tuple[Array, Array] | None:
        """Both ends for every token at the only place."""
        return None if self.ends is None else (self.ends[0][target, 0], self.ends[1][target, 0])

    @property
    def reach(self) -> tuple[float, float]:
        """How far bars and whiskers go to either side of zero."""
        parts = [self.values, *(self.ends or ())]
        return min(0.0, *(float(part.min()) for part in parts)), max(0.0, *(float(part.max()) for part in parts))


class _Panels:
    """The panels of a result in rows: a method's targets, each beside its control, side by side where there is room."""

    def __init__(self, result: Attribution, width: float) -> None:
        self.result, self.width, self.tokens = result, width, shown_tokens(result)
        self.heads = layers_and_heads(result.axes["place"]) if result.provenance.arguments.get("by") == "head" else None

    def rows(self) -> list[list[Headed]]:
        """All panels."""
        places, targets = self.result.axes["place"], self.result.axes["target"]
        matrix = len(places) == 1 and (len(targets) > MOST_PANELS or self.result.kind == "attribution.generation")
        found: list[list[Headed]] = []
        for measure in self.result.axes["measure"]:
            shown = self._shown(measure)
            if matrix:
                found += [[self._matrix(each)] for each in shown]
                continue
            abreast = self._abreast(len(targets) * len(shown))
            wide = (self.width - _BETWEEN * (abreast - 1)) / abreast
            panels = [self._panel(each, at, wide) for at in range(len(targets)) for each in shown]
            found += [levelled(panels[start : start + abreast]) for start in range(0, len(panels), abreast)]
        return found

    def _shown(self, measure: Coordinate) -> list[_Shown]:
        """A method's own numbers, and those of the control where there is one."""
        which, result = self.result.place("measure", measure), self.result
        parts = {"": result.values[which]}
        if CONTROL in result.tables:
            parts[titled(CONTROL)] = result.table(CONTROL).columns["value"][which]
        ends = None if result.low is None or result.high is None else (result.low[which], result.high[which])
        drawn = ends if ends is not None and (ends[1] > ends[0]).any() else None
        found: list[_Shown] = []
        for name, values in parts.items():
            coloured = values.sum(axis=2) if self.heads is not None else values
            scale = scale_of(coloured, signed=signed(result, measure))
            found.append(_Shown(measure, name, values, scale, None if name else drawn))
        return found

    def _abreast(self, targets: int) -> int:
        """How many panels stand side by side: as many as have room for their tokens."""
        places, count = [str(place) for place in self.result.axes["place"]], len(self.tokens["text"])
        for abreast in range(min(targets, int(self.width / _NARROWEST)), 1, -1):
            wide = (self.width - _BETWEEN * (abreast - 1)) / abreast
            if self.heads is not None:
                fits = columns(self.heads[0], wide) >= len(self.heads[1])
            elif len(places) > 1:
                fits = columns(places, wide) >= count
            else:
                fits = count <= MOST_BARS
            if fits:
                return abreast
        return 1

    def _panel(self, shown: _Shown, target: int, width: float) -> Headed:
        """One method and target."""
        if self.heads is not None:
            panel, extra = self._layers(shown, target, width)
        elif shown.values.shape[1] > 1:
            panel, extra = self._places(shown, target, width)
        else:
            panel, extra = self._one(shown, target, width)
        named = self.result.axes["target"][target]
        about = RANDOM if shown.name else told(self.result, shown.measure, named)
        name = f"{shown.name or titled(str(shown.measure))}: {named}"
        return Headed(name, f"{about}{extra}", shown.scale, panel, width=width)

    def _one(self, shown: _Shown, target: int, width: float) -> tuple[Panel, str]:
        """Bars of tokens, or the text itself where it is long."""
        extra, values = f" Place: {self.result.axes['place'][0]}.", shown.values[target, 0]
        if len(values) > MOST_BARS:
            return ColouredText(self.tokens, values, shown.scale, width=width), extra
        if shown.ends is not None:
            extra += f" Whiskers: {self.result.resampled}."
        interval = shown.interval(target)
        bars = TokenBars(self.tokens, values, shown.scale, reach=shown.reach, width=width, interval=interval)
        return bars, extra

    def _places(self, shown: _Shown, target: int, width: float) -> tuple[Panel, str]:
        """Places × tokens."""
        places, values = self.result.axes["place"], shown.values[target]
        kept = strongest(values, MOST_PLACES)
        names = [str(places[at]) for at in kept]
        extra = f" The {len(kept)} strongest of {len(places):,} places." if len(kept) < len(places) else ""
        return Grid(names, self.tokens, values[kept], shown.scale, width=width), extra

    def _layers(self, shown: _Shown, target: int, width: float) -> tuple[Panel, str]:
        """Layers × heads."""
        assert self.heads is not None
        sites, heads, where = self.heads
        sums = np.where(where >= 0, shown.values[target].sum(axis=1)[where], np.nan)
        columns_: dict[str, Any] = {"text": [f"head {head}" for head in heads], "rtl": False}
        return Grid(sites, columns_, sums, shown.scale, width=width), " Summed over all tokens."

    def _matrix(self, shown: _Shown) -> Headed:
        """Targets × tokens at the only place."""
        names = [str(target) for target in self.result.axes["target"]]
        grid = Grid(names, self.tokens, shown.values[:, 0], shown.scale, width=self.width)
        phrase = RANDOM if shown.name else f"{titled(self.result.measures[str(shown.measure)])}."
        about = f"{phrase} A row is a target, a column a token that it is attributed to."
        return Headed(shown.name or titled(str(shown.measure)), about, shown.scale, grid, width=self.width)
