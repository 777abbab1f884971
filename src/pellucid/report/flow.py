"""Pages on information flow: one text's maps, and how well maps of attention rank what states react to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pellucid.identifiability.notes import notes_of
from pellucid.report.cells import beside, resampling
from pellucid.report.html import Cell, number, share
from pellucid.report.page import Written, page
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from pellucid.heads import InformationFlow
    from pellucid.identifiability import FlowAgreement
    from pellucid.results import Array, Result

PAGE = "flow.html"
TITLE = "What tokens draw on"
EXPLANATION = "Which tokens every token of one text draws on, layer by layer, by several methods."
AGREEMENT = ("Do the maps agree?", "Whether maps of attention rank tokens as the hidden states react to them.")
READING = (
    "Attention, norms and attribution are of one layer alone; rollout, flow and hidden token attribution tell what the "
    "state after a layer draws from the input. None of them says what would happen if a token were another one."
)
_STRONGEST = 3


_OFF = 0.1
"""The share by which sums may be off before a map is not to be trusted."""


def show_flow(sheet: Sheet, result: InformationFlow, *, twin: InformationFlow | None = None) -> None:
    """The maps, a token's own share by layer beside equal shares and a random model, and the strongest sources."""
    sheet.result(result, name="flow")
    sheet.figure(
        result.plot(width=WIDTH),
        name="flow",
        caption="Numbers are of this text alone, so that there is nothing to resample.",
        alt="Maps of tokens by the tokens that they draw on, for each method and some layers.",
    )
    own, even = own_shares(result)
    other = None if twin is None else own_shares(twin)[0]
    names = ["own share", "equal shares", *(["random model"] if other is not None else [])]
    rows = [
        (
            str(method),
            str(layer),
            Cell(share(own[row, column]), own[row, column]),
            Cell(share(even), even),
            *([Cell(share(other[row, column]), other[row, column])] if other is not None else []),
        )
        for row, method in enumerate(result.axes["measure"])
        for column, layer in enumerate(result.axes["layer"])
    ]
    sheet.table(
        ["method", "layer", *names],
        rows,
        caption="How much tokens draw on themselves: the mean share of their own entry in a row's sizes.",
        name="flow-own",
        right=names,
        fold="A token's own share, by layer",
    )
    sheet.table(
        ["method", "token", "strongest sources"],
        [
            (str(method), str(token), strongest(result, row, -1, place))
            for row, method in enumerate(result.axes["measure"])
            for place, token in enumerate(result.axes["token"])
        ],
        caption="After the last layer.",
        name="flow-strongest",
        fold="The strongest sources of every token",
    )
    for line in checks(result):
        sheet.note(line)
    sheet.facts(list(result.measures.items()))


def own_shares(result: InformationFlow) -> tuple[Array, float]:
    """A token's own entry over its row's sizes, the mean over tokens [measure, layer]; and of equal shares."""
    sizes = np.abs(result.values)
    places = [result.axes["source"].index(token) for token in result.axes["token"]]
    own = sizes[:, :, np.arange(len(places)), places]
    whole = sizes.sum(-1)
    found = np.divide(own, whole, out=np.zeros_like(own), where=whole > 0).mean(-1)
    sees = (sizes > 0).any((0, 1)).sum(-1)
    return found, float((1 / np.maximum(sees, 1)).mean())


def strongest(result: InformationFlow, measure: int, layer: int, token: int, *, most: int = _STRONGEST) -> str:
    """The sources with the largest numbers for a token, as a phrase."""
    values = result.values[measure, layer, token]
    order = [at for at in np.argsort(-np.abs(values), kind="stable")[:most].tolist() if values[at]]
    names = [" ".join(str(result.axes["source"][at]).split()) for at in order]
    return ", ".join(f"{name} ({number(float(values[at]))})" for name, at in zip(names, order, strict=True)) or "none"


def checks(result: InformationFlow) -> list[str]:
    """How far every method's sums are from what they should be, a sentence for each."""
    table = result.table("checks").columns
    found: list[str] = []
    for method in result.axes["measure"]:
        mine = table["measure"] == str(method)
        if not mine.any():
            continue
        error = float(table["error"][mine].max())
        told = f"{method}: {table['what'][mine][0]} {error:.1g}"
        if error >= _OFF:
            layer = table["layer"][mine][int(table["error"][mine].argmax())]
            told += f" of their size (layer {layer}): that map is not to be trusted; take more steps (--steps)"
        found.append(f"{told}.")
    return found


def show_agreement(sheet: Sheet, result: FlowAgreement) -> None:
    """The figure, and every correlation with interval, chance, and the random model's."""
    sheet.result(result, name="agreement")
    means = result.values.mean(1)
    best = int(means.argmax())
    table = result.table("baselines")
    near = table.columns["value"][table.axes["baseline"].index("nearness")].mean()
    sheet.highlight(
        f"rank correlation of {result.axes['measure'][best]} with hidden states",
        number(float(means[best])),
        chance=f"chance 0, nearness alone {number(float(near))}",
    )
    sheet.figure(
        result.plot(width=WIDTH),
        name="agreement",
        caption=f"Means over positions. Chance: {result.chance}. {resampling(result)}. Grey: maps that look at "
        "no weights.",
        alt="A line over layers for every method, its rank correlation with hidden token attribution.",
    )
    _correlations(sheet, result)
    for line in agreement_lines(result):
        sheet.note(line)
    sheet.facts(list(result.measures.items()))


def agreement_lines(result: FlowAgreement) -> list[str]:
    """What was compared, how noisy hidden token attribution is, and where a method told nothing, a sentence each."""
    texts = result.table("texts").columns
    error, most = float(texts["error"].mean()), result.table("ceiling").columns["ceiling"]
    how = "exact"
    if error:
        how = (
            f"estimated, each norm off by about {error:.1%}: no map could reach more than "
            f"{number(float(most.min()))} to {number(float(most.max()))} (by halves of the directions)"
        )
    found = [f"{len(texts['tokens'])} texts, {int(texts['positions'].sum())} positions; hidden states: {how}."]
    told = result.table("positions").columns
    for row, method in enumerate(result.axes["measure"]):
        silent, flat, counted = (int(told[name][row].sum()) for name in ("silent", "without ranks", "positions"))
        if silent or flat:
            found.append(
                f"{method}: of {counted + silent} positions in all layers it said nothing at {silent}, which do not "
                f"count, and gave all tokens the same at {flat}, which count as 0."
            )
    return found + notes_of(result)


def _correlations(sheet: Sheet, result: Result) -> None:
    drawn = result.tables["random model"].columns["value"] if "random model" in result.tables else None
    numbers = ["correlation", "95% interval", "chance", "sds away", *(["random model"] if drawn is not None else [])]
    away = result.table("chance").columns["z"]
    rows = [
        (
            str(method),
            str(layer),
            *beside(result, (row, column)),
            Cell(number(away[row, column]), float(away[row, column])),
            *([Cell(number(drawn[row, column]), float(drawn[row, column]))] if drawn is not None else []),
        )
        for row, method in enumerate(result.axes["measure"])
        for column, layer in enumerate(result.axes["layer"])
    ]
    sheet.table(
        ["method", "layer", *numbers],
        rows,
        caption="By layer; and how many standard deviations from chance, over permutations of the tokens.",
        name="agreement-layers",
        right=numbers,
        fold="By layer",
    )
    table = result.table("baselines")
    sheet.table(
        ["baseline", *(f"layer {layer}" for layer in table.axes["layer"])],
        [
            (str(name), *(Cell(number(value), float(value)) for value in table.columns["value"][row]))
            for row, name in enumerate(table.axes["baseline"])
        ],
        caption="Maps that look at no weights.",
        name="agreement-baselines",
        right=[f"layer {layer}" for layer in table.axes["layer"]],
        fold="Baselines",
    )


def write_flow(folder: Path, result: InformationFlow | FlowAgreement, *, command: str) -> Path:
    """A folder with flow.html, the result, tables and figures; whole or not at all."""
    with whole_folder(folder) as work:
        sheet = Sheet(work, command)
        if result.kind == "heads.information_flow":
            show_flow(sheet, result)  # pyright: ignore[reportArgumentType]
            titles, about = (TITLE, EXPLANATION), f"“{result.provenance.corpus.get('text', 'One text')}”"
        else:
            show_agreement(sheet, result)  # pyright: ignore[reportArgumentType]
            titles, about = AGREEMENT, str(result.provenance.corpus["name"])
        name = result.provenance.models[0]["name"]
        notes = (READING, f"Made by: {command}")
        text = page(f"{name}: how information flows", about, notes, [Written.filled(*titles, sheet)])
        (work / PAGE).write_text(text, encoding="utf-8", errors="replace")
    return folder / PAGE
