"""The same pass again: one corpus, planned and encoded once, run as often as wanted while the weights change."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pellucid.collect.collector import Collector, ModelFacts
from pellucid.collect.encode import Reading, looked_at
from pellucid.collect.found import Found, KeptSentences, facts_to_json, found_of
from pellucid.collect.job import make_job
from pellucid.collect.plan import Shard, read_shards
from pellucid.collect.runner import Runner, States
from pellucid.collect.state import State
from pellucid.collect.sweep import default_shard, description, planned, told_by, using_threads
from pellucid.collect.tree import Tree
from pellucid.collect.words import all_words
from pellucid.model import Model
from pellucid.model.fingerprint import fingerprint

if TYPE_CHECKING:
    from pellucid.corpus import Corpus, Sentence

_ALL = 1 << 62


class Again:
    """One sweep that is run again and again: `run()` gives what `sweep` would, for the weights of that moment.

    The corpus is read, planned and encoded once; its sentences and its batches (on the models' device) stay in memory,
    so it is for texts of a few hundred thousand words. The options are those of `sweep`, with `long="window"` by
    default; `mixed` shards hold documents of several groups. Networks may be in the middle of a training: they are run
    as in evaluation, and left as they were.
    """

    def __init__(
        self,
        models: Model | Sequence[Model],
        corpus: Corpus,
        collectors: Collector | Iterable[Collector],
        *,
        threads: int | None = None,
        token_budget: int | None = None,
        shard_tokens: int | None = None,
        pooling: str = "mean",
        special: bool = False,
        long: str = "window",
        overlap: int | None = None,
        side: str = "source",
        mixed: bool | None = None,
    ) -> None:
        self.models = [models] if isinstance(models, Model) else list(models)
        self.corpus = corpus
        wanted = [collectors] if isinstance(collectors, Collector) else list(collectors)
        named = {f"{number}-{collector.kind}": collector for number, collector in enumerate(wanted)}
        reading = Reading(pooling, special, long, overlap, side)
        job = make_job(self.models, named, reading, token_budget=token_budget)
        shard_tokens = shard_tokens or default_shard(job, self.models)
        self._threads = threads
        self.plan = planned(self.models, job, corpus, shard_tokens, mixed=mixed)
        everything = range(len(self.plan.shards))
        self._shards: list[tuple[Shard, list[Sentence]]] = list(read_shards(self.plan, corpus, everything))
        self._runner = Runner(job, self.models, keep=True)
        device = self.models[0].device.type
        self._about = {**description(job, corpus, device, shard_tokens), **told_by(self.plan)}
        self._template: Found | None = None
        self._shown: tuple[set[int], KeptSentences] | None = None

    @cached_property
    def text(self) -> str:
        """A hash of the documents' and sentences' names and of their words: the same text, however it was read."""
        return text_fingerprint(self.sentences(), side=self._runner.job.reading.side)

    @property
    def words(self) -> int:
        """Words of the corpus."""
        return self.plan.counts.words

    def sentences(self) -> Generator[Sentence]:
        """The sentences of the corpus, from memory."""
        for _, sentences in self._shards:
            yield from sentences

    def facts(self, names: Sequence[str] | None = None) -> tuple[ModelFacts, ...]:
        """What the models are at this moment: their fingerprints are worked out anew, and `names` given to them."""
        known = self._runner.job.models
        called = [each.name for each in known] if names is None else names
        return tuple(
            replace(each, name=name, fingerprint=fingerprint(model.hf, model.tokenizer))
            for each, name, model in zip(known, called, self.models, strict=True)
        )

    def run(self, facts: tuple[ModelFacts, ...] | None = None) -> Found:
        """One pass with the weights of this moment; `facts` where they are already known."""
        job = self._runner.job
        threads = self._threads or torch.get_num_threads()
        job = replace(job, models=self.facts() if facts is None else facts, threads=threads, pilots={})
        with at_rest([model.hf for model in self.models]), using_threads(threads):
            self._runner.job = job
            shard, sentences = next(each for each in self._shards if each[0].batches)
            pilots = self._runner.pilot(shard, sentences)
            self._runner.job = job = replace(job, pilots=pilots)
            states = self._gathered(job.collectors)
        about = {"models": [facts_to_json(each) for each in job.models], "threads": threads}
        return self._found(about, job.models, states, pilots)

    def _gathered(self, collectors: Any) -> States:
        """The states of all shards, merged as every sweep merges them, but in memory alone."""
        tree = Tree(collectors, len(self._shards), None, room=_ALL)
        try:
            for shard, sentences in self._shards:
                tree.put(0, shard.index, self._runner.shard(shard, sentences))
            return tree.root()
        finally:
            tree.close()

    def _found(
        self, about: dict[str, Any], models: tuple[ModelFacts, ...], states: States, pilots: dict[str, State]
    ) -> Found:
        """A pass as a sweep gives it; what passes have in common is made once."""
        job = self._runner.job
        numbers = {number for name, each in job.collectors.items() for number in each.sentences(states[name])}
        if self._shown is None or self._shown[0] != numbers:
            how = job.reading.side, job.reading.pooling
            chosen = ((n, looked_at(each, *how)) for n, each in enumerate(self.sentences()) if n in numbers)
            self._shown = numbers, KeptSentences.of(chosen)
        if self._template is None:
            whole = json.loads(json.dumps({**self._about, **about}, sort_keys=True, ensure_ascii=False))
            self._template = found_of(whole, {}, {}, self._shown[1])
        told = {**self._template.about, **about}
        return replace(
            self._template, about=told, models=models, states=states, pilots=pilots, sentences=self._shown[1]
        )


def text_fingerprint(sentences: Iterable[Sentence], *, side: str = "source") -> str:
    """A hash of the documents' and sentences' names and of all words; labels and spaces between words do not count."""
    hashed = blake2b(digest_size=16)
    for sentence in sentences:
        words = all_words(looked_at(sentence, side))
        hashed.update(json.dumps([sentence.document, sentence.id, *words]).encode() + b"\n")
    return hashed.hexdigest()


@contextmanager
def at_rest(modules: Sequence[nn.Module]) -> Generator[None]:
    """Networks as in evaluation (no dropout, no lower precision) for the length of a block; afterwards as before."""
    learning = [part for module in modules for part in module.modules() if part.training]
    device = next(modules[0].parameters()).device.type
    try:
        for part in learning:
            part.training = False
        with torch.autocast(device, enabled=False):
            yield
    finally:
        for part in learning:
            part.training = True
