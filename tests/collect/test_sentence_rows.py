"""Rows of whole sentences: first, last, mean and max of real tokens against the model itself; traps; refusals."""

from __future__ import annotations

import numpy as np
import pytest

import pellucid as pl
from pellucid.collect.sentence_rows import WHOLE
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import PellucidError
from pellucid.neurons import Concept, probe, rank
from tests.tiny_models import network, word_tokenizer

TEXTS = ("the old dog sleeps", "a red cat runs near the old cabinet", "keys", "the dog and the cat", "old keys are red")


@pytest.fixture(scope="module")
def model():
    return pl.Model.load(network("bert"), tokenizer=word_tokenizer())


def corpus(count: int = 1) -> Corpus:
    """Sentences of very different length, so that batches are padded, each with a label that its length tells."""
    texts = [text for _ in range(count) for text in TEXTS]
    made = [
        Sentence.of_words(text.split(), id=str(place), facts={"size": "long" if len(text.split()) > 4 else "short"})
        for place, text in enumerate(texts)
    ]
    return Corpus.of(made)


def tokens(model: pl.Model, text: str) -> tuple[np.ndarray, np.ndarray]:
    """All tokens of one text alone, unpadded, and which of them are special."""
    run = model.run(text, ("resid.2",))
    return run["resid.2"][0].double().numpy(), run.batch.special[0].numpy()


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("pooling", WHOLE)
def test_rows_are_pooled_from_real_tokens_alone(model, tmp_path, pooling, special):
    store = pl.build_store(
        model, corpus(), tmp_path / "s", "resid.2", pooling=pooling, special=special, dtype="float32", progress=False
    )
    rows = store.layer("resid.2").numpy()
    assert rows.shape[0] == len(TEXTS)
    for row, text in zip(rows, TEXTS, strict=True):
        own, marks = tokens(model, text)
        kept = own if special else own[~marks]
        expected = {
            "sentence-first": own[0],
            "sentence-last": kept[-1],
            "sentence-mean": kept.mean(0),
            "sentence-max": kept.max(0),
        }[pooling]
        assert row == pytest.approx(expected, abs=1e-5)
    frame = store.words(["word", "size", "position"])
    assert frame["word"].tolist() == list(TEXTS)
    assert frame["size"].tolist() == ["short", "long", "short", "long", "short"]


@pytest.mark.parametrize("special", [False, True])
def test_the_last_token_is_a_special_one_only_where_it_is_asked_for(tmp_path, special):
    closed = pl.Model.load(network("bert"), tokenizer=word_tokenizer(closing=True))
    options = {"pooling": "sentence-last", "special": special, "dtype": "float32", "progress": False}
    rows = pl.build_store(closed, corpus(), tmp_path / "s", "resid.2", **options).layer("resid.2").numpy()
    for row, text in zip(rows, TEXTS, strict=True):
        own, marks = tokens(closed, text)
        assert marks[-1]
        assert row == pytest.approx(own[-1] if special else own[~marks][-1], abs=1e-5)


def test_padding_never_wins_a_maximum(model, monkeypatch):
    """The trap: padding as large as can be would be every sentence's maximum."""
    real = pl.Model.run

    def loud(self, batch, sites=(), **options):
        reduce = options.get("reduce")

        def shout(site, tensor):
            return reduce(site, tensor.masked_fill(~batch.mask.bool()[:, :, None], 1e6))

        return real(self, batch, sites, **{**options, "reduce": shout})

    monkeypatch.setattr(pl.Model, "run", loud)
    for pooling in WHOLE:
        found = pl.sweep(model, corpus(), pl.Moments("resid.2", pairs="units"), pooling=pooling, progress=False)
        assert np.abs(found[pl.Moments].mean("resid.2")).max() < 100


def test_a_pair_is_one_row_with_its_own_concepts(model):
    pairs = [
        Sentence.of_words(
            one.split(), id=str(place), second=Sentence.of_words(two.split(), id="b"), joint=True, facts={"label": "x"}
        )
        for place, (one, two) in enumerate(
            [("the dog runs", "the dog runs"), ("a cat sleeps", "the keys are not red"), ("old keys", "no cat")] * 4
        )
    ]
    text = Corpus.of(pairs)
    found = rank(model, text, concept="pair:negation", sites="resid.2", pooling="sentence-mean", progress=False)
    table = found["probeless"].table("classes")
    assert dict(zip(table.axes["class"], table.columns["words"].tolist(), strict=True)) == {"negation": 8, "other": 4}
    overlap = rank(model, text, concept="pair:overlap", sites="resid.2", pooling="sentence-first", progress=False)
    assert sum(overlap["probeless"].table("classes").columns["words"].tolist()) == len(pairs)


def test_rankings_and_probes_of_sentence_labels(model):
    made = rank(
        model,
        corpus(16),
        concept="sentence:size",
        methods=["probeless", "iou", "precision", "probe-l2"],
        sites="resid.2",
        pooling="sentence-mean",
        progress=False,
    )
    for ranking in made.values():
        assert set(ranking.classes) == {"long", "short"}
        assert ranking.provenance.corpus["sentences"] == 80
    told = probe(model, corpus(16), concept="size", sites="resid.2", pooling="sentence-max", seeds=1, progress=False)
    assert told.values[0, 0] > 0.95
    assert told.table("words").columns["learned"].sum() + told.table("words").columns["tested"].sum() == 80


def test_word_labels_are_refused(model, tmp_path):
    text = Corpus.grammar(30)
    with pytest.raises(PellucidError, match="no label 'upos' in the corpus, which ClassMoments reads; it has word"):
        rank(model, text, concept="upos", sites="resid.2", pooling="sentence-mean", progress=False)
    store = pl.build_store(model, corpus(6), tmp_path / "s", "resid.2", pooling="sentence-mean", progress=False)
    for concept in ("pattern:the.*", "property:capital"):
        with pytest.raises(PellucidError, match="has a row for every sentence"):
            rank(store, concept=concept, methods="probeless")
        with pytest.raises(PellucidError, match="has a row for every sentence"):
            pl.neurons.gaussian(store, concept=concept)
    assert rank(store, concept="size")["probeless"].classes == ("long", "short")


def test_what_cannot_be_pooled_is_refused(model):
    with pytest.raises(PellucidError, match="reads words"):
        pl.sweep(model, corpus(), pl.HeadCounts(), pooling="sentence-mean")
    with pytest.raises(PellucidError, match="pooling='sentence-sum'"):
        pl.sweep(model, corpus(), pl.Moments("resid.2"), pooling="sentence-sum")
    long = Corpus.of(["the old dog " * 200])
    with pytest.raises(PellucidError, match="cannot be put together of windows"):
        pl.sweep(model, long, pl.Moments("resid.2"), pooling="sentence-mean", long="window")
    pl.sweep(model, long, pl.Moments("resid.2"), pooling="sentence-mean", long="truncate", progress=False)


def test_the_concept_of_a_sentence_is_a_fact(model):
    text = corpus().labelled(Concept.sentence("size", classes=["long"]))
    assert [each.facts["size=long"] for each in text] == ["other", "long", "other", "long", "other"]
    assert all("size=long" not in each.labels for each in text)
