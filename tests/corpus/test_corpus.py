"""The corpus: reading again, taking, filtering, sharding, fingerprints and counts."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import CorpusError


def texts(corpus):
    return [sentence.text for sentence in corpus]


def in_documents(*documents: str) -> Corpus:
    return Corpus.of([Sentence.of_text(f"text {n}", id=str(n), document=d) for n, d in enumerate(documents)])


def long_sentences(sentence: Sentence) -> bool:
    return len(sentence.spans) > 1


def test_texts_words_and_sentences_make_a_corpus():
    corpus = Corpus.of(["Good day!", ["so", "it", "is"], Sentence.of_text("third", id="x", document="d")])
    assert [(s.id, s.document, s.words) for s in corpus] == [
        ("1", "1", ("Good", "day", "!")),
        ("2", "2", ("so", "it", "is")),
        ("x", "d", ("third",)),
    ]
    assert texts(corpus) == texts(corpus), "a corpus can be read again"


def test_a_generator_is_kept():
    corpus = Corpus.of(text for text in ("a", "b"))
    assert texts(corpus) == texts(corpus) == ["a", "b"]


def test_repeated_ids_become_unique_with_their_documents():
    corpus = Corpus.of([Sentence.of_text("a"), Sentence.of_text("b"), Sentence.of_text("c", id="1#2", document="d")])
    assert [(s.id, s.document) for s in corpus] == [("1", "1"), ("1#2", "1#2"), ("1#2#2", "d")]


@pytest.mark.parametrize(
    ("items", "message"),
    [("one text", "put it in a list"), ([], "give at least one"), (["a", "  "], "Item 2 .* has no words")],
)
def test_nothing_is_refused(items, message):
    with pytest.raises(CorpusError, match=message):
        Corpus.of(items)


def test_take_and_filter():
    corpus = Corpus.of(["a b", "c", "d e", "f g"])
    assert texts(corpus.take(2)) == ["a b", "c"]
    assert texts(corpus.take(99)) == texts(corpus)
    assert texts(corpus.filter(long_sentences).take(2)) == ["a b", "d e"]
    assert texts(corpus.take(2).filter(long_sentences)) == ["a b"]
    with pytest.raises(CorpusError, match="take at least 1"):
        corpus.take(0)
    with pytest.raises(CorpusError, match="kept none of the 4 sentences"):
        list(corpus.filter(lambda sentence: False))


@given(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=25), st.integers(1, 6))
def test_shards_are_disjoint_cover_everything_and_keep_documents_whole(documents, n):
    corpus = in_documents(*documents)
    shards = [list(corpus.shard(i, n)) for i in range(n)]
    assert sorted(int(s.id) for shard in shards for s in shard) == list(range(len(documents)))
    order = list(dict.fromkeys(documents))
    for i, shard in enumerate(shards):
        assert set(order[i::n]) == {s.document for s in shard}
        assert all(int(a.id) < int(b.id) for a, b in pairwise(shard))


def test_documents_that_never_scatter_are_dealt_in_the_same_way(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("a\nb\n\nc\n\nd\ne\n", encoding="utf-8")
    corpus = Corpus.text(path)
    assert texts(corpus.shard(0, 2)) == ["a", "b", "d", "e"]
    assert texts(corpus.shard(1, 2)) == ["c"]
    assert texts(corpus.shard(1, 2).shard(0, 2)) == ["c"]
    assert texts(corpus.shard(2, 4)) == ["d", "e"]
    assert texts(corpus.shard(3, 4)) == []


@pytest.mark.parametrize(("i", "n"), [(2, 2), (-1, 2), (0, 0)])
def test_shards_that_do_not_exist(i, n):
    with pytest.raises(CorpusError, match=f"no shard {i} of {n}"):
        Corpus.of(["a"]).shard(i, n)


def test_fingerprints_tell_content_reading_and_steps_apart(tmp_path):
    path, copy, other = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "c.txt"
    for file, content in ((path, "x y\nz\n"), (copy, "x y\nz\n"), (other, "x y\nw\n")):
        file.write_text(content, encoding="utf-8")
    corpus = Corpus.text(path)
    assert corpus.fingerprint == Corpus.text(copy).fingerprint is not None
    assert corpus.take(5).fingerprint == Corpus.text(copy).take(5).fingerprint
    different = [
        corpus,
        Corpus.text(other),
        Corpus.text(path, unit="paragraph"),
        Corpus.text(path, copy),
        corpus.take(1),
        corpus.take(2),
        corpus.take(2).take(1),
        corpus.shard(0, 2),
        corpus.shard(1, 2),
        corpus.shard(0, 3),
        corpus.filter(long_sentences, name="long"),
        corpus.filter(long_sentences, name="other"),
        Corpus.of(["x y", "z"]),
        Corpus.of(["x y", "w"]),
        Corpus.tagged(path, copy),
        Corpus.tagged(path, copy, label="pos"),
        Corpus.parallel(path, copy),
        Corpus.pairs(path, copy),
    ]
    assert len({found.fingerprint for found in different}) == len(different)


def test_an_unnamed_filter_has_no_fingerprint_nor_has_what_follows():
    corpus = Corpus.of(["a b", "c d"]).filter(long_sentences)
    assert corpus.fingerprint is None
    assert corpus.take(1).fingerprint is None
    assert corpus.shard(0, 1).fingerprint is None


def test_a_corpus_travels_to_other_processes(tmp_path):
    (tmp_path / "a.txt").write_text("x y\nz w\n", encoding="utf-8")
    for corpus in (Corpus.text(tmp_path / "a.txt"), Corpus.of(["x y", "z w"]), Corpus.grammar(5)):
        made = corpus.filter(long_sentences, name="long").shard(0, 1).take(2)
        again = pickle.loads(pickle.dumps(made))
        assert list(again) == list(made)
        assert again.fingerprint == made.fingerprint


def test_names_of_labels_and_facts():
    sentences = [
        Sentence.of_words(["a"], id="1", labels={"upos": ["X"]}, facts={"label": "1"}),
        Sentence.of_words(["b"], id="2", labels={"ner": [None]}, facts={"answer": "b"}),
    ]
    corpus = Corpus.of(sentences)
    assert corpus.labels() == ("ner", "upos")
    assert corpus.facts() == ("answer", "label")


def test_info_counts_everything():
    sentences = [
        Sentence.of_words(["a", "b", "a"], id="1", document="d", labels={"t": ["X", None, "Y"]}, facts={"y": "1"}),
        Sentence.of_words(["c"], id="2", document="d", labels={"t": ["X"]}, facts={"y": "1"}),
        Sentence.of_words(["c", "d"], id="3", document="e", second=Sentence.of_words(["a", "e"], id="3b"), joint=True),
    ]
    info = Corpus.of(sentences, name="tiny").info()
    assert (info.name, info.unit, info.sentences, info.documents) == ("tiny", "documents as given", 3, 2)
    assert (info.words, info.distinct_words, info.characters) == (8, 5, 5 + 1 + 3 + 3)
    assert info.frequent == (("a", 3), ("c", 2), ("b", 1), ("d", 1), ("e", 1))
    assert [(label.name, label.of, label.labelled, label.distinct, label.values) for label in info.labels] == [
        ("t", "word", 3, 2, (("X", 2), ("Y", 1))),
        ("y", "sentence", 2, 1, (("1", 2),)),
    ]
    assert info.longest == ("3", 4)
    assert info.pairs
    apart = Corpus.of([Sentence.of_text("a b", second=Sentence.of_text("c d e f"))]).info()
    assert apart.longest == ("1", 2)
    assert not Corpus.of(["a"]).info().pairs
    many = Corpus.of([" ".join(f"w{n}" for n in range(50))]).info()
    assert len(many.frequent) == 20
    assert many.distinct_words == 50
