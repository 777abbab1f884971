"""Freezing: layers that no longer change are left as they are while the rest of the network goes on learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from pellucid.errors import TrainError

if TYPE_CHECKING:
    from pellucid.train.dynamics_watching import Watcher

Array = np.ndarray[Any, Any]
_TOKENS = 4
"""Length of the text that shows which parameters a layer depends on."""


@dataclass(frozen=True)
class Freeze:
    """When a layer is frozen: when its last `patience` + 1 looks are all as similar as `threshold` to each other.

    The similarity is debiased linear CKA over the sample that dynamics keep (1: the same up to rotation and scale).
    Layers are frozen from the bottom up, the embeddings with the first block; the last block always goes on learning.
    The look before training does not count: a network that has learned nothing yet may well stand still.
    """

    threshold: float = 0.99
    patience: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise TrainError(f"threshold={self.threshold} is no similarity to reach; give more than 0 and at most 1.")
        if self.patience < 1:
            raise TrainError(f"patience={self.patience} compares nothing; give at least 1 epoch.")


class Freezer:
    """Tells which parameters of a network to freeze after each epoch; the network itself is not changed here.

    It keeps nothing but what each layer depends on: which layers are frozen is seen on the parameters themselves, so
    that a training that goes on after a kill freezes the same. Make it before anything is frozen.
    """

    def __init__(self, freeze: Freeze, network: Any) -> None:
        self.freeze = freeze
        self._weights = dict(network.named_parameters())
        self._below = _dependences(network, self._weights)
        if not self._below:
            raise TrainError(
                "The network has one block, and the last one always goes on learning, so nothing could be frozen; give "
                "it more layers, or no rule for freezing."
            )

    @property
    def sites(self) -> tuple[str, ...]:
        """The layers that may be frozen, from the bottom up: the stream after each block but the last."""
        return tuple(self._below)

    @property
    def layers(self) -> int:
        """How many of them are frozen."""
        frozen = [all(not self._weights[name].requires_grad for name in names) for names in self._below.values()]
        return frozen.index(False) if False in frozen else len(frozen)

    def after(self, epoch: int, watcher: Watcher) -> list[str]:
        """The names of the parameters to freeze from now on, seeing the looks up to this epoch.

        A layer that is not watched (as those of a decoder beside its encoder) is not frozen, nor any above it; and
        none at all while one of the looks that count is missing, as of a training that was not watched at first.
        """
        wanted: list[str] = []
        seen = range(epoch - self.freeze.patience, epoch + 1)
        if seen[0] < 1 or self.layers == len(self._below):
            return wanted
        assert watcher.looks is not None, "this epoch was looked at"
        if not set(seen).issubset(watcher.looks.epochs):
            return wanted
        samples = [watcher.looks.sample(each)[1] for each in seen]
        for site, names in list(self._below.items())[self.layers :]:
            if site not in samples[0].keys or not self._settled([sample.rows(site) for sample in samples]):
                break
            wanted = [name for name in names if self._weights[name].requires_grad]
        return wanted

    def _settled(self, looks: list[Array]) -> bool:
        """Whether all these looks at one layer are alike."""
        from pellucid.similarity.cka import debiased_cka
        from pellucid.similarity.pair import pair_of_rows

        return all(debiased_cka(pair_of_rows(*pair)) >= self.freeze.threshold for pair in combinations(looks, 2))


def _dependences(network: Any, weights: dict[str, torch.nn.Parameter]) -> dict[str, list[str]]:
    """The trained parameters that the stream after each block depends on, by site; the last block is left out.

    They are those that get a gradient from it: its own block, all blocks below, the embeddings (with an output layer
    that is tied to them), and in a decoder the whole encoder.
    """
    trained = {name: weight for name, weight in weights.items() if weight.requires_grad}
    device = next(iter(weights.values())).device
    inputs = {"input_ids": torch.ones(1, _TOKENS, dtype=torch.long, device=device)}
    if network.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.enable_grad():
        output = network(**inputs, output_hidden_states=True)
    streams = _streams(output, encoder_decoder=network.config.is_encoder_decoder)
    found: dict[str, list[str]] = {}
    for site, stream in list(streams.items())[:-1]:
        gradients = cast(
            "Sequence[torch.Tensor | None]",
            torch.autograd.grad(stream.sum(), list(trained.values()), retain_graph=True, allow_unused=True),
        )
        found[site] = [name for name, gradient in zip(trained, gradients, strict=True) if gradient is not None]
    return found


def _streams(output: Any, *, encoder_decoder: bool) -> dict[str, torch.Tensor]:
    """The stream after every block, by site, in the order of computation."""
    if not encoder_decoder:
        return {f"resid.{layer}": stream for layer, stream in enumerate(output.hidden_states) if layer}
    both = {"encoder": output.encoder_hidden_states, "decoder": output.decoder_hidden_states}
    return {
        f"{stack}.resid.{layer}": stream
        for stack, streams in both.items()
        for layer, stream in enumerate(streams)
        if layer
    }
