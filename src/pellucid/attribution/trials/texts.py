"""The texts that attributions are tried on: sentences with at least two tokens, in batches of about one length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.errors import AttributionError

if TYPE_CHECKING:
    from pellucid.corpus import Corpus, Sentence
    from pellucid.model import Batch, Model
    from pellucid.model.sites import Site

FEWEST = 2
"""Tokens that can be removed: fewer have no order."""
_TOKENS = 768
"""Tokens of a batch of texts, padding included."""
_STRETCH = 1.6
"""How many times the shortest text of a batch the longest may be: padding costs time."""
SKIPPED: tuple[str, str] = ("with fewer than two tokens", "longer than the model takes")


@dataclass(frozen=True, eq=False)
class Texts:
    """Sentences that can be used, with how many tokens of each can be removed; the others are counted by reason."""

    sentences: tuple[Sentence, ...]
    tokens: tuple[int, ...]
    lengths: tuple[int, ...]
    skipped: dict[str, int]

    @property
    def documents(self) -> list[str]:
        """The document of every sentence."""
        return [sentence.document for sentence in self.sentences]

    def batches(self) -> list[list[int]]:
        """Numbers of the sentences of each batch: those of about the same length, pairs apart."""
        order = sorted(range(len(self.sentences)), key=lambda at: (_form(self.sentences[at]), self.lengths[at], at))
        found: list[list[int]] = []
        for at in order:
            last = found[-1] if found else []
            shortest = self.lengths[last[0]] if last else 0
            fits = (len(last) + 1) * self.lengths[at] <= _TOKENS and self.lengths[at] <= _STRETCH * shortest
            if last and fits and _form(self.sentences[last[0]]) == _form(self.sentences[at]):
                last.append(at)
            else:
                found.append([at])
        return found


def usable(model: Model, corpus: Corpus, most: int | None, *, special: bool) -> Texts:
    """The first `most` sentences of a corpus of which tokens can be removed one after the other."""
    sentences: list[Sentence] = []
    tokens: list[int] = []
    lengths: list[int] = []
    skipped: dict[str, int] = dict.fromkeys(SKIPPED, 0)
    for sentence in corpus:
        if most is not None and len(sentences) == most:
            break
        if _too_long(model, sentence):
            skipped[SKIPPED[1]] += 1
            continue
        batch = tokenized(model, [sentence])
        count = int(sum(int(mask.sum()) for mask in removable(model, batch, special=special).values()))
        if count < FEWEST:
            skipped[SKIPPED[0]] += 1
            continue
        sentences.append(sentence)
        tokens.append(count)
        lengths.append(batch.ids.shape[1])
    if not sentences:
        told = " and ".join(f"{count} {why}" for why, count in skipped.items() if count) or "it has none"
        raise AttributionError(
            f"No sentence of {corpus.name} can be used to try attributions on ({told}); give sentences of two or more "
            "tokens that fit into the model."
        )
    return Texts(tuple(sentences), tuple(tokens), tuple(lengths), skipped)


def tokenized(model: Model, sentences: Sequence[Sentence]) -> Batch:
    """Sentences of one form as a batch."""
    form = _form(sentences[0])
    others = [each.second.text for each in sentences if each.second is not None]
    config: Any = getattr(model.hf, "config", None)
    writes = form == "with a translation" and bool(getattr(config, "is_encoder_decoder", False))
    return model.tokenize(
        [sentence.text for sentence in sentences],
        others if form == "pair" else None,
        target=others if writes else None,
    )


def removable(model: Model, batch: Batch, *, special: bool) -> dict[Site, Tensor]:
    """Which tokens [B, T] of each input may be removed: real ones; special ones only where asked for.

    What a decoder begins with counts as special.
    """
    found: dict[Site, Tensor] = {}
    for site in model.sites:
        if site.kind != "embed":
            continue
        if site.stack == "decoder" and batch.target_mask is not None:
            real = batch.target_mask.bool().cpu()
            marks = torch.zeros_like(real)
            marks[:, 0] = True
        else:
            real, marks = batch.mask.bool().cpu(), batch.special.cpu()
        found[site] = real if special else real & ~marks
    return found


def _form(sentence: Sentence) -> str:
    if sentence.second is None:
        return "alone"
    return "pair" if sentence.joint else "with a translation"


def _too_long(model: Model, sentence: Sentence) -> bool:
    if model.limit is None or model.tokenizer is None:
        return False
    second = sentence.second
    texts = [(sentence.text, second.text if second is not None and sentence.joint else None)]
    if second is not None and not sentence.joint:
        texts.append((second.text, None))
    return any(len(model.tokenizer(*each, verbose=False)["input_ids"]) > model.limit for each in texts)
