"""Texts with some of their tokens removed: what a model's targets score on each, in batches, each set run once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from pellucid.attribution.removal.perturbation import scored
from pellucid.model import Edit

if TYPE_CHECKING:
    from pellucid.attribution.sweep import Asked
    from pellucid.attribution.trials.measures import Array


class Removal:
    """Scores [targets] of a batch's texts with only some tokens left in place; removed ones stand at the baseline.

    A set is a mask [T] over all tokens of a text, those of several inputs one after the other: True stays.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._known: list[dict[bytes, Array]] = [{} for _ in range(asked.batch.size)]
        self._widths = [end.shape[1] for end in asked.end.values()]

    @property
    def size(self) -> int:
        """Tokens of a padded text, all inputs together."""
        return sum(self._widths)

    def run(self, wanted: Sequence[Sequence[Array]]) -> None:
        """Runs the sets wanted for every text that were not run before; texts with fewer wait at their whole."""
        new: list[dict[bytes, Array]] = [
            {mask.tobytes(): mask for mask in masks if mask.tobytes() not in known}
            for masks, known in zip(wanted, self._known, strict=True)
        ]
        kept = np.ones((max(len(sets) for sets in new), len(new), self.size), dtype=bool)
        for text, sets in enumerate(new):
            for place, mask in enumerate(sets.values()):
                kept[place, text] = mask
        asked = self._asked
        scores = scored(
            asked.model,
            asked.batch,
            change=lambda where: self._edits(kept[where]),
            count=len(kept),
            targets=asked.targets,
            memory_limit=asked.memory_limit,
        ).numpy()  # [sets, targets, B]
        for text, sets in enumerate(new):
            for place, key in enumerate(sets):
                self._known[text][key] = scores[place, :, text]

    def of(self, text: int, masks: Sequence[Array]) -> Array:
        """The scores [targets, sets] of a text's sets that were run."""
        return np.stack([self._known[text][mask.tobytes()] for mask in masks], axis=1)

    def _edits(self, kept: Array) -> Iterable[Edit]:
        """The edits that leave these tokens [K, B, T] in place, and put the others at the baseline."""
        masks = torch.from_numpy(kept).split(self._widths, dim=2)
        for (site, end), mask in zip(self._asked.end.items(), masks, strict=True):
            stays = mask[..., None].to(end.device)
            yield Edit.patch(site, torch.where(stays, end[None], self._asked.start[site][None]).flatten(0, 1))
