"""Neurons: the units of the MLP that one word moves most, with the places in the text where they are strongest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.report.cells import beside, chance_at, interval_at, resampling, value_at
from pellucid.report.html import Cell, Html, element, folded, joined, number, share, word
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import WIDTH, Sheet

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.neurons import SelectiveUnits

CONTEXTS, UNITS, SHOWN = 20, 50, 12
"""Contexts kept of each unit, units in the result, and units whose contexts the page shows."""
LINES = 8
"""Contexts that the page shows of each."""


def absent(subject: Subject) -> str | None:
    """Why there is nothing to say about neurons."""
    if patterns(subject):
        return None
    missing = [f"{name}: {reason}" for name, reason in subject.model.missing.items() if "neurons" in name]
    return f"this model shows no hidden units of its MLPs ({'; '.join(missing) or 'it has none'})."


def patterns(subject: Subject) -> str | None:
    """The neurons of the stack that reads the text."""
    stacks = {site.stack for site in subject.model.sites if site.kind == "neurons"}
    return "neurons.*" if None in stacks else "encoder.neurons.*" if "encoder" in stacks else None


def collectors(subject: Subject) -> tuple[Collector, ...]:
    """The strongest contexts of every neuron, and its mean and variance."""
    from pellucid.collect.moments import Moments
    from pellucid.collect.topk import TopContexts

    sites = patterns(subject)
    assert sites is not None
    return TopContexts(sites, k=CONTEXTS), Moments(sites, pairs="units")


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """How many units are selective, the most selective ones, and their contexts."""
    from pellucid.neurons import selective

    result = selective(found, top=UNITS, seed=subject.seed)
    sheet.result(result, name="neurons")
    sheet.text(
        f"For every hidden unit, the {CONTEXTS} places of the text where it is largest, and the {CONTEXTS} where it is "
        "smallest, were kept. A unit is selective where the same word stands at many of them. Frequent words come up "
        "by chance too: chance is what drawing words by their frequency in the text gives."
    )
    _sites(sheet, subject, result)
    sheet.figure(
        result.plot(width=WIDTH),
        name="neurons",
        caption=f"The most selective units. Grey: {result.chance}. {resampling(result)}. The best of many "
        "units look better than they are: compare with the control above.",
        alt="Bars: how often one word stands among the strongest contexts of each of the most selective units.",
    )
    _units(sheet, result)


def _sites(sheet: Sheet, subject: Subject, result: SelectiveUnits) -> None:
    columns = {name: column.tolist() for name, column in result.sites.columns.items()}
    rows = [
        (
            Cell(element("code", site), site),
            "model" if model == subject.model.name else "control model",
            units,
            silent,
            wide,
            narrow,
            Cell(share(mean), mean),
            Cell(share(chance), chance),
            Cell(share(chosen), chosen),
            Cell(share(by_chance), by_chance),
        )
        for model, site, units, silent, wide, narrow, mean, chance, chosen, by_chance in zip(
            *columns.values(), strict=True
        )
    ]
    kinds = ["silent", "high variance", "low variance"]
    names = ["mean share", "by chance", "selective", "selective by chance"]
    sheet.table(
        ["site", "of", "units", *kinds, *names],
        rows,
        caption="Units that never change (silent), those whose standard deviation is three times the median of their "
        "site or a third of it; the share of the most frequent word among a unit's contexts, and how many units have a "
        "larger share than 99% of chance draws. More kinds of units: pellucid neurons survey.",
        name="neuron_sites",
        right=["units", *kinds, *names],
    )
    own = [place for place, model in enumerate(columns["model"]) if model == subject.model.name]
    other = [place for place in range(len(rows)) if place not in own]
    controlled = f", control: {share(_mean(columns, other))}" if other else ""
    if other:
        sheet.text(
            f"Of all units that change, {share(_mean(columns, own))} are selective in this model and "
            f"{share(_mean(columns, other))} in the control model. Random weights respond to single words too, because "
            "a word always enters as the same vector: selectivity by itself is no sign of learning."
        )
    sheet.highlight(
        "Units that are selective for a word",
        share(_mean(columns, own)),
        chance=f"chance: {share(columns['selective by chance'][0])}{controlled}",
    )


def _mean(columns: dict[str, list[float]], places: list[int]) -> float:
    """The share of selective units among all that are not silent, of several sites."""
    alive = [columns["units"][place] - columns["silent"][place] for place in places]
    chosen = sum(count * columns["selective"][place] for count, place in zip(alive, places, strict=True))
    return chosen / sum(alive) if sum(alive) else 0.0


def _units(sheet: Sheet, result: SelectiveUnits) -> None:
    words, ends = result.units.columns["word"].tolist(), result.units.columns["end"].tolist()
    names = [str(unit) for unit in result.axes["unit"]]
    at_share, at_height = result.place("measure", "share"), result.place("measure", "height")
    sheet.table(
        ["unit", "word", "end", "share", "95% interval", "chance", "height", "height by chance"],
        [
            (
                Cell(element("code", name), name),
                Cell(word(words[place]), words[place]),
                ends[place],
                *beside(result, (at_share, place), write=share),
                value_at(result, (at_height, place)),
                chance_at(result, (at_height, place)),
            )
            for place, name in enumerate(names)
        ],
        caption=f"The {len(names)} most selective units. Height is how far the contexts lie from the unit's mean, in "
        "its standard deviations.",
        name="neuron_units",
        right=["share", "95% interval", "chance", "height", "height by chance"],
        fold=f"All numbers of the {len(names)} most selective units",
    )
    sheet.heading("Where they are strongest")
    sheet.note("For every word, the most selective of its units.")
    first = dict(reversed([(text, place) for place, text in enumerate(words)]))
    shown = sorted(first.values())[:SHOWN]
    sheet.html(joined(_unit(result, place, words[place], ends[place], opened=place in shown[:3]) for place in shown))


def _unit(result: SelectiveUnits, place: int, liked: str, end: str, *, opened: bool) -> Html:
    name = str(result.axes["unit"][place])
    which = (result.place("measure", "share"), place)
    told = (
        f" at {share(value_at(result, which))} of its {end} activations (95% interval "
        f"{interval_at(result, which, write=share)}, chance {share(chance_at(result, which))})"
    )
    summary = joined(
        [
            element("code", name),
            " ",
            element("strong", word(liked)),
            element("span", told, class_="aside"),
        ]
    )
    columns = {column: array.tolist() for column, array in result.contexts.columns.items()}
    lines = [row for row, unit in enumerate(columns["unit"]) if unit == name][:LINES]
    items = [
        element(
            "li",
            columns["left"][row],
            element("mark", columns["word"][row], title=f"activation {number(columns['activation'][row])}"),
            columns["right"][row],
            dir="auto",
        )
        for row in lines
    ]
    return folded(summary, element("ul", *items, class_="contexts"), opened=opened)


SECTION = Section(
    title="Neurons",
    order=60,
    explanation="Which hidden units respond to one word above all others, and the places that move them most.",
    render=render,
    collectors=collectors,
    absent=absent,
)
