"""Pages on identifiability: what attention leaves open, whether tokens can be told from states, how far they mix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pellucid.identifiability.notes import notes_of
from pellucid.report.attention_weights import show_changed, show_reach, show_second
from pellucid.report.cells import beside, resampling
from pellucid.report.html import Cell, bounds, number, share
from pellucid.report.page import Written, page
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from pellucid.identifiability import AttentionIdentifiability, TokenIdentifiability, TokenMixing
    from pellucid.results import Result

TITLES = {
    "attention": ("What attention leaves open", "Whether the weights of a head could be others with the same output."),
    "keys": (
        "Weights that keys could make",
        "Whether a head could have other weights with the same output.",
    ),
    "functions": ("Functions by effective attention", "Which heads do another job once what has no effect is gone."),
    "second": ("A second attention", "One head's weights on a text, and others that give the same output."),
    "tokens": ("Telling tokens from states", "Whether a hidden state still says which token it belongs to."),
    "mixing": ("How far tokens mix", "What every state reacts to: its own input, or that of other tokens."),
}


def show_attention(sheet: Sheet, result: AttentionIdentifiability) -> None:
    """Maps of every measure, means by layer, and how they grow with the length of the text."""
    sheet.result(result, name="attention")
    unique, moved = (result.place("measure", name) for name in ("unique", "moved"))
    assert result.null is not None
    sheet.highlight(
        "queries whose attention is unique",
        share(float(result.values[unique].mean())),
        chance=f"values in general position {share(float(result.null[unique].mean()))}",
    )
    sheet.highlight(
        "part of the weights without effect",
        number(float(result.values[moved].mean())),
        chance=f"random direction {number(float(result.null[moved].mean()))}",
    )
    sheet.text(
        f"A head's output is a sum of values, each {int(result.table('heads').columns['width'].max())} numbers wide, "
        "weighted by attention. As soon as a query sees more tokens than that, other weights give the same output."
    )
    sheet.figure(
        result.plot(width=WIDTH),
        name="attention",
        caption=f"Every head. Chance: {result.chance}. {resampling(result)}.",
        alt="Maps of layers by heads, one for each measure.",
    )
    table = result.table("lengths")
    names = [*result.measures, "moved by chance"]
    rows = [
        (
            str(length),
            int(table.columns["queries"][place, 0, 0]),
            *(_mean(table.columns[name][place]) for name in names),
        )
        for place, length in enumerate(table.axes["keys in sight"])
    ]
    right = ["queries", *names]
    sheet.table(
        ["keys in sight", *right],
        rows,
        caption="By how many tokens a query sees, means over all heads.",
        name="attention-lengths",
        right=right,
    )
    unsure = float(result.table("heads").columns["uncertain"].mean())
    sheet.note(f"For {share(unsure)} of queries the rank hangs on the cut below which an eigenvalue counts as zero.")
    _phrases(sheet, result)


def show_tokens(sheet: Sheet, result: TokenIdentifiability) -> None:
    """Rates by layer beside chance and a random model."""
    sheet.result(result, name="tokens")
    best = str(result.axes["measure"][-1])
    last = result.values[result.place("measure", best), -1]
    assert result.null is not None
    sheet.highlight(
        f"tokens found again after the last layer ({best})",
        share(float(last)),
        chance=f"chance {share(float(result.null[-1, -1]))}",
    )
    sheet.figure(
        result.plot(width=WIDTH),
        name="tokens",
        caption=f"Share of tokens that are found again. Chance: {result.chance}. {resampling(result)}, with "
        "the maps as they are.",
        alt="A curve over layers for every map and distance.",
    )
    _by_layer(sheet, result, "tokens")
    for name, axis in (("labels", "label"), ("frequencies", "frequency")):
        if name in result.tables:
            _classes(sheet, result, name, axis, best)
    _phrases(sheet, result)


def _by_distance(sheet: Sheet, result: TokenMixing) -> None:
    """What stands so many tokens away, after every layer."""
    table = result.table("offsets")
    layers = table.axes["layer"]
    ends = [table.columns.get(name) for name in ("low", "high")]
    rows = [
        (
            str(offset),
            str(layer),
            _mean(table.columns["share"][place, at]),
            bounds(*(None if end is None else float(end[place, at]) for end in ends)),
            _mean(table.columns["equal shares"][place, at]),
        )
        for place, offset in enumerate(table.axes["offset"])
        for at, layer in enumerate(layers)
    ]
    right = ["share", "95% interval", "equal shares"]
    sheet.table(
        ["offset", "layer", *right],
        rows,
        caption="Share of what stands so many tokens before (−) or after a token.",
        name="mixing-offsets",
        right=right,
        fold="By distance",
    )


def show_mixing(sheet: Sheet, result: TokenMixing, *, distances: bool = True) -> None:
    """Curves by layer, and the profile by distance where there is room for it."""
    sheet.result(result, name="mixing")
    assert result.null is not None
    shown = {"own": "a token's own share, last layer", "not largest": "tokens with a larger contributor, last layer"}
    for measure, label in shown.items():
        at = result.place("measure", measure)
        sheet.highlight(
            label,
            share(float(result.values[at, -1])),
            chance=f"equal shares {share(float(result.null[at, -1]))}",
        )
    sheet.figure(
        result.plot(width=WIDTH),
        name="mixing",
        caption=f"Chance: {result.chance}. {resampling(result)}.",
        alt="A curve over layers for every measure.",
    )
    _by_layer(sheet, result, "mixing")
    if distances:
        _by_distance(sheet, result)
    error = float(result.table("texts").columns["error"].mean())
    how = f"estimated from random directions, each off by about {error:.1%}" if error else "exact"
    sheet.note(f"Norms of derivatives are {how}.")
    if error:
        half = float(result.table("directions").columns["not largest by half"][-1])
        sheet.note(
            "The largest of many noisy norms tends to be too large. Tokens with a larger contributor after the last "
            f"layer, by all directions: {share(float(result.measure('not largest')[-1]))}; by half of them, with twice "
            f"the noise: {share(half)}."
        )
    _phrases(sheet, result)


def _by_layer(sheet: Sheet, result: Result, name: str) -> None:
    """Every measure and layer with interval, chance and the random model's value."""
    drawn = result.tables["random model"].columns["value"] if "random model" in result.tables else None
    numbers = ["value", "95% interval", "chance", *(["random model"] if drawn is not None else [])]
    rows = [
        (
            str(measure),
            str(layer),
            *beside(result, (row, column)),
            *([_mean(drawn[row, column])] if drawn is not None else []),
        )
        for row, measure in enumerate(result.axes["measure"])
        for column, layer in enumerate(result.axes["layer"])
    ]
    sheet.table(
        ["measure", "layer", *numbers], rows, caption="By layer.", name=f"{name}-layers", right=numbers, fold="By layer"
    )


def _classes(sheet: Sheet, result: TokenIdentifiability, name: str, axis: str, measure: str) -> None:
    """Rates at the last layer by class of tokens."""
    table = result.table(name)
    at = result.place("measure", measure)
    rows = [
        (
            str(value),
            int(table.columns["tokens"][place, at, -1]),
            _mean(table.columns["rate"][place, at, -1]),
            _mean(table.columns["chance"][place, at, -1]),
        )
        for place, value in enumerate(table.axes[axis])
    ]
    right = ["tokens", "found again", "chance"]
    sheet.table(
        [axis, *right],
        rows,
        caption=f"After the last layer, {measure}, by {axis}.",
        name=f"tokens-{name}",
        right=right,
        fold=f"By {axis}",
    )


def _mean(values: object) -> Cell:
    mean = float(np.mean(np.asarray(values)))
    return Cell(number(mean), mean)


def _phrases(sheet: Sheet, result: Result) -> None:
    for line in notes_of(result):
        sheet.note(line)
    sheet.facts([(name, phrase) for name, phrase in result.measures.items()])


SHOWN = {
    "attention": show_attention,
    "keys": show_reach,
    "functions": show_changed,
    "second": show_second,
    "tokens": show_tokens,
    "mixing": show_mixing,
}


def write_identifiability(
    folder: Path, results: Mapping[str, Result], *, title: str, command: str, skipped: Sequence[str] = ()
) -> Path:
    """A folder with identifiability.html, the results, tables and figures; whole or not at all.

    `skipped` says what could not be told, and why.
    """
    with whole_folder(folder) as work:
        written: list[Written] = []
        for name, result in results.items():
            sheet = Sheet(work, command)
            SHOWN[name](sheet, result)  # pyright: ignore[reportArgumentType]
            written.append(Written.filled(*TITLES[name], sheet))
        about = "What attention and hidden states of this model can and cannot tell."
        text = page(title, about, (f"Made by: {command}", *skipped), written)
        (work / "identifiability.html").write_text(text, encoding="utf-8")
    return folder / "identifiability.html"
