"""Agreement, votes, stability and findings from rankings whose scores are set by hand: every known answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm, t

from pellucid import neurons
from pellucid.neurons.judging.agreement import expected_jaccard
from pellucid.neurons.judging.redrawn import deviations, quantile_of
from pellucid.neurons.probing.intervals import accuracies, over_folds
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.results import Provenance, ResultError, Table
from pellucid.uncertainty import jackknife
from tests.neurons import planted

NAMES = (*(f"resid.0:{unit}" for unit in range(4)), *(f"neurons.0:{unit}" for unit in range(8)))


def ranking(values, *, low=None, high=None, names=NAMES, method="by hand", random=None) -> Ranking:
    """A ranking of two classes, or of as many as there are rows; overall is the sum of sizes."""
    values = np.atleast_2d(np.asarray(values, dtype=float))
    classes = tuple(f"c{place}" for place in range(len(values)))
    unit = "10 document groups (jackknife, 95%)" if low is not None else "no interval: by hand"
    score = np.abs(values).sum(0)
    ends = {} if low is None else {"low": score - 0.1, "high": score + 0.1}
    return Ranking(
        {"class": classes, "neuron": tuple(names)}, values, np.zeros_like(values), low, high,
        unit, Provenance("neurons.ranking", {"method": method, "concept": "x"}, ({"name": "m", "fingerprint": "f"},)),
        {"overall": overall_table(names, score, null=np.zeros(len(names)), **ends),
         **({} if random is None else {"random model": Table({"class": classes, "neuron": tuple(names)},
                                                             {"value": np.atleast_2d(random)})})},
    )  # fmt: skip


def jaccard(one, other):
    return len({*one} & {*other}) / len({*one} | {*other})


def test_agreement_is_jaccard_of_the_first():
    one, other = ranking(np.arange(12.0)), ranking(np.r_[np.arange(10.0), 0.5, -20.0])
    found = neurons.agreement({"one": one, "other": other}, k=3)
    # the first three are 11, 10, 9 and 11, 9, 8: two in common out of four
    assert found.values == pytest.approx(np.array([[1, 0.5], [0.5, 1]]))
    assert found.null[0, 1] == pytest.approx(expected_jaccard(12, 3))
    # places add up to 2 for neuron 11, 5 for 9, 7 for 8 …; 5 and 10 both have 13 and stay in the model's order
    table = found.table("neurons")
    assert table.axes["neuron"] == tuple(NAMES[at] for at in (11, 9, 8, 7, 6, 5, 10, 4, 3, 2, 1, 0))
    assert table.axes["neuron"] == tuple(neurons.vote({"one": one, "other": other}).order())
    assert table.columns["one"].tolist() == [1, 3, 4, 5, 6, 7, 2, 8, 9, 10, 11, 12]
    assert table.columns["other"].tolist() == [1, 2, 3, 4, 5, 6, 11, 7, 8, 9, 10, 12]
    assert found.low is None


def test_rankings_may_write_their_neurons_in_different_orders():
    values, moved = np.arange(12.0), np.random.default_rng(0).permutation(12)
    low, high = values[None] - 0.5, values[None] + 0.5
    one = ranking(values[::-1], low=low[:, ::-1], high=high[:, ::-1])
    other = ranking(values, low=low, high=high, random=values / 2)
    names = tuple(NAMES[at] for at in moved)
    shuffled = ranking(values[moved], low=low[:, moved], high=high[:, moved], names=names, random=values[moved] / 2)
    assert shuffled.in_order(NAMES).same(other)
    assert other.in_order(names).same(shuffled)
    for found in (neurons.agreement, neurons.vote):
        kept = {} if found is neurons.vote else {"k": 3}
        assert found({"a": one, "b": shuffled}, **kept).same(found({"a": one, "b": other}, **kept))
    counts = {"counts": (3, 5)}
    assert neurons.stability([one, shuffled], **counts).same(neurons.stability([one, other], **counts))


def test_the_interval_of_an_agreement_is_that_of_scores_drawn_again():
    values = np.arange(12.0)
    sure, unsure = (ranking(values, low=values[None] - reach, high=values[None] + reach) for reach in (1e-9, 30))
    tight, wide = (neurons.agreement({"a": each, "b": each}, k=3, cls="c0") for each in (sure, unsure))
    assert tight.low[0, 1] == tight.high[0, 1] == 1.0
    assert wide.low[0, 1] <= expected_jaccard(12, 3) < wide.values[0, 1] == wide.high[0, 1] == 1.0
    assert wide.resampled.startswith("scores drawn within their bounds over 10 document groups")
    vote = neurons.vote({"a": unsure, "b": unsure}, cls="c0")
    assert (vote.high - vote.low)[0].min() > 0.2
    still = neurons.vote({"a": sure, "b": sure}, cls="c0")
    assert np.abs(still.high - still.low).max() < 1e-9


def test_an_interval_that_is_cut_off_is_as_wide_as_its_whole_side():
    """A share of .05 ± .2 has the interval 0 to .25, and one of −.9, at the lower end of values, −1 to −.7."""
    values, names = np.array([0.05, 0.5, -0.9, -0.05, 0.95]), [f"n:{place}" for place in range(5)]
    least, most = np.where(values < 0, -1, 0), np.where(values < 0, 0, 1)
    low, high = (np.clip(values + reach, least, most)[None] for reach in (-0.2, 0.2))
    cut = ranking(values, low=low, high=high, names=names)
    assert deviations(cut, "c0") == pytest.approx(0.2 / t.ppf(0.975, 9), abs=1e-6)
    columns = cut.overall.columns
    overall = overall_table(names, columns["score"], null=None, low=columns["low"].clip(0), high=columns["high"])
    cut = replace(cut, tables={"overall": overall})
    assert deviations(cut, None) == pytest.approx(0.1 / t.ppf(0.975, 9), abs=1e-6)


@pytest.mark.parametrize(
    ("told", "freedom"),
    [("10 document groups (jackknife, 95%)", 9), ("3 of 10 sentence groups, each left out in turn", 2),
     ("7 document groups, fewer than 10 (jackknife, 95%)", 6)],
)  # fmt: skip
def test_half_an_interval_is_a_quantile_of_t(told, freedom):
    assert quantile_of(told) == pytest.approx(t.ppf(0.975, freedom), abs=1e-6)


def test_every_interval_tells_how_wide_it_is():
    """What writes an interval, and what reads its width, agree; anything else is refused and not guessed."""
    found = np.arange(12.0).reshape(4, 3)
    assert quantile_of(over_folds(found, unit="sentence").resampled) == pytest.approx(t.ppf(0.975, 3), abs=1e-6)
    assert quantile_of(jackknife(found[0], found, [1.0] * 4).resampled) == pytest.approx(t.ppf(0.975, 3), abs=1e-6)
    hits, counts = np.ones((6, 2)), np.full((6, 2), 3)
    assert quantile_of(accuracies(hits, counts, unit="row")[1].resampled) == pytest.approx(t.ppf(0.975, 5), abs=1e-6)
    values = np.arange(12.0)
    bounded = ranking(values, low=values[None] - 1, high=values[None] + 1)
    assert quantile_of(neurons.vote({"a": bounded, "b": bounded}).resampled) == 1.96  # as a vote's own
    for odd in ("1000 draws of words (bootstrap)", "1 document groups (jackknife, 95%)", "ten groups"):
        stranger = replace(bounded, resampled=odd)
        for use in (neurons.distribution, neurons.polysemy):
            with pytest.raises(ResultError, match="does not say how wide"):
                use(stranger, 3)


def test_deviations_are_those_that_the_interval_was_made_of():
    values = np.arange(12.0)
    reach = t.ppf(0.975, 9) * 0.5
    found = ranking(values, low=values[None] - reach, high=values[None] + reach)
    assert deviations(found, "c0") == pytest.approx(0.5)
    assert deviations(ranking(values), "c0") is None


def test_expected_jaccard_is_the_mean_over_all_pairs_of_sets():
    total, k = 6, 3
    sets = [set(each) for each in combinations(range(total), k)]
    assert expected_jaccard(total, k) == pytest.approx(np.mean([len(a & b) / len(a | b) for a in sets for b in sets]))
    assert expected_jaccard(4, 4) == 1.0


def test_a_vote_is_bordas_count_with_shared_places():
    names = ("n:0", "n:1", "n:2")
    one = ranking([[3.0, 2.0, -1.0]], names=names)
    other = ranking([[-5.0, 5.0, -1.0]], names=names)
    found = neurons.vote({"one": one, "other": other})
    # places: 1, 2, 3 and 1.5, 1.5, 3
    assert found.overall.columns["score"] == pytest.approx([1 - 0.25 / 2, 1 - 0.75 / 2, 0])
    assert np.sign(found.values[0]).tolist() == [1, 1, 0]
    assert found.order() == list(names)
    assert found.method == "vote"
    assert "vote" in found.title


def test_every_class_has_a_vote_of_its_own():
    names = ("n:0", "n:1", "n:2")
    one = ranking([[3.0, 2.0, 1.0], [0.0, 1.0, 5.0], [9.0, 0.0, 1.0]], names=names)
    gaussian = ranking([[1.0, -7.0, 3.0]] * 3, names=names, method="gaussian")
    found = neurons.vote({"one": one, "gaussian": gaussian})
    assert np.abs(found.values[0]) == pytest.approx([1, 0.5, 0]), "Gaussians have no order of a class"
    assert np.abs(found.values[1]) == pytest.approx([0, 0.5, 1])
    # overall sums 12, 3, 7 have the places 1, 3, 2, and the Gaussians' 3, 1, 2
    assert found.overall.columns["score"] == pytest.approx([0.5, 0.5, 0.5])


def test_a_method_that_tells_all_classes_at_once_has_no_order_of_one():
    values = np.tile(np.arange(12.0), (3, 1))
    found = ranking(values, method="gaussian")
    assert found.classes_apart == ()
    assert found.top(1) == [NAMES[11]]
    with pytest.raises(ResultError, match="'gaussian' tells all 3 classes apart at once, so 'c1' has no order"):
        found.top(1, "c1")
    with pytest.raises(ResultError, match="one size for all classes"):
        neurons.polysemy(ranking(values[:2], method="gaussian"), 2)
    assert ranking(values[:2], method="gaussian").top(1, "c1") == [NAMES[11]], "of two, one class is the other's rest"
    with pytest.raises(ResultError, match="same sizes"):
        neurons.expert_share({"m": found})
    assert ranking(values, method="forest").classes_apart == ("c0", "c1", "c2")
    assert ranking(values).classes_apart == ("c0", "c1", "c2")


def test_rankings_of_other_neurons_cannot_be_compared():
    one, other = ranking([[1.0, 2.0]], names=("n:0", "n:1")), ranking([[1.0, 2.0]], names=("n:0", "n:2"))
    for call in (neurons.agreement, neurons.vote):
        with pytest.raises(ResultError, match="not of the same neurons"):
            call({"one": one, "other": other})
        with pytest.raises(ResultError, match="at least one"):
            call({})
    with pytest.raises(ResultError, match="no first 3"):
        neurons.agreement({"one": one}, k=3)
    with pytest.raises(ResultError, match="two or more"):
        neurons.stability([one])


def test_equals_come_in_the_models_order_or_with_a_seed_in_any():
    tied = ranking(np.array([0.0, 2.0, 0.0, 0.0, 1.0, *[0.0] * 7]))
    assert tied.order() == [tied.neurons[at] for at in (1, 4, 0, 2, 3, *range(5, 12))]
    drawn = [tied.order(seed=seed) for seed in range(20)]
    assert all(each[:2] == tied.order()[:2] and sorted(each) == sorted(tied.neurons) for each in drawn)
    assert len({each[-1] for each in drawn}) > 2, "what was not chosen is no layer's alone"
    assert tied.order(seed=3) == drawn[3]


def chosen_alone(places, total=200, *, sites=2):
    """A ranking that gives 1, 1/2, … to some neurons, and 0 to all others."""
    score = np.zeros(total)
    score[list(places)] = 1 / np.arange(1, len(places) + 1)
    names = [f"resid.{site}:{unit}" for site in range(sites) for unit in range(total // sites)]
    return ranking(score, names=names)


def test_neurons_that_no_method_chose_are_no_agreement():
    """Equals at the cut come in any order: two rankings that chose different neurons agree as chance does."""
    one, other = chosen_alone((150, 151)), chosen_alone((160, 161))
    found = neurons.agreement({"one": one, "other": other}, k=50)
    assert found.values[0, 1] == pytest.approx(found.null[0, 1], abs=0.01)
    assert np.diag(found.values).tolist() == [1, 1]
    assert found.values[0, 1] == found.values[1, 0]
    assert neurons.stability([one, other], counts=(50,)).values[0] == pytest.approx(found.null[0, 1], abs=0.01)
    again = neurons.agreement({"one": one, "other": other}, k=50)
    assert np.array_equal(found.values, again.values)
    assert not np.array_equal(found.values, neurons.agreement({"one": one, "other": other}, k=50, seed=1).values)
    assert found.provenance.arguments["equal at the cut"] == {"one": 198, "other": 198}


def test_the_agreement_of_equals_is_the_mean_over_their_orders():
    names = tuple(f"n:{unit}" for unit in range(6))
    one, other = ranking([[3.0, 1, 1, 1, 0, 0]], names=names), ranking([[0.0, 0, 2, 5, 2, 2]], names=names)
    # the first two: 0 and one of 1, 2, 3; 3 and one of 2, 4, 5
    pairs = [jaccard([0, a], [3, b]) for a in (1, 2, 3) for b in (2, 4, 5)]
    found = neurons.agreement({"one": one, "other": other}, k=2)
    assert found.values[0, 1] == pytest.approx(np.mean(pairs), abs=0.05)
    assert neurons.agreement({"one": one, "other": other}, k=1).values[0, 1] == 0


def test_the_interval_of_an_agreement_holds_other_orders_of_equals():
    score = np.r_[np.zeros(10), 1.0, 2.0]
    sure = ranking(score, low=score[None], high=score[None])
    found = neurons.agreement({"a": sure, "b": sure}, k=4, cls="c0")
    assert found.low[0, 1] == pytest.approx(2 / 6)  # the two that are chosen, and two others each
    assert found.high[0, 1] == 1.0 or found.high[0, 1] == pytest.approx(3 / 5)
    assert found.values[0, 1] < 0.6


def test_neurons_that_a_method_did_not_choose_stand_at_no_site():
    found = neurons.distribution(chosen_alone((150, 151)), 50)
    # both that were chosen stand at the second site, and of the 48 others 100/198 at the first
    assert found.values == pytest.approx([48 * 100 / 198 / 50, (2 + 48 * 98 / 198) / 50])


def test_the_first_neurons_are_counted_by_site_in_whatever_order_they_are_written():
    values = np.r_[np.zeros(4), [9, 8, -7, 6, 0, 0, 0, 0]]
    turned = ranking(values).in_order(NAMES[::2] + NAMES[1::2])
    assert dict(zip(turned.axes["neuron"], turned.overall.columns["score"], strict=True))["neurons.0:0"] == 9
    found = neurons.distribution(turned, 4)
    assert found.axes["site"] == ("resid.0", "neurons.0")
    assert found.values.tolist() == [0.0, 1.0]


def test_neurons_that_no_class_chose_serve_none_in_particular():
    names = tuple(f"n:{unit}" for unit in range(4))
    found = neurons.polysemy(ranking([[5.0, 0, 0, 0], [0, 0, 0, 5]], names=names), 2)
    # each class has one neuron, and each of the other three by a third
    surely, other = (0, 2 / 3, 1 / 3), (4 / 9, 4 / 9, 1 / 9)
    assert found.values == pytest.approx((2 * np.array(surely) + 2 * np.array(other)) / 4)
    assert found.table("neurons").columns["neuron"].tolist() == ["n:0", "n:3"]
    assert found.table("neurons").columns["which"].tolist() == ["c0", "c1"]


def test_stability_is_the_mean_over_pairs():
    dice = np.random.default_rng(0)
    again = [ranking(np.arange(12.0) + 3 * dice.normal(size=12)) for _ in range(4)]
    found = neurons.stability(again, counts=(3, 6, 12, 50))
    assert found.axes["neurons"] == (3, 6, 12)
    pairs = [jaccard(a.top(3), b.top(3)) for a, b in combinations(again, 2)]
    assert found.values[0] == pytest.approx(np.mean(pairs))
    assert found.values[2] == 1.0
    assert found.low is not None
    assert (found.low <= found.values).all()
    assert found.null[0] == pytest.approx(expected_jaccard(12, 3))
    same = neurons.stability([again[0]] * 3, counts=(5,))
    assert same.values[0] == same.low[0] == same.high[0] == 1.0
    two = neurons.stability(again[:2], counts=(5,))
    assert two.low is two.high is None
    assert two.resampled.startswith("no interval")


def test_the_first_neurons_are_counted_by_site():
    values = np.r_[np.zeros(4), [9, 8, -7, 6, 0, 0, 0, 0]]
    found = neurons.distribution(ranking(values), 4)
    assert found.axes["site"] == ("resid.0", "neurons.0")
    assert found.values.tolist() == [0.0, 1.0]
    assert found.null == pytest.approx([4 / 12, 8 / 12])
    assert found.low is None
    wide = ranking(values, low=np.atleast_2d(values - 30), high=np.atleast_2d(values + 30))
    unsure = neurons.distribution(wide, 4, cls="c0")
    assert unsure.low[0] == 0
    assert unsure.high[0] > 0.2
    with pytest.raises(ResultError, match="no first 13"):
        neurons.distribution(ranking(values), 13)


def test_one_neuron_is_localised_and_equal_ones_are_distributed():
    found = neurons.spread(ranking([np.eye(12)[3] * -5, np.ones(12), np.zeros(12)]))
    assert found.measure("effective") == pytest.approx([1, 12, 0])
    assert found.measure("half").tolist() == [1, 6, 0]
    assert 0.6 * 12 < found.null[0, 0] < 12
    large = neurons.spread(ranking([np.r_[np.ones(1), np.zeros(3999)]], names=[f"n:{unit}" for unit in range(4000)]))
    # of a half-normal law, E[x ln x]/E[x] = (ln 2 + ψ(1))/2 and E[x; x > t]/E[x] = exp(−t²/2)
    assert large.null[0, 0] / 4000 == pytest.approx(np.sqrt(2 / np.pi) * np.exp(-(np.log(2) - 0.577216) / 2), abs=0.01)
    assert large.null[1, 0] / 4000 == pytest.approx(2 * norm.sf(np.sqrt(2 * np.log(2))), abs=0.01)


def test_polysemous_neurons_serve_several_classes():
    values = np.zeros((3, 12))
    values[:, 0] = 5, -5, 5
    values[0, 1] = values[1, 2] = values[2, 2] = 4
    found = neurons.polysemy(ranking(values), 2)
    # neuron 0 serves all three, neuron 2 two, neuron 1 one; the other nine none
    assert found.values == pytest.approx(np.array([9, 1, 1, 1]) / 12)
    table = found.table("neurons").columns
    assert table["neuron"].tolist() == ["resid.0:0", "resid.0:2", "resid.0:1"]
    assert table["which"].tolist() == ["c0, c1, c2", "c1, c2", "c0"]
    assert found.null.sum() == pytest.approx(1)
    assert found.null[0] == pytest.approx((10 / 12) ** 3)


def test_the_interval_of_polysemy_is_that_of_scores_drawn_again():
    values = np.zeros((2, 12))
    values[0, :2], values[1, 2:4] = (5, -4), (-5, 4)
    reach = np.full_like(values, 8.0)
    sure, unsure = (ranking(values, low=values - width, high=values + width) for width in (1e-9, reach))
    tight, wide = (neurons.polysemy(each, 2) for each in (sure, unsure))
    assert tight.values == pytest.approx([8 / 12, 4 / 12, 0])
    for end in (tight.low, tight.high):
        assert end == pytest.approx(tight.values)
    assert wide.values == pytest.approx(tight.values)
    assert wide.high[2] > 1 / 12 - 1e-9, "in some draws a neuron is among the first of both"
    assert wide.low[2] == 0
    assert 2 * 8 / 12 - wide.high[0] == pytest.approx(wide.low[0]), "what draws gain, the share may have gained before"
    assert wide.resampled.startswith("scores drawn within their bounds over 10 document groups")
    assert np.array_equal(wide.high, neurons.polysemy(unsure, 2, seed=0).high)
    assert wide.provenance.seed == 0
    assert neurons.polysemy(ranking(values), 2).low is None
    below = ranking(-np.abs(values) - 1, low=-np.abs(values) - 1, high=-np.abs(values) - 1)
    signed = neurons.polysemy(below, 8, by="signed")
    assert signed.values == pytest.approx(signed.low), "with a sign, the least negative come first in draws too"


def test_experts_are_counted_model_by_model():
    values = np.r_[0.95, -0.92, np.full(10, 0.5)]
    one = ranking([values], low=values[None] - 0.03, high=values[None] + 0.03, random=np.r_[-0.93, np.full(11, 0.2)])
    values = np.full(12, 0.91)
    other = ranking([values], low=values[None] - 0.03, high=values[None] + 0.03, random=np.full(12, 0.2))
    found = neurons.expert_share({"small": one, "large": other}, bar=0.9)
    assert found.values == pytest.approx(np.array([[2 / 12], [1.0]]))
    assert found.null == pytest.approx(np.array([[1 / 12], [0.0]])), "the share in the random model"
    assert found.low == pytest.approx(np.array([[1 / 12], [0.0]])), "0.92 and 0.91 fall below the bar"
    assert found.high == pytest.approx(np.array([[2 / 12], [1.0]]))
    assert found.resampled.startswith("all scores at the ends of their bounds over 10 document groups")
    assert neurons.expert_share({"small": ranking(values)}).null is None
    sides = np.r_[0.97, -0.97, np.full(10, 0.5)]
    least, most = np.where(sides < 0, -1, 0), np.where(sides < 0, 0, 1)
    low, high = (np.clip(sides + reach, least, most) for reach in (-0.08, 0.08))
    cut = neurons.expert_share({"m": ranking([sides], low=low[None], high=high[None])}, bar=0.9)
    assert (cut.low[0, 0], cut.values[0, 0], cut.high[0, 0]) == (0, 2 / 12, 2 / 12), "both may be as low as 0.89"
    assert len(found.provenance.models) == 2
    axes = {"class": ("z",), "neuron": NAMES}
    stranger = Ranking(axes, one.values, None, None, None, "no interval: by hand", one.provenance, one.tables)
    with pytest.raises(ResultError, match="no class in common"):
        neurons.expert_share({"small": one, "large": stranger})


def test_documents_are_drawn_again_from_one_sweep():
    import pellucid as pl

    text, collectors = (
        planted.corpus(),
        [pl.ClassMoments("neurons.0", label="upos", covariance="diagonal", groups=True)],
    )
    found = pl.sweep(planted.model(), text, collectors, progress=False)
    made = neurons.resampled_stability(found, concept="upos", method="selectivity", counts=(5, 14, 64), draws=6)
    assert made.values[2] == 1.0
    assert made.values[1] > made.null[1] + 0.3, "planted neurons come first whichever documents are drawn"
    assert made.low is not None
    assert "6 rankings, each of 10 document groups drawn with replacement" in made.resampled
    again = neurons.resampled_stability(found, concept="upos", method="selectivity", counts=(5, 14, 64), draws=6)
    assert np.array_equal(made.values, again.values)
    for method in ("iou", "precision"):
        other = neurons.resampled_stability(planted.model(), text.take(100), concept="upos=NOUN", sites="neurons.0",
                                            method=method, counts=(1, 10), draws=4)  # fmt: skip
        assert other.values[0] == 1.0
        assert other.provenance.arguments["method"] == method
    whole = pl.ClassMoments("neurons.0", label="upos", covariance="diagonal")
    with pytest.raises(ResultError, match="groups=True"):
        neurons.resampled_stability(pl.sweep(planted.model(), text.take(30), [whole], progress=False), concept="upos")
    with pytest.raises(ResultError, match="'forest' is not made of sums"):
        neurons.resampled_stability(found, concept="upos", method="forest")
