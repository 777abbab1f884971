"""What stands on a still figure: its texts, boxes and curves."""

from __future__ import annotations

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from tests.views.interactive.payload_by_hand import attention_view

TEXT = ["[CLS]", "the", "old", "dog", "sleeps", "$x^2$", "[SEP]"]
FACTS = {"special": [0, 6], "sinks": [3]}
STATISTICS = {"statistics": {"entropy": "How spread out.", "distance": "How far."}}


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def said(figure) -> str:
    return " ".join(texts(figure))


def curves(figure) -> list[PathCollection]:
    return [each for each in figure.axes[0].collections if isinstance(each, PathCollection)]


def boxes(figure, colour: str) -> list[Rectangle]:
    return [each for each in figure.axes[0].patches if each.get_fill() and to_hex(each.get_facecolor()) == colour]


def weights_of(codes) -> np.ndarray:
    return (np.asarray(codes, float) / 255) ** 2


def heads_view(**state):
    """Three heads of two layers on seven tokens, with their codes and dropped codes."""
    view, codes, dropped = attention_view(TEXT, layers=2, heads=3, changes=FACTS, mode="heads")
    return view.with_state(**state), codes, dropped
