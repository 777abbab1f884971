"""Classes of few words: left out of a ranking, because the best of many neurons tells them apart by luck."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pellucid.collect.by_value import ByValue
from pellucid.neurons.concepts import OTHER, Concept
from pellucid.neurons.sources import Sites, view_of
from pellucid.results import Table

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.store import Store
    from pellucid.neurons.ranking import Ranking


def words_in_sweep(found: Found, concept: Concept, sites: Sites) -> dict[str, int]:
    """How many words of a sweep every class of a concept has."""
    view, _ = view_of(found, ByValue, concept, sites)
    counts = np.asarray(view.counts)
    return {name: int(counts[list(at)].sum()) for name, at in concept.grouped(view.label, view.values).items()}


def words_in_store(store: Store, concept: Concept) -> dict[str, int]:
    """How many rows of a store every class of a concept has."""
    from pellucid.neurons.store_rows import row_classes

    rows = row_classes(store, concept)
    return {name: int((rows.codes == place).sum()) for place, name in enumerate(rows.classes)}


def without_rare(concept: Concept, words: Mapping[str, int], least: int) -> tuple[Concept, dict[str, int]]:
    """The concept of the classes that have `least` words, and the others with their words.

    It stays as it is where its classes were named, where one class stands beside all other words, or where fewer than
    two would be left.
    """
    rare = {name: count for name, count in words.items() if count < least}
    kept = [name for name in words if name not in rare]
    if not rare or len(kept) < 2 or concept.classes or OTHER in words:
        return concept, {}
    narrow = Concept.label(concept.base or concept.name, classes=kept)
    return replace(narrow, name=f"{concept.name} of {least} words or more"), rare


def noted(ranking: Ranking, rare: Mapping[str, int]) -> Ranking:
    """The ranking with the table `left out`, where classes were."""
    if not rare:
        return ranking
    table = Table({"class": tuple(rare)}, {"words": np.array(list(rare.values()), dtype=np.int64)})
    return replace(ranking, tables={**ranking.tables, "left out": table})


def left_out_told(ranking: Ranking) -> str:
    """Which classes were left out, with their words, in a sentence; empty where none was."""
    table = ranking.tables.get("left out")
    if table is None:
        return ""
    rare = zip(table.axes["class"], table.columns["words"].tolist(), strict=True)
    named = ", ".join(f"{name} ({count})" for name, count in rare)
    return (
        f"Classes left out, of so few words that the best of {len(ranking.neurons):,} neurons is one by luck: {named}. "
        "Name one of them in the concept to rank for it."
    )
