"""The runner: sentences of a shard through the models, and every collector's state of it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Setting, split_key
from pellucid.collect.encode import Encoded, Encoder, Row, looked_at
from pellucid.collect.freed_memory import kept_freed_memory
from pellucid.collect.job import Job
from pellucid.collect.plan import Ahead, PlannedBatch, Shard
from pellucid.collect.row_room import RowRoom
from pellucid.collect.sentence_rows import SentenceWords, is_whole
from pellucid.collect.state import Array, State
from pellucid.collect.words import WordBatch, Words, all_words
from pellucid.errors import OutOfMemory, SweepError
from pellucid.model import Model
from pellucid.model.memory import ran_out
from pellucid.model.sites import Site, single

if TYPE_CHECKING:
    from pellucid.corpus import Sentence

RECORD = "record"
"""Name of the state that says what happened on the way (batches halved, words that only one model has)."""
_POSITIONS = 1 << 24  # more than a sentence has words
States = dict[str, State]
T = TypeVar("T")


class Runner:
    """Runs shards of one job; holds the models.

    With `keep`, what it has encoded stays, on the models' device, for the next time the same shards are run. `ahead` is
    what planning has read of the beginning of the corpus.
    """

    def __init__(self, job: Job, models: Sequence[Model], *, keep: bool = False, ahead: Ahead | None = None) -> None:
        self.job, self.models, self._ahead = job, models, ahead or Ahead()
        self.encoders = [Encoder(model, job.reading) for model in models]
        self.budget, self.halved = job.budget, 0
        self._rows, self._raw = _readers(job)
        self._kept = _Kept() if keep else None
        self._room = RowRoom()

    @staticmethod
    def open(job: Job, *, device: str | None = None) -> Runner:
        """A runner in a process of its own: opens the models, and checks that they are the ones that were meant."""
        if job.threads is not None:
            torch.set_num_threads(job.threads)
        models = [recipe() if device is None else recipe(device=device) for recipe in job.recipes]
        for model, meant in zip(models, job.models, strict=True):
            if model.fingerprint != meant.fingerprint:
                raise SweepError(
                    f"{meant.name!r} is another model than when the sweep began (its weights or its tokenizer changed)."
                )
        return Runner(job, models)

    def setting(self, name: str, shard: Shard) -> Setting:
        """What a collector's accumulator must know of a shard."""
        job, device = self.job, self.models[0].device
        return Setting(
            job.models, job.reading.pooling, device, job.pilots.get(name), shard.index, shard.start, shard.rows
        )

    def pilot(self, shard: Shard, sentences: Sequence[Sentence]) -> States:
        """What the first shard's batch of middle length tells all shards beforehand; run only for who reads rows."""
        if not any(collector.rows for collector in self.job.collectors.values()):
            return {}
        batch = sorted(shard.batches, key=lambda each: each.lengths)[len(shard.batches) // 2]
        read = self._encoded(self._read(shard, sentences), batch)
        rows, _ = self._within_memory(lambda: self._together(read, batch, {}))
        found: States = {}
        for name, collector in self.job.collectors.items():
            told = collector.pilot(rows, self.setting(name, shard)) if collector.rows else None
            if told is not None:
                found[name] = told
        return found

    def shard(
        self, shard: Shard, sentences: Sequence[Sentence], *, announce: Callable[[int], None] = lambda _: None
    ) -> States:
        """Every collector's state of one shard; where memory runs out, begins it again with half the batch."""
        states = self._within_memory(lambda: self._gather(shard, sentences, announce))
        if self.halved:
            record = states[RECORD].facts
            states[RECORD] = State({}, {**record, "halved": [[shard.index, self.halved]]})
        return states

    def _within_memory(self, work: Callable[[], T]) -> T:
        """What some work gives, begun again with half the budget, which stays so, where memory runs out."""
        while True:
            try:
                return work()
            except (OutOfMemory, RuntimeError, MemoryError) as error:
                if not isinstance(error, OutOfMemory) and not ran_out(error):
                    raise
                if self.budget < 2 or isinstance(error, _TooLarge):
                    raise _no_room(error, self.models[0].device) from error
                self.budget //= 2
                self.halved += 1
                if self._kept is not None:
                    self._kept.batches.clear()
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _gather(self, shard: Shard, sentences: Sequence[Sentence], announce: Callable[[int], None]) -> States:
        job = self.job
        accumulators = {name: each.open(self.setting(name, shard)) for name, each in job.collectors.items()}
        read = self._read(shard, sentences)
        unmatched = 0
        with kept_freed_memory() as after_batch:
            for number, batch in enumerate(shard.batches):
                announce(number)
                unmatched += self._add(self._encoded(read, batch), batch, accumulators)
                after_batch()
        self._room.clear()
        states = {name: accumulator.state() for name, accumulator in accumulators.items()}
        return {**states, RECORD: State({}, {"unmatched": unmatched, "halved": []})}

    def alone(self, sentence: Sentence) -> None:
        """One sentence through models and collectors, and nothing kept: to find the one that a worker dies of."""
        encoded = [encoder.encode([sentence])[0] for encoder in self.encoders]
        pooling = self.job.reading.pooling
        rows = encoded[0].counting if pooling == "all" else 1 if is_whole(pooling) else encoded[0].words
        batch = PlannedBatch((0,), tuple(each.longest for each in encoded))
        shard = Shard(0, 0, 1, 0, rows, encoded[0].tokens, "", (batch,))
        accumulators = {name: each.open(self.setting(name, shard)) for name, each in self.job.collectors.items()}
        self._add(_Read(shard, [sentence], [{0: each} for each in encoded], np.zeros(1, np.int64)), batch, accumulators)

    def _read(self, shard: Shard, sentences: Sequence[Sentence]) -> _Read:
        """A shard's sentences, and as every model reads them where that is known, stays, or tells how many rows there
        are; where not, `_encoded` tells it of a batch at a time, since of a large shard it takes as much memory as the
        sentences themselves.
        """
        reading = self.job.reading
        if self._kept is not None and shard.index in self._kept.shards:
            return self._kept.shards[shard.index]
        everyone = range(len(sentences))
        encoded: list[dict[int, Encoded]] = []
        if self._ahead.of(shard) is not None:
            known = [self._ahead.encoded[shard.first + place] for place in everyone]
            encoded = [dict(zip(everyone, each, strict=True)) for each in zip(*known, strict=True)]
        elif self._kept is not None or reading.pooling == "all":
            encoded = self._encode(sentences, everyone)
        if reading.pooling == "all":
            sizes = [encoded[0][place].counting for place in everyone]
        else:
            sizes = [len(all_words(looked_at(sentence, reading.side, reading.pooling))) for sentence in sentences]
        starts = shard.start + np.concatenate([[0], np.cumsum(sizes[:-1], dtype=np.int64)]).astype(np.int64)
        read = _Read(shard, sentences, encoded, starts)
        if self._kept is not None:
            self._kept.shards[shard.index] = read
        return read

    def _encoded(self, read: _Read, batch: PlannedBatch) -> _Read:
        """What was read of a shard, with the sentences of a batch as every model reads them."""
        return read if read.encoded else replace(read, encoded=self._encode(read.sentences, batch.members))

    def _encode(self, sentences: Sequence[Sentence], members: Sequence[int]) -> list[dict[int, Encoded]]:
        """Some of a shard's sentences by their places in it, as every model reads them."""
        chosen = [sentences[member] for member in members]
        return [dict(zip(members, encoder.encode(chosen), strict=True)) for encoder in self.encoders]

    def _add(self, read: _Read, batch: PlannedBatch, accumulators: Mapping[str, Accumulator]) -> int:
        """One planned batch into every accumulator; how many words only some of the models have."""
        rows, alone = self._together(read, batch, accumulators)
        for name, collector in self.job.collectors.items():
            if collector.rows and rows.size:
                accumulators[name].add(rows)
        return alone

    def _together(
        self, read: _Read, batch: PlannedBatch, accumulators: Mapping[str, Accumulator]
    ) -> tuple[WordBatch, int]:
        """The rows of one planned batch, for the words that every model has, and how many words only some have."""
        parts = [self._one_model(number, read, batch, accumulators) for number in range(len(self.models))]
        shard, how = read.shard, (self.job.reading.side, self.job.reading.pooling)
        members = {shard.first + member: looked_at(read.sentences[member], *how) for member in batch.members}
        first = parts[0]
        if len(parts) == 1:
            rows, kept, alone = first.rows, slice(None), 0
        else:
            common = first.identity
            for part in parts[1:]:
                common = np.intersect1d(common, part.identity, assume_unique=True)
            alone = sum(len(part.identity) - len(common) for part in parts)
            rows: dict[str, Tensor] = {}
            for part in parts:
                places = torch.from_numpy(_places(part.identity, common))
                rows.update({key: value[places.to(value.device)] for key, value in part.rows.items()})
            kept = _places(first.identity, common)
        found = WordBatch(rows, first.sentence[kept], first.position[kept], first.ordinal[kept], batch.group, members)
        return found, alone

    def _one_model(
        self, number: int, read: _Read, batch: PlannedBatch, accumulators: Mapping[str, Accumulator]
    ) -> _Part:
        """One model's rows of one planned batch, in as many passes as the budget asks for."""
        parts: list[_Part] = []
        for words in self._batches(number, read, batch):
            try:
                parts.append(self._forward(number, words, accumulators))
            except OutOfMemory as error:
                if words.batch.size == 1:  # padded to the longest, so it is the longest that is too large
                    longest = read.sentences[max(batch.members, key=lambda each: read.encoded[number][each].longest)]
                    raise _TooLarge(f"{error!s} (sentence {longest.id!r}, alone in its batch)") from error
                raise
        return _joined(parts)

    def _batches(self, number: int, read: _Read, batch: PlannedBatch) -> Iterable[Words]:
        """The words of one planned batch, in as many parts as the budget asks for."""
        flat = [(member, row) for member in batch.members for row in read.encoded[number][member].rows]
        size = max(1, self.budget // batch.lengths[number])
        parts = (flat[place : place + size] for place in range(0, len(flat), size))
        if self._kept is None:
            return (self._words(number, read, part, batch) for part in parts)
        key, device = (number, read.shard.index, batch.members), self.models[number].device
        if key not in self._kept.batches:
            made = [self._words(number, read, part, batch) for part in parts]
            self._kept.batches[key] = [replace(each, batch=each.batch.to(device)) for each in made]
        return self._kept.batches[key]

    def _words(self, number: int, read: _Read, chunk: Sequence[tuple[int, Row]], planned: PlannedBatch) -> Words:
        """The words of some rows of tokens, and the batch that holds them."""
        members = [member for member, _ in chunk]
        reading = self.job.reading
        texts = [read.encoded[number][member].target for member in members]
        begin = read.starts[members] + ([row.offset for _, row in chunk] if reading.pooling == "all" else 0)
        made = SentenceWords if is_whole(reading.pooling) else Words
        return made(
            self.encoders[number].batch([row for _, row in chunk], texts, planned.lengths[number]),
            reading.pooling,
            tuple(looked_at(read.sentences[member], reading.side, reading.pooling) for member in members),
            np.array(members, dtype=np.int64) + read.shard.first,
            begin,
            planned.group,
            reading.side,
        )

    def _forward(self, number: int, words: Words, accumulators: Mapping[str, Accumulator]) -> _Part:
        """One pass of one model: whole tensors go to those who read them as they come, rows are kept."""
        rows, raw, model = self._rows[number], self._raw[number], self.models[number]
        shapes = {site: (len(words.positions), prod(model.size(site))) for site in rows}
        rooms = self._room.lend(shapes) if model.device.type == "cpu" else {}

        def reduce(site: Site, tensor: Tensor) -> Tensor | None:
            for key, name in raw.get(site, ()):
                if name in accumulators:
                    accumulators[name].see(key, tensor, words)
            return words.rows(tensor, rooms.get(site)) if site in rows else None

        wanted = tuple(dict.fromkeys([*rows, *(raw if accumulators else ())]))
        run = model.run(words.batch, wanted, reduce=reduce, logits=any(site.kind == "logits" for site in wanted))
        row, word = words.places
        sentence = words.numbers[row.numpy()]
        identity = sentence * _POSITIONS + words.positions
        ordinal = words.ordinal[row, word].numpy()
        if words.pooling == "all":
            identity = ordinal
        return _Part({rows[site]: run[site] for site in rows}, identity, sentence, words.positions, ordinal)


def _no_room(error: BaseException, device: torch.device) -> OutOfMemory:
    """What a sweep that cannot go on says."""
    if isinstance(error, OutOfMemory):
        return error
    return OutOfMemory(f"{device} has no room for the statistics, even with the smallest batches; take fewer sites.")


class _TooLarge(OutOfMemory):
    """A single row that does not fit."""


@dataclass(frozen=True)
class _Read:
    """The sentences of a shard, by their places in it: as each model reads them (empty: not known yet), and the number
    of their first word."""

    shard: Shard
    sentences: Sequence[Sentence]
    encoded: list[dict[int, Encoded]]
    starts: Array


@dataclass(frozen=True)
class _Kept:
    """What stays between passes: shards as they were read, and the batches of (model, shard, sentences)."""

    shards: dict[int, _Read] = field(default_factory=dict[int, _Read])
    batches: dict[tuple[int, int, tuple[int, ...]], list[Words]] = field(
        default_factory=dict[tuple[int, int, tuple[int, ...]], list[Words]]
    )


@dataclass(frozen=True)
class _Part:
    """Rows of one model for one batch; `identity` names each row's word."""

    rows: dict[str, Tensor]
    identity: Array
    sentence: Array
    position: Array
    ordinal: Array


def _joined(parts: Sequence[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    keys = parts[0].rows
    return _Part(
        {key: torch.cat([part.rows[key] for part in parts]) for key in keys},
        np.concatenate([part.identity for part in parts]),
        np.concatenate([part.sentence for part in parts]),
        np.concatenate([part.position for part in parts]),
        np.concatenate([part.ordinal for part in parts]),
    )


def _places(identity: Array, common: Array) -> Array:
    """Where the common words stand among a model's own."""
    order = np.argsort(identity, kind="stable")
    return order[np.searchsorted(identity, common, sorter=order)]


def _readers(job: Job) -> tuple[list[dict[Site, str]], list[dict[Site, list[tuple[str, str]]]]]:
    """For each model, the sites whose rows are read, and those that collectors read whole."""
    setting = Setting(job.models, job.reading.pooling, torch.device("cpu"))
    rows: list[dict[Site, str]] = [{} for _ in job.models]
    raw: list[dict[Site, list[tuple[str, str]]]] = [{} for _ in job.models]
    for name, collector in job.collectors.items():
        for key, site, number in _sites(setting, collector.rows):
            rows[number][site] = key
        for key, site, number in _sites(setting, collector.raw):
            raw[number].setdefault(site, []).append((key, name))
    return rows, raw


def _sites(setting: Setting, patterns: tuple[str, ...]) -> Iterator[tuple[str, Site, int]]:
    for key in setting.keys(patterns) if patterns else ():
        number, name = split_key(key)
        yield key, single(name, setting.models[number].sites), number


def merge_states(collectors: Mapping[str, Collector], left: States, right: States) -> States:
    """The states of two neighbouring parts of the corpus as one; both are emptied on the way, to take less memory."""
    merged = {name: collector.merge(left.pop(name), right.pop(name)) for name, collector in collectors.items()}
    one, other = left.pop(RECORD).facts, right.pop(RECORD).facts
    record = {"unmatched": one["unmatched"] + other["unmatched"], "halved": [*one["halved"], *other["halved"]]}
    return {**merged, RECORD: State({}, record)}
