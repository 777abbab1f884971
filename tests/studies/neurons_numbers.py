"""Cases of the study of neurons with numbers that are made up, so that its claims are known beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pellucid.studies.neurons.tables import BARS, METHODS, STREAMED, Case, Grid
from pellucid.studies.rules import Number

NEURONS = 1000
SITES = ("resid.0", "resid.1", "resid.2", "resid.3", "resid.4")
COUNTS = (10, 40, 100, 150, 500)
OPEN, FEW = ("ADJ", "ADV", "NOUN", "PROPN", "VERB"), ("ADP", "AUX", "CCONJ", "DET", "PART", "PRON")
TAGS = (*OPEN, *FEW)
MEASURES = ("accuracy", "random model", "control task", "selectivity")
ENDS = ("top", "bottom", "random")
GROUPS = 6


def bounded(rows: Sequence[str], columns: Sequence[Any], values: Any, null: Any = None, reach: float = 0.01) -> Grid:
    """A grid whose intervals reach as far to both sides."""
    cells = np.broadcast_to(np.array(values, float), (len(rows), len(columns))).copy()
    even = np.zeros_like(cells) if null is None else np.broadcast_to(np.array(null, float), cells.shape).copy()
    return Grid(tuple(rows), tuple(columns), cells, even, cells - reach, cells + reach)


def probe(accuracy: float, random: float, control: float, majority: float = 0.2, reach: float = 0.01) -> Grid:
    """A probe beside its controls."""
    column = [[accuracy], [random], [control], [accuracy - control]]
    return bounded(MEASURES, ("all classes",), column, [[majority], [majority], [0.1], [0.0]], reach)


def margins(accuracy: float, random: float, control: float, majority: float = 0.2, reach: float = 0.01) -> Grid:
    """The same accuracy less each control."""
    less = [accuracy - each for each in (majority, random, control)]
    return bounded(("value",), ("majority", "random model", "control task"), [less], reach=reach)


def anew(first: Sequence[float], random: float = 0.5, reach: float = 0.003) -> Grid:
    """Accuracies of probes on so many first neurons, and on as many others."""
    rows = [list(first), [0.3] * len(COUNTS), [random] * len(COUNTS)]
    return bounded(ENDS, COUNTS, rows, [[random]] * 3, reach)


def beside(random: float = 0.4) -> Grid:
    """Controls of probes of few neurons, and of all."""
    rows = [[0.2], [random], [0.45], [0.35]]
    return Grid(("majority", "random model", "control task", "selectivity"), (*COUNTS, "all"),
                np.repeat(np.array(rows), len(COUNTS) + 1, axis=1))  # fmt: skip


def smallest(*counts: int) -> Grid:
    """Smallest sets within 1, 2 and 5 per cent, which tell 88% of the words for testing."""
    parts = [list(counts), [0.88] * 3, [0.9] * 3, [0.86] * 3, [0.91] * 3]
    return Grid(("neurons", "accuracy", "all neurons", "low", "high"), (0.01, 0.02, 0.05), np.array(parts, float))


def draws(*accuracies: float) -> Grid:
    """Accuracies of probes on sets of random neurons."""
    return Grid(("40",), tuple(range(len(accuracies))), np.array([accuracies], float))


def where(shares: Sequence[float]) -> Grid:
    """Where first neurons stand."""
    return Grid(("value",), SITES, np.array([shares], float), np.full((1, len(SITES)), 1 / len(SITES)))


def spread(sizes: Mapping[str, float]) -> Grid:
    """How many neurons each class takes."""
    return bounded(("effective", "half"), tuple(sizes), [list(sizes.values()), [s / 3 for s in sizes.values()]])


def polysemy(single: int, several: int) -> Grid:
    """Neurons that serve no class, one and two."""
    shares = np.zeros((1, len(TAGS) + 1))
    shares[0, :3] = np.array([NEURONS - single - several, single, several]) / NEURONS
    chance = np.zeros_like(shares)
    chance[0, :3] = 0.8, 0.18, 0.02
    return Grid(("value",), tuple(range(len(TAGS) + 1)), shares, chance)


def experts(model: float, random: float = 0.0, reach: float = 0.01) -> Grid:
    """Shares of experts, fewer at higher bars."""
    rows = [[model / (1 + at) for at in range(len(BARS))], [random] * len(BARS)]
    return bounded(("model", "random model"), BARS, rows, [[random] * len(BARS)] * 2, reach)


def kept(first: float, random: float = 0.5, reach: float = 0.02) -> Grid:
    """What a probe reads from first neurons alone."""
    return bounded(ENDS, (10, 20, 50), [[first] * 3, [0.2] * 3, [random] * 3], reach=reach)


def in_probe(*accuracies: float) -> Grid:
    """The draws of random neurons of every ranking, and what a probe reads from each."""
    return Grid(tuple(METHODS), tuple(range(len(accuracies))), np.tile(np.array(accuracies), (len(METHODS), 1)))


def lost(first: Sequence[float], whole: float, random: float) -> Grid:
    """A score of the model by document group, without first, last and random neurons."""
    rows = [[whole] * GROUPS, list(first), [random] * GROUPS, [random] * GROUPS]
    return Grid(("whole", *ENDS), tuple(range(GROUPS)), np.array(rows, float))


def agreement(value: float) -> Grid:
    """Two methods agree so far."""
    names = tuple(name for name in METHODS if name != "vote")
    cells = np.full((len(names), len(names)), value)
    np.fill_diagonal(cells, 1.0)
    return Grid(names, names, cells, np.full_like(cells, 0.03))


def stability(value: float, reach: float = 0.05) -> dict[str, Grid]:
    """All rankings agree so far with themselves."""
    return {f"stability {name}": bounded(("value",), (50,), [[value]], 0.03, reach) for name in STREAMED}


def steps(middle: float, apart: float = 0.01) -> list[float]:
    """Values of the document groups around a middle."""
    return [middle + apart * (group - (GROUPS - 1) / 2) for group in range(GROUPS)]


def facts(name: str, task: str | None, causal: bool) -> dict[str, Any]:
    """What a case tells of itself."""
    counted = {"sentences": 10, "words": 120}
    return {
        "asked": {"scale": "smoke", "seed": 0, "model": name},
        "about": "Made up.",
        "model": {"name": name, "class": "MadeUp", "causal": causal},
        "task": task,
        "texts": {"ranked on": "made-up English", "judged on": "other English"},
        "counts": {"ranked": counted, "judged": counted},
        "sites": {"stream": list(SITES), "compared": list(SITES[2:]), "sub-layers": ["attn.0", "neurons.0"]},
        "neurons": {"stream": NEURONS, "compared": 1000, "sub-layers": 500},
        "size": {"modelled": 30},
    }


def case(name: str = "made-up", *, task: str | None = "lm", causal: bool = False, **changes: Any) -> Case:
    """A case on which every claim stands; `changes` replace grids or numbers, with _ for spaces."""
    rising = [0.2, 0.4, 0.6, 0.8, 0.9]
    grids: dict[str, Grid] = {
        **{f"probe {concept}": probe(0.9, 0.5, 0.4) for concept in ("pos", "number", "relation")},
        **{f"layers {concept}": bounded(MEASURES, SITES, [rising[::-1], rising, rising, rising], 0.2)
           for concept in ("pos", "number", "relation")},
        **{f"margins {concept}": margins(0.9, 0.5, 0.4) for concept in ("pos", "number", "relation")},
        "anew pos": anew([0.8, 0.899, 0.9, 0.9, 0.9]),
        "anew number": anew([0.8, 0.85, 0.86, 0.87, 0.9]),
        "anew relation": anew([0.4, 0.6, 0.7, 0.8, 0.9]),
        **{f"beside {concept}": beside() for concept in ("pos", "number", "relation", "in probe")},
        "smallest pos": smallest(71, 52, 23),
        "smallest number": smallest(300, 210, 97),
        "smallest relation": smallest(480, 450, 400),
        "draws pos": draws(0.48, 0.5, 0.52),
        "where pos": where([0.6, 0.2, 0.2, 0, 0]),
        "where number": where([0.2] * 5),
        "where relation": where([0, 0, 0.2, 0.2, 0.6]),
        "sub-layers": Grid(("value",), ("attn.0", "neurons.0"), np.array([[0.2, 0.8]]), np.array([[0.5, 0.5]])),
        "spread": spread({**dict.fromkeys(OPEN, 400.0), **dict.fromkeys(FEW, 100.0)}),
        "polysemy": polysemy(120, 60),
        "experts": experts(0.1),
        "agreement": agreement(0.1),
        **stability(0.4),
        **{f"in probe {method}": kept(0.7) for method in METHODS},
        "draws in probe": in_probe(0.45, 0.5, 0.55),
    }  # fmt: skip
    if task is not None:
        grids |= {f"loss {method}": lost(steps(5.0), 4.0, 4.2) for method in METHODS}
        grids |= {f"accuracy {method}": lost(steps(0.8), 0.9, 0.89) for method in METHODS}
        grids |= {f"accuracy class {cls}": lost(steps(0.9, 0.001), 0.9, 0.89) for cls in ("NOUN", "DET")}
    numbers = {
        **{f"whole {concept}": Number(0.9, float("nan")) for concept in ("pos", "number", "relation")},
        "whole in probe": Number(0.9, float("nan")),
        "depth pos": Number(-0.3, 0.0, band=(-0.05, 0.05)),
        "depth number": Number(0.0, 0.0, band=(-0.05, 0.05)),
        "depth relation": Number(0.3, 0.0, band=(-0.05, 0.05)),
        "depth relation less pos": Number(0.6, 0.0, band=(-0.05, 0.05)),
        "hidden units": Number(40, 25, band=(18.0, 32.0)),
        "several classes": Number(0.33, 0.1, band=(0.05, 0.15)),
    }
    for changed, value in changes.items():
        held: dict[str, Any] = grids if isinstance(value, Grid) else numbers
        known = {key.replace(" ", "_").replace("-", "_"): key for key in held}
        held[known[changed]] = value
    return Case(name, facts(name, task, causal), grids, numbers)
