"""The still figure of the head view: two columns of tokens, and lines between them coloured by head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import PellucidError
from pellucid.views.interactive.colours import ACCENT, RAISED, head_colour
from pellucid.views.interactive.held import Floats, Held
from pellucid.views.interactive.sheet import Sheet, fitted, line_height, quoted, text_width, visible, weight_text
from pellucid.views.interactive.shown import Rows, Unit, shown
from pellucid.views.style import INK, NOTE

WIDTH = 4.8
MOST = 60
"""Tokens of a column that are readable on a page."""

_FAINTEST = 0.012  # fainter lines than this cannot be seen: what is kept is drawn no fainter
_NAMED = 5
_LEGEND = 6.8
_GAP = 0.06
_NUMBER = 0.27


class HeadPicture:
    """Lines between the tokens of one panel; `height` in inches for a width, and `notes` on what is not drawn."""

    def __init__(self, held: Held, state: Mapping[str, Any], width: float) -> None:
        self.width, self.state = width, state
        self.rtl = {side: held.tokens(held.block(state["block"])[side])["rtl"] for side in ("queries", "keys")}
        self.shown = shown(held, state)
        if not self.shown.series:
            raise PellucidError("No head is shown: choose one or more with heads=[…].")
        if not self.shown.queries or not self.shown.keys:
            raise PellucidError("Everything is hidden: show special tokens or sinks, or choose another segment.")
        block = held.block(state["block"])
        self.first, self.end = self._windows(own=block["queries"] == block["keys"])
        rows = max(self.end["queries"] - self.first["queries"], self.end["keys"] - self.first["keys"])
        self.row, self.size = (0.175, 7.5) if rows <= 36 else (0.147, 6.8)
        self.colours = [
            ACCENT if series.head is None else head_colour(series.head, series.heads) for series in self.shown.series
        ]
        self.legend = self._legend()
        self.top = len(self.legend) * line_height(_LEGEND) * 1.15 + 0.06 + line_height(_LEGEND) + 0.03
        self.height = self.top + rows * self.row
        self._lay_out()
        self.notes = self._notes()

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draws it with its top left corner at (x, y)."""
        self._draw_legend(sheet, x, y)
        names = y + self.top - 0.03 - line_height(_LEGEND) / 2
        sheet.text(x + self.lines - _GAP, names, "looks from", size=_LEGEND, colour=NOTE, align="right")
        sheet.text(x + self.ends + _GAP, names, "looks at", size=_LEGEND, colour=NOTE)
        top = y + self.top
        self._draw_lines(sheet, x, top)
        self._draw_tokens(sheet, x, top)
        if self.shown.left:
            sums = np.stack([self.shown.sum(at, self.shown.left).kept[0] for at in range(len(self.colours))])
            self._draw_bars(sheet, x + self.ends + self.columns["keys"] + _GAP, top, sums, "keys", 1)
        if self.shown.right:
            places = list(range(len(self.shown.queries)))
            given = np.stack([self._columns(at, places) for at in range(len(self.colours))])
            self._draw_bars(sheet, x + self.lines - self.columns["queries"] - _GAP, top, given, "queries", -1)

    # -- laying out --------------------------------------------------------------------------------------------------

    def _windows(self, *, own: bool) -> tuple[dict[str, int], dict[str, int]]:
        """The tokens of both columns that are shown: all, or those around the pinned ones."""
        sides = {"queries": (self.shown.queries, self.shown.left), "keys": (self.shown.keys, self.shown.right)}
        first: dict[str, int] = {}
        for side, (given, pinned) in sides.items():
            around = pinned or ([*self.shown.left, *self.shown.right] if own else [])
            middle = (min(around) + max(around) + 1) // 2 if around else 0
            first[side] = max(0, min(middle - MOST // 2, len(given) - MOST))
        return first, {side: min(first[side] + MOST, len(given)) for side, (given, _) in sides.items()}

    def _lay_out(self) -> None:
        """Left to right: bars, queries, lines, keys, bars; columns as wide as their longest token."""
        bar = min(0.95, max(0.5, 0.16 * self.width))
        self.bar = bar
        bars = {"queries": bar if self.shown.right else 0.0, "keys": bar if self.shown.left else 0.0}
        most = max(0.45, 0.5 * (self.width - sum(bars.values()) - max(0.8, 0.3 * self.width)))
        self.columns = {side: min(most, self._widest(side)) + _GAP for side in ("queries", "keys")}
        lines = min(3.6, self.width - sum(self.columns.values()) - sum(bars.values()) - 2 * _GAP)
        start = (self.width - lines - sum(self.columns.values()) - sum(bars.values())) / 2
        self.lines = start + bars["queries"] + self.columns["queries"]
        self.ends = self.lines + lines

    def _units(self, side: str) -> Sequence[Unit]:
        return self.shown.queries if side == "queries" else self.shown.keys

    def _widest(self, side: str) -> float:
        given = self._units(side)[self.first[side] : self.end[side]]
        names = [text_width(visible(unit.text), self.size, True) for unit in given]
        return max(*names, text_width("looks from", _LEGEND)) + _GAP

    def _legend(self) -> list[list[tuple[str, str, float]]]:
        """Lines of (name, colour, width): a swatch and a name for each head."""
        average = self.shown.series[0].head is None
        layer = "" if self.state["average"] == "layers" else f"layer {self.state['layer']}"
        entries = [(f"{layer}{', ' if layer and average else ''}", "", 0.0)] if layer else []
        if average:
            entries.append((self.shown.series[0].name, self.colours[0], 0.0))
        else:
            entries[-1] = (f"{layer}, head", "", 0.0)
            entries += [(str(each.head), tint, 0.0) for each, tint in zip(self.shown.series, self.colours, strict=True)]
        lines: list[list[tuple[str, str, float]]] = [[]]
        used = 0.0
        for name, colour, _ in entries:
            wide = text_width(name, _LEGEND) + (0.12 if colour else 0.0) + 0.06
            if used + wide > self.width and lines[-1]:
                lines.append([])
                used = 0.0
            lines[-1].append((name, colour, wide))
            used += wide
        return lines

    def _y(self, side: str, place: int) -> float:
        return (place - self.first[side] + 0.5) * self.row

    # -- drawing -----------------------------------------------------------------------------------------------------

    def _draw_legend(self, sheet: Sheet, x: float, y: float) -> None:
        step = line_height(_LEGEND) * 1.15
        for number, line in enumerate(self.legend):
            at = x + (self.width - sum(wide for *_, wide in line)) / 2
            middle = y + (number + 0.5) * step
            for name, colour, wide in line:
                if colour:
                    sheet.rect(at, middle - 0.04, 0.08, 0.08, colour)
                sheet.text(at + (0.12 if colour else 0.0), middle, name, size=_LEGEND)
                at += wide

    def _draw_tokens(self, sheet: Sheet, x: float, y: float) -> None:
        for side, pinned in (("queries", self.shown.left), ("keys", self.shown.right)):
            right = side == "queries"
            edge = x + (self.lines - _GAP if right else self.ends + _GAP)
            room = self.columns[side] - _GAP
            for place in range(self.first[side], self.end[side]):
                unit, middle = self._units(side)[place], y + self._y(side, place)
                bold = place in pinned
                if bold:
                    left = edge - room if right else edge - _GAP / 2
                    sheet.rect(left, middle - 0.48 * self.row, room + _GAP / 2, 0.96 * self.row, RAISED)
                text = fitted(visible(unit.text), room, self.size, bold=bold)
                colour = NOTE if unit.special else INK
                align = "right" if right else "left"
                sheet.text(edge, middle, text, size=self.size, colour=colour, align=align, bold=bold)

    def _draw_lines(self, sheet: Sheet, x: float, y: float) -> None:
        pinned = bool(self.shown.left or self.shown.right)
        power = 0.65 if pinned else 0.75 + 0.6 * min(1.0, (len(self.colours) - 1) / 6)
        count = len(self.colours)
        for at, colour in enumerate(self.colours):
            apart = (at - (count - 1) / 2) * min(0.014, 0.09 / count)  # heads that share a row stand a little apart
            ends: list[tuple[float, float, float, float]] = []
            alphas: list[float] = []
            for query, weights in self._drawn(at):
                for key in range(self.first["keys"], self.end["keys"]):
                    if not weights[key]:
                        continue
                    alpha = max(_FAINTEST, 0.92 * min(1.0, float(weights[key])) ** power)
                    one, other = y + self._y("queries", query) + apart, y + self._y("keys", key) + apart
                    ends.append((x + self.lines, one, x + self.ends, other))
                    alphas.append(alpha)
            sheet.curves(np.array(ends), colour, np.array(alphas), 1.1 if pinned else 0.8)

    def _drawn(self, series: int) -> list[tuple[int, NDArray[Any]]]:
        """The queries that have lines, each with the weights of its lines: all, or those of what is pinned."""
        seen, left, right = self.shown, self.shown.left, self.shown.right
        window = list(range(self.first["queries"], self.end["queries"]))
        if not left and not right:
            return list(zip(window, seen.rows(series, window).kept, strict=True))
        if left:
            own = seen.rows(series, left)
            # Lines and bars show the same keys: those that the cut of the sum keeps; all that are pinned, if any are.
            chosen = np.zeros(len(seen.keys), np.bool_)
            chosen[right] = True
            cut = chosen if right else seen.sum(series, left).kept[0] > 0
            return [(place, np.where(cut, row, 0)) for place, row in zip(left, own.values, strict=True)]
        values = seen.rows(series, window).values
        chosen = np.isin(np.arange(len(seen.keys)), right)
        return [(place, np.where(chosen, row, 0)) for place, row in zip(window, values, strict=True)]

    def _columns(self, series: int, places: Sequence[int]) -> NDArray[np.float64]:
        """What each query gives to the pinned keys; those out of sight are left at zero."""
        inside = [place for place in places if self.first["queries"] <= place < self.end["queries"]]
        found = np.zeros(len(places))
        found[inside] = self.shown.column(series, self.shown.right, inside)
        return found

    def _draw_bars(self, sheet: Sheet, x: float, y: float, values: NDArray[Any], side: str, way: int) -> None:
        """Bars stacked by head, `values` [series, units]; the whole bar is the mean over heads, with its number."""
        means = values / len(values)
        whole = means.sum(axis=0)
        most = float(whole[self.first[side] : self.end[side]].max())
        if not most > 0:
            return
        full = self.bar - _NUMBER - _GAP
        for place in range(self.first[side], self.end[side]):
            length, middle = 0.0, y + self._y(side, place)
            for part, colour in zip(means[:, place] * full / most, self.colours, strict=True):
                if part > 0:
                    left = x + length if way > 0 else x - length - part
                    sheet.rect(left, middle - 0.27 * self.row, float(part), 0.54 * self.row, colour)
                    length += float(part)
            if whole[place] >= 0.005:
                end, align = x + way * (length + 0.04), "left" if way > 0 else "right"
                text = f"{whole[place]:.2f}"
                sheet.text(end, middle, text, size=self.size - 1, colour=NOTE, align=align)

    # -- notes -------------------------------------------------------------------------------------------------------

    def _notes(self) -> list[str]:
        seen = self.shown
        found: list[str] = []
        places = seen.left or list(range(self.first["queries"], self.end["queries"]))
        parts = [(seen.sum if seen.left else seen.rows)(at, places) for at in range(len(seen.series))]
        if seen.left:
            found.append(self._looks(parts))
        if seen.right:
            found.append(self._looked_at())
        if not (seen.right and not seen.left):
            found += self._masses(parts)
        return [*found, *self._left_out()]

    def _looks(self, parts: Sequence[Rows]) -> str:
        """The pinned queries and their largest weights."""
        values = np.mean([part.values[0] for part in parts], axis=0)
        verb = "together look at" if len(self.shown.left) > 1 else "looks at"
        return f"{_list(self.shown.queries, self.shown.left)} {verb} {_largest(values, self.shown.keys)}."

    def _looked_at(self) -> str:
        places = list(range(len(self.shown.queries)))
        values = np.mean([self._columns(at, places) for at in range(len(self.shown.series))], axis=0)
        verb = "are" if len(self.shown.right) > 1 else "is"
        return f"{_list(self.shown.keys, self.shown.right)} {verb} looked at by {_largest(values, self.shown.queries)}."

    def _masses(self, parts: Sequence[Rows]) -> list[str]:
        """What of the attention is dropped, hidden, not kept, or goes to tokens out of sight."""
        mean = {
            name: float(np.mean([getattr(part, name) for part in parts])) for name in ("dropped", "hidden", "unkept")
        }
        inside = slice(self.first["keys"], self.end["keys"])
        away = float(np.mean([part.kept.sum(1) - part.kept[:, inside].sum(1) for part in parts]))
        said = [
            (
                mean["dropped"],
                f"is not drawn (lines show each row’s largest weights up to {_percent(self.shown.mass)})",
            ),
            (mean["hidden"], "goes to hidden tokens"),
            (mean["unkept"], "is not kept in this view"),
            (away, "goes to tokens left out"),
        ]
        told = [f"{weight_text(value)} {what}" for value, what in said if value >= 0.0005]
        if not told:
            return []
        start = "Of this attention" if self.shown.left else "Of a query’s attention, on average"
        return [f"{start}, {', '.join(told)}."]

    def _left_out(self) -> list[str]:
        parts = [
            f"{side} {self.first[side] + 1} to {self.end[side]} of {len(self._units(side)):,}"
            for side in ("queries", "keys")
            if self.end[side] - self.first[side] < len(self._units(side))
        ]
        return [f"Shown are {' and '.join(parts)}; the others are left out."] if parts else []


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _list(given: Sequence[Unit], places: Sequence[int]) -> str:
    names = [quoted(given[place].text) for place in places[:4]]
    return f"{' + '.join(names)} and {len(places) - 4} more" if len(places) > 4 else " + ".join(names)


def _largest(values: Floats | NDArray[Any], given: Sequence[Unit]) -> str:
    """The largest values with the names of their units."""
    best = [int(place) for place in np.argsort(-values, kind="stable")[:_NAMED] if values[place] > 0]
    return ", ".join(f"{quoted(given[place].text)} {weight_text(float(values[place]))}" for place in best) or "nothing"
