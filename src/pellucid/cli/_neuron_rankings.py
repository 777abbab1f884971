"""Rankings of neurons on the command line: opened from folders, printed, and as JSON holds them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.cli._print import console, print_table
from pellucid.errors import PellucidError, listing
from pellucid.studies.names import short_name

if TYPE_CHECKING:
    from pellucid.neurons import Ranking

_RESULT = "result.json"
_LIKE = "like (correlation)"
_OF_CLASS = 5
"""Neurons that are printed of every class."""


def saved(folders: list[Path]) -> dict[str, Ranking]:
    """Saved rankings by the end of their path that tells them apart; a folder may hold several."""
    from pellucid.neurons import Ranking
    from pellucid.results import Result

    places: list[Path] = []
    for folder in folders:
        held = [folder] if (folder / _RESULT).is_file() else sorted(each.parent for each in folder.glob(f"*/{_RESULT}"))
        if not held:
            raise PellucidError(f"There is no saved ranking in {str(folder)!r}; make one with neurons rank -o.")
        places += held
    found = {place: Result.load(place) for place in places}
    kept = {place: each for place, each in found.items() if isinstance(each, Ranking)}
    others = [str(place) for place in folders if place in found and place not in kept]
    if others or not kept:
        raise PellucidError(
            f"{listing(others) or 'What was given'} is no ranking; rankings are what neurons rank saves."
        )
    short = {place: place.name for place in kept}
    if len(set(short.values())) < len(short):
        short = {place: "-".join(place.resolve().parts[-2:]) for place in kept}
    if len(set(short.values())) < len(short):
        raise PellucidError(f"Two rankings are called {listing(short.values())}; give each once.")
    return {short[place]: each for place, each in kept.items()}


def first_of(result: Ranking, top: int, cls: str | None = None) -> list[str]:
    """The first neurons of a ranking: so many, or all that there are."""
    return result.top(min(top, len(result.neurons)), cls)


def ranking_told(result: Ranking, top: int) -> dict[str, object]:
    """The first neurons of a ranking as JSON holds them, across classes and for every class."""
    return {
        "title": result.title,
        "concept": result.concept,
        "chance": result.chance,
        "resampled": result.resampled,
        **({"accuracy": result.accuracies} if result.accuracies else {}),
        **({"left out": _rare(result)} if "left out" in result.tables else {}),
        **({"random model": random_told(result)} if result.random_model is not None else {}),
        "neurons": [_row(result, name, None) for name in first_of(result, top)],
        "classes": {
            cls: [_row(result, name, cls) for name in first_of(result, top, cls)] for cls in result.classes_apart
        },
    }


def print_ranking(result: Ranking, top: int, *, classes: bool = True) -> None:
    """The first neurons across classes, and those of every class; the accuracy of what ranked, where it has one."""
    from pellucid.neurons.ranking import accuracy_told
    from pellucid.neurons.rare_classes import left_out_told

    told = [_row(result, name, None) for name in first_of(result, top)]
    columns = [name for name in ("score", "null", "random model", "low", "high") if name in told[0]]
    texts = [name for name in ("best class", _LIKE) if name in told[0]]
    rows = [
        [row["neuron"], *(f"{row[column]:.4g}" for column in columns), *(row[name] for name in texts)] for row in told
    ]
    heads = ["chance" if name == "null" else name for name in columns]
    print_table(["neuron", *heads, *texts], rows, title=result.title, right=heads)
    few = [
        [cls, ", ".join(result.with_side(name, cls) for name in first_of(result, _OF_CLASS, cls))]
        for cls in (result.classes_apart if classes and result.concept else ())
    ]
    if few:
        print_table(["class", "its first neurons (− is low for it)"], few)
    console().print(f"score: {result.score}")
    if result.null is not None:
        console().print(f"chance: {result.chance}")
    if told := random_told(result):
        console().print(f"random model: {told}", markup=False)
    console().print(f"interval: {result.resampled}")
    if told := accuracy_told(result):
        console().print(f"accuracy of what ranked: {told}", markup=False)
    if told := left_out_told(result):
        console().print(told, markup=False)


def _rare(result: Ranking) -> dict[str, int]:
    """The classes that were left out, with their words."""
    table = result.table("left out")
    return {str(name): count for name, count in zip(table.axes["class"], table.columns["words"].tolist(), strict=True)}


def _row(result: Ranking, name: str, cls: str | None) -> dict[str, object]:
    """One neuron's numbers, for a class or across classes."""
    place = result.place("neuron", name)
    if cls is None:
        parts = {**result.overall.columns, "random model": result.random_model}
        numbers = {part: float(column[place]) for part, column in parts.items() if column is not None}
        like = {_LIKE: _like(result, place)} if "matches" in result.tables else {}
        best = {"best class": _best(result, name)} if result.concept and result.classes_apart else {}
        return {"neuron": name, **numbers, **best, **like}
    at = result.place("class", cls), place
    control = result.tables["random model"].columns["value"] if "random model" in result.tables else None
    parts = {"score": result.values, "null": result.null, "random model": control, "low": result.low,
             "high": result.high}  # fmt: skip
    return {"neuron": name, **{part: float(array[at]) for part, array in parts.items() if array is not None}}


def random_told(result: Ranking) -> str:
    """The best neuron of the randomly initialised model, in a line; empty where none was read."""
    scores = result.random_model
    if scores is None:
        return ""
    best = int(scores.argmax())
    return f"the same score where weights are random; the best there is {scores[best]:.4g} ({result.neurons[best]})"


def _like(result: Ranking, place: int) -> str:
    """What a neuron of a search was found in."""
    told = {name: part.ravel()[place] for name, part in result.table("matches").columns.items()}
    named = f"{short_name(str(told['other model']))} {told['other site']}"
    return f"{named}:{told['other unit']} ({told['correlation']:+.3f})" if "other unit" in told else named


def _best(result: Ranking, name: str) -> str:
    best, score = result.best_class(name)
    return f"{'+' if score >= 0 else '−'} {best}"
