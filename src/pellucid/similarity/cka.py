"""Centred kernel alignment with linear kernels, from moments (Kornblith et al. 2019; Song et al. 2012)."""

from __future__ import annotations

import numpy as np

from pellucid.similarity import nulls
from pellucid.similarity.metrics import Metric, register
from pellucid.similarity.pair import Pair


def biased_cka(pair: Pair) -> float:
    """‖C‖² / (‖S_x‖·‖S_y‖)."""
    return ratio(pair.power, pair.left.power, pair.right.power)


def debiased_cka(pair: Pair) -> float:
    """h_xy/√(h_xx·h_yy), each h an unbiased estimate of what is left when the rows' own share is taken out.

    h_xy = ‖C‖² − n/(n−2)·Σk·l + (Σk)(Σl)/((n−1)(n−2)), exact for centred rows; it may be negative.
    """
    return ratio(
        unbiased(pair.n, pair.power, pair.norm_products, pair.left.norm_sum * pair.right.norm_sum),
        unbiased(pair.n, pair.left.power, pair.left.norm_squares, pair.left.norm_sum**2),
        unbiased(pair.n, pair.right.power, pair.right.norm_squares, pair.right.norm_sum**2),
    )


def unbiased(n: int, power: float, products: float, sums: float) -> float:
    """n(n−3) times the unbiased HSIC: ‖C‖² without the terms in which a row meets itself."""
    return power - n / (n - 2) * products + sums / ((n - 1) * (n - 2))


def ratio(both: float, left: float, right: float) -> float:
    """both/√(left·right); 0 where a side has nothing to compare (constant rows)."""
    return float(both / np.sqrt(left * right)) if left > 0 and right > 0 else 0.0


def _biased_null(pair: Pair) -> nulls.Null:
    if not (pair.left.power > 0 and pair.right.power > 0):
        return nulls.Null(0.0, 0.0)
    return nulls.biased_cka(pair.n, *nulls.kernels(pair))


CKA = register(
    Metric(
        name="cka",
        about="debiased linear CKA: share of the similarity structure in common, 1 for the same up to rotation and "
        "scale, about 0 by chance",
        needs="moments",
        score=debiased_cka,
        null=lambda pair: nulls.debiased(pair.n),
        cheap=True,
    )
)
BIASED = register(
    Metric(
        name="cka-biased",
        about="linear CKA as first published; grows with the number of features over the number of words",
        needs="moments",
        score=biased_cka,
        null=_biased_null,
        cheap=True,
    )
)
