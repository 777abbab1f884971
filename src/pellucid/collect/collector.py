"""The collector: a statistic gathered batch by batch, whose states merge. A new one is a new file beside this one."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, ClassVar

from pellucid.collect.state import State
from pellucid.errors import SiteError, SweepError, listing
from pellucid.model.sites import Site, describe, expand

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import Tensor

    from pellucid.collect.words import WordBatch, Words

Patterns = str | tuple[str, ...]
"""Names of sites, such as `"resid.*"` or `("heads.3", "mlp.*")`; `"1:resid.*"` means the second of several models."""


@dataclass(frozen=True)
class ModelFacts:
    """What a sweep knows of a model without holding it; `sizes` are those of `Model.size`, by the site's name."""

    name: str
    fingerprint: str
    sites: tuple[Site, ...]
    sizes: dict[str, tuple[int, ...]]
    causal: bool
    attention: str
    dtype: str


@dataclass(frozen=True)
class Setting:
    """What an accumulator must know before its first batch: the models, how words are pooled, the pilot's findings.

    `shard`, `start` and `rows` are the number of its shard, of the shard's first row in the corpus, and of its rows.
    """

    models: tuple[ModelFacts, ...]
    pooling: str
    device: torch.device
    pilot: State | None = None
    shard: int = 0
    start: int = 0
    rows: int = 0

    def keys(self, patterns: Patterns) -> tuple[str, ...]:
        """The keys that patterns select: the site's name, with the model's number before it where there are several."""
        return keys(self.models, patterns)

    def width(self, key: str) -> int:
        """Columns of a key's rows; the slices of all heads stand side by side."""
        number, name = split_key(key)
        size = self.models[number].sizes[name]
        return size[0] * size[1] if len(size) == 2 else size[0]

    def heads(self, key: str) -> int:
        """Heads at a key; 1 where the site has none."""
        number, name = split_key(key)
        size = self.models[number].sizes[name]
        return size[0] if len(size) == 2 else 1


def split_key(key: str) -> tuple[int, str]:
    """A key's model number and site name."""
    number, colon, name = key.partition(":")
    return (int(number), name) if colon and number.isdigit() else (0, key)


def keys(models: Sequence[ModelFacts], patterns: Patterns) -> tuple[str, ...]:
    """The keys that patterns select among several models; a pattern that no model knows raises."""
    found: dict[str, None] = {}
    for pattern in (patterns,) if isinstance(patterns, str) else patterns:
        for part in pattern.split(","):
            found.update(dict.fromkeys(_keys_of(models, part.strip())))
    return tuple(found)


def _keys_of(models: Sequence[ModelFacts], pattern: str) -> list[str]:
    number, colon, rest = pattern.partition(":")
    chosen = range(len(models))
    if colon and number.isdigit():
        if int(number) >= len(models):
            raise SiteError(f"{pattern!r} asks for model {number}, and there are {len(models)}, counted from 0.")
        chosen, pattern = range(int(number), int(number) + 1), rest
    found: list[str] = []
    problem: SiteError | None = None
    for place in chosen:
        try:
            sites = expand(pattern, models[place].sites)
        except SiteError as error:
            problem = error
            continue
        found += [f"{place}:{site}" if len(models) > 1 else str(site) for site in sites]
    if not found:
        assert problem is not None
        raise problem
    return found


class Accumulator(ABC):
    """One shard's worth of a collector, from zero."""

    def add(self, batch: WordBatch) -> None:
        """Takes in the rows of one batch (for collectors with `rows`)."""
        raise NotImplementedError(f"{type(self).__name__} reads no rows")

    def see(self, key: str, tensor: Tensor, words: Words) -> None:
        """Takes in a whole tensor as the pass produces it (for collectors with `raw`)."""
        raise NotImplementedError(f"{type(self).__name__} reads no whole tensors")

    @abstractmethod
    def state(self) -> State:
        """What was gathered; nothing is added afterwards."""


@dataclass(frozen=True)
class Collector(ABC):
    """What to gather: a frozen description, which opens accumulators and merges their states.

    Subclasses are frozen dataclasses whose fields JSON can hold, with their own `kind`.
    """

    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Collector]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            Collector._kinds[cls.kind] = cls

    @property
    def rows(self) -> tuple[str, ...]:
        """Patterns of the sites whose rows [words, width] it reads."""
        return ()

    @property
    def raw(self) -> tuple[str, ...]:
        """Patterns of the sites whose whole tensors it reads as they are produced (patterns, logits)."""
        return ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that it reads; one that no sentence of the corpus has is refused before anything runs."""
        return ()

    @property
    def grouped(self) -> bool:
        """Whether it keeps document groups apart; where none does, shards need not end at groups."""
        return bool(getattr(self, "groups", False))

    @abstractmethod
    def open(self, setting: Setting) -> Accumulator:
        """An empty accumulator for one shard."""

    @abstractmethod
    def merge(self, left: State, right: State) -> State:
        """The state of both; `left` comes earlier in the corpus, and neither is changed."""

    def view(self, state: State, setting: Setting) -> Any:
        """The state in a form to work with; subclasses say which."""
        return state

    def pilot(self, batch: WordBatch, setting: Setting) -> State | None:
        """What the first batch of the corpus tells all shards before they start (a shift, a range), if anything."""
        return None

    def foreseen(self, frequent: Mapping[str, int]) -> State | None:
        """What the corpus's most frequent words, in small letters with their counts, tell all shards, if anything.

        It stands in for a pilot, for collectors that read no rows.
        """
        return None

    def memory(self, setting: Setting, groups: int) -> int:
        """Bytes that the finished state takes, as far as they are known beforehand; raises over a limit of its own."""
        return 0

    def on_disk(self, folder: Path) -> Collector:
        """The same collector where the states are larger than memory: its accumulators may put arrays into a folder."""
        return self

    def sentences(self, state: State) -> set[int]:
        """Numbers of the sentences whose text the view shows; the sweep keeps them beside the states."""
        return set()

    def describe(self) -> dict[str, Any]:
        """The collector as JSON holds it: its kind and its fields."""
        return {"kind": self.kind, **json.loads(json.dumps(asdict(self)))}

    def __str__(self) -> str:
        options = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return f"{type(self).__name__}({options})"


def collector_of(described: dict[str, Any]) -> Collector:
    """The collector that `describe` described."""
    known = kinds()
    kind = described.get("kind")
    if kind not in known:
        raise SweepError(
            f"There is no collector of the kind {kind!r}; the kinds are {listing(sorted(known))}. If it is your own, "
            "import its module first."
        )
    names = {field.name for field in fields(known[kind])}
    given = {name: _tuples(value) for name, value in described.items() if name != "kind"}
    if not given.keys() <= names:
        raise SweepError(
            f"The collector {kind!r} has no option {listing(sorted(given.keys() - names))}; it has "
            f"{listing(sorted(names))}."
        )
    return known[kind](**given)


def kinds() -> dict[str, type[Collector]]:
    """Every kind of collector: those of this package, and those that the user's own modules define."""
    package = import_module("pellucid.collect")
    for found in iter_modules(package.__path__):
        import_module(f"pellucid.collect.{found.name}")
    return dict(Collector._kinds)  # pyright: ignore[reportPrivateUsage]


def _tuples(value: Any) -> Any:
    """Lists of JSON as the tuples that frozen dataclasses hold."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def check_labels(collectors: Iterable[Collector], known: Sequence[str]) -> None:
    """Raises where a collector reads a label that the corpus does not have."""
    for collector in collectors:
        absent = [name for name in collector.labels if name not in ("word", *known)]
        if absent:
            raise SweepError(
                f"There is no label {absent[0]!r} in the corpus, which {type(collector).__name__} reads; it has "
                f"{listing(['word', *known], most=40)}."
            )


def described_sites(models: Sequence[ModelFacts]) -> str:
    """The sites of several models in one phrase."""
    return "; ".join(f"{model.name}: {describe(model.sites)}" for model in models)
