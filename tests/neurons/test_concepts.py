"""Concepts: the class of every word, from labels, lists, patterns, properties, pairs and arcs."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from pellucid.corpus import Corpus, Sentence
from pellucid.corpus.sentence import Arc
from pellucid.errors import CorpusError
from pellucid.neurons import Concept, rank
from pellucid.neurons.concepts import scored

TEXT = Sentence.of_words(
    ["The", "“", "old", "dog", "”", "(", "Rex", ")", "sleeps"],
    labels={"upos": ["DET", "PUNCT", "ADJ", "NOUN", "PUNCT", "PUNCT", "PROPN", "PUNCT", None]},
    arcs=[Arc(0, 3, "det"), Arc(3, 8, "nsubj"), Arc(8, -1, "root")],
    facts={"mood": "calm"},
)
PAIR = Sentence.of_words(
    ["The", "dog", "sleeps"],
    labels={"upos": ["DET", "NOUN", "VERB"]},
    second=Sentence.of_words(["Nobody", "sleeps", "."], labels={"upos": ["PRON", "VERB", "PUNCT"]}),
    joint=True,
)


def test_labels_whole_one_and_several():
    assert Concept.label("upos").of(TEXT) == list(TEXT.label("upos"))
    assert Concept.parse("upos=NOUN").of(TEXT) == [
        "other", "other", "other", "NOUN", "other", "other", "other", "other", None
    ]  # fmt: skip
    several = Concept.label("upos", classes=["NOUN", "ADJ"]).of(TEXT)
    assert several == [None, None, "ADJ", "NOUN", None, None, None, None, None]
    assert Concept.label("upos").of(PAIR) == ["DET", "NOUN", "VERB", "PRON", "VERB", "PUNCT"]


def test_sentence_labels_hold_for_all_words():
    assert Concept.sentence("mood").of(TEXT) == ["calm"] * 9
    assert Concept.parse("sentence:mood=calm").of(TEXT) == ["calm"] * 9
    assert Concept.sentence("absent").of(TEXT) == [None] * 9


def test_lists_and_patterns(tmp_path):
    file = tmp_path / "animals.txt"
    file.write_text("; a comment\nDOG\n\ncat\n", encoding="utf-8")
    listed = Concept.parse(f"words:{file}")
    assert listed.name == "animals"
    assert [place for place, value in enumerate(listed.of(TEXT)) if value == "animals"] == [3]
    assert Concept.pattern(r"[A-Z].*", name="big").of(PAIR) == ["big", "other", "other", "big", "other", "other"]
    assert Concept.pattern("o").of(TEXT) == ["other"] * 9, "a pattern matches whole words"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("first", ["first", *["other"] * 8]),
        ("last", [*["other"] * 8, "last"]),
        ("capital", ["capital", *["other"] * 5, "capital", "other", "other"]),
        ("in quotes", ["other", "other", "in quotes", "in quotes", *["other"] * 5]),
        ("in parentheses", [*["other"] * 6, "in parentheses", "other", "other"]),
        ("length", ["3-4", "1-2", "3-4", "3-4", "1-2", "1-2", "3-4", "1-2", "5-7"]),
        ("position", ["1", "2-3", "2-3", "4-7", "4-7", "4-7", "4-7", "8-15", "8-15"]),
    ],
)
def test_properties(name, expected):
    assert Concept.property(name).of(TEXT) == expected


def test_positions_of_a_second_sentence_count_on_their_own():
    assert Concept.property("first").of(PAIR) == ["first", "other", "other", "first", "other", "other"]


def test_an_unclosed_bracket_holds_nothing():
    assert Concept.property("in parentheses").of(Sentence.of_words(["(", "a", "b"])) == ["other"] * 3


def test_frequency_is_counted_by_the_corpus():
    frequent = Concept.property("frequency")
    with pytest.raises(CorpusError, match="counted first"):
        frequent.of(TEXT)
    corpus = Corpus.of([["a"] * 150, ["a"] * 49 + ["Rare"]]).labelled(frequent)
    last = list(corpus)[1]
    assert last.label("frequency")[0] == "over 1%"
    assert last.label("frequency")[-1] == "0.1% to 1%"  # 1 of 200


def test_words_of_translations_are_as_frequent_as_they_are_in_translations():
    read = [Sentence.of_words(["a"] * 150, second=Sentence.of_words(["b"] * 199 + ["a"])),
            Sentence.of_words(["b"] * 50, second=Sentence.of_words(["c"] * 9_800))]  # fmt: skip
    first, last = Corpus.of(read).labelled(Concept.property("frequency"))
    assert first.second.label("frequency")[-2:] == ("over 1%", "0.01% to 0.1%")
    assert set(last.label("frequency")) == {"over 1%"}
    assert set(last.second.label("frequency")) == {"over 1%"}, "no word of the first text"
    both = Corpus.of([replace(each, joint=True) for each in read]).labelled(Concept.property("frequency"))
    assert next(iter(both)).second.label("frequency")[-1] == "over 1%", "texts read together are one text"
    other = [replace(each, second=Sentence.of_words(["a"])) for each in read]
    rules = {Concept.property("frequency").prepared(each).rule for each in (read, other)}
    assert len(rules) == 2


def test_pairs():
    assert set(Concept.pair("negation").of(PAIR)) == {"negation"}
    assert set(Concept.pair("overlap").of(PAIR)) == {"overlap 50% to 75%"}  # one of two; the full stop is no word
    assert set(Concept.pair("negation").of(TEXT)) == {None}


def test_arcs_only_of_words_that_hang_somewhere():
    assert Concept.arc("nsubj").of(TEXT) == [
        "other", None, None, "arc nsubj", None, None, None, None, "other"
    ]  # fmt: skip


def test_a_labelled_corpus_reads_the_same_twice_and_names_its_rule():
    corpus = Corpus.of([TEXT, PAIR])
    noun = corpus.labelled(Concept.parse("upos=NOUN"))
    first, second = list(noun)
    assert first.label("upos=NOUN")[3] == "NOUN"
    assert second.second.label("upos=NOUN") == ("other", "other", "other")
    assert [sentence.text for sentence in noun] == [sentence.text for sentence in corpus]
    assert noun.labels() == ("upos", "upos=NOUN")
    assert noun.fingerprint not in (corpus.fingerprint, corpus.labelled(Concept.parse("upos=ADJ")).fingerprint)
    assert noun.fingerprint == corpus.labelled(Concept.parse("upos=NOUN")).fingerprint
    assert corpus.labelled(Concept.label("upos")) is corpus
    assert next(iter(pickle.loads(pickle.dumps(noun)))) == first


def test_two_lists_of_one_name_have_different_fingerprints():
    corpus = Corpus.of([TEXT])
    one, two = (corpus.labelled(Concept.words([word], name="w")).fingerprint for word in ("dog", "cat"))
    assert one != two


def test_classes_are_put_together_from_the_values_of_the_base_label():
    values = ("ADJ", "NOUN", "VERB")
    assert Concept.parse("upos=VERB").grouped("upos", values) == {"VERB": (2,), "other": (0, 1)}
    assert Concept.parse("upos=VERB,ADJ").grouped("upos", values) == {"VERB": (2,), "ADJ": (0,)}
    assert Concept.parse("upos=VERB").grouped("upos=VERB", ("VERB", "other")) == {"VERB": (0,), "other": (1,)}
    bands = Concept.property("length").grouped("length", ("1-2", "3-4", "8+", "5-7"))
    assert list(bands) == ["1-2", "3-4", "5-7", "8+"], "bands stand in their own order"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Concept.parse("upos="), "concepts are written"),
        (lambda: Concept.parse("pattern:"), "nothing after the colon"),
        (lambda: Concept.pattern("("), "not a regular expression"),
        (lambda: Concept.property("size"), "there are length, position"),
        (lambda: Concept.pair("size"), "there are overlap, negation"),
        (lambda: Concept.words([]), "is empty"),
        (lambda: Concept.words("/nowhere/list.txt"), "cannot be read"),
        (lambda: Concept.label("upos", classes="NOUN"), "given as a list"),
        (lambda: Concept.label("upos", classes=["A", "A"]), "must differ"),
        (
            lambda: Concept.parse("upos=X").grouped("upos", ("NOUN",)),
            "No word of this text has X for 'upos'; its values are NOUN",
        ),
        (lambda: Concept.parse("upos=X").grouped("upos=X", ("other",)), "'upos'; `pellucid corpus info` tells its"),
        (lambda: Concept.parse("upos=NOUN").grouped("upos", ("NOUN",)), "Every word that has 'upos=NOUN' is NOUN, so"),
        (lambda: Concept.words(["a"], name="w").grouped("w", ("other",)), "No word is in 'w', so there is nothing to"),
        (lambda: Concept.pattern(".*").grouped("/.*/", ("/.*/",)), "Every word is in '/.*/', so there is nothing to"),
        (lambda: Concept.property("length").grouped("length", ("1-2",)), "Every word that has 'length' is 1-2, so"),
        (lambda: Concept.label("upos").grouped("xpos", ("A", "B")), "do not tell 'upos'"),
        (lambda: list(Corpus.of([TEXT]).labelled(Concept.words(["a"], name="upos"))), "already has a label"),
    ],
)
def test_bad_concepts_say_what_to_do(make, message):
    with pytest.raises(CorpusError, match=message):
        make()


def test_other_is_scored_where_it_is_a_value_of_the_corpus():
    """The `other` that a concept makes has no scores; one that the corpus has is a class like any."""
    values = ["a", "other", "z"]
    assert scored(Concept.label("kind").grouped("kind", values)) == ("other", "a", "z")
    assert scored(Concept.label("kind").grouped("kind", ["a", "other"])) == ("other", "a")
    assert scored(Concept.label("kind", classes=["a"]).grouped("kind", values)) == ("a",)
    assert scored(Concept.label("kind", classes=["a"]).grouped("kind=a", ["a", "other"])) == ("a",)
    assert scored(Concept.label("kind", classes=["z", "a"]).grouped("kind", values)) == ("z", "a")
    assert scored(Concept.words(["a"], name="w").grouped("w", ["other", "w"])) == ("w",)
    assert scored(Concept.property("first").grouped("first", ["first", "other"])) == ("first",)


def test_every_ranking_scores_a_value_called_other():
    dice = np.random.default_rng(0)
    labels = np.array(["zebra", "other"] * 60)
    rows = dice.normal(size=(120, 4)).astype(np.float32)
    rows[labels == "other", 2] += 6.0
    methods = ["probeless", "selectivity", "iou", "precision", "probe-l2", "forest", "gaussian"]
    sentences = [str(place // 3) for place in range(120)]
    for more in ({"methods": methods}, {"methods": methods[2:4], "exact": True}, {"preset": "neurox"}):
        for name, made in rank(rows, labels, sentences=sentences, **more).items():
            assert set(made.classes) == {"other", "zebra"}, name
            place = made.place("class", "other"), made.place("neuron", "resid.0:2")
            assert made.values[place] == np.abs(made.values[place[0]]).max() > 0, name


def test_frequencies_are_worked_out_once_for_all_sentences():
    class Read(tuple):
        """Counts that remember how often they were gone through."""

        times = 0

        def __iter__(self):
            Read.times += 1
            return super().__iter__()

    counted = Concept.property("frequency").prepared([Sentence.of_words(["the"] * 3 + ["dog"] * 997)])
    ready = replace(counted, counts=Read(counted.counts))
    text = Sentence.of_words(["The", "dog", "barks"])
    for _ in range(5):
        assert ready.of(text) == ["0.1% to 1%", "over 1%", "under 0.01%"]
    assert Read.times == 1
    assert pickle.loads(pickle.dumps(counted)).of(text) == counted.of(text)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("x ( a ( b ) c ) y", [2, 3, 4, 5, 6]),
        ("( a ) b ( c )", [1, 5]),
        ("( a ( b ) c", [3]),
        (") a ( b ) c )", [3]),
        ("( a [ b ) c ]", [1, 2, 3, 4, 5]),
    ],
)
def test_brackets_inside_brackets_are_counted(text, inside):
    found = Concept.property("in parentheses").of(Sentence.of_words(text.split()))
    assert [place for place, value in enumerate(found) if value != "other"] == inside


def test_marks_that_open_and_close_alike_hold_what_is_between_them():
    found = Concept.property("in quotes").of(Sentence.of_words(list('"ab"c"d"“e“f”g”')))
    assert [place for place, value in enumerate(found) if value != "other"] == [1, 2, 6, 9, 10, 11, 12, 13]


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("a „ b c “ d", "b c"),
        ("a „ b c ” d", "b c"),
        ("„ a “ b „ c ” d “ e ” f", "a c e"),
        ("a “ b ” c “ d ” e", "b d"),
        ("“ a „ b “ c ” d", "a „ b “ c"),
        ("a » b c « d » e « f", "b c e"),
        ("a « b c » d « e » f", "b c e"),
        ("a » b « c » d", "c"),
        ("a « b", ""),
        ("a 「 b 『 c 』 」 d", "b 『 c 』"),
        ("‘ a b ’ c", "a b"),
        ("‚ a b ‘ c ‚ d ’ e", "a b d"),
        ("it’s a dogs’ life , ’tis ‘n all don’t rock’n’roll", ""),
        ("a ’ b ’ c", ""),
        ("`` a b '' c", "a b"),
    ],
)
def test_quotes_of_many_scripts(text, inside):
    found = Concept.property("in quotes").of(Sentence.of_words(text.split()))
    told = [word for word, value in zip(text.split(), found, strict=True) if value == "in quotes"]
    assert told == inside.split()


@pytest.mark.parametrize("text", ["Er sagt: „Hallo Welt“ und geht.", "Er sagt: »Hallo Welt« und geht."])
def test_quotes_of_running_text(text):
    (sentence,) = Corpus.of([text])
    found = Concept.property("in quotes").of(sentence)
    assert [word for word, value in zip(sentence.words, found, strict=True) if value == "in quotes"] == [
        "Hallo",
        "Welt",
    ]
