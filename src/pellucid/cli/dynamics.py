"""`pellucid dynamics`: how a network learned, layer by layer, and how alike two trainings are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli._careful import careful
from pellucid.cli._command import command_line
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.report.dynamics import Heads, Learned
    from pellucid.results import Result
    from pellucid.similarity import Convergence
    from pellucid.train.dynamics import Dynamics

EXAMPLES = """Examples: pellucid dynamics run -o learned ;
pellucid dynamics run other-run --metrics cka,svcca -o compared"""
_SHOWN = 4


def register(app: typer.Typer) -> None:
    app.command(name="dynamics", epilog=EXAMPLES)(spread(dynamics))


def dynamics(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN [OTHER]", help="The folder of a training, or of two on the same text.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")],
    metrics: Annotated[str, typer.Option(help="Scores, with commas between: cka, svcca, pwcca, rbf-cka …")] = "cka",
    epochs: Annotated[
        str | None,
        typer.Option(
            help="Epochs of the maps and the head pictures: 0,1,10 (default: four over the run); with --exact, also "
            "those of the curves (default: all that were saved)."
        ),
    ] = None,
    sentence: Annotated[
        str | None, typer.Option(help="The sentence of the head pictures; another than the kept one needs checkpoints.")
    ] = None,
    heads: Annotated[bool, typer.Option("--heads/--no-heads", help="Pictures of every head over time.")] = True,
    intervals: Annotated[bool, typer.Option("--intervals", help="Intervals of all scores, not of CKA alone.")] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Run the saved checkpoints again over the whole text (needs --corpus).")
    ] = False,
    corpus: Annotated[
        str | None, typer.Option("--corpus", metavar="FILE", help="With --exact: the validation text of the training.")
    ] = None,
    *,
    shape: corpora.CorpusShape,
    json: options.Json = False,
) -> None:
    """See how a network learned: when each layer became what it is, its layers at single epochs, and its heads."""
    from pellucid.report.dynamics import write_dynamics
    from pellucid.saving import check_free
    from pellucid.similarity.metrics import chosen
    from pellucid.train.dynamics import Dynamics
    from pellucid.train.folder import clear_beside

    check_free(out)
    clear_beside(out)
    scores = [metric.name for metric in chosen(metrics)]
    _check(runs, exact=exact, corpus=corpus)
    text = None if corpus is None else shape.open(corpus)
    opened = [Dynamics.open(run) for run in runs]
    notes: list[str] = []
    screen = console(stderr=True)

    def say(line: str) -> None:
        notes.append(line)
        screen.print(line)

    shown = _shown(opened[0], epochs)
    pictured = shown if sentence is None or not heads else _saved(opened[0], shown if epochs else None)
    with careful(say):
        learned = _gathered(opened, text, scores, shown, shown if epochs else None, True if intervals else None)
    learned = replace(learned, heads=_heads(opened[0], sentence, pictured)) if heads else learned
    title, about = " and ".join(each.name for each in opened), _about(opened[0], sampled=text is None)
    page = write_dynamics(out, learned, title=title, about=about, notes=notes, command=command_line())
    if json:
        print_json(_told(learned))
        return
    _print_curves(learned.curves)
    console().print(f"Open this file in a browser: {page.resolve()}")


def _check(runs: Sequence[str], *, exact: bool, corpus: str | None) -> None:
    """Raises where there are too many runs, or one of --exact and --corpus stands alone."""
    from pellucid.errors import TrainError

    if len(runs) > 2:
        raise TrainError(f"{len(runs)} runs were given; one or two can be looked at together.")
    if exact != (corpus is not None):
        raise TrainError("--exact runs checkpoints over the validation text again: give it together with --corpus.")


def _about(run: Dynamics, *, sampled: bool) -> str:
    """What the page is about: the words and epochs that it compares."""
    words = f"{run.words:,} sampled words" if sampled else "all words"
    return (
        f"How each layer came to be what it is, over {words} of {run.looks.about['corpus']['name']}; epochs "
        f"{run.epochs[0]} to {run.epochs[-1]}."
    )


def _gathered(
    opened: Sequence[Dynamics],
    text: Corpus | None,
    scores: Sequence[str],
    shown: Sequence[int],
    swept: Sequence[int] | None,
    interval: bool | None,
) -> Learned:
    """Every comparison of the page; `swept` are the checkpoints that are run again over a text, by default all."""
    from pellucid.report.dynamics import Learned

    one, other = opened[0], opened[1] if len(opened) > 1 else None
    curves = [
        one.convergence(score, interval=interval)
        if text is None
        else one.exact(text, score, epochs=swept, interval=interval)
        for score in scores
    ]
    grids = {epoch: one.grid(epoch, scores[0], interval=interval) for epoch in shown}
    if other is None:
        return Learned(curves, grids)
    between = [
        one.between(other, score, interval=interval)
        if text is None
        else one.exact_between(other, text, score, epochs=swept, interval=interval)
        for score in scores
    ]
    last = one.compare(one.epochs[-1], other.epochs[-1], scores[0], other=other, interval=interval)
    return Learned(curves, grids, between, last)


def _shown(run: Dynamics, asked: str | None) -> list[int]:
    """The epochs that maps and pictures show: those asked for, else some from the first to the last."""
    from pellucid.errors import TrainError

    if asked is None:
        return _spread(run.epochs)
    try:
        wanted = [int(part) for part in asked.split(",")]
    except ValueError:
        raise TrainError(
            f"--epochs {asked!r} are no epochs; give numbers with commas between, such as 0,1,10."
        ) from None
    for epoch in wanted:
        run.looks.look(epoch)
    return list(dict.fromkeys(wanted))


def _spread(epochs: Sequence[int]) -> list[int]:
    """A few epochs from the first to the last."""
    places = sorted({round(place * (len(epochs) - 1) / (_SHOWN - 1)) for place in range(_SHOWN)})
    return [epochs[place] for place in places]


def _saved(run: Dynamics, asked: Sequence[int] | None) -> list[int]:
    """The epochs of pictures of a new sentence, which need checkpoints: those asked for, else some that were saved."""
    from pellucid.errors import TrainError, listing
    from pellucid.train import Run

    saved = Run.open(run.folder).checkpoints()
    absent = [epoch for epoch in asked or () if epoch not in saved]
    if absent or not saved:
        those = "that of epoch" if len(saved) == 1 else "those of epochs"
        has = f"{those} {listing(saved, most=60)} alone" if saved else "none"
        raise TrainError(
            f"A --sentence of your own is read by saved checkpoints, and the run in {str(run.folder)!r} has {has}; "
            "leave --sentence out for the one that was kept of every epoch, name saved ones with --epochs, or train "
            "with --checkpoints all."
        )
    return _spread(list(saved)) if asked is None else list(asked)


def _heads(run: Dynamics, sentence: str | None, shown: Sequence[int]) -> Heads:
    """The attention of the shown epochs, on the sentence that was kept or on another one."""
    from pellucid.report.dynamics import Heads

    if sentence is None:
        return Heads(run.tokens, {epoch: run.patterns(epoch) for epoch in shown})
    found = {epoch: run.patterns_on(sentence, epoch) for epoch in shown}
    return Heads(found[shown[0]][0], {epoch: patterns for epoch, (_, patterns) in found.items()})


def _told(learned: Learned) -> dict[str, object]:
    """All results as JSON holds them."""

    def by_score(results: Sequence[Result]) -> dict[str, object]:
        return {str(each.axes["measure"][0]): each.to_json() for each in results}

    told: dict[str, object] = {
        "convergence": by_score(learned.curves),
        "grids": {str(epoch): grid.to_json() for epoch, grid in learned.grids.items()},
    }
    if learned.last is not None:
        told |= {"between": by_score(learned.between), "last": learned.last.to_json()}
    return told


def _print_curves(curves: Sequence[Convergence]) -> None:
    """A line for every score and layer: from where to where, and when it had settled."""
    rows: list[tuple[object, ...]] = []
    for each in curves:
        freezing = each.table("freezing").columns
        random = each.tables.get("random model")
        rows += [
            (
                each.axes["measure"][0],
                layer,
                "" if random is None else f"{random.columns['value'][0, at]:.3f}",
                f"{each.values[0, at, 0]:.3f}",
                f"{each.values[0, at, -2]:.3f}",
                freezing["step"][0, at],
            )
            for at, layer in enumerate(each.axes["layer"])
        ]
    steps = curves[0].axes["step"]
    heads = ["score", "layer", "before training", f"epoch {steps[0]}", f"epoch {steps[-2]}", "could be frozen from"]
    print_table(heads, rows, right=heads[2:], title=f"How alike each layer is to epoch {steps[-1]}")
