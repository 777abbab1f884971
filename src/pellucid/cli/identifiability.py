"""`pellucid identifiability`: what attention and hidden states can and cannot tell."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
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
    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus
    from pellucid.identifiability import SecondAttention
    from pellucid.model import Model
    from pellucid.results import Result

EXAMPLES = """Examples: pellucid identifiability zoo:mlm --corpus grammar:200 -o told ;
pellucid identifiability zoo:lm --on "The old ship was built in the town" --at 3.2 -o second ;
pellucid identifiability zoo:lm --corpus dev.conllu --parts tokens --maps identity,linear --json"""
PARTS = ("attention", "keys", "functions", "second", "tokens", "mixing")


def register(app: typer.Typer) -> None:
    app.command(name="identifiability", epilog=EXAMPLES)(spread(identifiability))


@dataclass(frozen=True)
class Looking:
    """What is looked at."""

    parts: Annotated[
        str | None,
        typer.Option(
            help="Some of attention, keys, functions, second, tokens and mixing, with commas (default: all that the "
            "model can tell; with --on alone: second)."
        ),
    ] = None
    on: Annotated[str | None, typer.Option(metavar="TEXT", help="The text on which a second attention is shown.")] = (
        None
    )
    at: Annotated[str | None, typer.Option(help="The head of which it is, as in 3.2 (default: the most open).")] = None
    maps: Annotated[
        str, typer.Option(help="How tokens are told from states: some of identity, linear and mlp, with commas.")
    ] = "identity,linear,mlp"
    to: Annotated[int, typer.Option(min=0, help="The layer that states are mapped to; 0 is the input.")] = 0
    layers: Annotated[
        str | None,
        typer.Option(help="Layers from whose states tokens are told, with commas, as in 1,4,8 or 1-6 (default: all)."),
    ] = None
    long: Annotated[
        str,
        typer.Option(
            help="Texts over the model's limit, for attention and functions: truncate, refuse or window (tokens and "
            "keys cut them, mixing leaves them out)."
        ),
    ] = "truncate"
    sentences: Annotated[
        int, typer.Option(min=1, help="Sentences whose mixing and keys are looked at: both are slow.")
    ] = 40
    probes: options.Probes = None
    random: Annotated[bool, typer.Option("--random/--no-random", help="Also look at a randomly initialised model.")] = (
        True
    )
    seed: Annotated[int, typer.Option(min=0, help="Of the random model and the random directions.")] = 0

    def named(self, part: str) -> bool:
        """Whether a part was asked for: by its name, or by an option that is of no use without it."""
        if self.parts is not None:
            return True
        plain = Looking()
        own = {
            "second": (self.on, self.at) != (None, None),
            "tokens": (self.maps, self.to, self.layers) != (plain.maps, plain.to, None),
            "mixing": self.probes is not None,
        }
        return own.get(part, False)


def identifiability(
    model: options.ModelArgument,
    corpus: Annotated[
        str | None, typer.Option("--corpus", metavar="FILE", help="A file, or grammar[:COUNT[:SEED]]; not with --on.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the page; it must be new or empty.")
    ] = None,
    *,
    looking: Looking,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Tell how far attention is unique, tokens can be told from hidden states, and states mix the input's tokens.

    Without --corpus, --on shows one head's attention on a text beside other attention with the same output.
    """
    from pellucid.report.identifiability import write_identifiability
    from pellucid.saving import check_free

    if out is not None:
        check_free(out)
    parts = _names(looking, corpus)
    read = None if corpus is None else shape.open(corpus)
    asking = _Asking(opening.open(model), read, looking)
    found, skipped = asking.all(parts)
    page = None
    if out is not None:
        command = shlex.join(["pellucid", *sys.argv[1:]])
        title = f"{asking.model.name}: what attention and states can tell"
        page = write_identifiability(out, found, title=title, command=command, skipped=skipped)
    if json:
        print_json({name: result.to_json() for name, result in found.items()})
        return
    for result in found.values():
        _print(result)
    for line in skipped:
        console().print(line)
    if page is not None:
        console().print(f"Open this file in a browser: {page.resolve()}")


def _names(looking: Looking, corpus: str | None) -> list[str]:
    """The parts to tell; what they need and was not given is asked for."""
    if looking.parts is None:
        names: list[str] = [*PARTS] if corpus is not None else ["second"]
    else:
        names = list(dict.fromkeys(name.strip() for name in looking.parts.split(",") if name.strip()))
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        raise PellucidError(f"There is no part {unknown[0] if unknown else ''!r}; there are {listing(PARTS)}.")
    needing = [name for name in names if name != "second" or looking.on is None]
    if corpus is None and needing:
        raise PellucidError(
            f"There is no text to read: {needing[0]} needs --corpus (or give --on TEXT for a second attention alone)."
        )
    return names


class _Asking:
    """A model and a text, and the parts asked of them; attention and functions share one pass."""

    def __init__(self, model: Model, corpus: Corpus | None, looking: Looking) -> None:
        self.model, self._corpus, self._looking = model, corpus, looking
        self._swept: Found | PellucidError | None = None

    @property
    def corpus(self) -> Corpus:
        """The text; parts that need it are refused without one before anything runs."""
        assert self._corpus is not None
        return self._corpus

    def all(self, parts: Sequence[str]) -> tuple[dict[str, Result], list[str]]:
        """Results by part, and why there is none of a part that was not asked for; raises where all fail."""
        found: dict[str, Result] = {}
        skipped: list[str] = []
        for name in parts:
            try:
                found[name] = self._found(name, parts)
            except PellucidError as error:
                if self._looking.named(name):
                    raise
                skipped.append(f"Not told: {name}, because of this: {error}")
        if not found:
            raise PellucidError(f"Nothing can be told of {self.model.name!r}. {' '.join(skipped)}")
        return found, skipped

    def _found(self, name: str, parts: Sequence[str]) -> Result:
        from pellucid import identifiability as told

        looking = self._looking
        if name == "attention":
            return told.attention(self._sweep("functions" in parts))
        if name == "functions":
            return told.functions_changed(self._sweep(True), seed=looking.seed)
        if name == "keys":
            return told.reachable(self.model, self.corpus, sentences=looking.sentences, seed=looking.seed)
        if name == "second":
            return told.second_attention(self.model, self._text(), looking.at, seed=looking.seed)
        if name == "tokens":
            return self._tokens()
        return told.mixing(
            self.model,
            self.corpus,
            sentences=looking.sentences,
            probes=options.directions(looking.probes),
            random=looking.random,
            seed=looking.seed,
        )

    def _tokens(self) -> Result:
        """Tokens told from states; its warnings stand in its notes, which are printed."""
        import warnings

        from pellucid import identifiability as told
        from pellucid.identifiability.notes import IdentifiabilityWarning

        looking = self._looking
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentifiabilityWarning)
            return told.tokens(
                self.model,
                self.corpus,
                maps=[part.strip() for part in looking.maps.split(",") if part.strip()],
                to=looking.to,
                layers=None if looking.layers is None else _numbers(looking.layers),
                random=looking.random,
                seed=looking.seed,
            )

    def _text(self) -> str:
        """The text of a second attention."""
        from pellucid.identifiability.second_attention import text_beyond

        return text_beyond(self.model, self.corpus) if self._looking.on is None else self._looking.on

    def _sweep(self, functions: bool) -> Found:
        """One pass for attention and, where they are asked for, functions by both weights; a failure is kept too."""
        from pellucid.collect.head_targets import HeadTargets
        from pellucid.collect.sweep import sweep
        from pellucid.identifiability.attention_freedom import freedom_of

        if self._swept is None:
            try:
                wanted = freedom_of(self.model)
                sites = wanted.sites
                both = (HeadTargets(sites), HeadTargets(sites, weights="effective")) if functions else ()
                self._swept = sweep(self.model, self.corpus, [wanted, *both], long=self._looking.long, progress=False)
            except PellucidError as error:
                self._swept = error
        if isinstance(self._swept, PellucidError):
            raise self._swept
        return self._swept


def _numbers(text: str) -> list[int]:
    """Layers that are named as in 1,4-6."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise PellucidError(f"--layers {text!r} names no layers; write numbers with commas, as in 1,4,8 or 1-6.")
        found += range(int(first), int(last or first) + 1)
    return found


def _print(result: Result) -> None:
    """Means by layer beside interval and chance; of a second attention, how far it is from the head's own."""
    from pellucid.identifiability import SecondAttention
    from pellucid.identifiability.notes import notes_of

    if isinstance(result, SecondAttention):
        _print_second(result)
    else:
        _print_layers(result)
    for line in notes_of(result):
        console().print(f"Note: {line}")


def _print_layers(result: Result) -> None:
    import numpy as np

    averaged = "head" in result.axes  # a layer may have fewer heads than others
    given = (result.values, result.low, result.high, result.null)
    values, low, high, null = (
        np.nanmean(cells, axis=-1) if averaged and cells is not None else cells for cells in given
    )
    assert values is not None
    rows = [
        (
            str(measure),
            str(layer),
            f"{values[row, column]:.3f}",
            "none" if low is None or high is None else f"{low[row, column]:.3f} to {high[row, column]:.3f}",
            "not known" if null is None else f"{null[row, column]:.3f}",
        )
        for row, measure in enumerate(result.axes["measure"])
        for column, layer in enumerate(result.axes["layer"])
    ]
    right = ["value", "95% interval", "chance"]
    print_table(["measure", "layer", *right], rows, title=result.title, right=right)
    wide = "; means over heads, whose intervals are rather too wide" if averaged and low is not None else ""
    console().print(f"chance: {result.chance}; interval: {result.resampled}{wide}")


def _print_second(result: SecondAttention) -> None:
    """How many queries are open, how far their weights could go, and whether keys could make them."""
    told = result.table("queries").columns
    console().print(f"Head {result.head}: {result.title[0].lower()}{result.title[1:]}")
    open_ = told["free with sum"] > 0
    if result.unique:
        console().print("Attention is identifiable here: no query's weights could be others with the same output.")
        return
    off = float(max(told["second output off"].max(), told["effective output off"].max()))
    console().print(
        f"{int(open_.sum())} of {len(open_)} queries could have other weights; in the second attention "
        f"{float(told['second moved'][open_].mean()):.1%} of theirs lies elsewhere, and outputs differ by at most "
        f"{off:.1e} of their length."
    )
    if "outside keys" in told:
        from pellucid.identifiability.key_space import REACHED

        reached = int((told["outside keys"][open_ & (told["second moved"] > REACHED)] < REACHED).sum())
        console().print(f"The head's own keys could make {reached} of these {int(open_.sum())} rows.")
