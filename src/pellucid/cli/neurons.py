"""`pellucid neurons`: which neurons carry a concept, and what single neurons respond to."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli import _sweeping as sweeping
from pellucid.cli._careful import careful
from pellucid.cli._groups import spread
from pellucid.cli._neuron_results import OptionalCorpus, Out, Scoring, SourceArgument, give, reading, source_of
from pellucid.cli._print import console, print_json, print_table

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.neurons import NeuronReading, Ranking

RANK = """Examples: pellucid neurons rank zoo:tagger --corpus grammar:300 --concept upos=NOUN ;
pellucid neurons rank zoo:lm --corpus dev.conllu --concept upos --method probeless --sites neurons.* -o ranked ;
pellucid neurons rank kept-store --concept upos=NOUN --method iou --exact --quantile 0.9"""

SHOW = """Examples: pellucid neurons show zoo:tagger --corpus grammar:300 --neuron neurons.1:5 ;
pellucid neurons show zoo:tagger --corpus grammar:300 --concept upos=NOUN --top 6 -o neurons"""

ConceptOption = Annotated[
    str,
    typer.Option(
        help="upos, upos=NOUN, upos=NOUN,VERB, words:FILE, pattern:REGEX, property:length, pair:overlap, arc:nsubj, "
        "sentence:label."
    ),
]
Methods = Annotated[list[str] | None, typer.Option("--method", help="How to rank (may be repeated).")]
SitesOption = Annotated[list[str] | None, typer.Option(help="Sites (may be repeated; default: resid.* and neurons.*).")]
Pooling = Annotated[
    str,
    typer.Option(
        help="What a row is: a word from its sub-words (mean, first, last), or a whole sentence (sentence-mean, "
        "sentence-max, sentence-first, sentence-last)."
    ),
]
_CONTEXTS = 5
Seed = Annotated[int, typer.Option(help="Seed of the control model and of all draws.")]


def register(app: typer.Typer) -> None:
    group(app).command(name="rank", epilog=RANK)(spread(rank))
    group(app).command(name="show", epilog=SHOW)(spread(show))


def group(app: typer.Typer) -> typer.Typer:
    """The group of commands about neurons, which several modules fill; made where it is not there yet."""
    made = [each.typer_instance for each in app.registered_groups if each.name == "neurons"]
    if made and made[0] is not None:
        return made[0]
    new = typer.Typer(help="Find the neurons that carry a concept, and see what they respond to.", no_args_is_help=True)
    app.add_typer(new, name="neurons")
    return new


def rank(
    model: SourceArgument,
    concept: ConceptOption,
    corpus: OptionalCorpus = None,
    method: Methods = None,
    sites: SitesOption = None,
    top: Annotated[int, typer.Option(min=1, help="Neurons to print of each method.")] = 15,
    out: Out = None,
    control: Annotated[bool, typer.Option(help="Read the text with a randomly initialised model too.")] = True,
    pooling: Pooling = "mean",
    preset: Annotated[str | None, typer.Option(help="neurox: that library's own arithmetic, of a store.")] = None,
    seed: Seed = 0,
    long: sweeping.Long = "window",
    *,
    scoring: Scoring,
    running: sweeping.Running,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Rank every neuron by how strongly it carries a concept, beside chance and a model that learned nothing.

    MODEL may be a store that `pellucid store build` made, which is read without the model.
    """
    from pellucid.neurons import Concept
    from pellucid.neurons import rank as ranked
    from pellucid.saving import check_free

    if out is not None:
        check_free(out)
    asked, methods = Concept.parse(concept), method or ["probeless"]
    source, read = source_of(model, corpus, shape, opening)
    with careful():
        made = ranked(
            source,
            read,
            concept=asked,
            methods=methods,
            sites=sites,
            control=control,
            pooling=pooling,
            preset=preset,
            seed=seed,
            **scoring.given(),
            **reading(source, methods, running, long),
        )
    about = f"Neurons ranked for {asked.name}."
    give(made, out, json, model=model, about=about, tell=lambda _, each: print_ranking(each, top),
         dump=lambda each: _told(each, top))  # fmt: skip


def show(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    neuron: Annotated[
        list[str] | None, typer.Option(help="A neuron, as neurons.3:17 (may be repeated; default: by --concept).")
    ] = None,
    concept: Annotated[str | None, typer.Option(help="Rank by this concept first, and show its first neurons.")] = None,
    method: Methods = None,
    sites: SitesOption = None,
    top: Annotated[int, typer.Option(min=1, help="Neurons to show of the first ranking.")] = 8,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the page; it must be new or empty.")
    ] = None,
    cut: Annotated[float, typer.Option(help="Neurons of a site go together while 1 − |ρ| is at most this.")] = 0.5,
    effects: Annotated[
        int, typer.Option(min=0, help="Sentences on which each neuron is ablated, beside random ones; 0: none.")
    ] = 60,
    seed: Seed = 0,
    long: sweeping.Long = "window",
    *,
    running: sweeping.Running,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Show what single neurons fire on (contexts, words, coloured text, classes), their group and their effect."""
    from pellucid.errors import PellucidError
    from pellucid.neurons import rank as ranked
    from pellucid.neurons import read as read_neurons
    from pellucid.saving import check_free

    if not neuron and concept is None:
        raise PellucidError("Name the neurons to show (--neuron neurons.3:17), or a concept whose first ones to show.")
    if out is not None:
        check_free(out)
    text, opened = shape.open(corpus), opening.open(model)
    settings: dict[str, Any] = {**asdict(running), "long": long}
    with careful():
        rankings = (
            {}
            if concept is None
            else ranked(
                opened,
                text,
                concept=concept,
                methods=method or ["probeless"],
                sites=sites,
                seed=seed,
                **reading(opened, method or ["probeless"], running, long),
            )
        )
    first = next(iter(rankings.values()), None)
    names = list(neuron or []) or (first.top(min(top, len(first.neurons))) if first is not None else [])
    result = read_neurons(opened, text, neurons=names, concept=concept, cut=cut, seed=seed, **settings)
    result = _with_effects(result, opened, text.take(effects) if effects else None, seed)
    command = shlex.join(["pellucid", *sys.argv[1:]])
    result = replace(result, provenance=replace(result.provenance, command=command))
    page = None
    if out is not None:
        from pellucid.report.neurons import write_neurons

        page = write_neurons(out, result, rankings, model=opened.name, command=command)
    if json:
        print_json(result.to_json())
        return
    for name in names:
        _print_neuron(result, name)
    if page is not None:
        console().print(f"Open this file in a browser: {page.resolve()}")


def _with_effects(result: NeuronReading, model: Model, corpus: Corpus | None, seed: int) -> NeuronReading:
    """The reading with what answers lose without each neuron; as it is where the model has no task on this text."""
    from pellucid.errors import CorpusError, ModelError
    from pellucid.neurons import effects

    if corpus is None:
        return result
    try:
        table = effects(model, corpus, result.neurons, seed=seed)
    except (CorpusError, ModelError) as error:
        console(stderr=True).print(f"Effects are left out: {error}", markup=False)
        return result
    return replace(result, tables={**result.tables, "effects": table})


def _print_neuron(result: NeuronReading, name: str) -> None:
    """A neuron's numbers, its words and its strongest contexts."""
    assert result.null is not None
    place = result.place("neuron", name)
    told = {column: array[place] for column, array in result.table("activity").columns.items()}
    rows = [
        (str(measure), f"{result.values[at, place]:.3f}", f"{result.null[at, place]:.3f}")
        for at, measure in enumerate(result.axes["measure"])
    ]
    title = f"{name}: {told['kind']}, mean {told['mean']:.3g}, sd {told['sd']:.3g}"
    print_table(["responds to", "value", "chance"], rows, title=title, right=["value", "chance"])
    words = [f"{row['word']} ({row['mean z']:+.1f})" for row in result.rows_of("words", name)]
    console().print(f"words (mean z): {', '.join(words)}")
    if "effects" in result.tables:
        for row in result.rows_of("effects", name):
            console().print(f"without it ({row['replacement']}): answers lose {row['lost']:.2%} of their probability, "
                            f"loss {row['loss']:+.4f}; random neurons {row['random']:.2%}, {row['random loss']:.4f}",
                            markup=False)  # fmt: skip
    mates = [row for row in result.rows_of("mates", name) if row["size"] > 1] if "mates" in result.tables else []
    if mates:
        told = ", ".join(f"{row['mate']} ({row['correlation']:+.2f})" for row in mates[:_CONTEXTS])
        console().print(f"goes with {mates[0]['size'] - 1} of its site: {told}", markup=False)
    for row in [row for row in result.rows_of("contexts", name) if row["end"] == "largest"][:_CONTEXTS]:
        console().print(f"  {row['activation']:8.3f}  {row['left']}[{row['word']}]{row['right']}", markup=False)


def _told(result: Ranking, top: int) -> dict[str, object]:
    """The first neurons of a ranking as JSON holds them, across classes and for every class."""
    names = result.top(min(top, len(result.neurons)))
    return {
        "title": result.title,
        "concept": result.concept,
        "chance": result.chance,
        "resampled": result.resampled,
        "neurons": [_row(result, name, None) for name in names],
        "classes": {
            cls: [_row(result, name, cls) for name in result.top(min(top, len(result.neurons)), cls)]
            for cls in result.classes_apart
        },
    }


def _row(result: Ranking, name: str, cls: str | None) -> dict[str, object]:
    """One neuron's numbers, for a class or across classes."""
    place = result.place("neuron", name)
    if cls is None:
        return {"neuron": name, **{part: float(column[place]) for part, column in result.overall.columns.items()}}
    at = result.place("class", cls), place
    parts = {"score": result.values, "null": result.null, "low": result.low, "high": result.high}
    return {"neuron": name, **{part: float(array[at]) for part, array in parts.items() if array is not None}}


def print_ranking(result: Ranking, top: int) -> None:
    """The first neurons across classes, and the first of every class."""
    names = result.top(min(top, len(result.neurons)))
    columns = [name for name in ("score", "null", "low", "high") if name in result.overall.columns]
    rows = [
        [name, *(f"{_row(result, name, None)[column]:.4g}" for column in columns), _best(result, name)]
        for name in names
    ]
    heads = ["chance" if name == "null" else name for name in columns]
    print_table(["neuron", *heads, "best class"], rows, title=result.title, right=heads)
    few = [
        [cls, ", ".join(_signed(result, name, cls) for name in result.top(min(5, len(result.neurons)), cls))]
        for cls in result.classes_apart
    ]
    if few:
        print_table(["class", "its first neurons (− is silent for it)"], few)
    console().print(f"score: {result.score}")
    if result.null is not None:
        console().print(f"chance: {result.chance}")
    console().print(f"interval: {result.resampled}")


def _best(result: Ranking, name: str) -> str:
    import numpy as np

    if not result.classes_apart:
        return "all at once"
    place = result.place("neuron", name)
    best = int(np.abs(result.values[:, place]).argmax())
    return f"{'+' if result.values[best, place] >= 0 else '−'} {result.classes[best]}"


def _signed(result: Ranking, name: str, cls: str) -> str:
    negative = result.values[result.place("class", cls), result.place("neuron", name)] < 0
    return f"{'−' if negative else ''}{name}"
