"""`pellucid identifiability`: what attention and hidden states can and cannot tell."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table
from pellucid.errors import PellucidError, listing

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.results import Result

EXAMPLES = """Examples: pellucid identifiability zoo:mlm --corpus grammar:200 -o told ;
pellucid identifiability zoo:lm --corpus dev.conllu --parts tokens --maps identity,linear --json"""
PARTS = ("attention", "tokens", "mixing")


def register(app: typer.Typer) -> None:
    app.command(name="identifiability", epilog=EXAMPLES)(spread(identifiability))


@dataclass(frozen=True)
class Looking:
    """What is looked at."""

    parts: Annotated[str, typer.Option(help="Some of attention, tokens and mixing, with commas.")] = ",".join(PARTS)
    maps: Annotated[
        str, typer.Option(help="How tokens are told from states: some of identity, linear and mlp, with commas.")
    ] = "identity,linear,mlp"
    to: Annotated[int, typer.Option(min=0, help="The layer that states are mapped to; 0 is the input.")] = 0
    sentences: Annotated[int, typer.Option(min=1, help="Sentences whose mixing is looked at: it is slow.")] = 40
    probes: Annotated[
        int | None,
        typer.Option(min=2, help="Random directions per token for mixing (default: exact if it is quick, else 16)."),
    ] = None
    random: Annotated[bool, typer.Option("--random/--no-random", help="Also look at a randomly initialised model.")] = (
        True
    )
    seed: Annotated[int, typer.Option(min=0, help="Of the random model and the random directions.")] = 0


def identifiability(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the page; it must be new or empty.")
    ] = None,
    *,
    looking: Looking,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Tell how far attention is unique, tokens can be told from hidden states, and states mix the input's tokens."""
    from pellucid.report.identifiability import write_identifiability
    from pellucid.saving import check_free

    if out is not None:
        check_free(out)
    parts = _names(looking.parts)
    read, opened = shape.open(corpus), opening.open(model)
    found = {name: _found(name, opened, read, looking) for name in parts}
    page = None
    if out is not None:
        command = shlex.join(["pellucid", *sys.argv[1:]])
        title = f"{opened.name}: what attention and states can tell"
        page = write_identifiability(out, found, title=title, command=command)
    if json:
        print_json({name: result.to_json() for name, result in found.items()})
        return
    for result in found.values():
        _print(result)
    if page is not None:
        console().print(f"Open this file in a browser: {page.resolve()}")


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        raise PellucidError(f"There is no part {unknown[0] if unknown else ''!r}; there are {listing(PARTS)}.")
    return names


def _found(name: str, model: Model, corpus: Corpus, looking: Looking) -> Result:
    from pellucid import identifiability as told

    if name == "attention":
        return told.attention(model, corpus)
    if name == "tokens":
        maps = [part.strip() for part in looking.maps.split(",") if part.strip()]
        return told.tokens(model, corpus, maps=maps, to=looking.to, random=looking.random, seed=looking.seed)
    return told.mixing(
        model,
        corpus,
        sentences=looking.sentences,
        probes=looking.probes,
        random=looking.random,
        seed=looking.seed,
    )


def _print(result: Result) -> None:
    """Means by layer beside chance."""
    assert result.null is not None
    values, null = result.values, result.null
    if "head" in result.axes:
        values, null = values.mean(-1), null.mean(-1)
    rows = [
        (
            str(measure),
            str(layer),
            f"{values[row, column]:.3f}",
            f"{null[row, column]:.3f}",
        )
        for row, measure in enumerate(result.axes["measure"])
        for column, layer in enumerate(result.axes["layer"])
    ]
    right = ["value", "chance"]
    print_table(["measure", "layer", *right], rows, title=result.title, right=right)
    console().print(f"chance: {result.chance}; interval: {result.resampled}")
