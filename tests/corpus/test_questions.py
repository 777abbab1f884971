"""Generated questions: answers that stand where they are said to stand, and that alone are right."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest

from pellucid.corpus import Corpus, Sentence, digest
from pellucid.corpus.grammar import FORMS
from pellucid.corpus.grammar.lexicon import DAYS, NUMBERS
from pellucid.corpus.grammar.phrases import Dice
from pellucid.corpus.grammar.questions import questions
from pellucid.corpus.grammar.told import Story
from pellucid.errors import CorpusError

PRONOUNS = frozenset(re.findall(r"\w+", "I we she he it they me us her him them"))


@pytest.fixture(scope="module")
def asked() -> list[Sentence]:
    return list(Corpus.questions(1500))


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    told: dict[str, list[Sentence]] = {}
    for sentence in Corpus.grammar(1500):
        told.setdefault(sentence.document, []).append(sentence)
    return [Story(sentences) for sentences in list(told.values())[:-1]]  # the last is cut short


def test_answers_stand_in_their_stories(asked):
    for question in asked:
        context, start = question.second.text, int(question.facts["answer_start"])
        answer = question.facts["answer"]
        assert context[start : start + len(answer)] == answer
        assert answer == answer.strip(" .,")
        begins = [begin for begin, _ in question.second.spans]
        ends = [end for _, end in question.second.spans]
        assert start in begins  # whole words
        assert start + len(answer) in ends
        assert question.joint
        assert question.text.endswith("?")
        assert question.text[0].isupper()


def test_every_form_occurs_and_asks_for_what_it_says(asked):
    forms = Counter(question.facts["form"] for question in asked)
    assert set(forms) == set(FORMS)
    assert min(forms.values()) >= 20
    for question in asked:
        answer, form = question.facts["answer"], question.facts["form"]
        if form == "how many":
            assert question.text.startswith("How many ")
            assert answer.lower() in NUMBERS
        elif form == "when":
            assert answer.split()[0] in ("on", "in", "during", "after", "before")
            assert (answer.split()[0] == "on") == (answer.split()[1] in DAYS)
        elif form == "where":
            assert answer.split()[0] in ("in", "near", "behind", "outside", "beside")
        else:
            assert answer not in PRONOUNS, question
            assert answer.split()[0] not in ("by", "and", "near", "on")


def test_no_answer_is_given_away_by_the_question(asked):
    for question in asked:
        answer = re.escape(question.facts["answer"])
        assert not re.search(rf"\b{answer}\b", question.text, flags=re.IGNORECASE), question


def test_the_same_seed_gives_the_same_and_another_gives_other_questions(asked):
    again = list(Corpus.questions(300))
    assert [digest(each) for each in again] == [digest(each) for each in asked[:300]]
    other = list(Corpus.questions(300, seed=1))
    contexts = {each.second.text for each in asked}
    assert not contexts & {each.second.text for each in other}
    assert Corpus.questions(3).fingerprint != Corpus.questions(3, seed=1).fingerprint
    assert Corpus.questions(3).fingerprint == Corpus.questions(3).fingerprint
    assert len({question.id for question in asked}) == len(asked)
    with pytest.raises(CorpusError, match="0 questions are none"):
        Corpus.questions(0)


def test_documents_stay_together_so_that_shards_share_no_story(asked):
    documents = [question.document for question in asked]
    changes = sum(a != b for a, b in pairwise(documents))
    assert changes == len(set(documents)) - 1
    first = {question.document for question in Corpus.questions(200).shard(0, 2)}
    second = {question.document for question in Corpus.questions(200).shard(1, 2)}
    assert first
    assert not first & second


def test_most_stories_hold_a_sentence_that_could_mislead(asked):
    """It names somebody who is not in the story, or another thing, with the verb that is asked about."""
    sizes: Counter[bool] = Counter()
    plain = {sentence.text for sentence in Corpus.grammar(6000)}
    for question in asked[:600]:
        sentences = re.split(r"(?<=\.) ", question.second.text)
        sizes[sentences[0] not in plain or sentences[-1] not in plain] += 1
    assert sizes[True] > 0.5 * sizes.total()


def test_who_did_it_is_found_again_from_labels_alone(stories):
    """Of a plain clause "Who VERB the OBJECT?" the answer is the subject of the one verb in the story that fits."""
    checked = 0
    for story in stories:
        verbs = {
            sentence.words[word]: (sentence, word)
            for sentence in story.sentences
            for word, upos in enumerate(sentence.labels["upos"])
            if upos == "VERB" and sentence.labels["lemma"][word] != "be"
        }
        for question in questions(story, Dice(0)):
            found = re.fullmatch(r"Who (\w+)( .*)?\?", question.text)
            if question.form != "who" or found is None or found[1] not in verbs:
                continue
            sentence, verb = verbs[found[1]]
            subject = [a.dependent for a in sentence.arcs if a.head == verb and a.relation == "nsubj"]
            if not subject:
                continue  # the verb shares the subject of the one before it
            entity = sentence.labels["coref"][subject[0]]
            answered = question.answer
            assert story.sentences[answered.sentence].labels["coref"][answered.word] == entity
            assert not [a for a in sentence.arcs if a.head == verb and sentence.labels["lemma"][a.dependent] == "not"]
            checked += 1
    assert checked >= 100


def test_pronouns_are_answered_by_the_last_name_or_noun_of_whom_they_mean(stories):
    by_pronoun = 0
    for story in stories:
        for clause in story.clauses:
            subject = clause.subject
            full = story.full(subject)
            if story.label("upos", subject) != "PRON" or full is None:
                continue
            by_pronoun += 1
            assert story.label("coref", full) == story.label("coref", subject)
            assert story.label("upos", full) in ("NOUN", "PROPN")
            assert (full.sentence, full.word) < (subject.sentence, subject.word)
            assert " and " not in story.written(full)  # one of two that are joined
    assert by_pronoun >= 100


def test_hearsay_and_what_was_denied_are_not_asked_about(stories):
    for story in stories:
        for clause in story.clauses:
            sentence = story.sentences[clause.head.sentence]
            above = clause.head.word
            while above != -1:
                assert sentence.arcs[above].relation not in ("ccomp", "acl:relcl"), sentence.text
                above = sentence.arcs[above].head
            hanging = [a.dependent for a in sentence.arcs if a.head == clause.head.word]
            assert not {"not", "if"} & {sentence.labels["lemma"][word] for word in hanging}, sentence.text


def test_a_story_of_known_sentences():
    """Questions written out by hand, on sentences whose trees the grammar's own labels give."""
    story = next(
        Story(list(group))
        for group in _stories_of(Corpus.grammar(60))
        if any("offered her a small bicycle in that cellar" in sentence.text for sentence in group)
    )
    found = {question.text: story.written(question.answer) for question in questions(story, Dice(0))}
    assert found["Where did George offer the aunt the bicycle?"] == "in that cellar"
    assert found["Who offered the aunt the bicycle?"] == "George"
    assert found["What did George offer to the aunt?"] == "a small bicycle"
    assert found["Who did George offer the bicycle to?"] == "The aunt"
    assert found["What did George begin to draw?"] == "an old brush"
    assert found["What was the mirror like?"] == "round"
    assert not [text for text in found if "lend" in text], "she did not lend it"
    assert not [text for text in found if "give" in text or "gave" in text], "George only realised it"


def _stories_of(corpus: Corpus) -> list[list[Sentence]]:
    told: dict[str, list[Sentence]] = {}
    for sentence in corpus:
        told.setdefault(sentence.document, []).append(sentence)
    return list(told.values())


def test_questions_open_by_name():
    named = Corpus.open("questions:12:3")
    assert [each.text for each in named] == [each.text for each in Corpus.questions(12, seed=3)]
    assert named.fingerprint == Corpus.questions(12, seed=3).fingerprint
    with pytest.raises(CorpusError, match="no questions corpus; write questions, questions:COUNT"):
        Corpus.open("questions:many")
