"""A model as tasks call a network: every call is `Model.run`, and generation `Model.generate`, under the same edits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.errors import ModelError
from pellucid.model import Batch

if TYPE_CHECKING:
    from pellucid.model import Edit, Model, Run
    from pellucid.model.starting import Start


class Passing:
    """Looks like the network of a model, and runs it under edits; `last` is the run of the latest pass.

    The network stays as it is: it is opened without dropout, and nothing here switches it on.
    """

    def __init__(
        self,
        model: Model,
        edits: Edit | Iterable[Edit] = (),
        *,
        gradients: bool = False,
        sites: Sequence[Any] = (),
        start: Start | None = None,
    ) -> None:
        self.model, self.gradients, self.sites, self.start = model, gradients, tuple(sites), start
        self.edits = list(edits) if isinstance(edits, Iterable) else [edits]
        self.config: Any = model.hf.config
        self.training = False
        self.last: Run | None = None

    def __call__(self, **inputs: Any) -> Any:
        """The model's output for a batch as tasks make it."""
        batch = self.batch(inputs)
        self.last = self.model.run(batch, self.sites, self.edits, gradients=self.gradients, start=self.start)
        return self.last.output

    def batch(self, inputs: dict[str, Any]) -> Batch:
        """The keyword arguments of a network as a `Batch`; what the decoder reads is real up to its end."""
        targets: Any = inputs.get("decoder_input_ids")
        written: Tensor | None = None
        if targets is not None:
            ended: Tensor = targets == self.model.tokenizer.eos_token_id  # nothing is written after the end
            real = (targets != self.config.pad_token_id) & ~ended
            real[:, 0] = True  # the token that starts a translation may be one of the two
            written = real.long()
        return Batch.of_ids(
            inputs["input_ids"],
            inputs.get("attention_mask"),
            types=inputs.get("token_type_ids"),
            target_ids=targets,
            target_mask=written,
        )

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """What the decoder reads for these goals, by the network's own rule."""
        hf: Any = self.model.hf
        if not hasattr(hf, "prepare_decoder_input_ids_from_labels"):
            raise ModelError(f"{type(hf).__name__} does not say what its decoder reads for a translation.")
        return hf.prepare_decoder_input_ids_from_labels(labels=labels)

    def generate(self, *, input_ids: Tensor, attention_mask: Tensor, generation_config: Any) -> Tensor:
        """The tokens [B, N] that the decoder writes, each the likeliest; at most as many as the model has places."""
        start = torch.full_like(input_ids[:, :1], generation_config.decoder_start_token_id)
        most = generation_config.max_new_tokens
        limit = self.model.limit
        made = self.model.generate(
            Batch.of_ids(input_ids, attention_mask, target_ids=start),
            max_new_tokens=most if limit is None else min(most, limit - 1),
            edits=self.edits,
        )
        return made.ids

    def eval(self) -> Passing:
        """Nothing: passes are always without dropout."""
        return self

    def train(self, mode: bool = True) -> Passing:
        """Nothing: passes are always without dropout."""
        return self
