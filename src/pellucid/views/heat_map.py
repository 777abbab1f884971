"""Heat maps: two axes of a result as a coloured grid, one panel per measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Array, Result, ResultError
from pellucid.views.style import CHANCE, NOTE, house_style, label_ticks, new_figure, sequential, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_HEIGHT = (1.3, 3.0)  # inches, from few rows to many
_ACROSS = (3, 4)  # panels abreast: as few empty places as can be


def heat_map(result: Result, *, measures: Sequence[str] | None = None, width: float = WIDTH) -> Figure:
    """A grid of the last two axes (rows × columns) per measure, with what chance gives marked on its colour bar.

    Without `measures`, those that are zero everywhere and by chance too are left out, and named below.
    """
    if len(result.axes) - ("measure" in result.axes) != 2:
        raise ResultError(
            f"A heat map needs two axes beside the measures; this {result.kind!r} has {list(result.axes)}."
        )
    names, values, null = panels(result, measures)
    kept = [place for place in range(len(names)) if measures is not None or _says_something(values, null, place)]
    empty = [name for place, name in enumerate(names) if place not in kept]
    rows, columns = list(result.axes)[-2:]
    across = min(_ACROSS, key=lambda count: (-len(kept) % count, count)) if len(kept) > _ACROSS[0] else len(kept)
    down = -(-len(kept) // across)
    height = float(np.clip(0.7 + 0.08 * values.shape[1], *_PANEL_HEIGHT))
    with house_style():
        figure = new_figure(width, 0.75 + down * (height + 0.3))
        grid = figure.subplots(down, across, squeeze=False)
        for place, axes in enumerate(grid.ravel()):
            if place >= len(kept):
                axes.set_axis_off()
                continue
            at = kept[place]
            _panel(figure, axes, values[at], None if null is None else null[at])
            axes.set_title(names[at], parse_math=False)
            label_ticks(axes.yaxis, result.axes[rows], 8)
            label_ticks(axes.xaxis, result.axes[columns], 8)
            axes.set_xlabel(columns if place + across >= len(kept) else "")
            axes.set_ylabel(rows if place % across == 0 else "")
        if "measure" in result.axes:  # else it is the title of the only panel
            figure.suptitle(result.title, fontsize=10)
        notes = [f"▸ {result.chance}"] if null is not None else []
        notes += [f"zero everywhere: {', '.join(empty)}"] if empty else []
        figure.supxlabel("        ".join(notes), fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)


def panels(result: Result, measures: Sequence[str] | None) -> tuple[list[str], Array, Array | None]:
    """Names, values and chance of the measures to draw, the measure axis first; without one, the result's only one."""
    if "measure" not in result.axes:
        return [result.title], result.values[None], None if result.null is None else result.null[None]
    chosen = list(result.axes["measure"]) if measures is None else list(measures)
    places = [result.place("measure", name) for name in chosen]
    return [str(name) for name in chosen], result.values[places], None if result.null is None else result.null[places]


def _says_something(values: Array, null: Array | None, place: int) -> bool:
    """Whether a measure is anywhere else than zero; where none is, the first is drawn all the same."""
    parts = [np.nan_to_num(values)] if null is None else [np.nan_to_num(values), null]
    nothing = not any(part.any() for part in parts)
    return (nothing and place == 0) or any(part[place].any() for part in parts)


def _panel(figure: Figure, axes: Axes, values: Array, null: Array | None) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high = _limits([values] if null is None else [values, null])
    image = axes.imshow(
        values, aspect="auto", cmap=sequential(), vmin=low, vmax=high, interpolation="nearest", rasterized=True
    )
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    bar: Any = figure.colorbar(image, cax=axes.inset_axes((1.06, 0, 0.05, 1)))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)
    bar.ax.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    if null is not None:
        for level in sorted({float(null.min()), float(null.max())}):
            bar.ax.axhline(level, color=CHANCE, linewidth=1.2)
            bar.ax.plot(
                0, level, ">", color=CHANCE, markersize=4, clip_on=False, transform=bar.ax.get_yaxis_transform()
            )


def _limits(parts: Sequence[Array]) -> tuple[float, float]:
    """Ends of the colours: those of the numbers and of chance, from zero where that is near."""
    low, high = min(float(np.nanmin(part)) for part in parts), max(float(np.nanmax(part)) for part in parts)
    if 0 <= low < high / 4:
        low = 0.0
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return low - 0.5, high + 0.5
    return low, high
