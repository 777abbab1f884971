"""Options that name a corpus, the same in every command, and opening a corpus from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pellucid.corpus import Corpus

_WHAT = "A file (.conllu, .txt, .tsv, .csv, .jsonl, .json, .in) or grammar[:COUNT[:SEED]] for generated English."
CorpusArgument = Annotated[str, typer.Argument(metavar="FILE", help=_WHAT)]
CorpusOption = Annotated[str, typer.Option("--corpus", metavar="FILE", help=_WHAT)]
Format = Annotated[
    str,
    typer.Option(help="auto, text, conllu, tagged, table, jsonl, pairs, parallel, squad, dataset or grammar."),
]
LabelFile = Annotated[Path | None, typer.Option(help="The file with the labels of words (tagged) or of pairs.")]
SecondFile = Annotated[Path | None, typer.Option(help="The file with the second sentences (pairs, parallel).")]
Columns = Annotated[str | None, typer.Option(help="Names of a table's columns, if it has no header: text,label.")]
TextField = Annotated[str | None, typer.Option(help="The column or field that holds the text (default: text).")]
Unit = Annotated[str | None, typer.Option(help="What a sentence of plain text is: line, paragraph or document.")]
Take = Annotated[int | None, typer.Option(min=1, help="Read only so many sentences.")]


def open_corpus(
    spec: str,
    *,
    format: str = "auto",  # noqa: A002
    take: int | None = None,
    label_file: Path | None = None,
    second_file: Path | None = None,
    columns: str | None = None,
    text: str | None = None,
    unit: str | None = None,
) -> Corpus:
    """The corpus that a command's options ask for."""
    from pellucid.corpus import Corpus

    chosen = "tagged" if format == "auto" and label_file is not None and second_file is None else format
    given: dict[str, Any] = {
        "labels_path": label_file,
        "second_path": second_file,
        "columns": None if columns is None else [name.strip() for name in columns.split(",")],
        "text": text,
        "unit": unit,
    }
    options = {name: value for name, value in given.items() if value is not None}
    corpus = Corpus.open(spec, format=chosen, **options)
    return corpus if take is None else corpus.take(take)
