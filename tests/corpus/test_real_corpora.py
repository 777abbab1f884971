"""Real data, with totals counted independently or published with the data."""

from __future__ import annotations

import pytest

from pellucid.corpus import Corpus
from tests.corpus.real_data import real


@pytest.mark.parametrize(("part", "sentences"), [("dev", 2001), ("test", 2077)])
def test_ewt_totals(part, sentences):
    (path,) = real(f"ud_english_ewt/en_ewt-ud-{part}.conllu")
    raw = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in raw if line[:1].isdigit()]
    words = [row for row in rows if row[0].isdigit()]
    found = list(Corpus.conllu(path))
    assert len(found) == sentences == sum(line.startswith("# sent_id") for line in raw)
    assert [word for s in found for word in s.label("form" if "form" in s.labels else "x") if word] == []
    assert [word for s in found for word in s.words] == [row[1] for row in words]
    assert [tag for s in found for tag in s.labels["upos"]] == [row[3] for row in words]
    assert [arc.head + 1 for s in found for arc in s.arcs] == [int(row[6]) for row in words]
    assert [s.text for s in found] == [line.removeprefix("# text = ") for line in raw if line.startswith("# text = ")]
    assert len({s.document for s in found}) == sum(line.startswith("# newdoc") for line in raw)
    nouns = sum("Number=Plur" in row[5].split("|") for row in words)
    assert sum(value == "Plur" for s in found for value in s.label("feats.Number")) == nouns


def test_ewt_train_size():
    (path,) = real("ud_english_ewt/en_ewt-ud-train.conllu")
    info = Corpus.conllu(path).info()
    assert info.sentences == 12544
    assert info.words == sum(line.split("\t")[0].isdigit() for line in path.read_text(encoding="utf-8").splitlines())


def test_tagged_wikitext():
    words, labels = real("wikitext2/valid.txt", "wikitext2/valid.tags")
    info = Corpus.tagged(words, labels).info()
    assert info.words == info.labels[0].labelled == 213_886


def test_sentiment_table():
    (path,) = real("sst2/dev.tsv")
    corpus = Corpus.table(path, columns=["text", "label"])
    assert corpus.info().sentences == 872
    labels = [line.rsplit("\t", 1)[1] for line in path.read_text(encoding="utf-8").splitlines()]
    assert [s.facts["label"] for s in corpus] == labels


def test_inference_pairs():
    paths = real("esnli/s1.dev", "esnli/s2.dev", "esnli/labels.dev")
    info = Corpus.pairs(*paths).info()
    assert info.sentences == 9842
    assert {value for value, _ in info.labels[0].values} == {"neutral", "entailment", "contradiction"}


def test_parallel_captions():
    english, german = real("multi30k/val.en", "multi30k/val.de")
    found = list(Corpus.parallel(english, german))
    assert [s.text for s in found] == [line.strip() for line in english.read_text(encoding="utf-8").splitlines()]
    assert not any(s.joint for s in found)


@pytest.mark.parametrize("language", ["en", "de", "es"])
def test_questions(language):
    (path,) = real(f"xquad/xquad.{language}.json")
    found = list(Corpus.squad(path))
    assert len(found) == len({s.id for s in found}) == 1190
    for sentence in found:
        start, answer = int(sentence.facts["answer_start"]), sentence.facts["answer"]
        assert sentence.second is not None
        assert sentence.second.text[start : start + len(answer)] == answer
