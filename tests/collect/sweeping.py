"""What the tests of sweeps and stores share: tiny models whose words have several sub-words, collectors of the tests'
own, and words pooled by hand, sentence by sentence."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from pellucid.collect.collector import Accumulator, Collector, Setting
from pellucid.collect.encode import Encoder, Reading
from pellucid.collect.found import Found
from pellucid.collect.job import Job, facts_of
from pellucid.collect.plan import Ahead, Plan, make_plan
from pellucid.collect.runner import Runner
from pellucid.collect.state import State
from pellucid.collect.words import WordBatch
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import SweepError
from pellucid.model import Batch, Model
from tests.tiny_models import SPECIAL, network

PAIR = "<s> $A </s> $B:1 </s>:1"


@cache
def trained(size: int) -> str:
    """A BPE vocabulary of at most `size` entries, learned from generated English, as JSON."""
    core = Tokenizer(models.BPE(unk_token="<unk>"))
    core.normalizer = normalizers.Replace("~", "")  # a word of tildes alone has no token
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    texts = [sentence.text for sentence in Corpus.grammar(200, seed=7)]
    core.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False))
    return core.to_str()


def subword_tokenizer(*, closing: bool, size: int = 95, limit: int | None = None) -> PreTrainedTokenizerFast:
    """Several tokens to most words; with `closing`, texts stand between <s> and </s>."""
    core = Tokenizer.from_str(trained(size))
    if closing:
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair=PAIR, special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    tokens = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    inputs = ["input_ids", *(["token_type_ids"] if closing else []), "attention_mask"]
    more: dict[str, Any] = {} if limit is None else {"model_max_length": limit}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_input_names=inputs, **tokens, **more)


@cache
def reader(name: str = "gpt2", *, size: int = 95, limit: int | None = None, seed: int = 0) -> Model:
    """A tiny model of a family that reads sub-words; GPT-2 has no special tokens, the others have <s> and </s>."""
    tokenizer = subword_tokenizer(closing=name != "gpt2", size=size, limit=limit)
    return Model.load(network(name, seed=seed), tokenizer=tokenizer)


def saved(folder: Path, name: str = "gpt2", *, seed: int = 0, size: int = 95) -> Path:
    """The same as a folder."""
    network(name, seed=seed).save_pretrained(folder)
    subword_tokenizer(closing=name != "gpt2", size=size).save_pretrained(folder)
    return folder


def stories(count: int = 40, *, seed: int = 3) -> Corpus:
    """A small corpus with documents, labels and arcs, in memory, of sentences within every model's limit."""
    short = [sentence for sentence in Corpus.grammar(2 * count, seed=seed) if len(sentence.spans) <= 14]
    return Corpus.of(short[:count], name="stories")


# -- collectors ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows(Collector):
    """Keeps every row with all that is told about it."""

    kind: ClassVar[str] = "test-rows"
    sites: tuple[str, ...]
    labels: tuple[str, ...] = ()
    groups: bool = True

    @property
    def rows(self) -> tuple[str, ...]:
        return self.sites

    def open(self, setting: Setting) -> Accumulator:
        return _Rows(self, setting)

    def merge(self, left: State, right: State) -> State:
        arrays = {name: np.concatenate([left.arrays[name], right.arrays[name]]) for name in left.arrays}
        return State(arrays, {name: [*left.facts[name], *right.facts[name]] for name in left.facts})


class _Rows(Accumulator):
    def __init__(self, collector: Rows, setting: Setting) -> None:
        self.collector = collector
        self.keys = setting.keys(collector.sites)
        self.widths = {key: setting.width(key) for key in self.keys}
        self.batches: list[WordBatch] = []
        self.setting = setting

    def add(self, batch: WordBatch) -> None:
        assert all(rows.dtype == torch.float32 for rows in batch.rows.values())
        self.batches.append(batch)

    def state(self) -> State:
        def joined(parts: list[np.ndarray], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            return np.concatenate([np.zeros(shape, dtype), *parts]).astype(dtype)

        arrays = {
            key: joined([b.rows[key].numpy() for b in self.batches], (0, self.widths[key]), np.float32)
            for key in self.keys
        }
        for name in ("sentence", "position", "ordinal"):
            arrays[name] = joined([getattr(b, name) for b in self.batches], (0,), np.int64)
        arrays["group"] = joined([np.full(b.size, b.group) for b in self.batches], (0,), np.int64)
        arrays["shard"] = np.full(len(arrays["group"]), self.setting.shard)
        facts = {"word": [word for b in self.batches for word in b.words()]}
        facts |= {label: [value for b in self.batches for value in b.labels(label)] for label in self.collector.labels}
        return State(arrays, facts)


def in_order(found: Found) -> dict[str, Any]:
    """What `Rows` kept, in the order of the corpus."""
    state = next(found.states[name] for name, each in found.collectors.items() if isinstance(each, Rows))
    order = np.argsort(state.arrays["ordinal"], kind="stable")
    return {
        **{name: array[order] for name, array in state.arrays.items()},
        **{name: [values[place] for place in order] for name, values in state.facts.items()},
    }


@dataclass(frozen=True)
class Trap(Collector):
    """Counts rows; where it meets `word` it does what it is told: kills its process, or raises.

    With an `once` file it does so only the first time, or the first few `times`, whichever process comes first.
    """

    kind: ClassVar[str] = "test-trap"
    sites: tuple[str, ...]
    word: str
    act: str = "kill"
    once: str | None = None
    times: int = 1

    @property
    def rows(self) -> tuple[str, ...]:
        return self.sites

    def open(self, setting: Setting) -> Accumulator:
        return _Trap(self)

    def merge(self, left: State, right: State) -> State:
        return State({}, {"rows": left.facts["rows"] + right.facts["rows"]})


class _Trap(Accumulator):
    def __init__(self, trap: Trap) -> None:
        self.trap, self.count = trap, 0

    def add(self, batch: WordBatch) -> None:
        self.count += batch.size
        if self.trap.word in batch.words() and self._first():
            if self.trap.act == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise SweepError("The word was met, and there is nothing to do about it.")

    def _first(self) -> bool:
        if self.trap.once is None:
            return True
        for number in range(self.trap.times):
            try:
                Path(f"{self.trap.once}{number or ''}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return True
        return False

    def state(self) -> State:
        return State({}, {"rows": self.count})


@dataclass(frozen=True)
class Patterned(Collector):
    """Keeps the word patterns [H, W, W] of every sentence, by its number, and the rows of the batch they came in."""

    kind: ClassVar[str] = "test-patterns"
    site: str
    groups: bool = True

    @property
    def raw(self) -> tuple[str, ...]:
        return (self.site,)

    def open(self, setting: Setting) -> Accumulator:
        return _Patterned()

    def merge(self, left: State, right: State) -> State:
        return State({**left.arrays, **right.arrays})


class _Patterned(Accumulator):
    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def see(self, key: str, tensor: Tensor, words: Any) -> None:
        patterns = words.patterns(tensor)
        for place, number in enumerate(words.numbers.tolist()):
            size = len(words.sentences[place].spans)
            self.arrays[f"{key}@{number}"] = patterns[place, :, :size, :size].numpy()

    def state(self) -> State:
        return State(self.arrays)


# -- by hand ---------------------------------------------------------------------------------------------------------


def pieces_of(model: Model, sentence: Sentence) -> tuple[list[int], list[list[int]]]:
    """Token ids of a sentence alone, and the token places of each of its words, found character by character."""
    found = model.tokenizer(sentence.text, return_offsets_mapping=True)
    places: list[list[int]] = [[] for _ in sentence.spans]
    for place, (start, stop) in enumerate(found["offset_mapping"]):
        for word, (begin, end) in enumerate(sentence.spans):
            if set(range(start, stop)) & set(range(begin, end)):
                places[word].append(place)
    return found["input_ids"], places


def alone(model: Model, ids: Sequence[int], site: str, types: Sequence[int] | None = None) -> Tensor:
    """A site's tensor for one row of tokens, without padding and without other sentences: [T, width]."""
    kinds = None if types is None else torch.tensor([list(types)])
    tensor = model.run(Batch.of_ids([list(ids)], types=kinds), (site,))[site][0]
    return tensor.transpose(0, 1).flatten(1) if tensor.dim() == 3 else tensor


def pooled(tensor: Tensor, places: Iterable[list[int]], pooling: str) -> np.ndarray:
    """Rows [words, width] of a tensor [T, width], word by word."""
    rows = []
    for each in places:
        if not each:
            continue
        vectors = [tensor[place].double().numpy() for place in each]
        rows.append({"mean": sum(vectors) / len(vectors), "first": vectors[0], "last": vectors[-1]}[pooling])
    return np.array(rows)


def by_hand(model: Model, sentences: Iterable[Sentence], site: str, pooling: str = "mean") -> np.ndarray:
    """Rows of all words of a corpus, one sentence at a time."""
    parts = []
    for sentence in sentences:
        ids, places = pieces_of(model, sentence)
        parts.append(pooled(alone(model, ids, site), places, pooling))
    return np.concatenate(parts)


# -- parts of a sweep ------------------------------------------------------------------------------------------------


def job_of(
    models: Sequence[Model], collectors: Sequence[Collector], *, budget: int = 256, side: str = "source", **reading: Any
) -> Job:
    """A job without pilots, as workers get it."""
    named = {f"{number}-{each.kind}": each for number, each in enumerate(collectors)}
    facts = tuple(facts_of(model, side=side) for model in models)
    return Job(tuple(model.recipe for model in models), facts, Reading(side=side, **reading), named, budget, 1)


def plan_of(
    models: Sequence[Model],
    corpus: Corpus,
    *,
    budget: int = 256,
    tokens: int = 512,
    mixed: bool = False,
    ahead: Ahead | None = None,
    **reading: Any,
) -> Plan:
    encoders = [Encoder(model, Reading(**reading)) for model in models]
    return make_plan(encoders, corpus, budget=budget, shard_tokens=tokens, mixed=mixed, ahead=ahead)


def runner_of(models: Sequence[Model], collectors: Sequence[Collector], **options: Any) -> Runner:
    return Runner(job_of(models, collectors, **options), models)


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file under a folder but the lock, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
