"""Claims of the study of heads: made-up numbers on which each stands, falls and cannot be told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pellucid.studies import rules
from pellucid.studies.heads.claims import claims
from pellucid.studies.heads.claims_layers import all_links, held_out_head, tag_special
from pellucid.studies.heads.rows import function_rows
from pellucid.studies.heads.tables import Drawn, Links
from pellucid.studies.heads.verdicts import functions_of, lasting, point_at, reading_heads, specialised
from pellucid.studies.rules import rise
from tests.studies import heads_numbers as made
from tests.studies.heads_numbers import (
    NAMES,
    SPECIAL,
    case,
    curve,
    functions,
    importance,
    links,
    profile,
    pruning,
    tags,
)

EVERY = {
    "recognisable functions",
    "All three kinds",
    "Important heads",
    "Confidence tells",
    "Most heads can be removed",
    "It matters which",
    "Most heads that survive",
    "The last heads",
    "A head links pronouns",
    "The link is made in the middle",
    "Many heads specialise",
    "Different parts of speech",
    "Deeper layers",
    "follows dependencies",
    "looks least far",
}


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
    found = claims([case()])
    assert len(found) == len(EVERY)
    assert {word for word in EVERY if any(word in each.claim for each in found)} == EVERY
    assert [each.claim for each in found if each.holds is not True] == []


def test_functions():
    few = {"1.0": "positional"}
    assert verdict("recognisable functions", case(functions={"made-up English": functions({})})) is False  # 0 of 48
    assert verdict("recognisable functions", case(functions={"made-up English": functions(few)})) is None
    most = {"made-up English": Drawn({"positional": 40}, {}, 40)}
    assert verdict("recognisable functions", case(random=most)) is False
    assert verdict("All three kinds", case(functions={"made-up English": functions(few)})) is False
    untried = functions(few)
    axes = {**untried.axes, "measure": untried.axes["measure"][:2]}
    untried = replace(untried, axes=axes, values=untried.values[:2], null=untried.null[:2])
    assert verdict("All three kinds", case(functions={"made-up English": untried})) is None


def test_what_random_heads_do_too_is_no_function_unless_it_is_done_better():
    """Heads score .95; where a random head has a function with .9, .95 is not ten points better."""
    near = case(functions={"made-up English": functions().against({"positional": 0.9})})
    assert {name for name, own in functions_of(near).items() if own} == {"2.3", "3.4", "4.2"}
    far = case(functions={"made-up English": functions().against({"positional": 0.8})})
    assert specialised(far).sum() == len(SPECIAL)
    assert functions().best == {"positional": 0.95, "syntactic": 0.95, "rare words": 0.95}
    assert functions({}).best == {}
    held = [row for row in function_rows(near) if row[1] == "positional"]
    assert held[0][2] == 0, "the table counts by the rule that claims go by"


def test_importance_of_specialised_heads():
    worth = np.array([float(name in SPECIAL) for name in NAMES]) + 0.01 * np.arange(len(NAMES))
    weighed = importance({"confidence": worth, "gradient": worth, "zero": -worth})
    assert verdict("Important heads", case(importance=weighed)) is False
    mixed = np.random.default_rng(1).permutation(worth)
    weighed = importance({"confidence": worth, "gradient": -worth, "zero": mixed})
    assert verdict("Important heads", case(importance=weighed)) is None
    assert verdict("Confidence tells", case(importance=weighed)) is False
    weighed = importance({"confidence": worth, "gradient": -worth, "zero": mixed, "lrp": worth})
    assert verdict("Confidence tells", case(importance=weighed)) is True  # LRP goes before the gradient
    weighed = importance({"confidence": worth, "gradient": mixed, "zero": mixed})
    assert verdict("Confidence tells", case(importance=weighed)) is None


def test_the_first_layer_is_left_out_of_confidence():
    worth = np.arange(48.0)
    other = np.where(np.arange(48) < 8, 1000 - worth, worth)
    assert verdict(
        "Confidence tells", case(importance=importance({"confidence": worth, "gradient": other, "zero": worth}))
    )


@pytest.mark.parametrize(("kept", "reach", "wanted"), [(0.99, 0.01, True), (0.9, 0.01, False), (0.95, 0.02, None)])
def test_removable(kept, reach, wanted):
    assert verdict("Most heads can be removed", case(curve=curve([1, 1, kept, 0.5, 0.2], reach))) is wanted


def test_which_heads_are_left():
    assert verdict("It matters which", case(curve=curve([1, 1, 0.9, 0.5, 0.2], random=0.95))) is False
    assert verdict("It matters which", case(curve=curve([1, 1, 0.9, 0.5, 0.2], reach=0.1, random=0.95))) is None
    wide = curve([1, 1, 0.9, 0.5, 0.2], random=0.8)
    wide.high[2] = 0.92  # beyond the mean of random draws, but not beyond the best of them
    assert verdict("It matters which", case(curve=wide)) is None


def test_nothing_can_be_said_where_gates_closed_too_few_heads_or_the_model_only_guesses():
    short = case(curve=curve([1.0, 0.9]), pruning=pruning(NAMES, (48, 36), 36))
    for start in ("Most heads can be removed", "It matters which", "Most heads that survive"):
        assert verdict(start, short) is None
    rows = np.ones((3, 5))
    guessing = replace(curve([1.0] * 5), scores=0.5 * rows, low=rows, high=rows)
    assert verdict("Most heads can be removed", case(curve=guessing)) is None


def test_survivors():
    last = [*(name for name in NAMES if name not in SPECIAL), *SPECIAL]
    assert verdict("Most heads that survive", case(pruning=pruning(last))) is False
    assert verdict("The last heads", case(pruning=pruning(last))) is False
    mixed = [NAMES[at] for at in np.random.default_rng(2).permutation(len(NAMES))]
    assert verdict("The last heads", case(pruning=pruning(mixed))) is None
    half = [*list(SPECIAL)[:6], *(name for name in NAMES if name not in SPECIAL), *list(SPECIAL)[6:]]
    survivors = case(pruning=pruning(half))  # 6 of 12: more than a draw leaves, but not most
    assert verdict("Most heads that survive", survivors) is None


def test_points_and_how_long_heads_last():
    one = case()
    assert (point_at(one, 0.5), point_at(one, 1 / 3), point_at(one, 0.1)) == (24, 12, None)
    order = [str(name) for name in one.pruning.table("gates").axes["head"]]
    places = [0, 5, 11, 23, 35, 47]  # open at 36, 24, 12 and 6 heads, at all of them or at fewer
    assert lasting(one, [order[place] for place in places]).tolist() == [1.0, 1.0, 0.75, 0.5, 0.25, 0.0]


def test_stacks_of_a_translator():
    """The encoder's heads go first; functions of heads without a stack are those of the encoder."""
    names = [
        f"{stack}.{layer}.{head}"
        for layer in range(2)
        for stack in ("encoder", "decoder", "cross")
        for head in range(8)
    ]
    by_stack = {stack: [name for name in names if name.startswith(stack)] for stack in ("encoder", "decoder", "cross")}
    worth = np.arange(48.0)
    weighed = importance({"confidence": worth, "gradient": worth, "zero": worth}, names)
    axes = {"measure": made.FUNCTIONS, "layer": (0, 1), "head": tuple(range(8))}
    found = functions()
    labels = found.table("labels")
    cut = {name: cells[:2] for name, cells in labels.columns.items()}
    table = type(labels)({"layer": (0, 1), "head": tuple(range(8))}, cut)
    part = replace(found, axes=axes, values=found.values[:, :2], null=found.null[:, :2], tables={"labels": table})
    held = case("translate", importance=weighed, functions={"made-up English": part})

    def ordered(*stacks: str):
        return replace(held, pruning=pruning([name for stack in stacks for name in by_stack[stack]]))

    assert reading_heads(held) == by_stack["encoder"]
    assert {name for name, own in functions_of(held).items() if own} == {
        f"encoder.{name}" for name in ("0.7", "1.0", "1.1", "1.7")
    }
    start = "Heads of the encoder go first"
    assert verdict(start, ordered("cross", "decoder", "encoder")) is True
    assert verdict(start, ordered("encoder", "decoder", "cross")) is False
    mixed = [names[at] for at in np.random.default_rng(0).permutation(48)]
    assert verdict(start, replace(held, pruning=pruning(mixed))) is None
    assert not any(start in each.claim for each in claims([case()]))


# -- layers and pronouns -----------------------------------------------------------------------------------------------


def test_the_head_of_pronouns_is_chosen_on_other_sentences_than_it_is_counted_on():
    """Every group has a head of its own that does well there alone: the best of all, and nothing when held out."""
    hits = np.zeros((10, 2, 6, 8))
    for group in range(10):
        hits[group, 0, group // 8, group % 8] = 30
    luck = Links(tuple("012345"), hits, np.full((10, 2), 4.0), np.full(10, 40.0))
    apart, one, _, _ = held_out_head(luck)
    assert apart.value == 0
    assert one.value == 0
    apart, one, other, head = held_out_head(links((2, 1)))
    assert (apart.value, one.value, other.value, head) == (
        pytest.approx(0.4),
        pytest.approx(0.6),
        pytest.approx(0.2),
        "2.1",
    )
    assert one.chance == pytest.approx(0.1)
    people = links((2, 1), antecedent=0.3, rival=0.0)
    people.hits[:, :, 4, 4] = 20  # a head that looks at people, whoever they are
    assert held_out_head(people)[3] == "2.1"


def test_forms_of_pronouns_are_counted_together():
    both = all_links(case(pronouns={"gender": links((2, 1)), "meaning": links(None)}))
    assert both.pronouns.sum() == 800
    assert both.hits[:, 0, 2, 1].sum() == 10 * (24 + 4)


def test_pronouns():
    worse = {"gender": links((2, 1), antecedent=0.0, rival=0.0)}
    for form in worse.values():
        form.hits[:, 1] += 2  # every head looks at the rival more often
    assert verdict("A head links pronouns", case(pronouns=worse)) is False
    assert verdict("A head links pronouns", case(pronouns={"gender": links(None)})) is None
    assert verdict("The link is made in the middle", case(pronouns={"gender": links((5, 1))})) is False
    assert verdict("The link is made in the middle", case(pronouns={"gender": links(None)})) is None
    worse["gender"].hits[:, 0, 2] += 1  # most in the middle, but less often than the rival
    assert verdict("The link is made in the middle", case(pronouns=worse)) is None


def test_parts_of_speech():
    assert len(tag_special(case(facts={**case().facts, "tags": tags(3)}))) == 3
    twice = {**tags(0), "shares": [[0.5] * 48, [0.19] * 48]}  # 2.5 times and 30 points, 1.9 times and 9 points
    assert tag_special(case(facts={**case().facts, "tags": twice})) == {}
    thrice = {**tags(0), "shares": [[0.2] * 48, [0.31] * 24 + [0.29] * 24]}
    assert tag_special(case(facts={**case().facts, "tags": thrice})) == {str(head): "VERB" for head in range(24)}
    for count, wanted in ((20, True), (0, False), (5, None)):
        assert verdict("Many heads specialise", case(facts={**case().facts, "tags": tags(count)})) is wanted
    same = {**case().profiles, "tags": profile({f"T{at}": [0.1] * 6 for at in range(12)}, noise=0.05)}
    assert verdict("Different parts of speech", case(profiles=same)) is None
    without = {name: each for name, each in case().profiles.items() if name != "tags"}
    assert verdict("Different parts of speech", case(profiles=without)) is None


def test_distance_and_syntax():
    assert rise(np.array([1.0, 2.0, 3.0])) == pytest.approx(2)
    falling = {**case().profiles, "distance": profile({"distance": [5.0, 4.0, 4.5, 4.5, 2.0, 1.0]})}
    assert verdict("Deeper layers", case(profiles=falling)) is False
    assert verdict("looks least far", case(profiles=falling)) is False
    unsure = {**case().profiles, "distance": profile({"distance": [3.0] * 6}, noise=0.3)}
    assert verdict("Deeper layers", case(profiles=unsure)) is None
    assert verdict("looks least far", case(profiles=unsure)) is None
    outer = {**case().profiles, "neighbours": profile({"neighbours": [0.4, 0.3, 0.1, 0.1, 0.3, 0.4]})}
    assert verdict("follows dependencies", case(profiles=outer)) is False
    for row, wanted in (
        ([0.6, 0.5, 0.4, 0.4, 0.1, 0.1], False),  # above the mean of all others, but not above the first third
        ([0.5, 0.1, 0.4, 0.4, 0.1, 0.1], None),  # above both, but the first layer has most
        ([0.1, 0.3, 0.4, 0.4, 0.1, 0.1], True),
    ):
        given = {**case().profiles, "neighbours": profile({"neighbours": row})}
        assert verdict("follows dependencies", case(profiles=given)) is wanted, row
        turned = {**case().profiles, "distance": profile({"distance": [1 - each for each in row]})}
        assert verdict("looks least far", case(profiles=turned)) is wanted, row
    unsure = {**case().profiles, "neighbours": profile({"neighbours": [0.2] * 6}, noise=0.1)}
    assert verdict("follows dependencies", case(profiles=unsure)) is None


def test_a_random_network_that_looks_farther_with_depth_takes_the_claim_away():
    rising = profile({"distance": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    alike = {**case().profiles, "distance": replace(rising, random=rising.values)}
    assert verdict("Deeper layers", case(profiles=alike)) is None
    assert verdict("Deeper layers", case(profiles={**case().profiles, "distance": rising})) is True


def test_two_models_are_compared_where_both_are_there():
    start = "Language model and encoder"
    both = [case("lm"), case("classify")]
    assert verdict(start, *both) is True
    late = case("classify", pronouns={"gender": links((5, 1))})
    assert verdict(start, case("lm"), late) is False
    whole = links((2, 1))
    single = Links(whole.layers, whole.hits[:1], whole.expected[:1], whole.pronouns[:1])  # one group: no interval
    assert verdict(start, case("lm"), case("classify", pronouns={"gender": single})) is None
    no_link = {"gender": links((5, 1), antecedent=0.2)}  # depth is known, but no head prefers the antecedent
    assert verdict(start, case("lm"), case("classify", pronouns=no_link)) is None
    assert not any(start in each.claim for each in claims([case("lm")]))
