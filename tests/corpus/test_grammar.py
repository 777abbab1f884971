"""Generated English: trees, agreement, tense, coreference and sentiment, each derived again from the labels."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict

import pytest

from pellucid.corpus import Corpus, Sentence, digest
from pellucid.errors import CorpusError

UPOS = frozenset(re.findall(r"\w+", "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"))
RELATIONS = frozenset(
    re.findall(
        r"\S+",
        """acl:relcl advcl advmod amod aux aux:pass case cc ccomp conj cop det expl iobj mark nmod nmod:poss nsubj
        nsubj:pass nummod obj obl obl:agent punct root xcomp""",
    )
)


@pytest.fixture(scope="module")
def sentences() -> list[Sentence]:
    return list(Corpus.grammar(2000))


def heads(sentence: Sentence) -> dict[int, int]:
    return {arc.dependent: arc.head for arc in sentence.arcs}


def children(sentence: Sentence, word: int, *relations: str) -> list[int]:
    return [arc.dependent for arc in sentence.arcs if arc.head == word and arc.relation in relations]


def words_of(sentence: Sentence) -> list[str]:
    return [word.lower() for word in sentence.words]


def test_every_tree_is_a_projective_tree_with_one_root(sentences):
    for sentence in sentences:
        parent = heads(sentence)
        assert sorted(parent) == list(range(len(sentence.spans))), sentence.text
        assert list(parent.values()).count(-1) == 1, sentence.text
        for word in parent:
            seen = set()
            while word != -1:
                assert word not in seen, sentence.text
                seen.add(word)
                word = parent[word]
        arcs = [tuple(sorted(pair)) for pair in parent.items()]
        assert not [(a, b) for a in arcs for b in arcs if a[0] < b[0] < a[1] < b[1]], sentence.text


def test_labels_are_valid_and_say_what_the_arcs_say(sentences):
    for sentence in sentences:
        assert set(sentence.labels["upos"]) <= UPOS
        assert sentence.labels["deprel"] == tuple(arc.relation for arc in sentence.arcs)
        assert set(sentence.labels["deprel"]) <= RELATIONS
        assert all((arc.relation == "root") == (arc.head == -1) for arc in sentence.arcs)
        assert all(
            (arc.relation == "punct") == (sentence.labels["upos"][arc.dependent] == "PUNCT") for arc in sentence.arcs
        )


def subject_of(sentence: Sentence, predicate: int) -> tuple[str, str] | None:
    """Person and number of the subject of a predicate, from the words alone."""
    found = children(sentence, predicate, "nsubj", "nsubj:pass")
    relation = sentence.labels["deprel"][predicate]
    if not found:
        return subject_of(sentence, heads(sentence)[predicate]) if relation == "conj" else None
    subject = found[0]
    word = words_of(sentence)[subject]
    if children(sentence, subject, "conj"):
        return "3", "plural"
    if word in ("who", "that") and sentence.labels["upos"][subject] == "PRON":
        subject = heads(sentence)[predicate]
        word = words_of(sentence)[subject]
    if sentence.labels["upos"][subject] == "PRON":
        person, number = {"i": "1s", "we": "1p", "they": "3p"}.get(word, "3s")
        return person, {"s": "singular", "p": "plural"}[number]
    determiners = {words_of(sentence)[word] for word in children(sentence, subject, "det", "nummod", "amod")}
    if determiners & {"a", "an", "this", "that"}:
        assert sentence.labels["number"][subject] == "singular", sentence.text
    if determiners & {"these", "those", "several", "many", "some", "two", "three", "four", "five", "six", "seven"}:
        assert sentence.labels["number"][subject] == "plural", sentence.text
    return "3", sentence.labels["number"][subject]


def test_finite_verbs_agree_with_their_subjects(sentences):
    checked = defaultdict(int)
    for sentence in sentences:
        words = words_of(sentence)
        for verb, tense in enumerate(sentence.labels["tense"]):
            if tense is None or tense == "future":
                continue
            relation = sentence.labels["deprel"][verb]
            predicate = heads(sentence)[verb] if relation in ("aux", "aux:pass", "cop") else verb
            expected = subject_of(sentence, predicate)
            assert expected is not None, sentence.text
            assert (sentence.labels["person"][verb], sentence.labels["number"][verb]) == expected, sentence.text
            lemma, word = sentence.labels["lemma"][verb], words[verb]
            checked[lemma if lemma in ("be", "do") else "verb", tense, *expected] += 1
            if lemma == "be":
                forms = {("1", "singular"): ("am", "was"), ("3", "singular"): ("is", "was")}.get(
                    expected, ("are", "were")
                )
                assert word == forms[tense == "past"], sentence.text
            elif tense == "present":
                assert word.endswith("s") == (expected == ("3", "singular")) or lemma.endswith("ss"), sentence.text
            elif word != lemma:  # "hurt" is its own past
                assert not word.endswith(("s", "ing")), sentence.text
    assert len(checked) >= 20, "every kind of agreement occurs"


def test_articles_fit_the_sound_of_the_next_word(sentences):
    for sentence in sentences:
        for article, following in re.findall(r"\b(an?) (\w+)", sentence.text, flags=re.IGNORECASE):
            vowel = (following[0] in "aeiou" and not following.startswith("use")) or following.startswith("hon")
            assert (article.lower() == "an") == vowel, sentence.text


def test_one_tense_rules_a_sentence_and_a_story(sentences):
    stories = defaultdict(set)
    for sentence in sentences:
        tense = sentence.facts["tense"]
        stories[sentence.document].add(tense)
        found = {value for value in sentence.labels["tense"] if value is not None}
        assert tense in found
        assert found <= ({"future", "present"} if tense == "future" else {tense}), sentence.text
        will = [word for word in words_of(sentence) if word == "will"]
        assert bool(will) == (tense == "future")
    assert all(tenses == {"past"} or tenses <= {"present", "future"} for tenses in stories.values())


def test_pronouns_follow_an_antecedent_that_agrees(sentences):
    mentions: dict[tuple[str, str], list[tuple[str, str | None, str | None]]] = defaultdict(list)
    pronouns = 0
    for sentence in sentences:
        for word, entity in enumerate(sentence.labels["coref"]):
            number, gender = sentence.labels["number"][word], sentence.labels["gender"][word]
            text, upos = words_of(sentence)[word], sentence.labels["upos"][word]
            if upos == "PRON" and sentence.labels["person"][word] is not None:
                assert entity is not None
            if entity is None:
                continue
            before = mentions[sentence.document, entity]
            if upos == "PRON" and sentence.labels["person"][word] == "3":
                pronouns += 1
                assert before, f"{text!r} has no antecedent: {sentence.text}"
            for _, other_number, other_gender in before:
                assert number == other_number, sentence.text
                assert gender is None or other_gender is None or gender == other_gender, sentence.text
            before.append((text, number, gender))
    assert pronouns > 500


def test_no_two_entities_of_a_story_answer_to_one_pronoun(sentences):
    answers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for sentence in sentences:
        for word, entity in enumerate(sentence.labels["coref"]):
            if sentence.labels["upos"][word] == "PRON" and entity is not None:
                answers[sentence.document, sentence.labels["lemma"][word]].add(entity)
    assert max(map(len, answers.values())) == 1


def test_an_object_never_means_the_subject_of_its_clause(sentences):
    """ "She saw her" never means one person, nor does "Anna and Tom … him"."""
    for sentence in sentences:
        for predicate in range(len(sentence.spans)):
            subjects = children(sentence, predicate, "nsubj", "nsubj:pass")
            subjects += [joined for subject in subjects for joined in children(sentence, subject, "conj")]
            objects = children(sentence, predicate, "obj", "iobj", "obl:agent")
            meant = {sentence.labels["coref"][word] for word in subjects} - {None}
            assert not meant & {sentence.labels["coref"][word] for word in objects}, sentence.text


def test_sentiment_is_the_sign_of_its_words_with_negation_turning(sentences):
    flipped = 0
    for sentence in sentences:
        total = 0
        for word, polarity in enumerate(sentence.labels["sentiment"]):
            if polarity is not None:
                negations = [w for w in children(sentence, word, "advmod") if words_of(sentence)[w] == "not"]
                flipped += len(negations)
                total += {"positive": 1, "negative": -1}[polarity] * (-1) ** len(negations)
        expected = "neutral" if total == 0 else "positive" if total > 0 else "negative"
        assert sentence.facts["sentiment"] == expected, sentence.text
    assert flipped > 30
    polarity = {}
    for sentence in sentences:
        for lemma, value in zip(sentence.labels["lemma"], sentence.labels["sentiment"], strict=True):
            assert polarity.setdefault(lemma, value) == value, f"{lemma} has two polarities"
    assert polarity["hate"] == "negative"
    assert polarity["kind"] == "positive"


def test_depth_and_subject_number_are_those_of_the_tree(sentences):
    depths = set()
    for sentence in sentences:
        parent = heads(sentence)
        deepest = 0
        for word in parent:
            nested = 0
            while word != -1:
                nested += sentence.labels["deprel"][word] in ("acl:relcl", "ccomp", "advcl")
                word = parent[word]
            deepest = max(deepest, nested)
        assert sentence.facts["depth"] == str(deepest)
        depths.add(deepest)
        root = next(word for word, head in parent.items() if head == -1)
        subject = children(sentence, root, "nsubj", "nsubj:pass")[0]
        plural = bool(children(sentence, subject, "conj")) or sentence.labels["number"][subject] == "plural"
        assert sentence.facts["subject_number"] == ("plural" if plural else "singular"), sentence.text
    assert depths >= {0, 1, 2}


def test_text_reads_like_text(sentences):
    for sentence in sentences:
        assert re.fullmatch(r"[A-Z][A-Za-z, ]*\.", sentence.text), sentence.text
        assert "  " not in sentence.text
        assert " ," not in sentence.text
        assert all(sentence.words), sentence.text


def test_size_and_variety(sentences):
    assert len(sentences) == 2000
    assert len({word for sentence in sentences for word in words_of(sentence)}) >= 300
    assert 8 <= sum(len(sentence.spans) for sentence in sentences) / 2000 <= 16
    lengths = defaultdict(int)
    for sentence in sentences[:-8]:
        lengths[sentence.document] += 1
    assert set(lengths.values()) == {3, 4, 5, 6, 7, 8}
    assert len({sentence.id for sentence in sentences}) == 2000
    assert len({sentence.text for sentence in sentences}) > 1900
    constructions = {relation for sentence in sentences for relation in sentence.labels["deprel"]}
    assert constructions == RELATIONS


def test_the_same_seed_gives_the_same_bytes_in_another_process(sentences):
    code = "from pellucid.corpus import Corpus, digest\nprint(b''.join(digest(s) for s in Corpus.grammar(60)).hex())"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "77"}
    )
    assert other.stdout.strip() == b"".join(digest(sentence) for sentence in sentences[:60]).hex()


def test_seeds_differ_and_short_corpora_begin_long_ones(sentences):
    assert list(Corpus.grammar(50)) == sentences[:50]
    assert [s.text for s in Corpus.grammar(50, seed=1)] != [s.text for s in sentences[:50]]
    prints = {Corpus.grammar(50).fingerprint, Corpus.grammar(51).fingerprint, Corpus.grammar(50, seed=1).fingerprint}
    assert len(prints) == 3
    with pytest.raises(CorpusError, match="at least 1"):
        Corpus.grammar(0)
