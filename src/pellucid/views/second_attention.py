"""A head's attention on one text, other attention with the same output, and effective attention, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Array, Result
from pellucid.views.corpus_shares import signed_colours
from pellucid.views.style import NOTE, house_style, new_figure, sequential, settled, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLES = {
    "attention": "attention",
    "second": "another attention,\nthe same output",
    "effective": "effective attention,\nthe same output",
}
_MOST_NAMES = 32
_SHORT = 12


def second_attention_figure(result: Result, *, width: float = WIDTH) -> Figure:
    """Three maps of queries × keys; colours follow √w, so that small weights are seen, and tell signs apart."""
    names = [str(name) for name in result.axes["query"]]
    told = result.table("queries").columns
    with house_style():
        figure = new_figure(width, 0.42 * width + 1.5)
        panels = figure.subplots(1, 3, sharey=True)
        top = float(max(result.measure("attention").max(), result.measure("second").max()))
        reach = float(np.abs(result.measure("effective")).max()) or 1.0
        for axes, (matrix, title) in zip(panels, _TITLES.items(), strict=True):
            signed = matrix == "effective"
            _panel(figure, axes, result.measure(matrix), reach if signed else top, signed=signed)
            axes.set_title(title, fontsize=8.5)
            _named(axes.xaxis, names, most=_MOST_NAMES, rotation=90)
            axes.tick_params(length=0)
            axes.set_xlabel("key")
        _named(panels[0].yaxis, names, most=_MOST_NAMES)
        panels[0].set_ylabel("query")
        head = str(result.table("head").columns["head"][0])
        figure.suptitle(f"Head {head}: what its output leaves open", fontsize=10, parse_math=False)
        figure.supxlabel(_note(told), fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)


def _note(told: Any) -> str:
    """How many queries are open, how far their weights moved, and how far outputs are off."""
    open_ = told["free with sum"] > 0
    if not open_.any():
        return "Every query's attention is unique: no other weights give the same output."
    off = max(float(told[name].max()) for name in ("second output off", "effective output off"))
    return (
        f"{int(open_.sum())} of {len(open_)} queries could have other weights: in the second one "
        f"{float(told['second moved'][open_].mean()):.0%} of theirs lies elsewhere.\nOutputs differ by at most "
        f"{off:.0e} of their length.".replace("e-", "e−")
    )


def _panel(figure: Figure, axes: Axes, values: Array, top: float, *, signed: bool) -> None:
    shown = np.sign(values) * np.sqrt(np.abs(values))
    end = float(np.sqrt(top)) or 1.0
    image = axes.imshow(
        shown,
        aspect="auto",
        cmap=signed_colours() if signed else sequential(),
        vmin=-end if signed else 0.0,
        vmax=end,
        interpolation="nearest",
        rasterized=True,
    )
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    bar: Any = figure.colorbar(image, ax=axes, orientation="horizontal", location="bottom", shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)
    marks = [-top, 0.0, top] if signed else [0.0, top / 4, top]
    bar.set_ticks(
        [float(np.sign(mark) * np.sqrt(abs(mark))) for mark in marks],
        labels=[f"{mark:.2g}".replace("-", "−") for mark in marks],
    )
    bar.ax.tick_params(length=2)


def _named(axis: Any, names: list[str], *, most: int, rotation: float = 0.0) -> None:
    """Tokens along an axis without their numbers, thinned; long ones are cut."""
    places = thinned(names, most)
    tokens = [names[place].partition(" ")[2] for place in places]
    short = [token if len(token) <= _SHORT else f"{token[: _SHORT - 1]}…" for token in tokens]
    axis.set_ticks(places, labels=short, parse_math=False, rotation=rotation, fontsize=6.0)
