"""Figures of the thesis study: maps of layers, scores over the epochs, canonical correlations beside noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import Provenance, Table
from pellucid.similarity import Convergence
from pellucid.studies.thesis import published
from pellucid.studies.thesis.tables import Score, Study
from pellucid.views import bars, convergence_curves
from pellucid.views.style import CHANCE, COLOURS, NOTE, grid_lines, house_style, new_figure, sequential, settled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]
WIDTH = 9.2
LAYOUTS = {"thesis": "the thesis's layout", "words": "word by word"}
CURVES = {"CKA": ("CKA linear", "CKA RBF"), "SVCCA": ("SVCCA",)}
"""Scores that are drawn over the epochs, by figure; SVCCA was worked out for fewer epochs."""


def lines(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
    *,
    title: str,
    x: str,
    grey: str,
    width: float = WIDTH,
) -> Figure:
    """Lines (x and y by name), a panel for each group of them; the one called `grey` is drawn as chance is."""
    from matplotlib.ticker import MaxNLocator

    with house_style():
        figure = new_figure(width, 3.0)
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (name, held) in zip(grid, panels.items(), strict=True):
            for place, (line, (across, up)) in enumerate(held.items()):
                chance = line == grey
                axes.plot(
                    across,
                    up,
                    color=CHANCE if chance else COLOURS[place],
                    linestyle="--" if chance else "-",
                    linewidth=1.5,
                    label=line,
                )
            axes.set_title(name, parse_math=False)
            axes.set_xlabel(x)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
            axes.legend()
            axes.margins(x=0.02)
            grid_lines(axes, "y")
        figure.suptitle(title, fontsize=10)
        return settled(figure)


def spectra(study: Study) -> Figure:
    """Canonical correlations of tagger and language model in the thesis's layout, beside those of noise."""
    held = {
        name: ([100 * place / (len(values) - 1) for place in range(len(values))], values)
        for name, values in study.facts["spectra"].items()
    }
    named = {name.replace("tagger.", "tagger ").replace("lm.", "LM "): line for name, line in held.items()}
    return lines(
        {"canonical correlations ρ, from the largest to the smallest": named},
        title="What SVCCA averages in the thesis's layout",
        x="rank, as a percentage of all correlations",
        grey="noise",
    )


def losses(study: Study) -> Figure:
    """The losses of both trainings by epoch."""
    panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for task, name in (("lm", "language model"), ("tagger", "tagger")):
        log = study.facts["training"][task]["log"]
        panels[f"{name}: loss"] = {
            told: ([row["epoch"] for row in log if key in row], [row[key] for row in log if key in row])
            for told, key in (("training text, with dropout", "train_loss"), ("validation text", "valid_loss"))
        }
    return lines(panels, title="How the two trainings went", x="epoch", grey="")


def grids(study: Study, *, random: bool) -> Figure:
    """The language model's layers against each other, trained or with random weights: a row for each layout."""
    names = [name for name in published.SCORES if name != "CKA RBF .5"]
    depth = study.depth["lm"]
    layers = [str(layer) for layer in range(1, depth + 1)]
    low = _floor(study, names)
    with house_style():
        figure = new_figure(WIDTH, 5.6)
        axes_of = figure.subplots(2, len(names), squeeze=False)
        for row, (layout, told) in zip(axes_of, LAYOUTS.items(), strict=True):
            for axes, name in zip(row, names, strict=True):
                score = published.SCORES[name][list(LAYOUTS).index(layout)]
                held = study.of("within", layout, score)
                values = _map(held, depth, lambda each: (each.random_both or 0.0) if random else each.value)
                image = axes.imshow(
                    values, cmap=sequential(), vmin=low, vmax=1, interpolation="nearest", rasterized=True
                )
                for (one, other), value in np.ndenumerate(values):
                    colour = "white" if (value - low) / (1 - low) > 0.42 else "#222222"
                    axes.text(other, one, f"{value:.2f}", ha="center", va="center", fontsize=6, color=colour)
                axes.set_xticks(range(depth), labels=layers)
                axes.set_yticks(range(depth), labels=layers)
                for side in ("left", "bottom"):
                    axes.spines[side].set_visible(False)
                axes.set_title(f"{name}, {told}", parse_math=False)
                chance = max(each.chance for each in held)
                axes.set_xlabel(f"layer (chance at most {max(chance, 0.0):.2f})", color=NOTE)
                bar: Any = figure.colorbar(image, cax=axes.inset_axes((1.04, 0, 0.05, 1)))
                bar.outline.set_visible(False)
                bar.ax.tick_params(length=2)
        which = "with random weights" if random else "trained"
        figure.suptitle(f"Layers of the language model against each other, {which}", fontsize=10)
        return settled(figure)


def _floor(study: Study, names: Sequence[str]) -> float:
    """Where the colours of all maps begin: at the smallest score of the trained network, rounded down to a tenth."""
    scores = [(layout, published.SCORES[name][at]) for name in names for at, layout in enumerate(LAYOUTS)]
    least = min(each.value for layout, score in scores for each in study.of("within", layout, score))
    return float(np.floor(10 * np.clip(least, 0.0, 0.9)) / 10)


def _map(scores: Sequence[Score], depth: int, of: Callable[[Score], float]) -> Array:
    found = np.zeros((depth, depth))
    for each in scores:
        one, other = (int(name.partition(".")[2]) - 1 for name in (each.left, each.right))
        found[one, other] = found[other, one] = of(each)
    return found


def partners(study: Study, layout: str) -> Figure:
    """Table 2 as bars: in the thesis's layout beside chance, word by word beside random networks."""
    names: list[str] = []
    found: list[Score] = []
    for name, scores in published.SCORES.items():
        score = scores[list(LAYOUTS).index(layout)]
        for one, other in ((1, 1), (1, 2), (2, 1), (2, 2)):
            names.append(f"{name}: tagger {one} – LM {other}")
            found.append(study.one("between", layout, score, f"tagger.{one}", f"lm.{other}"))
    thesis = layout == "thesis"
    marks = [each.chance if thesis else each.random for each in found]
    return bars(
        names,
        np.array([each.value for each in found]),
        null=np.array([0.0 if mark is None else mark for mark in marks]),
        low=None if thesis else np.array([each.value if each.low is None else each.low for each in found]),
        high=None if thesis else np.array([each.value if each.high is None else each.high for each in found]),
        title=f"Tagger and language model, {LAYOUTS[layout]}",
        label="score",
        chance="chance: one side dealt out at random"
        if thesis
        else "the highest score of random networks, in place of one side or of both",
        width=WIDTH,
    )


def curves(study: Study, kind: str, lefts: Sequence[str], which: str, *, title: str) -> Figure:
    """Scores over the epochs, a line for each layer, in both layouts, beside chance and random networks."""
    held = {
        f"{name}, {told}": [study.curve(kind, layout, published.SCORES[name][at], left) for left in lefts]
        for name in CURVES[which]
        for at, (layout, told) in enumerate(LAYOUTS.items())
    }
    steps = tuple(each.left_epoch for each in next(iter(held.values()))[0])
    axes = {"measure": tuple(held), "layer": tuple(_called(name) for name in lefts), "step": steps}

    def cells(of: Callable[[Score], float]) -> Array:
        return np.array([[[of(each) for each in curve] for curve in several] for several in held.values()])

    beside = np.array(
        [[curve[0].random_left or curve[0].random_both or 0.0 for curve in each] for each in held.values()]
    )
    groups = len(study.facts["groups"]["words"])
    result = Convergence(
        axes=axes,
        values=cells(lambda each: each.value),
        null=cells(lambda each: each.chance),
        low=cells(lambda each: each.value if each.low is None else each.low),
        high=cells(lambda each: each.value if each.high is None else each.high),
        resampled=f"{groups} document groups (jackknife, 95%), word by word alone",
        provenance=Provenance("studies.thesis"),
        tables={"random model": Table({name: axes[name] for name in ("measure", "layer")}, {"value": beside})},
    )
    figure = convergence_curves(result, width=WIDTH)
    figure.suptitle(title, fontsize=10)
    for axes in figure.axes:
        axes.set_xlabel(axes.get_xlabel().replace("step", "epoch"))
    for text in (text for legend in figure.legends for text in legend.get_texts()):
        if text.get_text() == result.chance:
            text.set_text("chance: one side dealt out at random")
    return figure


def _called(name: str) -> str:
    return name.replace("lm.", "LM ").replace("tagger.", "tagger ")
