"""`pellucid heads`: what each attention head of a model looks for."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli import _sweeping as sweeping
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus
    from pellucid.heads import HeadAlignment, HeadClusters, HeadFunctions
    from pellucid.model import Model

EXAMPLES = """Examples: pellucid heads zoo:mlm --corpus grammar:500 -o heads ;
pellucid heads zoo:tagger --corpus dev.conllu --syntactic 0.05 --json"""


def register(app: typer.Typer) -> None:
    app.command(name="heads", epilog=EXAMPLES)(spread(heads))


@dataclass(frozen=True)
class Rules:
    """From where on a head has a function, named as `heads.functions` names it."""

    positional: Annotated[float, typer.Option(help="Share of largest weights at one offset.")] = 0.9
    syntactic: Annotated[float, typer.Option(help="How far above the best fixed offset a relation must be.")] = 0.1
    rare: Annotated[
        float, typer.Option(help="Share of sentences most of whose words find the rarest word in sight.")
    ] = 0.5
    rare_times: Annotated[float, typer.Option(help="The same, in times of chance.")] = 3.0
    sink: Annotated[float, typer.Option(help="Share of attention on special tokens and the first position.")] = 0.5
    induction: Annotated[float, typer.Option(help="Share of largest weights on what followed before.")] = 0.5
    duplicate: Annotated[float, typer.Option(help="Share of largest weights on the same word elsewhere.")] = 0.5
    level: Annotated[float, typer.Option(help="Significance against shuffled positions, after correction.")] = 0.05
    least: Annotated[int, typer.Option(min=1, help="Words that an offset or relation needs to be tested.")] = 20
    beyond: Annotated[float, typer.Option(help="How much better than the best random head that passes the rule.")] = 0.1


def heads(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the page; it must be new or empty.")
    ] = None,
    side: Annotated[
        str, typer.Option(help="Of an encoder–decoder: source (the encoder's heads) or target (the decoder's).")
    ] = "source",
    weights: Annotated[
        str, typer.Option(help="raw, or effective: attention without the part that has no effect on a head's output.")
    ] = "raw",
    random: Annotated[
        bool,
        typer.Option("--random/--no-random", help="Also read a randomly initialised model, to compare with."),
    ] = True,
    alike: Annotated[
        bool, typer.Option("--clusters/--no-clusters", help="Also group heads by how alike their attention is.")
    ] = True,
    label: Annotated[str, typer.Option(help="The label of words by which attention is also summed.")] = "upos",
    long: sweeping.Long = "window",
    sweep: Annotated[
        Path | None, typer.Option(help="Keep the pass over the text here, to go on after an interruption.")
    ] = None,
    *,
    rules: Rules,
    running: sweeping.Running,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Find what each attention head does: fixed offsets, syntax, rare words, sinks, induction, repeated words.

    With grouped queries a head is a query head. Without arcs or repeated words, what cannot be told is named. Heads
    that look from one text at another (cross-attention) have none of these functions.
    """
    from contextlib import nullcontext

    from pellucid.collect.sweep import sweep as run
    from pellucid.heads import functions, head_collectors
    from pellucid.heads.roles.clusters import cluster_collector
    from pellucid.model.twin import twin_of
    from pellucid.saving import check_free

    if out is not None:
        check_free(out)
    read, opened = shape.open(corpus), opening.open(model)
    with nullcontext() if sweep is None else options.resumable(sweep):
        collectors = head_collectors(opened, label=label, side=side, weights=weights)
        if alike:
            collectors = (*collectors, cluster_collector(opened, side=side, weights=weights))
        twin = twin_of(opened) if random else None
        models = [opened] if twin is None else [opened, twin]
        found = run(models, read, collectors, folder=sweep, long=long, side=side, **asdict(running))
    command = shlex.join(["pellucid", *sys.argv[1:]])
    result = functions(found, **asdict(rules), weights=weights)
    result = replace(result, provenance=replace(result.provenance, command=command))
    page = None if out is None else _page(out, result, found, opened, read, side=side, command=command)
    if json:
        print_json(result.to_json())
        return
    _print(result)
    if page is not None:
        console().print(f"Open this file in a browser: {page.resolve()}")


def _page(
    out: Path, result: HeadFunctions, found: Found, model: Model, corpus: Corpus, *, side: str, command: str
) -> Path:
    """The page with functions, shapes, alignment, statistics, clusters and examples to open."""
    from pellucid.heads import shapes, statistics
    from pellucid.heads.roles.examples import examples
    from pellucid.heads.roles.sweeping import weights_of
    from pellucid.report.heads import write_heads

    weights, shown = weights_of(result), examples(model, corpus, result, found.corpus_words, side=side)
    aligned, absent = _aligned(found, weights)
    return write_heads(
        out,
        result,
        shapes(found, weights=weights),
        aligned,
        model=model,
        found=shown,
        command=command,
        side=side,
        statistics=statistics(found, weights=weights),
        clusters=_clusters(found, weights),
        absent=absent,
    )


def _clusters(found: Found, weights: str) -> tuple[HeadClusters, int] | None:
    """Clusters of heads, and the number of which each so many-th word was read; None where they were not asked for."""
    from pellucid.collect.divergence import HeadDivergence
    from pellucid.heads import clusters

    read = [each for each in found.collectors.values() if isinstance(each, HeadDivergence)]
    return (clusters(found, weights=weights), read[0].every) if read else None


def _aligned(found: Found, weights: str) -> tuple[list[tuple[str, str, HeadAlignment]], list[str]]:
    """Attention by layer on tags and on syntactic neighbours, as far as the corpus has them, and why not the others."""
    from pellucid.heads import alignment
    from pellucid.results import ResultError

    made: list[tuple[str, str, HeadAlignment]] = []
    absent: list[str] = []
    for of, what in (("tags", "parts of speech"), ("relations", "syntactic neighbours")):
        try:
            made.append((f"head_{of}", what, alignment(found, of=of, weights=weights)))
        except ResultError as error:
            absent.append(f"Attention on {what} is not shown: {error}")
    return made, absent


def _print(result: HeadFunctions) -> None:
    """A row for every head with a function, what was skipped, and what chance is."""
    from pellucid.heads.roles.sweeping import told_weights

    assert result.null is not None
    labels, tests = result.table("labels").columns, result.table("tests").columns["corrected"]
    rows: list[tuple[str, ...]] = []
    for name, functions in result.labels.items():
        layer, _, head = name.rpartition(".")
        place = [str(each) for each in result.axes["layer"]].index(layer), int(head)
        for function in functions:
            at = result.place("measure", function), *place
            own = {"positional": labels["offset"], "syntactic": labels["relation"]}.get(function)
            told = "" if own is None else str(own[place])
            numbers = f"{result.values[at]:.3f}", f"{result.null[at]:.3f}", f"{tests[at]:.2g}"
            rows.append((name, function, told, *numbers))
    right = ["score", "chance", "corrected p"]
    title = f"{len(result.labels)} of {int(result.present.sum())} heads have a function"
    if rows:
        print_table(["head", "function", "offset or relation", *right], rows, title=title, right=right)
    else:
        console().print(title)
    if result.beside_random:
        console().print(result.beside_random)
    skipped = result.table("skipped").columns
    for name, why in zip(skipped["function"].tolist(), skipped["why"].tolist(), strict=True):
        console().print(f"not tried: {name}, because {why}")
    console().print(told_weights(result))
    console().print(f"chance: {result.chance}; p corrected after Holm; interval: {result.resampled}")
