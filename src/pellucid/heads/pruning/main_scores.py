"""Main scores of pruned models: BLEU of translations and F1 of answers, at the ends that matter of a curve.

The curve itself is of perplexity, which one pass over the text gives; these scores need texts to be written or answers
to be chosen anew for every set of heads, so they are measured at all heads and at the chosen point alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from pellucid.heads.naming import find_heads
from pellucid.heads.pruning.curves import Curves, random_orders, removing
from pellucid.model.edits import Edit
from pellucid.results import Table

if TYPE_CHECKING:
    from pellucid.heads.weighing.measuring import Measured
    from pellucid.model import Model

SCORES = ("bleu", "f1")
"""Scores that a curve is not of."""
DRAWS = 3
"""Random orders whose scores are averaged."""


def main_scores(
    tested: Measured, model: Model, curve: Curves, chosen: int, ranking: Sequence[str], *, draws: int, seed: int
) -> Table | None:
    """The task's main score with all heads and, by each method, with `chosen` of them; None where there is none.

    `tested` has the network as it was trained, `model` is the one it began as. Columns: method, heads, score, lowest
    and highest (of the random draws), chance, and the score's name.
    """
    name = tested.best
    if name not in SCORES:
        return None
    plain = replace(tested, model=model)
    rows = [("the model as it is", len(curve.names), [plain.score().value])]
    if chosen < len(curve.names):
        names = list(curve.names)
        drawn = random_orders(names, min(draws, DRAWS), seed)
        rows.append(("gates", chosen, [tested.score(_gates(tested, curve, chosen)).value]))
        for method, orders in (("importance", [list(ranking)]), ("random", drawn)):
            rows.append((method, chosen, [plain.score(removing(plain, each[chosen:])).value for each in orders]))
    return Table.of_rows(
        {
            "method": [method for method, _, _ in rows],
            "heads": [count for _, count, _ in rows],
            "score": [float(np.mean(found)) for _, _, found in rows],
            "lowest": [min(found) for _, _, found in rows],
            "highest": [max(found) for _, _, found in rows],
            "chance": [tested.chance()[name]] * len(rows),
            "of": [name] * len(rows),
        }
    )


def _gates(tested: Measured, curve: Curves, chosen: int) -> list[Edit]:
    """The gates at the chosen point, as they were measured there."""
    used = curve.gates_at(chosen)
    factors: dict[str, dict[int, float]] = {}
    for name, gate in used.items():
        ((site, head),) = find_heads(tested.model, [name])
        factors.setdefault(str(site), {})[head] = gate

    device = tested.model.device
    return [
        Edit.gate(site, torch.tensor(list(gates.values()), device=device), heads=list(gates))
        for site, gates in factors.items()
    ]
