"""`pellucid flow`: which tokens every token draws on, by several methods, and whether the methods agree."""

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
from pellucid.errors import PellucidError

if TYPE_CHECKING:
    from pellucid.heads import InformationFlow
    from pellucid.identifiability import FlowAgreement
    from pellucid.model import Model
    from pellucid.results import Array

EXAMPLES = """\b
Examples:
rollout and norms of a sentence, with a page on it
  pellucid flow zoo:mlm "The old ship was built in the town" -o flow
the last token of a text, by four methods
  pellucid flow zoo:lm "The keys near the door" --method rollout,flow,attribution,hidden --position -1
what attention did for one word rather than another
  pellucid flow zoo:lm "The keys near the door" --method attribution --target "contrast: are| is"
whether maps of attention rank tokens as hidden states react to them
  pellucid flow zoo:mlm --corpus grammar:40 --sentences 20 -o agree"""
_ROWS = 24


def register(app: typer.Typer) -> None:
    app.command(name="flow", epilog=EXAMPLES)(spread(flow))


@dataclass(frozen=True)
class Following:
    """How information is followed."""

    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Some of attention, rollout, flow, norms, norms_residual, norms_layernorm, attribution and hidden, "
            "with commas or repeated (default: attention, rollout, norms_layernorm; with --corpus all but hidden)."
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(help="What attribution explains, as in pellucid attribute (default: what the model predicts)."),
    ] = None
    residual: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The residual stream's share of a layer, in rollout and flow.")
    ] = 0.5
    steps: Annotated[int, typer.Option(min=1, help="Steps in which attribution scales weights up from zero.")] = 20
    probes: options.Probes = None
    seed: Annotated[int, typer.Option(min=0, help="Of the random model, permutations and directions.")] = 0

    def names(self) -> list[str]:
        """The methods asked for; none where it is left open."""
        return [name.strip() for item in self.method or [] for name in item.split(",") if name.strip()]


@dataclass(frozen=True)
class Reading:
    """Which text of a model, and where in it."""

    position: Annotated[
        list[int] | None,
        typer.Option(help="A token that is looked at, from 0, or from the end with a minus (may be repeated)."),
    ] = None
    pair: Annotated[str | None, typer.Option(help="A second sentence, for models of sentence pairs.")] = None
    decoder: Annotated[str | None, typer.Option(help="What an encoder–decoder has written so far.")] = None
    stack: Annotated[str | None, typer.Option(help="Of an encoder–decoder: encoder (default) or decoder.")] = None
    heads: Annotated[bool, typer.Option("--heads", help="Keep the maps of single heads in the result, too.")] = False


@dataclass(frozen=True)
class Comparing:
    """How methods are compared over a corpus."""

    corpus: Annotated[
        str | None, typer.Option("--corpus", metavar="FILE", help="Compare the methods over this text instead.")
    ] = None
    sentences: Annotated[int, typer.Option(min=1, help="Sentences that are compared: it is slow.")] = 40
    random: Annotated[bool, typer.Option("--random/--no-random", help="Also look at a randomly initialised model.")] = (
        True
    )


def flow(
    model: options.ModelArgument,
    words: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text that information is followed through.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")] = (
        None
    ),
    *,
    following: Following,
    reading: Reading,
    comparing: Comparing,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Follow information through one text, or compare the methods that do so over a corpus."""
    from pellucid.report.flow import write_flow
    from pellucid.saving import check_free

    if (words is None) == (comparing.corpus is None):
        raise PellucidError("Give one text to follow, or --corpus FILE to compare the methods over it, not both.")
    if out is not None:
        check_free(out)
    _check(following, compared=comparing.corpus is not None)
    result: InformationFlow | FlowAgreement
    if words is not None:
        result = _followed(opening.open(model), words, following, reading)
    else:
        result = _compared(opening.open(model), following, comparing, shape)
    page = None
    if out is not None:
        page = write_flow(out, result, command=shlex.join(["pellucid", *sys.argv[1:]]))
    if json:
        print_json(result.to_json())
        return
    _print(result)
    if page is not None:
        console().print(f"Open this file in a browser: {page.resolve()}")


def _check(following: Following, *, compared: bool) -> None:
    """An unknown method or number of directions is told before a model is opened."""
    from pellucid.heads.flow.following import HIDDEN, chosen

    names = following.names()
    known = [name for name in names if name != HIDDEN]
    if known:
        chosen(known)
    options.directions(following.probes)
    if compared and HIDDEN in names:
        raise PellucidError("With --corpus, hidden is what the methods are compared with; leave it out of --method.")


def _followed(model: Model, text: str, following: Following, reading: Reading) -> InformationFlow:
    from pellucid.heads import information_flow
    from pellucid.heads.flow.following import HIDDEN, SHOWN
    from pellucid.identifiability import hidden_flow

    names = following.names() or SHOWN
    own = [name for name in names if name != HIDDEN]
    if HIDDEN in names and reading.stack == "decoder":
        raise PellucidError(
            "Hidden token attribution follows the stack that reads the text; leave --stack decoder out."
        )
    positions = reading.position or None
    parts: list[InformationFlow] = []
    if own:
        parts.append(
            information_flow(
                model,
                text,
                own,
                positions=positions,
                target=following.target,
                residual=following.residual,
                steps=following.steps,
                heads=reading.heads,
                pair=reading.pair,
                decoder=reading.decoder,
                stack=reading.stack,
            )
        )
        positions = parts[0].provenance.arguments["positions"]
    if HIDDEN in names:
        parts.append(
            hidden_flow(
                model,
                text,
                positions=positions,
                probes=options.directions(following.probes),
                seed=following.seed,
                pair=reading.pair,
                decoder=reading.decoder,
            )
        )
    return parts[0] if len(parts) == 1 else parts[0].joined(parts[1])


def _compared(model: Model, following: Following, comparing: Comparing, shape: corpora.CorpusShape) -> FlowAgreement:
    from pellucid.identifiability import flow_agreement

    assert comparing.corpus is not None
    return flow_agreement(
        model,
        shape.open(comparing.corpus),
        following.names() or None,
        sentences=comparing.sentences,
        target=following.target,
        residual=following.residual,
        steps=following.steps,
        probes=options.directions(following.probes),
        random=comparing.random,
        seed=following.seed,
    )


def _print(result: InformationFlow | FlowAgreement) -> None:
    if result.kind == "heads.information_flow":
        _print_flow(result)  # pyright: ignore[reportArgumentType]
    else:
        _print_agreement(result)  # pyright: ignore[reportArgumentType]


def _print_flow(result: InformationFlow) -> None:
    """The strongest sources of every token after the last layer, or of the only token after every layer."""
    from pellucid.report.flow import checks, strongest

    layers, tokens = result.axes["layer"], result.axes["token"]
    last = len(layers) - 1
    places = (
        [(layer, 0) for layer in range(len(layers))] if len(tokens) == 1 else [(last, at) for at in range(len(tokens))]
    )
    for row, method in enumerate(result.axes["measure"]):
        rows = [
            (str(layers[layer]), str(tokens[at]), strongest(result, row, layer, at)) for layer, at in places[:_ROWS]
        ]
        title = f"{method}: {result.measures[str(method)]}"
        print_table(["layer", "token", "strongest sources"], rows, title=title)
    screen = console()
    if len(places) > _ROWS:
        screen.print(f"The first {_ROWS} of {len(places)} rows; --json prints all, -o writes all.")
    for line in checks(result):
        screen.print(line)


def _print_agreement(result: FlowAgreement) -> None:
    """Correlations by layer with their intervals, beside baselines, chance and the ceiling."""
    from pellucid.report.flow import agreement_lines

    layers = [f"layer {layer}" for layer in result.axes["layer"]]
    table, spread = result.table("baselines"), result.table("chance").columns["sd"]
    rows = [
        *(
            _row(str(name), result.values[row], _at(result.low, row), _at(result.high, row))
            for row, name in enumerate(result.axes["measure"])
        ),
        *(
            _row(str(name), table.columns["value"][row], *(_at(table.columns.get(end), row) for end in ("low", "high")))
            for row, name in enumerate(table.axes["baseline"])
        ),
        ("chance", *(f"0 ± {value:.2f}" for value in 2 * spread.max(0))),
        ("ceiling", *(f"{value:.2f}" for value in result.table("ceiling").columns["ceiling"])),
    ]
    print_table(["method", *layers], rows, title="Rank correlation with hidden token attribution", right=layers)
    screen = console()
    screen.print(f"chance: {result.chance}, ± two standard deviations; interval: {result.resampled}")
    for line in agreement_lines(result):
        screen.print(line)


def _at(ends: Array | None, row: int) -> Array | None:
    return None if ends is None else ends[row]


def _row(name: str, values: Array, low: Array | None, high: Array | None) -> tuple[str, ...]:
    """A method's correlations by layer, each with its interval where there is one."""
    if low is None or high is None:
        return name, *(f"{value:+.2f}" for value in values)
    return name, *(f"{value:+.2f} ({a:.2f} to {b:.2f})" for value, a, b in zip(values, low, high, strict=True))
