"""Classification: rows of one text or two, their classes, and what is refused."""

from __future__ import annotations

import pytest
import torch

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import TrainError
from pellucid.train.tasks import TASKS
from tests.corpus.real_data import real
from tests.train.tasks.making import END, START, Known, all_batches, random_table, settings, words

CLASSIFY, NLI = TASKS["classify"], TASKS["nli"]


def reviews(*pairs, name="reviews"):
    return Corpus.of(
        [Sentence.of_text(text, id=str(number), facts={"mood": mood}) for number, (text, mood) in enumerate(pairs)],
        name=name,
    )


def inferences(*triples, joint=True):
    return Corpus.of(
        [
            Sentence.of_text(
                first, id=str(number), facts={"label": label}, second=Sentence.of_text(second), joint=joint
            )
            for number, (first, second, label) in enumerate(triples)
        ],
        name="inferences",
    )


MOODS = reviews(("good film", "+"), ("bad", "-"), ("so so film", "0"), ("good good", "+"))
CLAIMS = inferences(("a dog runs", "a dog", "yes"), ("cats", "dogs run far", "no"), ("a", "a", "yes"))


def prepared(task, corpus, *, shuffled=False, labels=None, typed=None, **changes):
    chosen = settings(task.name, **changes)
    tokenizer = words(task.texts(corpus, chosen), task="classify", frame="both")
    if typed is False:
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    labels = labels or task.labels(corpus, chosen)
    return task.examples(corpus, tokenizer, chosen, labels, shuffled=shuffled), tokenizer, labels, chosen


def test_each_text_has_the_number_of_its_class():
    examples, tokenizer, labels, _ = prepared(CLASSIFY, MOODS, length=8)
    assert labels == ("+", "-", "0")
    assert (examples.sentences, examples.classes, examples.fixed) == (4, 3, False)
    found = {}
    for batch in all_batches(examples):
        assert set(batch) == {"input_ids", "attention_mask", "token_type_ids", "goals"}
        for ids, goal in zip(batch["input_ids"].tolist(), batch["goals"].tolist(), strict=True):
            found[tokenizer.decode(ids, skip_special_tokens=True)] = labels[goal]
    assert found == {sentence.text: sentence.facts["mood"] for sentence in MOODS}


def test_pairs_are_read_together_and_marked():
    examples, tokenizer, labels, _ = prepared(NLI, CLAIMS, length=16, batch=1)
    found = set()
    for batch in all_batches(examples):
        (ids,), (types,) = batch["input_ids"].tolist(), batch["token_type_ids"].tolist()
        first = tokenizer.decode([token for token, kind in zip(ids, types, strict=True) if kind == 0 and token > 4])
        second = tokenizer.decode([token for token, kind in zip(ids, types, strict=True) if kind == 1 and token > 4])
        assert (ids[0], ids[-1], types[-1]) == (START, END, 1)
        found.add((first, second, labels[batch["goals"].item()]))
    assert found == {(s.text, s.second.text, s.facts["label"]) for s in CLAIMS}


def test_token_types_are_given_only_where_the_network_takes_them():
    examples, *_ = prepared(NLI, CLAIMS, typed=False)
    assert "token_type_ids" not in examples.batch(0, 0)


def test_long_texts_lose_their_end_and_keep_their_frame():
    examples, tokenizer, *_ = prepared(CLASSIFY, reviews(("a b c d e", "x"), ("a", "y")), length=4)
    (batch,) = all_batches(examples)
    assert tokenizer.decode(batch["input_ids"][1]) == "<s> a b </s>"
    examples, tokenizer, *_ = prepared(NLI, inferences(("a b c d e", "f g", "x"), ("a", "b", "y")), length=7)
    assert tokenizer.decode(examples.batch(0, 0)["input_ids"][1]) == "<s> a b </s> f g </s>"


def test_scores_of_a_known_network():
    examples, tokenizer, labels, chosen = prepared(CLASSIFY, MOODS, length=8)
    table = torch.full((len(tokenizer), 3), 0.0)
    good, bad, so = tokenizer.convert_tokens_to_ids(["good", "bad", "so"])
    table[good, 0] = table[bad, 0] = table[so, 2] = 10  # everything but "bad" is right
    scores = CLASSIFY.evaluate(Known(table, whole_rows=True), examples, "cpu", chosen)
    assert scores["accuracy"] == 3 / 4
    assert scores["f1"] == pytest.approx((2 * 2 / (2 + 3) + 0 + 1) / 3)
    right, wrong = torch.tensor([10.0, 0, 0]).log_softmax(0)[[0, 1]].tolist()
    assert scores["loss"] == pytest.approx(-(3 * right + wrong) / 4, rel=1e-4)
    assert CLASSIFY.chance(examples, examples, chosen)["accuracy"] == 2 / 4
    assert labels[0] == "+"


def test_the_loss_smooths_labels():
    examples, tokenizer, _, chosen = prepared(CLASSIFY, MOODS, batch=4, length=8, label_smoothing=0.3)
    table = random_table(len(tokenizer), 3)
    (batch,) = all_batches(examples)
    chances = table[batch["input_ids"][:, 1]].log_softmax(-1)
    right = chances.gather(1, batch["goals"][:, None]).mean()
    found = CLASSIFY.loss(Known(table, whole_rows=True), batch, chosen)
    assert found.item() == pytest.approx(-(0.7 * right + 0.3 * chances.mean()).item(), rel=1e-5)


def test_a_vocabulary_learns_from_both_texts():
    assert list(NLI.texts(CLAIMS, settings("nli"))) == ["a dog runs", "a dog", "cats", "dogs run far", "a", "a"]
    apart = inferences(("a", "b", "x"), joint=False)
    assert list(CLASSIFY.texts(apart, settings("classify"))) == ["a"]


# Refusals


def test_what_cannot_be_learned_is_refused():
    with pytest.raises(TrainError, match=r"reviews have no fact 'tone'; choose one of mood"):
        CLASSIFY.labels(MOODS, settings("classify", label="tone"))
    with pytest.raises(TrainError, match="says nothing about its sentences"):
        CLASSIFY.labels(Corpus.of(["a b"]), settings("classify"))
    with pytest.raises(TrainError, match=r"have several facts; choose one of depth, sentiment"):
        CLASSIFY.labels(Corpus.grammar(20), settings("classify"))
    assert CLASSIFY.labels(Corpus.grammar(200), settings("classify", label="tense")) == ("future", "past", "present")
    with pytest.raises(TrainError, match="has the same 'mood', x: there is nothing to tell apart"):
        CLASSIFY.labels(reviews(("a", "x"), ("b", "x")), settings("classify"))


def test_a_sentence_without_its_label_is_named():
    broken = Corpus.of([*MOODS, Sentence.of_text("what", id="odd")], name="broken")
    with pytest.raises(TrainError, match="Sentence 'odd' of broken has no 'mood'"):
        CLASSIFY.labels(broken, settings("classify"))
    with pytest.raises(TrainError, match="Sentence 'odd' of broken has no 'mood'"):
        prepared(CLASSIFY, broken, labels=("+", "-", "0"))


def test_a_missing_second_sentence_is_named():
    for corpus, name in (
        (reviews(("a", "x"), ("b", "y")), "reviews"),
        (inferences(("a", "b", "x"), joint=False), "inf"),
    ):
        with pytest.raises(TrainError, match=f"Sentence '0' of {name}.* has no second sentence.*nli"):
            prepared(NLI, corpus, labels=("x", "y"))


def test_classes_that_training_lacks_are_named():
    with pytest.raises(TrainError, match="lacks: -, 0"):
        prepared(CLASSIFY, MOODS, labels=("+",))


def test_a_corpus_smaller_than_a_batch_is_refused():
    with pytest.raises(TrainError, match="reviews has 4 rows of use, and one batch takes 5"):
        prepared(CLASSIFY, MOODS, shuffled=True, batch=5)


def test_real_reviews_and_inferences():
    (path,) = real("sst2/dev.tsv")
    corpus = Corpus.table(path, columns=["text", "label"])
    examples, _, labels, chosen = prepared(CLASSIFY, corpus, batch=32, length=64)
    assert (examples.sentences, labels) == (872, ("0", "1"))
    assert CLASSIFY.chance(examples, examples, chosen)["accuracy"] == pytest.approx(444 / 872)
    paths = real("esnli/s1.dev", "esnli/s2.dev", "esnli/labels.dev")
    pairs = Corpus.pairs(*paths).take(500)
    examples, _, labels, _ = prepared(NLI, pairs, batch=32, length=128)
    assert labels == ("contradiction", "entailment", "neutral")
    assert examples.sentences == 500
