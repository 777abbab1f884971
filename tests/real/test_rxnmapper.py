"""A head known from the literature: layer 10, head 5 of RXNMapper maps the atoms of reactions (Schwaller et al. 2021).

Layers and heads are counted from 0, as everywhere here; so does the package, whose own setting is head 5 of layer 10.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.real.packaged import reaction_batch, rxnmapper

pytestmark = pytest.mark.real
LAYER, HEAD = 10, 5
REACTIONS = [
    "[C:1][C:2][C:3](=[O:4])[O:5].[O:6][C:7][C:8][C:9][C:10]>>[C:1][C:2][C:3](=[O:4])[O:6][C:7][C:8][C:9][C:10]",
    "[C:1][C:2][C:3][C:4](=[O:5])[O:6].[O:7][C:8][C:9]>>[C:1][C:2][C:3][C:4](=[O:5])[O:7][C:8][C:9]",
    "[C:1][C:2](=[O:3])[Cl:4].[O:5][C:6][C:7][C:8]>>[C:1][C:2](=[O:3])[O:5][C:6][C:7][C:8]",
    "[C:1][C:2][C:3](=[O:4])[Cl:5].[N:6][C:7][C:8][C:9]>>[C:1][C:2][C:3](=[O:4])[N:6][C:7][C:8][C:9]",
    "[C:1][C:2](=[O:3])[O:4].[N:5][C:6][C:7][C:8][C:9]>>[C:1][C:2](=[O:3])[N:5][C:6][C:7][C:8][C:9]",
    "[C:1][C:2][C:3][C:4](=[O:5])[O:6].[N:7][C:8][C:9]>>[C:1][C:2][C:3][C:4](=[O:5])[N:7][C:8][C:9]",
    "[C:1][C:2][C:3][C:4][Br:5].[N:6]#[C:7]>>[C:1][C:2][C:3][C:4][C:7]#[N:6]",
    "[C:1][C:2][C:3][Br:4].[O:5][C:6][C:7]>>[C:1][C:2][C:3][O:5][C:6][C:7]",
    "[C:1][C:2][I:3].[O:4][C:5][C:6][C:7][C:8]>>[C:1][C:2][O:4][C:5][C:6][C:7][C:8]",
    "[C:1][I:2].[O:3][C:4][C:5][C:6][C:7][C:8]>>[C:1][O:3][C:4][C:5][C:6][C:7][C:8]",
    "[C:1][C:2][C:3][C:4][Br:5].[S:6][C:7][C:8]>>[C:1][C:2][C:3][C:4][S:6][C:7][C:8]",
    "[C:1][C:2][C:3][C:4][Cl:5].[N:6][C:7]>>[C:1][C:2][C:3][C:4][N:6][C:7]",
    "[C:1][C:2][C:3](=[O:4])[C:5].[B:6]>>[C:1][C:2][C:3]([O:4])[C:5]",
    "[C:1][C:2][C:3][C:4]=[O:5].[B:6]>>[C:1][C:2][C:3][C:4][O:5]",
    "[C:1][C:2][C:3][C:4](=[O:5])[O:6][C:7].[Al:8]>>[C:1][C:2][C:3][C:4][O:5]",
    "[C:1][C:2][C:3][C:4]#[N:5].[Al:6]>>[C:1][C:2][C:3][C:4][N:5]",
    "[C:1][C:2][C:3][C:4]=[O:5].[N:6][C:7][C:8]>>[C:1][C:2][C:3][C:4][N:6][C:7][C:8]",
    "[C:1][C:2][C:3](=[O:4])[O:5][C:6].[O:7]>>[C:1][C:2][C:3](=[O:4])[O:7]",
    "[C:1][C:2][C:3][C:4][O:5].[C:6][S:7](=[O:8])(=[O:9])[Cl:10]>>[C:1][C:2][C:3][C:4][O:5][S:7]([C:6])(=[O:8])=[O:9]",
    "[C:1][C:2][C:3][C:4][O:5].[C:6][C:7](=[O:8])[O:9][C:10]([C:11])=[O:12]>>[C:1][C:2][C:3][C:4][O:5][C:7]([C:6])=[O:8]",
    "[C:1][C:2][N:3]=[C:4]=[O:5].[N:6][C:7][C:8][C:9]>>[C:1][C:2][N:3][C:4](=[O:5])[N:6][C:7][C:8][C:9]",
    "[C:1][C:2][C:3][N:4].[Cl:5][C:6](=[O:7])[O:8][C:9]>>[C:1][C:2][C:3][N:4][C:6](=[O:7])[O:8][C:9]",
    "[N:1][C:2][C:3][O:4].[C:5][C:6][C:7](=[O:8])[Cl:9]>>[C:5][C:6][C:7](=[O:8])[N:1][C:2][C:3][O:4]",
    "[C:1][C:2][C:3][C:4](=[O:5])[Cl:6].[O:7][C:8][C:9][Br:10]>>[C:1][C:2][C:3][C:4](=[O:5])[O:7][C:8][C:9][Br:10]",
]
"""Esters, amides, substitutions, ethers, reductions and the like, every atom numbered."""
_ATOM = re.compile(r"\[([A-Z][a-z]?):(\d+)\]")
_PIECE = re.compile(r"\[[^\]]+]|Br?|Cl?|>>|%\d\d|[A-Za-z0-9=#$:()+\-\\/.@*~?>]")
_PLAIN = {"B": "[BH4-]", "Al": "[AlH4-]"}


def plain(reaction: str) -> str:
    """A reaction without numbers."""
    return _ATOM.sub(lambda found: _PLAIN.get(found[1], found[1]), reaction)


def atoms(reaction: str) -> tuple[list[tuple[int, str, int]], list[tuple[int, str, int]]]:
    """Place among the tokens (0 is [CLS]), element and number of every atom, of the reactants and of the product."""
    places = [
        at for at, piece in enumerate(_PIECE.findall(plain(reaction)), start=1) if piece[0].isalpha() or len(piece) > 2
    ]
    found = [(at, element, int(number)) for at, (element, number) in zip(places, _ATOM.findall(reaction), strict=True)]
    border = len(_ATOM.findall(reaction.split(">>")[0]))
    return found[:border], found[border:]


@pytest.fixture(scope="module")
def scores() -> tuple[np.ndarray, float]:
    """The share of product atoms that look most at their own reactant atom, [layers, heads]; and chance."""
    model = rxnmapper()
    run = model.run(reaction_batch([plain(each) for each in REACTIONS]), "pattern.*")
    weights = np.stack([run[f"pattern.{layer}"].numpy() for layer in range(12)])  # [layers, reactions, heads, T, T]
    hits, chances = np.zeros((12, weights.shape[2])), []
    total = 0
    for number, reaction in enumerate(REACTIONS):
        reactant, product = atoms(reaction)
        keys = [at for at, _, _ in reactant]
        for at, element, atom in product:
            best = weights[:, number, :, at][..., keys].argmax(-1)
            hits += best == [other for _, _, other in reactant].index(atom)
            chances.append(1 / sum(other == element for _, other, _ in reactant))
            total += 1
    return hits / total, float(np.mean(chances))


def test_the_reactions_are_well_formed():
    assert len(REACTIONS) >= 20
    for reaction in REACTIONS:
        reactant, product = atoms(reaction)
        known = {number: element for _, element, number in reactant}
        assert len(known) == len(reactant)
        assert all(known[number] == element for _, element, number in product), reaction
        assert len({number for _, _, number in product}) == len(product)


def test_the_published_head_maps_atoms_far_above_chance_and_every_other_head(scores):
    """All layers share one set of weights, so head 5 maps atoms in most of them; no head of another number does."""
    found, chance = scores
    assert found.shape == (12, 8)
    assert found[LAYER, HEAD] > 0.9
    assert found[LAYER, HEAD] > 2.5 * chance
    others = np.delete(found, HEAD, axis=1)
    assert others.max() < found[LAYER, HEAD] - 0.3
    assert found[LAYER].argmax() == HEAD
    assert found.max() < found[LAYER, HEAD] + 0.05  # no layer is clearly better than the published one


def test_counted_from_one_it_would_be_a_head_under_chance(scores):
    found, chance = scores
    assert found[LAYER - 1, HEAD - 1] < chance
    assert found[LAYER, HEAD - 1] < chance
