"""`pellucid prune`: which heads a model can do without, and the model without them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli._command import command_line
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table
from pellucid.written import number

if TYPE_CHECKING:
    from pellucid.heads import Pruning
    from pellucid.model import Model

EXAMPLES = """\b
Examples:
gates for every head of a judge of sentiment, learned on labelled sentences
  pellucid prune zoo:sentiment --corpus train.tsv --columns text,label --valid dev.tsv -o smaller
all three kinds of heads of a translator, weights trained as well
  pellucid prune my-translator --corpus train.en+train.de --format parallel --tune -o smaller
no more than 8 heads of a language model
  pellucid prune zoo:lm --corpus grammar:500 --heads 8 -o smaller"""


@dataclass(frozen=True)
class Training:
    """How gates are trained, named as `heads.GateSettings` names it."""

    strength: Annotated[float, typer.Option(help="λ: the price of an open head, in nats per goal.")] = 0.1
    schedule: Annotated[str, typer.Option(help="How λ is reached: linear, constant or steps.")] = "linear"
    epochs: Annotated[int, typer.Option(min=1, help="How often the corpus is read.")] = 3
    batch: Annotated[int, typer.Option(min=1, help="Rows of one step.")] = 32
    rate: Annotated[float, typer.Option(help="Learning rate of the gates.")] = 0.1
    tune: Annotated[
        bool, typer.Option("--tune", help="Train the weights as well; the end of the training is what is kept.")
    ] = False
    tune_rate: Annotated[float, typer.Option(help="Learning rate of the weights.")] = 5e-5
    points: Annotated[int, typer.Option(min=1, help="Points of the curve, at most.")] = 12
    seed: Annotated[int, typer.Option(min=0, help="Of gates and of random orders.")] = 0


@dataclass(frozen=True)
class Choosing:
    """How many heads are kept, and what their choice is held against."""

    heads: Annotated[
        int | None, typer.Option(min=0, help="Keep at most so many heads (with grouped queries: query heads).")
    ] = None
    keep: Annotated[
        float | None,
        typer.Option(help="Or: as few as keep this share of what the model is better than chance (default: 0.95)."),
    ] = None
    order: Annotated[
        str | None,
        typer.Option(help="All heads with commas, the most important first (default: gradient importance)."),
    ] = None
    functions: Annotated[
        Path | None,
        typer.Option(help="A saved heads.functions result: survivors are counted by function."),
    ] = None
    draws: Annotated[int, typer.Option(min=1, help="Random orders to compare with.")] = 5

    def given(self) -> dict[str, Any]:
        """The choice as `heads.prune` takes it."""
        from pellucid.heads import HeadFunctions

        return {
            "heads": self.heads,
            "keep": self.keep,
            "order": None if self.order is None else [name.strip() for name in self.order.split(",")],
            "functions": None if self.functions is None else HeadFunctions.load(self.functions),
            "draws": self.draws,
        }


def register(app: typer.Typer) -> None:
    app.command(name="prune", epilog=EXAMPLES)(spread(prune))


def prune(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; an unfinished one is gone on with.")],
    task: Annotated[
        str | None,
        typer.Option(help="lm, mlm, tagger, translate, classify, qa or nli (default: what the model's head is for)."),
    ] = None,
    valid: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Text to choose by and measure on (default: every tenth document)."),
    ] = None,
    test: Annotated[
        str | None, typer.Option(metavar="FILE", help="Text to measure on instead, so that nothing was chosen by it.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="The corpus's label to predict (tagger, classify, nli).")] = None,
    rows: Annotated[str, typer.Option(help="A row is one of the sentences, or a piece of the stream.")] = "sentences",
    length: Annotated[int | None, typer.Option(min=4, help="Longest row, in tokens.")] = None,
    *,
    choosing: Choosing,
    training: Training,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Find out which heads a model can do without, and write the model without them.

    The folder gets the smaller model (model, for Model.load), the result (result) and a page (page/pruning.html).
    """
    from pellucid.heads import GateSettings
    from pellucid.heads import prune as find

    read = shape.open(corpus)
    chosen = choosing.given()
    settings = GateSettings(**vars(training))
    others = [None if each is None else shape.open(each) for each in (valid, test)]
    opened = opening.open(model)
    command = command_line()
    with options.resumable(out):
        result = find(
            opened,
            read,
            task,
            settings=settings,
            valid=others[0],
            test=others[1],
            folder=out,
            label=label,
            rows=rows,
            length=length,
            progress=True,
            command=command,
            **chosen,
        )
    _finish(opened, result, out, command, json=json)


def _finish(model: Model, result: Pruning, out: Path, command: str, *, json: bool) -> None:
    """Writes the page, and prints what was found and where it is."""
    from pellucid.heads.pruning.smaller import saved_in
    from pellucid.report.pruning import PAGE, sentences, write_pruning

    notes, costs = _notes(model, out)
    if not (out / "page").exists():
        write_pruning(out / "page", result, title=model.name, command=command, notes=notes)
    if json:
        saved = saved_in(out / "model")
        told = {"hugging_face": None if saved is None else saved.hugging_face}
        print_json({**result.to_json(), "model": {**told, **costs}})
        return
    _print(result)
    screen = console()
    for line in [*sentences(result), *notes]:
        screen.print(line)
    screen.print(f"Open this file in a browser: {(out / 'page' / PAGE).resolve()}", soft_wrap=True)


def _notes(model: Model, out: Path) -> tuple[list[str], dict[str, int]]:
    """What the smaller model costs beside the whole one, and how it was saved; or why it was not."""
    from pellucid.heads.pruning.smaller import cost, saved_in
    from pellucid.model import Model

    saved = saved_in(out / "model")
    if saved is None:
        refused = out / "not-removed.txt"
        why = refused.read_text(encoding="utf-8").strip() if refused.is_file() else "No head was closed."
        return [f"There is no smaller model: {why}"], {}
    less = cost(Model.load(saved.folder, device=str(model.device), attention=model.attention))
    more = cost(model)
    form = (
        "an ordinary Hugging Face folder"
        if saved.hugging_face
        else f"opened with Model.load, not by transformers alone: {saved.reason}"
    )
    told = (
        f"The smaller model has {less.parameters:,} of {more.parameters:,} weights and takes "
        f"{less.flops / more.flops:.0%} of the operations of a short pass."
    )
    numbers = {
        "parameters": less.parameters,
        "whole_parameters": more.parameters,
        "flops": less.flops,
        "whole_flops": more.flops,
    }
    return [told, f"It is in {saved.folder} ({form})."], numbers


def _print(result: Pruning) -> None:
    """A row for every number of heads."""
    methods = [str(method) for method in result.axes["method"]]
    rows = [
        (str(count), *(_cell(result, method, at) for method in range(len(methods))))
        for at, count in enumerate(result.axes["heads"])
    ]
    assert result.null is not None
    chance = ("chance", *(number(float(result.null[0, 0]), digits=4) for _ in methods))
    print_table(
        ["heads left", *methods],
        [*rows, chance],
        title=f"{result.title}: {result.score}",
        right=["heads left", *methods],
    )
    console().print(f"interval: {result.resampled}")


def _cell(result: Pruning, method: int, at: int) -> str:
    parts = [part for part in (result.values, result.low, result.high) if part is not None]
    value, *ends = (number(float(part[method, at]), digits=4) for part in parts)
    return f"{value} ({' to '.join(ends)})" if ends else value
