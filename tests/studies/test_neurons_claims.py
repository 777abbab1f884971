"""Claims of the study of neurons: made-up numbers on which each stands, falls and cannot be told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pellucid.studies import rules
from pellucid.studies.neurons.claims import claims
from pellucid.studies.neurons.claims_methods import faithful_in_model, faithful_in_probe
from pellucid.studies.neurons.rows import faithful_rows, verdict_rows
from pellucid.studies.neurons.tables import METHODS
from pellucid.studies.neurons.verdicts import apart, by_groups, of_means, paired
from pellucid.studies.rules import Number
from tests.studies import neurons_numbers as made
from tests.studies.neurons_numbers import FEW, OPEN, TAGS, case


@pytest.fixture(autouse=True)
def fewer_draws(monkeypatch):
    """As many permutations as these numbers need."""
    monkeypatch.setattr(rules, "DRAWS", 300)


def verdict(start: str, *cases) -> bool | None:
    """What the only claim with some words says."""
    found = [each for each in claims(cases) if start in each.claim]
    assert len(found) == 1, [each.claim for each in found]
    return found[0].holds


def test_every_claim_stands_where_numbers_are_made_for_it():
    for task in ("lm", "tagger"):
        found = claims([case(task=task)])
        assert len({each.claim for each in found}) == len(found) == 13 + 2 * len(METHODS) + 3
        assert [each.claim for each in found if each.holds is not True] == []
        assert all(each.rule and each.found and each.published and "tutorial" in each.source for each in found)


CHANGES = {
    "tells the part of speech": (
        {"margins_pos": made.margins(0.5, 0.6, 0.4)},
        {"margins_pos": made.margins(0.5, 0.495, 0.4)},
    ),
    "tells the number": (
        {"margins_number": made.margins(0.5, 0.3, 0.6)},
        {"margins_number": made.margins(0.5, 0.3, 0.495)},
    ),
    "tells the syntactic relation": (
        {"margins_relation": made.margins(0.5, 0.3, 0.3, majority=0.6)},
        {"margins_relation": made.margins(0.5, 0.3, 0.3, majority=0.505)},
    ),
    "A twenty-fifth": (
        {"anew_pos": made.anew([0.5, 0.7, 0.9, 0.9, 0.9])},
        {"anew_pos": made.anew([0.5, 0.89, 0.9, 0.9, 0.9])},
    ),
    "tell more than as many": (
        {"anew_pos": made.anew([0.5, 0.7, 0.9, 0.9, 0.9], random=0.8), "draws_pos": made.draws(0.75, 0.8)},
        {"anew_pos": made.anew([0.5, 0.7, 0.9, 0.9, 0.9], random=0.701)},
    ),
    "85% of the neurons": (
        {"anew_pos": made.anew([0.5, 0.6, 0.7, 0.8, 0.9])},
        {"anew_pos": made.anew([0.5, 0.6, 0.7, 0.891, 0.9])},
    ),
    "A more complex task": (
        {"anew_relation": made.anew([0.9, 0.95, 0.95, 0.95, 0.95])},
        {"anew_relation": made.anew([0.9, 0.898, 0.9, 0.9, 0.9])},
    ),
    "stand in lower layers": (
        {"depth_pos": Number(0.2, 0.0, band=(-0.05, 0.05))},
        {"depth_pos": Number(0.01, 0.0, band=(-0.05, 0.05))},
    ),
    "Neurons for syntax": (
        {"depth_relation_less_pos": Number(-0.2, 0.0, band=(-0.05, 0.05))},
        {"depth_relation_less_pos": Number(0.04, 0.0, band=(-0.05, 0.05))},
    ),
    "deeper sub-layer": (
        {"hidden_units": Number(10, 25, band=(18.0, 32.0))},
        {"hidden_units": Number(25, 25, band=(18.0, 32.0))},
    ),
    "function words take fewer": (
        {"spread": made.spread({**dict.fromkeys(OPEN, 100.0), **dict.fromkeys(FEW, 400.0)})},
        {"spread": made.spread({name: 100.0 + 50 * (at % 2) for at, name in enumerate(TAGS)})},
    ),
    "exclusive to one": (
        {"several_classes": Number(0.01, 0.1, band=(0.05, 0.15))},
        {"several_classes": Number(0.12, 0.1, band=(0.05, 0.15))},
    ),
    "are experts": ({"experts": made.experts(0.1, 0.2)}, {"experts": made.experts(0.1, 0.105)}),
    "faithful to a probe: Probeless": (
        {f"in_probe_{name}": made.kept(0.3) for name in METHODS},
        {f"in_probe_{name}": made.kept(0.51) for name in METHODS},
    ),
    "faithful to the model: Gaussians": (
        {"loss_gaussian": made.lost(made.steps(4.0), 4.0, 4.2)},
        {"loss_gaussian": made.lost(made.steps(4.21, 0.1), 4.0, 4.2)},
    ),
    "Removing the neurons": (
        {"accuracy_class_DET": made.lost(made.steps(0.8), 0.9, 0.89)},
        {"accuracy_class_DET": made.lost(made.steps(0.89), 0.9, 0.89)},
    ),
    "Different methods": ({"agreement": made.agreement(0.6)}, {"agreement": made.agreement(0.42)}),
    "depend on the documents": (
        {name.replace(" ", "_"): grid for name, grid in made.stability(0.7).items()},
        {name.replace(" ", "_"): grid for name, grid in made.stability(0.52).items()},
    ),
}  # fmt: skip


@pytest.mark.parametrize("start", CHANGES)
def test_claims_fall_and_stay_open(start):
    falls, open_ = CHANGES[start]
    assert verdict(start, case(**falls)) is False
    assert verdict(start, case(**open_)) is None


def test_controls_have_an_uncertainty_of_their_own():
    """The probe is sure to .01 and stands .03 above a control; the difference is sure to .05, and so it is open."""
    probe = made.probe(0.53, 0.5, 0.4)
    found = case(probe_pos=probe, margins_pos=made.margins(0.53, 0.5, 0.4, reach=0.05))
    assert verdict("tells the part of speech", found) is None
    told = next(each for each in claims([found]) if "part of speech of words" in each.claim)
    assert told.found.startswith(
        "53%, random model 50%, difference 3.0% (−2.0% to 8.0%), chance 0%; control task 40%, "
    )
    assert verdict("tells the part of speech", case(margins_pos=made.margins(0.53, 0.5, 0.4, reach=0.02))) is True
    bare = {name: grid for name, grid in case(probe_pos=probe).grids.items() if name != "margins pos"}
    assert verdict("tells the part of speech", replace(found, grids=bare)) is None


def test_claims_that_compare_models():
    """One that reads from left to right beside two that read both ways."""
    wide = {"spread": made.spread({**dict.fromkeys(OPEN, 800.0), **dict.fromkeys(FEW, 300.0)})}
    lm, other, third = case("lm", causal=True, experts=made.experts(0.3)), case("a", **wide), case("b", **wide)
    assert verdict("The same classes", lm, other, third) is True
    assert verdict("have more experts", lm, other, third) is True
    assert verdict("need fewer neurons", lm, other, third) is True
    few = case("lm", causal=True, experts=made.experts(0.01), **wide)
    assert verdict("have more experts", few, case("a"), case("b")) is False
    assert verdict("need fewer neurons", few, case("a"), case("b")) is False
    mixed = case("b", experts=made.experts(0.5), spread=made.spread(dict.fromkeys(TAGS, 10.0)))
    assert verdict("have more experts", lm, other, mixed) is None
    assert verdict("need fewer neurons", lm, other, mixed) is None
    turned = case("a", spread=made.spread({name: 10.0 + at for at, name in enumerate(reversed(TAGS))}))
    straight = case("b", spread=made.spread({name: 10.0 + at for at, name in enumerate(TAGS)}))
    assert verdict("The same classes", turned, straight) is False
    shuffled = [3, 0, 7, 1, 10, 5, 2, 9, 4, 8, 6]
    loose = case("a", spread=made.spread({name: 10.0 + at for name, at in zip(TAGS, shuffled, strict=True)}))
    assert verdict("The same classes", loose, straight) is None


def test_first_neurons_must_beat_every_draw_of_random_ones():
    """The interval lies above the mean of random neurons each time; one draw that reaches as far leaves it open."""
    assert verdict("tell more than as many", case(draws_pos=made.draws(0.4, 0.9))) is None
    assert verdict("tell more than as many", case(draws_pos=made.draws(0.4, 0.89))) is True
    few = case(anew_pos=made.anew([0.5, 0.7, 0.9, 0.9, 0.9], random=0.8), draws_pos=made.draws(0.69, 0.9))
    assert verdict("tell more than as many", few) is None
    old = case()
    assert verdict("tell more than as many", replace(old, grids={name: grid for name, grid in old.grids.items()
                                                                  if name != "draws pos"})) is None  # fmt: skip


def test_classes_of_two_models_are_compared_class_by_class():
    """Every class takes a little less in one model, while classes differ widely: a deal of all classes sees nothing."""
    wide = {name: 10.0 * 2**at for at, name in enumerate(TAGS)}
    one = case("lm", causal=True, spread=made.spread({name: size / 1.2 for name, size in wide.items()}))
    other = case("a", spread=made.spread({**wide, "X": 3.0}))  # a class that the other lacks does not count
    number = next(each for each in claims([one, other]) if "need fewer" in each.claim).number
    assert number.value == pytest.approx(-np.log2(1.2))
    assert verdict("need fewer neurons", one, other) is True
    assert verdict("need fewer neurons", case("lm", causal=True, spread=made.spread(wide)), other) is None
    sides = np.array([1.0, -1.0] * 5)
    assert paired(sides).above() is None
    assert paired(sides[:2]) is rules.UNKNOWN
    assert paired(sides, seed=1).band != paired(np.arange(10.0), seed=1).band


def test_models_of_one_kind_are_not_compared():
    names = [each.claim for each in claims([case("a"), case("b")])]
    assert not any("left to right" in name for name in names)
    assert sum("The same classes" in name for name in names) == 1
    assert not any("The same classes" in each.claim for each in claims([case("a")]))


def test_a_model_without_a_task_is_judged_by_probes_alone():
    found = claims([case(task=None)])
    assert not any("faithful to the model" in each.claim or "Removing" in each.claim for each in found)
    rows = {row[0]: row[1:] for row in verdict_rows(claims([case("a", task=None), case("b")]), [case("a"), case("b")])}
    assert rows["The ranking is faithful to the model: Probeless."][:2] == ("–", "stands")
    assert rows["The same classes are localised in all models."][:2] == ("stands", "stands")


def test_a_tagger_is_judged_by_its_errors():
    """Accuracy falls from .89 with random neurons gone to .8: errors rise by .09."""
    first, last = faithful_in_model(case(task="tagger"), "iou") or (rules.UNKNOWN, rules.UNKNOWN)
    assert first.value == pytest.approx(0.09)
    assert last.value == pytest.approx(0)
    better = case(task="tagger", accuracy_iou=made.lost(made.steps(0.95), 0.9, 0.89))
    assert verdict("faithful to the model: overlap", better) is False


def test_random_neurons_are_those_of_all_rankings():
    changed = case(in_probe_iou=made.kept(0.7, random=0.5 + 0.07 * len(METHODS)))
    first, _ = faithful_in_probe(changed, "probeless")
    assert first.chance == pytest.approx(0.57)


def test_one_draw_of_random_neurons_that_does_as_well_leaves_it_open():
    """The mean of all draws is far below, and so is that of each ranking's draws; one single draw is not."""
    one = made.in_probe(0.4, 0.4, 0.71)
    assert verdict("faithful to a probe: Probeless", case(draws_in_probe=one)) is None
    assert verdict("faithful to a probe: Probeless", case(draws_in_probe=made.in_probe(0.4, 0.4, 0.69))) is True
    found = {each.claim: each.found for each in claims([case(draws_in_probe=one)])}
    assert "27 draws 40.0% to 71.0%" in found["The ranking is faithful to a probe: Probeless."]
    old = case()
    old = replace(old, grids={name: grid for name, grid in old.grids.items() if name != "draws in probe"})
    assert verdict("faithful to a probe: Probeless", old) is None
    assert "draws were not kept" in next(each.found for each in claims([old]) if "to a probe" in each.claim)
    draw = made.lost(made.steps(5.0), 4.0, 5.1)
    assert verdict("faithful to the model: Probeless", case(loss_iou=draw)) is None
    low = {f"in_probe_{name}": made.kept(0.3) for name in METHODS}
    assert verdict("faithful to a probe: Probeless", case(**low, draws_in_probe=made.in_probe(0.29, 0.7))) is None


def test_a_class_is_spared_by_a_share_of_the_accuracy_and_beside_random_neurons():
    """.005 of .3 is more than 1% of it; a drop that random neurons make as well tells nothing of a class."""

    def judged(first, whole, random):
        det, noun = made.lost(made.steps(first, 1e-4), whole, random), made.lost([whole] * 6, whole, random)
        return verdict("Removing the neurons", case(accuracy_class_DET=det, accuracy_class_NOUN=noun))

    assert judged(0.295, 0.3, 0.3) is False
    assert judged(0.299, 0.3, 0.3) is True
    assert judged(0.895, 0.9, 0.9) is True
    assert judged(0.85, 0.9, 0.85) is None, "as many at random do the same"
    assert judged(0.85, 0.9, 0.84) is None, "as many at random do more"
    assert judged(0.895, 0.9, 0.93) is None, "as many at random would do it good"
    found = next(each for each in claims([case(accuracy_class_DET=made.lost(made.steps(0.81), 0.9, 0.89))])
                 if "Removing" in each.claim)  # fmt: skip
    assert found.number.value == pytest.approx(0.1)
    assert "DET 10% " in found.found
    assert "less random" in found.found
    assert "DET 8.9% " in found.found.partition("less random")[2]


def test_numbers_of_means_are_jackknifed_whole():
    whole, few = np.array([0.5, 0.7, 0.6, 0.8]), np.array([0.4, 0.7, 0.5, 0.6])
    found = of_means(lambda one, other: other / one, whole, few, chance=0.9)
    without = [few[keep].sum() / whole[keep].sum() for keep in ~np.eye(4, dtype=bool)]
    reach = stats.t.ppf(0.975, 3) * np.sqrt(3 / 4 * ((np.array(without) - np.mean(without)) ** 2).sum())
    assert (found.value, found.chance) == pytest.approx((2.2 / 2.6, 0.9))
    assert (found.low, found.high) == pytest.approx((found.value - reach, found.value + reach))
    assert of_means(lambda one: one, whole[:1]) is rules.UNKNOWN


def test_a_ranking_of_the_chosen_alone_has_no_last():
    """Gaussians order the neurons they choose; the rest stand as they do in the model."""
    found = {each.claim: each.found for each in claims([case()])}
    for way in ("a probe", "the model"):
        assert "last" in found[f"The ranking is faithful to {way}: Probeless."]
        assert "last" not in found[f"The ranking is faithful to {way}: Gaussians."]
    cells = {row[1]: row for row in faithful_rows([case()])}
    assert cells["Gaussians"][4] == cells["Gaussians"][8] == "–"
    assert cells["Probeless"][4].plain == pytest.approx(0.2)


def test_intervals_over_groups_are_those_of_a_mean():
    values = np.array([0.1, 0.4, 0.2, 0.35, 0.3])
    found = by_groups(values, 0.05)
    low, high = stats.t.interval(0.95, 4, loc=values.mean(), scale=stats.sem(values))
    assert (found.value, found.chance) == pytest.approx((0.27, 0.05))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert by_groups(values[:1]).above() is None


def test_differences_have_both_uncertainties():
    found = apart(Number(0.5, 0, 0.47, 0.53), Number(0.2, 0, 0.16, 0.24))
    assert (found.value, found.low, found.high) == pytest.approx((0.3, 0.25, 0.35))
    assert apart(Number(0.5, 0), Number(0.2, 0, 0.16, 0.24)).above() is None
