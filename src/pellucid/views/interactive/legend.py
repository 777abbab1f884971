"""What colours stand for, in one line: a name, the lowest number, a ramp of colours, the highest number and a unit."""

from __future__ import annotations

import numpy as np

from pellucid.views.interactive.colours import Scale
from pellucid.views.interactive.sheet import Sheet, fitted, line_height, short, text_width
from pellucid.views.style import NOTE

SIZE = 6.8
HEIGHT = line_height(SIZE) + 0.05
_RAMP, _THICK, _GAP = 0.8, 0.075, 0.06


def draw_scale(
    sheet: Sheet, x: float, y: float, scale: Scale, name: str, *, unit: str = "", width: float, bold: bool = True
) -> None:
    """A legend from (x, y) on, at most `width` inches wide."""
    ends = [short(scale.low), f"{short(scale.high)}{f' {unit}' if unit else ''}"]
    ramp = min(_RAMP, 0.3 * width)
    taken = sum(text_width(end, SIZE) for end in ends) + ramp + 2 * _GAP
    middle = y + line_height(SIZE) / 2
    text = fitted(name, width - taken - 2 * _GAP, SIZE, bold=bold)
    sheet.text(x, middle, text, size=SIZE, bold=bold)
    at = x + text_width(text, SIZE, bold) + 2 * _GAP
    sheet.text(at, middle, ends[0], size=SIZE, colour=NOTE)
    at += text_width(ends[0], SIZE) + _GAP
    values = np.linspace(scale.low, scale.high, 64) if scale.high > scale.low else np.full(64, scale.high)
    sheet.image(at, middle - _THICK / 2, ramp, _THICK, scale.colours(values)[None])
    sheet.text(at + ramp + _GAP, middle, ends[1], size=SIZE, colour=NOTE)


def titled(name: str) -> str:
    """A name as the first word of a line."""
    spaced = name.replace("_", " ")
    return spaced[:1].upper() + spaced[1:]
