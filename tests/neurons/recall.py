"""Recall of every ranking on the planted model: the share of the planted neurons that stand first."""

from __future__ import annotations

from functools import cache

import torch

from pellucid.collect.moments import Moments
from pellucid.collect.sweep import sweep
from pellucid.model import Model
from pellucid.neurons import RANKINGS, rank, search
from pellucid.neurons.ranking import Ranking
from tests.neurons import planted

CHANCE = len(planted.names()) / planted.INNER
"""What drawing neurons at random finds."""
SEARCHED = ("maxcorr", "mincorr", "linreg")
"""Searches that rank neurons; SVCCA ranks directions, of which none is a neuron."""


def other(seed: int) -> Model:
    """A model with the same planted neurons, and all others of layer 0 new."""
    network = planted.network()
    rest = [unit for unit in range(planted.INNER) if unit not in planted.neurons().values()]
    dice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        layer = network.transformer.h[0].mlp.c_fc
        layer.weight[:, rest] = 0.3 * torch.randn(layer.weight.shape[0], len(rest), generator=dice)
    return Model.load(network, tokenizer=planted.tokenizer())


@cache
def measured() -> dict[str, float]:
    """The share of the planted neurons among as many first ones, by method and by search."""
    text = planted.corpus().take(70)
    made = rank(planted.model(), text, concept="upos", methods=list(RANKINGS), sites="neurons.0", control=False,
                progress=False)  # fmt: skip
    beside = sweep([planted.model(), other(1), other(2)], text, [Moments("neurons.0")], progress=False)
    made |= {score: search(beside, score=score) for score in SEARCHED}
    return {name: _share(each) for name, each in made.items()}


def _share(ranking: Ranking) -> float:
    names = set(planted.names().values())
    return len(names & set(ranking.top(len(names)))) / len(names)
