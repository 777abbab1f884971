"""Attributions put together by hand, of any size, for figures and views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pellucid.attribution import Attribution
from pellucid.results import Provenance, Table

WORDS = ("<s>", " the", " script", " was", " fi", "ne", " but", " dull", ".", "</s>")


def attribution(
    values: np.ndarray,
    *,
    measures: Sequence[str] = ("integrated_gradients",),
    targets: Sequence[str] = ("negative",),
    places: Sequence[str] = ("embed",),
    tokens: Sequence[str] = WORDS,
    by: str = "site",
    side: Sequence[str] | None = None,
) -> Attribution:
    """A result with these numbers [measure, target, place, token]."""
    scores = np.arange(1.0, len(targets) + 1)
    special = np.array([token.startswith("<") for token in tokens])
    space = np.array([at > 0 and token.startswith(" ") for at, token in enumerate(tokens)])
    return Attribution(
        axes={
            "measure": tuple(measures),
            "target": tuple(targets),
            "place": tuple(places),
            "token": tuple(f"{at} {token}" for at, token in enumerate(tokens)),
        },
        values=values,
        null=None,
        low=None,
        high=None,
        resampled="no interval: made by hand",
        provenance=Provenance(
            "attribution.attribute",
            {"by": by, "baseline": "zero", "rule": "gauss", "steps": 25, "precision": "float32"},
            ({"name": "by-hand", "fingerprint": "0"},),
            {"text": "".join(tokens).strip()},
        ),
        tables={
            "tokens": Table.of_rows(
                {
                    "token": np.array(tokens),
                    "special": special,
                    "space": space,
                    "side": np.array(side or ["text"] * len(tokens)),
                }
            ),
            "targets": Table.of_rows(
                {"target": list(targets), "score": scores, "baseline": 0 * scores, "change": scores}
            ),
            "completeness": Table.of_rows(
                {
                    "measure": ["integrated_gradients"],
                    "target": [targets[0]],
                    "place": [places[0]],
                    "sum": [0.5],
                    "change": [0.512],
                    "relative error": [0.023],
                }
            ),
        },
    )


def drawn(measures: int = 1, targets: int = 1, places: int = 1, tokens: int = 10, **options: object) -> Attribution:
    """A result of some size with numbers drawn at random; tokens beyond those of the sentence are numbered words."""
    names = ("integrated_gradients", "saliency", "conductance")[:measures]
    values = np.random.default_rng([measures, targets, places, tokens]).normal(size=(measures, targets, places, tokens))
    for at, name in enumerate(names):
        if name == "saliency":
            values[at] = np.abs(values[at])
    words = [*WORDS, *(f" word{at}" for at in range(len(WORDS), tokens))][:tokens]
    given = {"places": [f"resid.{at}" for at in range(places)] if places > 1 else ["embed"], **options}
    return attribution(values, measures=names, targets=[f"class {at}" for at in range(targets)], tokens=words, **given)  # type: ignore[arg-type]


def with_interval(result: Attribution, width: float) -> Attribution:
    return replace(result, low=result.values - width, high=result.values + width, resampled="draws (95%)")


def with_control(result: Attribution) -> Attribution:
    tables = {**result.tables, "random model": Table(result.axes, {"value": -3 * result.values})}
    return replace(result, tables=tables)
