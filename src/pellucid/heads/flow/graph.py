"""Attention as a graph of layers: rollout, which follows it, and maximum flow through it (Abnar & Zuidema 2020).

Mixing at a layer is Ā = (1 − r)·A + r·I: the mean A of its heads, and the residual stream, which carries each token on,
with the share r = ½. All functions take patterns [layers, tokens, tokens], the mean over the heads of every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import ModelError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = np.ndarray[Any, Any]

RESIDUAL = 0.5
"""The residual stream's share of a layer."""
SCALE = 2**30
"""Capacities are whole numbers of so many parts, as the algorithm wants them."""
WORK = 4_000_000_000
"""Edges looked at, summed over all flows, beyond which a text is refused: some minutes."""


def mixed(patterns: Array, *, residual: float = RESIDUAL) -> Array:
    """Ā = (1 − r)·A + r·I for every layer, in the shape of the patterns."""
    if not 0 <= residual <= 1:
        raise ModelError(f"The residual stream's share is from 0 to 1, and residual={residual} was given.")
    return (1 - residual) * patterns.astype(np.float64) + residual * np.eye(patterns.shape[-1])


def rollout(patterns: Array, *, residual: float = RESIDUAL) -> Array:
    """Ā_l·…·Ā_0 for every layer l: [layers, token, input token], rows sum to one where those of the patterns do."""
    layers = mixed(patterns, residual=residual)
    found = np.empty_like(layers)
    found[0] = layers[0]
    for number in range(1, len(layers)):
        found[number] = layers[number] @ found[number - 1]
    return found


def attention_flow(
    patterns: Array, *, positions: Sequence[int] | None = None, residual: float = RESIDUAL
) -> tuple[Array, float]:
    """The largest flow from a token after every layer to each input token, [layers, positions, input token].

    An edge leads from token i after a layer to token j before it, with the capacity Ā_ij. Capacities are rounded to
    `SCALE` parts; the second number bounds what that can change in a flow: half a part for each edge.
    """
    layers, tokens, _ = patterns.shape
    asked = list(range(tokens)) if positions is None else list(positions)
    check_work(layers, tokens, len(asked))
    capacities = np.rint(mixed(patterns, residual=residual) * SCALE).astype(np.int32)
    found = np.empty((layers, len(asked), tokens))
    found[0] = capacities[0][asked]  # one layer: the edge itself
    for depth in range(2, layers + 1):
        graph = _graph(capacities[:depth])
        found[depth - 1] = [_flows(graph, depth * tokens + token, tokens) for token in asked]
    return found / SCALE, 0.5 * float(np.count_nonzero(capacities)) / SCALE


def check_work(layers: int, tokens: int, positions: int) -> None:
    """Raises where the flows of a text would take too long."""
    flows = layers * positions * tokens
    work = flows * tokens**2 * (layers + 1) / 2
    if work > WORK:
        raise ModelError(
            f"Attention flow of {tokens} tokens through {layers} layers at {positions} positions takes {flows:,} "
            f"maximum flows through up to {layers * tokens**2:,} edges, which is too long; give fewer positions or a "
            "shorter text, or use rollout."
        )


def _graph(capacities: Array) -> csr_array[Any]:
    """The edges of some layers; token i before layer l is node l·tokens + i, and what leaves a layer goes below it."""
    from scipy.sparse import csr_array

    layer, token, source = np.nonzero(capacities)
    tokens = capacities.shape[-1]
    nodes = (len(capacities) + 1) * tokens
    rows, columns = (layer + 1) * tokens + token, layer * tokens + source
    return csr_array((capacities[layer, token, source], (rows, columns)), shape=(nodes, nodes))


def _flows(graph: csr_array[Any], start: int, tokens: int) -> list[int]:
    """The largest flow from one node to each of the input's."""
    from scipy.sparse.csgraph import maximum_flow

    return [maximum_flow(graph, start, token).flow_value for token in range(tokens)]
