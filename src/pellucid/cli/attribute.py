"""`pellucid attribute`: what every token, layer, head or neuron did for one prediction."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict

import typer

from pellucid.cli import _options as options
from pellucid.cli._attribution import print_attribution
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table
from pellucid.errors import AttributionError

if TYPE_CHECKING:
    from pellucid.attribution import Attribution
    from pellucid.model import Model

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
every token of a text after another, as log-probabilities
  pellucid attribute zoo:lm "The keys near the door" --continuation " are red" --log
layers, and heads
  pellucid attribute zoo:sentiment "It was fun" --method conductance --sites resid.*
  pellucid attribute zoo:sentiment "It was fun" --method conductance --sites heads.* --by head"""

_GROUPS = ("tokens", "words")


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
        float | None, typer.Option(min=0.01, help="Gigabytes for passes (default: 1.6, on a graphics card 8.6).")
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

    def check(self, *, written: bool) -> None:
        """Raises where there are no such groups, or none in written text."""
        if self.groups not in _GROUPS:
            raise AttributionError(f"There are no groups called {self.groups!r}; give {' or '.join(_GROUPS)}.")
        if written and self.groups == "words":
            raise AttributionError(
                "--groups words takes away words of a text that is given whole; of written text, leave it out."
            )


class Places(NamedTuple):
    """Methods, sites, and what a place of a site is."""

    methods: list[str]
    sites: list[str]
    by: str


@dataclass(frozen=True)
class Writing:
    """Text that comes after the one given, to be explained token by token."""

    generate: Annotated[
        int, typer.Option(min=0, help="Let the model write so many tokens, and explain each of them.")
    ] = 0
    continuation: Annotated[
        str | None,
        typer.Option(help="Explain each token of this text after the one given, with the space that it needs."),
    ] = None
    log: Annotated[bool, typer.Option("--log", help="Of written text, explain log-probabilities, not logits.")] = False

    @property
    def asked(self) -> bool:
        """Whether written text is what is explained."""
        return bool(self.generate) or self.continuation is not None

    def check(self, *, alone: bool) -> None:
        """Raises where the options, or others that were given, do not go together."""
        if self.generate and self.continuation is not None:
            raise AttributionError("--generate and --continuation both say what is written; give one of them.")
        if self.asked and not alone:
            raise AttributionError(
                "--generate and --continuation explain written text; leave out --target, --pair and --decoder."
            )
        if self.log and not self.asked:
            raise AttributionError("--log is for --generate and --continuation; for one token write --target log.")

    def explain(
        self, model: Model, prompt: str, places: Places, computing: Computing, removing: Removing
    ) -> Attribution:
        """What made every written token."""
        from pellucid.attribution import generation

        return generation(
            model,
            prompt,
            max_new_tokens=self.generate or 1,
            text=self.continuation,
            method=places.methods,
            sites=places.sites,
            log=self.log,
            by=places.by,
            groups=removing.groups,
            window=removing.window,
            stride=removing.stride,
            **computing.of_paths(),
        )


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
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")] = (
        None
    ),
    *,
    writing: Writing,
    computing: Computing,
    removing: Removing,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Attribute one prediction to tokens, layers, heads or neurons, with the error of every sum."""
    from pellucid.attribution.methods import chosen
    from pellucid.saving import check_free

    if out is not None:
        check_free(out)
    names = [name.strip() for item in method or ["integrated_gradients"] for name in item.split(",")]
    chosen(names)  # an unknown one is told before a model is opened
    removing.check(written=writing.asked)
    writing.check(alone=not target and pair is None and decoder is None)
    places = Places(names, sites or ["*.embed"], by)
    if writing.asked:
        result: Attribution = writing.explain(opening.open(model), text, places, computing, removing)
    else:
        from pellucid.attribution import attribute as explain

        result = explain(
            opening.open(model),
            text,
            target or None,
            names,
            places.sites,
            by=by,
            pair=pair,
            decoder=decoder,
            groups=removing.groups,
            window=removing.window,
            stride=removing.stride,
            **computing.of_paths(),
        )
    _show(result, out, json=json)


def _show(result: Attribution, out: Path | None, *, json: bool) -> None:
    """The result in a folder where one is asked for, and on the screen."""
    page = None
    if out is not None:
        from pellucid.report.attribution import write_attribution

        page = write_attribution(out, result, command=shlex.join(["pellucid", *sys.argv[1:]]))
    if json:
        print_json(result.to_json())
        return
    print_attribution(result)
    if page is not None:
        console().print(f"Open this file in a browser: {page.resolve()}")
