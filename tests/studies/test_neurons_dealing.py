"""Chance where units go as a whole: known answers, and verdicts that are right as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.provenance import Provenance
from pellucid.studies import rules
from pellucid.studies.neurons.dealing import depth_between, depth_of, hidden_units, several_classes

SITES = tuple(f"resid.{layer}" for layer in (0, 2, 4, 6, 8))
UNITS = 100


@pytest.fixture(autouse=True)
def fewer_draws(monkeypatch):
    """As many deals as these numbers need."""
    monkeypatch.setattr(rules, "DRAWS", 300)


def ranking(scores, names) -> Ranking:
    """A ranking with these scores of each class; the first neurons are those with the largest of any."""
    values = np.atleast_2d(np.array(scores, float))
    axes = {"class": tuple(f"c{at}" for at in range(len(values))), "neuron": tuple(names)}
    overall = overall_table(names, np.abs(values).max(axis=0), null=None)
    origin = Provenance("neurons.made_up", {"method": "made up"})
    return Ranking(axes, values, None, None, None, "no interval: made up", origin, {"overall": overall})


def stream(scores) -> Ranking:
    """A ranking of scores [..., sites, units] of a stream."""
    names = [f"{site}:{unit}" for site in SITES for unit in range(UNITS)]
    return ranking(np.reshape(scores, (-1, len(names))), names)


def likes(seed, *shape) -> np.ndarray:
    """Scores [..., sites, units] of units that are much the same at all sites, and know nothing of these."""
    dice = np.random.default_rng(seed)
    own = dice.exponential(size=(*shape, 1, UNITS))
    return own + 0.1 * np.cumsum(dice.normal(size=(*shape, len(SITES), UNITS)), axis=-2)


def wrong(numbers) -> float:
    """How often numbers of chance alone lie beyond chance."""
    return float(np.mean([number.above() is not None for number in numbers]))


def test_depths_by_hand():
    """The first two of six neurons stand at the sites 0 and 1 of three."""
    names = [f"resid.{site}:{at}" for site in (0, 2, 4) for at in range(2)]
    found = depth_of(ranking([[9, 0, 8, 0, 0, 0]], names), 2, ("resid.0", "resid.2", "resid.4"))
    assert found.value == pytest.approx((0 + 0.5) / 2 - (0 + 0.5 + 1 + 1) / 4)
    assert found.band == pytest.approx((found.value, -found.value)), "one unit, as it stands or turned round"
    assert found.below() is None
    assert depth_of(ranking([[9, 0, 8, 0, 0, 0]], names), 1, ("resid.0", "resid.2", "resid.4")) is rules.UNKNOWN


def test_first_neurons_at_one_end_are_told():
    low, high = np.zeros((2, len(SITES), UNITS))
    low[0, :20], high[4, 30:50] = 1, 1
    assert depth_of(stream(low), 20, SITES).value == pytest.approx(-0.5 - 10 / 480)
    assert depth_of(stream(low), 20, SITES).below() is True
    assert depth_of(stream(high), 20, SITES).above() is True
    between = depth_between(stream(high), stream(low), 20, SITES)
    assert between.value == pytest.approx(1)
    assert between.above() is True
    assert depth_between(stream(low), stream(high), 20, SITES).below() is True


def test_a_unit_that_is_first_at_several_sites_is_one_finding():
    """Four units at the first two sites are four findings, and not eight."""
    scores = np.zeros((len(SITES), UNITS))
    scores[:2, :4] = 1
    found = depth_of(stream(scores), 8, SITES)
    assert found.value < -0.3
    assert found.below() is None, "in an eighth of the ways to turn four units round all stand at one end"
    assert rules.difference(
        np.repeat(np.linspace(0, 1, 5), UNITS), scores.ravel() > 0, scores.ravel() == 0
    ).below() is True  # fmt: skip


def test_a_swap_of_units_keeps_their_depths():
    """One unit of each: relation at depth 1, part of speech at 0; swapped, it is the other way round."""
    one, other = np.zeros((2, len(SITES), UNITS))
    one[4, 7], other[0, 7] = 1, 1
    found = depth_between(stream(one), stream(other), 1, SITES)
    assert found.value == pytest.approx(1)
    assert found.band == pytest.approx((-1, 1))


@pytest.mark.parametrize("seed", range(3))
def test_verdicts_on_depth_are_seldom_wrong(seed):
    seeds = range(100 * seed, 100 * seed + 30)
    assert wrong(depth_of(stream(likes(each)), 40, SITES) for each in seeds) <= 0.2
    pairs = [likes(each, 2) for each in seeds]
    assert wrong(depth_between(stream(one), stream(other), 40, SITES) for one, other in pairs) <= 0.2


def test_classes_that_draw_their_units_at_random_share_as_many_as_chance_gives():
    """Units are shared at all sites or at none: as single neurons, half of such verdicts are wrong."""
    found, single = [], []
    for seed in range(40):
        scores = likes(seed, 8)
        number = several_classes(stream(scores), 25, SITES)
        found.append(number)
        served = (np.argsort(np.argsort(-scores.reshape(8, -1), axis=1), axis=1) < 25).sum(0)
        single.append(rules.share(int((served > 1).sum()), int((served > 0).sum()), number.chance))
        assert number.value == pytest.approx((served > 1).sum() / (served > 0).sum())
    assert wrong(found) <= 0.15
    assert wrong(single) >= 0.3


def test_neurons_that_all_classes_share_are_told_and_so_are_exclusive_ones():
    dice = np.random.default_rng(0)
    same = np.tile(dice.normal(size=(1, len(SITES), UNITS)), (6, 1, 1))
    assert several_classes(stream(same), 20, SITES).value == 1
    assert several_classes(stream(same), 20, SITES).above() is True
    apart = np.zeros((6, len(SITES), UNITS))
    for cls in range(6):
        apart[cls, :, 16 * cls : 16 * cls + 16] = 1 + dice.random((len(SITES), 16))
    found = several_classes(stream(apart), 80, SITES)
    assert found.value == 0
    assert found.above() is False
    even = several_classes(stream(dice.normal(size=(11, len(SITES), UNITS))), 10, SITES)
    p = np.array([0.98**11, 11 * 0.02 * 0.98**10])
    assert even.chance == pytest.approx((1 - p.sum()) / (1 - p[0]), abs=0.01)
    assert even.above() is None


def blocks(scores_of_attention, scores_of_hidden) -> Ranking:
    """A ranking of what attention adds [blocks, units] and of hidden units."""
    parts = {"attn": scores_of_attention, "neurons": scores_of_hidden}
    names = [f"{kind}.{block}:{unit}" for kind, part in parts.items() for block in range(len(part))
             for unit in range(len(part[0]))]  # fmt: skip
    return ranking([np.concatenate([np.ravel(part) for part in parts.values()])], names)


def test_hidden_units_are_counted_among_the_first():
    """Seven of the first ten are hidden units, where eight would be by chance: 100 of all 125 are."""
    attention, hidden = np.zeros((5, 5)), np.zeros((5, 20))
    attention[0, :3], hidden[1, :7] = 1, 1
    found = hidden_units(blocks(attention, hidden), 10)
    assert found.value == 7
    assert found.chance == pytest.approx(10 * 100 / 125)
    assert found.above() is None
    full = np.zeros((5, 20))
    full[:, :20] = 2
    assert hidden_units(blocks(attention, np.zeros((5, 20))), 3).above() is False
    assert hidden_units(blocks(np.zeros((5, 20)), full), 60).above() is True
    names = [f"neurons.0:{unit}" for unit in range(8)]
    assert hidden_units(ranking([np.arange(8.0)], names), 3) is rules.UNKNOWN


def test_units_are_dealt_out_with_all_their_blocks():
    """Twelve units of sixty are first in all five blocks: as sixty single neurons, many such verdicts are wrong."""
    wide = []
    for seed in range(30):
        dice = np.random.default_rng(seed)
        own = [np.repeat(dice.normal(size=(1, count)), 5, axis=0) for count in (30, 30)]
        wide.append(hidden_units(blocks(*own), 60))
    assert wrong(wide) <= 0.15
    single = [rules.survivors(300, 150, 60, int(number.value)) for number in wide]
    assert wrong(single) >= 0.3
