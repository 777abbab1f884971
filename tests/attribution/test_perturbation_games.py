"""Shapley values, LIME and the plans of copies, on small games whose answers are computed by other means."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from pellucid.attribution.removal import coalitions, lime, shapley
from pellucid.errors import AttributionError


def random_game(players: int, seed: int = 0):
    """A value for every coalition; coalition number c holds player i where bit i of c is set."""
    table = np.random.default_rng(seed).normal(size=(2**players, 2))

    def play(present):
        return table[(np.asarray(present, dtype=int) * 2 ** np.arange(players)).sum(axis=1)]

    return table, play


def by_all_orders(play, players: int):
    """Shapley values by their definition: the mean gain over every order."""
    found = np.zeros((players, 2))
    orders = list(permutations(range(players)))
    for order in orders:
        there = np.zeros((1, players), dtype=bool)
        before = play(there)
        for player in order:
            there[0, player] = True
            after = play(there)
            found[player] += (after - before)[0]
            before = after
    return found / len(orders)


def run(plan: coalitions.Plan, play):
    assert plan.present[0].all()
    assert not plan.present[1].any()
    return plan.read(play(plan.present))


@pytest.mark.parametrize("players", [1, 2, 5])
def test_exact_shapley_values_are_the_mean_over_all_orders(players):
    table, play = random_game(players)
    wanted = by_all_orders(play, players)
    assert np.allclose(shapley.exact(table), wanted, atol=1e-12)
    found, reach = run(coalitions.shared_out(players, 25, 0), play)
    assert np.allclose(found, wanted, atol=1e-12)
    assert not reach.any()


def test_sampled_shapley_values_add_up_and_their_intervals_hold_the_exact_ones():
    players, hits, tries = 7, 0, 60
    table, play = random_game(players, 3)
    exact = shapley.exact(table)
    full, none = play(np.ones((1, players), dtype=bool))[0], play(np.zeros((1, players), dtype=bool))[0]
    for seed in range(tries):
        plan = coalitions.shared_out(players, 6, seed)
        assert len(plan.present) == 2 + 2 * 6 * (players - 1)
        found, reach = run(plan, play)
        assert np.allclose(found.sum(axis=0), full - none, atol=1e-10)
        hits += (np.abs(found - exact) <= reach).sum()
    assert 0.90 <= hits / (tries * exact.size) <= 0.99


def test_a_pair_of_reversed_orders_is_exact_for_games_of_pairs():
    """Of a game with effects of single players and pairs, an order and its reverse give the exact values."""
    generator, players = np.random.default_rng(1), 9
    single, pairs = generator.normal(size=players), np.triu(generator.normal(size=(players, players)), 1)

    def play(present):
        there = np.asarray(present, dtype=float)
        return (there @ single + np.einsum("ki,ij,kj->k", there, pairs, there))[:, None]

    found, reach = run(coalitions.shared_out(players, 3, 0), play)
    assert np.allclose(found[:, 0], single + (pairs + pairs.T).sum(axis=1) / 2, atol=1e-10)
    assert np.abs(reach).max() < 1e-9


def test_shap_gives_the_same_values():
    shap = pytest.importorskip("shap")
    players = 6
    table, play = random_game(players, 5)
    explainer = shap.KernelExplainer(play, np.zeros((1, players)))
    theirs = explainer.shap_values(np.ones((1, players)), nsamples=2**players, silent=True, l1_reg=0)
    assert np.allclose(np.asarray(theirs)[0], shapley.exact(table), atol=1e-6)


def test_an_additive_game_gives_its_own_terms_to_every_method():
    terms = np.random.default_rng(2).normal(size=(12, 3))

    def play(present):
        return np.asarray(present, dtype=float) @ terms + 0.7

    plans = (coalitions.ablated(12), coalitions.shared_out(12, 3, 0), coalitions.linear(12, 3, 0))
    for plan in plans:
        found, reach = run(plan, play)
        assert np.allclose(found, terms, atol=1e-9)
        assert np.abs(reach).max() < 1e-8


def test_lime_is_the_weighted_fit_that_lstsq_finds():
    players = 4
    _, play = random_game(players, 7)
    there = np.array([[c >> i & 1 for i in range(players)] for c in range(16)], dtype=float)
    removed = players - there.sum(axis=1).astype(int)
    chances = np.array([1 / (5 * [1, 4, 6, 4, 1][k]) for k in removed])  # 0 to 4 away with equal chance
    cosine = there.sum(axis=1) / np.sqrt(players * np.maximum(there.sum(axis=1), 1))
    weights = chances * np.exp(-((1 - cosine) ** 2) / (2 * 0.25**2))
    root = np.sqrt(weights)[:, None]
    design = np.concatenate([np.ones((16, 1)), there], axis=1)
    wanted = np.linalg.lstsq(design * root, play(there.astype(bool)) * root, rcond=None)[0][1:]
    found, reach = run(coalitions.linear(players, 25, 0), play)
    assert np.allclose(found, wanted, atol=1e-9)
    assert not reach.any()


def test_lime_draws_come_to_the_exact_fit_within_their_intervals():
    players, hits, tries = 5, 0, 40
    _, play = random_game(players, 8)
    there, weights = lime.everything(players)
    exact = lime.fitted(there, weights, play(there))
    for seed in range(tries):
        chosen = lime.masks(players, 600, seed)
        found, error = lime.drawn(chosen, play(chosen), 20)
        hits += (np.abs(found - exact) <= 2.1 * error).sum()
    assert 0.88 <= hits / (tries * exact.size) <= 0.99


def test_lime_masks_take_away_every_number_of_players_equally_often():
    away = 6 - lime.masks(6, 7000, 0).sum(axis=1)
    assert np.allclose(np.bincount(away, minlength=7) / 7000, 1 / 7, atol=0.02)


def test_copies_that_do_not_tell_players_apart_are_refused():
    together = np.repeat(np.random.default_rng(0).random((8, 2)) < 0.5, [1, 2], axis=1)  # the last two never part
    with pytest.raises(AttributionError, match="8 random copies of the text do not tell its 3 groups apart"):
        lime.drawn(together, np.arange(8.0)[:, None], 4)


@pytest.mark.parametrize(("length", "window", "stride"), [(7, 3, 2), (6, 3, 1), (5, 2, 2), (4, 4, 1), (7, 3, 3)])
def test_occlusion_averages_the_windows_that_hold_a_player(length, window, stride):
    _, play = random_game(length, 9)
    windows = []
    start = 0
    while True:
        windows.append(set(range(start, min(start + window, length))))
        if start + window >= length:
            break
        start += stride
    whole = play(np.ones((1, length), dtype=bool))[0]
    effects = [whole - play(np.array([[i not in one for i in range(length)]]))[0] for one in windows]
    wanted = [np.mean([e for e, one in zip(effects, windows, strict=True) if i in one], axis=0) for i in range(length)]
    plan = coalitions.occluded([length], window, stride)
    assert len(plan.present) == 2 + len(windows)
    assert np.allclose(run(plan, play)[0], wanted, atol=1e-12)


def test_no_window_straddles_two_sides():
    plan = coalitions.occluded([3, 4], 2, 1)
    hidden = [np.flatnonzero(~row).tolist() for row in plan.present[2:]]
    assert hidden == [[0, 1], [1, 2], [3, 4], [4, 5], [5, 6]]


@pytest.mark.parametrize(
    ("window", "stride", "told"),
    [(2, 3, "would pass over some"), (2, 0, "would pass over some"), (9, 1, "does not fit into a text of 5")],
)
def test_windows_that_cannot_be(window, stride, told):
    with pytest.raises(AttributionError, match=told):
        coalitions.occluded([5], window, stride)
