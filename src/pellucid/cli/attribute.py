"""`pellucid attribute`: what every token, layer, head or neuron did for one prediction."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from pellucid.cli import _options as options
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table
from pellucid.errors import AttributionError

if TYPE_CHECKING:
    from pellucid.attribution import Attribution
    from pellucid.results import Array, Coordinate

EXAMPLES = """\b
Examples, one for each kind of target:
what the model predicts, with a page on it
  pellucid attribute zoo:sentiment "The acting was terrible" -o why
two classes
  pellucid attribute zoo:sentiment "It was fun" --target class:positive --target class:negative
a word's class
  pellucid attribute zoo:tagger "The old dog sleeps" --target class:NOUN@3
a token's logit, and the log-probability of the likeliest one
  pellucid attribute zoo:lm "The keys near the door" --target "token: are" --target log
one token rather than another
  pellucid attribute zoo:lm "The keys near the door" --target "contrast: are| is"
a neuron at token 4, and the length of a head's vector there
  pellucid attribute zoo:lm "The keys near the door" --target unit:neurons.3:17@4 --target unit:heads.2:1@4
both ends of an answer
  pellucid attribute ./qa-model "Who came?" --pair "The old farmer came." --target start --target end
every token that the model goes on to write
  pellucid attribute zoo:lm "The keys near the door" --generate 8 -o written
layers, and heads
  pellucid attribute zoo:sentiment "It was fun" --method conductance --sites resid.*
  pellucid attribute zoo:sentiment "It was fun" --method conductance --sites heads.* --by head"""

_GROUPS = ("tokens", "words")
_HALF = 14
_PARTS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_MOST_TOKENS, _MOST_PLACES, _MOST_TABLES, _MOST_TARGETS = 40, 8, 6, 4


def register(app: typer.Typer) -> None:
    app.command(name="attribute", epilog=EXAMPLES)(spread(attribute))


class Paths(TypedDict):
    """Options of every kind of attribution."""

    baseline: str
    rule: str
    steps: int | None
    tolerance: float
    samples: int
    noise: float
    seed: int
    memory_limit: int | None


@dataclass(frozen=True)
class Computing:
    """How attributions are computed."""

    baseline: Annotated[
        str,
        typer.Option(
            help="Where the path starts: zero, pad, mask, mean or text:ANOTHER TEXT of equal length; auto is zero, or "
            "mean where zeros leave the model's stream empty."
        ),
    ] = "auto"
    rule: Annotated[str, typer.Option(help="How a path is divided: gauss, or captum for that library's sums.")] = (
        "gauss"
    )
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of a path (default: doubled until sums are complete).")
    ] = None
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Share of the target's change that sums may miss, without --steps.")
    ] = 0.01
    samples: Annotated[int, typer.Option(min=1, help="Draws, of methods that draw at random.")] = 25
    noise: Annotated[float, typer.Option(min=0.0, help="Size of the noise, as a share of the embeddings' range.")] = 0.1
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn at random.")] = 0
    memory_limit: Annotated[
        float | None, typer.Option(min=0.01, help="Gigabytes for passes (default: by what is free).")
    ] = None

    def of_paths(self) -> Paths:
        """The options that every kind of attribution takes."""
        return {
            "baseline": self.baseline,
            "rule": self.rule,
            "steps": self.steps,
            "tolerance": self.tolerance,
            "samples": self.samples,
            "noise": self.noise,
            "seed": self.seed,
            "memory_limit": None if self.memory_limit is None else round(self.memory_limit * 1e9),
        }


@dataclass(frozen=True)
class Removing:
    """What methods that take something away take away at a time."""

    groups: Annotated[str, typer.Option(help="What is taken away at a time, where something is: tokens or words.")] = (
        "tokens"
    )
    window: Annotated[int, typer.Option(min=1, help="Tokens that occlusion hides at a time.")] = 3
    stride: Annotated[int, typer.Option(min=1, help="Tokens that occlusion's window moves by.")] = 1


def _listed(asked: bool) -> None:
    if asked:
        from pellucid.attribution.methods import ALIASES, METHODS

        short = {name: [alias for alias, full in ALIASES.items() if full == name] for name in METHODS}
        rows = [
            (name, ", ".join(short[name]), "yes" if method.complete else "", method.phrase)
            for name, method in METHODS.items()
        ]
        print_table(["method", "short", "adds up", "what it says"], rows)
        raise typer.Exit


def attribute(
    model: options.ModelArgument,
    text: Annotated[str, typer.Argument(help="The text whose prediction is explained.")],
    pair: Annotated[str | None, typer.Option(help="A second sentence, for models of sentence pairs.")] = None,
    decoder: Annotated[str | None, typer.Option(help="What an encoder–decoder has written so far.")] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="What is explained: predicted, class:LABEL[@POSITION], start, end, token:TOKEN@POSITION, log:…, "
            "contrast:A|B, unit:SITE:UNIT@POSITION (may be repeated; default: what the model predicts)."
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Methods, with commas or repeated; see --methods (default: integrated_gradients)."),
    ] = None,
    methods: Annotated[
        bool, typer.Option("--methods", help="List all methods and exit.", is_eager=True, callback=_listed)
    ] = False,
    sites: Annotated[
        list[str] | None,
        typer.Option(
            help="Where: *.embed (the input, the default), resid.*, heads.3, neurons.2-4 … (may be repeated)."
        ),
    ] = None,
    by: Annotated[str, typer.Option(help="What a place is: a whole site, a head or a unit.")] = "site",
    generate: Annotated[
        int, typer.Option(min=0, help="Let the model write so many tokens, and explain each of them.")
    ] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")] = (
        None
    ),
    *,
    computing: Computing,
    removing: Removing,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Attribute one prediction to tokens, layers, heads or neurons, with the error of every sum."""
    from pellucid.attribution import attribute as explain
    from pellucid.attribution import generation
    from pellucid.attribution.methods import chosen
    from pellucid.saving import check_free

    if out is not None:
        check_free(out)
    names = [name.strip() for item in method or ["integrated_gradients"] for name in item.split(",")]
    chosen(names)  # an unknown one is told before a model is opened
    if removing.groups not in _GROUPS:
        raise AttributionError(f"There are no groups called {removing.groups!r}; give {' or '.join(_GROUPS)}.")
    if generate and (target or pair is not None or decoder is not None):
        raise AttributionError("--generate explains what the model writes; leave out --target, --pair and --decoder.")
    opened = opening.open(model)
    where = sites or "*.embed"
    if generate:
        result: Attribution = generation(
            opened, text, max_new_tokens=generate, method=names, sites=where, by=by, **computing.of_paths()
        )
    else:
        result = explain(
            opened,
            text,
            target or None,
            names,
            where,
            by=by,
            pair=pair,
            decoder=decoder,
            groups=removing.groups,
            window=removing.window,
            stride=removing.stride,
            **computing.of_paths(),
        )
    page = None
    if out is not None:
        from pellucid.report.attribution import write_attribution

        page = write_attribution(out, result, command=shlex.join(["pellucid", *sys.argv[1:]]))
    if json:
        print_json(result.to_json())
        return
    _print(result)
    if page is not None:
        console().print(f"Open this file in a browser: {page.resolve()}")


def _print(result: Attribution) -> None:
    """Tokens with bars for every method and target, the strongest places, and how it was computed."""
    from pellucid.views.attribution_parts import origin

    pairs = [(measure, target) for measure in result.axes["measure"] for target in result.axes["target"]]
    if len(result.axes["target"]) > _MOST_TARGETS:
        for measure in result.axes["measure"]:
            _print_targets(result, measure)
        pairs = []
    for measure, target in pairs[:_MOST_TABLES]:
        _print_tokens(result, measure, target)
        if len(result.axes["place"]) > 1:
            _print_places(result, measure, target)
    screen = console()
    if len(pairs) > _MOST_TABLES:
        screen.print(f"The first {_MOST_TABLES} of {len(pairs)} tables; --json prints all, -o writes all.")
    screen.print(origin(result))


def _print_tokens(result: Attribution, measure: Coordinate, target: Coordinate) -> None:
    """A row for every token, at the only or the strongest place."""
    import numpy as np

    from pellucid.views.attribution_parts import shown_tokens, signed, strongest

    values = result.values[result.place("measure", measure), result.place("target", target)]  # [place, token]
    place = int(np.abs(values).sum(axis=1).argmax())
    row = result.place("target", target)
    columns = result.targets.columns
    scores = f"score {columns['score'][row]:.4g}, at the baseline {columns['baseline'][row]:.4g}"
    where = result.axes["place"][place]
    told = f"{str(measure).replace('_', ' ')} of {target} ({scores}) at {where}"
    kept = strongest(values[place], _MOST_TOKENS)
    if len(kept) < values.shape[1]:
        told += f", the {len(kept)} strongest of {values.shape[1]} tokens"
    texts = shown_tokens(result)["text"]
    sign, head = ("+", f"{'against ':>{_HALF}}│ for") if signed(result, measure) else ("", "size")
    drawn = bars(values[place, kept], both=bool(sign))
    widths = _widths(result, measure, target, place)
    rows = [
        (at, texts[at], f"{values[place, at]:{sign}.4f}", *([f"± {widths[at]:.4f}"] if widths is not None else []), bar)
        for at, bar in zip(kept, drawn, strict=True)
    ]
    heads = ["", "token", "attribution", *(["95%"] if widths is not None else []), head]
    print_table(heads, rows, title=told, right=["", "attribution", "95%"])


def _widths(result: Attribution, measure: Coordinate, target: Coordinate, place: int) -> Array | None:
    """Half the width of each token's interval; None where the method draws nothing at random."""
    if result.low is None or result.high is None:
        return None
    where = result.place("measure", measure), result.place("target", target), place
    widths = (result.high[where] - result.low[where]) / 2
    return widths if widths.any() else None


def _print_targets(result: Attribution, measure: Coordinate) -> None:
    """A row for every target of many: its score, and the tokens that did most for and against it."""
    from pellucid.report.attribution import largest, strongest_places

    columns = result.targets.columns
    rows: list[tuple[str, ...]] = []
    for at, target in enumerate(result.axes["target"]):
        place = strongest_places(result, measure, target, 1)[0][0]
        scores = f"{columns['score'][at]:.4g}", f"{columns['baseline'][at]:.4g}"
        rows.append((str(target), *scores, place, largest(result, measure, place, 4, target=at)))
    heads = ["target", "score", "at the baseline", "place", "strongest tokens"]
    print_table(heads, rows, title=str(measure).replace("_", " "), right=heads[1:3])


def _print_places(result: Attribution, measure: Coordinate, target: Coordinate) -> None:
    from pellucid.report.attribution import strongest_places

    found = strongest_places(result, measure, target, _MOST_PLACES)
    rows = [(place, f"{total:+.4f}", f"{size:.4f}", token) for place, total, size, token in found]
    more = f" (the strongest of {len(result.axes['place']):,})" if len(found) < len(result.axes["place"]) else ""
    print_table(
        ["place", "sum", "sum of sizes", "strongest token"],
        rows,
        title=f"places{more}",
        right=["sum", "sum of sizes"],
    )


def bars(values: Array, *, both: bool = True) -> list[str]:
    """Numbers as bars of characters from a common zero: to the left where negative, to the right where positive.

    Without `both` there is no room to the left.
    """
    import numpy as np

    most = float(np.abs(values).max(initial=0.0)) or 1.0
    drawn: list[str] = []
    for value in values.tolist():
        length = _HALF * abs(value) / most
        if value < 0:
            halves = round(2 * length)
            left = f"{'▐' * (halves % 2)}{'█' * (halves // 2)}" or "▕"
            drawn.append(f"{left:>{_HALF}}│")
        else:
            eighths = round(8 * length)
            right = f"{'█' * (eighths // 8)}{_PARTS[eighths % 8]}" or ("▏" if value else "")
            drawn.append(f"{'':>{_HALF}}│{right}" if both else right)
    return drawn
