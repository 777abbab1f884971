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

    `types` are segment ids of sentence pairs, for models that use them. In a sweep, `word_index` [B, T] holds the word
    of every token (−1 for none) and `counted` [B, T] marks the tokens that statistics count; where the target is what
    is looked at, both speak of the decoder's tokens.
    """

    ids: Tensor
    mask: Tensor
    special: Tensor
    types: Tensor | None = None
    target_ids: Tensor | None = None
    target_mask: Tensor | None = None
    word_index: Tensor | None = None
    counted: Tensor | None = None

    @classmethod
    def of_ids(
        cls,
        ids: Tensor | Sequence[Sequence[int]],
        mask: Tensor | Sequence[Sequence[int]] | None = None,
        *,
        special: Tensor | None = None,
        types: Tensor | None = None,
        target_ids: Tensor | Sequence[Sequence[int]] | None = None,
        target_mask: Tensor | Sequence[Sequence[int]] | None = None,
    ) -> Batch:
        """A batch of ready token ids; every token counts as real unless a mask [B, T] of 0 and 1 says otherwise."""
        import torch

        ids = _matrix(ids, "Token ids")
        mask = torch.ones_like(ids) if mask is None else _matrix(mask, "The mask")
        if mask.shape != ids.shape:
            raise TextError(
                f"The mask has shape {tuple(mask.shape)} and the ids {tuple(ids.shape)}; they must be equal."
            )
        for name, given in (("special", special), ("types", types)):
            if given is not None and given.shape != ids.shape:
                raise TextError(
                    f"{name} has shape {tuple(given.shape)} and the ids {tuple(ids.shape)}; they must be equal."
                )
        special = torch.zeros_like(ids, dtype=torch.bool) if special is None else special.bool()
        if target_ids is None:
            return cls(ids, mask, special, types)
        targets = _matrix(target_ids, "Target ids")
        target_mask = torch.ones_like(targets) if target_mask is None else _matrix(target_mask, "The target mask")
        if targets.shape[0] != ids.shape[0] or target_mask.shape != targets.shape:
            raise TextError(
                f"Target ids {tuple(targets.shape)} and their mask {tuple(target_mask.shape)} do not fit "
                f"{ids.shape[0]} texts."
            )
        return cls(ids, mask, special, types, targets, target_mask)

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

    def repeated(self, count: int) -> Batch:
        """All sequences `count` times, one repetition after the other."""
        made = {name: value.repeat(count, 1) for name, value in vars(self).items() if value is not None}
        return replace(self, **made)

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


def _matrix(values: Tensor | Sequence[Sequence[int]], what: str) -> Tensor:
    """Whole numbers as a matrix [sequences, tokens]."""
    import torch

    try:
        matrix = torch.as_tensor(values)
    except (ValueError, TypeError) as error:
        raise TextError(f"{what} must be a matrix of whole numbers, every row of one length ({error}).") from None
    if what.endswith("ids") and matrix.is_floating_point():
        raise TextError(f"{what} must be whole numbers, not {matrix.dtype}.")
    if matrix.dim() != 2 or matrix.numel() == 0:
        shape = tuple(matrix.shape)
        raise TextError(f"{what} must be a matrix [sequences, tokens] with at least one token; got shape {shape}.")
    return matrix
