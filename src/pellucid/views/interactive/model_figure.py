"""The still figure of the model view: every head of every layer as a thumbnail, or the heads ranked by a statistic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.results import WIDTH
from pellucid.views.interactive.colours import Scale, css, of_codes
from pellucid.views.interactive.held import Floats, Held
from pellucid.views.interactive.legend import HEIGHT as LEGEND
from pellucid.views.interactive.legend import draw_scale, titled
from pellucid.views.interactive.payload import tiles
from pellucid.views.interactive.sheet import DOTS, Sheet, on_grid, short, text_width
from pellucid.views.style import FAINT, NOTE, thinned

_LARGEST, _RANKED = 110, 90  # dots of a thumbnail's side
_TALLEST = 8.9  # inches, so that the whole fits on a page
_BAND = 7
_LABEL = 6.5
_NAMES = 0.24  # inches for the two lines under a ranked head
_NARROWEST = 3.2
_ABOUT = (
    "Each square is one head: tokens that look go down, tokens looked at go across, and darker means more attention."
)


@dataclass(frozen=True)
class _Grid:
    """Sizes in dots: a thumbnail's side, its coloured band, and the steps from one to the next across and down."""

    side: int
    band: int
    across: int
    down: int


class ModelPicture:
    """The thumbnails of one panel; `height` in inches for a width, and `notes` on what they show."""

    def __init__(self, held: Held, state: Mapping[str, Any], width: float) -> None:
        self.block = held.block(state["block"])
        self.thumbs = held.thumbs(self.block, state["weighting"])
        self.sort, self.colour = state["sort"], state["colour"]
        self.ranking = None if self.sort is None else held.statistic(self.block, self.sort)
        self.values = None if self.colour is None else held.statistic(self.block, self.colour)
        self.scale = None if self.values is None else _scale(self.values)
        self.heads = [(layer, head) for layer, count in enumerate(self.block["heads"]) for head in range(count)]
        self.total = len(self.heads)
        self.top = (0.0 if self.scale is None else LEGEND) + (0.0 if self.ranking is not None else 0.3)
        self.width = width
        self.left = 0.0 if self.ranking is not None else _labels(self.block)
        self.grid = _grid(self.block, width - self.left, band=self.scale is not None, ranked=self.ranking is not None)
        if self.ranking is not None:
            self._rank(self.ranking)
        rows = -(-len(self.heads) // self.columns) if self.ranking is not None else len(self.block["layers"])
        self.height = self.top + rows * self.grid.down / DOTS
        self.notes = self._notes()

    @property
    def columns(self) -> int:
        """Thumbnails side by side."""
        if self.ranking is None:
            return max(self.block["heads"])
        return max(1, min(self.total, int(self.width * DOTS) // self.grid.across))

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draws it with its top left corner at (x, y)."""
        if self.scale is not None:
            draw_scale(sheet, x + self.left, y, self.scale, titled(self.colour), width=self.width - self.left)
        used = self.left + self.columns * self.grid.across / DOTS
        left = on_grid(x + max(0.0, (self.width - used) / 2)) + on_grid(self.left, up=True)
        top = on_grid(y + self.top, up=True)
        rows = -(-len(self.heads) // self.columns) if self.ranking is not None else len(self.block["layers"])
        pixels = np.zeros((rows * self.grid.down, self.columns * self.grid.across, 4), np.uint8)
        for place, (layer, head) in enumerate(self.heads):
            row, column = divmod(place, self.columns) if self.ranking is not None else (layer, head)
            self._paint(pixels[row * self.grid.down :, column * self.grid.across :], layer, head)
            if self.ranking is not None:
                self._name(
                    sheet, left + column * self.grid.across / DOTS, top + row * self.grid.down / DOTS, layer, head
                )
        sheet.image(left, top, pixels.shape[1] / DOTS, pixels.shape[0] / DOTS, pixels)
        if self.ranking is None:
            self._draw_margins(sheet, left, top)

    def _paint(self, pixels: NDArray[np.uint8], layer: int, head: int) -> None:
        """One head into the corner of some pixels: a faint frame, the thumbnail in it, and the band below."""
        side, band = self.grid.side, self.grid.band
        pixels[: side + 2, : side + 2] = _rgba(FAINT)
        pixels[1 : side + 1, 1 : side + 1, :3] = of_codes(tiles(self.thumbs[layer, head][None], side)[0])
        if self.scale is not None and self.values is not None:
            value = self.values[layer, head]
            colour = FAINT if np.isnan(value) else css(self.scale.colours(np.array([value]))[0])
            pixels[side + 3 : side + 3 + band, : side + 2] = _rgba(colour)

    def _name(self, sheet: Sheet, x: float, y: float, layer: int, head: int) -> None:
        """A ranked head's name and value below it."""
        assert self.ranking is not None
        under = y + (self.grid.side + self.grid.band + 4) / DOTS
        name = f"L{self.block['layers'][layer]} H{head}"
        sheet.text(x, under + 0.055, name, size=_LABEL - 0.5)
        sheet.text(x, under + 0.155, short(float(self.ranking[layer, head])), size=_LABEL - 0.5, colour=NOTE)

    def _draw_margins(self, sheet: Sheet, left: float, top: float) -> None:
        """Numbers of the layers and heads, as many as there is room for."""
        side, across, down = (each / DOTS for each in (self.grid.side, self.grid.across, self.grid.down))
        heads = list(range(self.columns))
        room = text_width(str(heads[-1]), _LABEL) + 0.05
        for head in thinned(heads, max(1, int(self.columns * across / room))):
            sheet.text(left + head * across + side / 2, top - 0.07, str(head), size=_LABEL, colour=NOTE, align="center")
        layers = self.block["layers"]
        for place in thinned(layers, max(1, int(len(layers) * down / 0.12))):
            middle = top + place * down + side / 2
            sheet.text(left - 0.06, middle, str(layers[place]), size=_LABEL, colour=NOTE, align="right")
        sheet.text(left + self.columns * across / 2, top - 0.2, "head", size=_LABEL + 0.5, align="center")
        sheet.text(left - 0.06, top - 0.2, "layer", size=_LABEL + 0.5, align="right")

    def _rank(self, ranking: Floats) -> None:
        """Orders the heads from the largest value on, and keeps as many as fit on a page."""
        value = np.where(np.isnan(ranking), -np.inf, ranking)
        self.heads.sort(key=lambda place: (-value[place], place))
        most = self.columns * max(1, int((_TALLEST - self.top) * DOTS) // self.grid.down)
        self.heads = self.heads[:most]

    def _notes(self) -> list[str]:
        found = [_ABOUT]
        for verb, name in (("Sorted by", self.sort), ("Coloured by", self.colour)):
            if name is not None:
                found.append(f"{verb} {name}: {self.block['statistics'][name]}")
        if len(self.heads) < self.total:
            found.append(
                f"Shown are the {len(self.heads)} heads of {self.total:,} with the largest {self.sort}; the others are "
                "left out."
            )
        return found


def natural_width(held: Held, state: Mapping[str, Any]) -> float:
    """Inches that the grid needs, a page's at most."""
    block = held.block(state["block"])
    if state["sort"] is not None:
        return WIDTH
    grid = _grid(block, WIDTH - 0.2 - _labels(block), band=state["colour"] is not None, ranked=False)
    return min(WIDTH, max(_NARROWEST, _labels(block) + max(block["heads"]) * grid.across / DOTS + 0.25))


def _labels(block: Mapping[str, Any]) -> float:
    """Inches for the numbers of the layers."""
    return max(text_width("layer", _LABEL + 0.5), text_width(str(block["layers"][-1]), _LABEL)) + 0.08


def _grid(block: Mapping[str, Any], room: float, *, band: bool, ranked: bool) -> _Grid:
    """Thumbnails as large as the room across and a page's height allow."""
    strip = _BAND + 2 if band else 0
    if ranked:
        return _Grid(_RANKED, strip, _RANKED + 14, _RANKED + strip + int(_NAMES * DOTS) + 8)
    across, down = room * DOTS / max(block["heads"]), _TALLEST * DOTS / len(block["layers"])
    gap = 5 if across < 60 else 8
    side = max(8, int(min(_LARGEST, across - gap, down - gap - strip)))
    whole = block["thumb"] * (side // block["thumb"])  # whole multiples of the stored thumbnail look even
    side = whole if whole >= 0.8 * side else side
    return _Grid(side, strip, side + gap, side + gap + strip)


def _scale(values: Floats) -> Scale:
    """From the smallest to the largest value; around zero where there are both signs."""
    there = values[np.isfinite(values)]
    if not there.size:
        return Scale(0.0, 1.0, False)
    low, high = float(there.min()), float(there.max())
    if low < 0 < high:
        most = max(-low, high)
        return Scale(-most, most, True)
    return Scale(low, high, False)


def _rgba(colour: str) -> NDArray[np.uint8]:
    return np.array([*bytes.fromhex(colour.removeprefix("#")), 255], np.uint8)
