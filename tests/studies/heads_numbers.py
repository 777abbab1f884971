"""Cases of the study of heads with numbers that are made up, so that its claims are known beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pellucid.heads import HeadFunctions, HeadImportance, Pruning
from pellucid.provenance import Provenance
from pellucid.results import Table
from pellucid.studies.heads.tables import Case, Curve, Drawn, Links, Profile

LAYERS, HEADS, GROUPS = 6, 8, 10
NAMES = [f"{layer}.{head}" for layer in range(LAYERS) for head in range(HEADS)]
SPECIAL = {"1.0": "positional", "1.1": "positional", "2.3": "syntactic", "3.4": "syntactic", "4.2": "rare words"} | {
    f"{layer}.7": "positional" for layer in range(LAYERS)
}
"""Eleven of 48 heads."""
COUNTS = (48, 36, 24, 12, 6)
FUNCTIONS = ("positional", "syntactic", "rare words")


def functions(labels: Mapping[str, str] = SPECIAL, score: float = 0.95) -> HeadFunctions:
    """Functions in which some heads have a label, all with one score."""
    main = np.array([[labels.get(f"{layer}.{head}", "none") for head in range(HEADS)] for layer in range(LAYERS)])
    values = np.stack([np.where(main == name, score, 0.1) for name in FUNCTIONS])
    grid = {"layer": tuple(range(LAYERS)), "head": tuple(range(HEADS))}
    blank = np.full(main.shape, "")
    return HeadFunctions(
        {"measure": FUNCTIONS, **grid},
        values,
        np.full(values.shape, 0.1),
        None,
        None,
        "no interval: made up",
        Provenance("heads.functions"),
        {
            "labels": Table(grid, {"main": main, "all": main, "offset": blank, "relation": blank}),
            "skipped": Table.of_rows({"function": [], "why": []}),
        },
    )


def importance(values: Mapping[str, Sequence[float]], names: Sequence[str] = NAMES) -> HeadImportance:
    """The importance of all heads by some methods."""
    cells = np.array(list(values.values()), dtype=float)
    rows = {"first": ["confidence"], "second": ["zero"], "spearman": [0.5]}
    return HeadImportance(
        {"measure": tuple(values), "head": tuple(names)},
        cells,
        np.zeros(cells.shape),
        None,
        None,
        "no interval: made up",
        Provenance("heads.importance"),
        {"agreement": Table.of_rows(rows)},
    )


def pruning(order: Sequence[str], counts: Sequence[int] = COUNTS, chosen: int = 24) -> Pruning:
    """Gates that close heads from the end of an order, down to each count."""
    used = np.array([[float(order.index(name) < count) for name in order] for count in counts])
    shape = (3, len(counts))
    path = {"step": [0], "strength": [0.0], "open": [counts[0]], "loss": [1.0]}
    settings = {"score": "accuracy", "chosen": chosen, "settings": {"tune": False}, "order": "given"}
    return Pruning(
        {"method": ("gates", "importance", "random"), "heads": tuple(counts)},
        np.ones(shape),
        np.zeros(shape),
        None,
        None,
        "no interval: made up",
        Provenance("heads.pruning", settings),
        {"gates": Table({"heads": tuple(counts), "head": tuple(order)}, {"gate": used, "used": used}),
         "path": Table.of_rows(path)},
    )  # fmt: skip


def curve(kept: Sequence[float], reach: float = 0.01, random: float = 0.5) -> Curve:
    """What gates keep at each count, with an interval, beside random orders."""
    rows = np.array([kept, kept, [1.0, *[random] * (len(kept) - 1)]])
    scores = 0.5 + 0.4 * rows
    return Curve("accuracy", 0.5, COUNTS[: len(kept)], scores, rows, rows - reach, rows + reach)


def profile(rows: Mapping[str, Sequence[float]], *, chance: float = 0.0, noise: float = 1e-3) -> Profile:
    """A measure by layer whose groups of documents differ a little."""
    values = np.array(list(rows.values()), dtype=float)
    dice = np.random.default_rng(5)
    without = values + noise * dice.normal(size=(GROUPS, *values.shape))
    layers = tuple(str(layer) for layer in range(values.shape[1]))
    even = np.full(values.shape, chance)
    return Profile(tuple(rows), layers, values, even, even, without, np.full(GROUPS, 100.0))


def links(best: tuple[int, int] | None, *, antecedent: float = 0.6, rival: float = 0.2) -> Links:
    """Forty pronouns in each of ten groups: one head finds antecedents and rivals as often as told, others alike."""
    hits = np.full((GROUPS, 2, LAYERS, HEADS), 4.0)
    if best is not None:
        hits[:, 0, best[0], best[1]] = 40 * antecedent
        hits[:, 1, best[0], best[1]] = 40 * rival
    hits[::2, :, 0, 0] += 1  # some difference between the groups
    layers = tuple(str(layer) for layer in range(LAYERS))
    return Links(layers, hits, np.full((GROUPS, 2), 4.0), np.full(GROUPS, 40.0))


def tags(special: int) -> dict[str, object]:
    """Attention on two tags by all heads, of which so many look at nouns."""
    noun = [0.9] * special + [0.2] * (len(NAMES) - special)
    even = [[0.2] * len(NAMES), [0.1] * len(NAMES)]
    return {"tags": ["NOUN", "VERB"], "shares": [noun, even[1]], "random": even, "uniform": [0.2, 0.1]}


def case(name: str = "lm", **changes: object) -> Case:
    """A case on which every claim stands, but for what is changed."""
    order = [*SPECIAL, *(head for head in NAMES if head not in SPECIAL)]
    worth = [float(len(order) - order.index(head)) for head in NAMES]
    facts = {
        "asked": {"scale": "quick", "seed": 0, "model": None},
        "about": "made up",
        "model": {"name": "made-up", "fingerprint": "0", "class": "None"},
        "task": name,
        "notes": [],
        "texts": {"gates": "a", "chosen on": "b", "measured on": "c", "weighed on": "d", "read: made-up English": "e"},
        "layers read on": "made-up English",
        "tags": tags(20),
    }
    made = Case(
        name,
        facts,
        {"made-up English": functions()},
        {"made-up English": Drawn({}, {}, 0)},
        importance({"confidence": worth, "gradient": worth, "zero": worth}),
        pruning(order),
        curve([1.0, 1.0, 0.99, 0.97, 0.9]),
        {
            "distance": profile({"distance": [3.0, 2.5, 1.0, 1.2, 4.0, 5.0]}),
            "neighbours": profile({"neighbours": [0.1, 0.2, 0.4, 0.4, 0.2, 0.1]}),
            "tags": profile({f"T{at}": np.eye(LAYERS)[at % LAYERS] * 0.2 for at in range(12)}),
        },
        {"gender": links((2, 1)), "meaning": links((2, 1))},
        {},
    )
    return replace(made, **changes)
