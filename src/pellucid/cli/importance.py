"""`pellucid importance`: which attention heads a model needs for its task."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table
from pellucid.written import number

if TYPE_CHECKING:
    from pellucid.heads import HeadImportance

EXAMPLES = """Examples: pellucid importance zoo:sentiment --corpus reviews.tsv -o weighed ;
pellucid importance zoo:lm --corpus grammar:100 --methods gradient,zero --json"""
SHOWN = 10


def register(app: typer.Typer) -> None:
    app.command(name="importance", epilog=EXAMPLES)(spread(importance))


@dataclass(frozen=True)
class Measuring:
    """How heads are measured, named as `heads.importance` names it."""

    task: Annotated[
        str | None,
        typer.Option(help="lm, mlm, tagger, classify, nli, qa or translate (default: what the model's head is for)."),
    ] = None
    label: Annotated[
        str | None, typer.Option(help="The corpus's label to predict (default: the one with the model's classes).")
    ] = None
    batch: Annotated[int, typer.Option(min=1, help="Rows that are measured together.")] = 32
    length: Annotated[int | None, typer.Option(min=4, help="The most tokens of a row (default: the model's).")] = None
    rows: Annotated[str, typer.Option(help="What a row is: sentences, or stream for a running text.")] = "sentences"
    random: Annotated[bool, typer.Option("--random/--no-random", help="Also measure a randomly initialised model.")] = (
        True
    )
    lrp_sentences: Annotated[int, typer.Option(min=1, help="Sentences that lrp looks at: it is slow.")] = 50
    bleu_sentences: Annotated[
        int, typer.Option(min=2, help="Sentences that bleu translates anew without each head: it is slow.")
    ] = 50
    seed: Annotated[int, typer.Option(min=0, help="Of the random model, and of the words that mlm hides.")] = 0


def importance(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    methods: Annotated[
        str,
        typer.Option(
            help="Some of confidence, gradient, zero, mean, lrp (which has a notice: see docs/lrp.md) and bleu (of "
            "translators), with commas."
        ),
    ] = "confidence,gradient,zero,mean",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the page; it must be new or empty.")
    ] = None,
    *,
    measuring: Measuring,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Weigh every attention head of a model: what its task loses without it, and how far other methods agree.

    With grouped queries a head is a query head. Heads are named LAYER.HEAD, after encoder, decoder or cross.
    """
    from pellucid.heads import importance as weigh
    from pellucid.heads.weighing.importance import checked_methods
    from pellucid.report.importance import write_importance
    from pellucid.saving import check_free

    if out is not None:
        check_free(out)
    names = checked_methods([name.strip() for name in methods.split(",") if name.strip()])
    read, opened = shape.open(corpus), opening.open(model)
    result = weigh(
        opened,
        read,
        methods=names,
        **asdict(measuring),
    )
    command = shlex.join(["pellucid", *sys.argv[1:]])
    result = replace(result, provenance=replace(result.provenance, command=command))
    page = None if out is None else write_importance(out, result, title=opened.name, command=command)
    if json:
        print_json(result.to_json())
        return
    _print(result)
    if page is not None:
        console().print(f"Open this file in a browser: {page.resolve()}")


def _print(result: HeadImportance) -> None:
    """The first heads by the last method asked for, what was measured, and how far the methods agree."""
    measures = [str(name) for name in result.axes["measure"]]
    assert result.null is not None
    rank = result.table("ranks").columns["rank"]
    order = result.ranking(measures[-1])[:SHOWN]
    rows = [
        (
            head,
            *(f"{_cell(result, at, head)} ({rank[at][result.place('head', head)]:g})" for at in range(len(measures))),
        )
        for head in order
    ]
    chance = ("chance (mean)", *(f"{row.mean():.3g}" for row in result.null))
    title = f"{result.title}: the first {len(order)} of {len(result.axes['head'])} by {measures[-1]} (rank in brackets)"
    print_table(["head", *measures], [*rows, chance], title=title, right=measures)
    if "agreement" in result.tables:
        _print_agreement(result)
    from pellucid.report.importance import told_beyond

    for line in told_beyond(result):
        console().print(line)
    if "task" in result.tables:
        table = result.table("task")
        for at, name in enumerate(table.axes["measure"]):
            value, guess = (number(float(table.columns[column][at]), digits=4) for column in ("value", "chance"))
            console().print(f"{table.columns['task'][at]}: {name} {value} as the model is; guessing: {guess}")
    for name in measures:
        console().print(f"{name}: {result.measures[name]}")
    console().print(f"chance: {result.chance}")
    console().print(f"interval: {result.resampled}")
    for told in ("note", "lrp note", "notice"):
        if told in result.provenance.arguments:
            console().print(f"{told}: {result.provenance.arguments[told]}")


def _cell(result: HeadImportance, at: int, head: str) -> str:
    place = result.place("head", head)
    value = f"{result.values[at, place]:.3g}"
    if result.low is None or result.high is None:
        return value
    return f"{value} ±{(result.high[at, place] - result.low[at, place]) / 2:.1g}"


def _print_agreement(result: HeadImportance) -> None:
    columns = result.agreement.columns

    def told(kind: str, at: int) -> str:
        if f"{kind} low" not in columns:
            return f"{columns[kind][at]:.2f}"
        return f"{columns[kind][at]:.2f} ({columns[f'{kind} low'][at]:.2f} to {columns[f'{kind} high'][at]:.2f})"

    rows = [
        (str(columns["first"][at]), str(columns["second"][at]), told("spearman", at), told("kendall", at))
        for at in range(len(columns["first"]))
    ]
    names = ["Spearman's ρ", "Kendall's τ"]
    print_table(["method", "beside", *names], rows, title="Agreement of ranks (chance: 0)", right=names)
