"""The numbers that the thesis prints, with where they stand.

Favia, A.: SVCCA and CKA for Transformer Interpretability in Language Models. Master's thesis, Tilburg University.
"""

from __future__ import annotations

from dataclasses import dataclass

TITLE = "SVCCA and CKA for Transformer Interpretability in Language Models (A. Favia, Tilburg University)"


@dataclass(frozen=True)
class Printed:
    """A number in print, and where it stands."""

    value: float
    where: str


ACCURACY = Printed(0.932, "section 4.1.1: the tagger's accuracy on the test text")
PERPLEXITY = Printed(163.8, "section 4.1.2: the language model's perplexity on the test text")

SCORES = {
    "SVCCA": ("thesis-svcca", "svcca"),
    "CKA linear": ("kornblith-cka", "cka"),
    "CKA RBF": ("kornblith-rbf-cka:1", "rbf-cka:1"),
    "CKA RBF .5": ("kornblith-rbf-cka:0.5", "rbf-cka:0.5"),
}
"""The four scores as the thesis calls them: what it computed, and what says the same without bias."""

TABLE_1: dict[str, tuple[float, float]] = {
    "SVCCA": (0.46, 0.44),
    "CKA linear": (0.90, 0.887),
    "CKA RBF": (0.92, 0.91),
    "CKA RBF .5": (0.85, 0.889),
}
"""Table 1: layers 1 and 2 of the trained tagger against the same layer of the trained language model."""

TABLE_2: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "SVCCA": ((0.46, 0.45), (0.45, 0.44)),
    "CKA linear": ((0.90, 0.92), (0.80, 0.88)),
    "CKA RBF": ((0.92, 0.86), (0.85, 0.91)),
    "CKA RBF .5": ((0.85, 0.73), (0.86, 0.88)),
}
"""Table 2: rows are layers 1 and 2 of the tagger, columns layers 1 and 2 of the language model."""

LOWER = 4
"""Section 4.2, figures 6 and 7: the first 4 layers of the language model are alike, and the last 2."""
SATURATED = 20
"""Section 4.3: tagger and language model are as alike as they will be before this epoch."""

ROWS, COLUMNS, WIDTH, LENGTH = 3104, 64, 240, 32
"""What was compared: batches of [32 tokens, 64 columns, 240 features] one after another, [3104, 64, 240] in all."""
POINTS = COLUMNS * WIDTH
"""Columns of the same array when it is read as a matrix, [3104, 15360]."""
LM_COLUMN, TAGGER_COLUMN = 3377, 3353
"""Section 3.3.3: tokens in each column of the validation text, which both networks did not split alike."""


def printed(score: str, left: int, right: int) -> float | None:
    """The number that table 2 prints for layer `left` of the tagger and `right` of the language model, from 1."""
    if not (1 <= left <= 2 and 1 <= right <= 2):
        return None
    return TABLE_2[score][left - 1][right - 1]


def printed_alone(score: str, layer: int) -> float | None:
    """The number that table 1 prints for one layer of both networks, where it is another than that of table 2."""
    value = TABLE_1[score][layer - 1]
    return None if value == printed(score, layer, layer) else value
