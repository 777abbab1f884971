"""Readers of tables (TSV, CSV) and of JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pellucid.corpus.readers.files import numbered_lines
from pellucid.corpus.readers.names import Unique
from pellucid.corpus.readers.records import Fields, sentence_of
from pellucid.corpus.sentence import Sentence
from pellucid.errors import CorpusError

NO_HEADER = " If the file has no line of column names, give them: columns=[…], or --columns text,label in a command."


def read_table(
    path: Path, fields: Fields, columns: tuple[str, ...] | None, delimiter: str, quoted: bool
) -> Iterator[Sentence]:
    """The sentences of a table, one per row; fields between quotation marks may hold anything if `quoted`."""
    unique = Unique()
    names = columns
    for line, row in _rows(path, delimiter, quoted):
        if names is None:
            names = tuple(row)
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise CorpusError(f"{path}, line {line} names the column {twice[0]!r} twice.{NO_HEADER}")
            fields.check(names, f"{path}, line {line}", NO_HEADER)
            continue
        if len(row) != len(names):
            raise CorpusError(f"{path}, line {line} has {len(row)} columns, but the table has {len(names)}.")
        record = {name: cell or None for name, cell in zip(names, row, strict=True)}
        found = sentence_of(record, fields, str(line), f"{path}, line {line}")
        if found is not None:
            yield unique.sentence(found) if fields.id is not None else found


def _rows(path: Path, delimiter: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """The rows that hold something, with the number of the line on which each begins."""
    lines = (f"{line}\n" for _, line in numbered_lines(path))
    if quoted:
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
    else:
        rows = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE, quotechar=None)
    begins = 1
    try:
        for row in rows:
            if row and any(cell.strip() for cell in row):
                yield begins, row
            begins = rows.line_num + 1
    except csv.Error as error:
        raise CorpusError(
            f"{path}: the row that begins on line {begins} cannot be read ({error}); check its quotation marks."
        ) from error


def read_jsonl(path: Path, fields: Fields) -> Iterator[Sentence]:
    """The sentences of a file with one JSON object per line."""
    unique = Unique()
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record: Any = json.loads(line)
        except json.JSONDecodeError as error:
            raise CorpusError(f"{where} is not JSON ({error.msg} at character {error.pos + 1}).") from error
        if not isinstance(record, dict):
            raise CorpusError(f"{where} is a {type(record).__name__}, where a JSON object with fields is needed.")
        fields.check(list(record), where)
        found = sentence_of(record, fields, str(number), where)
        if found is not None:
            yield unique.sentence(found) if fields.id is not None else found
