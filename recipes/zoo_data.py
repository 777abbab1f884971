"""The data of the zoo's models as corpora: one split to learn from, one to choose by, one to be scored on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import PellucidError
from recipes import wikitext

WORDS = 150  # of WikiText in one row of the masked language model: its tokens fit into 256 places
HELD_OUT = 10  # one premise of e-SNLI's dev file in so many is kept for choosing
QUESTIONS = {"train": 40_000, "valid": 2_000, "test": 2_000}

_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z\"])")


@dataclass(frozen=True)
class Splits:
    """What a model learns from, is chosen by and is scored on; `others` are further texts to score it on."""

    train: Corpus
    valid: Corpus
    test: Corpus
    others: Mapping[str, Corpus] = field(default_factory=dict[str, Corpus])

    def first(self, count: int) -> Splits:
        """The same with the first sentences of each alone, to try a recipe out."""
        others = {name: corpus.take(count) for name, corpus in self.others.items()}
        return Splits(self.train.take(count), self.valid.take(count), self.test.take(count), others)


def _files(data: Path, *names: str) -> list[Path]:
    """Files of the folder with all data sets; what is absent is named."""
    paths = [data / name for name in names]
    absent = [str(path.relative_to(data)) for path in paths if not path.is_file()]
    if absent:
        raise PellucidError(f"The folder {str(data)!r} lacks {', '.join(absent)}; give the folder of the data sets.")
    return paths


def plain(text: str) -> str:
    """Tokenised English as people write it: no spaces before punctuation, and a capital at the beginning."""
    quoted = text.replace(" n't", "n't").replace("``", '"').replace("''", '"')
    joined = wikitext.natural(quoted.split())
    return joined[:1].upper() + joined[1:]


def articles(data: Path) -> Splits:
    """WikiText-2 in rows of a few sentences; an article is a document."""
    read = wikitext.read(data / "wikitext2")
    made = {name: Corpus.of(_rows(split.articles, name), name=f"WikiText-2 {name}") for name, split in read.items()}
    return Splits(made["train"], made["valid"], made["test"])


def _rows(texts: Iterable[str], split: str) -> Iterator[Sentence]:
    for number, article in enumerate(texts, start=1):
        document = f"{split} {number}"
        for place, row in enumerate(packed(article), start=1):
            yield Sentence.of_text(row, id=f"{document}-{place}", document=document)


def packed(article: str) -> Iterator[str]:
    """The sentences of an article, as many at a time as have `WORDS` words or fewer together."""
    row: list[str] = []
    words = 0
    for paragraph in article.splitlines():
        for sentence in _SENTENCE_END.split(paragraph):
            count = len(sentence.split())
            if row and words + count > WORDS:
                yield " ".join(row)
                row, words = [], 0
            row.append(sentence)
            words += count
    if row:
        yield " ".join(row)


def treebank(data: Path) -> Splits:
    """The English Web Treebank as it comes."""
    names = [f"ud_english_ewt/en_ewt-ud-{split}.conllu" for split in ("train", "dev", "test")]
    train, valid, test = (_made(path, Corpus.conllu) for path in _files(data, *names))
    return Splits(train, valid, test)


def reviews(data: Path) -> Splits:
    """SST-2 with the labels negative and positive."""
    paths = _files(data, *(f"sst2/{split}.tsv" for split in ("train", "dev", "test")))
    train, valid, test = (_made(path, read_reviews) for path in paths)
    return Splits(train, valid, test)


def _made(path: Path, read: Callable[[Path], Iterable[Sentence]]) -> Corpus:
    """A file read once and kept in memory, since training reads it several times."""
    return Corpus.of(read(path), name=path.name)


def read_reviews(path: Path) -> Iterator[Sentence]:
    """One file of SST-2."""
    names = {"0": "negative", "1": "positive"}
    for sentence in Corpus.table(path, columns=["text", "label"], quoted=False):
        label = names[sentence.facts["label"]]
        yield Sentence.of_text(plain(sentence.text), id=sentence.id, facts={"label": label})


def premises(data: Path) -> Splits:
    """e-SNLI: its dev file to learn from, but for the premises held out to choose by; its test file to be scored on."""
    known, test = (
        list(read_inferences(*_files(data, *(f"esnli/{part}.{split}" for part in ("s1", "s2", "labels")))))
        for split in ("dev", "test")
    )
    numbers = {document: number for number, document in enumerate(dict.fromkeys(each.document for each in known))}
    parts: tuple[list[Sentence], list[Sentence]] = ([], [])
    for sentence in known:
        parts[numbers[sentence.document] % HELD_OUT == 0].append(sentence)
    return Splits(
        Corpus.of(parts[0], name="e-SNLI dev, nine premises of ten"),
        Corpus.of(parts[1], name="e-SNLI dev, one premise of ten"),
        Corpus.of(test, name="e-SNLI test"),
    )


def read_inferences(first: Path, second: Path, labels: Path) -> Iterator[Sentence]:
    """Pairs of one of e-SNLI's parts; the document is the premise, which several pairs share."""
    for pair in Corpus.pairs(first, second, labels):
        assert pair.second is not None
        premise = plain(pair.text)
        hypothesis = Sentence.of_text(plain(pair.second.text), id=f"{pair.id}/second", document=premise)
        yield Sentence.of_text(premise, id=pair.id, document=premise, facts=pair.facts, second=hypothesis, joint=True)


def stories(data: Path) -> Splits:
    """Questions about generated stories, each split of a seed of its own; and those of XQuAD about Wikipedia."""
    made = {
        name: Corpus.of(Corpus.questions(count, seed=seed), name=f"questions:{count}:{seed}")
        for seed, (name, count) in enumerate(QUESTIONS.items())
    }
    (path,) = _files(data, "xquad/xquad.en.json")
    return Splits(made["train"], made["valid"], made["test"], {"xquad.en": Corpus.squad(path)})


def captions(data: Path) -> Splits:
    """Multi30k, English captions with their German translations."""
    names = ("train", "val", "test_2016_flickr")
    pairs = [_files(data, f"multi30k/{name}.en", f"multi30k/{name}.de") for name in names]
    train, valid, test = (Corpus.parallel(english, german) for english, german in pairs)
    return Splits(train, valid, test)
