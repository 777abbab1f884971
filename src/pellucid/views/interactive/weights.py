"""One layer's attention made ready for a page: coded, thinned where asked, measured and deflated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pellucid.errors import ModelError, PellucidError
from pellucid.views.interactive.payload import STEPS, Bytes, Chunk, codes, strips, tiles

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Coded:
    """Codes of a layer's weights [H, queries, keys] and of the mass that was dropped from each row [H, queries]."""

    weights: Bytes
    dropped: Bytes

    def thumbnails(self, side: int) -> Bytes:
        """The largest code of each tile, [H, side, side]."""
        return tiles(self.weights, side)

    def head(self, number: int, *, causal: bool, rows: int) -> list[Chunk]:
        """One head's chunks."""
        return strips(self.weights[number], self.dropped[number], causal=causal, rows=rows)


def check_quality(quality: float) -> None:
    """Raises for a share that is none."""
    if isinstance(quality, bool) or not isinstance(quality, (int, float)) or not 0 < quality <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PellucidError(
            f"quality={quality!r} is the share of each row's attention to keep: use a number above 0 and at most 1."
        )


def checked(pattern: Tensor, where: str, *, causal: bool) -> Tensor:
    """A recorded pattern [1, H, queries, keys] as [H, queries, keys]; numbers that are none are named by head."""
    import torch

    weights = pattern[0]
    totals = weights.sum(dim=(1, 2))
    if not bool(torch.isfinite(totals).all()):
        head = int((~torch.isfinite(totals)).nonzero()[0, 0])
        raise ModelError(
            f"Head {head} of {where} has attention that is not a number (NaN or infinite) on this text; run the model "
            "in float32."
        )
    if causal and any(bool(head.triu(1).any()) for head in weights):
        raise ModelError(f"{where} looks at later tokens, though its model was taken to be causal; please report this.")
    return weights


def coded(weights: Tensor, quality: float = 1.0) -> Coded:
    """Weights [H, queries, keys] as bytes; of each row, only what is needed for `quality` of its total.

    The smallest weights go first, all of one code together, as long as their sum stays within 1 − quality of the row's
    total; that sum is kept, in the same code.
    """
    import torch

    bytes_ = codes(weights)
    heads, queries, _ = weights.shape
    if quality >= 1:
        return Coded(bytes_.cpu().numpy(), np.zeros((heads, queries), np.uint8))
    lost = torch.zeros(heads, queries, dtype=torch.float64)
    for head in range(heads):
        rows = weights[head].double()
        place = bytes_[head].long()
        masses = torch.zeros(queries, STEPS + 1, dtype=torch.float64, device=rows.device).scatter_add_(1, place, rows)
        sums = masses.cumsum(1)
        gone = sums <= (1 - quality) * sums[:, -1:]  # whole codes, from the smallest up
        lowest = gone.sum(1)
        bytes_[head].masked_fill_(place < lowest[:, None], 0)
        lost[head] = (masses * gone).sum(1).cpu()
    return Coded(bytes_.cpu().numpy(), codes(lost).numpy())
