"""Search through several models: neurons that other models have too are ranked first (Bau et al. 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.errors import listing
from pellucid.neurons.directions import CLASS, directions
from pellucid.neurons.methods import SEARCHES
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.results import ResultError, Table

if TYPE_CHECKING:
    from pellucid.collect.found import Found


def search(
    found: Found, *, score: str = "maxcorr", left: str | None = None, right: str | None = None, seed: int = 0
) -> Ranking:
    """The first model's neurons ranked by their likes in the others, from `Moments` of all models in one sweep.

    MaxCorr is the largest |ρ| over models and neurons, MinCorr the smallest over models of that, LinReg the best R².
    SVCCA ranks directions instead, `neurons.3:direction 0` first: the table `directions` has their weights.
    `left` and `right` choose sites as in `similarity.neuron_matches`, which does the work; the sites of `left` must be
    equally wide. No sign: a neuron and its negation are the same here.
    """
    from pellucid.similarity import neuron_matches

    if score not in SEARCHES:
        raise ResultError(f"There is no search by {score!r}; there are {listing(SEARCHES)}.")
    if score == "svcca":
        return directions(found, left=left, right=right, seed=seed)
    matches = neuron_matches(found, score=score, left=left, right=right, seed=seed)
    neurons = tuple(f"{site}:{unit}" for site in matches.axes["site"] for unit in matches.axes["unit"])
    flat = {
        name: None if part is None else part.reshape(1, -1)
        for name, part in (("null", matches.null), ("low", matches.low), ("high", matches.high))
    }
    values = matches.values.reshape(1, -1)
    ends = {name: None if part is None else part[0] for name, part in flat.items()}
    axes = {"class": (CLASS,), "neuron": neurons}
    tables = {
        "overall": overall_table(neurons, values[0], **ends),
        "matches": Table(
            {"neuron": neurons}, {name: part.reshape(-1) for name, part in matches.table("matches").columns.items()}
        ),
    }
    if "random model" in matches.tables:
        tables["random model"] = Table(
            axes, {"value": np.asarray(matches.table("random model").columns["value"]).reshape(1, -1)}
        )
    return Ranking(
        axes=axes,
        values=values,
        **flat,
        resampled=matches.resampled,
        provenance=found.provenance(
            "neurons.ranking", {"method": score, "concept": "", "left": left, "right": right}, seed=seed
        ),
        tables=tables,
    )
