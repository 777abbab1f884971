"""`pellucid view`: interactive pictures of one text, as an HTML file, a figure or a page on this machine."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _options as options
from pellucid.cli._groups import spread
from pellucid.cli._print import console
from pellucid.errors import PellucidError, TextError

if TYPE_CHECKING:
    from pellucid.views import View

EXAMPLES = """Examples: pellucid view heads zoo:lm "The city of London" -o heads.html ;
pellucid view compare ./base ./tuned "The keys are on the table" ;
pellucid view model ./my-model --file story.txt --serve"""

TextArgument = Annotated[str | None, typer.Argument(help="The text to look at (or --file).")]


def register(app: typer.Typer) -> None:
    views = typer.Typer(
        name="view",
        help="Look at a text inside a model: attention heads, neurons, surprise, and two models side by side.",
        epilog=EXAMPLES,
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for command in (heads, model, neurons, text, compare):
        views.command(name=command.__name__)(spread(command))
    app.add_typer(views)


@dataclass(frozen=True)
class Placing:
    """Where a view goes, and how it opens."""

    file: Annotated[Path | None, typer.Option(help="Read the text from this UTF-8 file.")] = None
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write this file: .html, .svg, .png or .pdf (default: NAME.html)."),
    ] = None
    serve: Annotated[
        bool, typer.Option("--serve", help="Show it in a browser on this machine, with the model behind it.")
    ] = False
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of --serve; 0 takes a free one.")] = 0
    title: Annotated[str | None, typer.Option(help="A title for the page.")] = None
    state: Annotated[
        str | None, typer.Option(help='How it opens, as JSON: {"layer": 3, "unit": "words"}.', metavar="JSON")
    ] = None

    def check(self) -> None:
        """Raises for a file that could not be written, before anything runs."""
        from pellucid.views.interactive.view import check_place

        if self.out is not None:
            check_place(self.out)

    def opened(self) -> dict[str, Any] | None:
        """The state asked for."""
        if self.state is None:
            return None
        try:
            found = json.loads(self.state)
        except ValueError as error:
            raise PellucidError(f'--state is not JSON ({error}); write it as {{"layer": 3}}.') from None
        if not isinstance(found, dict):
            raise PellucidError('--state is one JSON object, such as {"layer": 3}.')
        return found  # pyright: ignore[reportUnknownVariableType]

    def read(self, text: str | None) -> str:
        """The text of the argument or of the file."""
        if (text is None) == (self.file is None):
            raise TextError("Give the text either as an argument or with --file, one of the two.")
        if text is not None:
            return text
        assert self.file is not None
        try:
            return self.file.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise TextError(f"{self.file}: byte {error.start + 1} is not UTF-8; save the file as UTF-8.") from error
        except OSError as error:
            raise TextError(f"{self.file} cannot be read ({error.strerror}).") from error

    def put(self, view: View, name: str) -> None:
        """Writes the view, or serves it until Ctrl-C."""
        from pellucid.views.interactive.statistics import SINKS

        if self.out is not None or not self.serve:
            place = view.save(self.out or Path(f"{name}.html"))
            console().print(f"The view is in {place} ({place.stat().st_size / 1e6:.1f} MB)")
        for note in view.notes:
            if note != SINKS:  # which explains a word of the page
                console(stderr=True).print(f"Note: {note}")
        if self.serve:
            with view.serve(port=self.port) as server:
                console().print(f"The view is at {server.url} (end with Ctrl-C)")
                try:
                    server.wait()
                except KeyboardInterrupt:
                    console().print("Closed.")


@dataclass(frozen=True)
class Attention:
    """What of a text's attention is shown."""

    pair: Annotated[str | None, typer.Option(help="A second sentence, for models of sentence pairs.")] = None
    target: Annotated[str | None, typer.Option(help="What the decoder of an encoder–decoder model reads.")] = None
    layers: Annotated[str | None, typer.Option(help="Layers to show: 0-3,7 (default: all).")] = None
    quality: Annotated[float, typer.Option(help="Share of each token's attention to keep, above 0 and at most 1.")] = (
        1.0
    )

    def chosen(self) -> list[int] | None:
        """Numbers of the layers asked for."""
        if self.layers is None:
            return None
        found: list[int] = []
        for part in self.layers.split(","):
            span = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
            if span is None:
                raise PellucidError(f"--layers {self.layers!r} names no layers; write numbers and ranges, as in 0-3,7.")
            found.extend(range(int(span[1]), int(span[2] or span[1]) + 1))
        return found


Weights = Annotated[str, typer.Option(help="raw, or effective: without the part that has no effect on the output.")]
Generate = Annotated[int, typer.Option(min=0, help="Continue the text by so many tokens (greedily).")]


def heads(
    model: options.ModelArgument,
    text: TextArgument = None,
    *,
    attention: Attention,
    generate: Generate = 0,
    weights: Weights = "raw",
    placing: Placing,
    opening: options.Opening,
) -> None:
    """Where chosen attention heads look, token by token."""
    _attention("heads", model, text, attention, generate, placing, opening, weights=weights)


def model(
    model: options.ModelArgument,
    text: TextArgument = None,
    *,
    attention: Attention,
    generate: Generate = 0,
    weights: Weights = "raw",
    placing: Placing,
    opening: options.Opening,
) -> None:
    """All attention heads of all layers at once."""
    _attention("model", model, text, attention, generate, placing, opening, weights=weights)


def neurons(
    model: options.ModelArgument,
    text: TextArgument = None,
    *,
    attention: Attention,
    generate: Generate = 0,
    placing: Placing,
    opening: options.Opening,
) -> None:
    """How the queries and keys of a head make its attention."""
    _attention("neurons", model, text, attention, generate, placing, opening)


def _attention(
    name: str,
    model: str,
    text: str | None,
    attention: Attention,
    generate: int,
    placing: Placing,
    opening: options.Opening,
    weights: str | None = None,
) -> None:
    from pellucid import views

    placing.check()
    words, layers, state = placing.read(text), attention.chosen(), placing.opened()
    make = {"heads": views.head_view, "model": views.model_view}.get(name)
    chosen = views.neuron_view if make is None or weights is None else partial(make, weights=weights)
    view = chosen(
        opening.open(model),
        words,
        pair=attention.pair,
        target=attention.target,
        generate=generate,
        layers=layers,
        quality=attention.quality,
        title=placing.title,
        state=state,
    )
    placing.put(view, name)


def text(
    model: options.ModelArgument,
    text: TextArgument = None,
    neuron: Annotated[
        list[str] | None, typer.Option(help="A unit to colour the text by, such as neurons.3:17 (may be repeated).")
    ] = None,
    surprise: Annotated[
        bool | None, typer.Option("--surprise/--no-surprise", help="How little each token was expected.")
    ] = None,
    lens: Annotated[bool | None, typer.Option("--lens/--no-lens", help="What each layer would predict.")] = None,
    norms: Annotated[bool, typer.Option("--norms/--no-norms", help="Length of each token's vector by layer.")] = True,
    *,
    placing: Placing,
    opening: options.Opening,
) -> None:
    """A text coloured by neurons and surprise, with what every layer would predict."""
    from pellucid.views import text_view

    placing.check()
    words, state = placing.read(text), placing.opened()
    view = text_view(
        opening.open(model),
        words,
        neurons=neuron or (),
        surprise=surprise,
        lens=lens,
        norms=norms,
        title=placing.title,
        state=state,
    )
    placing.put(view, "text")


def compare(
    model: options.ModelArgument,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The model to compare it with.")],
    text: TextArgument = None,
    *,
    attention: Attention,
    placing: Placing,
    opening: options.Opening,
) -> None:
    """Two models on the same text, side by side."""
    from pellucid.views import compare_view

    placing.check()
    words, layers, state = placing.read(text), attention.chosen(), placing.opened()
    view = compare_view(
        opening.open(model),
        opening.open(other),
        words,
        pair=attention.pair,
        target=attention.target,
        layers=layers,
        quality=attention.quality,
        title=placing.title,
        state=state,
    )
    placing.put(view, "compare")
