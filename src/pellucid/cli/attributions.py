"""`pellucid attributions`: what a model's predictions draw on, over all sentences of a corpus."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table
from pellucid.cli._result import print_result
from pellucid.cli.attribute import Computing

if TYPE_CHECKING:
    from pellucid.attribution import CorpusAttribution

EXAMPLES = """\b
Examples:
which parts of speech a classifier draws on
  pellucid attributions zoo:sentiment --corpus grammar:100 --group upos -o drawn
which layers and words, by conductance
  pellucid attributions zoo:lm --corpus notes.txt --group word --method conductance --sites resid.* -o drawn"""

_ENDS = 8
"""Groups at either end of a table."""


def register(app: typer.Typer) -> None:
    app.command(name="attributions", epilog=EXAMPLES)(spread(attributions))


def attributions(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")],
    group: Annotated[
        str, typer.Option(help="What is told apart: token, word, position, special, or a label such as upos.")
    ] = "token",
    most: Annotated[int, typer.Option(min=1, help="How many groups, the most frequent first.")] = 40,
    target: Annotated[
        list[str] | None,
        typer.Option(help="What is explained, as for pellucid attribute (default: what the model predicts)."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Methods, with commas or repeated (default: integrated_gradients). pellucid attribute --methods lists "
            "them."
        ),
    ] = None,
    sites: Annotated[
        list[str] | None, typer.Option(help="Where: the input (the default), resid.*, heads.3 … (may be repeated).")
    ] = None,
    by: Annotated[str, typer.Option(help="What a place is: a whole site, a head or a unit.")] = "site",
    special: Annotated[bool, typer.Option("--special", help="Count special tokens too.")] = False,
    side: Annotated[str, typer.Option(help="The text of an encoder–decoder that is looked at: source or target.")] = (
        "source"
    ),
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut sentences that are too long for the model.")
    ] = False,
    window: Annotated[int, typer.Option(min=1, help="Tokens that occlusion hides at a time.")] = 3,
    stride: Annotated[int, typer.Option(min=1, help="Tokens that occlusion's window moves by.")] = 1,
    *,
    computing: Computing,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Add attributions up over a corpus: which words, parts of speech or layers predictions draw on, beside chance."""
    from pellucid.attribution import over_corpus
    from pellucid.attribution.methods import chosen
    from pellucid.saving import check_free

    check_free(out)
    names = [name.strip() for item in method or ["integrated_gradients"] for name in item.split(",")]
    chosen(names)  # an unknown one is told before a model is opened
    read, opened = shape.open(corpus), opening.open(model)
    found = over_corpus(
        opened,
        read,
        target or None,
        names,
        sites,
        by=by,
        group=group,
        most=most,
        special=special,
        side=side,
        long="truncate" if truncate else "refuse",
        window=window,
        stride=stride,
        **computing.of_paths(),
    )
    found = replace(found, provenance=replace(found.provenance, command=shlex.join(["pellucid", *sys.argv[1:]])))
    _show(found, out, json=json)


def _show(found: CorpusAttribution, out: Path, *, json: bool) -> None:
    """The result in its folder, and on the screen."""
    _write(found, out)
    if json:
        print_json(found.to_json())
        return
    _print_groups(found)
    print_result(found)
    console().print(f"Saved to {out} with its figure and table; pellucid show {out} prints it again.")


def _print_groups(found: CorpusAttribution) -> None:
    """For every method and target, the groups that get most and least beside chance, at the strongest place."""
    import numpy as np

    share, signed, lift = (found.measure(name) for name in ("share", "signed", "lift"))
    assert found.null is not None
    chance = found.null[found.place("measure", "share")]
    tokens = found.table("groups").columns["tokens"]
    held = found.table("places").columns["share"]
    heads = ["group", "tokens", "share", "chance", "times chance", "signed share"]
    for at in np.ndindex(held.shape[:2]):
        cell = (*at, int(held[at].argmax()))
        order = np.argsort(-lift[cell], kind="stable")
        kept = order if len(order) <= 2 * _ENDS else np.concatenate([order[:_ENDS], order[-_ENDS:]])
        rows = [
            (
                str(found.axes["group"][group]),
                f"{tokens[group]:,}",
                *(f"{part[cell][group]:.3f}" for part in (share, chance)),
                f"{lift[cell][group]:.2f}",
                f"{signed[cell][group]:+.3f}",
            )
            for group in kept.tolist()
        ]
        named = [found.axes[axis][place] for axis, place in zip(("method", "target", "place"), cell, strict=True)]
        more = f", the {_ENDS} with most and with least of {len(order)}" if len(kept) < len(order) else ""
        print_table(heads, rows, title=f"{named[0]} of {named[1]} at {named[2]}{more}", right=heads[1:])


def _write(found: CorpusAttribution, out: Path) -> None:
    """The result, its figure and its table in one new folder, whole or not at all."""
    from pellucid.saving import whole_folder
    from pellucid.views import figure_bytes

    with whole_folder(out) as work:
        found.save(work)
        found.save_table(work / "attributions.csv")
        figure = found.plot()
        for kind in ("svg", "pdf", "png"):
            (work / f"attributions.{kind}").write_bytes(figure_bytes(figure, kind))
        (work / "command.txt").write_text(f"{found.provenance.command}\n", encoding="utf-8", errors="replace")
