"""`pellucid neurons compare`: how far rankings agree, how stable they are, and what they say of classes and layers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli._careful import careful
from pellucid.cli._groups import spread
from pellucid.cli._neuron_concepts import check_class, concept_of
from pellucid.cli._neuron_options import (
    METHODS,
    Class,
    FewestRanked,
    OptionalCorpus,
    Out,
    Pooling,
    Seed,
    SitesOption,
    classes_of,
    group,
)
from pellucid.cli._neuron_rankings import saved
from pellucid.cli._neuron_results import check_out, give, given, reading
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
PARTS = 4
"""Parts of the documents that are ranked as well, unless another number is given."""
TOGETHER = {
    "agreement": "Agreement of the rankings",
    "vote": "A vote of all rankings",
    "experts": "Experts of single classes",
}
"""Headings of what all rankings tell together."""
APART = {
    "stability": "stability over documents",
    "redrawn": "stability over documents drawn again",
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
    ] = PARTS,
    redraw: Annotated[
        int,
        typer.Option(
            min=0,
            help="With --model: rank documents drawn again too, so many times, from one reading; 0: none.",
        ),
    ] = 0,
    fewest: FewestRanked = None,
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
    if model is None:
        alone = {"corpus": corpus, "concept": concept, "method": method, "sites": sites, "fewest": fewest,
                 "pooling": pooling, "redraw": redraw, "parts": parts != PARTS}  # fmt: skip
        unused = [f"--{name}" for name, value in alone.items() if value] + given(shape) + given(opening)
        if unused:
            raise PellucidError(f"Saved rankings are compared as they are, so {listing(unused)} would need --model.")
    if redraw == 1:
        raise PellucidError("--redraw 1 leaves nothing to compare; use 2 or more, such as 20 (0: none).")
    drawn: dict[str, Result] = {}
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
            now = _Now(opening.open(model), read, asked, method or list(USUAL), sites, pooling, seed, fewest)
            found = now.ranked(now.methods, read)
            again = now.of_parts(found, parts) if parts > 1 else {}
            drawn = now.drawn_again(found, redraw, top) if redraw else {}
        made = compared(found, again, drawn, top=top, cls=cls, bar=bar, seed=seed)
    compares = f"{len(found)} rankings compared" if len(found) > 1 else "One ranking looked at"
    about = f"{compares}: {listing(found, most=20)}."
    models = dict.fromkeys(each.provenance.models[0]["name"] for each in found.values())
    give(made, out, json, model=" and ".join(models), about=about, headings=_headings([*found, *again]))


def _headings(names: Iterable[str]) -> dict[str, str]:
    """The headings of all that rankings of these names can tell."""
    return {**TOGETHER, **{f"{name}-{part}": f"{name}: {told}" for name in names for part, told in APART.items()}}


@dataclass(frozen=True, eq=False)
class _Now:
    """Ranks a text, its parts and its documents drawn again."""

    model: Model
    corpus: Corpus
    concept: Concept
    methods: list[str]
    sites: list[str] | None
    pooling: str | None
    seed: int
    fewest: int | None

    def ranked(self, methods: list[str], corpus: Corpus, **settings: Any) -> dict[str, Ranking]:
        """Rankings of some documents, by method."""
        from pellucid.neurons import rank

        how: dict[str, Any] = {
            "sites": self.sites, "pooling": self.pooling, "seed": self.seed, **classes_of(methods, self.fewest),
            **reading(self.model, methods), **settings,
        }  # fmt: skip
        return rank(self.model, corpus, concept=self.concept, methods=methods, **how)

    def of_parts(self, found: Mapping[str, Ranking], parts: int) -> dict[str, list[Ranking]]:
        """Rankings of disjoint parts of the documents, by method (without a control model, where one pass ranks).

        What a part has too little text for is left out with a word.
        """
        from pellucid.neurons import RANKINGS

        sites = _sites(found)
        streamed = [name for name in self.methods if RANKINGS[name].gather is not None]
        made: dict[str, list[Ranking]] = {}
        for names in (streamed, [name for name in self.methods if name not in streamed]):
            again: list[dict[str, Ranking]] = []
            try:
                for part in range(parts if names else 0):
                    corpus = self.corpus.shard(part, parts)
                    again.append(self.ranked(names, corpus, sites=sites, control=names is not streamed))
            except PellucidError as error:
                told = f"part {len(again) + 1} of {parts}: {error} Fewer --parts have more text each."
                _left_out(f"stability of {listing(names)}", told)
            else:
                made |= {name: [each[name] for each in again] for name in names}
        return made

    def drawn_again(self, found: Mapping[str, Ranking], draws: int, top: int) -> dict[str, Result]:
        """How stable rankings are over documents that are drawn again, by method; a word where that cannot be told."""
        from pellucid.neurons import resampled_stability
        from pellucid.neurons.judging.resampled import WAYS, gathering
        from pellucid.neurons.rare_classes import without_rare, words_in_sweep
        from pellucid.neurons.sources import found_in

        able = [name for name in self.methods if name in WAYS]
        if len(able) < len(self.methods):
            others = listing([name for name in self.methods if name not in able])
            _left_out(f"documents drawn again for {others}", f"only {listing(WAYS)} are made of sums over documents")
        if not able:
            return {}
        sites = _sites(found)
        read = found_in(
            self.model, self.corpus, self.concept, gathering(able), sites=sites, control=False, seed=self.seed,
            pooling=self.pooling, **reading(self.model, able),
        )  # fmt: skip
        words, least = words_in_sweep(read, self.concept, sites), classes_of([], self.fewest)["least"]
        concept = self.concept if self.concept.classes else without_rare(self.concept, words, least)[0]
        made: dict[str, Result] = {}
        for name in able:
            try:
                made[name] = resampled_stability(
                    read, concept=concept, method=name, sites=sites, counts=(5, 10, 20, top), draws=draws,
                    seed=self.seed,
                )  # fmt: skip
            except PellucidError as error:
                _left_out(f"documents drawn again for {name}", str(error))
        return made


def _sites(found: Mapping[str, Ranking]) -> list[str]:
    """The sites of rankings of the same neurons."""
    from pellucid.neurons.ranking import by_site

    return list(by_site(next(iter(found.values())).neurons))


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
    drawn: Mapping[str, Result],
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
    made |= {f"{name}-redrawn": each for name, each in drawn.items()}
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
