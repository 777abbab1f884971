"""Recall of every ranking on the planted model: which share of the neurons that were planted stands first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pellucid.neurons import RANKINGS
from pellucid.neurons.methods import SEARCHES
from tests.neurons import planted, recall

DOCS = Path(__file__).parents[2] / "docs" / "neurons.md"
LEAST = {
    "probeless": 0.75, "iou": 0.6, "precision": 0.75, "selectivity": 0.75, "probe-elastic": 0.75, "probe-l1": 0.75,
    "probe-l2": 0.75, "gaussian": 0.45, "ablation": 0.9, "ablation-greedy": 0.6, "forest": 0.5, "maxcorr": 0.9,
    "mincorr": 0.9, "linreg": 0.9,
}  # fmt: skip
"""What every method must find; drawing at random finds 14 of 64, a share of 0.22."""


def test_every_method_finds_the_planted_neurons(capsys):
    found = recall.measured()
    with capsys.disabled():
        print(f"\nrecall of {len(planted.names())} planted among {planted.INNER} neurons:", end=" ")
        print(", ".join(f"{name} {share:.2f}" for name, share in found.items()))
    assert set(found) == {*RANKINGS, *SEARCHES} - {"svcca"} == set(LEAST), "a new ranking needs a share to find"
    missed = {name: share for name, share in found.items() if share < LEAST[name]}
    assert not missed
    assert pytest.approx(14 / 64) == recall.CHANCE


def test_the_table_in_the_documentation_is_what_was_measured():
    """Another processor may order a neuron or two in another way."""
    block = DOCS.read_text(encoding="utf-8").partition("<!-- recall -->")[2].partition("<!-- end -->")[0]
    told = {
        name: float(share) for name, share in re.findall(r"^\| `([\w-]+)` \| .* \| ([\d.]+) \|$", block, re.MULTILINE)
    }
    assert set(told) == set(LEAST)
    assert told == pytest.approx(recall.measured(), abs=0.15)
    assert re.search(r"^\| at random \| .* \| 0\.22 \|$", block, re.MULTILINE)
