"""Linear regression of one side on the other, from moments."""

from __future__ import annotations

import torch

from pellucid.similarity import nulls
from pellucid.similarity.metrics import Metric, register
from pellucid.similarity.pair import Pair


def regression(pair: Pair) -> float:
    """R² of the right side given the left one: ‖W_xᵀ·C‖²/tr S_y, the share of its variance that is explained."""
    rank = pair.left.rank
    if not rank or pair.right.norm_sum <= 0:
        return 0.0
    explained = torch.from_numpy(pair.left.whitening(rank)).T @ torch.from_numpy(pair.cross)
    return float(explained.square_().sum() / pair.right.norm_sum)


def _null(pair: Pair) -> nulls.Null:
    return nulls.explained(pair) if pair.left.rank and pair.right.norm_sum > 0 else nulls.Null(0.0, 0.0)


REGRESSION = register(
    Metric(
        name="regression",
        about="share of the right side's variance that a linear map of the left side explains",
        needs="moments",
        score=regression,
        null=_null,
        symmetric=False,
        whole=True,
    )
)
REGRESSION_BACK = register(
    Metric(
        name="regression-back",
        about="share of the left side's variance that a linear map of the right side explains",
        needs="moments",
        score=lambda pair: regression(pair.swapped()),
        null=lambda pair: _null(pair.swapped()),
        symmetric=False,
        whole=True,
    )
)
