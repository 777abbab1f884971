"""Explainability against accuracy where a neuron fires: counted by hand, and a planted link."""

from __future__ import annotations

import numpy as np
import pytest

import pellucid as pl
from pellucid.corpus import Sentence
from pellucid.errors import PellucidError
from pellucid.heads import measured
from pellucid.model.sites import Site
from pellucid.neurons import explained_accuracy, iou
from pellucid.neurons.judging.explained import _answers
from tests.neurons import planted


@pytest.fixture(scope="module")
def ranking():
    return iou(planted.model(), planted.corpus().take(80), concept="upos", sites="neurons.0", control=False)


def test_accuracy_is_that_of_the_words_it_fires_on(ranking, tmp_path):
    corpus = planted.corpus().take(80)
    found = explained_accuracy(ranking, planted.model(), corpus, quantile=0.9)
    store = pl.build_store(planted.model(), corpus, tmp_path / "s", "neurons.0", dtype="float32", progress=False)
    values, tags = store.layer("neurons.0").numpy(), store.words(["upos"])["upos"].to_numpy()
    logits = [planted.model().run(each.text, ("logits",), logits=True)["logits"][0].numpy() for each in corpus]
    answers = np.array(planted.tags())[np.concatenate(logits).argmax(1)]
    right = answers == tags
    fires = values > np.quantile(values, 0.9, axis=0, method="lower")
    columns = found.table("neurons").columns
    assert columns["answers"].tolist() == fires.sum(0).tolist()
    some = fires.any(0)
    expected = (fires & right[:, None]).sum(0)[some] / fires.sum(0)[some]
    assert columns["accuracy"][some] == pytest.approx(expected)
    assert columns["score"] == pytest.approx(np.abs(ranking.values).max(0))
    assert found.provenance.arguments["right"] == pytest.approx(right.mean())
    assert found.low is not None


def test_a_text_counts_where_it_fires_at_all():
    """For answers about whole texts the largest activation of any real token counts, and padding does not."""
    model = pl.Model.load("zoo:sentiment")
    label = str(model.hf.config.id2label[0])
    texts = ["a fine film", "bad", "a dull and silly story without any charm at all", "good fun"] * 5
    made = [Sentence.of_text(text, id=str(n), facts={"label": label}) for n, text in enumerate(texts)]
    ranking = iou(model, pl.Corpus.of(made), concept="property:length", sites="neurons.0", control=False)
    found = explained_accuracy(ranking, model, pl.Corpus.of(made), quantile=0.7, batch=4)
    columns = found.table("neurons").columns
    runs = [model.run(text, ("neurons.0", "logits"), logits=True) for text in texts]
    largest = np.stack([run["neurons.0"][0].numpy().max(0) for run in runs])
    values, _, _ = _answers(measured(model, pl.Corpus.of(made), batch=4), [Site("neurons", 0)])
    assert np.sort(values, axis=0) == pytest.approx(np.sort(largest, axis=0), abs=1e-4)
    right = np.array([int(run["logits"][0].argmax()) == 0 for run in runs])
    fires = largest > np.quantile(largest, 0.7, axis=0, method="lower") + 1e-4
    some = fires.any(0)
    expected = (fires & right[:, None]).sum(0)[some] / fires.sum(0)[some]
    assert (np.abs(columns["accuracy"][some] - expected) < 1e-6).mean() > 0.9
    assert found.provenance.arguments["right"] == pytest.approx(right.mean())


def test_bad_input_is_named(ranking):
    with pytest.raises(PellucidError, match="quantile=2"):
        explained_accuracy(ranking, planted.model(), planted.corpus().take(5), quantile=2)
