"""`pellucid neurons probe` and `evaluate`: what can be told from neurons, and whether a ranking can be believed."""

from __future__ import annotations

import shlex
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json
from pellucid.cli.neurons import ConceptOption, Pooling, Seed, SitesOption, group
from pellucid.errors import PellucidError, listing

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.neurons import Ranking
    from pellucid.results import Result

PROBE = """Examples: pellucid neurons probe zoo:tagger --corpus grammar:300 --concept upos ;
pellucid neurons probe zoo:lm --corpus dev.conllu --concept upos=NOUN --penalty l1 --sites resid.* -o probed"""

EVALUATE = """Examples: pellucid neurons evaluate zoo:tagger --corpus grammar:300 --concept upos --sites neurons.* ;
pellucid neurons evaluate zoo:mlm --corpus dev.conllu --concept upos --method probe-l2 --ways anew,layers -o judged"""
WAYS = ("model", "probe", "anew", "layers", "sites")

Out = Annotated[Path | None, typer.Option("--out", "-o", help="A folder for the results; it must be new or empty.")]


def register(app: typer.Typer) -> None:
    group(app).command(name="probe", epilog=PROBE)(spread(probe))
    group(app).command(name="evaluate", epilog=EVALUATE)(spread(evaluate))


@dataclass(frozen=True)
class Training:
    """How a probe is trained, named as `neurons.probe` names it."""

    penalty: Annotated[str, typer.Option(help="elastic, l1, l2 or none.")] = "elastic"
    l1: Annotated[float, typer.Option(min=0, help="Weight of Σ|w| on the mean loss.")] = 1e-3
    l2: Annotated[float, typer.Option(min=0, help="Weight of Σw²/2 on the mean loss.")] = 1e-3
    seeds: Annotated[int, typer.Option(min=1, max=10, help="Probes, each without another tenth of the documents.")] = 3
    epochs: Annotated[int, typer.Option(min=1, help="The most passes over the words.")] = 60
    fewest: Annotated[int, typer.Option(min=2, help="Words that a class needs; rarer ones are left out.")] = 20


def probe(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    concept: ConceptOption,
    sites: SitesOption = None,
    out: Out = None,
    pooling: Pooling = "mean",
    seed: Seed = 0,
    *,
    training: Training,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Train a linear probe of a concept, beside majority, a random model and a control task."""
    from pellucid.neurons import probe as probed
    from pellucid.saving import check_free

    if out is not None:
        check_free(out)
    read, opened = shape.open(corpus), opening.open(model)
    found = probed(
        opened,
        read,
        concept=concept,
        sites=sites,
        penalty=training.penalty,
        l1=training.l1,
        l2=training.l2,
        seeds=training.seeds,
        epochs=training.epochs,
        fewest=training.fewest,
        pooling=pooling,
        seed=seed,
    )
    _give({"probe": found, "ranking": found.ranking()}, out, json)


def evaluate(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    concept: ConceptOption,
    method: Annotated[str, typer.Option(help="How neurons are ranked.")] = "probeless",
    ways: Annotated[
        str,
        typer.Option(
            help="Some of model (ablate in the model), probe (ablate in a probe), anew (train on the first neurons), "
            "layers (a probe per site) and sites (where the first neurons stand), with commas."
        ),
    ] = "probe,anew,sites",
    sites: SitesOption = None,
    out: Out = None,
    seed: Seed = 0,
    epochs: Annotated[int, typer.Option(min=1, help="The most passes of a probe over the words.")] = 60,
    fewest: Annotated[int, typer.Option(min=2, help="Words that a class needs; rarer ones are left out.")] = 20,
    *,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Judge a ranking of neurons: its first neurons beside its last, and beside random ones.

    Neurons are ranked on one half of the documents and judged on the other.
    """
    from pellucid.neurons import rank
    from pellucid.saving import check_free

    chosen = [name.strip() for name in ways.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in WAYS]
    if unknown or not chosen:
        raise PellucidError(f"There is no way {listing(unknown)} to judge a ranking; there are {listing(WAYS)}.")
    if out is not None:
        check_free(out)
    read, opened = shape.open(corpus), opening.open(model)
    ranking = rank(opened, read.shard(0, 2), concept=concept, methods=method, sites=sites, seed=seed)[method]
    made = _judged(opened, read.shard(1, 2), ranking, chosen, concept, sites, seed, epochs, fewest)
    _give({"ranking": ranking, **made}, out, json)


def _judged(
    model: Model,
    corpus: Corpus,
    ranking: Ranking,
    ways: list[str],
    concept: str,
    sites: list[str] | None,
    seed: int,
    epochs: int,
    fewest: int,
) -> dict[str, Result]:
    """The results of all ways asked for; what reads rows reads one store."""
    from pellucid import neurons
    from pellucid.neurons.probing.material import Reading, kept

    made: dict[str, Result] = {}
    if "model" in ways:
        made["model"] = neurons.ablated_in_model(model, corpus, ranking, seed=seed)
    if "sites" in ways:
        made["sites"] = neurons.distribution(ranking, min(50, len(ranking.neurons)))
    if not {"probe", "anew", "layers"} & set(ways):
        return made
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        store = kept(model, corpus, Path(folder) / "store", Reading(sites, seed=seed), "layers" in ways)
        if "probe" in ways:
            made["probe"] = neurons.ablated_in_probe(
                store, ranking, concept=concept, seed=seed, epochs=epochs, fewest=fewest
            )
        if "anew" in ways:
            made["anew"] = neurons.trained_anew(
                store, ranking, concept=concept, seed=seed, epochs=epochs, fewest=fewest
            )
        if "layers" in ways:
            made["layers"] = neurons.per_layer(store, concept=concept, seed=seed, epochs=epochs, fewest=fewest)
    return made


def _give(made: dict[str, Result], out: Path | None, json: bool) -> None:
    """Saves results under the command that made them, and prints them."""
    from pellucid.cli._result import print_result

    command = shlex.join(["pellucid", *sys.argv[1:]])
    told = {name: replace(each, provenance=replace(each.provenance, command=command)) for name, each in made.items()}
    if out is not None:
        out.mkdir(exist_ok=True)
        for name, each in told.items():
            each.save(out / name)
    if json:
        print_json({name: each.to_json() for name, each in told.items()})
        return
    for name, each in told.items():
        console().print(f"[{name}]", style="bold", markup=False)
        print_result(each)
    if out is not None:
        console().print(f"Saved in {out}; look at one with: pellucid show {out / next(iter(told))}")
