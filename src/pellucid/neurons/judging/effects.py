"""Effects of single neurons: what the model's answers lose without them, beside random neurons of the same site."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pellucid.errors import listing
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.judging.ablating import REPLACEMENTS, site_width
from pellucid.neurons.judging.ablation import ablation, named_sites
from pellucid.results import Table

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.model import Model

DRAWS = 10


def effects(
    model: Model,
    corpus: Corpus,
    neurons: Sequence[str],
    task: str | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Table:
    """What the model's answers lose without each neuron, replaced by zero and by its mean.

    `lost` is the mean of (p − p')/p, with its interval `low` to `high` over document groups where there are several,
    `loss` the change of the loss in nats, `flipped` the share of answers that change; `random` and `random loss` are
    the mean sizes, |lost| and |loss|, of `draws` random neurons of the same site, and `larger` the share of these whose
    |lost| is as large or larger; where a site has no other neuron these three are left out, with a warning.
    """
    chosen = named_sites(model, neurons)
    dice = np.random.default_rng([seed, 13])
    beside: dict[str, list[str]] = {}
    for site, units in chosen.items():
        rest = np.setdiff1d(np.arange(site_width(model, site)), units)
        drawn = np.sort(dice.choice(rest, min(draws, len(rest)), replace=False))
        beside[str(site)] = [f"{site}:{unit}" for unit in drawn]
    bare = [site for site, names in beside.items() if not names]
    if bare:
        warnings.warn(
            f"No random neuron of {listing(bare)} can stand beside those asked for (draws={draws}), so the table has "
            "none: ask for fewer neurons of a site, or for draws=1 or more.",
            NeuronWarning,
            stacklevel=2,
        )
    every = [*dict.fromkeys(neurons), *(name for names in beside.values() for name in names)]
    columns: dict[str, list[str | float]] = {}
    for replacement in REPLACEMENTS:
        found = ablation(model, corpus, task, neurons=every, replacement=replacement, seed=seed, progress=False)
        lost, changed = found.overall.columns, found.table("changes").columns
        for name in dict.fromkeys(neurons):
            at = found.place("neuron", name)
            others = [found.place("neuron", each) for each in beside[name.rpartition(":")[0]]]
            random = np.abs(lost["score"][others])
            told: dict[str, str | float] = {
                "neuron": name,
                "replacement": replacement,
                "lost": float(lost["score"][at]),
                **{end: float(lost[end][at]) for end in ("low", "high") if end in lost},
                "loss": float(changed["loss"][at]),
                "flipped": float(changed["flipped"][at]),
            }
            if not bare:
                told |= {
                    "random": float(random.mean()),
                    "random loss": float(np.abs(changed["loss"][others]).mean()),
                    "larger": float((random >= abs(lost["score"][at])).mean()),
                }
            for column, value in told.items():
                columns.setdefault(column, []).append(value)
    return Table.of_rows(columns)
