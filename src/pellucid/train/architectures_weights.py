"""The weights that an untrained network starts with, and those that are part of its design and stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

_SPREAD = 0.1  # published: embeddings and output weights start between −.1 and .1


def sinusoids(length: int, width: int) -> Tensor:
    """The position table of Vaswani et al. 2017, [length, width].

    Entry [p, 2i] is sin(p / 10000^(2i/width)), entry [p, 2i+1] its cosine.
    """
    places = torch.arange(length, dtype=torch.float64)[:, None]
    even = torch.arange(0, width, 2, dtype=torch.float64)
    angles = places / 10_000 ** (even / width)  # [length, ⌈width / 2⌉]
    table = torch.empty(length, width, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles[:, : width // 2].cos()
    return table.float()


def draw_published(network: Any) -> None:
    """Draws embeddings and the output layer within ±.1, as published (its biases are 0).

    What lies between keeps transformers' small normal weights: each block then starts close to the identity, and SGD
    at a learning rate of 5.8 gets going; with PyTorch's wider ones, six blocks with the norm after the sum do not.
    """
    for name, part in network.named_modules():
        if isinstance(part, nn.Embedding) and part.weight.requires_grad and "token_type" not in name:
            nn.init.uniform_(part.weight, -_SPREAD, _SPREAD)
            if part.padding_idx is not None:
                part.weight.data[part.padding_idx].zero_()
    for part in outputs(network):
        nn.init.uniform_(part.weight, -_SPREAD, _SPREAD)


def outputs(network: Any) -> Iterator[nn.Linear]:
    """The last linear layer: over words, labels, or the start and end of an answer."""
    words = network.get_output_embeddings()
    if words is not None:
        yield words
        return
    for name in ("classifier", "score", "qa_outputs"):
        part = getattr(network, name, None)
        if isinstance(part, nn.Linear):
            yield part


def constant(network: Any) -> Iterator[Tensor]:
    """Parameters that are part of the design and not learned; recognised by what they hold, in any precision."""
    embeddings: Any = getattr(getattr(network, "bert", None), "embeddings", None)
    if hasattr(embeddings, "position_embeddings"):
        places = embeddings.position_embeddings.weight
        if torch.allclose(places, positions(places), rtol=1e-3, atol=1e-4):  # it may have been kept in half precision
            yield places
        types = getattr(embeddings, "token_type_embeddings", None)
        if types is not None and not bool(types.weight.any()):
            yield types.weight
    for part in network.modules():
        if "Sinusoidal" in type(part).__name__ and isinstance(part, nn.Embedding):
            yield part.weight
    for projection in output_projections(network):
        if torch.equal(projection, identities(projection)):
            yield projection
    heads: list[Any] = [getattr(network, "lm_head", None), getattr(getattr(network, "cls", None), "predictions", None)]
    for head in heads:
        spare = getattr(head, "bias", None)  # a second name of the decoder's bias; where untied, it does nothing
        if isinstance(spare, nn.Parameter) and hasattr(head, "decoder") and spare is not head.decoder.bias:
            yield spare


def positions(like: Tensor) -> Tensor:
    """The published table divided by √width: the norm after it does what multiplying words by √width did in print."""
    return (sinusoids(*like.shape) / like.shape[1] ** 0.5).to(like)


def output_projections(network: Any) -> Iterator[nn.Parameter]:
    """The weights [d, H·d] that join the heads of a Llama whose heads are as wide as its stream."""
    config = network.config
    if config.model_type == "llama" and config.head_dim == config.hidden_size:
        for name, parameter in network.named_parameters():
            if name.endswith("self_attn.o_proj.weight"):
                yield parameter


def identities(like: Tensor) -> Tensor:
    """Identity matrices side by side, [d, H·d]: times the joined heads, they give the sum of the heads."""
    width, joined = like.shape
    return torch.eye(width, dtype=like.dtype, device=like.device).repeat(1, joined // width)
