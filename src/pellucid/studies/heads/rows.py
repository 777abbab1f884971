"""Tables of the study of heads, from its numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pellucid.heads.roles.function_rules import NONE, PHRASES
from pellucid.report.html import Cell, bounds, number
from pellucid.studies import rules
from pellucid.studies.heads.claims_layers import all_links, link_shares
from pellucid.studies.heads.figures import NAMED
from pellucid.studies.heads.tables import SPECIALISED, WAYS, Case
from pellucid.studies.heads.verdicts import all_heads, functions_of, layer_of, reading_heads, stack_of
from pellucid.uncertainty import jackknife, range_of_draws

Array = np.ndarray[Any, Any]
Rows = list[tuple[str | int | Cell, ...]]


def function_rows(case: Case) -> Rows:
    """For every text and function, how many heads have it beyond what heads of a random network do, and how many of
    another random network have, by the same rule."""
    rows: Rows = []
    for text, found in case.functions.items():
        every = [label for own in found.labels.values() for label in own]
        total = len(reading_heads(case))
        for name in found.axes["measure"]:
            share = rules.share(every.count(str(name)), total, 0.0)
            rows.append(
                (
                    text,
                    str(name),
                    every.count(str(name)),
                    total,
                    _between(share),
                    case.random[text].counts.get(str(name), 0),
                )
            )
    return rows


def _between(found: rules.Number) -> Cell:
    return bounds(found.low, found.high, write=lambda value: f"{value:.0%}")


def skipped_rows(case: Case) -> Rows:
    """What a text could not show, and why."""
    rows: Rows = []
    for text, found in case.functions.items():
        table = found.table("skipped").columns
        rows += [(text, str(name), str(why)) for name, why in zip(table["function"], table["why"], strict=True)]
    return rows


def survivor_rows(case: Case) -> Rows:
    """At every point of the curve: heads left, those of them that read text, and the specialised ones beside chance."""
    names, own = reading_heads(case), functions_of(case)
    special = {name for name in names if own[name] & set(SPECIALISED)}
    rows: Rows = []
    for at, count in enumerate(case.curve.counts):
        left = set(case.pruning.survivors(count)) & set(names)
        found = rules.survivors(len(names), len(special), len(left), len(left & special))
        band = "" if found.band is None else f"{found.band[0]:.0f} to {found.band[1]:.0f}"
        expected = Cell("", None) if found.band is None else Cell(f"{found.chance:.1f}", found.chance)
        kept = [Cell(f"{value:.0%}".replace("-", "−"), float(value)) for value in case.curve.kept[:, at]]
        rows.append((count, *kept, len(left), len(left & special), expected, band))
    return rows


def survivor_function_rows(case: Case) -> Rows:
    """At every point of the curve and for every function: heads that have it, those left, and a draw of as many."""
    names, own = reading_heads(case), functions_of(case)
    kinds = [name for name in PHRASES if any(name in labels for labels in own.values())]
    groups = {kind: {name for name in names if kind in own[name]} for kind in kinds}
    groups[NONE] = {name for name in names if not own[name]}
    rows: Rows = []
    for count in case.curve.counts[1:]:
        left = set(case.pruning.survivors(count)) & set(names)
        for kind, heads in groups.items():
            low, high = range_of_draws(len(names), len(heads), len(left))
            expected = len(left) * len(heads) / len(names)
            cells = (len(heads), len(left & heads), Cell(f"{expected:.1f}", expected), f"{low} to {high}")
            rows.append((count, kind, *cells))
    return rows


def stack_rows(case: Case) -> Rows:
    """Heads left in every stack or layer at every point."""
    names = all_heads(case)
    read: Callable[[str], str] = stack_of if stack_of(names[0]) else layer_of
    parts = list(dict.fromkeys(read(name) for name in names))
    if len(parts) > 12:
        return []
    rows: Rows = [("heads left", *parts)]
    for count in case.curve.counts:
        left = case.pruning.survivors(count)
        rows.append((str(count), *(sum(read(name) == part for name in left) for part in parts)))
    return rows


def agreement_rows(case: Case) -> Rows:
    """ρ of every two ways of weighing heads, with its interval over documents."""
    columns = case.importance.agreement.columns
    rows: Rows = []
    for at in range(len(columns["first"])):
        value = float(columns["spearman"][at])
        ends = [
            float(columns[f"spearman {end}"][at]) if f"spearman {end}" in columns else None for end in ("low", "high")
        ]
        cell = Cell(number(value), value)
        rows.append((str(columns["first"][at]), str(columns["second"][at]), cell, bounds(ends[0], ends[1]), 0))
    return rows


def pronoun_rows(case: Case, most: int = 5) -> Rows:
    """The heads with the largest difference between antecedent and rival, by what tells whom a pronoun means."""
    rows: Rows = []
    for form, links in [("all", all_links(case)), *case.pronouns.items()]:
        shares = link_shares(links)
        even = links.expected.sum(0) / links.pronouns.sum()
        apart = shares[0] - shares[1]
        for place in np.argsort(-apart.ravel(), kind="stable")[: most if form == "all" else 2]:
            layer, head = np.unravel_index(int(place), apart.shape)
            cells = [Cell(f"{value:.0%}", float(value)) for value in (*shares[:, layer, head], even[0])]
            rows.append((form, f"{links.layers[layer]}.{head}", *cells, int(links.pronouns.sum())))
    return rows


def score_rows(case: Case) -> Rows:
    """The model's score as it is and with as many heads as were chosen, on the text to measure with."""
    curve = case.curve
    rows: Rows = []
    chosen = case.pruning.chosen
    for count in dict.fromkeys((curve.counts[0], chosen)):
        at = curve.counts.index(count)
        for row, way in enumerate(WAYS):
            if count == curve.counts[0] and row:
                continue
            told = "the model as it is" if not row and count == curve.counts[0] else f"{count} heads, {NAMED[way]}"
            value, share = float(curve.scores[row, at]), float(curve.kept[row, at])
            ends = bounds(float(curve.low[row, at]), float(curve.high[row, at]), write=lambda x: f"{x:.0%}")
            cells = (Cell(number(value), value), Cell(number(curve.chance), curve.chance), Cell(f"{share:.0%}", share))
            rows.append((told, curve.score, *cells, ends))
    return rows


def bleu_rows(case: Case) -> Rows:
    """BLEU of what each network wrote, with its interval over sentences; nothing where it cannot be had."""
    from pellucid.train.tasks.scores import bleu

    held = dict(case.written)
    if not held or bleu(["a"], ["a"]) is None:
        return []
    right, groups, source = held.pop("right"), np.array(held.pop("groups")), held.pop("source")

    def score(texts: Sequence[Any], kept: Array) -> float:
        found = bleu([str(texts[at]) for at in kept], [str(right[at]) for at in kept])
        assert found is not None
        return found

    every = np.arange(len(right))
    numbers = [group for group in np.unique(groups) if (groups != group).any()]
    sizes = [float((groups == group).sum()) for group in numbers]
    texts = {**held, "untranslated (chance)": source}
    whole = np.array([score(each, every) for each in texts.values()])
    without = [np.array([score(each, every[groups != group]) for each in texts.values()]) for group in numbers]
    plain, less = jackknife(whole, without, sizes), jackknife(whole - whole[0], [x - x[0] for x in without], sizes)
    rows: Rows = []
    for at, name in enumerate(texts):
        ends = [[None if end is None else float(end[at]) for end in (each.low, each.high)] for each in (plain, less)]
        value, change = float(whole[at]), float(whole[at] - whole[0])
        changed = (Cell(_tenths(change), change), bounds(*ends[1], write=_tenths)) if at else ("", "")
        rows.append((name, Cell(_tenths(value), value), bounds(*ends[0], write=_tenths), *changed, len(right)))
    return rows


def _tenths(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}".replace("-", "−")


def profile_rows(case: Case) -> Rows:
    """Every measure of every layer, with its interval, the random network's and what uniform attention gives."""
    rows: Rows = []
    for profile in case.profiles.values():
        several = len(profile.without) > 1
        found = jackknife(profile.values, list(profile.without), profile.sizes.tolist()) if several else None
        for place in np.ndindex(*profile.values.shape):
            low, high = (
                None if found is None or end is None else float(end[place])
                for end in ((found.low, found.high) if found is not None else (None, None))
            )
            value, random, even = (float(each[place]) for each in (profile.values, profile.random, profile.chance))
            cells = [Cell(number(each), each) for each in (value, random, even)]
            named = profile.rows[place[0]], profile.layers[place[1]]
            rows.append((case.name, *named, cells[0], bounds(low, high), cells[1], cells[2]))
    return rows
