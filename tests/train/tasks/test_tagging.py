"""Tagging: where a tag stands, what is counted, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import TrainError
from pellucid.train.architectures import build
from pellucid.train.settings import settings_for
from pellucid.train.tasks import IGNORED, TASKS
from tests.corpus.real_data import real
from tests.train.tasks.making import END, START, Known, all_batches, pieces, random_table, settings, tagged, words

TAGGER = TASKS["tagger"]
CORPUS = tagged(("the dog sleeps", "D N V"), ("it dreams", "P V"), ("dogs and the cats run home", "N C D N V _"))
TEXTS = [sentence.text for sentence in CORPUS]


def prepared(corpus=CORPUS, *, tokenizer=None, shuffled=False, labels=None, **changes):
    chosen = settings("tagger", **changes)
    tokenizer = tokenizer or words(TEXTS, task="tagger", frame="both")
    labels = labels or TAGGER.labels(corpus, chosen)
    return TAGGER.examples(corpus, tokenizer, chosen, labels, shuffled=shuffled), labels, chosen


def rows_of(examples):
    """Every row without its padding, as pairs of token and goal."""
    for batch in all_batches(examples):
        for ids, real_ones, goals in zip(batch["input_ids"], batch["attention_mask"], batch["goals"], strict=True):
            count = int(real_ones.sum())
            assert bool((goals[count:] == IGNORED).all())
            yield list(zip(ids[:count].tolist(), goals[:count].tolist(), strict=True))


def test_labels_are_sorted():
    assert TAGGER.labels(CORPUS, settings("tagger")) == ("C", "D", "N", "P", "V")


def test_every_word_has_its_tag_and_special_tokens_have_none():
    examples, labels, _ = prepared(length=16)
    tokenizer = words(TEXTS, task="tagger", frame="both")
    found = {}
    for row in rows_of(examples):
        assert row[0] == (START, IGNORED)
        assert row[-1] == (END, IGNORED)
        text = tokenizer.decode([token for token, _ in row[1:-1]])
        found[text] = ["_" if goal == IGNORED else labels[goal] for _, goal in row[1:-1]]
    assert found == {
        "the dog sleeps": ["D", "N", "V"],
        "it dreams": ["P", "V"],
        "dogs and the cats run home": ["N", "C", "D", "N", "V", "_"],
    }


def test_a_tag_stands_at_the_first_token_of_its_word():
    tokenizer = pieces(TEXTS)  # single bytes: token p of a text, its special ones aside, is character p of " " + text
    examples, labels, _ = prepared(tokenizer=tokenizer, length=64)
    by_text = {sentence.text: sentence for sentence in CORPUS}
    rows = list(rows_of(examples))
    assert len(rows) == 3
    for row in rows:
        sentence = by_text[tokenizer.decode([token for token, _ in row[1:-1]]).strip()]
        marked = {place: labels[goal] for place, (_, goal) in enumerate(row[1:-1]) if goal != IGNORED}
        tags = zip(sentence.spans, sentence.labels["pos"], strict=True)
        assert marked == {start + 1: tag for (start, _), tag in tags if tag is not None}


def test_a_stream_runs_on_over_the_end_of_a_sentence():
    tokenizer = words(TEXTS, task="tagger", frame="end")
    examples, labels, _ = prepared(tokenizer=tokenizer, rows="stream", batch=1, length=14)
    (batch,) = all_batches(examples)
    shown = ["" if goal == IGNORED else labels[goal] for goal in batch["goals"][0].tolist()]
    assert shown == ["D", "N", "V", "", "P", "V", "", "N", "C", "D", "N", "V", "", ""]
    assert (batch["input_ids"][0] == END).nonzero().flatten().tolist() == [3, 6, 13]
    assert "attention_mask" not in batch
    assert examples.fixed
    assert examples.sentences == 3


@pytest.mark.parametrize("length", [4, 5, 8])
def test_long_sentences_lose_no_tag(length):
    examples, labels, _ = prepared(length=length)
    found = Counter()
    for row in rows_of(examples):
        assert len(row) <= length
        assert (row[0][0], row[-1][0]) == (START, END)
        found.update(labels[goal] for _, goal in row if goal != IGNORED)
    assert found == Counter("DNVPVNCDNV")


def test_sentences_without_a_tag_teach_nothing():
    corpus = tagged(("the dog", "D N"), ("home home home", "_ _ _"), ("it", "P"))
    examples, _, _ = prepared(corpus)
    assert sorted(len(row) for row in rows_of(examples)) == [3, 4]
    bare = Corpus.of([*corpus, Sentence.of_text("dogs and cats", id="bare")])
    again, _, _ = prepared(bare)
    assert examples.tokens == again.tokens


def test_scores_of_a_known_network():
    """Accuracy and F1 by counting, whatever the batches; </s> and padding would change both."""
    tokenizer = words(TEXTS, task="tagger", frame="both")
    table = random_table(len(tokenizer), 5, seed=4)
    for batch in (1, 2, 3):
        examples, labels, chosen = prepared(batch=batch, length=16)
        pairs = [(goal, int(table[token].argmax())) for row in rows_of(examples) for token, goal in row if goal >= 0]
        assert len(pairs) == 10
        scores = TAGGER.evaluate(Known(table), examples, "cpu", chosen)
        assert scores["accuracy"] == pytest.approx(sum(a == b for a, b in pairs) / 10)
        f1 = []
        for label in range(len(labels)):
            hits = sum(a == b == label for a, b in pairs)
            either = sum(a == label for a, _ in pairs) + sum(b == label for _, b in pairs)
            if either:
                f1.append(2 * hits / either)
        assert scores["f1"] == pytest.approx(sum(f1) / len(f1))
        assert set(scores) == {"loss", "accuracy", "f1"} == set(TAGGER.chance(examples, examples, chosen))


@pytest.mark.parametrize("rows", ["sentences", "stream"])
def test_padding_does_not_change_a_real_network(rows):
    """The same loss as of every row alone, without padding, through a network that looks in both directions."""
    chosen = settings_for(
        "tagger", layers=2, width=16, heads=2, feed_forward=16, length=6, batch=4, rows=rows, vocabulary="word", least=1
    )
    tokenizer = words(TEXTS, task="tagger", frame="both" if rows == "sentences" else "end", length=6)
    labels = TAGGER.labels(CORPUS, chosen)
    network = build(chosen, tokenizer, labels)
    examples = TAGGER.examples(CORPUS, tokenizer, chosen, labels, shuffled=False)
    batches = all_batches(examples)
    network.eval()
    total, count = 0.0, 0
    for batch in batches:
        for ids, goals in zip(batch["input_ids"], batch["goals"], strict=True):
            size = int((ids != 0).sum())
            if size:
                with torch.no_grad():
                    chances = network(input_ids=ids[None, :size]).logits[0].double().log_softmax(-1)
                real_ones = goals[:size] != IGNORED
                total -= float(chances[real_ones, goals[:size][real_ones]].sum())
                count += int(real_ones.sum())
    assert any(bool((batch["input_ids"] == 0).any()) for batch in batches)
    assert TAGGER.evaluate(network, examples, "cpu", chosen)["loss"] == pytest.approx(total / count, rel=1e-5)


def test_chance_takes_the_most_frequent_tag_of_training():
    held_out = tagged(("the dog dreams", "D N N"), ("it", "P"))
    training, labels, chosen = prepared()
    examples, _, _ = prepared(held_out, labels=labels)
    tags = Counter(tag for sentence in CORPUS for tag in sentence.labels["pos"] if tag)
    assert (tags["N"], tags["V"]) == (3, 3)  # equally frequent: the first of them
    assert TAGGER.chance(examples, training, chosen)["accuracy"] == pytest.approx(2 / 4)


# Refusals


def test_labels_that_are_not_there():
    both = Corpus.of([Sentence.of_words(["a", "b"], labels={"pos": ["D", "N"], "case": ["x", "y"]})], name="mixed")
    with pytest.raises(TrainError, match="mixed have several labels; choose one of case, pos as label"):
        TAGGER.labels(both, settings("tagger"))
    assert TAGGER.labels(both, settings("tagger", label="case")) == ("x", "y")
    with pytest.raises(TrainError, match="no label 'upos'; choose one of case, pos"):
        TAGGER.labels(both, settings("tagger", label="upos"))
    with pytest.raises(TrainError, match="have no labels, which a tagger learns"):
        TAGGER.labels(Corpus.of(["a b"]), settings("tagger"))


def test_classes_that_training_lacks_are_named():
    with pytest.raises(TrainError, match="new has values of 'pos' that the training corpus lacks: X, Z"):
        prepared(tagged(("the dog", "Z X"), ("it dreams", "P V"), name="new"), labels=("D", "N", "P", "V"))


def test_words_that_share_a_token_are_refused():
    corpus = Corpus.grammar(50)
    chosen = settings("tagger", label="upos", length=32)
    texts = list(TAGGER.texts(corpus, chosen))
    labels = TAGGER.labels(corpus, chosen)
    joining = words(texts, task="tagger")
    for changes, advice in (
        ({"vocabulary": "word"}, r"use byte-pair tokens \(vocabulary='bpe'\)"),
        ({"vocabulary": "bpe"}, f"choose a vocabulary_size below {len(joining)}, so that fewer pairs become one token"),
        ({"source": "some/model"}, "start from another model"),
    ):
        with pytest.raises(TrainError, match=f"have no token of their own.*{advice}, or give text"):
            TAGGER.examples(corpus, joining, replace(chosen, **changes), labels, shuffled=True)
    examples = TAGGER.examples(corpus, pieces(texts), chosen, labels, shuffled=True)
    assert int((examples.goals != IGNORED).sum()) == sum(len(sentence.spans) for sentence in corpus)


def test_every_tag_of_real_text_is_a_goal():
    text, tags = real("wikitext2/valid.txt", "wikitext2/valid.tags")
    corpus = Corpus.tagged(text, tags)
    chosen = settings_for("tagger", "thesis")
    labels = TAGGER.labels(corpus, chosen)
    tokenizer = words(TAGGER.texts(corpus, chosen), task="tagger", frame="end")
    examples = TAGGER.examples(corpus, tokenizer, chosen, labels, shuffled=False)
    goals = examples.goals[examples.goals != IGNORED]
    counts = torch.bincount(goals.long(), minlength=len(labels))
    wanted = Counter(tags.read_text(encoding="utf-8").split())
    assert {label: int(count) for label, count in zip(labels, counts, strict=True)} == wanted
    assert len(goals) == 213_886
