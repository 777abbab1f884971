"""`pellucid neurons probe` and `evaluate`: what can be told from neurons, and whether a ranking can be believed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli._careful import careful, without
from pellucid.cli._groups import spread
from pellucid.cli._neuron_concepts import check_class, check_halves, concept_of
from pellucid.cli._neuron_options import (
    Class,
    ConceptOption,
    Epochs,
    Fewest,
    Memory,
    Methods,
    OptionalCorpus,
    Out,
    Pooling,
    Seed,
    Seeds,
    SitesOption,
    SourceArgument,
    fewest_of,
    group,
    memory_of,
)
from pellucid.cli._neuron_results import check_out, check_twin, give, reading, source_of, training
from pellucid.cli._print import console
from pellucid.errors import PellucidError, listing

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.neurons import Concept, Ranking
    from pellucid.results import Result

PROBE = """Examples: pellucid neurons probe zoo:tagger --corpus grammar:300 --concept upos ;
pellucid neurons probe zoo:lm --corpus dev.conllu --concept upos=NOUN --penalty l1 --sites resid.* -o probed ;
pellucid neurons probe kept-store --concept upos=NOUN --sites neurons.1 --memory 0.5"""

EVALUATE = """Examples: pellucid neurons evaluate zoo:tagger --corpus grammar:300 --concept upos --sites neurons.* ;
pellucid neurons evaluate zoo:mlm --corpus dev.conllu --concept upos --method probeless --method iou --ways model,anew
-o judged"""
WAYS = ("model", "probe", "anew", "layers", "sites", "explained")
USUAL = ("model", "probe", "anew", "sites")
"""Ways of judging unless some are named; that in the model falls away, with a word, where it has no task."""
PROBED = {"probe": "The probe", "ranking": "The ranking by its weights"}
HEADINGS = {
    "ranking": "The ranking",
    "model": "Its neurons removed in the model",
    "probe": "Its neurons removed in a probe",
    "anew": "Probes trained anew on some of its neurons",
    "sites": "Its first neurons by site",
    "explained": "Answers where explained neurons fire",
    "layers": "A probe for every site",
    "agreement": "Agreement of the rankings",
}
"""Headings of what is told of a ranking, and of several."""
FIRST = 50
"""Neurons that count as the first ones where sites and rankings are compared."""


def register(app: typer.Typer) -> None:
    group(app).command(name="probe", epilog=PROBE)(spread(probe))
    group(app).command(name="evaluate", epilog=EVALUATE)(spread(evaluate))


@dataclass(frozen=True)
class Training:
    """How a probe is trained, named as `neurons.probe` names it."""

    penalty: Annotated[str, typer.Option(help="elastic, l1, l2 or none.")] = "elastic"
    l1: Annotated[float, typer.Option(min=0, help="Weight of Σ|w| on the mean loss.")] = 1e-3
    l2: Annotated[float, typer.Option(min=0, help="Weight of Σw²/2 on the mean loss.")] = 1e-3
    seeds: Seeds = 3
    epochs: Epochs = 60
    fewest: Fewest = 20
    memory: Memory = None

    def given(self) -> dict[str, Any]:
        """The options as `neurons.probe` takes them."""
        told = {**asdict(self), "memory": memory_of(self.memory)}
        return {name: value for name, value in told.items() if value is not None}


def probe(
    model: SourceArgument,
    concept: ConceptOption,
    corpus: OptionalCorpus = None,
    sites: SitesOption = None,
    out: Out = None,
    pooling: Pooling = None,
    seed: Seed = 0,
    *,
    learning: Training,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Train a linear probe of a concept, beside majority, a random model and a control task.

    MODEL may be a store that `pellucid store build --control` made, which is read without the model.
    """
    from pellucid.collect.store import Store
    from pellucid.neurons import probe as probed

    check_out(out)
    source, read = source_of(model, corpus, shape, opening)
    check_twin(source, method := ["probe-elastic"])
    asked = concept_of(concept, read, pooling, store=source if isinstance(source, Store) else None)
    with careful():
        found = probed(
            source,
            read,
            concept=asked,
            sites=sites,
            pooling=pooling,
            seed=seed,
            **learning.given(),
            **training(source, method, opening),
        )
    text = found.provenance.corpus["name"]
    about = f"What a probe of {concept} tells from the neurons over {text}."
    give({"probe": found, "ranking": found.ranking()}, out, json, model=model, about=about, headings=PROBED)


@dataclass(frozen=True)
class Judging:
    """How a ranking is judged."""

    counts: Annotated[
        list[int] | None,
        typer.Option("--count", min=1, help="Neurons of a curve (may be repeated; default: 1% to 50%)."),
    ] = None
    draws: Annotated[int, typer.Option(min=1, help="Draws of random neurons.")] = 3
    replacement: Annotated[str, typer.Option(help="In the model: neurons become zero, or their mean.")] = "zero"
    cls: Class = None
    modelled: Annotated[
        int, typer.Option(min=0, help="Sentences that the model itself answers (model, explained); 0: all that judge.")
    ] = 200
    seeds: Seeds = 3
    epochs: Epochs = 60
    fewest: Fewest = 20

    def check(self) -> None:
        """Raises where neurons cannot be replaced as asked."""
        from pellucid.neurons.judging.ablating import REPLACEMENTS

        if self.replacement not in REPLACEMENTS:
            raise PellucidError(f"There is no --replacement {self.replacement!r}; there are {listing(REPLACEMENTS)}.")

    def check_counts(self, model: Model, sites: list[str] | None) -> None:
        """Raises where curves ask for more neurons than the sites have."""
        from pellucid.model.sites import expand
        from pellucid.neurons.judging.evaluation import numbers
        from pellucid.neurons.sources import usual_sites

        chosen = expand(sites or usual_sites(model.sites), model.sites)
        numbers(self.counts or None, sum(prod(model.size(site)) for site in chosen))

    def in_model(self, corpus: Corpus) -> Corpus:
        """The sentences that the model itself answers."""
        return corpus.take(self.modelled) if self.modelled else corpus


def evaluate(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    concept: ConceptOption,
    method: Methods = None,
    ways: Annotated[
        str | None,
        typer.Option(
            help="Some of model (ablate in the model), probe (ablate in a probe), anew (train on the first neurons), "
            "layers (a probe per site), sites (where the first neurons stand) and explained (is the model right more "
            "often where neurons of a high score fire, meant for --method iou), with commas (default: all but layers "
            "and explained; model where it has a task)."
        ),
    ] = None,
    sites: SitesOption = None,
    out: Out = None,
    pooling: Pooling = None,
    seed: Seed = 0,
    *,
    judging: Judging,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Judge rankings of neurons: their first neurons beside their last, and beside random ones.

    Neurons are ranked on one half of the documents and judged on the other.
    """
    from pellucid.neurons import agreement, rank
    from pellucid.neurons.judging.apart import OTHER_CLASSES
    from pellucid.neurons.ranking import by_site
    from pellucid.neurons.scores import FEW

    chosen = _ways(ways)
    check_out(out)
    judging.check()
    read = shape.open(corpus)
    if next(iter(read.shard(1, 2)), None) is None:
        raise PellucidError(
            f"{read.name} has a single document, and rankings are made on one half of the documents and judged on the "
            "other; give a text with several."
        )
    asked = concept_of(concept, read, pooling)
    halves = read.shard(0, 2), read.shard(1, 2)
    check_class(asked, judging.cls, read)
    least = min(FEW, judging.fewest)
    one_sided = check_halves(asked, judging.cls, read.name, halves, least=least)
    opened, methods = opening.open(model), method or ["probeless"]
    judging.check_counts(opened, sites)
    if not {"model", "explained"}.isdisjoint(chosen):
        _check_task(chosen, opened, judging.in_model(halves[1]), seed, asked=ways is not None)
    if one_sided:
        console(stderr=True).print(f"Careful: {one_sided}", markup=False)
    with careful():
        found = rank(
            opened, halves[0], concept=asked, methods=methods, sites=sites, pooling=pooling, seed=seed,
            least=least, **fewest_of(methods, judging.fewest), **reading(opened, methods),
            **training(opened, methods, opening),
        )  # fmt: skip
        first = next(iter(found.values()))
        judge = _Judge(opened, halves[1], asked, list(by_site(first.neurons)), pooling, seed, judging)
        with judge.folder, without(OTHER_CLASSES) if one_sided else nullcontext():
            made = judge.all_results(found, chosen)
    if len(found) > 1:
        made["agreement"] = agreement(found, k=min(FIRST, len(first.neurons)), cls=judging.cls, seed=seed)
    about = (
        f"Rankings of neurons for {concept}, made on one half of the documents of {read.name} and judged on the other."
    )
    give(made, out, json, model=model, about=about, headings=_headings(found))


def _headings(found: Iterable[str]) -> dict[str, str]:
    """The headings of what can be told of rankings of these names, of one alone or of several."""
    several = {
        f"{name}-{way}": f"{name}: {told[0].lower()}{told[1:]}" for name in found for way, told in HEADINGS.items()
    }
    return {**HEADINGS, **several}


def _ways(given: str | None) -> list[str]:
    """The ways that are named; an unknown one raises."""
    chosen: list[str] = list(USUAL) if given is None else [name.strip() for name in given.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in WAYS]
    if unknown or not chosen:
        raise PellucidError(f"There is no way {listing(unknown)} to judge a ranking; there are {listing(WAYS)}.")
    return chosen


def _check_task(chosen: list[str], model: Model, corpus: Corpus, seed: int, *, asked: bool) -> None:
    """Leaves judging in the model out, with a word, where it has no task on this text; raises where it was asked for.

    So it is known before the text is read.
    """
    from pellucid.errors import CorpusError, ModelError
    from pellucid.heads.weighing.measuring import measured

    try:
        measured(model, corpus, None, seed=seed)
    except (CorpusError, ModelError) as error:
        if asked:
            raise
        console(stderr=True).print(f"The ranking is not judged in the model: {error}", markup=False)
        chosen.remove("model")


@dataclass(eq=False)
class _Judge:
    """Judges rankings of the same neurons on one text; what reads rows reads one store, made when it is needed."""

    model: Model
    corpus: Corpus
    concept: Concept
    sites: list[str]
    pooling: str | None
    seed: int
    judging: Judging
    folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="pellucid-")
    )

    @cached_property
    def store(self) -> Store:
        """The rows of the words that judge, of the model and of its random twin."""
        from pellucid.collect.sentence_rows import is_whole
        from pellucid.neurons.probing.material import Reading, kept

        read = Reading(self.sites, seed=self.seed, pooling=self.pooling)
        text = self.corpus.labelled(self.concept) if is_whole(read.how) else self.corpus
        return kept(self.model, text, Path(self.folder.name) / "store", read, True)

    def all_results(self, found: Mapping[str, Ranking], ways: list[str]) -> dict[str, Result]:
        """What every ranking is worth, under its method's name where there are several, and a probe per site."""
        made: dict[str, Result] = {}
        for name, ranking in found.items():
            prefix = f"{name}-" if len(found) > 1 else ""
            made |= {f"{prefix}{key}": each for key, each in self.results(ranking, ways).items()}
        return {**made, "layers": self.layers()} if "layers" in ways else made

    def results(self, ranking: Ranking, ways: list[str]) -> dict[str, Result]:
        """The ranking, and the results of all ways asked for."""
        from pellucid import neurons
        from pellucid.neurons.probing.training import device_beside

        told = self.judging
        made: dict[str, Result] = {"ranking": ranking}
        curve: dict[str, Any] = {"cls": told.cls, "counts": told.counts or None, "draws": told.draws, "seed": self.seed}
        trained: dict[str, Any] = {
            "concept": self.concept,
            "sites": self.sites,
            "seeds": told.seeds,
            "epochs": told.epochs,
            "fewest": told.fewest,
            "device": device_beside(self.model),
        }
        if "model" in ways:
            made["model"] = neurons.ablated_in_model(
                self.model, told.in_model(self.corpus), ranking, replacement=told.replacement, **curve
            )
        if "explained" in ways:
            made["explained"] = neurons.explained_accuracy(
                ranking, self.model, told.in_model(self.corpus), seed=self.seed
            )
        if "probe" in ways:
            made["probe"] = neurons.ablated_in_probe(self.store, ranking, **curve, **trained)
        if "anew" in ways:
            made["anew"] = neurons.trained_anew(self.store, ranking, **curve, **trained)
        if "sites" in ways:
            made["sites"] = neurons.distribution(
                ranking, min(FIRST, len(ranking.neurons)), cls=told.cls, seed=self.seed
            )
        return made

    def layers(self) -> Result:
        """A probe on every site."""
        from pellucid import neurons
        from pellucid.neurons.probing.training import device_beside

        told = self.judging
        return neurons.per_layer(
            self.store, concept=self.concept, seed=self.seed, seeds=told.seeds, epochs=told.epochs, fewest=told.fewest,
            device=device_beside(self.model),
        )  # fmt: skip
