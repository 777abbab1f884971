"""Models of the study of identifiability with numbers that are made up, so that its claims are known beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pellucid.studies.identifiability.tables import ENDS, Case, Curve

GROUPS = 10
WIDTH = 32
LENGTHS = ("9–16", "17–32", "33–64", "65–128")
LAYERS = tuple("123456")


def curve(
    rows: Mapping[str, Sequence[float]],
    places: Sequence[str],
    *,
    chance: Mapping[str, float] | None = None,
    random: Mapping[str, Sequence[float]] | None = None,
    noise: float = 1e-3,
    groups: int = GROUPS,
) -> Curve:
    """Measures whose groups of documents differ a little: `noise` is about the reach of an interval."""
    values = np.array(list(rows.values()), dtype=float)
    apart = np.random.default_rng(3).normal(size=(groups, *values.shape))
    apart = (apart - apart.mean(0)) / apart.std(0) if groups else apart
    without = values + noise / 10 * apart
    levels = np.array([[(chance or {}).get(name, 0.0)] * values.shape[1] for name in rows])
    drawn = None if random is None else np.array([random.get(name, list(rows[name])) for name in rows], dtype=float)
    return Curve(tuple(rows), tuple(places), values, levels, without, np.full(groups, 100.0), drawn)


def attention(places: Sequence[str], **changes: Sequence[float]) -> Curve:
    """Attention over four lengths (or layers): open beyond 32 keys alone, and farther off the longer the text is."""
    rows = {
        "sees": [12.0, 25.0, 50.0, 100.0],
        "free": [0.0, 0.0, 18.0, 68.0],
        "free_with_sum": [0.0, 0.0, 17.0, 67.0],
        "unique": [1.0, 1.0, 0.0, 0.0],
        "moved": [0.0, 0.0, 0.4, 0.7],
        "shifted": [0.0, 0.0, 0.3, 0.6],
        "argmax": [0.0, 0.0, 0.3, 0.5],
        "queries": [100.0, 200.0, 300.0, 100.0],
    }
    noise = changes.pop("noise", 1e-3)
    return curve({**rows, **changes}, places, chance={"unique": 1.0, "moved": 0.6, "queries": 1.0}, noise=noise)


def tokens(**changes: Sequence[float]) -> Curve:
    """Tokens found again over six layers: fewer with depth, by a linear map and the cosine more."""
    rows = {
        "identity cosine": [0.9, 0.8, 0.7, 0.6, 0.5, 0.4],
        "identity l2": [0.8, 0.7, 0.6, 0.5, 0.4, 0.3],
        "linear cosine": [0.99, 0.98, 0.97, 0.95, 0.93, 0.9],
        "linear l2": [0.95, 0.94, 0.93, 0.9, 0.88, 0.85],
    }
    noise = changes.pop("noise", 1e-3)
    chance = dict.fromkeys(rows, 0.05)
    return curve({**rows, **changes}, LAYERS, chance=chance, random={}, noise=noise)


def mixing(**changes: Sequence[float]) -> Curve:
    """Mixing over the input and six layers: ever more, from neighbours first and then from farther away."""
    rows = {
        "own": [1.0, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2],
        "not largest": [0.0, 0.02, 0.05, 0.1, 0.2, 0.28, 0.31],
        "reach": [0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5],
        "near": [0.0, 0.8, 0.7, 0.65, 0.6, 0.55, 0.5],
    }
    noise = changes.pop("noise", 1e-3)
    chance = {"own": 0.05, "not largest": 0.95, "reach": 6.0, "near": 0.2}
    return curve({**rows, **changes}, ("0", *LAYERS), chance=chance, random={}, noise=noise)


def flow(**changes: Sequence[float]) -> Curve:
    """Maps of attention over six layers: rollout agrees best."""
    rows = {
        "attention": [0.6, 0.5, 0.5, 0.4, 0.3, 0.3],
        "rollout": [0.6, 0.6, 0.7, 0.7, 0.7, 0.7],
        "own token": [0.4] * 6,
        "nearness": [0.5] * 6,
        "ceiling": [0.9] * 6,
    }
    noise = changes.pop("noise", 1e-3)
    return curve({**rows, **changes}, LAYERS, random={}, noise=noise)


def case(name: str = "made-up", **changes: Curve) -> Case:
    """A model on which every claim stands, but for the curves that are changed."""
    facts = {
        "asked": {"scale": "quick", "seed": 0, "model": name},
        "about": "made up",
        "model": {
            "class": "None",
            "fingerprint": "0",
            "parameters": 1000,
            "layers": 6,
            "width": 128,
            "head width": WIDTH,
            "causal": False,
        },
        "texts": {"told": "a", "read": "b", "passages": "c", "mixed": "d"},
        "size": {"probes": 8},
        "counts": {"tokens asked about": 100, "tokens mixed": 50, "error of the norms": 0.04},
        "versions": {},
    }
    distances = ("< −2", "−2", "−1", "0", "1", "2", "> 2")
    by_distance = {name: [0.1, 0.1, 0.2, 0.3, 0.1, 0.1, 0.1] for name in ENDS}
    trained = {"linear cosine": [0.95, 0.9], "linear l2": [0.9, 0.85], "mlp cosine": [0.9, 0.8], "mlp l2": [0.9, 0.9]}
    curves = {
        "sentences": attention(("0", "1", "2", "3"), unique=[0.1, 0.1, 0.1, 0.1]),
        "lengths": attention(LENGTHS),
        "depth": attention(("0", "1", "2", "3")),
        "tokens": tokens(),
        "perceptrons": curve(trained, ("3", "6"), chance=dict.fromkeys(trained, 0.05)),
        "mixing": mixing(),
        "offsets": curve(by_distance, distances, chance=dict.fromkeys(by_distance, 0.14)),
        "flow": flow(),
    }
    return replace(Case(name, facts, curves), curves={**curves, **changes})
