"""How queries and keys make attention: products of neurons, their order, and the check against the weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.views.interactive.held import WEIGHT, Floats
from pellucid.views.interactive.payload import Bytes

Array = NDArray[np.float64]


def neurons_by_share(product: Floats) -> NDArray[np.intp]:
    """Neurons by their share of one key's dot product [width]: what makes it first, what works against it last."""
    side = -1 if product.sum(dtype=np.float64) < 0 else 1
    return np.argsort(-side * product, kind="stable")


def softmax(logits: Array, seen: NDArray[np.bool_]) -> Array:
    """Softmax over the keys that are `seen`; the others get 0."""
    if not seen.any():
        return np.zeros(len(logits))
    powers = np.where(seen, np.exp(np.minimum(logits - logits[seen].max(), 0)), 0.0)
    return powers / powers.sum()


@dataclass(frozen=True)
class Check:
    """Whether weights are the softmax of dot products: over all keys, over those with weight ("window"), or neither.

    `difference` is the largest |softmax − weight| over all keys, at the key `key`.
    """

    verdict: str
    difference: float
    key: int


def check_softmax(products: Floats, scale: float, codes: Bytes, dropped: float) -> Check:
    """Compares softmax(scale · Σ products [keys, width]) with weight codes [keys], allowing for rounding.

    Rounding: one step of the code, the dropped mass where the code is 0, and what 16-bit vectors leave in a logit,
    which moves a weight w by at most about 2·w·(1 − w)·error.
    """
    logits = products.sum(axis=1, dtype=np.float64) * scale
    error = float(np.abs(products).sum(axis=1, dtype=np.float64).max()) * abs(scale) * 2.0**-10
    weights = WEIGHT.astype(np.float64)
    whole = codes.astype(np.intp)
    step = weights[np.minimum(255, whole + 1)] - weights[np.minimum(254, whole)]
    allowed = step + np.where(whole == 0, dropped, 0.0) + 1e-4

    def off(seen: NDArray[np.bool_]) -> tuple[Array, bool]:
        expected = softmax(logits, seen)
        apart = np.abs(expected - weights[whole])
        return apart, bool((apart > allowed + 2 * expected * (1 - expected) * error).any())

    apart, beyond = off(np.ones(len(whole), np.bool_))
    verdict = "same" if not beyond else "differs" if off(whole > 0)[1] else "window"
    return Check(verdict, float(apart.max()), int(apart.argmax()))
