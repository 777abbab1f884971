"""Sentences: words, labels, and the hash of everything in them."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.corpus import Arc, Sentence, digest, word_spans
from pellucid.errors import CorpusError

FULL = Sentence.of_words(
    ["She", "sleeps"],
    id="7",
    document="tale",
    labels={"upos": ["PRON", "VERB"], "number": ["singular", None]},
    arcs=[Arc(0, 1, "nsubj"), Arc(1, -1, "root")],
    facts={"label": "1"},
    second=Sentence.of_text("Sie schläft.", id="7/second"),
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop!", ["Don't", "stop", "!"]),
        ("a well-known dog's-ear - 'quoted'", ["a", "well-known", "dog's-ear", "-", "'", "quoted", "'"]),
        ("l’été, 3.5%", ["l’été", ",", "3", ".", "5", "%"]),
        ("cafe\u0301 nai\u0308ve", ["cafe\u0301", "nai\u0308ve"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("我爱Python3", ["我", "爱", "Python3"]),
        ("カタカナ です。", ["カ", "タ", "カ", "ナ", "で", "す", "。"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("안녕 세계", ["안녕", "세계"]),
        ("ok 👍🏽 👩\u200d👧!", ["ok", "👍🏽", "👩\u200d👧", "!"]),
        ("می\u200cروم", ["می\u200cروم"]),
        ("one\u00a0two\u3000three\u200bfour", ["one", "two", "three", "four"]),
        ("snake_case", ["snake", "_", "case"]),
        ("", []),
        (" \t\n", []),
    ],
)
def test_words_of_a_text(text, words):
    assert list(Sentence.of_text(text).words) == words


@given(st.text())
def test_words_cover_all_that_is_no_space(text):
    spans = word_spans(text)
    assert all(0 <= start < stop <= len(text) for start, stop in spans)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    inside = {place for start, stop in spans for place in range(start, stop)}
    for place, char in enumerate(text):
        if place not in inside:
            assert char.isspace() or char in "\u200b\ufeff"


@given(st.text())
def test_shapes_do_not_depend_on_what_was_read_before(text):
    """A letter beyond ASCII elsewhere in the text does not change the words of its ASCII part."""
    plain = "".join(char for char in text if char.isascii())
    assert word_spans(plain) == word_spans(plain + " é")[:-1]


def test_words_joined_by_spaces_are_found_where_they_are():
    sentence = Sentence.of_words(["Ja", ",", "so", "ist's"])
    assert sentence.text == "Ja , so ist's"
    assert sentence.spans == ((0, 2), (3, 4), (5, 7), (8, 13))
    assert sentence.words == ("Ja", ",", "so", "ist's")
    assert sentence.document == sentence.id


def test_absent_labels_are_none_for_every_word():
    assert FULL.label("upos") == ("PRON", "VERB")
    assert FULL.label("tense") == (None, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": {"upos": ("X",)}}, "'7' has 2 words but 1 labels called 'upos'"),
        ({"spans": ((0, 3), (4, 99))}, "'7' has 10 characters, but a word that ends at 99"),
        ({"spans": ((4, 10), (0, 3))}, "'7' has words out of order"),
        ({"spans": ((0, 3), (5, 4))}, "'7' has words out of order"),
        ({"arcs": (Arc(0, 2, "obj"),)}, "no arc from 2 to 0"),
        ({"arcs": (Arc(-1, 0, "obj"),)}, "no arc from 0 to -1"),
        ({"arcs": (Arc(0, -2, "obj"),)}, "no arc from -2 to 0"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    with pytest.raises(CorpusError, match=message):
        replace(FULL, **change)


def test_sentences_are_values():
    assert pickle.loads(pickle.dumps(FULL)) == FULL
    assert {FULL: 1}[replace(FULL)] == 1
    with pytest.raises(FrozenInstanceError):
        FULL.text = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_given_labels_are_copied():
    labels = {"upos": ["PRON", "VERB"]}
    sentence = Sentence.of_words(["She", "sleeps"], labels=labels)
    labels["upos"][0] = "X"
    labels["more"] = ["a", "b"]
    assert sentence.labels == {"upos": ("PRON", "VERB")}


@pytest.mark.parametrize(
    "change",
    [
        {"id": "8"},
        {"document": "other"},
        {"text": "She  sleep"},
        {"spans": ((0, 3), (4, 9))},
        {"labels": {"upos": ("PRON", "VERB"), "number": (None, None)}},
        {"labels": {"upos": ("PRON", "VERB"), "Number": ("singular", None)}},
        {"labels": {"upos": ("PRON", "VERB"), "number": ("singular", "None")}},
        {"arcs": (Arc(0, 1, "obj"), Arc(1, -1, "root"))},
        {"arcs": (Arc(0, 1, "nsubj"),)},
        {"facts": {"label": "0"}},
        {"second": None},
        {"second": Sentence.of_text("Sie schlief.", id="7/second")},
        {"joint": True},
    ],
)
def test_every_field_is_in_the_digest(change):
    assert digest(replace(FULL, **change)) != digest(FULL)


def test_the_digest_is_stable():
    shuffled = replace(FULL, labels=dict(reversed(FULL.labels.items())))
    assert digest(shuffled) == digest(FULL)
    code = (
        "from pellucid.corpus import Sentence, digest\n"
        "print(digest(Sentence.of_text('Ünï \\ud800 x', facts={'b': '1', 'a': '2'})).hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {digest(Sentence.of_text("Ünï \ud800 x", facts={"a": "2", "b": "1"})).hex() + "\n"}
