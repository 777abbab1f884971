"""The grid from a sweep put together by hand: which pairs, which chance, which interval, which random model."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

from pellucid import similarity
from pellucid.collect.collector import ModelFacts
from pellucid.collect.documents import DocumentSample
from pellucid.collect.found import Found
from pellucid.collect.moments import Moments
from pellucid.collect.sample import TokenSample
from pellucid.corpus import Sentence
from pellucid.errors import PellucidError
from pellucid.model.sites import Site
from pellucid.reading import random_twin
from pellucid.similarity import pair_of_rows
from pellucid.similarity.cka import debiased_cka
from pellucid.uncertainty import jackknife
from tests.found_by_hand import facts, found_of, gathered, with_twin, word_batch
from tests.similarity.test_scores import Array, scored

pytestmark = pytest.mark.filterwarnings("ignore::pellucid.similarity.SimilarityWarning")  # presets warn

MODEL = facts({Site("resid", layer): (6,) for layer in range(3)}, name="one")
OTHER = facts({Site("resid", layer): (4,) for layer in range(2)}, name="two")
GROUPS, WORDS = 10, 24
MOMENTS = Moments("resid.*", groups=True, precision="float64")


def rows_of(models: tuple[ModelFacts, ...]) -> dict[str, Array]:
    """Rows of every site over all words: later layers are farther from the first, the random twin from all."""
    generator = np.random.default_rng(0)
    base = generator.normal(size=(GROUPS * WORDS, 4))
    found: dict[str, Array] = {}
    for number, model in enumerate(models):
        for site in model.sites:
            width = model.sizes[str(site)][0]
            noise = 3.0 if "random" in model.name else 0.3 * (1 + float(site.layer or 0))
            rows = base @ generator.normal(size=(4, width)) + noise * generator.normal(size=(len(base), width))
            found[f"{number}:{site}" if len(models) > 1 else str(site)] = rows.astype(np.float32)
    return found


def batches(rows: dict[str, Array]) -> list[Any]:
    found: list[Any] = []
    for group in range(GROUPS):
        part = slice(group * WORDS, (group + 1) * WORDS)
        batch = word_batch({key: value[part] for key, value in rows.items()}, group=group, start=part.start)
        batch.sentence[:] = group
        found.append(type(batch)(batch.rows, batch.sentence, batch.position, batch.ordinal, group, _sentences(group)))
    return found


def _sentences(group: int) -> dict[int, Sentence]:
    return {group: Sentence.of_words(["word"] * WORDS, id=str(group), document=f"document {group}")}


def found(models: tuple[ModelFacts, ...] = (MODEL,), *collectors: Any) -> Found:
    chosen = collectors or (MOMENTS, TokenSample("resid.*", size=1000), DocumentSample("resid.*", words=5))
    made = batches(rows_of(models))
    return found_of(models, {each: gathered(each, models, made) for each in chosen}, words=GROUPS * WORDS)


@pytest.mark.parametrize("name", [*similarity.metrics(), "svcca:2", "rbf-cka:0.5", "mutual-knn:4"])
def test_every_score_equals_its_own_on_the_rows(name: str) -> None:
    rows = rows_of((MODEL,))
    grid = similarity.grid(found(), name)
    for i, left in enumerate(rows):
        for j, right in enumerate(rows):
            assert grid.values[0, i, j] == pytest.approx(scored(name, rows[left], rows[right]), abs=1e-9)
    assert grid.axes == {"measure": (name,), "left": tuple(rows), "right": tuple(rows)}


def test_two_models_of_different_widths_and_random_ones() -> None:
    models = (MODEL, OTHER, *with_twin(MODEL)[1:], *with_twin(OTHER)[1:])
    rows = rows_of(models)
    grid = similarity.grid(found(models), "cka")
    assert grid.values.shape == (1, 3, 2)
    table = {name: grid.table(name).columns["value"][0] for name in ("random left", "random right")}
    for i in range(3):
        for j in range(2):
            assert grid.values[0, i, j] == pytest.approx(scored("cka", rows[f"0:resid.{i}"], rows[f"1:resid.{j}"]))
            left, right = rows[f"2:resid.{i}"], rows[f"3:resid.{j}"]
            assert table["random left"][i, j] == pytest.approx(scored("cka", left, rows[f"1:resid.{j}"]))
            assert table["random right"][i, j] == pytest.approx(scored("cka", rows[f"0:resid.{i}"], right))


def test_sides_are_chosen_by_pattern() -> None:
    models = (MODEL, OTHER)
    grid = similarity.grid(found(models), "cka", left="1:resid.1", right="0:resid.2,0:resid.0")
    rows = rows_of(models)
    assert grid.axes["right"] == ("resid.2", "resid.0")
    assert grid.values[0, 0, 0] == pytest.approx(scored("cka", rows["1:resid.1"], rows["0:resid.2"]))


def test_interval_leaves_out_each_group() -> None:
    rows = rows_of((MODEL,))
    grid = similarity.grid(found(), "cka")
    x, y = rows["resid.0"], rows["resid.2"]
    groups = np.repeat(np.arange(GROUPS), WORDS)
    without = [np.array(debiased_cka(pair_of_rows(x[groups != g], y[groups != g]))) for g in range(GROUPS)]
    ends = jackknife(np.array(debiased_cka(pair_of_rows(x, y))), without, [WORDS] * GROUPS)
    assert grid.low is not None
    assert grid.high is not None
    assert grid.low[0, 0, 2] == pytest.approx(float(ends.low), abs=1e-9)  # pyright: ignore[reportArgumentType]
    assert grid.high[0, 0, 2] == pytest.approx(float(ends.high), abs=1e-9)  # pyright: ignore[reportArgumentType]


def test_interval_from_the_sample_where_groups_were_not_kept() -> None:
    whole = similarity.grid(found(), "cka")
    plain = found((MODEL,), Moments("resid.*", precision="float64"), TokenSample("resid.*", size=1000))
    sampled = similarity.grid(plain, "cka")
    assert sampled.resampled.endswith("on a sample of 240 words")
    assert np.allclose(sampled.low, whole.low, atol=1e-9)  # the sample has all words here
    none = similarity.grid(found((MODEL,), Moments("resid.*")), "cka")
    assert none.low is None
    assert "groups=True" in none.resampled


def test_intervals_name_the_words_they_come_from() -> None:
    jackknifed = "10 document groups (jackknife, 95%), on "
    assert similarity.grid(found(), "cka").resampled == f"{jackknifed}all words (moments in memory)"
    assert similarity.grid(found(), "mutual-knn", interval=True).resampled == f"{jackknifed}all words"
    few = found((MODEL,), TokenSample("resid.*", size=100))
    assert similarity.grid(few, "mutual-knn", interval=True).resampled == f"{jackknifed}a sample of 100 words"
    alone = [batches(rows_of((MODEL,)))[0]]
    one_group = found_of((MODEL,), {MOMENTS: gathered(MOMENTS, (MODEL,), alone)}, words=WORDS)
    assert similarity.grid(one_group).resampled == "no interval: all of the text lies in one document group"


def test_few_words_are_told_of_the_widest_site_and_of_every_score_that_chance_lifts() -> None:
    model = facts({Site("resid", 0): (3,), Site("resid", 1): (150,)}, name="one")
    generator = np.random.default_rng(0)
    rows = {f"resid.{n}": generator.normal(size=(240, width)).astype(np.float32) for n, width in ((0, 3), (1, 150))}
    swept = found_of((model,), {MOMENTS: gathered(MOMENTS, (model,), batches(rows))}, words=240)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        similarity.grid(swept, "cka,cka-biased,rsa,r2-cca")
    told = [str(each.message) for each in caught]
    assert [text.split(" of about")[0] for text in told if "chance alone" in text] == [
        f"240 words for 150 features: chance alone gives a {name}" for name in ("cka-biased", "r2-cca")
    ]


def test_interval_of_other_scores_on_request() -> None:
    assert similarity.grid(found(), "svcca").low is None
    for name in ("svcca", "mutual-knn", "cka,pwcca"):
        grid = similarity.grid(found(), name, interval=True)
        assert grid.low is not None
        assert grid.high is not None
        assert (grid.low <= grid.values + 1e-12).all()
        assert (grid.low < grid.high + 1e-12).all()


def test_no_interval_where_a_group_left_out_leaves_too_few_words() -> None:
    rows = {key: value[:27] for key, value in rows_of((MODEL,)).items()}
    made = batches(rows)[:2]  # the second has three words
    for collector in (MOMENTS, TokenSample("resid.*", size=100)):
        swept = found_of((MODEL,), {collector: gathered(collector, (MODEL,), made)}, words=27)
        told = similarity.grid(swept, "cka" if collector is MOMENTS else "mutual-knn", interval=True)
        assert told.low is None
        assert told.resampled == "no interval: without one of its document groups the text has too few words"


def test_models_of_one_name_have_their_own_twins() -> None:
    twin = with_twin(MODEL)[1]
    models = (MODEL, MODEL, twin, twin)
    assert [random_twin(models, number) for number in range(4)] == [2, 3, None, None]
    tables = similarity.grid(found(models, MOMENTS), "cka", left="0:resid.*", right="1:resid.*").tables
    assert {"random left", "random right"} <= set(tables)


def test_chance_and_z() -> None:
    grid = similarity.grid(found(), "cka-biased,cka")
    chance = grid.table("chance").columns
    assert grid.null is not None
    assert np.allclose(chance["z"], (grid.values - grid.null) / chance["sd"])
    assert (grid.null[0] > 0.005).all()
    assert (grid.null[1] == 0).all()


def test_significance_of_related_and_unrelated_sides() -> None:
    result = similarity.significance(found(), "cka,rsa,rbf-cka,rsa-spearman,distance-correlation", permutations=99)
    assert result.values.max() == pytest.approx(0.01)  # every layer shares the base
    assert result.null is not None
    assert (result.null == 0.5).all()


@pytest.mark.parametrize("score", ["cka", "rsa", "rbf-cka", "rsa-spearman", "distance-correlation"])
def test_significance_scores_are_the_scores(score: str) -> None:
    sample = DocumentSample("resid.*", documents=GROUPS, words=WORDS)
    swept = found((MODEL,), sample)
    value = similarity.significance(swept, score, permutations=99).table("scores").columns["value"]
    rows = rows_of((MODEL,))
    assert value[0, 0, 2] == pytest.approx(scored(score, rows["resid.0"], rows["resid.2"]), abs=1e-5)


def test_p_values_are_uniform_with_document_effects() -> None:
    """Independent sides whose documents have means of their own: shuffled words would call nearly all of them alike."""
    from pellucid.similarity.permutations import shuffled

    generator = np.random.default_rng(4)
    by_documents: list[float] = []
    by_words: list[float] = []
    for _ in range(200):
        x, y = (generator.normal(size=(24, 6, 5)) + generator.normal(size=(24, 1, 5)) for _ in range(2))
        for found_p, size in ((by_documents, (24, 6, 5)), (by_words, (144, 1, 5))):
            blocks = {"x": x.reshape(size), "y": y.reshape(size)}
            found_p.append(float(shuffled(blocks, (("x",), ("y",)), "cka", 99, 0).p[0, 0]))
    assert np.mean(by_documents) == pytest.approx(0.5, abs=0.07)
    assert np.mean(np.array(by_documents) <= 0.1) == pytest.approx(0.1, abs=0.07)
    assert np.mean(np.array(by_words) <= 0.1) > 0.25


def test_sampled_words_that_are_no_numbers_are_named() -> None:
    swept = found((MODEL,), TokenSample("resid.*", size=1000))
    swept.states["0-token-sample"].arrays["rows/1"][17, 3] = np.nan
    view = swept[TokenSample]
    place = int(np.flatnonzero(~np.isfinite(view.rows("resid.1")).all(1))[0])
    where = f"word {view.position[place] + 1} of sentence {view.sentence[place] + 1}"
    with pytest.raises(PellucidError, match=rf"'resid.1' is NaN or infinite for {where}"):
        similarity.grid(swept, "mutual-knn")


def test_too_few_words_are_refused() -> None:
    made = [word_batch({key: value[:3] for key, value in rows_of((MODEL,)).items()})]
    few = found_of((MODEL,), {MOMENTS: gathered(MOMENTS, (MODEL,), made)}, words=3)
    with pytest.raises(PellucidError, match="3 words to compare, and a similarity needs at least 4"):
        similarity.grid(few)


def test_refusals() -> None:
    with pytest.raises(PellucidError, match="'mutual-knn' reads TokenSample"):
        similarity.grid(found((MODEL,), MOMENTS), "mutual-knn")
    with pytest.raises(PellucidError, match=r"'resid.0' and 'resid.1' were not gathered"):
        similarity.grid(found((MODEL,), Moments("resid.*", pairs="diagonal")), "cka")
    with pytest.raises(PellucidError, match=r"nothing of 'resid.2' for this; it has resid.0, resid.1"):
        similarity.grid(found((MODEL,), Moments("resid.0,resid.1")), "cka", left="resid.2")
    with pytest.raises(PellucidError, match="sweep with it too"):
        similarity.significance(found((MODEL,), MOMENTS))
    with pytest.raises(PellucidError, match="no test of 'svcca'"):
        similarity.significance(found(), "svcca")
    with pytest.raises(PellucidError, match="needs at least 5"):
        similarity.significance(found((MODEL,), DocumentSample("resid.*", words=WORDS + 1)))
    with pytest.raises(PellucidError, match="say too little"):
        similarity.significance(found(), permutations=10)


def test_directions_lost_in_float32_are_told() -> None:
    generator = np.random.default_rng(3)
    scale = np.array([1e3, 1e2, 10, 1, 1e-1, 1e-4])
    turn = np.linalg.qr(generator.normal(size=(6, 6)))[0]
    rows = {key: (generator.normal(size=(240, 6)) * scale @ turn).astype(np.float32) for key in rows_of((MODEL,))}
    (told,) = _warned(Moments("resid.*"), rows, "cca")
    assert re.match(r"With float32 products cca cannot see 2 of 6 directions of 'resid.\d', lost in rounding; ", told)
    assert _warned(Moments("resid.*", precision="float64"), rows, "cca") == []
    assert _warned(Moments("resid.*"), rows, "cka") == []
    tilted = {key: value + generator.normal(size=value.shape).astype(np.float32) for key, value in rows.items()}
    (told,) = _warned(Moments("resid.*"), tilted, "cca")
    assert re.match(r"With float32 products cca can be off by up to \de-0\d; ", told)
    even = {key: generator.normal(size=(240, 6)).astype(np.float32) for key in rows}
    assert _warned(Moments("resid.*"), even, "cca") == []


def test_few_directions_of_svcca_are_told() -> None:
    rows = rows_of((MODEL,))
    huge = {key: value.copy() for key, value in rows.items()}
    huge["resid.1"][::24, 2] += 1e4  # one feature of a few words
    exact = Moments("resid.*", precision="float64")
    (told,) = _warned(exact, huge, "svcca")
    assert told.startswith("svcca reads at most 1 of 6 directions of resid.1: ")
    (told,) = _warned(exact, huge, "svcca:0.9")
    assert told.startswith("svcca:0.9 reads at most 2 of 6 directions of resid.0, resid.1: ")
    assert _warned(exact, huge, "svcca:2") == _warned(exact, huge, "cka") == _warned(exact, rows, "svcca") == []


def _warned(collector: Moments, rows: dict[str, Array], score: str) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        similarity.grid(found_of((MODEL,), {collector: gathered(collector, (MODEL,), batches(rows))}, words=240), score)
    return [str(each.message) for each in caught if issubclass(each.category, similarity.SimilarityWarning)]


def test_scores_asked_together_are_those_asked_alone() -> None:
    """Scores of all directions are worked out first and leave their products to the others: each keeps its row."""
    names = ("cka", "svcca", "pwcca", "svcca:3", "regression")
    together = similarity.grid(found(), names, interval=False)
    assert together.axes["measure"] == names
    for number, name in enumerate(names):
        alone = similarity.grid(found(), name, interval=False)
        np.testing.assert_allclose(together.values[number], alone.values[0], rtol=0, atol=1e-12)
        assert together.null is not None
        assert alone.null is not None
        np.testing.assert_array_equal(together.null[number], alone.null[0])
