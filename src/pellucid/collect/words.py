"""Words: sub-word tensors of one pass pooled to words, once, before any collector sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.collect.state import Array

if TYPE_CHECKING:
    from pellucid.corpus import Sentence
    from pellucid.model.batch import Batch


@dataclass(frozen=True, eq=False)
class WordBatch:
    """Rows of several sites for the same words: `rows[key]` is [N, width] in float32, in one row order for all keys.

    `sentence`, `position` and `ordinal` [N] are the number of the sentence in the corpus, of the word in its sentence
    (words of a second sentence count on; −1 for special tokens), and of the row in the corpus. `group` is the document
    group of all rows.
    """

    rows: Mapping[str, Tensor]
    sentence: Array
    position: Array
    ordinal: Array
    group: int
    sentences: Mapping[int, Sentence]

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.sentence)

    def place(self, row: int) -> str:
        """The word of a row and where it stands, for messages."""
        number, position = int(self.sentence[row]), int(self.position[row])
        if number not in self.sentences:
            return f"word {position + 1} of sentence {number + 1}"
        sentence = self.sentences[number]
        word = repr(all_words(sentence)[position]) if position >= 0 else "a special token"
        return f"{word}, word {position + 1} of sentence {sentence.id!r}"

    def words(self) -> list[str]:
        """The word of each row."""
        found = {number: all_words(sentence) for number, sentence in self.sentences.items()}
        places = zip(self.sentence.tolist(), self.position.tolist(), strict=True)
        return [found[number][place] if place >= 0 else "" for number, place in places]

    def labels(self, name: str) -> list[str | None]:
        """The value of a label at each row: of its word, or of its whole sentence; None where it has none."""
        found = {number: word_labels(sentence, name) for number, sentence in self.sentences.items()}
        places = zip(self.sentence.tolist(), self.position.tolist(), strict=True)
        return [found[number][place] if place >= 0 else None for number, place in places]


def all_words(sentence: Sentence) -> tuple[str, ...]:
    """The words of a sentence, and of a second one read with it."""
    joined = sentence.second if sentence.joint else None
    return (*sentence.words, *joined.words) if joined is not None else sentence.words


def word_labels(sentence: Sentence, name: str) -> Sequence[str | None]:
    """A label at every word of a sentence (and of a second one read with it); sentence labels hold for all words.

    `word` is the word itself in small letters. A word label goes before a sentence label of the same name. Where the
    sentence has neither, every word has None.
    """
    if name == "word":
        return [word.lower() for word in all_words(sentence)]
    joined = sentence.second if sentence.joint else None
    parts = [sentence, *([joined] if joined is not None else [])]
    if name in sentence.facts and not any(name in part.labels for part in parts):
        return [sentence.facts[name]] * len(all_words(sentence))
    return [value for part in parts for value in part.label(name)]


@dataclass(frozen=True, eq=False)
class Words:
    """The words of one model's batch, and the pooling of its tensors to them.

    `counted` [B, W] marks the words that count here: present, and not mere context repeated from an earlier window.
    With the pooling `all`, every token that counts stands for itself and W is the token axis. `sentences`, `numbers`
    and `starts` [B] are each row's sentence, its number in the corpus, and the corpus-wide number of its first word
    (or first token of this row); `group` is the document group of all.
    """

    batch: Batch
    pooling: str
    sentences: tuple[Sentence, ...]
    numbers: Array
    starts: Array
    group: int = 0
    side: str = "source"

    @property
    def mask(self) -> Tensor:
        """Real tokens of the side that is looked at, [B, T]."""
        if self.side == "source":
            return self.batch.mask
        assert self.batch.target_mask is not None
        return self.batch.target_mask

    @property
    def special(self) -> Tensor:
        """Special tokens (and padding) of the side that is looked at, [B, T]."""
        if self.side == "source":
            return self.batch.special
        assert self.batch.word_index is not None
        return self.batch.word_index < 0

    @cached_property
    def base(self) -> Tensor:
        """The number in its sentence of the first word that each row holds, [B] on the CPU; 0 with `all`.

        Words are counted from there, so that a window far inside a long text takes no more room than the first.
        """
        word_index = self.batch.word_index
        assert word_index is not None
        size = len(word_index)
        if self.pooling == "all" or not word_index.shape[1]:
            return torch.zeros(size, dtype=torch.long)
        none = torch.iinfo(torch.int64).max
        first = word_index.cpu().masked_fill(word_index.cpu() < 0, none).amin(1)
        return first.masked_fill(first == none, 0)

    @cached_property
    def index(self) -> Tensor:
        """The word, counted from `base` (or, with `all`, the place) of every token, [B, T] on the CPU; −1 for none."""
        word_index = self.batch.word_index
        assert word_index is not None
        word_index = word_index.cpu()
        if self.pooling != "all":
            return torch.where(word_index >= 0, word_index - self.base[:, None], -1)
        places = torch.arange(word_index.shape[1]).expand_as(word_index)
        counted = self.batch.counted
        assert counted is not None
        return torch.where((word_index >= 0) | counted.cpu(), places, -1)

    @cached_property
    def width(self) -> int:
        """Words of the longest row, W."""
        return int(self.index.max()) + 1

    @cached_property
    def ranks(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For each rank r: rows, words and places of every word's r-th sub-word (each word once per rank)."""
        rows, places = (self.index >= 0).nonzero(as_tuple=True)
        words = self.index[rows, places]
        flat = rows * self.width + words
        order = torch.argsort(flat, stable=True)
        rows, words, places, flat = rows[order], words[order], places[order], flat[order]
        starts = torch.ones(len(flat), dtype=torch.bool)
        starts[1:] = flat[1:] != flat[:-1]
        begin = starts.nonzero()[:, 0]
        rank = torch.arange(len(flat)) - begin[torch.cumsum(starts, 0) - 1]
        return [
            (rows[rank == number], words[rank == number], places[rank == number])
            for number in range(int(rank.max()) + 1 if len(rank) else 0)
        ]

    @cached_property
    def pieces(self) -> Tensor:
        """Sub-words of every word, [B, W] on the CPU."""
        counts = torch.zeros(self.index.shape[0], self.width, dtype=torch.long)
        for rows, words, _ in self.ranks:
            counts[rows, words] += 1
        return counts

    @cached_property
    def counted(self) -> Tensor:
        """Which words count, [B, W] on the CPU: those whose sub-words are all marked as counting."""
        marks = self.batch.counted
        assert marks is not None
        marks = marks.cpu()
        kept = self.pieces > 0
        for rows, words, places in self.ranks:
            kept[rows, words] &= marks[rows, places]
        return kept

    @cached_property
    def ordinal(self) -> Tensor:
        """The corpus-wide number of every counted word, [B, W] on the CPU; −1 elsewhere."""
        places = self.base[:, None] + torch.arange(self.width)
        if self.pooling == "all":  # tokens that do not count have no number
            places = self.counted.cumsum(dim=1) - 1
        return torch.where(self.counted, places + torch.from_numpy(self.starts)[:, None], -1)

    @cached_property
    def places(self) -> tuple[Tensor, Tensor]:
        """Row and word (from `base`) of every counted word, in the order of the rows that `rows` gives: [N] each."""
        row, word = self.counted.nonzero(as_tuple=True)
        return row, word

    @cached_property
    def positions(self) -> Array:
        """The word's number in its sentence at each of `places` (with `all`, of the token's word; −1 for specials)."""
        row, word = self.places
        if self.pooling != "all":
            return (word + self.base[row]).numpy()
        word_index = self.batch.word_index
        assert word_index is not None
        return word_index.cpu()[row, word].numpy()

    @cached_property
    def _gathered(self) -> dict[torch.device, _Gather]:
        return {}

    def _gather(self, device: torch.device) -> _Gather:
        """Where rows come from, as index tensors on a device: made once, used for every site."""
        if device not in self._gathered:
            self._gathered[device] = self._gather_here().to(device)
        return self._gathered[device]

    def _gather_here(self) -> _Gather:
        row, word = self.places
        length = self.index.shape[1]
        if self.pooling != "mean" or len(self.ranks) <= 1:  # one sub-word stands for its word
            chosen = torch.zeros(self.counted.shape, dtype=torch.long)
            for rows, words, places in self.ranks[:1] if self.pooling == "first" else self.ranks:
                chosen[rows, words] = places
            return _Gather(row * length + chosen[row, word], [], None)
        number = torch.full(self.counted.shape, -1)
        number[row, word] = torch.arange(len(row))
        found: list[tuple[Tensor, Tensor]] = []
        for rows, words, places in self.ranks:
            target = number[rows, words]
            kept = target >= 0
            found.append((target[kept], (rows * length + places)[kept]))
        pieces = self.pieces[row, word]
        several = (pieces > 1).nonzero()[:, 0]
        # every counted word has a first sub-word, and they are met in the order of the rows
        return _Gather(found[0][1], found[1:], (several, pieces[several].float()[:, None]))

    def rows(self, tensor: Tensor, room: Tensor | None = None) -> Tensor:
        """Rows [N, width] in float32 of a tensor [B, T, d] or [B, H, T, d], one for each of `places`; put into `room`
        where one is given."""
        if tensor.dim() == 4:
            tensor = tensor.transpose(1, 2)
        gather, flat = self._gather(tensor.device), tensor.flatten(0, 1).flatten(1)
        if room is None or room.dtype != flat.dtype:
            first = flat.index_select(0, gather.first).float()
            result = first if room is None else room.copy_(first)
        else:
            result = torch.index_select(flat, 0, gather.first, out=room)
        for target, source in gather.later:
            result.index_add_(0, target, flat.index_select(0, source).float())
        if gather.several is not None:  # words of one sub-word are their own mean
            several, pieces = gather.several
            result.index_copy_(0, several, result.index_select(0, several) / pieces)
        return result

    @cached_property
    def shared(self) -> dict[str, Any]:
        """What collectors work out of this batch once for all of them, by name."""
        return {}

    def by_query(self, weights: Tensor) -> Tensor:
        """Attention of words on tokens, [B, W, H, T] in float32: weights [B, H, T, T], mean over a query's sub-words.

        Rows of words that do not count are zero.
        """
        size, heads, length, keys = weights.shape
        flat = weights.reshape(size * heads * length, keys)
        first, later, share = self._query_places(heads, weights.device)
        result = flat.index_select(0, first).float()
        for target, source in later:  # each word at most once, so the order of its sum is fixed
            result.index_add_(0, target, flat.index_select(0, source).float())
        result = result.view(size * self.width, heads * keys)
        result *= share[:, None]
        return result.view(size, self.width, heads, keys)

    def _query_places(self, heads: int, device: torch.device) -> tuple[Tensor, list[tuple[Tensor, Tensor]], Tensor]:
        """Flat places [B · heads · T] of every word's first sub-word in every head; of the later ones, with the word's
        own place [B · W · heads]; 1 / sub-words (0 for words that do not count, whose place is the row's first token).
        Made once."""
        key = f"query places of {heads} heads on {device}"
        if key not in self.shared:
            size, length = self.index.shape
            every = torch.arange(heads)
            place = torch.zeros(size, self.width, dtype=torch.long)
            for rows, words, places in self.ranks[:1]:
                place[rows, words] = places

            def source(rows: Tensor, places: Tensor) -> Tensor:
                return ((rows[..., None] * heads + every) * length + places[..., None]).flatten().to(device)

            first = source(torch.arange(size)[:, None], place)
            later = [
                (((rows * self.width + words)[:, None] * heads + every).flatten().to(device), source(rows, places))
                for rows, words, places in self.ranks[1:]
            ]
            share = torch.where(self.counted, 1 / self.pieces.clamp(min=1), 0.0).flatten().to(device)
            self.shared[key] = first, later, share
        return self.shared[key]

    def patterns(self, weights: Tensor) -> Tensor:
        """Attention between words, [B, H, W, W] in float32, from weights [B, H, T, T] between sub-words.

        Weights are summed over the sub-words of a key and averaged over those of a query. Rows of words that do not
        count are zero; weights on special tokens are in no column.
        """
        size, heads, queries, _ = weights.shape
        if not self.ranks:
            return weights.new_zeros(size, heads, self.width, self.width, dtype=torch.float32)
        place = torch.zeros(self.counted.shape, dtype=torch.long)
        rows, words, places = self.ranks[0]
        place[rows, words] = places
        place = place.to(weights.device)
        by_key = weights.gather(3, place[:, None, None, :].expand(size, heads, queries, self.width)).float()
        for rows, words, places in self.ranks[1:]:
            by_key[rows, :, :, words] += weights[rows, :, :, places].float()
        result = by_key.gather(2, place[:, None, :, None].expand(size, heads, self.width, self.width))
        for rows, words, places in self.ranks[1:]:
            result[rows, :, words] += by_key[rows, :, places]
        share = torch.where(self.counted, 1 / self.pieces.clamp(min=1), 0.0).to(result.device)
        result *= share[:, None, :, None]
        result *= (self.pieces > 0).to(result.device)[:, None, None, :]
        return result

    def to_queries(self, mass: Tensor) -> Tensor:
        """A number per sub-word query, [B, H, T], averaged over the sub-words of each counted word: [B, H, W]."""
        result = mass.new_zeros(*mass.shape[:2], self.width, dtype=torch.float32)
        for rows, words, places in self.ranks:
            result[rows, :, words] += mass[rows, :, places].float()
        pieces = self.pieces.clamp(min=1).to(result.device)
        return (result / pieces[:, None]).masked_fill(~self.counted.to(result.device)[:, None], 0)


@dataclass(frozen=True)
class _Gather:
    """Where rows come from, as places in a batch laid flat: every word's first (or only) sub-word.

    The later ones come with the results that they add to, a rank at a time, each word at most once: so the order of its
    sum is fixed. `several` are the words [n] of more than one, and how many they have [n, 1], by which a mean divides.
    """

    first: Tensor
    later: list[tuple[Tensor, Tensor]]
    several: tuple[Tensor, Tensor] | None

    def to(self, device: torch.device) -> _Gather:
        """The same on another device; a CPU adds in the order given, so there all ranks are one."""
        later = self.later
        if device.type == "cpu" and later:
            targets, sources = zip(*later, strict=True)
            later = [(torch.cat(targets), torch.cat(sources))]
        later = [(target.to(device), source.to(device)) for target, source in later]
        several = None if self.several is None else (self.several[0].to(device), self.several[1].to(device))
        return _Gather(self.first.to(device), later, several)
