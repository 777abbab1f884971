"""Head frames: what the heads of one batch are measured against, and the measuring of one layer's weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.head_links import Names, Seen, links_of
from pellucid.collect.state import Array
from pellucid.collect.word_weights import WordKeys, WordWeights, word_keys
from pellucid.collect.words import Words, word_labels

ROWS = ("sink", "vertical", "near", "words", "own", "other", "spread")
"""Sums over queries: attention on special tokens and the first position (`sink`), on the most attended place of each
text (`vertical`), on self, previous and next word (`near`), on all `words`, on words of the query's `own` and of the
`other` sentence of a pair; and Σ over texts of (sink − that of uniform attention)² (`spread`)."""


class Frame:
    """The words, links, tags and parts of one batch, for layers whose queries see the same."""

    def __init__(
        self,
        words: Words,
        *,
        causal: bool,
        kinds: Names,
        tags: Names,
        label: str,
        arcs: bool,
        frequent: Mapping[str, int] | None,
        offsets: int,
        reach: int,
    ) -> None:
        self.words, self.keys = words, word_keys(words)
        self.seen = Seen(self.keys, causal)
        self.links = links_of(words, self.seen, kinds, frequent, arcs=arcs, reach=reach)
        self.kinds, self.offsets = len(kinds), offsets
        self.tag = _tags(words, self.keys, label, tags)  # [B, W]
        self.tags = len(tags)
        self.part = _parts(words)
        row = torch.arange(len(words.index))
        self.first = words.index[row, self.keys.first_token]  # the column of the first token, −1 for a special one
        self.at, self.expected = _at_offsets(self.seen, offsets)
        self._here: dict[torch.device, dict[str, Tensor]] = {}
        self.even: Taken | None = None
        self.even = taken(self.keys.evenly(causal), self)

    def on(self, device: torch.device) -> dict[str, Tensor]:
        """The frame's index tensors on a device, moved once."""
        if device not in self._here:
            links, seen = self.links, self.seen
            row, query = seen.query.nonzero(as_tuple=True)
            parts = {name: getattr(links, name) for name in ("row", "query", "key", "cell", "kind", "expected")}
            tag = self.tag.flatten()
            parts |= {"queries": row, "places": query, "first": self.first, "tagged": (tag >= 0).nonzero()[:, 0]}
            parts |= {"tag": tag[tag >= 0], "at": self.expected}
            parts |= {f"text {name}": getattr(links.texts, name) for name in ("cell", "queries", "chance")}
            self._here[device] = {name: part.to(device) for name, part in parts.items()}
        return self._here[device]

    def known(self) -> dict[str, Array]:
        """What does not depend on a model's weights: cases, distances, and what uniform attention gives."""
        even = self.even
        assert even is not None
        cases = np.concatenate([self.links.cases, even.links[:, 1].double().numpy()], axis=1)
        texts = self.links.texts.chance.numpy()
        return {
            "kinds/cases": cases,
            "kinds/distances": self.links.offsets.astype(np.float64),
            "texts/cases": np.array([len(texts), texts.sum(), (texts * (1 - texts)).sum()]),
            "tags/chance": even.tags[:, 0].numpy(),
            "offsets/cases": self.at,
            "rows/chance": even.rows[:, 0].numpy(),
            "rows/n": np.array([int(self.keys.query.sum())]),
        }


@dataclass(frozen=True, eq=False)
class Taken:
    """Sums over one batch of one layer: `links` [kinds, 2, heads], `spread` [kinds, heads], `texts` [2, heads], `tags`
    [tags, heads], `offsets` [offsets, 2, heads], `rows` [ROWS, heads], and `sink` [B, heads], all float64."""

    links: Tensor
    spread: Tensor
    texts: Tensor
    tags: Tensor
    offsets: Tensor
    rows: Tensor
    sink: Tensor

    def finite(self) -> bool:
        """Whether all of it are numbers."""
        return bool(torch.isfinite(self.rows).all()) and bool(torch.isfinite(self.links).all())

    def broken(self) -> int:
        """The first head whose sums are none."""
        whole = torch.cat([self.rows, self.links.flatten(0, 1)])
        return int((~torch.isfinite(whole)).any(0).nonzero()[0])

    def arrays(self) -> dict[str, Array]:
        """The sums by the names they are kept under."""
        named = {"kinds/sums": self.links, "kinds/spread": self.spread, "texts/sums": self.texts}
        named |= {"tags/mass": self.tags}
        named |= {"offsets/sums": self.offsets, "rows/sums": self.rows}
        return {name: part.cpu().numpy() for name, part in named.items()}


def taken(found: WordWeights, frame: Frame) -> Taken:
    """What the heads of one layer do with their attention between words."""
    here = frame.on(found.between.device)
    size, width, heads, _ = found.between.shape
    columns = found.columns
    links, spread, texts = _on_links(found, here, frame.kinds)
    by_word = columns.transpose(1, 2).reshape(size * width, heads)
    tags = _summed(by_word[here["tagged"]].double(), here["tag"], frame.tags)
    rows, sink = _rows(found, columns, frame)
    return Taken(links, spread, texts, tags, _on_offsets(found.best, here, frame), rows, sink)


def _on_links(found: WordWeights, here: Mapping[str, Tensor], kinds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Hits and attention on links, [kinds, 2, heads], and squared deviations of hits by text, [kinds, heads]; texts in
    which most queries hit a rarest word, and their squared deviations from chance, [2, heads]."""
    row, query, key = here["row"], here["query"], here["key"]
    heads = found.best.shape[2]
    hits = (found.best[row, query] == key[:, None]).float()
    both = torch.cat([hits, found.between[row, query, :, key]], dim=1)  # [L, 2H]
    cells = _summed(both, here["cell"], len(here["kind"])).double()
    sums = _summed(cells, here["kind"], kinds)
    spread = _summed((cells[:, :heads] - here["expected"][:, None]) ** 2, here["kind"], kinds)
    most = (2 * cells[here["text cell"], :heads] > here["text queries"][:, None]).double()
    texts = torch.stack([most.sum(0), ((most - here["text chance"][:, None]) ** 2).sum(0)])
    return sums.view(kinds, 2, heads), spread, texts


def _summed(rows: Tensor, places: Tensor, count: int) -> Tensor:
    """Rows [N, width] added up by their places, [count, width], in the same order each time.

    On a GPU `index_add_` adds rows as threads come by, and `index_put_` sorts them first.
    """
    sums = rows.new_zeros(count, rows.shape[1])
    if rows.device.type == "cpu":
        return sums.index_add_(0, places, rows)
    return sums.index_put_((places,), rows, accumulate=True)


def _on_offsets(best: Tensor, here: Mapping[str, Tensor], frame: Frame) -> Tensor:
    """Hits at each offset and their squared deviations by sentence, [offsets, 2, heads]."""
    size, _, heads = best.shape
    reach, bins = frame.offsets, 2 * frame.offsets + 1
    row, query = here["queries"], here["places"]
    chosen = best[row, query]  # [N, H]
    away = chosen - query[:, None]
    kept = (chosen >= 0) & (away.abs() <= reach)
    flat = ((row[:, None] * bins + away + reach) * heads + torch.arange(heads, device=best.device))[kept]
    hits = torch.bincount(flat, minlength=size * bins * heads).view(size, bins, heads).double()
    apart = (hits - here["at"][:, :, None]) ** 2
    return torch.stack([hits.sum(0), apart.sum(0)], dim=1)


def _rows(found: WordWeights, columns: Tensor, frame: Frame) -> tuple[Tensor, Tensor]:
    """`ROWS` [ROWS, heads], and the sink mass of every text, [B, heads]."""
    here = frame.on(columns.device)
    alone = found.singles
    first = columns.gather(2, here["first"].clamp(min=0)[:, None, None].expand(-1, columns.shape[1], 1))[..., 0]
    sink = (alone.sum(-1) + first * (here["first"] >= 0)[:, None]).double()
    vertical = columns.amax(-1)
    if alone.shape[-1]:
        vertical = torch.maximum(vertical, alone.amax(-1))
    steps = [step for step in (-1, 0, 1) if abs(step) < columns.shape[2]]
    near = sum((found.between.diagonal(step, 1, 3).sum(-1) for step in steps), torch.zeros_like(vertical))
    own, other = _between_parts(found.between, frame.part)
    apart = torch.zeros_like(sink) if frame.even is None else (sink - frame.even.sink.to(sink.device)) ** 2
    parts = [sink, vertical, near, columns.sum(-1), own, other, apart]
    return torch.stack([part.double().sum(0) for part in parts]), sink


def _between_parts(between: Tensor, part: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention from words to words of their own and of the other sentence of a pair, [B, heads] each."""
    if part is None:
        zero = between.new_zeros(between.shape[0], between.shape[2])
        return zero, zero
    marks = torch.stack([part == 0, part == 1], dim=-1).to(between)  # [B, W, 2]
    crossed = torch.einsum("bqp,bqhk,bkr->bhpr", marks, between, marks)
    own = crossed.diagonal(0, 2, 3).sum(-1)
    return own, crossed.sum((2, 3)) - own


def _tags(words: Words, keys: WordKeys, label: str, tags: Names) -> Tensor:
    """The number of every word's value of a label, [B, W]; −1 where it has none."""
    found = torch.full(keys.is_word.shape, -1)
    for row, (sentence, start) in enumerate(zip(words.sentences, words.base.tolist(), strict=True)):
        values = word_labels(sentence, label)[start : start + words.width]
        found[row, : len(values)] = torch.tensor([-1 if each is None else tags.number(each) for each in values])
    return torch.where(keys.is_word, found, -1)


def _parts(words: Words) -> Tensor | None:
    """Whether each word is of the first (0) or second (1) sentence of a pair, −1 where there is no pair; or None."""
    if not any(sentence.joint and sentence.second is not None for sentence in words.sentences):
        return None
    found = torch.full((len(words.sentences), words.width), -1)
    for row, (sentence, start) in enumerate(zip(words.sentences, words.base.tolist(), strict=True)):
        if sentence.joint and sentence.second is not None:
            found[row] = (torch.arange(words.width) + start >= len(sentence.words)).long()
    return found


def _at_offsets(seen: Seen, reach: int) -> tuple[Array, Tensor]:
    """n, expected hits and variance at each offset, [offsets, 3]; the expected hits of every row, [B, offsets]."""
    chance = torch.where(seen.query, 1 / seen.count.clamp(min=1), 0.0).double()[:, :, None] * seen.visible  # [B, W, W]
    found: list[Tensor] = []
    cases: list[list[float]] = []
    for offset in range(-reach, reach + 1):
        if abs(offset) >= seen.visible.shape[1]:
            found.append(torch.zeros(len(chance), dtype=torch.float64))
            cases.append([0.0, 0.0, 0.0])
            continue
        each = chance.diagonal(offset, 1, 2)
        found.append(each.sum(-1))
        count = float(seen.visible.diagonal(offset, 1, 2).sum())
        cases.append([count, float(each.sum()), float((each * (1 - each)).sum())])
    return np.array(cases), torch.stack(found, dim=1)
