"""The page on how a network learned: curves of its layers, maps of single epochs, two runs, and heads over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.report.cells import beside, resampling
from pellucid.report.comparison import show_grid
from pellucid.report.html import number, share
from pellucid.report.page import Written, page
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from pellucid.results import Array, Coordinate, Result
    from pellucid.similarity import Convergence, EpochByEpoch, SimilarityGrid

PAGE = "dynamics.html"
MOST_ROWS = 400


@dataclass(frozen=True, eq=False)
class Heads:
    """Attention weights on one sentence: its tokens, and [heads, tokens, tokens] by epoch and site."""

    tokens: tuple[str, ...]
    patterns: Mapping[int, Mapping[str, Array]]

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites of the first epoch."""
        return tuple(next(iter(self.patterns.values()), {}))


@dataclass(frozen=True, eq=False)
class Learned:
    """What the page shows: curves of each score, maps by epoch, and for two runs their curves and last maps."""

    curves: Sequence[Convergence]
    grids: Mapping[int, SimilarityGrid]
    between: Sequence[EpochByEpoch] = ()
    last: SimilarityGrid | None = None
    heads: Heads = field(default_factory=lambda: Heads((), {}))


def write_dynamics(
    folder: Path, learned: Learned, *, title: str, about: str, notes: Sequence[str], command: str
) -> Path:
    """A folder with dynamics.html, and results, tables and figures beside it; whole or not at all."""
    with whole_folder(folder) as work:
        written: list[Written] = []

        def add(heading: str, explanation: str, show: Callable[[Sheet], None]) -> None:
            sheet = Sheet(work, command)
            show(sheet)
            written.append(Written.filled(heading, explanation, sheet))

        for curve in learned.curves:
            add(
                f"Layers and the last epoch: {_measure(curve)}",
                "How alike each layer already is, at each epoch, to what it will be at the last.",
                lambda sheet, curve=curve: _show_curve(sheet, curve),
            )
        for curve in learned.between:
            add(
                f"Two runs: {_measure(curve)}",
                "How alike the same layer of both runs is at each epoch.",
                lambda sheet, curve=curve: _show_between(sheet, curve),
            )
        if learned.last is not None:
            last = learned.last
            add(
                "Two runs: every pair of layers",
                "The last epoch of the first run (left) and of the second (right).",
                lambda sheet: show_grid(sheet, last, name="last-epochs"),
            )
        for epoch, grid in learned.grids.items():
            add(
                f"Layers of epoch {epoch}",
                "Every layer with every other, over the whole validation text.",
                lambda sheet, epoch=epoch, grid=grid: show_grid(sheet, grid, name=f"epoch-{epoch:04d}"),
            )
        if learned.heads.sites:
            add("Heads over time", _HEADS, lambda sheet: _show_heads(sheet, learned.heads))
        (work / PAGE).write_text(page(title, about, notes, written), encoding="utf-8")
        (work / "command.txt").write_text(command + "\n", encoding="utf-8", errors="replace")
    return folder / PAGE


_HEADS = (
    "What each head looks at in one sentence. In each small picture a row is a token that looks, a column one that is "
    "looked at."
)


def _measure(result: Result) -> str:
    return str(result.axes["measure"][0])


def _show_curve(sheet: Sheet, result: Convergence) -> None:
    measure, layers, steps = _measure(result), result.axes["layer"], result.axes["step"]
    name = f"convergence-{measure.replace(':', '-')}"
    sheet.result(result, name=name)
    freezing = result.table("freezing").columns
    settled = [str(step) for step in freezing["step"][0].tolist()]
    spared = [float(value) for value in freezing["spared"][0]]
    sheet.text(
        f"{_settling([str(layer) for layer in layers], settled, spared)} At epoch {steps[0]} the layers score "
        f"{number(float(result.values[0, :, 0].min()))} to {number(float(result.values[0, :, 0].max()))} with the last "
        "epoch."
    )
    sheet.figure(
        result.plot(width=WIDTH),
        name=name,
        caption=f"{resampling(result)}. Chance: {result.chance}.",
        alt=f"Curves of {measure} with the last epoch, a line for each of {len(layers)} layers.",
    )
    random = result.tables.get("random model")
    rows = [
        (
            str(layer),
            number(float(result.values[0, at, 0])),
            "not known" if random is None else number(float(random.columns["value"][0, at])),
            number(float(freezing["level"][0, at])),
            settled[at],
            share(spared[at]),
        )
        for at, layer in enumerate(layers)
    ]
    heads = ["layer", f"at epoch {steps[0]}", "before training", "level", "could be frozen from epoch", "epochs spared"]
    sheet.table(
        heads, rows, caption=str(result.table("rule").columns["rule"][0]), name=f"{name}-freezing", right=heads[1:]
    )


def _settling(layers: Sequence[str], settled: Sequence[str], spared: Sequence[float]) -> str:
    """Which layer is first what it will be, and which last, in a sentence."""
    if not any(spared):
        return "No layer settles before the last epoch."
    order = sorted(range(len(layers)), key=lambda at: -spared[at])
    first, last = order[0], order[-1]
    if spared[first] == spared[last]:
        return f"All layers settle at epoch {settled[first]}."
    told = f"{layers[first]} settles first, from epoch {settled[first]} on"
    late = f"from epoch {settled[last]} on" if spared[last] else "not before the last epoch"
    return f"{told}; {layers[last]} last, {late}."


def _show_between(sheet: Sheet, result: EpochByEpoch) -> None:
    measure, layers, steps = _measure(result), result.axes["layer"], result.axes["step"]
    name = f"between-{measure.replace(':', '-')}"
    sheet.result(result, name=name)
    final = result.values[0, :, -1]
    sheet.text(
        f"At epoch {steps[-1]} the same layer of both runs scores from {number(float(final.max()))} "
        f"({layers[int(final.argmax())]}) down to {number(float(final.min()))} ({layers[int(final.argmin())]})."
    )
    sheet.figure(
        result.plot(width=WIDTH),
        name=name,
        caption=f"{resampling(result)}. Chance: {result.chance}.",
        alt=f"Curves of {measure} between two runs, a line for each of {len(layers)} layers.",
    )
    rows = [
        (str(layer), str(step), *beside(result, (0, at, place)))
        for at, layer in enumerate(layers)
        for place, step in enumerate(steps)
    ]
    heads = ["layer", "epoch", measure, "95% interval", "chance"]
    if len(rows) <= MOST_ROWS:
        sheet.table(heads, rows, caption="Every number of this figure.", right=heads[1:], fold="All numbers")


def _show_heads(sheet: Sheet, heads: Heads) -> None:
    from pellucid.views.heads_over_time import heads_over_time

    sheet.text("The sentence: ", " ".join(heads.tokens))
    for site in heads.sites:
        steps: dict[Coordinate, Array] = {epoch: each[site] for epoch, each in heads.patterns.items()}
        sheet.figure(
            heads_over_time(steps, heads.tokens, name=site, width=WIDTH),
            name=f"heads-{site.replace('.', '-')}",
            caption=f"{site} at epoch {', '.join(map(str, steps))}.",
            alt=f"Attention of every head of {site}, one row of pictures for each epoch.",
        )
