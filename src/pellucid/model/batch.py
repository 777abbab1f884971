"""Batches: the tokens that one pass runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pellucid.errors import TextError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """Token ids [B, T], which of them are real and which are special; for encoder–decoders also the decoder's.

    `types` are segment ids of sentence pairs, for models that use them.
    """

    ids: Tensor
    mask: Tensor
    special: Tensor
    types: Tensor | None = None
    target_ids: Tensor | None = None
    target_mask: Tensor | None = None

    @classmethod
    def of_ids(
        cls,
        ids: Tensor | Sequence[Sequence[int]],
        mask: Tensor | None = None,
        *,
        special: Tensor | None = None,
        types: Tensor | None = None,
        target_ids: Tensor | None = None,
        target_mask: Tensor | None = None,
    ) -> Batch:
        """A batch of ready token ids; every token counts as real unless a mask [B, T] of 0 and 1 says otherwise."""
        import torch

        ids = torch.as_tensor(ids)
        if ids.dim() != 2 or ids.numel() == 0:
            raise TextError(
                f"Token ids must be a matrix [sequences, tokens] with at least one token; got shape {tuple(ids.shape)}."
            )
        mask = torch.ones_like(ids) if mask is None else mask
        if mask.shape != ids.shape:
            raise TextError(
                f"The mask has shape {tuple(mask.shape)} and the ids {tuple(ids.shape)}; they must be equal."
            )
        special = torch.zeros_like(ids, dtype=torch.bool) if special is None else special.bool()
        if target_ids is not None and target_mask is None:
            target_mask = torch.ones_like(target_ids)
        return cls(ids, mask, special, types, target_ids, target_mask)

    @property
    def size(self) -> int:
        """Sequences in the batch."""
        return self.ids.shape[0]

    @property
    def tokens(self) -> int:
        """Real tokens in the batch."""
        return int(self.mask.sum())

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        moved = {name: value.to(device) for name, value in vars(self).items() if value is not None}
        return replace(self, **moved)

    def inputs(self, accepted: frozenset[str], *, causal: bool) -> dict[str, Tensor]:
        """The model's keyword arguments, of those it accepts.

        For causal models a batch padded on the left brings its own positions, so that padding changes nothing for the
        real tokens. (Others number positions from the left edge or from the first real token: that is theirs to say.)
        """
        inputs: dict[str, Any] = {"input_ids": self.ids, "attention_mask": self.mask}
        if self.types is not None and "token_type_ids" in accepted:
            inputs["token_type_ids"] = self.types
        if self.target_ids is not None:
            inputs.update(decoder_input_ids=self.target_ids, decoder_attention_mask=self.target_mask)
        elif causal and "position_ids" in accepted and not bool(self.mask[:, 0].all()):
            inputs["position_ids"] = (self.mask.cumsum(dim=1) - 1).clamp(min=0)
        return inputs
