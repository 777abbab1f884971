"""Readers of files with one sentence per line: plain text, words with labels beside them, pairs and translations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from pellucid.corpus.readers.files import count_lines, numbered_lines
from pellucid.corpus.sentence import Sentence
from pellucid.errors import CorpusError

UNITS = ("line", "paragraph", "document")
_TOKEN = re.compile(r"\S+")


def has_gaps(path: Path) -> bool:
    """Whether blank lines separate parts of a file; those at its beginning and end separate nothing."""
    begun = blank = False
    for _, line in numbered_lines(path):
        if not line.strip():
            blank = begun
        elif blank:
            return True
        else:
            begun = True
    return False


def read_text(paths: Sequence[Path], unit: str, gaps: bool) -> Iterator[Sentence]:
    """Sentences of plain text: lines, paragraphs (lines up to a blank one, joined by spaces) or whole files."""
    for place, path in enumerate(paths, start=1):
        prefix = f"{place}:" if len(paths) > 1 else ""
        if unit == "document":
            text = "\n".join(line for _, line in numbered_lines(path)).strip()
            if text:
                yield Sentence.of_text(text, id=str(place))
        elif unit == "paragraph":
            for number, text in _paragraphs(path):
                yield Sentence.of_text(text, id=f"{prefix}{number}", document=str(place) if prefix else None)
        else:
            for number, document, line in _documents(path, gaps):
                yield Sentence.of_text(
                    line.strip(), id=f"{prefix}{number}", document=None if document is None else f"{prefix}{document}"
                )


def _paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    begun, lines = 0, list[str]()
    for number, line in numbered_lines(path):
        if line.strip():
            begun = begun if lines else number
            lines.append(line.strip())
        elif lines:
            yield begun, " ".join(lines)
            lines = []
    if lines:
        yield begun, " ".join(lines)


def _documents(path: Path, gaps: bool) -> Iterator[tuple[int, str | None, str]]:
    """Lines that hold something, with their numbers and those of their documents (None where there are no gaps)."""
    document, open_document = 0, False
    for number, line in numbered_lines(path):
        if not line.strip():
            open_document = False
            continue
        if not open_document:
            document, open_document = document + 1, True
        yield number, (f"document {document}" if gaps else None), line


def read_tagged(words_path: Path, labels_path: Path, label: str, gaps: bool) -> Iterator[Sentence]:
    """Sentences of words separated by space, with as many labels in the same line of a second file."""
    document, open_document = 0, False
    for number, (line, tags) in _beside(words_path, labels_path):
        spans = tuple([found.span() for found in _TOKEN.finditer(line)])
        labels = tuple(tags.split())
        if len(spans) != len(labels):
            raise CorpusError(
                f"Line {number} has {len(spans)} words in {words_path} but {len(labels)} labels in {labels_path}: "
                "each word needs one label."
            )
        if not spans:
            open_document = False
            continue
        if not open_document:
            document, open_document = document + 1, True
        name = str(number)
        yield Sentence(name, f"document {document}" if gaps else name, line, spans, {label: labels})


def read_pairs(
    first: Path, second: Path, labels: Path | None, label: str, joint: bool, empty: str
) -> Iterator[Sentence]:
    """Pairs of sentences from the same line of two files, with a label from a third one."""
    for number, found in _beside(first, second, *([labels] if labels else [])):
        texts = [text.strip() for text in found]
        if not any(texts):
            continue
        name = str(number)
        for path, text in zip((first, second, labels), texts, strict=False):
            if not text and empty == "refuse":
                raise CorpusError(
                    f"{path}, line {number} is empty, but its pair is not: mend it, or leave such pairs out with "
                    "empty='skip'."
                )
        if all(texts):
            yield Sentence.of_text(
                texts[0],
                id=name,
                facts={label: texts[2]} if labels else {},
                second=Sentence.of_text(texts[1], id=f"{name}/second", document=name),
                joint=joint,
            )


def _beside(*paths: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The lines of several files side by side; one that ends before another is an error."""
    for number, lines in enumerate(zip_longest(*(numbered_lines(path) for path in paths)), start=1):
        if any(line is None for line in lines):
            counts = [count_lines(path) for path in paths]
            if max(counts) < number:  # only blank lines at the end are left
                return
            listed = " and ".join(f"{path} has {count} lines" for path, count in zip(paths, counts, strict=True))
            raise CorpusError(f"{listed}: files that are read side by side need equally many.")
        yield number, tuple([line[1] for line in lines])
