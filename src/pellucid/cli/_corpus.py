"""Options that name a corpus, the same in every command, and opening a corpus from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pellucid.corpus import Corpus

_WHAT = (
    "A file (.conllu, .txt, .tsv, .csv, .jsonl, .json, .in), FIRST+SECOND for files that belong together, or "
    "grammar[:COUNT[:SEED]] for generated English."
)
CorpusArgument = Annotated[str, typer.Argument(metavar="FILE", help=_WHAT)]
CorpusOption = Annotated[str, typer.Option("--corpus", metavar="FILE", help=_WHAT)]
Format = Annotated[
    str,
    typer.Option(
        help="auto, text, conllu, tagged, table, jsonl, pairs, parallel, squad, dataset; grammar, questions, pronouns."
    ),
]
LabelFile = Annotated[Path | None, typer.Option(help="The file with the labels of words (tagged) or of pairs.")]
SecondFile = Annotated[Path | None, typer.Option(help="The file with the second sentences (pairs, parallel).")]
Columns = Annotated[str | None, typer.Option(help="Names of a table's columns, if it has no header: text,label.")]
TextField = Annotated[str | None, typer.Option(help="The column or field that holds the text (default: text).")]
Unit = Annotated[str | None, typer.Option(help="What a sentence of plain text is: line, paragraph or document.")]
Take = Annotated[int | None, typer.Option(min=1, help="Read only so many sentences.")]


@dataclass(frozen=True)
class CorpusShape:
    """How a corpus is read."""

    take: Take = None
    format: Format = "auto"
    label_file: LabelFile = None
    second_file: SecondFile = None
    columns: Columns = None
    text: TextField = None
    unit: Unit = None

    def open(self, spec: str) -> Corpus:
        """The corpus of a file name, or `grammar`."""
        from pellucid.corpus import Corpus

        tagged = self.format == "auto" and self.label_file is not None and self.second_file is None
        given: dict[str, Any] = {
            "labels_path": self.label_file,
            "second_path": self.second_file,
            "columns": None if self.columns is None else [name.strip() for name in self.columns.split(",")],
            "text": self.text,
            "unit": self.unit,
        }
        options = {name: value for name, value in given.items() if value is not None}
        corpus = Corpus.open(spec, format="tagged" if tagged else self.format, **options)
        return corpus if self.take is None else corpus.take(self.take)
