"""Comparing real (tiny) models: planned, swept and scored as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pellucid import Corpus, Model, similarity, sweep
from pellucid.collect.documents import DocumentSample
from pellucid.collect.moments import Moments
from pellucid.collect.sample import TokenSample
from pellucid.errors import PellucidError
from pellucid.similarity import SimilarityWarning, comparing
from pellucid.similarity.pair import Side
from tests.tiny_models import save


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Model]:
    folder = tmp_path_factory.mktemp("models")
    save(folder / "one", "gpt2")
    save(folder / "two", "bert")
    return Model.load(folder / "one"), Model.load(folder / "two")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.grammar(60)


@pytest.mark.filterwarnings("ignore::pellucid.similarity.SimilarityWarning")
def test_methods_give_the_same_cka(models: tuple[Model, Model], corpus: Corpus) -> None:
    told: list[str] = []
    by_method = {
        method: similarity.compare(models[0], None, corpus, method=method, random=False, say=told.append).grid("cka")
        for method in ("moments", "gram", "minibatch")
    }
    assert np.allclose(by_method["moments"].values, by_method["gram"].values, atol=1e-6)
    assert np.abs(by_method["moments"].values - by_method["minibatch"].values).max() < 0.05
    assert [line.split(":")[0] for line in told] == ["Method moments", "Method gram", "Method minibatch"]
    assert all(each.low is not None for each in by_method.values())


def test_two_models_meet_at_words_with_random_ones_beside(models: tuple[Model, Model], corpus: Corpus) -> None:
    found = similarity.compare(*models, corpus, scores="cka,mutual-knn", significance=True)
    grid = found.grid("cka")
    sides = [tuple(str(site) for site in model.sites if site.kind == "resid") for model in models]
    assert (grid.axes["left"], grid.axes["right"]) == tuple(sides)
    assert {"chance", "random left", "random right"} == set(grid.tables)
    assert found.grid("mutual-knn").values.shape == grid.values.shape
    assert similarity.significance(found.found, permutations=99).values.shape == grid.values.shape


def kept(found: similarity.Comparison, kind: type) -> list[Any]:
    return [each for each in found.found.collectors.values() if isinstance(each, kind)]


class Recorder:
    """Sweeps, and remembers with what."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[Model], list[Any], dict[str, Any]]] = []

    def __call__(self, models: Any, corpus: Corpus, collectors: Any, **options: Any) -> Any:
        several = list(collectors) if isinstance(collectors, list | tuple) else [collectors]
        self.calls.append((list(models), several, options))
        return sweep(models, corpus, collectors, **options)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(comparing, "sweep", made)
    return made


@pytest.mark.parametrize("method", ["moments", "gram"])
def test_each_random_model_stands_in_for_its_own(models: tuple[Model, Model], corpus: Corpus, method: str) -> None:
    """The left model with the right one's random twin of the seed asked for, and the other way round."""
    left, right = models
    tables = similarity.compare(left, right, corpus, method=method, seed=5).grid("cka").tables
    for name, pair in (
        ("random left", (Model.random_like(left, 5), right)),
        ("random right", (left, Model.random_like(right, 5))),
    ):
        expected = similarity.grid(sweep(pair, corpus, Moments("resid.*")), left="0:resid.*", right="1:resid.*").values
        np.testing.assert_allclose(tables[name].columns["value"], expected, atol=1e-5)
    alone = similarity.compare(left, None, corpus, method=method, seed=5).grid("cka")
    pair = (left, Model.random_like(left, 5))
    expected = similarity.grid(sweep(pair, corpus, Moments("resid.*")), left="0:resid.*", right="1:resid.*").values
    np.testing.assert_allclose(alone.table("random right").columns["value"], expected, atol=1e-5)


def test_without_random_models_there_are_none(models: tuple[Model, Model], corpus: Corpus) -> None:
    found = similarity.compare(*models, corpus, random=False)
    assert len(found.found.models) == 2
    assert set(found.grid("cka").tables) == {"chance"}


@pytest.mark.parametrize("random", [True, False])
def test_each_side_has_its_own_sites(models: tuple[Model, Model], corpus: Corpus, random: bool) -> None:
    whole = similarity.compare(*models, corpus, random=False, method="moments").grid("cka").values
    sites: dict[str, Any] = {"sites": "resid.0,resid.1", "right_sites": "resid.2"}
    for method in ("moments", "gram"):
        found = similarity.compare(*models, corpus, **sites, method=method, random=random, significance=True)
        grid = found.grid("cka")
        assert (grid.axes["left"], grid.axes["right"]) == (("resid.0", "resid.1"), ("resid.2",))
        np.testing.assert_allclose(grid.values, whole[:, :2, 2:3], atol=1e-5)
        assert set(grid.tables) == {"chance", *(("random left", "random right") if random else ())}
        tests = found.significance(permutations=99)
        assert (tests.axes["left"], tests.axes["right"]) == (grid.axes["left"], grid.axes["right"])
    alone = similarity.compare(models[0], None, corpus, **sites, random=random, significance=True)
    assert alone.grid("cka").values.shape == alone.significance(permutations=99).values.shape == (1, 2, 1)
    tables = alone.grid("cka").tables
    assert set(tables) == {"chance", *(("random left", "random right") if random else ())}
    if random:
        pair = sweep((models[0], Model.random_like(models[0], 0)), corpus, Moments("resid.*"))
        for name, left, right in (
            ("left", "1:resid.0,1:resid.1", "0:resid.2"),
            ("right", "0:resid.0,0:resid.1", "1:resid.2"),
        ):
            expected = similarity.grid(pair, left=left, right=right).values
            np.testing.assert_allclose(tables[f"random {name}"].columns["value"], expected, atol=1e-5)


@pytest.mark.parametrize("scores", ["cka", "pwcca"])
def test_group_states_on_disk_give_the_same_numbers_to_the_bit(
    models: tuple[Model, Model], corpus: Corpus, tmp_path: Path, scores: str
) -> None:
    told: list[str] = []
    options: dict[str, Any] = {"scores": scores, "method": "moments", "precision": "float64", "say": told.append}
    limits = (None, 2_000_000, 2_000_000)
    kept, streamed, saved = (
        similarity.compare(*models, corpus, memory_limit=limit, folder=folder, **options).grid(scores, interval=True)
        for limit, folder in zip(limits, (None, None, tmp_path / "pass"), strict=True)
    )
    for each in (streamed, saved):
        assert each.resampled == "10 document groups (jackknife, 95%), on all words (moments read from disk)"
        for mine, its in ((each.values, kept.values), (each.low, kept.low), (each.high, kept.high)):
            assert mine is not None
            assert its is not None
            assert mine.tobytes() == its.tobytes()
        for name, table in kept.tables.items():
            assert all(np.array_equal(each.table(name).columns[key], value) for key, value in table.columns.items())
    assert kept.resampled == "10 document groups (jackknife, 95%), on all words (moments in memory)"
    assert "document groups kept apart." in told[0]
    assert "document groups kept apart on disk: " in told[1]
    assert " while it runs" in told[1]


@pytest.mark.parametrize("method", ["auto", "moments", "gram", "minibatch"])
def test_a_text_of_a_word_is_refused_before_anything_runs(
    models: tuple[Model, Model], recorder: Recorder, method: str
) -> None:
    with pytest.raises(PellucidError, match=r"There is 1 word to compare, and a similarity needs at least 4"):
        similarity.compare(models[0], None, Corpus.of([["cat"]]), scores="cka", method=method)
    assert recorder.calls == []


@pytest.mark.parametrize("method", ["moments", "gram"])
def test_sites_without_spread_are_told(models: tuple[Model, Model], method: str) -> None:
    same_word = similarity.compare(models[0], None, Corpus.of([["cat"]] * 40), method=method, random=False)
    with pytest.warns(SimilarityWarning, match=r"Every word has the same values at resid.0, resid.1, resid.2"):
        grid = same_word.grid("cka")
    assert (grid.values == 0).all()


@pytest.mark.parametrize(("method", "unit"), [("moments", "Unit 0 of "), ("gram", ""), ("minibatch", "")])
def test_a_word_that_is_no_number_is_named_with_its_site(
    corpus: Corpus, tmp_path: Path, method: str, unit: str
) -> None:
    save(tmp_path / "broken", "gpt2")
    broken = Model.load(tmp_path / "broken")
    first = next(iter(corpus))
    word = first.words[0]
    with torch.no_grad():
        broken.hf.get_input_embeddings().weight[broken.tokenizer(word)["input_ids"][0]] = float("nan")  # pyright: ignore
    with pytest.raises(PellucidError, match=rf"^{unit}'resid.0' is NaN or infinite for '\w+', word \d+ of sentence '"):
        similarity.compare(broken, None, corpus, method=method, random=False).grid("cka")


def test_p_values_are_gathered_for_when_asked_and_have_a_seed(models: tuple[Model, Model], corpus: Corpus) -> None:
    found = similarity.compare(*models, corpus, random=False, significance=True)
    assert len(kept(found, DocumentSample)) == 1
    first, again, other = (found.significance(permutations=99, seed=seed).table("scores") for seed in (1, 1, 2))
    assert np.array_equal(first.columns["mean"], again.columns["mean"])
    assert not np.array_equal(first.columns["mean"], other.columns["mean"])
    without = similarity.compare(*models, corpus, random=False)
    assert not kept(without, DocumentSample)
    with pytest.raises(PellucidError, match="p-values read DocumentSample"):
        without.significance()


def test_memory_and_sample_are_as_asked(models: tuple[Model, Model], corpus: Corpus) -> None:
    with pytest.raises(PellucidError, match="and the limit is 1"):
        similarity.compare(models[0], None, corpus, scores="svcca", random=False, memory_limit=1000)
    found = similarity.compare(models[0], None, corpus, scores="cka,mutual-knn", method="moments", sample=50)
    assert [each.size for each in kept(found, TokenSample)] == [50]


def test_running_is_as_asked(models: tuple[Model, Model], corpus: Corpus, recorder: Recorder, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "engine": "inline",
        "workers": None,
        "threads": 1,
        "token_budget": 300,
        "long": "truncate",
    }
    similarity.compare(
        models[0],
        None,
        corpus,
        random=False,
        folder=tmp_path / "pass",
        memory_limit=300_000,
        method="moments",
        **options,
    )
    ((_, _, used),) = recorder.calls
    assert used == {**options, "folder": tmp_path / "pass", "memory_limit": 300_000}


@pytest.mark.parametrize(("error", "precision"), [(2e-5, "float64"), (5e-6, "float32")])
def test_precision_is_judged_from_the_sites_compared_alone(
    models: tuple[Model, Model],
    corpus: Corpus,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    error: float,
    precision: str,
) -> None:
    judged: list[str] = []

    def recorded(sides: Iterable[Side]) -> float:
        judged.extend(side.name for side in sides)
        return error

    monkeypatch.setattr(comparing, "float32_error", recorded)
    sites: dict[str, Any] = {"sites": "resid.1", "right_sites": "resid.2"}
    found = similarity.compare(*models, corpus, scores="cca", **sites, long="truncate", token_budget=300)
    assert judged == ["0:resid.1", "1:resid.2"]
    (pilots, (pilot,), options), (everyone, _, _) = recorder.calls
    assert (pilots, pilot.precision) == (list(models), "float64")
    assert len(everyone) == 4
    assert (options["long"], options["token_budget"]) == ("truncate", 300)
    assert {each.precision for each in kept(found, Moments)} == {precision}


def test_a_precision_asked_for_is_taken_and_cka_needs_no_judging(
    models: tuple[Model, Model], corpus: Corpus, recorder: Recorder
) -> None:
    for scores, asked, precision in (
        ("cca", "float64", "float64"),
        ("cca", "float32", "float32"),
        ("cka", "auto", "float32"),
    ):
        found = similarity.compare(
            models[0], None, corpus, scores=scores, precision=asked, method="moments", random=False
        )
        assert {each.precision for each in kept(found, Moments)} == {precision}
    assert len(recorder.calls) == 3


def test_the_pilot_reads_a_few_words_for_each_feature(models: tuple[Model, Model], recorder: Recorder) -> None:
    """Of a corpus of thousands of words, four for each of the features that are compared, not of the vocabulary."""
    told: list[str] = []
    corpus = Corpus.grammar(400)
    similarity.compare(models[0], None, corpus, scores="cca", random=False, say=told.append)
    (words,) = [int(part.replace(",", "")) for part in told[0].split() if part.replace(",", "").isdigit()]
    width = models[0].size("resid.0")[-1]
    assert 4 * width <= words < 4 * width + 40


def test_intervals_are_made_when_asked(models: tuple[Model, Model], corpus: Corpus) -> None:
    found = similarity.compare(models[0], None, corpus, scores="svcca,cka", random=False)
    assert found.grid("svcca").low is None
    assert found.grid("svcca", interval=True).low is not None
    assert found.grid("cka", interval=False).low is None


def test_precision_is_chosen_by_condition(models: tuple[Model, Model], corpus: Corpus) -> None:
    told: list[str] = []
    found = similarity.compare(models[0], None, corpus, scores="cca", random=False, say=told.append)
    assert told[0].startswith("Scores that use every direction would be off by up to ")
    kept = next(each for each in found.found.collectors.values() if each.kind == "moments")
    assert ("float64" in told[0]) == (kept.precision == "float64")  # pyright: ignore[reportAttributeAccessIssue]


def test_few_words_warn_with_the_chance_level(models: tuple[Model, Model]) -> None:
    few = similarity.compare(models[0], None, Corpus.grammar(4), scores="cca", random=False, precision="float64")
    with pytest.warns(SimilarityWarning, match=r"words for \d+ features: chance alone gives a cca of about 0\.\d\d"):
        few.grid("cca")


def test_the_pass_is_kept_and_gone_on_with(models: tuple[Model, Model], corpus: Corpus, tmp_path: Path) -> None:
    first = similarity.compare(models[0], None, corpus, folder=tmp_path / "pass").grid("cka")
    again = similarity.compare(models[0], None, corpus, folder=tmp_path / "pass").grid("cka")
    assert again.same(first)
