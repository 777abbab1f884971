"""Recall of every ranking on the planted model: which share of the neurons that were planted stands first."""

from __future__ import annotations

import pytest

from pellucid.neurons import RANKINGS, rank
from tests.neurons import planted

LEAST = {
    "probeless": 0.75, "iou": 0.6, "precision": 0.75, "selectivity": 0.75, "probe-elastic": 0.75, "probe-l1": 0.75,
    "probe-l2": 0.75, "gaussian": 0.45, "ablation": 0.9, "ablation-greedy": 0.6, "forest": 0.5,
}  # fmt: skip
"""What every method must find; drawing at random finds 14 of 64, a share of 0.22."""


@pytest.fixture(scope="module")
def found() -> dict[str, float]:
    """The share of the planted neurons among as many first ones, by method."""
    names = set(planted.names().values())
    made = rank(planted.model(), planted.corpus().take(70), concept="upos", methods=list(RANKINGS), sites="neurons.0",
                control=False, progress=False)  # fmt: skip
    return {name: len(names & set(each.top(len(names)))) / len(names) for name, each in made.items()}


def test_every_method_finds_the_planted_neurons(found, capsys):
    with capsys.disabled():
        print(f"\nrecall of {len(planted.names())} planted among {planted.INNER} neurons:", end=" ")
        print(", ".join(f"{name} {share:.2f}" for name, share in found.items()))
    assert set(found) == set(RANKINGS) == set(LEAST), "a new ranking needs a share that it must find"
    missed = {name: share for name, share in found.items() if share < LEAST[name]}
    assert not missed
