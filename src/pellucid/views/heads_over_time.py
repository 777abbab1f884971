"""Heads over time: what every head of a layer looks at in one sentence, a row of small pictures for each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import listing
from pellucid.results import WIDTH, Array, Coordinate, ResultError
from pellucid.views.style import FAINT, NOTE, house_style, new_figure, sequential, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACROSS = 16
"""Heads that stand in one row at most."""
_LARGEST = 1.15  # inches of a picture
_MARGIN = 1.3  # for epochs and colours
_NARROWEST = 4.2  # for the title and the tokens
_LETTERS = 14.5  # of the sentence to an inch


def heads_over_time(
    patterns: Mapping[Coordinate, Array], tokens: Sequence[str], *, name: str = "", width: float = WIDTH
) -> Figure:
    """A small picture of every head's attention weights for each step: a row for every step, a column for every head.

    `patterns` are the weights [heads, tokens, tokens] by step. In each picture a row is a token that looks, a column
    one that is looked at; all share one colouring from 0 to 1. The tokens stand below.
    """
    shapes = {np.shape(weights) for weights in patterns.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 3:
        raise ResultError(
            "Heads are drawn over time from weights [heads, tokens, tokens] of one shape at every step; these have the "
            f"shapes {listing(sorted(shapes))}."
        )
    heads, size, _ = next(iter(shapes))
    if len(tokens) != size:
        raise ResultError(f"There are {len(tokens)} tokens, and weights of {size}; give the sentence of the weights.")
    steps = list(patterns)
    bands = -(-heads // _ACROSS)
    across = -(-heads // bands)
    cell = min(_LARGEST, (width - _MARGIN) / across)
    width = min(width, max(_NARROWEST, across * cell + _MARGIN))
    lines = _wrapped(tokens, int(_LETTERS * (width - 0.6)))
    height = bands * (len(steps) * cell + 0.45) + 0.55 + 0.14 * len(lines)
    with house_style():
        figure = new_figure(width, height)
        grid = figure.subplots(bands, 1, squeeze=False)
        for band, axes in enumerate(grid[:, 0]):
            chosen = range(band * across, min(heads, (band + 1) * across))
            image = _band(axes, patterns, chosen, across, size)
            axes.set_ylabel("epoch")
            axes.set_xlabel("head" if band == bands - 1 else "")
            if band == bands - 1:
                _bar(figure, list(grid[:, 0]), image, share=min(1.0, 1.2 / (bands * len(steps) * cell)))
        figure.suptitle(f"Every head of {name}, as it learned" if name else "Every head, as it learned", fontsize=10)
        figure.supxlabel("\n".join(lines), fontsize=7.5, color=NOTE, parse_math=False, linespacing=1.25)
        return settled(figure)


def _band(axes: Axes, patterns: Mapping[Coordinate, Array], heads: range, across: int, size: int) -> Any:
    """One row of heads for all steps, as one image with gaps between the pictures."""
    gap = max(1, round(size / 8))
    pitch = size + gap
    canvas = np.full((len(patterns) * pitch - gap, across * pitch - gap), np.nan)
    for row, weights in enumerate(patterns.values()):
        for column, head in enumerate(heads):
            top, left = row * pitch, column * pitch
            canvas[top : top + size, left : left + size] = weights[head]
            frame = {"fill": False, "edgecolor": FAINT, "linewidth": 0.5, "clip_on": False}
            axes.add_patch(_rectangle((left - 0.5, top - 0.5), size, frame))
    image = axes.imshow(canvas, cmap=sequential(), vmin=0, vmax=1, interpolation="nearest", rasterized=True)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    middle = (size - 1) / 2
    axes.set_xticks([column * pitch + middle for column in range(len(heads))], labels=[str(head) for head in heads])
    axes.set_yticks(
        [row * pitch + middle for row in range(len(patterns))],
        labels=[str(step) for step in patterns],
        parse_math=False,
    )
    return image


def _bar(figure: Figure, beside: list[Axes], image: Any, *, share: float) -> None:
    bar: Any = figure.colorbar(image, ax=beside, shrink=share, aspect=12, pad=0.02, ticks=[0, 0.5, 1])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)
    bar.set_label("attention", fontsize=7.5)


def _rectangle(corner: tuple[float, float], size: int, style: Mapping[str, Any]) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(corner, size, size, **style)


def _wrapped(tokens: Sequence[str], letters: int) -> list[str]:
    """The numbered tokens in lines of at most so many letters."""
    lines = ["tokens:"]
    for number, token in enumerate(tokens, start=1):
        word, joint = f"{number} {_shown(token)}", " " if number == 1 else " · "
        if len(lines[-1]) + len(joint) + len(word) <= letters:
            lines[-1] += joint + word
        else:
            lines.append(word)
    return lines


def _shown(token: str) -> str:
    """A token on one line; one of spaces alone can be seen."""
    return " ".join(token.split()) or ("⏎" if "\n" in token else "␣")
