"""Figures of answers to questions: tokens × layers for start and end side by side, and one token's features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import Array
from pellucid.views.bars import cut
from pellucid.views.corpus_shares import signed_colours
from pellucid.views.style import CHANCE, COLOURS, INK, NOTE, grid_lines, house_style, new_figure, sequential, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.2
_ROW = 0.128
_LONGEST = 14
_MOST = 44  # tokens of a map
ENDS = ("start", "end")


def answer_maps(
    tokens: Sequence[str], places: Sequence[str], values: Array, explained: Sequence[int], *, title: str
) -> Figure:
    """Attributions [ends, places, tokens] as four maps, tokens down and places across.

    The first two give each token's signed share of its place, so that columns of sizes sum to 1; the others give the
    share of a token's own attribution that lies at each place, so that rows sum to 1. ▸ marks the explained token. Of
    a long text, the tokens with the largest shares are drawn.
    """
    sizes = np.abs(values)
    by_place = values / np.maximum(sizes.sum(axis=2, keepdims=True), 1e-300)
    by_token = sizes / np.maximum(sizes.sum(axis=1, keepdims=True), 1e-300)
    kept = _largest(np.abs(by_place).max(axis=(0, 1)), explained)
    left_out = 1 - float(np.abs(by_place)[:, :, kept].sum(axis=2).min())
    by_place, by_token = by_place[:, :, kept], by_token[:, :, kept]
    panels = [
        *((f"{end}: share of each layer", by_place[which].T, which) for which, end in enumerate(ENDS)),
        *((f"{end}: share of each token", by_token[which].T, which) for which, end in enumerate(ENDS)),
    ]
    with house_style():
        figure = new_figure(WIDTH, 1.6 + _ROW * len(kept))
        grid = figure.subplots(1, 4, sharey=True)
        images: list[Any] = []
        for place, (axes, (name, cells, which)) in enumerate(zip(grid, panels, strict=True)):
            images.append(_map(axes, cells, signed=place < 2))
            axes.set_title(name, fontsize=8)
            axes.set_xticks(range(len(places)), labels=list(places), rotation=90, parse_math=False)
            axes.plot(-0.5, kept.index(explained[which]), ">", color=INK, markersize=4, clip_on=False)
        names = [cut(tokens[token], _LONGEST) for token in kept]
        grid[0].set_yticks(range(len(kept)), labels=names, fontsize=6, parse_math=False)
        for axes in grid:
            axes.tick_params(axis="y", length=0)
        for image, pair, label in ((images[0], grid[:2], "signed share"), (images[2], grid[2:], "share")):
            bar: Any = figure.colorbar(image, ax=list(pair), orientation="horizontal", aspect=40, label=label, pad=0.02)
            bar.outline.set_visible(False)
        figure.suptitle(title, fontsize=9, parse_math=False)
        if len(kept) < len(tokens):
            told = f"{len(kept)} of {len(tokens)} tokens; the others hold at most {left_out:.0%} of a layer"
            figure.supxlabel(told, fontsize=7.5, color=NOTE)
        return settled(figure)


def _largest(shares: Array, explained: Sequence[int]) -> list[int]:
    """The tokens with the largest shares, those that are explained among them, in the order of the text."""
    order = np.argsort(-shares, kind="stable").tolist()
    return sorted(list(dict.fromkeys([*explained, *order]))[:_MOST])


def _map(axes: Axes, cells: Array, *, signed: bool) -> Any:
    most = 0.5 if signed else float(cells.max())
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    return axes.imshow(
        cells,
        aspect="auto",
        cmap=signed_colours() if signed else sequential(),
        vmin=-most if signed else 0.0,
        vmax=most,
        interpolation="nearest",
        rasterized=True,
    )


def feature_panels(
    features: Array, places: Sequence[str], entropies: Array, names: Sequence[str], *, most: float, title: str
) -> Figure:
    """Attributions [ends, places, width] of the explained token's features, a row for each end of the answer.

    From left to right: their distribution at each place as boxes, its probability mass in equal bins, and the entropy
    of that in bits; `most` is that of equal masses.
    """
    with house_style():
        figure = new_figure(WIDTH, 5.2)
        grid = figure.subplots(2, 3, squeeze=False, width_ratios=(3, 3, 2))
        for row, (axes, end) in enumerate(zip(grid, ENDS, strict=True)):
            _boxes(axes[0], features[row], places)
            axes[0].set_title(f"{end}, at {names[row]}: attributions of features", fontsize=8, parse_math=False)
            _masses(axes[1], features[row], places)
            axes[1].set_title("probability mass, in bins of its range", fontsize=8)
            across = range(len(places))
            axes[2].plot(across, entropies[row], color=COLOURS[row], marker="o", markersize=3, linewidth=1.3)
            axes[2].axhline(most, color=CHANCE, linestyle="--", linewidth=1.2)
            axes[2].set_ylim(0, most * 1.08)
            axes[2].set_title("entropy in bits", fontsize=8)
            axes[2].set_xticks(across, labels=list(places), rotation=90, parse_math=False)
            grid_lines(axes[2], "y")
        figure.suptitle(title, fontsize=9, parse_math=False)
        figure.supxlabel("grey: equal masses in all bins", fontsize=7.5, color=NOTE)
        return settled(figure)


def _boxes(axes: Axes, features: Array, places: Sequence[str]) -> None:
    ink = {"color": INK, "linewidth": 0.7}
    axes.boxplot(
        list(features),
        positions=range(len(places)),
        widths=0.55,
        flierprops={"marker": ".", "markersize": 2, "markeredgecolor": NOTE},
        boxprops=ink,
        whiskerprops=ink,
        capprops=ink,
        medianprops={"color": COLOURS[1], "linewidth": 1.0},
    )
    axes.set_xticks(range(len(places)), labels=list(places), rotation=90, parse_math=False)
    grid_lines(axes, "y")


def _masses(axes: Axes, features: Array, places: Sequence[str], bins: int = 100) -> None:
    """Each place's probability mass over equal bins of its own range, as a map: bins up, places across."""
    masses = np.stack([np.histogram(row, bins=bins)[0] / row.size for row in features])
    axes.imshow(
        np.sqrt(masses.T),
        aspect="auto",
        origin="lower",
        cmap=sequential(),
        vmin=0,
        interpolation="nearest",
        rasterized=True,
    )
    axes.set_xticks(range(len(places)), labels=list(places), rotation=90, parse_math=False)
    axes.set_yticks([0, bins - 1], labels=["least", "most"])
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


Line = tuple[Array, Array | None, Array | None]
"""Values over places, with both ends of their interval where there is one."""


def layer_lines(
    panels: Mapping[str, Mapping[str, Line]],
    places: Sequence[str],
    *,
    title: str,
    label: str,
    grey: Sequence[str] = (),
    marks: Mapping[str, float] | None = None,
    levels: Mapping[str, float] | None = None,
    note: str = "",
) -> Figure:
    """Lines over places with their intervals as bands, a panel for each group; those named in `grey` are controls.

    `marks` are levels, such as chance, drawn across every panel; `levels` are those of single lines, by their names,
    dotted in the line's own colour.
    """
    with house_style():
        figure = new_figure(WIDTH, 3.3)
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        across = np.arange(len(places))
        for axes, (name, held) in zip(grid, panels.items(), strict=True):
            own = 0
            for told, (values, low, high) in held.items():
                control = told in grey
                colour = CHANCE if control else COLOURS[own]
                own += not control
                axes.plot(
                    across,
                    values,
                    color=colour,
                    linestyle="--" if control else "-",
                    linewidth=1.4,
                    label=told,
                    zorder=3,
                )
                if levels is not None and told in levels:
                    axes.axhline(levels[told], color=colour, linestyle=":", linewidth=1.1)
                if low is not None and high is not None:
                    axes.fill_between(across, low, high, color=colour, alpha=0.18, linewidth=0)
            for (told, level), style in zip((marks or {}).items(), (":", "-."), strict=False):
                axes.axhline(level, color=CHANCE, linestyle=style, linewidth=1.2, label=told)
            axes.set_title(name, parse_math=False)
            axes.set_xticks(across, labels=list(places), rotation=90, parse_math=False)
            grid_lines(axes, "y")
        grid[0].set_ylabel(label)
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper")
        figure.suptitle(title, fontsize=10, parse_math=False)
        figure.supxlabel(note, fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)
