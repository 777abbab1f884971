"""Fingerprints: hashes that name the content of a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from pellucid.corpus.readers.files import content_hash
from pellucid.corpus.readers.hub import Source
from pellucid.corpus.readers.records import Fields
from pellucid.corpus.sentence import Sentence, digest

READING = "1"
"""The version of the readers: part of every fingerprint, and raised when one of them reads the same file otherwise."""


def fingerprint_of(*parts: str) -> str:
    """One hash of several strings."""
    hashed = blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        hashed.update(len(encoded).to_bytes(8, "little") + encoded)
    return hashed.hexdigest()


def contents(sentences: Iterable[Sentence]) -> str:
    """The fingerprint of sentences themselves."""
    return fingerprint_of("sentences", *(digest(sentence).hex() for sentence in sentences))


def files_identity(paths: Sequence[Path], options: Sequence[str]) -> str:
    """The fingerprint of files read in one way; their names do not matter."""
    return fingerprint_of("files", READING, *options, *(content_hash(path) for path in paths))


def dataset_identity(source: Source, fields: Fields) -> str | None:
    """The fingerprint of a data set that was named; None for one on the hub without a revision."""
    content = source.content()
    if content is None:
        return None
    return fingerprint_of("dataset", READING, repr((source.config, source.split)), repr(fields), *content)


def contents_of(read: Callable[[], Iterator[Sentence]]) -> str:
    """The fingerprint of the sentences of one pass."""
    return contents(read())
