"""Recall of every ranking on the planted model: which share of the neurons that were planted stands first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pellucid.neurons import RANKINGS
from pellucid.neurons.methods import SEARCHES
from tests.neurons import planted, recall

DOCS = Path(__file__).parents[2] / "docs" / "neurons.md"
FOUND = {
    "probeless": 12, "iou": 12, "precision": 13, "selectivity": 13, "probe-elastic": 11, "probe-l1": 11, "probe-l2": 11,
    "gaussian": 9, "ablation": 14, "ablation-greedy": 11, "forest": 9, "maxcorr": 14, "mincorr": 14, "linreg": 14,
}  # fmt: skip
"""How many of the 14 every method finds; drawing at random finds 14 of 64, three of them."""
ONE = 1 / len(planted.names()) + 1e-3
"""Another processor may order one neuron in another way."""


def test_every_method_finds_the_planted_neurons(capsys):
    found = recall.measured()
    with capsys.disabled():
        print(f"\nrecall of {len(planted.names())} planted among {planted.INNER} neurons:", end=" ")
        print(", ".join(f"{name} {share:.2f}" for name, share in found.items()))
    assert set(found) == {*RANKINGS, *SEARCHES} - {"svcca"} == set(FOUND), "a new ranking needs a number to find"
    expected = {name: count / len(planted.names()) for name, count in FOUND.items()}
    assert found == pytest.approx(expected, abs=ONE)
    assert pytest.approx(14 / 64) == recall.CHANCE


def test_the_table_in_the_documentation_is_what_was_measured():
    block = DOCS.read_text(encoding="utf-8").partition("<!-- recall -->")[2].partition("<!-- end -->")[0]
    told = {
        name: float(share) for name, share in re.findall(r"^\| `([\w-]+)` \| .* \| ([\d.]+) \|$", block, re.MULTILINE)
    }
    assert set(told) == set(FOUND)
    assert told == pytest.approx(recall.measured(), abs=ONE + 5e-3)  # which are rounded
    assert re.search(r"^\| at random \| .* \| 0\.22 \|$", block, re.MULTILINE)
