"""`pellucid report`: one HTML file on what a model does with a text."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli import _sweeping as sweeping
from pellucid.cli._groups import spread
from pellucid.cli._print import console

if TYPE_CHECKING:
    from pellucid.heads import Pruning

EXAMPLES = """Examples: pellucid report ./my-model --corpus notes.txt -o my-report ;
pellucid report zoo:lm --corpus grammar:500 --quick"""


def register(app: typer.Typer) -> None:
    app.command(name="report", epilog=EXAMPLES)(spread(report))


def report(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")] = Path(
        "report"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Read at most the first 200 sentences.")] = False,
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Also read the text with a randomly initialised model.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of the control model and of all that is drawn at random.")] = 0,
    long: sweeping.Long = "window",
    sweep: Annotated[
        Path | None, typer.Option(help="Keep the pass over the text here, to go on after an interruption.")
    ] = None,
    pruning: Annotated[
        Path | None, typer.Option(help="The folder that `pellucid prune` made of this model, to be shown too.")
    ] = None,
    *,
    running: sweeping.Running,
    shape: corpora.CorpusShape,
    opening: options.Opening,
) -> None:
    """Write a report on a model: what it is, what its heads and neurons do, and what chance would have given."""
    from pellucid.report import report as write_report
    from pellucid.saving import check_free

    check_free(out)
    known = None if pruning is None else _pruning(pruning)
    read = shape.open(corpus)
    opened = opening.open(model)
    with nullcontext() if sweep is None else options.resumable(sweep):
        page = write_report(
            opened,
            read,
            out,
            quick=quick,
            control=control,
            seed=seed,
            long=long,
            sweep_folder=sweep,
            **asdict(running),
            command=shlex.join(["pellucid", *sys.argv[1:]]),
            pruning=known,
            say=teller(),
        )
    console().print(f"The report is in {page}")


def _pruning(folder: Path) -> Pruning:
    """The result in a folder that `pellucid prune` made, or that is the result's own."""
    from pellucid.heads import Pruning

    inside = folder / "result"
    return Pruning.load(inside if inside.is_dir() else folder)


def teller() -> Callable[[str], None]:
    """A function that says on standard error what is being written, where someone looks."""
    screen = console(stderr=True)
    return lambda title: screen.print(f"Writing: {title}") if screen.is_terminal else None
