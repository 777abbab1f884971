"""The plan of a comparison: what is chosen for which sizes, what it says, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.collect.collector import Setting
from pellucid.collect.documents import DocumentSample
from pellucid.collect.moments import Moments
from pellucid.collect.sample import TokenSample
from pellucid.corpus import Corpus
from pellucid.errors import PellucidError
from pellucid.model.sites import Site
from pellucid.similarity import pair_of_rows, planning
from pellucid.similarity.cca import mean_cca
from pellucid.similarity.metrics import chosen
from pellucid.similarity.pair import Pair, Side
from pellucid.similarity.planning import Wanted, float32_error, make_plan, words_up_to
from tests.found_by_hand import facts


def model(layers: int = 13, width: int = 768, name: str = "one") -> Any:
    return facts({Site("resid", layer): (width,) for layer in range(layers)}, name=name)


def wanted(scores: str, pairs: tuple[tuple[int, int], ...] = ((0, 0),)) -> Wanted:
    return Wanted(tuple(chosen(scores)), "resid.*", "resid.*", pairs)


def kinds(plan: Any) -> list[type]:
    return [type(each) for each in plan.collectors]


def test_few_words_take_gram_tiles_and_many_take_moments() -> None:
    few = make_plan(wanted("cka"), [model()], words=800)
    assert (few.method, kinds(few)) == ("gram", [TokenSample])
    assert few.collectors[0].size == 800
    assert "all words" in few.lines[0]
    assert "exact" in few.lines[0]
    many = make_plan(wanted("cka"), [model()], words=19_000, memory_limit=8 << 30)
    assert (many.method, kinds(many)) == ("moments", [Moments])
    assert "Error: about 1e-7" in many.lines[0]


def test_crossing_point_is_where_the_work_is_equal() -> None:
    """One model of L layers of width d: 2n²(2Ld + L²) against 2nd²(L² + 2L)."""
    layers, width = 13, 768
    crossing = width**2 * (layers**2 + 2 * layers) / (2 * layers * width + layers**2)
    for words, method in ((int(crossing * 0.98), "gram"), (int(crossing * 1.02), "moments")):
        assert make_plan(wanted("cka"), [model()], words=words).method == method


def test_groups_are_kept_in_memory_else_on_disk_else_a_sample_gives_the_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """13 sites of 768 features: 4.1 GB for the products of ten groups, 91 pairs of 768² float64 each."""
    roomy = make_plan(wanted("cka"), [model()], words=None, memory_limit=1 << 40)
    assert roomy.collectors[0].groups
    assert "4.0 GB of memory, document groups kept apart." in roomy.lines[0]
    monkeypatch.setattr(planning, "free_disk", lambda folder: 13 << 30)
    tight = make_plan(wanted("cka"), [model()], words=None, memory_limit=1 << 30, folder=tmp_path)
    assert kinds(tight) == [Moments]
    assert tight.collectors == roomy.collectors  # so a pass goes on when memory has changed
    assert "410.6 MB of memory, document groups kept apart on disk: 4.0 GB" in tight.lines[0]
    assert f"in '{tmp_path}', up to 12.0 GB while it runs" in tight.lines[0]
    monkeypatch.setattr(planning, "free_disk", lambda folder: 11 << 30)
    full = make_plan(wanted("cka"), [model()], words=None, memory_limit=1 << 30)
    assert kinds(full) == [Moments, TokenSample]
    assert not full.collectors[0].groups
    assert "intervals from a sample of 4,096 words" in full.lines[0]
    assert "12.0 GB of disk, which" in full.lines[0]


def test_free_disk_is_that_of_the_folder_to_be_made(tmp_path: Path) -> None:
    there = planning.free_disk(tmp_path)
    assert there > 1 << 20
    assert planning.free_disk(tmp_path / "not" / "yet") == pytest.approx(there, rel=0.05)
    assert planning.free_disk(None) > 1 << 20


def test_sampled_words_count_in_the_limit() -> None:
    """A word of 13 sites of 768 features takes 40 kB: 4,096 of them 156 MB, beside 411 MB of moments."""
    both = wanted("svcca,mutual-knn")
    assert kinds(make_plan(both, [model()], words=None, memory_limit=600 << 20)) == [Moments, TokenSample]
    with pytest.raises(PellucidError, match=r"need 566\.\d MB, and the limit is 500\.0 MB"):
        make_plan(both, [model()], words=None, memory_limit=500 << 20)
    with pytest.raises(PellucidError, match=r"4,096 words of resid.\* need 156\.\d MB, .* take a smaller sample"):
        make_plan(wanted("mutual-knn"), [model()], words=None, memory_limit=100 << 20)
    fewer = make_plan(wanted("mutual-knn"), [model()], words=None, memory_limit=100 << 20, sample=2000)
    assert fewer.collectors[0].size == 2000  # pyright: ignore[reportAttributeAccessIssue]
    few = make_plan(wanted("cka"), [model()], words=2000, memory_limit=100 << 20)
    assert few.collectors[0].size == 2000  # pyright: ignore[reportAttributeAccessIssue]
    narrow = [model(layers=100, width=4)]  # words that do not all fit are no reason to leave out some of them
    assert make_plan(wanted("cka"), narrow, words=19_000, memory_limit=8 << 20, sample=100).method == "moments"


def test_too_little_memory_for_moments_takes_a_sample_for_cka_and_refuses_others() -> None:
    plan = make_plan(wanted("cka"), [model()], words=None, memory_limit=300 << 20)
    assert plan.method == "gram"
    assert "a sample of 7,869 words" in plan.lines[0]  # as many as fit, at 4 · 13 · 768 + 40 bytes each
    (all_of_them,) = make_plan(wanted("cka"), [model()], words=None, method="gram", memory_limit=8 << 30).collectors
    assert all_of_them.size == 20_000  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(PellucidError, match=r"4,096 words of resid.\* need"):
        make_plan(wanted("cka"), [model()], words=None, memory_limit=1 << 20)
    with pytest.raises(PellucidError, match=r"need 4\d\d\.\d MB, and the limit is 1\.0 MB"):
        make_plan(wanted("svcca"), [model()], words=None, memory_limit=1 << 20)


def test_random_models_need_no_groups() -> None:
    models = [model(), model(name="one (random, seed 0)")]
    plan = make_plan(wanted("cka", ((0, 0), (0, 1))), models, words=None, memory_limit=1 << 40)
    assert [each.groups for each in plan.collectors] == [True, False]
    setting = Setting(tuple(models), "mean", None)  # pyright: ignore[reportArgumentType]
    assert setting.keys(plan.collectors[1].sites) == tuple(f"{m}:resid.{layer}" for m in (0, 1) for layer in range(13))


def test_what_scores_need_is_gathered() -> None:
    assert kinds(make_plan(wanted("mutual-knn"), [model()], words=None)) == [TokenSample]
    assert kinds(make_plan(wanted("mutual-knn,svcca"), [model()], words=None)) == [Moments, TokenSample]
    assert DocumentSample in kinds(make_plan(wanted("cka"), [model()], words=None, significance=True))


def test_refusals() -> None:
    with pytest.raises(PellucidError, match="no method 'best'"):
        make_plan(wanted("cka"), [model()], words=None, method="best")
    with pytest.raises(PellucidError, match="gives 'cka', not svcca"):
        make_plan(wanted("svcca"), [model()], words=None, method="gram")


def test_words_are_counted_no_further_than_needed() -> None:
    corpus = Corpus.of([["a", "b"], ["c"], ["d", "e", "f"]])
    assert words_up_to(corpus, 6) == 6
    assert words_up_to(corpus, 5) is None


def test_the_bound_of_float32_holds() -> None:
    """Products rounded to float32 move full CCA by less than the bound, and not by a millionth of it."""
    generator = np.random.default_rng(0)
    spread = 10.0 ** np.linspace(0, -2.5, 20)
    x, y = (generator.normal(size=(4000, 20)) * spread for _ in range(2))
    y[:, :5] += x[:, :5]
    exact = pair_of_rows(x, y)

    def rounded(rows: Any, other: Any) -> Any:
        left, right = (side - side.mean(0) for side in (rows, other))
        return (left.astype(np.float32).T @ right.astype(np.float32)).astype(np.float64)

    sides = [
        Side(each.name, each.n, rounded(rows, rows), each.norm_sum, each.norm_squares)
        for each, rows in ((exact.left, x), (exact.right, y))
    ]
    blurred = Pair(sides[0], sides[1], rounded(x, y), exact.norm_products)
    bound = float32_error([exact.left, exact.right])
    assert 1e-6 < bound < 0.1
    assert 0 < abs(mean_cca(blurred) - mean_cca(exact)) < bound


def test_the_seed_reaches_every_sample() -> None:
    plan = make_plan(wanted("svcca,mutual-knn"), [model(2, 8)], words=None, significance=True, seed=7)
    seeds = {type(each): each.seed for each in plan.collectors if isinstance(each, TokenSample | DocumentSample)}
    assert seeds == {TokenSample: 7, DocumentSample: 7}
    (sample,) = make_plan(wanted("cka"), [model(2, 8)], words=50, method="gram", seed=8).collectors
    assert isinstance(sample, TokenSample)
    assert sample.seed == 8


def test_scores_of_sampled_words_alone_take_the_sample_asked_for() -> None:
    (sample,) = make_plan(wanted("rsa-spearman"), [model(2, 8)], words=None, sample=500).collectors
    assert isinstance(sample, TokenSample)
    assert sample.size == 500


def test_memory_that_is_there_limits_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 << 20 < planning.free_memory() < 1 << 50
    many = [model()]
    assert make_plan(wanted("cka"), many, words=None).method == "moments"
    monkeypatch.setattr(planning, "free_memory", lambda: 1 << 30)
    assert make_plan(wanted("cka"), many, words=None).method == "gram"  # a fifth of it does not hold 13 × 13 products
