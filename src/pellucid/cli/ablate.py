"""`pellucid ablate`: what goes from a prediction when a head, a neuron or a whole layer is taken away."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _options as options
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table

if TYPE_CHECKING:
    from pellucid.attribution import Ablations

EXAMPLES = """\b
Examples:
every head, for what the model predicts
  pellucid ablate zoo:sentiment "The acting was terrible" -o heads
neurons of one layer, replaced by their mean over the text
  pellucid ablate zoo:lm "The keys near the door" --sites neurons.2 --by unit --baseline mean
two heads at tokens 1 and 2 only
  pellucid ablate zoo:lm "The keys near the door" --sites heads.1 --units 0,3 --span 1-3"""


def register(app: typer.Typer) -> None:
    app.command(name="ablate", epilog=EXAMPLES)(spread(ablate))


def ablate(
    model: options.ModelArgument,
    text: Annotated[str, typer.Argument(help="The text whose prediction is looked at.")],
    pair: Annotated[str | None, typer.Option(help="A second sentence, for models of sentence pairs.")] = None,
    decoder: Annotated[str | None, typer.Option(help="What an encoder–decoder has written so far.")] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="What is looked at, as for `pellucid attribute` (default: what the model predicts)."),
    ] = None,
    sites: Annotated[
        list[str] | None, typer.Option(help="Where: heads.* (the default), neurons.2-4, mlp.3 … (may be repeated).")
    ] = None,
    by: Annotated[str, typer.Option(help="What is taken away at a time: a head, a unit or a whole site.")] = "head",
    units: Annotated[str | None, typer.Option(help="Only these heads or units of each site: 0,3,7.")] = None,
    span: Annotated[
        str | None, typer.Option(help="Only at these tokens: 2-5 means tokens 2, 3 and 4 (default: all).")
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(help="What comes instead: zero, mean (over the text), or what pad, mask or text:… brings."),
    ] = "zero",
    memory_limit: Annotated[float | None, typer.Option(min=0.01, help="Gigabytes for passes (default: 1).")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many places to show.")] = 10,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")] = (
        None
    ),
    *,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Take heads, units or whole sites away, one at a time, and see how far the prediction falls."""
    from pellucid.attribution import ablations
    from pellucid.saving import check_free

    if out is not None:
        check_free(out)
    chosen, tokens = _numbers(units), _span(span)
    found = ablations(
        opening.open(model),
        text,
        target or None,
        sites or "*.heads.*",
        by=by,
        units=chosen,
        span=tokens,
        pair=pair,
        decoder=decoder,
        baseline=baseline,
        memory_limit=None if memory_limit is None else round(memory_limit * 1e9),
    )
    found = replace(found, provenance=replace(found.provenance, command=shlex.join(["pellucid", *sys.argv[1:]])))
    if out is not None:
        found.save(out)
    if json:
        print_json(found.to_json())
        return
    _print(found, top)
    if out is not None:
        console().print(f"Saved to {out}; pellucid show {out} prints it.")


def _numbers(given: str | None) -> list[int] | None:
    from pellucid.errors import AttributionError

    if given is None:
        return None
    if not re.fullmatch(r"\d+(,\d+)*", given):
        raise AttributionError(f"The units {given!r} cannot be read; write numbers with commas between: 0,3,7.")
    return [int(part) for part in given.split(",")]


def _span(given: str | None) -> tuple[int, int] | None:
    from pellucid.errors import AttributionError

    if given is None:
        return None
    parts = re.fullmatch(r"(\d+)-(\d+)", given)
    if parts is None:
        raise AttributionError(f"The span {given!r} cannot be read; write START-STOP: 2-5 means tokens 2, 3 and 4.")
    return int(parts[1]), int(parts[2])


def _print(found: Ablations, top: int) -> None:
    import numpy as np

    scores = found.targets.columns["score"]
    for target, score, values in zip(found.axes["target"], scores, found.values, strict=True):
        order = np.argsort(-np.abs(values), kind="stable")[:top]
        rows = [(found.axes["place"][at], f"{values[at]:+.4f}", f"{score - values[at]:.4f}") for at in order.tolist()]
        more = f", the {len(rows)} largest of {len(values):,}" if len(rows) < len(values) else ""
        title = f"effects on {target} (score {score:.4g}){more}"
        print_table(
            ["taken away", "effect", "score without it"], rows, title=title, right=["effect", "score without it"]
        )
