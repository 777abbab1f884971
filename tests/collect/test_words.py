"""Words: rows and patterns pooled from sub-words, beside loops over the words of one sentence at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.collect.sweep import sweep
from pellucid.collect.words import word_labels
from pellucid.corpus import Corpus, Sentence
from pellucid.model import Batch
from tests.collect.batches import words_of
from tests.collect.sweeping import Patterned, Rows, alone, by_hand, in_order, pieces_of, pooled, reader, stories

SMALL = {"token_budget": 150, "shard_tokens": 300}


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
@pytest.mark.parametrize("name", ["gpt2", "bert", "llama"])
def test_rows_are_pooled_word_by_word(name, pooling):
    model, corpus = reader(name), stories(14)
    found = in_order(sweep(model, corpus, Rows(("resid.0", "resid.3", "mlp.1")), pooling=pooling, **SMALL))
    for site in ("resid.0", "resid.3", "mlp.1"):
        np.testing.assert_allclose(found[site], by_hand(model, corpus, site, pooling), atol=1e-5)


def test_most_words_have_several_subwords():
    """Else the tests above would show nothing."""
    counts = [len(places) for each in stories(14) for places in pieces_of(reader("bert"), each)[1]]
    assert np.mean(np.array(counts) > 1) > 0.5
    assert 1 in counts


def test_subwords_are_added_one_after_the_other():
    """To the last bit, with any number of threads: words of 1 to 16 sub-words, some of them torn apart."""
    dice = np.random.default_rng(0)
    index = np.sort(np.minimum(dice.geometric(0.25, size=(40, 96)).cumsum(1) // 8, 60), axis=1)
    index[:, 90:] = index[:, :6]
    words, values = words_of(index.tolist()), torch.from_numpy(dice.normal(size=(40, 96, 700)).astype(np.float32))
    by_hand = []
    for row, each in enumerate(index):
        for word in np.unique(each):
            pieces = values[row, np.flatnonzero(each == word)]
            total = pieces[0].clone()
            for piece in pieces[1:]:
                total += piece
            by_hand.append(total / len(pieces))
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            assert torch.equal(words.rows(values), torch.stack(by_hand))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("site", ["heads.1", "query.2", "key.0", "value.1"])
def test_the_slices_of_all_heads_stand_side_by_side(site):
    model, corpus = reader("llama"), stories(10)
    found = in_order(sweep(model, corpus, Rows((site,)), **SMALL))
    tensor = model.run(model.tokenize("dog"), (site,))[site]
    assert tensor.dim() == 4
    assert found[site].shape[1] == tensor.shape[1] * tensor.shape[3]
    np.testing.assert_allclose(found[site], by_hand(model, corpus, site), atol=1e-5)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_every_subword_can_be_a_row(name, special):
    model, corpus = reader(name), stories(10)
    options = {"pooling": "all", "special": special, **SMALL}
    found = in_order(sweep(model, corpus, Rows(("resid.2",), ("upos",)), **options))
    rows, sentences, positions = [], [], []
    for number, sentence in enumerate(corpus):
        ids, places = pieces_of(model, sentence)
        tensor = alone(model, ids, "resid.2").numpy()
        for place in range(len(ids)):
            word = next((word for word, each in enumerate(places) if place in each), -1)
            if word >= 0 or special:
                rows.append(tensor[place])
                sentences.append(number)
                positions.append(word)
    np.testing.assert_allclose(found["resid.2"], np.array(rows), atol=1e-5)
    assert found["sentence"].tolist() == sentences
    assert found["position"].tolist() == positions
    assert found["ordinal"].tolist() == list(range(len(rows)))
    tags = [each.labels["upos"] for each in corpus]
    assert found["upos"] == [tags[n][w] if w >= 0 else None for n, w in zip(sentences, positions, strict=True)]
    assert (-1 in positions) == (special and name == "bert")


def test_sentence_position_ordinal_word_and_label_belong_to_the_row():
    corpus = stories(30)
    found = in_order(sweep(reader("bert"), corpus, Rows(("resid.1",), ("upos", "depth", "word")), **SMALL))
    places = [(n, w) for n, each in enumerate(corpus) for w in range(len(each.spans))]
    assert list(zip(found["sentence"].tolist(), found["position"].tolist(), strict=True)) == places
    assert found["ordinal"].tolist() == list(range(len(places)))
    sentences = list(corpus)
    assert found["upos"] == [sentences[n].labels["upos"][w] for n, w in places]
    assert found["depth"] == [sentences[n].facts["depth"] for n, _ in places]
    assert found["word"] == [sentences[n].words[w].lower() for n, w in places]


def test_rows_do_not_depend_on_what_else_is_in_the_batch():
    """Order, padding and neighbours change; the rows of a sentence stay."""
    model, sentences = reader("bert"), list(stories(12))
    there = in_order(sweep(model, Corpus.of(sentences), Rows(("resid.3",)), token_budget=4000))
    back = in_order(sweep(model, Corpus.of(sentences[::-1]), Rows(("resid.3",)), token_budget=90))
    last = len(sentences) - 1
    for number in range(len(sentences)):
        one = there["resid.3"][there["sentence"] == number]
        other = back["resid.3"][back["sentence"] == last - number]
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_padding_and_special_tokens_are_in_no_row():
    """A batch with NaN at every padded and special place gives rows without NaN."""
    index = [[-1, 0, 0, 1, -1, -1], [-1, 0, 1, 2, 2, -1]]
    mask = [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]
    tensor = torch.randn(2, 6, 3)
    tensor[torch.tensor(index) < 0] = float("nan")
    for pooling in ("mean", "first", "last", "all"):
        words = words_of(index, mask=mask, pooling=pooling)
        rows = words.rows(tensor)
        assert torch.isfinite(rows).all()
        assert len(rows) == (7 if pooling == "all" else 5)


def test_words_that_are_context_give_no_rows():
    index = [[0, 0, 1, 2, 2], [2, 2, 3, 4, -1]]
    counted = [[1, 1, 1, 1, 1], [0, 0, 1, 1, 0]]
    tensor = torch.randn(2, 5, 4)
    words = words_of(index, counted=counted)
    expected = [tensor[0, :2].mean(0), tensor[0, 2], tensor[0, 3:].mean(0), tensor[1, 2], tensor[1, 3]]
    torch.testing.assert_close(words.rows(tensor), torch.stack(expected))
    assert words.positions.tolist() == [0, 1, 2, 3, 4]
    assert words.base.tolist() == [0, 2]
    assert words.ordinal.tolist() == [[0, 1, 2], [-1, 103, 104]]


def test_a_batch_without_words_gives_no_rows():
    words = words_of([[-1, 0, -1]], counted=[[0, 0, 0]])
    assert words.rows(torch.randn(1, 3, 7)).shape == (0, 7)
    assert words.rows(torch.randn(1, 2, 3, 7)).shape == (0, 14)


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_patterns_sum_over_keys_and_average_over_queries(name):
    model, corpus = reader(name), stories(15)
    found = sweep(model, corpus, Patterned("pattern.1"), **SMALL)
    state = found.states["0-test-patterns"]
    for number, sentence in enumerate(corpus):
        ids, places = pieces_of(model, sentence)
        weights = model.run(Batch.of_ids([ids]), ("pattern.1",))["pattern.1"][0].numpy()
        expected = np.zeros((weights.shape[0], len(places), len(places)))
        for head in range(weights.shape[0]):
            for query, rows in enumerate(places):
                for key, columns in enumerate(places):
                    expected[head, query, key] = sum(weights[head, r, c] for r in rows for c in columns) / len(rows)
        np.testing.assert_allclose(state.arrays[f"pattern.1@{number}"], expected, atol=1e-6)


def test_patterns_and_masses_of_words_that_do_not_count_are_zero():
    index, counted = [[0, 0, 1, 2, 2, -1]], [[0, 0, 1, 1, 1, 0]]
    words = words_of(index, counted=counted)
    weights = torch.rand(1, 2, 6, 6)
    found = words.patterns(weights)
    assert found.shape == (1, 2, 3, 3)
    assert not found[:, :, 0].any()
    torch.testing.assert_close(found[:, :, 1, 0], weights[:, :, 2, :2].sum(-1))  # context is still looked at
    torch.testing.assert_close(found[:, :, 2, 1], weights[:, :, 3:5, 2].mean(-1))
    mass = torch.rand(1, 2, 6)
    torch.testing.assert_close(
        words.to_queries(mass), torch.stack([torch.zeros(1, 2), mass[..., 2], mass[..., 3:5].mean(-1)], dim=-1)
    )


def test_two_tokenizers_meet_on_the_same_words():
    """What one sweep over two models finds is what each finds alone, on the words that both have."""
    one, other = reader("gpt2"), reader("bert", size=70)
    corpus = stories(14)
    assert pieces_of(one, next(iter(corpus)))[1] != pieces_of(other, next(iter(corpus)))[1]
    both = sweep([one, other], corpus, Rows(("resid.2",), ("upos",)), **SMALL)
    found = in_order(both)
    np.testing.assert_allclose(found["0:resid.2"], by_hand(one, corpus, "resid.2"), atol=1e-5)
    np.testing.assert_allclose(found["1:resid.2"], by_hand(other, corpus, "resid.2"), atol=1e-5)
    assert found["upos"] == [tag for each in corpus for tag in each.labels["upos"]]
    assert both.record["unmatched"] == 0


def test_words_that_one_model_lacks_are_dropped_and_counted():
    """Only the second model's limit cuts the long sentence: its last words are no rows of either."""
    long = Sentence.of_words(["dog"] * 12 + ["cat"] * 9, id="long", labels={"n": tuple(str(n) for n in range(21))})
    short = Sentence.of_words(["the", "old", "dog"], id="short", labels={"n": ("a", "b", "c")})
    corpus = Corpus.of([short, long, short])
    one, other = reader("gpt2"), reader("bert", limit=20)
    kept = (20 - 2) // len(pieces_of(other, Sentence.of_words(["dog"]))[1][0])
    assert 0 < kept < 12
    both = sweep([one, other], corpus, Rows(("resid.1",), ("n",)), long="truncate", **SMALL)
    found = in_order(both)
    assert found["n"] == [*"abc", *(str(n) for n in range(kept)), *"abc"]
    assert found["ordinal"].tolist() == [0, 1, 2, *range(3, 3 + kept), 24, 25, 26]
    assert both.record["unmatched"] == 21 - kept
    turned = sweep([other, one], corpus, Rows(("resid.1",), ("n",)), long="truncate", **SMALL)
    assert in_order(turned)["n"] == found["n"]
    assert turned.record["unmatched"] == 21 - kept, "also where it is the second model that has more"
    together = Corpus.of([replace(long, document="one"), replace(short, document="one")])
    last = sweep([one, other], together, Rows(("resid.1",), ("n",)), long="truncate", token_budget=999)
    assert in_order(last)["n"] == [*(str(n) for n in range(kept)), *"abc"], "the shorter one stands first in the batch"
    np.testing.assert_allclose(in_order(last)["1:resid.1"][kept:], found["1:resid.1"][:3], atol=1e-5)
    assert (both.counts.truncated, both.counts.lost_words, both.counts.words) == (1, 21 - kept, 27)
    everything = by_hand(one, corpus, "resid.1")
    np.testing.assert_allclose(found["0:resid.1"], everything[found["ordinal"]], atol=1e-5)


def test_words_without_a_token_are_left_out_and_counted():
    corpus = Corpus.of([Sentence.of_words(["the", "~~", "dog"], labels={"n": ("0", "1", "2")}), "old cat"])
    done = sweep(reader("bert"), Corpus.of([next(iter(corpus))]), Rows(("resid.1",), ("n",)), **SMALL)
    found = in_order(done)
    assert found["n"] == ["0", "2"]
    assert found["ordinal"].tolist() == [0, 2]
    assert done.counts.missing_words == 1
    np.testing.assert_allclose(found["resid.1"], by_hand(reader("bert"), [next(iter(corpus))], "resid.1"), atol=1e-5)


def test_a_sentence_whose_words_all_vanish_is_passed_over():
    corpus = Corpus.of([Sentence.of_words(["~~"], id="gone"), Sentence.of_words(["the", "dog"], id="here")])
    found = in_order(sweep(reader("bert"), corpus, Rows(("resid.1",)), token_budget=4, shard_tokens=4))
    assert found["sentence"].tolist() == [1, 1]
    assert found["ordinal"].tolist() == [1, 2]


def test_pairs_are_read_together_and_their_words_count_on():
    model = reader("bert")
    second = Sentence.of_words(["a", "red", "cat"], id="b", labels={"tag": ("x", "y", "z")})
    pair = Sentence.of_words(
        ["the", "old", "dog"], id="p", labels={"tag": ("u", "v", "w")}, facts={"same": "no"}, second=second, joint=True
    )
    single = Sentence.of_words(["old", "dog"], id="s", labels={"tag": ("k", "l")}, facts={"same": "yes"})
    done = sweep(model, Corpus.of([single, pair]), Rows(("resid.2",), ("tag", "same")), **SMALL)
    found = in_order(done)
    assert found["tag"] == ["k", "l", "u", "v", "w", "x", "y", "z"]
    assert found["same"] == ["yes"] * 2 + ["no"] * 6
    assert found["word"] == ["old", "dog", "the", "old", "dog", "a", "red", "cat"]
    assert found["position"].tolist() == [0, 1, 0, 1, 2, 3, 4, 5]
    assert done.counts.words == 8
    encoding = model.tokenizer(pair.text, second.text, return_offsets_mapping=True)
    places: list[list[int]] = [[] for _ in range(6)]
    for place, part in enumerate(encoding.sequence_ids(0)):
        if part is not None:
            start, stop = encoding["offset_mapping"][place]
            spans = (pair, second)[part].spans
            places[3 * part + next(w for w, (a, b) in enumerate(spans) if start < b and a < stop)].append(place)
    tensor = alone(model, encoding["input_ids"], "resid.2", encoding["token_type_ids"])
    np.testing.assert_allclose(found["resid.2"][2:], pooled(tensor, places, "mean"), atol=1e-5)


TRANSLATED = [
    Sentence.of_words(
        ["the", "old", "dog", "sleeps"][: 2 + number],
        id=f"t{number}",
        labels={"tag": ("s",) * (2 + number)},
        second=Sentence.of_words(
            ["a", "red", "cat", "runs", "near", "the", "table"][number:],
            id=f"u{number}",
            labels={"tag": tuple(f"t{place}" for place in range(7 - number))},
        ),
    )
    for number in range(3)
]


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_the_source_side_of_an_encoder_decoder(name):
    model = reader(name)
    found = in_order(sweep(model, Corpus.of(TRANSLATED), Rows(("encoder.resid.2",), ("tag",)), **SMALL))
    rows = []
    for sentence in TRANSLATED:
        ids, places = pieces_of(model, sentence)
        run = model.run(Batch.of_ids([ids], target_ids=[[0]]), ("encoder.resid.2",))
        rows.append(pooled(run["encoder.resid.2"][0], places, "mean"))
    np.testing.assert_allclose(found["encoder.resid.2"], np.concatenate(rows), atol=1e-5)
    assert set(found["tag"]) == {"s"}


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_the_target_side_of_an_encoder_decoder(name):
    """The decoder reads each token one step after it is written; rows, words and labels are the translation's."""
    model = reader(name)
    done = sweep(model, Corpus.of(TRANSLATED), Rows(("decoder.resid.2",), ("tag",)), side="target", **SMALL)
    found = in_order(done)
    rows = []
    for sentence in TRANSLATED:
        ids, _ = pieces_of(model, sentence)
        written, places = pieces_of(model, sentence.second)
        read = [model.hf.config.decoder_start_token_id, *written[:-1]]
        run = model.run(Batch.of_ids([ids], target_ids=[read]), ("decoder.resid.2",))
        later = [[place + 1 for place in each] for each in places]
        rows.append(pooled(run["decoder.resid.2"][0], later, "mean"))
    np.testing.assert_allclose(found["decoder.resid.2"], np.concatenate(rows), atol=1e-5)
    assert found["word"] == [word for each in TRANSLATED for word in each.second.words]
    assert found["tag"] == [tag for each in TRANSLATED for tag in each.second.labels["tag"]]
    assert found["sentence"].tolist() == [n for n, each in enumerate(TRANSLATED) for _ in each.second.words]
    assert done.counts.words == sum(len(each.second.words) for each in TRANSLATED)
    assert done.corpus_words["cat"] == 3


def test_a_translation_over_the_limit_does_not_disturb_its_source():
    """The decoder's text is not looked at, so it is not read either."""
    second = Sentence.of_words(["cat"] * 200)
    corpus = Corpus.of([Sentence.of_words(["the", "dog"], second=second)])
    assert len(in_order(sweep(reader("bart"), corpus, Rows(("encoder.resid.1",))))["word"]) == 2


def test_word_labels_go_before_sentence_labels_and_what_is_absent_is_none():
    labels = {"upos": ("X", None), "tense": ("past", None)}
    sentence = Sentence.of_words(["a", "b"], labels=labels, facts={"kind": "k", "tense": "future"})
    assert word_labels(sentence, "upos") == ["X", None]
    assert word_labels(sentence, "kind") == ["k", "k"]
    assert word_labels(sentence, "tense") == ["past", None]
    assert word_labels(sentence, "lemma") == [None, None]
