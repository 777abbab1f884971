"""Where relevance stays on its way back to the input: a ledger of what biases, positions and rules keep."""

from __future__ import annotations

import torch
from torch import Tensor

BIASES = "biases"
CONSTANTS = "positions and other constants"
SOFTMAX = "softmax"
STABILISER = "stabiliser"
UNSHARED = "nothing to share"
KEEPERS = {
    BIASES: "biases of linear layers and normalisations",
    CONSTANTS: "numbers added that do not depend on the tokens: position and type embeddings, position biases",
    SOFTMAX: "the constant of the softmax's first-order expansion (AttnLRP)",
    STABILISER: "the small number that keeps the epsilon rule from dividing by zero",
    UNSHARED: "outputs none of whose inputs has a part in them, such as a bias on zeros (Voita)",
}
"""Everything that may keep relevance, in words."""


class Ledger:
    """Relevance kept, by keeper and text: filled by the backward pass of one target, then handed over.

    Tensors of a pass have the texts (or the tokens or heads of one text after the other) on their first axis; those of
    `time_first` models may have the texts on the second.
    """

    def __init__(self, rows: int, *, time_first: bool = False) -> None:
        self._rows, self._time_first = rows, time_first
        self._kept: dict[str, Tensor] = {}

    def keep(self, keeper: str, amount: Tensor) -> None:
        """Books an amount; what is of no text in particular is booked nowhere, and told as unaccounted for."""
        if self._time_first and amount.dim() > 2 and amount.shape[1] == self._rows != amount.shape[0]:
            amount = amount.transpose(0, 1)
        if amount.shape[0] % self._rows:
            return
        total = amount.reshape(self._rows, -1).sum(dim=1, dtype=torch.float64).cpu()
        self._kept[keeper] = self._kept.get(keeper, 0) + total

    def taken(self) -> dict[str, Tensor]:
        """What one backward pass booked, [B] by keeper; the ledger is empty afterwards."""
        kept, self._kept = self._kept, {}
        return {keeper: kept[keeper] for keeper in KEEPERS if keeper in kept}


def times(slope: Tensor, value: Tensor | float) -> Tensor:
    """Their product, which is 0 wherever the slope is, so that masked scores of −∞ count nothing."""
    product = slope * value
    return torch.where(slope == 0, torch.zeros_like(product), product)
