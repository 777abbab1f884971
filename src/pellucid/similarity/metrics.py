"""Scores by name: a score is one function of a pair, what chance gives for it, and one sentence about it.

A score of your own is one file: decorate a function of a `Pair` (moments) or of `Samples` (rows) with `metric`, import
it, and its name works in `grid`, on the command line and in reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from pellucid.errors import listing
from pellucid.similarity.nulls import Null
from pellucid.similarity.pair import Side, SimilarityError

_MODULES = ("cka", "cca", "regression", "geometry", "sampled", "presets")
"""The modules whose scores are known from the start."""


@dataclass(frozen=True)
class Metric:
    """A score: `score(data)` and `null(data)`, whose `data` is a `Pair` (`needs` moments) or `Samples` (needs sample).

    `symmetric` scores are the same from right to left. `whole` are those that need every direction of the rows, also
    the weakest, and suffer where float32 cannot hold them. `cheap` ones get their interval without asking. `tuned`
    gives the score for the text behind a colon, as in `svcca:0.9` or `rbf-cka:0.5`. `keeps` says how many directions of
    a `Side` the score reads, where it leaves some out.
    """

    name: str
    about: str
    needs: str
    score: Callable[[Any], float]
    null: Callable[[Any], Null]
    symmetric: bool = True
    whole: bool = False
    cheap: bool = False
    tuned: Callable[[str], Metric] | None = None
    keeps: Callable[[Side], int] | None = None


@dataclass
class _Known:
    metrics: dict[str, Metric] = field(default_factory=dict[str, Metric])


_known = _Known()


def register(metric: Metric) -> Metric:
    """Makes a score known by its name."""
    if metric.needs not in ("moments", "sample"):
        raise SimilarityError(f"The score {metric.name!r} needs {metric.needs!r}; it can need 'moments' or 'sample'.")
    _known.metrics[metric.name] = metric
    return metric


def metrics() -> dict[str, Metric]:
    """Every score by name: those of this package, and those that the user's own modules define."""
    for module in _MODULES:
        import_module(f"pellucid.similarity.{module}")
    return dict(_known.metrics)


def chosen(names: str | Iterable[str]) -> list[Metric]:
    """The scores of some names (commas separate several); an unknown one raises and lists what there is."""
    asked = [part.strip() for name in ([names] if isinstance(names, str) else names) for part in name.split(",")]
    return [_named(name) for name in dict.fromkeys(asked)]


def phrases(names: Iterable[object]) -> dict[str, str]:
    """What each of some scores is, in a phrase; one that is not known here (any more) goes without."""
    found: dict[str, str] = {}
    for name in map(str, names):
        try:
            found[name] = _named(name).about
        except SimilarityError:
            found[name] = "a score that is not loaded"
    return found


def _named(name: str) -> Metric:
    known = metrics()
    if name in known:
        return known[name]
    base, colon, argument = name.partition(":")
    if colon and base in known:
        tuned = known[base].tuned
        if tuned is None:
            raise SimilarityError(f"The score {base!r} has nothing to set, and {name!r} sets {argument!r}.")
        return tuned(argument)
    raise SimilarityError(f"There is no score {name!r}; there are {listing(sorted(known), most=40)}.")


def number_of(name: str, argument: str) -> float:
    """The number behind a score's colon."""
    try:
        value = float(argument)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise SimilarityError(f"{name}:{argument} sets {argument!r}, and a number above 0 is needed.")
    return value
