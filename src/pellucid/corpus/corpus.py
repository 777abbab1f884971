"""The corpus: a stream of sentences that can be read again, cut short, filtered and dealt out in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from pellucid.corpus.identity import contents, contents_of, dataset_identity, files_identity, fingerprint_of
from pellucid.corpus.info import CorpusInfo, gather
from pellucid.corpus.labelling import Labelling, labelled
from pellucid.corpus.readers.conllu import is_newdoc, read_conllu
from pellucid.corpus.readers.files import PathName, any_line, checked
from pellucid.corpus.readers.hub import Source, read_dataset
from pellucid.corpus.readers.lines import UNITS, has_gaps, read_pairs, read_tagged, read_text
from pellucid.corpus.readers.names import Unique
from pellucid.corpus.readers.records import EMPTY, Fields
from pellucid.corpus.readers.squad import read_squad
from pellucid.corpus.readers.tables import read_jsonl, read_table
from pellucid.corpus.sentence import Sentence
from pellucid.errors import CorpusError, listing

Read = Callable[[], Iterator[Sentence]]
OWN_DOCUMENT = "each sentence is its own document"


class Corpus:
    """A stream of sentences; every `for` over it reads it again from the beginning.

    `unit` says in words what a document is. `fingerprint` names the content: a hash of the files, of the way they are
    read and of every step since (`take`, `filter`, `shard`); None where content cannot be named, so that a sweep over
    it cannot be resumed. `read` starts a new pass; `identify` works the fingerprint out when it is first asked for;
    `scattered` says that sentences of one document may stand apart; `rules` are the rules of the labels that
    `labelled` added, by their names.
    """

    def __init__(
        self,
        name: str,
        unit: str,
        read: Read,
        *,
        identify: Callable[[], str | None] | None = None,
        scattered: bool = True,
        rules: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.unit = unit
        self._read = read
        self._identify = identify
        self._scattered = scattered
        self.rules = dict(rules or {})

    def __iter__(self) -> Iterator[Sentence]:
        return self._read()

    def __repr__(self) -> str:
        return f"Corpus({self.name!r}; {self.unit})"

    @cached_property
    def fingerprint(self) -> str | None:
        """A hash that names the content, or None where it cannot be named."""
        return None if self._identify is None else self._identify()

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        labels: dict[str, None] = {}
        facts: dict[str, None] = {}
        for sentence in self:
            labels.update(dict.fromkeys(sentence.labels))
            facts.update(dict.fromkeys(sentence.facts))
        return tuple(sorted(labels)), tuple(sorted(facts))

    def labels(self) -> tuple[str, ...]:
        """The names of the word labels that occur; the first call reads the whole corpus."""
        return self._names[0]

    def facts(self) -> tuple[str, ...]:
        """The names of the sentence labels that occur; the first call reads the whole corpus."""
        return self._names[1]

    def info(self) -> CorpusInfo:
        """Count sentences, documents, words and label values in one pass."""
        return gather(self.name, self.unit, self)

    def take(self, n: int) -> Corpus:
        """The first `n` sentences."""
        if n < 1:
            raise CorpusError(f"Taking {n} sentences of {self.name} leaves nothing; take at least 1.")
        return self._derived(f"{self.name} (first {n})", partial(_taken, self, n), f"take {n}")

    def filter(self, keep: Callable[[Sentence], bool], *, name: str | None = None) -> Corpus:
        """The sentences for which `keep` is true; without a `name` for the rule the fingerprint is None."""
        step = None if name is None else f"filter {name}"
        return self._derived(f"{self.name} ({name or 'filtered'})", partial(_kept, self, keep), step)

    def shard(self, i: int, n: int) -> Corpus:
        """Every `n`-th document, beginning with document `i`: shards 0 to n − 1 are disjoint and cover everything."""
        if n < 1 or not 0 <= i < n:
            raise CorpusError(f"There is no shard {i} of {n}; shards count from 0 to one less than their number.")
        return self._derived(f"{self.name} (shard {i} of {n})", partial(_dealt, self, i, n), f"shard {i} of {n}")

    def labelled(self, labelling: Labelling) -> Corpus:
        """The same sentences with one label more, worked out while reading: `labelling` is a `neurons.Concept`."""
        if labelling.plain or self.rules.get(labelling.name) == labelling.rule:
            return self
        ready = labelling.prepared(self)
        made = self._derived(self.name, partial(_labelled, self, ready), f"label {ready.rule}")
        made.rules[labelling.name] = labelling.rule
        return made

    def _derived(self, name: str, read: Read, step: str | None) -> Corpus:
        identify = None if step is None else partial(_after, self, step)
        return Corpus(name, self.unit, read, identify=identify, scattered=self._scattered, rules=self.rules)

    @staticmethod
    def of(items: Iterable[str | Sequence[str] | Sentence], *, name: str = "given sentences") -> Corpus:
        """A corpus in memory, of texts, lists of words or sentences; a repeated id gets a number behind it."""
        if isinstance(items, str):
            raise CorpusError("A corpus is made from a list of texts; to make one of a single text, put it in a list.")
        sentences: list[Sentence] = []
        unique = Unique()
        for number, item in enumerate(items, start=1):
            sentence = _sentence(item, str(number))
            if not sentence.spans:
                raise CorpusError(f"Item {number} of the {name} has no words: leave it out.")
            sentences.append(unique.sentence(sentence))
        if not sentences:
            raise CorpusError(f"There are no sentences in the {name}: give at least one.")
        unit = "documents as given" if any(s.document != s.id for s in sentences) else OWN_DOCUMENT
        return Corpus(name, unit, partial(iter, sentences), identify=partial(contents, sentences))

    @staticmethod
    def text(path: PathName, *more: PathName, unit: str = "line") -> Corpus:
        """Plain text in one or more files: a sentence is a line, a paragraph or a whole file.

        Blank lines separate documents of lines; without any, each line is its own document. Paragraphs of several
        files have their file as document.
        """
        if unit not in UNITS:
            raise CorpusError(f"Text cannot be read by {unit!r}; the units are {listing(UNITS)}.")
        paths = [checked(item) for item in (path, *more)]
        gaps = unit == "line" and any(has_gaps(item) for item in paths)
        whole_files = unit == "paragraph" and len(paths) > 1
        documents = "documents between blank lines" if gaps else "each file is a document" if whole_files else None
        return _from_files(paths, partial(read_text, paths, unit, gaps), documents, ["text", unit])

    @staticmethod
    def conllu(path: PathName) -> Corpus:
        """A CoNLL-U treebank: labels upos, xpos, lemma, deprel, feats.NAME, and the dependency arcs."""
        file = checked(path)
        documents = "documents from '# newdoc'" if any_line(file, is_newdoc) else None
        return _from_files([file], partial(read_conllu, file), documents, ["conllu"], scattered=True)

    @staticmethod
    def tagged(words_path: PathName, labels_path: PathName, *, label: str = "label") -> Corpus:
        """Words separated by spaces, one sentence per line, and a second file with as many labels in each line."""
        words, labels = checked(words_path), checked(labels_path)
        gaps = has_gaps(words)
        read = partial(read_tagged, words, labels, label, gaps)
        return _from_files([words, labels], read, "documents between blank lines" if gaps else None, ["tagged", label])

    @staticmethod
    def table(
        path: PathName,
        *,
        text: str = "text",
        second: str | None = None,
        joint: bool = True,
        labels: Sequence[str] | None = None,
        document: str | None = None,
        id: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        delimiter: str | None = None,
        quoted: bool | None = None,
        empty: str = "refuse",
    ) -> Corpus:
        """A table with one sentence per row, its columns named by the first line or by `columns`.

        Commas separate the columns of .csv files and tabs those of all others; quotation marks mean something in
        comma-separated files only, unless `quoted` says otherwise. `labels` become facts; None takes every column.
        """
        file = checked(path)
        comma = file.suffix.lower() == ".csv" if delimiter is None else delimiter == ","
        delimiter = delimiter or ("," if comma else "\t")
        if len(delimiter) != 1:
            raise CorpusError(f"Columns are separated by one character, not by {delimiter!r}.")
        fields = _fields(
            text=text, second=second, joint=joint, labels=_names(labels), document=document, id=id, empty=empty
        )
        names = _names(columns)
        if names is not None:
            fields.check(names, "The list of columns")
        read = partial(read_table, file, fields, names, delimiter, comma if quoted is None else quoted)
        return _from_files([file], read, _by_field(document), ["table", repr(read.args[1:])], scattered=True)

    @staticmethod
    def jsonl(
        path: PathName,
        *,
        text: str = "text",
        words: str | None = None,
        second: str | None = None,
        joint: bool = True,
        labels: Sequence[str] | None = None,
        document: str | None = None,
        id: str | None = None,  # noqa: A002
        empty: str = "refuse",
    ) -> Corpus:
        """One JSON object per line, with a `text` or a list of `words`.

        `labels` that are lists with one entry per word become word labels, single values become facts; None takes
        every field that is one or the other.
        """
        file = checked(path)
        fields = _fields(
            text=text,
            words=words,
            second=second,
            joint=joint,
            labels=_names(labels),
            document=document,
            id=id,
            empty=empty,
        )
        read = partial(read_jsonl, file, fields)
        return _from_files([file], read, _by_field(document), ["jsonl", repr(fields)], scattered=True)

    @staticmethod
    def pairs(
        first_path: PathName,
        second_path: PathName,
        labels_path: PathName | None = None,
        *,
        label: str = "label",
        empty: str = "refuse",
    ) -> Corpus:
        """Pairs of sentences that are read together (inference, paraphrase), line by line from two or three files."""
        return _line_pairs(first_path, second_path, labels_path, label=label, joint=True, empty=empty)

    @staticmethod
    def parallel(first_path: PathName, second_path: PathName, *, empty: str = "refuse") -> Corpus:
        """Sentences with their translations, line by line from two files."""
        return _line_pairs(first_path, second_path, None, label="label", joint=False, empty=empty)

    @staticmethod
    def squad(path: PathName) -> Corpus:
        """Question answering: the text is the question, the second sentence its context, the document the article."""
        file = checked(path)
        return _from_files([file], partial(read_squad, file), "documents are articles", ["squad"])

    @staticmethod
    def dataset(
        data: Any,
        *,
        text: str = "text",
        words: str | None = None,
        second: str | None = None,
        joint: bool = True,
        labels: Sequence[str] | None = None,
        document: str | None = None,
        id: str | None = None,  # noqa: A002
        config: str | None = None,
        split: str | None = None,
        revision: str | None = None,
        streaming: bool = True,
        empty: str = "refuse",
    ) -> Corpus:
        """A Hugging Face data set: a name on the hub, a local file or folder, or an object of the `datasets` library.

        Fields are chosen as for `jsonl`; class numbers become their names. Without a `revision` a stream from the hub
        has no fingerprint.
        """
        fields = _fields(
            text=text,
            words=words,
            second=second,
            joint=joint,
            labels=_names(labels),
            document=document,
            id=id,
            empty=empty,
        )
        source = Source(data, config, split, revision, streaming)
        read = partial(read_dataset, source, fields)
        identify: Callable[[], str | None] | None = partial(dataset_identity, source, fields)
        if not isinstance(data, (str, Path)):
            identify = partial(contents_of, read) if hasattr(data, "__len__") else None
        return _begun(Corpus(source.title, _by_field(document) or OWN_DOCUMENT, read, identify=identify))

    @staticmethod
    def grammar(count: int = 2000, *, seed: int = 0) -> Corpus:
        """Generated English with gold labels: `count` sentences in short stories, the same for the same seed."""
        from pellucid.corpus.grammar import VERSION, generate

        if count < 1:
            raise CorpusError(f"{count} sentences of grammar are none; ask for at least 1.")
        identify = partial(fingerprint_of, "grammar", VERSION, str(count), str(seed))
        read = partial(generate, count, seed)
        return Corpus(f"grammar:{count}:{seed}", "documents are stories", read, identify=identify, scattered=False)

    @staticmethod
    def questions(count: int = 2000, *, seed: int = 0) -> Corpus:
        """Generated questions about generated stories, in the form of `squad`, and with the `form` of each question."""
        from pellucid.corpus.grammar import QUESTIONS_VERSION, VERSION, generate_questions

        if count < 1:
            raise CorpusError(f"{count} questions are none; ask for at least 1.")
        identify = partial(fingerprint_of, "questions", VERSION, QUESTIONS_VERSION, str(count), str(seed))
        read = partial(generate_questions, count, seed)
        return Corpus(f"questions:{count}:{seed}", "documents are stories", read, identify=identify, scattered=False)

    @staticmethod
    def pronouns(count: int = 400, *, seed: int = 0) -> Corpus:
        """Generated sentences with two people and a pronoun: arcs to its `antecedent` and to its `rival`."""
        from pellucid.corpus.grammar import PRONOUNS_VERSION, generate_pronouns

        if count < 1:
            raise CorpusError(f"{count} sentences are none; ask for at least 1.")
        identify = partial(fingerprint_of, "pronouns", PRONOUNS_VERSION, str(count), str(seed))
        read = partial(generate_pronouns, count, seed)
        return Corpus(f"pronouns:{count}:{seed}", OWN_DOCUMENT, read, identify=identify, scattered=False)

    @staticmethod
    def open(path: PathName, *, format: str = "auto", **options: Any) -> Corpus:  # noqa: A002
        """Any corpus by its path; the format is told from the suffix and the content unless it is given.

        `grammar`, `grammar:500` and `grammar:500:1` stand for generated English (count, seed), `questions` and
        `pronouns` for the other generated corpora. Files that belong together are joined by a plus,
        `train.en+train.de`. Options are those of the constructor that reads the format.
        """
        from pellucid.corpus.formats import open_corpus

        return open_corpus(path, format, options)


def _from_files(
    paths: Sequence[Path], read: Read, documents: str | None, options: Sequence[str], *, scattered: bool = False
) -> Corpus:
    name = " + ".join(path.name for path in paths)
    identify = partial(files_identity, paths, options)
    return _begun(Corpus(name, documents or OWN_DOCUMENT, read, identify=identify, scattered=scattered))


def _begun(corpus: Corpus) -> Corpus:
    """The corpus, once its first sentence could be read: what is broken from the start is said at once."""
    if next(iter(corpus), None) is None:
        raise CorpusError(f"{corpus.name} holds no usable sentence: a corpus needs at least one.")
    return corpus


def _line_pairs(
    first: PathName, second: PathName, labels: PathName | None, *, label: str, joint: bool, empty: str
) -> Corpus:
    _fields(empty=empty)
    paths = [checked(path) for path in (first, second, labels) if path is not None]
    read = partial(read_pairs, paths[0], paths[1], paths[2] if labels is not None else None, label, joint, empty)
    return _from_files(paths, read, None, ["pairs", label, str(joint), empty])


def _fields(**chosen: Any) -> Fields:
    if chosen["empty"] not in EMPTY:
        raise CorpusError(f"Records without text cannot be treated by {chosen['empty']!r}; choose {listing(EMPTY)}.")
    return Fields(**chosen)


def _names(given: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(given, str):
        raise CorpusError(f"Names of fields are given as a list: [{given!r}].")
    return None if given is None else tuple(given)


def _by_field(document: str | None) -> str | None:
    return None if document is None else f"documents by the field {document!r}"


def _sentence(item: str | Sequence[str] | Sentence, number: str) -> Sentence:
    if isinstance(item, Sentence):
        return item
    if isinstance(item, str):
        return Sentence.of_text(item, id=number)
    return Sentence.of_words(item, id=number)


def _after(parent: Corpus, step: str) -> str | None:
    return None if parent.fingerprint is None else fingerprint_of(parent.fingerprint, step)


def _taken(parent: Corpus, n: int) -> Iterator[Sentence]:
    return islice(parent, n)


def _kept(parent: Corpus, keep: Callable[[Sentence], bool]) -> Iterator[Sentence]:
    read = kept = 0
    for sentence in parent:
        read += 1
        if keep(sentence):
            kept += 1
            yield sentence
    if read and not kept:
        raise CorpusError(f"The filter kept none of the {read} sentences of {parent.name}: loosen it.")


def _labelled(parent: Corpus, labelling: Labelling) -> Iterator[Sentence]:
    return labelled(parent, labelling)


def _dealt(parent: Corpus, i: int, n: int) -> Iterator[Sentence]:
    return (sentence for number, sentence in _numbered(parent) if number % n == i)


def _numbered(parent: Corpus) -> Iterator[tuple[int, Sentence]]:
    """Each sentence with the number of its document, in the order in which documents first appear."""
    if parent._scattered:  # pyright: ignore[reportPrivateUsage]
        numbers: dict[str, int] = {}
        for sentence in parent:
            yield numbers.setdefault(sentence.document, len(numbers)), sentence
        return
    number, current = -1, None
    for sentence in parent:
        if sentence.document != current:
            number, current = number + 1, sentence.document
        yield number, sentence
