"""Colours of still figures: those of the interactive views in daylight (web/src/colour.ts), so that both agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ACCENT = "#0b6a73"
FILL = "#2f95a0"
RAISED = "#e4eeee"

Colours = NDArray[np.uint8]
"""Red, green and blue from 0 to 255 along the last axis."""

_Stops = Sequence[tuple[int, int, int]]
_TEAL: _Stops = ((240, 243, 241), (176, 214, 214), (72, 160, 169), (11, 106, 115), (5, 48, 58))
_HEAT: _Stops = ((247, 240, 230), (244, 205, 160), (222, 120, 30), (142, 62, 8))
_BLUE: _Stops = ((245, 245, 243), (163, 196, 232), (49, 110, 189), (20, 58, 120))
_ORANGE: _Stops = ((245, 245, 243), (246, 199, 150), (214, 110, 22), (133, 58, 6))
_ABSENT = (255, 255, 255)


def _between(stops: _Stops, share: NDArray[Any]) -> Colours:
    """Colours along stops; shares beyond 0 and 1 get the ends."""
    places = np.linspace(0, 1, len(stops))
    there = np.nan_to_num(share)
    parts = [np.interp(there, places, [stop[channel] for stop in stops]) for channel in range(3)]
    return np.floor(np.stack(parts, axis=-1) + 0.5).astype(np.uint8)


def of_codes(codes: NDArray[Any]) -> Colours:
    """Colours of weight codes (bytes): paper to deep teal."""
    return _between(_TEAL, np.arange(256) / 255)[codes]


def heat(share: NDArray[Any]) -> Colours:
    """Colours of amounts from 0 to 1: paper to orange."""
    return _between(_HEAT, share)


def diverging(share: NDArray[Any]) -> Colours:
    """Colours of signed numbers from −1 to 1: blue below zero, orange above."""
    return np.where((share < 0)[..., None], _between(_BLUE, -share), _between(_ORANGE, share))


def css(colour: Sequence[int] | Colours) -> str:
    """A colour as #rrggbb."""
    return "#" + "".join(f"{int(part):02x}" for part in colour)


def ink_on(colour: Sequence[int] | Colours) -> str:
    """Black or white, whichever is easier to read on a colour (relative luminance of WCAG 2)."""
    share = np.asarray(colour, np.float64) / 255
    linear = np.where(share <= 0.03928, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return "#000000" if float(linear @ np.array([0.2126, 0.7152, 0.0722])) > 0.179 else "#ffffff"


@dataclass(frozen=True)
class Scale:
    """What colours stand for: signed ones are full blue at `low` and full orange at `high`, others start as paper."""

    low: float
    high: float
    signed: bool

    def colours(self, values: NDArray[Any]) -> Colours:
        """Colours of values; white for those that are missing (NaN)."""
        given = np.asarray(values, np.float64)
        if self.signed:
            found = diverging(given / self.high if self.high > 0 else 0 * given)
        else:
            range_ = self.high - self.low
            found = heat((given - self.low) / range_ if range_ > 0 else 0 * given)
        found[np.isnan(given)] = _ABSENT
        return found


def scale_of(values: NDArray[Any], *, signed: bool, share: float = 1.0) -> Scale:
    """Symmetric where signed, else from zero (or the smallest, where below) to the largest; NaN does not count.

    With `share` below 1, that share of the magnitudes lies within a signed scale and the outliers beyond it.
    """
    there = np.asarray(values, np.float64)
    there = there[np.isfinite(there)]
    if not there.size:
        return Scale(-1.0 if signed else 0.0, 1.0, signed)
    if signed:
        most = float(np.quantile(np.abs(there), share, method="higher"))
        return Scale(-most, most, True)
    return Scale(min(0.0, float(there.min())), max(0.0, float(there.max())), False)


def head_colour(head: int, heads: int) -> str:
    """One colour per head: hues around the circle, and lightness in turns so that neighbours differ in both."""
    rounds = max(1, math.ceil(heads / 10))
    per_round = math.ceil(heads / rounds)
    lap = head // per_round
    hue = 25 + 360 * (head % per_round + lap / rounds) / per_round
    turn = (lap + (1 if head % 2 and rounds == 1 and heads > 6 else 0)) % 4
    return _oklch((0.56, 0.68, 0.45, 0.62)[turn], (0.15, 0.13, 0.11, 0.08)[turn], hue)


def _oklch(lightness: float, chroma: float, hue: float) -> str:
    """sRGB of a colour in OKLCh (Ottosson 2020), clipped to what a screen shows."""
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    cones = np.array(
        [
            lightness + 0.3963377774 * a + 0.2158037573 * b,
            lightness - 0.1055613458 * a - 0.0638541728 * b,
            lightness - 0.0894841775 * a - 1.291485548 * b,
        ]
    )
    mixing = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.707614701],
        ]
    )
    linear = np.clip(mixing @ cones**3, 0, 1)
    shares = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return css(np.floor(255 * shares + 0.5).astype(np.uint8))
