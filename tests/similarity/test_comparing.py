"""Comparing real (tiny) models: planned, swept and scored as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid import Corpus, Model, similarity
from pellucid.similarity import SimilarityWarning
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
def test_methods_give_the_same_cka(models: Any, corpus: Corpus) -> None:
    told: list[str] = []
    by_method = {
        method: similarity.compare(models[0], None, corpus, method=method, random=False, say=told.append).grid("cka")
        for method in ("moments", "gram", "minibatch")
    }
    assert np.allclose(by_method["moments"].values, by_method["gram"].values, atol=1e-6)
    assert np.abs(by_method["moments"].values - by_method["minibatch"].values).max() < 0.05
    assert [line.split(":")[0] for line in told] == ["Method moments", "Method gram", "Method minibatch"]
    assert all(each.low is not None for each in by_method.values())


def test_two_models_meet_at_words_with_random_ones_beside(models: Any, corpus: Corpus) -> None:
    found = similarity.compare(*models, corpus, scores="cka,mutual-knn", significance=True)
    grid = found.grid("cka")
    sides = [tuple(str(site) for site in model.sites if site.kind == "resid") for model in models]
    assert (grid.axes["left"], grid.axes["right"]) == tuple(sides)
    assert {"chance", "random left", "random right"} == set(grid.tables)
    assert found.grid("mutual-knn").values.shape == grid.values.shape
    assert similarity.significance(found.found, permutations=99).values.shape == grid.values.shape


def test_precision_is_chosen_by_condition(models: Any, corpus: Corpus) -> None:
    told: list[str] = []
    found = similarity.compare(models[0], None, corpus, scores="cca", random=False, say=told.append)
    assert told[0].startswith("Scores that use every direction would be off by up to ")
    kept = next(each for each in found.found.collectors.values() if each.kind == "moments")
    assert ("float64" in told[0]) == (kept.precision == "float64")  # pyright: ignore[reportAttributeAccessIssue]


def test_few_words_warn_with_the_chance_level(models: Any) -> None:
    few = similarity.compare(models[0], None, Corpus.grammar(4), scores="cca", random=False, precision="float64")
    with pytest.warns(SimilarityWarning, match=r"words for \d+ features: chance alone gives a cca of about 0\.\d\d"):
        few.grid("cca")


def test_the_pass_is_kept_and_gone_on_with(models: Any, corpus: Corpus, tmp_path: Path) -> None:
    first = similarity.compare(models[0], None, corpus, folder=tmp_path / "pass").grid("cka")
    again = similarity.compare(models[0], None, corpus, folder=tmp_path / "pass").grid("cka")
    assert again.same(first)
