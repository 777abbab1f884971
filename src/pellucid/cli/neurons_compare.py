"""`pellucid neurons compare`: how far rankings agree, how stable they are, and what they say of classes and layers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli._careful import careful
from pellucid.cli._groups import spread
from pellucid.cli._neuron_concepts import check_class, concept_of
from pellucid.cli._neuron_options import METHODS, Class, OptionalCorpus, Out, Pooling, Seed, SitesOption, group
from pellucid.cli._neuron_rankings import saved
from pellucid.cli._neuron_results import check_out, give, reading
from pellucid.cli._print import console
from pellucid.errors import PellucidError, listing

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.neurons import Concept, Ranking
    from pellucid.results import Result

COMPARE = """Examples: pellucid neurons compare ranked/probeless ranked/iou -o compared ; pellucid neurons compare
--model zoo:tagger --corpus grammar:300 --concept upos --method probeless --method iou --method precision --parts 4 ;
pellucid neurons compare one-model/precision other-model/precision"""
USUAL = ("probeless", "selectivity", "iou", "precision")
"""Methods that are compared unless some are named: those that need one pass."""
TOGETHER = {
    "agreement": "Agreement of the rankings",
    "vote": "A vote of all rankings",
    "experts": "Experts of single classes",
}
"""Headings of what all rankings tell together."""
APART = {
    "stability": "stability over documents",
    "where": "its first neurons by site",
    "spread": "neurons per class",
    "polysemy": "classes per neuron",
}
"""Headings of what every ranking or method tells for itself, after its name."""


def register(app: typer.Typer) -> None:
    group(app).command(name="compare", epilog=COMPARE)(spread(compare))


def compare(
    rankings: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RANKING…]", help="Folders of saved rankings, or folders that hold some."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Rank with this model now, instead of saved rankings.")] = None,
    corpus: OptionalCorpus = None,
    concept: Annotated[str | None, typer.Option(help="The concept to rank for, as in `pellucid neurons rank`.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            help=f"With --model: {METHODS} (may be repeated; default: {', '.join(USUAL)}).",
        ),
    ] = None,
    sites: SitesOption = None,
    top: Annotated[int, typer.Option(min=1, help="Neurons that count as the first ones.")] = 50,
    cls: Class = None,
    bar: Annotated[float, typer.Option(help="Average precision from which a neuron is an expert.")] = 0.9,
    parts: Annotated[
        int, typer.Option(min=0, help="With --model: rank so many disjoint parts of the documents too; 0: none.")
    ] = 4,
    pooling: Pooling = None,
    seed: Seed = 0,
    out: Out = None,
    *,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Compare rankings: agreement, a vote, stability over documents, layers, classes per neuron, experts.

    Agreement and the vote need rankings of the same neurons; shares of experts, those by average precision. With
    --class, rankings without an order of it (Gaussians, or another concept's) are left out where it counts.
    """
    check_out(out)
    if bool(rankings) == (model is not None):
        raise PellucidError("Give folders of saved rankings, or --model, --corpus and --concept to rank now; not both.")
    with careful():
        if model is None:
            found = saved(rankings or [])
            again = {name: each for name, each in _by_method(found).items() if len(each) > 1}
        else:
            if corpus is None or concept is None:
                raise PellucidError("Ranking with --model needs --corpus and --concept too.")
            read = shape.open(corpus)
            asked = concept_of(concept, read, pooling)
            check_class(asked, cls, read)
            found, again = _ranked(
                opening.open(model), read, asked, method or list(USUAL), parts,
                sites=sites, pooling=pooling, seed=seed,
            )  # fmt: skip
        made = compared(found, again, top=top, cls=cls, bar=bar, seed=seed)
    about = f"{len(found)} rankings compared: {listing(found, most=20)}."
    models = dict.fromkeys(each.provenance.models[0]["name"] for each in found.values())
    give(made, out, json, model=" and ".join(models), about=about, headings=_headings([*found, *again]))


def _headings(names: Iterable[str]) -> dict[str, str]:
    """The headings of all that rankings of these names can tell."""
    return {**TOGETHER, **{f"{name}-{part}": f"{name}: {told}" for name in names for part, told in APART.items()}}


def _ranked(
    model: Model, corpus: Corpus, concept: Concept, methods: list[str], parts: int, **settings: Any
) -> tuple[dict[str, Ranking], dict[str, list[Ranking]]]:
    """Rankings of all documents by method, and those of disjoint parts of them (without a control model each)."""
    from pellucid.neurons import RANKINGS, rank
    from pellucid.neurons.scores import FEW

    how: dict[str, Any] = {**settings, "least": FEW, **reading(model, methods)}
    found = rank(model, corpus, concept=concept, methods=methods, **how)
    if parts < 2:
        return found, {}
    streamed = any(RANKINGS[name].gather is not None for name in methods)
    again = [
        rank(model, corpus.shard(part, parts), concept=concept, methods=methods, control=not streamed, **how)
        for part in range(parts)
    ]
    return found, {name: [each[name] for each in again] for name in found}


def _by_method(found: Mapping[str, Ranking]) -> dict[str, list[Ranking]]:
    """Saved rankings by one method, of the same neurons of one model and the same concept, each of another text.

    They are called by the method, and by what else tells them apart: concept, sites, model.
    """
    groups: dict[tuple[object, ...], dict[str, Ranking]] = {}
    for each in found.values():
        text, models = str(each.provenance.corpus.get("fingerprint")), each.provenance.models[:1]
        model = tuple(one.get("fingerprint") for one in models)
        groups.setdefault((each.method, each.concept, frozenset(each.neurons), model), {})[text] = each
    several = [list(texts.values()) for texts in groups.values() if len(texts) > 1]
    told = [_parts(rankings[0]) for rankings in several]
    made: dict[str, list[Ranking]] = {}
    for parts, rankings in zip(told, several, strict=True):
        alike = [other for other in told if other[0] == parts[0]]
        apart = [part for at, part in enumerate(parts) if at == 0 or len({other[at] for other in alike}) > 1]
        name = re.sub(r"[^\w.,=+-]+", "_", "-".join(apart))  # it becomes the name of a folder
        numbers = (f"{name}-{number}" for number in count(2))
        made[name if name not in made else next(each for each in numbers if each not in made)] = rankings
    return made


def _parts(ranking: Ranking) -> tuple[str, str, str, str]:
    """What rankings are told apart by, in words: method, concept, sites and model."""
    from pellucid.neurons.ranking import by_site

    sites = sorted(by_site(ranking.neurons))
    shown = "+".join(sites) if len(sites) < 3 else f"{sites[0]}+{len(sites) - 1}_more"
    model = str(ranking.provenance.models[0]["name"]) if ranking.provenance.models else ""
    return ranking.method, ranking.concept, shown, model


def compared(
    found: Mapping[str, Ranking],
    again: Mapping[str, list[Ranking]],
    *,
    top: int,
    cls: str | None,
    bar: float,
    seed: int,
) -> dict[str, Result]:
    """All that several rankings tell; what a ranking cannot tell is left out with a word."""
    from pellucid import neurons

    made: dict[str, Result] = {}
    few = min(top, *(len(each.neurons) for each in found.values()))
    same = len({frozenset(each.neurons) for each in found.values()}) == 1
    able = _with_class(found, cls)
    if len(found) > 1 and not same:
        _left_out("agreement", "the rankings are of different neurons")
    elif len(able) > 1:
        made["agreement"] = neurons.agreement(able, k=few, cls=cls, seed=seed)
        made["vote"] = neurons.vote(able, cls=cls, seed=seed)
    elif len(found) > 1:
        _left_out("agreement", f"it takes two rankings that have an order of {cls!r}")
    for name, rankings in again.items():
        made[f"{name}-stability"] = neurons.stability(rankings, counts=(5, 10, 20, few), seed=seed)
    for name, each in found.items():
        if name in able:
            made[f"{name}-where"] = neurons.distribution(each, few, cls=cls, seed=seed)
        made[f"{name}-spread"] = neurons.spread(each)
        if len(each.classes) > 1:
            try:
                made[f"{name}-polysemy"] = neurons.polysemy(each, min(few, max(1, len(each.neurons) // 50)), seed=seed)
            except PellucidError as error:
                _left_out(f"classes per neuron of {name}", str(error))
    precise = {name: each for name, each in found.items() if each.method == "precision"}
    if precise:
        try:
            made["experts"] = neurons.expert_share(precise, bar=bar)
        except PellucidError as error:
            _left_out("experts", str(error))
    return made


def _with_class(found: Mapping[str, Ranking], cls: str | None) -> dict[str, Ranking]:
    """The rankings that have an order of a class, the others left out with a word; a class that none has raises."""
    able: dict[str, Ranking] = {}
    reasons: dict[str, PellucidError] = {}
    for name, each in found.items():
        try:
            each.scores(cls)
        except PellucidError as error:
            reasons[name] = error
        else:
            able[name] = each
    for name, error in reasons.items():
        if not able:
            raise error
        _left_out(f"agreement, vote and sites of {name}", str(error))
    return able


def _left_out(what: str, reason: str) -> None:
    console(stderr=True).print(f"Left out: {what}: {reason}", markup=False)
