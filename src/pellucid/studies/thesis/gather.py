"""What the study reads: the validation text as it runs, laid in columns, and every layer of a checkpoint over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pellucid.model import Batch, Model
from pellucid.studies.thesis.words import Grouping
from pellucid.uncertainty import GROUPS

if TYPE_CHECKING:
    from pellucid.corpus import Corpus

Array = np.ndarray[Any, Any]
_AT_ONCE = {"cpu": 64, "cuda": 512}
"""Rows of `length` tokens that a network reads at once."""


@dataclass(frozen=True, eq=False)
class Running:
    """A text as it runs: token ids [N], which of them are no words of the text, and the group of documents of each."""

    ids: Array
    special: Array
    groups: Array


def running_text(corpus: Corpus, tokenizer: Any) -> Running:
    """All sentences one behind the other, as training reads them, in up to 10 groups of whole documents.

    Groups are stretches of text of about the same length, so that neighbouring documents, which are often parts of one
    article, mostly share theirs.
    """
    from pellucid.train.tasks.encode import encoded, own

    ids: list[int] = []
    special: list[int] = []
    documents: list[int] = []
    number, current = -1, None
    for sentence, encoding in encoded(own(tokenizer), corpus, lambda each: each.text):
        if sentence.document != current:
            number, current = number + 1, sentence.document
        ids += encoding.ids
        special += encoding.special_tokens_mask
        documents += [number] * len(encoding.ids)
    return Running(np.array(ids), np.array(special, dtype=bool), _grouped(np.array(documents)))


def _grouped(documents: Array) -> Array:
    """The group of every token: its document's middle, as a share of the text, tells in which tenth it lies."""
    _, first, sizes = np.unique(documents, return_index=True, return_counts=True)
    tenth = ((first + sizes / 2) / len(documents) * GROUPS).astype(int)
    return tenth[documents]


def grouping_of(text: Running, places: Array, sample: int, seed: int) -> tuple[Grouping, Array]:
    """The words among some places [rows, columns] of a text: their groups, and where each stands in the flat array.

    Words come in the order of the text, so that those of a group stand together; `sample` of them are drawn.
    """
    flat = places.ravel()
    order = np.argsort(flat, kind="stable")
    order = order[~text.special[flat[order]]]
    _, groups = np.unique(text.groups[flat[order]], return_inverse=True)
    drawn = np.random.default_rng(seed).choice(len(order), min(sample, len(order)), replace=False)
    return Grouping(groups, np.sort(drawn)), order


class Reader:
    """Reads every layer of networks of one architecture; only the weights are exchanged from one to the next."""

    def __init__(self, folder: Path, *, device: str | torch.device | None) -> None:
        self.model = Model.load(folder, device=device)
        self.sites = [str(site) for site in self.model.sites if site.kind == "resid" and site.layer]

    @property
    def tokenizer(self) -> Any:
        """The vocabulary that the networks share."""
        return self.model.tokenizer

    def load(self, folder: Path) -> None:
        """Takes the weights of another checkpoint."""
        from safetensors.torch import load_file

        network: Any = self.model.hf
        lacking, unknown = network.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
        tied = set(getattr(network, "all_tied_weights_keys", None) or ())
        assert not unknown and not set(lacking) - tied, "a checkpoint of another architecture"

    def take(self, network: Any) -> None:
        """Takes the weights of a network at hand."""
        self.model.hf.load_state_dict(network.state_dict())

    def layers(self, ids: Tensor, length: int) -> list[Tensor]:
        """What stands behind each block, [rows, columns, width], for ids [rows, columns] read `length` rows at a time.

        Each column is a text of its own; a network sees `length` tokens of it and nothing before them.
        """
        rows, columns = ids.shape
        windows = rows // length
        texts = ids.view(windows, length, columns).transpose(1, 2).reshape(-1, length)
        step = _AT_ONCE.get(self.model.device.type, 64)
        parts: list[list[Tensor]] = [[] for _ in self.sites]
        for start in range(0, len(texts), step):
            run = self.model.run(Batch.of_ids(texts[start : start + step]), self.sites, logits=False)
            for part, site in zip(parts, self.sites, strict=True):
                part.append(run[site].float())
        return [_laid(part, windows, columns) for part in parts]


def _laid(parts: Sequence[Tensor], windows: int, columns: int) -> Tensor:
    """Texts [windows · columns, length, width] as rows down the columns, [rows, columns, width]."""
    whole = torch.cat(list(parts))
    length, width = whole.shape[1:]
    return whole.view(windows, columns, length, width).transpose(1, 2).reshape(windows * length, columns, width)
