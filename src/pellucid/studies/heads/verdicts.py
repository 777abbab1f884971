"""What claims about heads stand on: where they are made, and a case's heads and functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pellucid.studies.heads.removing import LEAST
from pellucid.studies.heads.tables import SPECIALISED, Case

Array = np.ndarray[Any, Any]
VOITA = "Voita et al. 2019, in Sennrich's talk"
VIG = "Vig 2019, as replicated by Boudjemai et al. 2021"


def all_heads(case: Case) -> list[str]:
    """Every head of the model, as importance and pruning name them."""
    return [str(name) for name in case.importance.axes["head"]]


def stack_of(name: str) -> str:
    """The stack of a head: encoder, decoder, cross, or nothing."""
    return name.split(".")[0] if name.count(".") > 1 else ""


def layer_of(name: str) -> str:
    """The layer of a head, with its stack where there are several."""
    return name.rpartition(".")[0]


def reading_heads(case: Case) -> list[str]:
    """The heads whose functions are known, those that read the text: of an encoder–decoder the encoder's own."""
    stacks = {stack_of(name) for name in all_heads(case)}
    return [name for name in all_heads(case) if "encoder" not in stacks or stack_of(name) == "encoder"]


def functions_of(case: Case) -> dict[str, frozenset[str]]:
    """The functions of every head that reads text, on any of the texts, beyond what heads of a random network do."""
    known: dict[str, set[str]] = {name: set() for name in reading_heads(case)}
    for found in case.functions.values():
        for name, labels in found.labels.items():
            whole = name if name in known else f"encoder.{name}"
            known[whole].update(labels)
    return {name: frozenset(labels) for name, labels in known.items()}


def specialised(case: Case) -> Array:
    """Which of the heads that read text [heads, bool] are positional, syntactic or look for rare words."""
    return np.array([bool(labels & set(SPECIALISED)) for labels in functions_of(case).values()])


def values_of(case: Case, measure: str, names: list[str]) -> Array:
    """The importance of some heads by one measure."""
    place = {name: at for at, name in enumerate(all_heads(case))}
    return case.importance.measure(measure)[[place[name] for name in names]]


def lasting(case: Case, names: list[str]) -> Array:
    """The share of the points of the gates' curve, all heads left out, at which each head is still open."""
    counts = [count for count in case.curve.counts if count < len(all_heads(case))]
    open_at = [set(case.pruning.survivors(count)) for count in counts]
    return np.array([np.mean([name in left for left in open_at]) if open_at else 1.0 for name in names])


def point_at(case: Case, share: float) -> int | None:
    """The first point of the curve with at most a share of all heads left, and some; None where there is none."""
    most = share * len(all_heads(case))
    fit = [count for count in case.curve.counts if 0 < count <= most]
    return max(fit, default=None)


def better_than_guessing(case: Case) -> bool:
    """Whether the model as it is does its task at all, so that a share of it can be kept."""
    score, chance = float(case.curve.scores[0, 0]), case.curve.chance
    gained = score - chance if case.curve.score == "accuracy" else math.log(chance) - math.log(score)
    return gained >= LEAST
