"""`pellucid corpus`: what a corpus holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from pellucid.cli import _corpus as options
from pellucid.cli._groups import spread
from pellucid.cli._options import Json
from pellucid.cli._print import print_json, print_table

if TYPE_CHECKING:
    from pellucid.corpus import CorpusInfo

EXAMPLES = """Examples: pellucid corpus info treebank.conllu ; pellucid corpus info reviews.tsv --columns text,label ;
pellucid corpus info x.in --label-file x.label --json ; pellucid corpus info grammar:500"""

_LISTED = 20
"""Values of a label that are printed."""


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Look at corpora.", no_args_is_help=True, rich_markup_mode=None)
    group.callback()(_group)
    group.command(name="info", epilog=EXAMPLES)(spread(info))
    app.add_typer(group, name="corpus")


def _group() -> None:
    """Look at corpora."""


def info(
    corpus: options.CorpusArgument,
    *,
    shape: options.CorpusShape,
    json: Json = False,
) -> None:
    """Count the sentences, documents, words and labels of a corpus."""
    opened = shape.open(corpus)
    found = opened.info()
    if json:
        print_json({**asdict(found), "fingerprint": opened.fingerprint})
        return
    _print(found)


def _print(found: CorpusInfo) -> None:
    rows = [
        ("sentences", f"{found.sentences:,}"),
        ("documents", f"{found.documents:,} ({found.unit})"),
        ("words", f"{found.words:,}"),
        ("distinct words", f"{found.distinct_words:,}"),
        ("characters", f"{found.characters:,}"),
        ("longest sentence", f"{found.longest[0]} ({found.longest[1]} words)"),
        ("pairs", "yes" if found.pairs else "no"),
    ]
    print_table(["what", "count"], rows, title=found.name)
    print_table(["frequent word", "count"], found.frequent, right=["count"])
    if found.labels:
        labels = [
            (
                label.name,
                label.of,
                f"{label.labelled:,}",
                label.distinct,
                ", ".join(f"{value} {count}" for value, count in label.values[:_LISTED])
                + (" …" if label.distinct > _LISTED else ""),
            )
            for label in found.labels
        ]
        print_table(["label", "of", "labelled", "values", "most frequent"], labels, right=["labelled", "values"])
