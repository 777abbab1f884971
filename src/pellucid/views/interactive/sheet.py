"""A sheet to draw on: places in inches from the top left corner, texts that are measured and cut, notes that wrap."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.views.style import INK, NOTE, new_figure

DOTS = 200
"""Dots per inch of png files; pictures of pixels keep to this grid, so that every pixel is drawn."""
POINT = 1 / 72
LEADING = 1.32
_HANDLE = 0.45  # how far along a curve's way its handles stand: it leaves and arrives level


class Sheet:
    """One pair of axes over a whole figure, without frame or ticks."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, on_grid(height, up=True)
        self.figure = new_figure(width, self.height)
        self.figure.set_layout_engine("none")  # every place is given
        self.axes = self.figure.add_axes((0, 0, 1, 1), facecolor="none")
        self.axes.set(xlim=(0, width), ylim=(self.height, 0), xticks=[], yticks=[])
        for spine in self.axes.spines.values():
            spine.set_visible(False)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 7.5,
        colour: str = INK,
        align: str = "left",
        bold: bool = False,
        upright: bool = False,
    ) -> None:
        """A text whose middle is at the height y; `upright` ones run upwards from y."""
        self.axes.text(
            x,
            y,
            text,
            fontsize=size,
            color=colour,
            ha="center" if upright else align,
            va="bottom" if upright else "center_baseline",
            rotation=90 if upright else 0,
            fontweight="bold" if bold else "normal",
            parse_math=False,
        )

    def rect(
        self, x: float, y: float, width: float, height: float, colour: str, *, frame: bool = False, line: float = 0.8
    ) -> None:
        """A filled box, or its frame alone."""
        from matplotlib.patches import Rectangle

        look: dict[str, Any] = (
            {"fill": False, "edgecolor": colour, "linewidth": line} if frame else {"facecolor": colour, "linewidth": 0}
        )
        self.axes.add_patch(Rectangle((x, y), width, height, **look))

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 0.5) -> None:
        """A straight line."""
        from matplotlib.lines import Line2D

        self.axes.add_line(Line2D([x1, x2], [y1, y2], color=colour, linewidth=width))

    def curves(self, ends: NDArray[Any], colour: str, alphas: NDArray[Any], width: float) -> None:
        """Curves from (x1, y1) to (x2, y2), `ends` [curves, 4], each of its own opacity [curves]."""
        from matplotlib.collections import PathCollection
        from matplotlib.colors import to_rgba
        from matplotlib.path import Path

        if not len(ends):
            return
        codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
        paths: list[Any] = []
        for x1, y1, x2, y2 in ends:
            handle = (x2 - x1) * _HANDLE
            paths.append(Path([(x1, y1), (x1 + handle, y1), (x2 - handle, y2), (x2, y2)], codes))
        tints = [to_rgba(colour, float(alpha)) for alpha in alphas]
        self.axes.add_collection(
            PathCollection(paths, facecolors="none", edgecolors=tints, linewidths=width, capstyle="butt"),  # pyright: ignore[reportArgumentType]
            autolim=False,
        )

    def image(self, x: float, y: float, width: float, height: float, pixels: NDArray[np.uint8]) -> None:
        """A picture of pixels [height, width, 3 or 4] over a box."""
        self.axes.imshow(
            pixels, extent=(x, x + width, y + height, y), aspect="auto", interpolation="antialiased", zorder=1
        )
        self.axes.set(xlim=(0, self.width), ylim=(self.height, 0))


def on_grid(length: float, *, up: bool = False) -> float:
    """A length in whole dots."""
    dots = length * DOTS
    return float(np.ceil(dots - 1e-6) if up else np.floor(dots + 1e-6)) / DOTS


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = 7.5, bold: bool = False) -> float:
    """Inches that a text takes; letters as wide as they are high, which other fonts draw, count as such."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    rest = "".join(letter for letter in text if unicodedata.east_asian_width(letter) not in "WF")
    font = FontProperties(size=size, weight="bold" if bold else "normal")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        narrow = text_to_path.get_text_width_height_descent(rest, font, ismath=False)[0] if rest else 0.0
    return (narrow + wide * size) * POINT


def fitted(text: str, width: float, size: float = 7.5, *, bold: bool = False) -> str:
    """A text on one line that fits into a width, cut with an ellipsis where it must be."""
    if text_width(text, size, bold) <= width:
        return text
    low, high = 0, len(text)
    while low < high:  # the longest beginning that fits
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text_width(text[:middle] + "…", size, bold) <= width else (low, middle - 1)
    return text[:low].rstrip() + "…"


def wrapped(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """A text in lines that fit; words that are longer than a line are broken."""
    width *= 0.98  # letters that are fitted to a screen's dots are a little wider
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if text_width(longer, size, bold) <= width:
            line = longer
            continue
        lines += [line] if line else []
        line = word
        while text_width(line, size, bold) > width and len(line) > 1:
            kept = next(n for n in range(len(line) - 1, 0, -1) if n == 1 or text_width(line[:n], size, bold) <= width)
            kept = max((line.rfind(sign, 0, kept) + 1 for sign in "/_-"), default=0) or kept  # names break after these
            lines.append(line[:kept])
            line = line[kept:]
    return [*lines, line] if line else lines


def line_height(size: float) -> float:
    """Inches from one line of text to the next."""
    return size * LEADING * POINT


def paragraph_height(lines: Sequence[str], size: float) -> float:
    """Inches that lines of text take."""
    return len(lines) * line_height(size)


def write_lines(
    sheet: Sheet, x: float, y: float, lines: Sequence[str], *, size: float, colour: str = NOTE, align: str = "left"
) -> float:
    """Writes lines from the height y down, and answers the height below them."""
    for number, line in enumerate(lines):
        sheet.text(x, y + (number + 0.5) * line_height(size), line, size=size, colour=colour, align=align)
    return y + paragraph_height(lines, size)


def visible(text: str) -> str:
    """A token on one line: white space as signs."""
    if text.strip() and not any(sign in text for sign in "\n\t\r"):
        return text
    for sign, seen in (("\n", "↵"), ("\t", "⇥"), ("\r", "␍")):
        text = text.replace(sign, seen)
    return (text if text.strip() else text.replace(" ", "␣")) or "∅"


def quoted(text: str) -> str:
    """A token inside a sentence; marks keep right-to-left text from turning the sentence round."""
    shown = visible(text)
    marked = any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in shown)
    return f"“\u2068{shown}\u2069”" if marked else f"“{shown}”"


def short(value: float) -> str:
    """A number in a few characters: three digits, a true minus sign."""
    if np.isnan(value):
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    if not np.isfinite(size):
        text = "∞"
    elif size >= 99999.5 or size < 0.0005:
        text = f"{size:.1e}"
    else:
        text = f"{size:.{0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3}f}"
    return ("−" if value < 0 else "") + text


def weight_text(weight: float) -> str:
    """A weight between 0 and 1: two places, more for small ones, so that what is not nothing does not read so."""
    if not weight > 0:
        return "0"
    if weight < 0.0001:
        return "<0.0001"
    return f"{weight:.{4 if weight < 0.001 else 3 if weight < 0.01 else 2}f}"
