"""Tables of the study of neurons, from its numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from pellucid.report.html import Cell, bounds, number, share
from pellucid.studies.claims import CaseClaim
from pellucid.studies.neurons.claims_methods import faithful_in_model, faithful_in_probe
from pellucid.studies.neurons.tables import BARS, CONCEPTS, METHODS, STREAMED, UNORDERED, Case
from pellucid.studies.neurons.verdicts import CLOSED
from pellucid.studies.rules import Number

Rows = list[tuple[str | int | Cell, ...]]
BESIDE = ("majority", "random model", "control task")
"""Controls that stand beside probes of few neurons."""
NO_TASK = (
    "it has no language-modelling or tagging head, only the vectors of words, so that there is no answer of its own "
    "that removing neurons could make worse; its rankings are judged by a probe alone."
)
"""Why a model has no row on what it loses."""


def per_cent(value: float) -> Cell:
    """A share between 0 and 1 in a cell."""
    return Cell(share(value), value)


def ends_of(found: Number, *, shares: bool = True) -> Cell:
    """Both ends of an interval, as shares or as plain numbers."""
    return bounds(found.low, found.high, write=_tenth if shares else number)


def _tenth(value: float) -> str:
    return f"{100 * value:.1f}%".replace("-", "−")


def verdict_rows(found: Sequence[CaseClaim], cases: Sequence[Case]) -> list[tuple[str, ...]]:
    """Every claim with its verdict on every model, and what was published; a claim about all has one verdict."""
    held = {(each.claim, each.case): each.verdict for each in found}
    once = {each.claim: each for each in reversed(found)}
    rows: list[tuple[str, ...]] = []
    for claim in dict.fromkeys(each.claim for each in found):
        own = once[claim]
        single = {case.name for case in cases} >= {own.case}
        cells = [held.get((claim, case.name), "–") if single else own.verdict for case in cases]
        rows.append((claim, *cells, own.published))
    return rows


def layer_rows(cases: Sequence[Case]) -> Rows:
    """Every number of the probes by layer."""
    rows: Rows = []
    for case in cases:
        for concept, told in CONCEPTS.items():
            grid = case.grids[f"layers {concept}"]
            for site in grid.columns:
                accuracy = grid.at("accuracy", site)
                random, control, selective = (
                    grid.at(row, site) for row in ("random model", "control task", "selectivity")
                )
                cells = [per_cent(each) for each in (accuracy.chance, random.value, control.value)]
                rows.append(
                    (case.model, told, str(site), per_cent(accuracy.value), ends_of(accuracy), *cells,
                     Cell(_tenth(selective.value), selective.value), ends_of(selective))
                )  # fmt: skip
    return rows


def set_rows(cases: Sequence[Case]) -> Rows:
    """What probes of few neurons reach, and what they keep of the accuracy of all."""
    rows: Rows = []
    for case in cases:
        for concept, told in CONCEPTS.items():
            grid, whole = case.grids[f"anew {concept}"], case.numbers[f"whole {concept}"].value
            for count in grid.columns:
                first, last, random = (grid.at(end, count) for end in ("top", "bottom", "random"))
                rows.append(
                    (case.model, told, int(count), per_cent(int(count) / case.neurons), per_cent(first.value),
                     ends_of(first), per_cent(random.value), per_cent(last.value), per_cent(first.value / whole),
                     *_beside(case, concept, count))
                )  # fmt: skip
    return rows


def _beside(case: Case, concept: str, count: int | str) -> list[str | Cell]:
    """Majority, random model and control task of a probe of so many first neurons, where they were computed."""
    grid = case.grids.get(f"beside {concept}")
    return ["–" if grid is None else per_cent(grid.at(row, count).value) for row in BESIDE]


def control_rows(cases: Sequence[Case]) -> Rows:
    """The probes that few neurons are judged by, with all neurons that they read, and their controls."""
    rows: Rows = []
    for case in cases:
        kinds = {**CONCEPTS, "in probe": "rankings compared (part of speech)"}
        for name, told in kinds.items():
            if f"beside {name}" in case.grids:
                rows.append((case.model, told, per_cent(case.numbers[f"whole {name}"].value),
                             *_beside(case, name, "all")))  # fmt: skip
    return rows


def smallest_rows(cases: Sequence[Case]) -> Rows:
    """The smallest sets whose probe is within 1, 2 and 5 per cent of the accuracy of all neurons, with what it reaches.

    They are chosen on documents to learn from, and their accuracy is that on documents for testing; numbers of format 1
    have none.
    """
    rows: Rows = []
    for case in cases:
        for concept, told in CONCEPTS.items():
            grid = case.grids.get(f"smallest {concept}")
            if grid is None:
                rows.append((case.model, told, case.neurons, *("–",) * 4))
                continue
            cells = [f"{int(count):,} ({share(count / case.neurons)}): {share(accuracy)}"
                     for count, accuracy in zip(grid.row("neurons"), grid.row("accuracy"), strict=True)]  # fmt: skip
            rows.append((case.model, told, case.neurons, per_cent(float(grid.row("all neurons")[0])), *cells))
    return rows


def class_rows(cases: Sequence[Case]) -> Rows:
    """How many neurons every class takes in every model."""
    names = list(dict.fromkeys(str(name) for case in cases for name in case.grids["spread"].columns))
    rows: Rows = []
    for name in names:
        cells: list[str | Cell] = []
        for case in cases:
            grid = case.grids["spread"]
            there = name in grid.columns
            value = grid.at("effective", name).value if there else math.nan
            cells.append(Cell(f"{value:.0f}", value) if there else "–")
        rows.append((name, "closed" if name in CLOSED else "open", *cells))
    return rows


def polysemy_rows(cases: Sequence[Case]) -> Rows:
    """How many neurons are among the first of so many classes, beside chance."""
    rows: Rows = []
    for case in cases:
        grid = case.grids["polysemy"]
        assert grid.null is not None
        for count in grid.columns:
            value, even = grid.values[0, int(count)], float(grid.null[0, int(count)])
            if value > 0 or even * case.neurons >= 1:
                neurons = round(float(value) * case.neurons)
                rows.append((case.model, int(count), neurons, Cell(f"{even * case.neurons:.0f}", even)))
    return rows


def faithful_rows(cases: Sequence[Case]) -> Rows:
    """Every ranking of every model: what a probe reads from its first neurons, and what the model loses without."""
    rows: Rows = []
    for case in cases:
        tagger = case.facts["task"] == "tagger"
        for method, told in case.methods.items():
            first, last = faithful_in_probe(case, method)
            found = faithful_in_model(case, method)
            lost: tuple[str | Cell, ...] = ("no task", "", "")
            if found is not None:
                cells = [Cell(_tenth(each.value) if tagger else number(each.value), each.value) for each in found]
                lost = (cells[0], ends_of(found[0], shares=tagger), "–" if method in UNORDERED else cells[1])
            behind = "–" if method in UNORDERED else per_cent(last.value)
            rows.append(
                (case.model, told, per_cent(first.value), ends_of(first), behind, per_cent(first.chance), *lost)
            )  # fmt: skip
    return rows


def task_rows(cases: Sequence[Case]) -> Rows:
    """The models' own tasks: as they are, and without as many neurons at random."""
    rows: Rows = []
    for case in cases:
        if case.facts["task"] is None:
            continue
        kind = "accuracy" if case.facts["task"] == "tagger" else "loss"
        grid = case.grids[f"{kind} probe"]
        whole, random = (float(grid.row(row).mean()) for row in ("whole", "random"))
        shown = [per_cent(each) if kind == "accuracy" else Cell(number(math.exp(each)), math.exp(each))
                 for each in (whole, random)]  # fmt: skip
        named = "accuracy" if kind == "accuracy" else "perplexity"
        rows.append((case.model, str(case.facts["task"]), named, *shown, int(case.facts["size"]["modelled"])))
    return rows


def agreement_rows(cases: Sequence[Case]) -> Rows:
    """How far every two rankings agree, in every model."""
    rows: Rows = []
    grids = [case.grids["agreement"] for case in cases]
    made = [name for name in METHODS if any(name in grid.rows for grid in grids)]
    for one, other in combinations(made, 2):
        cells = [grid.at(one, other).value if {one, other} <= {*grid.rows} else math.nan for grid in grids]
        shown = ("–" if math.isnan(value) else Cell(f"{value:.2f}", value) for value in cells)
        rows.append((METHODS[one], METHODS[other], *shown))
    chance = [case.grids["agreement"].at("probeless", "iou").chance for case in cases]
    rows.append(("two random orders", "", *(Cell(f"{value:.2f}", value) for value in chance)))
    return rows


def stability_rows(cases: Sequence[Case]) -> Rows:
    """How far rankings of other documents agree, in every model."""
    rows: Rows = []
    for case in cases:
        for method in STREAMED:
            grid = case.grids[f"stability {method}"]
            found = grid.at("value", grid.columns[0])
            value, chance = (Cell(f"{each:.2f}", each) for each in (found.value, found.chance))
            ends = bounds(found.low, found.high, write=lambda each: f"{each:.2f}")
            rows.append((case.model, METHODS[method], int(grid.columns[0]), value, ends, chance))
    return rows


def expert_rows(cases: Sequence[Case]) -> Rows:
    """The share of neurons that are experts of any class, in every model."""
    rows: Rows = []
    for case in cases:
        grid = case.grids["experts"]
        for bar in BARS:
            found = grid.at("model", bar)
            rows.append((case.model, f"{bar:.1f}", per_cent(found.value), ends_of(found), per_cent(found.chance)))
    return rows


def site_rows(cases: Sequence[Case]) -> Rows:
    """Where first neurons stand: at sites of the stream for every concept, and inside blocks."""
    rows: Rows = []
    for case in cases:
        for name, told in (*((f"where {key}", text) for key, text in CONCEPTS.items()), ("sub-layers", "sub-layers")):
            grid = case.grids[name]
            assert grid.null is not None
            for site, value, even in zip(grid.columns, grid.values[0], np.asarray(grid.null[0]), strict=True):
                at = grid.columns.index(site)
                low, high = (None if end is None else float(end[0, at]) for end in (grid.low, grid.high))
                ends = bounds(low, high, write=_tenth)
                rows.append((case.model, told, str(site), per_cent(float(value)), ends, per_cent(float(even))))
    return rows
