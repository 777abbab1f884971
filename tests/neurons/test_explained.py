"""Explainability against accuracy where a neuron fires: counted by hand, and a planted link."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

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
    best = ranking.values[np.abs(ranking.values).argmax(0), np.arange(len(ranking.neurons))]
    assert (best < 0).any()
    assert (best > 0).any()
    high, low = (np.quantile(values, at, axis=0, method=way) for at, way in ((0.9, "lower"), (0.1, "higher")))
    fires = np.where(best < 0, values < low, values > high)  # a neuron whose class is low fires where it is low
    columns = found.table("neurons").columns
    assert columns["answers"].tolist() == fires.sum(0).tolist()
    some = fires.any(0)
    expected = (fires & right[:, None]).sum(0)[some] / fires.sum(0)[some]
    assert columns["accuracy"][some] == pytest.approx(expected)
    assert columns["score"] == pytest.approx(np.abs(ranking.values).max(0))
    assert found.provenance.arguments["right"] == pytest.approx(right.mean())
    assert found.low is not None


def test_the_correlation_is_over_all_neurons_that_fire_at_all(ranking):
    """Nine of these fire at five answers or fewer, and count like any other."""
    dice = np.random.default_rng(0)
    drawn = replace(ranking, values=dice.normal(size=ranking.values.shape), low=None, high=None)
    found = explained_accuracy(drawn, planted.model(), planted.corpus().take(12), quantile=0.95)
    columns = found.table("neurons").columns
    fired = columns["answers"] > 0
    assert (columns["answers"][fired] <= 5).sum() >= 9
    assert len(set(columns["accuracy"][fired].tolist())) > 1
    assert found.values[0] == pytest.approx(spearmanr(columns["score"][fired], columns["accuracy"][fired]).statistic)


def test_a_neuron_that_is_low_for_its_class_fires_where_it_is_low(ranking):
    """Its best score is negative, so the words it is explained by are those of the lower end."""
    name = planted.names()[planted.FLIPPED]
    place, row = ranking.place("neuron", name), ranking.place("class", planted.FLIPPED)
    assert ranking.values[row, place] < 0
    assert np.abs(ranking.values[:, place]).argmax() == row
    corpus = planted.corpus().take(80)
    found = explained_accuracy(ranking, planted.model(), corpus, quantile=0.9)
    turned = replace(ranking, values=-ranking.values, low=None, high=None)
    other = explained_accuracy(turned, planted.model(), corpus, quantile=0.9)
    assert found.table("neurons").columns["class"][place] == planted.FLIPPED
    assert [each.table("neurons").columns["end"][place] for each in (found, other)] == ["lower", "upper"]
    values = np.concatenate([planted.model().run(each.text, ("neurons.0",))["neurons.0"][0].numpy() for each in corpus])
    unit = values[:, int(name.split(":")[1])]
    fires = unit < np.quantile(unit, 0.1, method="higher")
    assert found.table("neurons").columns["answers"][place] == fires.sum()
    above = unit > np.quantile(unit, 0.9, method="lower")
    assert other.table("neurons").columns["answers"][place] == above.sum()


def test_a_text_counts_where_it_fires_at_all():
    """For answers about whole texts the largest activation of any real token counts, for a neuron that is low for its
    class the smallest, and padding does not."""
    model = pl.Model.load("zoo:sentiment")
    label = str(model.hf.config.id2label[0])
    texts = [f"{start} {word} film{end}" for start in ("a", "this is without any doubt a")
             for word in ("fine", "bad", "dull", "good", "silly") for end in ("", " with charm in it")]  # fmt: skip
    made = [Sentence.of_text(text, id=str(n), facts={"label": label}) for n, text in enumerate(texts)]
    ranking = iou(model, pl.Corpus.of(made), concept="property:length", sites="neurons.0", control=False)
    found = explained_accuracy(ranking, model, pl.Corpus.of(made), quantile=0.7, batch=4)
    columns = found.table("neurons").columns
    runs = [model.run(text, ("neurons.0", "logits"), logits=True) for text in texts]
    best = ranking.values[np.abs(ranking.values).argmax(0), np.arange(len(ranking.neurons))]
    side = np.where(best < 0, -1.0, 1.0)
    assert len(set(side)) == 2
    largest = np.stack([(side * run["neurons.0"][0].numpy()).max(0) for run in runs])
    values, _, _ = _answers(measured(model, pl.Corpus.of(made), batch=4), [Site("neurons", 0)], side)
    assert np.sort(values, axis=0) == pytest.approx(np.sort(largest, axis=0), abs=1e-4)
    right = np.array([int(run["logits"][0].argmax()) == 0 for run in runs])
    assert 0 < right.mean() < 1
    ranked = np.sort(largest, axis=0)
    at = int(0.7 * (len(texts) - 1))
    clear = (ranked[at + 1] - ranked[at] > 1e-3) & (ranked[at] - ranked[at - 1] > 1e-3)  # no rounding changes sides
    assert clear.sum() > 50
    fires = largest > ranked[at]
    assert columns["answers"][clear].tolist() == fires.sum(0)[clear].tolist() == [len(texts) - at - 1] * clear.sum()
    expected = (fires & right[:, None]).sum(0) / fires.sum(0)
    assert columns["accuracy"][clear] == pytest.approx(expected[clear])
    assert found.provenance.arguments["right"] == pytest.approx(right.mean())


def test_bad_input_is_named(ranking):
    with pytest.raises(PellucidError, match="quantile=2"):
        explained_accuracy(ranking, planted.model(), planted.corpus().take(5), quantile=2)
