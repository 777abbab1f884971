"""Generated pronouns: two people, one of them meant, first and second equally often."""

from __future__ import annotations

from collections import Counter

import pytest

from pellucid.corpus import Corpus, Sentence
from pellucid.corpus.grammar import lexicon
from pellucid.corpus.grammar.inflection import noun_forms
from pellucid.corpus.grammar.pronouns import _MEANING, FORMS
from pellucid.errors import CorpusError

WOMEN, MEN = ({noun_forms(noun)[0] for noun in nouns} for nouns in (lexicon.FEMALE_NOUNS, lexicon.MALE_NOUNS))
PEOPLE = {noun_forms(noun)[0] for noun in lexicon.PERSON_NOUNS}


@pytest.fixture(scope="module")
def sentences() -> list[Sentence]:
    return list(Corpus.pronouns(1200))


def test_a_pronoun_hangs_on_the_one_it_means_and_on_the_other(sentences):
    for sentence in sentences:
        link, rival = sentence.arcs
        words, coref = sentence.words, sentence.label("coref")
        assert (link.relation, rival.relation) == ("antecedent", "rival")
        assert link.dependent == rival.dependent
        assert words[link.dependent] in ("he", "she")
        assert [place for place, name in enumerate(coref) if name is not None] == sorted(
            [link.head, rival.head, link.dependent]
        )
        assert coref[link.dependent] == coref[link.head] != coref[rival.head]
        assert (link.head < rival.head) == (sentence.facts["antecedent"] == "first")
        assert sentence.text.startswith(f"The {words[1]} ")
        assert sentence.text.endswith(f"{words[-2]}.")


def test_gender_or_meaning_tells_who_is_meant(sentences):
    said = {deed.split()[0]: ends for deed, *ends in _MEANING}
    assert len(said) == len(_MEANING)
    for sentence in sentences:
        words, (link, rival) = sentence.words, sentence.arcs
        meant, other = words[link.head], words[rival.head]
        if sentence.facts["form"] == "gender":
            own, others = (WOMEN, MEN) if words[link.dependent] == "she" else (MEN, WOMEN)
            assert meant in own
            assert other in others
        else:
            assert {meant, other} <= PEOPLE
            assert meant != other
            end = " ".join(words[link.dependent + 1 : -1])
            assert said[words[2]].index(end) == (0 if link.head == 1 else 1)


def test_first_and_second_are_meant_equally_often_in_both_forms(sentences):
    counts = Counter((sentence.facts["form"], sentence.facts["antecedent"]) for sentence in sentences)
    assert set(counts) == {(form, place) for form in FORMS for place in ("first", "second")}
    assert all(240 <= count <= 360 for count in counts.values())


def test_a_seed_gives_the_same_sentences_and_more_of_it_begin_alike(sentences):
    again = list(Corpus.open("pronouns:30"))
    assert again == sentences[:30]
    assert list(Corpus.pronouns(30, seed=1)) != again
    assert Corpus.pronouns(30).fingerprint != Corpus.pronouns(30, seed=1).fingerprint
    with pytest.raises(CorpusError, match="at least 1"):
        Corpus.pronouns(0)
