"""The claims of the study of identifiability, on numbers that are made up: every verdict can be reached."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pellucid.studies.identifiability import answers
from pellucid.studies.identifiability.claims import QUESTIONS, claims
from pellucid.studies.rules import Number
from pellucid.uncertainty import t_quantile
from tests.studies.identifiability_numbers import LENGTHS, attention, case, curve, flow, mixing, tokens


def verdict(start: str, *cases):
    (found,) = [each for each in claims(cases) if start in each.claim]
    return found.holds


def lengths(**changes):
    return case(lengths=attention(LENGTHS, **changes))


def test_every_claim_stands_on_a_model_that_is_as_published():
    found = claims([case()])
    assert [each.claim for each in found if each.holds is not True] == []
    assert len(found) == len(QUESTIONS) == 16
    for each in found:
        assert all((each.rule, each.source, each.published))
        assert each.number.low <= each.number.value <= each.number.high


@pytest.mark.parametrize(
    ("start", "changed", "wanted"),
    [
        ("longer than a head is wide is not unique", lengths(unique=[1, 1, 0.5, 0.5]), False),
        ("longer than a head is wide is not unique", lengths(unique=[1, 1, 0.05, 0.05], noise=0.2), None),
        ("longer than a head is wide is not unique", lengths(unique=[0.5, 0.5, 0, 0]), True),
        ("over a shorter text is unique", lengths(unique=[0.8, 0.8, 1, 1]), False),
        ("over a shorter text is unique", lengths(unique=[0.95, 0.95, 0, 0], noise=0.2), None),
        ("no special case", case(sentences=attention("0123", unique=[0.9] * 4)), False),
        ("no special case", case(sentences=attention("0123", unique=[0.5] * 4, noise=0.2)), None),
        ("another story", lengths(argmax=[0.9, 0.9, 0.02, 0.02]), False),
        ("another story", lengths(argmax=[0, 0, 0.1, 0.1], noise=0.2), None),
        ("The longer the text", lengths(shifted=[0, 0, 0.6, 0.3]), False),
        ("The longer the text", lengths(shifted=[0, 0, 0.6, 0.6], noise=0.2), None),
        ("mostly identifiable", case(tokens=tokens(**{"linear cosine": [0.9, 0.9, 0.2, 0.9, 0.9, 0.9]})), False),
        ("mostly identifiable", case(tokens=tokens(**{"linear cosine": [0.5] * 6, "noise": 0.3})), None),
        ("fades", case(tokens=tokens(**{"linear cosine": [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]})), False),
        ("fades", case(tokens=tokens(**{"linear cosine": [1.0] * 6, "noise": 0.0})), None),
        ("fades", case(tokens=tokens(**{"linear cosine": [0.9] * 6, "noise": 0.3})), None),
        ("angle", case(tokens=tokens(**{"linear l2": [0.999] * 6})), False),
        ("angle", case(tokens=tokens(noise=2.0)), None),
        ("linear map finds more", case(tokens=tokens(**{"identity cosine": [0.999] * 6})), False),
        ("linear map finds more", case(tokens=tokens(noise=9.0)), None),
        ("strongly mixed", case(mixing=mixing(own=[1, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7])), False),
        ("strongly mixed", case(mixing=mixing(own=[1, 0.9, 0.9, 0.9, 0.9, 0.8, 0.5], noise=0.3)), None),
        ("keep some identity", case(mixing=mixing(own=[1, 0.6, 0.5, 0.4, 0.3, 0.2, 0.01])), False),
        ("keep some identity", case(mixing=mixing(own=[1, 0.6, 0.5, 0.4, 0.3, 0.2, 0.05], noise=0.2)), None),
        ("30%", case(mixing=mixing(**{"not largest": [0, 0, 0, 0, 0, 0.3, 0.1]})), False),
        ("30%", case(mixing=mixing(**{"not largest": [0, 0, 0, 0, 0, 0.3, 0.7]})), False),
        ("30%", case(mixing=mixing(**{"not largest": [0, 0, 0, 0, 0, 0.3, 0.2], "noise": 0.2})), None),
        ("mix more and more", case(mixing=mixing(own=[1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])), False),
        ("mix more and more", case(mixing=mixing(own=[1, *[0.4] * 6], noise=0.3)), None),
        ("neighbours first", case(mixing=mixing(near=[0, *[0.1] * 6])), False),
        ("neighbours first", case(mixing=mixing(near=[0, *[0.2] * 6], noise=0.3)), None),
        ("from farther away", case(mixing=mixing(near=[0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])), False),
        ("from farther away", case(mixing=mixing(near=[0, *[0.6] * 6], noise=0.3)), None),
        ("followed down", case(flow=flow(rollout=[0.6, 0.6, 0.6, 0.6, 0.6, 0.1])), False),
        ("followed down", case(flow=flow(rollout=[0.3] * 6, noise=0.3)), None),
    ],
)
def test_verdicts(start, changed, wanted):
    assert verdict(start, changed) is wanted


def test_lengths_are_weighted_by_their_queries():
    held = lengths(unique=[1, 1, 0.0, 1.0])
    (found,) = [each for each in claims([held]) if "longer than a head is wide is not unique" in each.claim]
    assert found.number.value == pytest.approx(300 / 400)
    (short,) = [each for each in claims([lengths(unique=[0.0, 0.9, 0, 0])]) if "shorter text" in each.claim]
    assert short.number.value == pytest.approx(0.9 * 200 / 300)


def test_a_wide_head_needs_longer_texts():
    facts = case().facts
    wide = replace(case(), facts={**facts, "model": {**facts["model"], "head width": 128}})
    for start in ("longer than a head is wide is not unique", "another story", "The longer the text"):
        assert verdict(start, wide) is None
    assert verdict("over a shorter text", wide) is False  # all four lengths count now
    half = replace(case(), facts={**facts, "model": {**facts["model"], "head width": 64}})
    assert verdict("longer than a head is wide is not unique", half) is True
    assert verdict("The longer the text", half) is None  # one length alone
    between = replace(lengths(unique=[1, 0.5, 0, 0]), facts={**facts, "model": {**facts["model"], "head width": 24}})
    assert verdict("over a shorter text", between) is True  # 17 to 32 keys are neither fewer nor more
    assert verdict("longer than a head is wide is not unique", between) is True
    narrow = replace(case(), facts={**facts, "model": {**facts["model"], "head width": 4}})
    assert verdict("over a shorter text", narrow) is None


def test_one_group_of_documents_leaves_everything_open():
    alone = case(mixing=replace(mixing(), without=np.empty((0, 4, 7)), sizes=np.empty(0)))
    for start in ("strongly mixed", "30%", "neighbours first"):
        assert verdict(start, alone) is None


def test_the_last_layers_are_the_last_sixth():
    assert [answers.last_layers(count) for count in (1, 4, 6, 12, 30)] == [1, 1, 1, 2, 5]
    rows = {name: [0.0] * 13 for name in ("own", "not largest", "reach", "near")}
    rows["not largest"] = [0.0] * 11 + [0.2, 0.4]
    held = case(mixing=curve(rows, [str(layer) for layer in range(13)]))
    (found,) = [each for each in claims([held]) if "30%" in each.claim]
    assert found.number.value == pytest.approx(0.3)
    assert "the last 2 layers" in found.found


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0.2, 0.4, True),
        (0.25, 0.31, True),
        (0.1, 0.19, False),
        (0.41, 0.6, False),
        (0.15, 0.25, None),
        (0.35, 0.5, None),
        (0.1, 0.6, None),
    ],
)
def test_near_what_was_published(low, high, wanted):
    assert answers.near_published(Number((low + high) / 2, 0.9, low, high)) is wanted


def test_intervals_are_the_jackknifes():
    """Ten groups of one size whose left-out values have deviation s: the standard error is 9·s/√9·√(9/10)."""
    held = curve({"own": [0.4]}, ["1"], noise=0.1)
    found = answers.number_of(held, lambda values: float(values[0, 0]), 0.0)
    deviation = held.without.std()
    reach = t_quantile(0.975, 9) * np.sqrt(9 / 10 * 10) * deviation
    assert (found.low, found.high) == (pytest.approx(0.4 - reach), pytest.approx(0.4 + reach))
    share = answers.share_of(curve({"own": [0.01]}, ["1"], noise=0.1), lambda values: float(values[0, 0]), 0.0)
    assert share.low == 0
    assert share.high > 0.01


def test_the_random_network_is_told():
    drawn = replace(mixing(), random=np.full((4, 7), 0.77))
    (found,) = [each for each in claims([case(mixing=drawn)]) if "strongly mixed" in each.claim]
    assert "random network 77%" in found.found
    (found,) = [each for each in claims([case(mixing=replace(drawn, random=None))]) if "strongly" in each.claim]
    assert "random" not in found.found
