"""`pellucid neurons`: which neurons carry a concept, and what single neurons respond to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli import _sweeping as sweeping
from pellucid.cli._careful import careful
from pellucid.cli._command import command_line, under_command
from pellucid.cli._groups import spread
from pellucid.cli._neuron_concepts import concept_of
from pellucid.cli._neuron_options import (
    ConceptOption,
    Control,
    FewestRanked,
    Methods,
    OptionalCorpus,
    Out,
    Pooling,
    Scoring,
    Seed,
    SitesOption,
    SourceArgument,
    classes_of,
    group,
)
from pellucid.cli._neuron_rankings import first_of, print_ranking, ranking_told
from pellucid.cli._neuron_results import LONG, check_out, check_twin, check_ways, give, reading, source_of, training
from pellucid.cli._print import console, print_json, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.neurons import NeuronReading, Ranking

RANK = """Examples: pellucid neurons rank zoo:tagger --corpus grammar:300 --concept upos=NOUN ;
pellucid neurons rank zoo:lm --corpus dev.conllu --concept upos --method probeless --sites neurons.* -o ranked ;
pellucid neurons rank kept-store --concept upos=NOUN --method iou --exact --quantile 0.9"""

SHOW = """Examples: pellucid neurons show zoo:tagger --corpus grammar:300 --neuron neurons.1:5 ;
pellucid neurons show zoo:tagger --corpus grammar:300 --concept upos=NOUN --top 6 -o neurons ;
pellucid neurons show zoo:tagger --corpus grammar:300 --neuron neurons.1:5 --concept upos --concept property:length"""

_CONTEXTS = 5
"""Contexts that are printed of a neuron."""


def register(app: typer.Typer) -> None:
    group(app).command(name="rank", epilog=RANK)(spread(rank))
    group(app).command(name="show", epilog=SHOW)(spread(show))


def rank(
    model: SourceArgument,
    concept: ConceptOption,
    corpus: OptionalCorpus = None,
    method: Methods = None,
    sites: SitesOption = None,
    top: Annotated[int, typer.Option(min=1, help="Neurons to print of each method.")] = 15,
    out: Out = None,
    control: Control = True,
    pooling: Pooling = None,
    preset: Annotated[str | None, typer.Option(help="neurox: that library's own arithmetic, of a store.")] = None,
    seed: Seed = 0,
    long: sweeping.Long = LONG,
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
    from pellucid.collect.store import Store
    from pellucid.neurons import rank as ranked

    check_out(out)
    given = scoring.given()
    methods = method or ["probeless"]
    check_ways(methods, running, long)
    source, read = source_of(model, corpus, shape, opening, running, long)
    check_twin(source, methods if preset is None else [name for name in methods if name == "gaussian"])
    asked = concept_of(concept, read, pooling, store=source if isinstance(source, Store) else None)
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
            **given,
            **classes_of(methods if preset is None else [], scoring.fewest),
            **reading(source, methods, running, long),
            **training(source, methods if preset is None else [], opening),
        )
    about = f"Neurons ranked for {asked.name}."
    give(made, out, json, model=model, about=about, tell=lambda _, each: print_ranking(each, top),
         dump=lambda each: ranking_told(each, top))  # fmt: skip


def show(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    neuron: Annotated[
        list[str] | None, typer.Option(help="A neuron, as neurons.3:17 (may be repeated; default: by --concept).")
    ] = None,
    concept: Annotated[
        list[str] | None,
        typer.Option(help="Rank by this concept first, and show its first neurons; of more (repeated), their classes."),
    ] = None,
    method: Methods = None,
    sites: SitesOption = None,
    top: Annotated[int, typer.Option(min=1, help="Neurons to show of the first ranking.")] = 8,
    out: Out = None,
    cut: Annotated[float, typer.Option(help="Neurons of a site go together while 1 − |ρ| is at most this.")] = 0.5,
    effects: Annotated[
        int, typer.Option(min=0, help="Sentences on which each neuron is ablated, beside random ones; 0: none.")
    ] = 60,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="What a row of the ranking is, as in `pellucid neurons rank`; neurons are read word by word even "
            "where whole sentences (sentence-mean …) are ranked."
        ),
    ] = None,
    fewest: FewestRanked = None,
    seed: Seed = 0,
    long: sweeping.Long = LONG,
    *,
    running: sweeping.Running,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Show what single neurons fire on (contexts, words, coloured text, classes), their group and their effect."""
    from pellucid.collect.sentence_rows import is_whole
    from pellucid.errors import PellucidError
    from pellucid.neurons import rank as ranked
    from pellucid.neurons import read as read_neurons

    if not neuron and not concept:
        raise PellucidError("Name the neurons to show (--neuron neurons.3:17), or a concept whose first ones to show.")
    if not concept and (pooling is not None or fewest is not None):
        raise PellucidError("--pooling and --fewest are for ranking, and without --concept nothing is ranked; add one.")
    check_out(out)
    text, opened = shape.open(corpus), opening.open(model)
    asked = [concept_of(each, text, None if place else pooling) for place, each in enumerate(concept or [])]
    rankings: dict[str, Ranking] = {}
    if asked:
        methods = method or ["probeless"]
        how = reading(opened, methods, running, long)
        with careful():
            how |= training(opened, methods, opening)
            how |= classes_of(methods, fewest)
            rankings = ranked(
                opened, text, concept=asked[0], methods=methods, sites=sites, pooling=pooling, seed=seed, **how
            )
    names = neuron or first_of(next(iter(rankings.values())), top)
    settings: dict[str, Any] = {**asdict(running), "long": long}
    if pooling is not None and not is_whole(pooling):
        settings["pooling"] = pooling
    result = read_neurons(opened, text, neurons=names, concept=asked or None, cut=cut, seed=seed, **settings)
    result = under_command(_with_effects(result, opened, text.take(effects) if effects else None, seed))
    _give_reading(result, rankings, opened, out, json=json)


def _give_reading(
    result: NeuronReading, rankings: Mapping[str, Ranking], model: Model, out: Path | None, *, json: bool
) -> None:
    """Writes the page, where a folder was named, and prints every neuron, or all of it as JSON."""
    page = None
    if out is not None:
        from pellucid.report.neurons import write_neurons

        page = write_neurons(out, result, rankings, model=model.name, command=command_line())
    if json:
        print_json(result.to_json())
        return
    _print_left_out(rankings)
    for name in result.neurons:
        _print_neuron(result, name)
    if page is not None:
        console().print(f"Open this file in a browser: {page.resolve()}")


def _print_left_out(rankings: Mapping[str, Ranking]) -> None:
    """The classes that were left out of rankings, once."""
    from pellucid.neurons.rare_classes import left_out_told

    for told in dict.fromkeys(filter(None, map(left_out_told, rankings.values()))):
        console().print(told, markup=False)


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
    words = [f"“{row['word']}” ({row['mean z']:+.1f})" for row in result.rows_of("words", name)]
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
