"""Opening a corpus by its name alone: the format is told from the suffix and from what lies beside the file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pellucid.corpus.corpus import Corpus
from pellucid.corpus.readers.files import PathName, checked
from pellucid.errors import CorpusError, listing

SUFFIXES = {
    ".conllu": "conllu",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".tsv": "table",
    ".csv": "table",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "squad",
    ".in": "tagged",
    ".parquet": "dataset",
    ".arrow": "dataset",
}
LABELS_BESIDE = (".label", ".tags")
"""Suffixes of the files with labels that are looked for beside a file of words."""

_READERS: Mapping[str, Callable[..., Corpus]] = {
    "text": Corpus.text,
    "conllu": Corpus.conllu,
    "tagged": Corpus.tagged,
    "table": Corpus.table,
    "jsonl": Corpus.jsonl,
    "pairs": Corpus.pairs,
    "parallel": Corpus.parallel,
    "squad": Corpus.squad,
    "dataset": Corpus.dataset,
}
_GENERATED: Mapping[str, Callable[..., Corpus]] = {
    "grammar": Corpus.grammar,
    "questions": Corpus.questions,
    "pronouns": Corpus.pronouns,
}
FORMATS = (*_READERS, *_GENERATED)
SEVERAL: Mapping[str, tuple[str, ...]] = {
    "tagged": ("labels_path",),
    "pairs": ("second_path", "labels_path"),
    "parallel": ("second_path",),
}
"""Formats whose files can be named together, as FIRST+SECOND or FIRST+SECOND+LABELS; and what the later ones are."""


def open_corpus(path: PathName, format: str, options: Mapping[str, Any]) -> Corpus:  # noqa: A002
    """The corpus at a path, in the given format or in the one its name tells (`auto`)."""
    if format not in ("auto", *FORMATS):
        raise CorpusError(f"There is no format {format!r}; the formats are auto, {listing(FORMATS)}.")
    kind = str(path).split(":")[0] if format == "auto" else format
    if kind in _GENERATED:
        return _generated(kind, str(path), options)
    chosen = _told(path) if format == "auto" else format
    path, options = _parted(path, chosen, options)
    reader = _READERS[chosen]
    known = list(inspect.signature(reader).parameters)
    unknown = [name for name in options if name not in known]
    if unknown:
        raise CorpusError(f"The format {chosen} has no option {unknown[0]!r}; it has {listing(known[1:], most=20)}.")
    if chosen == "tagged" and "labels_path" not in options:
        options = {"labels_path": _beside(path), **options}
    missing = [name for name in ("labels_path", "second_path") if _needed(reader, name) and name not in options]
    if missing:
        raise CorpusError(f"The format {chosen} needs a second file: give its path as {missing[0]}.")
    return reader(path, **options)


def _parted(path: PathName, format: str, options: Mapping[str, Any]) -> tuple[PathName, Mapping[str, Any]]:  # noqa: A002
    """The first of several files that are named together, and the options with the others.

    A later file that is named without its folder, and is not where it is named, stands beside the first one.
    """
    names = SEVERAL.get(format, ())
    first, *others = str(path).split("+")
    if not others or not names or names[0] in options or Path(path).exists():
        return path, options
    names = [name for name in names if name not in options]
    if len(others) > len(names):
        raise CorpusError(
            f"{path} names {1 + len(others)} files, and the format {format} reads at most {1 + len(names)}; where a "
            f"'+' belongs to a name, give the other files as {listing(names)}."
        )
    beside = [Path(first).parent / name for name in others]
    found = [
        place if not Path(name).exists() and place.exists() else Path(name)
        for name, place in zip(others, beside, strict=True)
    ]
    return first, {**dict(zip(names, found, strict=False)), **options}


def _needed(reader: Callable[..., Corpus], name: str) -> bool:
    found = inspect.signature(reader).parameters.get(name)
    return found is not None and found.default is inspect.Parameter.empty


def _told(path: PathName) -> str:
    """The format that a path tells."""
    file = Path(path)
    if file.is_dir() and any((file / name).is_file() for name in ("dataset_dict.json", "dataset_info.json")):
        return "dataset"
    if "+" in file.name and not file.exists():
        raise CorpusError(
            f"There is no file {file}; where it names several, give their format as well: {listing(SEVERAL)}."
        )
    checked(file)
    found = SUFFIXES.get(file.suffix.lower())
    if found is None:
        raise CorpusError(
            f"The suffix of {file} tells no format; those known are {listing(SUFFIXES, most=20)}. "
            f"Give the format as well: {listing(FORMATS)}."
        )
    return found


def _beside(path: PathName) -> Path:
    file = checked(path)
    found = [file.with_suffix(suffix) for suffix in LABELS_BESIDE if file.with_suffix(suffix).is_file()]
    if not found:
        wanted = " or ".join(file.with_suffix(suffix).name for suffix in LABELS_BESIDE)
        raise CorpusError(f"There are no labels beside {file}: put them in {wanted}, or name their file.")
    return found[0]


def _generated(kind: str, name: str, options: Mapping[str, Any]) -> Corpus:
    parts = name.split(":")[1:]
    if options:
        raise CorpusError(f"Generated English has no option {next(iter(options))!r}; write {kind}:COUNT:SEED.")
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise CorpusError(f"{name!r} is no {kind} corpus; write {kind}, {kind}:COUNT or {kind}:COUNT:SEED.")
    numbers = [int(part) for part in parts]
    return _GENERATED[kind](*numbers[:1], seed=numbers[1] if len(numbers) > 1 else 0)
