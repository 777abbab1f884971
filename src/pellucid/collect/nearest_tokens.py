"""Nearest tokens: whether a hidden state, mapped back, lies nearest to the input of its own token, over a corpus."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting
from pellucid.collect.plan import KEPT_WORDS
from pellucid.collect.state import Array, State
from pellucid.collect.sums import added, by_group, total_of
from pellucid.collect.words import Words, word_labels
from pellucid.errors import SweepError, listing

DISTANCES = ("cosine", "l2")
FREQUENCIES = {"once": 1, "2–9": 9, "10–99": 99, "100 and more": None}
"""Classes of words by how often the corpus has them, with the most times of each."""


@dataclass(frozen=True)
class NearestTokens(Collector):
    """Counts of tokens whose state, mapped to the site `to`, is nearest that of a token of the text with the same id.

    `maps` is a safetensors file with maps by name (`identity` needs none), see `Maps`; `names` are those to use. Chance
    is the share of a text's places that hold the id. Counts are kept by the `label` of the word and by how often the
    corpus has it: `counts` is a JSON file with the words, in small letters, that it has twice or more, else the most
    frequent words of the sweep's own corpus tell. All tokens of a text are candidates; special ones are not asked about
    unless the sweep counts them.
    """

    kind: ClassVar[str] = "nearest-tokens"
    sites: Patterns = "resid.*"
    to: str = field(default="resid.0", kw_only=True)
    names: tuple[str, ...] = field(default=("identity",), kw_only=True)
    maps: str | None = field(default=None, kw_only=True)
    counts: str | None = field(default=None, kw_only=True)
    label: str = field(default="upos", kw_only=True)
    groups: bool = field(default=True, kw_only=True)

    @property
    def raw(self) -> tuple[str, ...]:
        return (self.to, *((self.sites,) if isinstance(self.sites, str) else self.sites))

    def open(self, setting: Setting) -> Accumulator:
        if self.counts is not None:
            return _Nearest(self, setting, Frequencies(json.loads(Path(self.counts).read_text(encoding="utf-8"))))
        known = None if setting.pilot is None else setting.pilot.facts["frequent"]
        return _Nearest(self, setting, Frequencies(known, most=KEPT_WORDS) if known else None)

    def foreseen(self, frequent: Mapping[str, int]) -> State | None:
        return State({}, {"frequent": dict(frequent)})

    def merge(self, left: State, right: State) -> State:
        return State(added(left.arrays, right.arrays), left.facts)

    def view(self, state: State, setting: Setting) -> NearestView:
        parts = by_group(state.arrays)
        return NearestView(tuple(state.facts["keys"]), tuple(state.facts["measures"]), total_of(parts), parts)


class Frequencies:
    """The class of every word by how often a corpus has it; words that are not counted have one time.

    Where only the `most` frequent words were kept, a word beyond them is as rare as the rarest of these, or rarer.
    """

    def __init__(self, counts: Mapping[str, int], *, most: int | None = None) -> None:
        self._counts = counts
        least = min(counts.values(), default=1) if most is not None and len(counts) >= most else 1
        self._beyond = "once" if least == 1 else f"{least} or fewer"

    def name_of(self, word: str) -> str:
        """The name of a word's class."""
        if word not in self._counts:
            return self._beyond
        count = self._counts[word]
        return next(name for name, most in FREQUENCIES.items() if most is None or count <= most)


@dataclass(frozen=True, eq=False)
class NearestView:
    """Shares of tokens that were found again; `sums` are of all tokens, `parts` of each document group."""

    keys: tuple[str, ...]
    measures: tuple[str, ...]
    sums: Mapping[str, Array]
    parts: Mapping[str, Mapping[str, Array]]

    @property
    def groups(self) -> tuple[int, ...]:
        """Numbers of the document groups that have tokens; none unless they were kept apart."""
        return tuple(int(group) for group in self.parts if group != "all")

    def group(self, number: int) -> NearestView:
        """One document group alone."""
        return NearestView(self.keys, self.measures, self.parts[str(number)], {})

    def without(self, number: int) -> NearestView:
        """All tokens but those of one document group."""
        part = self.parts[str(number)]
        rest = {name: array - part.get(name, 0) for name, array in self.sums.items()}
        return NearestView(self.keys, self.measures, rest, {})

    @property
    def n(self) -> int:
        """Tokens that were asked about."""
        return int(self.sums["all"][0, -1]) if "all" in self.sums else 0

    @property
    def rates(self) -> Array:
        """The share that was found again, [measure, site]."""
        return self._shares("all")[:-1]

    @property
    def chance(self) -> Array:
        """What a random place of the text would give, [site]."""
        return self._shares("all")[-1]

    def classes(self, of: str) -> tuple[str, ...]:
        """The values of `label` or `frequency` that were met."""
        return tuple(name.partition(":")[2] for name in self.sums if name.startswith(f"{of}:"))

    def in_class(self, of: str, value: str) -> tuple[Array, Array, int]:
        """Rates [measure, site], chance [site] and tokens of one class."""
        found = self._shares(f"{of}:{value}")
        return found[:-1], found[-1], self.size_of(of, value)

    def size_of(self, of: str, value: str) -> int:
        """Tokens of one class; 0 where it was not met."""
        return int(self.sums[f"{of}:{value}"][0, -1]) if f"{of}:{value}" in self.sums else 0

    def _shares(self, name: str) -> Array:
        if not self.n:
            raise SweepError("No token was asked about; give the sweep a corpus with words.")
        sums = self.sums[name]  # [site, measures + chance + count]
        return (sums[:, :-1] / np.maximum(sums[:, -1:], 1)).T


class Maps:
    """Maps of states [n, d] to another site, read from a file: linear ones and perceptrons with one hidden layer.

    `KEY/linear/weight` [d, d'] with `bias`; `KEY/mlp/first`, `first bias`, `second`, `second bias`, on states that are
    centred (`KEY/mean`) and, for a perceptron, divided by `KEY/scale`.
    """

    def __init__(self, path: str | None, device: torch.device) -> None:
        self._arrays: dict[str, Tensor] = {}
        if path is not None:
            from safetensors.torch import load_file

            self._arrays = {name: array.to(device) for name, array in load_file(path).items()}

    def __call__(self, name: str, key: str, states: Tensor) -> Tensor:
        if name == "identity":
            return states
        if f"{key}/mean" not in self._arrays:
            raise SweepError(f"The file of maps has none for {key!r}; make it for the same sites.")
        arrays = self._arrays
        centred = states - arrays[f"{key}/mean"]
        if name == "linear":
            return centred @ arrays[f"{key}/linear/weight"] + arrays[f"{key}/linear/bias"]
        hidden = centred / arrays[f"{key}/scale"] @ arrays[f"{key}/mlp/first"] + arrays[f"{key}/mlp/first bias"]
        out = torch.nn.functional.gelu(hidden) @ arrays[f"{key}/mlp/second"]
        return out + arrays[f"{key}/mlp/second bias"]


class _Nearest(Accumulator):
    """Counts by site; states wait for the site that they are compared with."""

    def __init__(self, asked: NearestTokens, setting: Setting, frequencies: Frequencies | None) -> None:
        (self._to,) = setting.keys(asked.to)
        self._keys = tuple(key for key in setting.keys(asked.sites) if key != self._to)
        self._asked, self._frequencies = asked, frequencies
        self._maps = Maps(asked.maps, setting.device)
        self._target: Tensor | None = None
        self._left = set(self._keys)
        self._waiting: dict[str, Tensor] = {}
        self._arrays: dict[str, Array] = {}

    def see(self, key: str, tensor: Tensor, words: Words) -> None:
        if key == self._to:
            self._target = tensor
        if key in self._keys:
            self._waiting[key] = tensor
        if self._target is None:
            return
        for name, states in self._waiting.items():
            self._count(name, states, self._target, words)
            self._left.discard(name)
        self._waiting.clear()
        if not self._left:  # all of this batch: the next one brings its own
            self._target, self._left = None, set(self._keys)

    def _count(self, key: str, states: Tensor, target: Tensor, words: Words) -> None:
        number, size = self._keys.index(key), len(self._asked.names) * len(DISTANCES) + 2
        group = str(words.group) if self._asked.groups else "all"
        for text, (places, names) in enumerate(self._tokens(words)):
            if not len(places):
                continue
            real = words.mask[text].bool().to(states.device)
            ids = words.batch.ids[text].to(states.device)
            own, inputs = states[text].float()[places.to(states.device)], target[text].float()[real]
            check_states({key: own, self._to: inputs})
            told = self._found(key, own, inputs, ids[places.to(states.device)], ids[real])
            new: dict[str, Array] = {}
            for name, chosen in names.items():
                sums = np.zeros((len(self._keys), size))
                sums[number] = told[chosen].sum(0)
                new[f"{group}/{name}"] = sums
            self._arrays = added(self._arrays, new)

    def _found(self, key: str, states: Tensor, inputs: Tensor, ids: Tensor, among: Tensor) -> Array:
        """Hits of every map and distance, chance and 1 for every token asked about, [tokens, measures + 2].

        `states` and `ids` are those of the tokens, `inputs` and `among` those of all candidates.
        """
        same = ids[:, None] == among  # [tokens, candidates]
        columns: list[Tensor] = []
        for name in self._asked.names:
            mapped = self._maps(name, key, states)
            unit = torch.nn.functional.normalize
            nearness = unit(mapped) @ unit(inputs).T, -torch.cdist(mapped, inputs)
            columns += [same.gather(1, near.argmax(1, keepdim=True))[:, 0] for near in nearness]
        columns += [same.double().mean(1), torch.ones(len(ids), device=ids.device)]
        return torch.stack([column.double() for column in columns], dim=1).cpu().numpy()

    def _tokens(self, words: Words) -> list[tuple[Tensor, dict[str, Array]]]:
        """Of every text the tokens to ask about, and which of them belong to each class; made once per batch."""
        name = f"tokens by {self._asked.label}"
        if name not in words.shared:
            marks, index = words.batch.counted, words.batch.word_index
            assert marks is not None and index is not None
            asked = marks.cpu() & words.mask.cpu().bool()
            words.shared[name] = [
                self._classes(words, text, asked[text].nonzero()[:, 0], index[text].cpu()) for text in range(len(asked))
            ]
        return words.shared[name]

    def _classes(self, words: Words, text: int, places: Tensor, index: Tensor) -> tuple[Tensor, dict[str, Array]]:
        sentence = words.sentences[text]
        labels, spelt = word_labels(sentence, self._asked.label), word_labels(sentence, "word")
        kept: dict[str, list[int]] = {"all": list(range(len(places)))}
        for row, word in enumerate(index[places].tolist()):
            if word < 0:
                continue
            if labels[word] is not None:
                kept.setdefault(f"label:{labels[word]}", []).append(row)
            if self._frequencies is not None:
                kept.setdefault(f"frequency:{self._frequencies.name_of(str(spelt[word]))}", []).append(row)
        return places, {name: np.array(rows) for name, rows in kept.items()}

    def state(self) -> State:
        measures = [f"{name} {distance}" for name in self._asked.names for distance in DISTANCES]
        return State(self._arrays, {"keys": list(self._keys), "measures": measures})


def check_states(states: Mapping[str, Tensor]) -> None:
    """Raises where the states of a site are NaN or infinite."""
    for key, tensor in states.items():
        if not bool(torch.isfinite(tensor).all()):
            raise SweepError(
                f"States at {key!r} are NaN or infinite, so tokens cannot be told from them; leave that layer out, or "
                "run the model in float32."
            )


def check_names(names: tuple[str, ...]) -> None:
    """Raises for a map that there is not."""
    known = ("identity", "linear", "mlp")
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise SweepError(f"There is no map {unknown[0] if unknown else ''!r} of states; there are {listing(known)}.")
