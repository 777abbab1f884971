"""What a sweep found: every collector's statistics, and all that is needed to read them later without the models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pellucid.collect.collector import Collector, ModelFacts, Setting, collector_of
from pellucid.collect.plan import Counts
from pellucid.collect.runner import RECORD, States
from pellucid.collect.state import FORMAT, State, load_states
from pellucid.corpus.sentence import Arc, Sentence
from pellucid.errors import SweepError, listing
from pellucid.model.sites import Site

if TYPE_CHECKING:
    from pellucid.results import Provenance

ABOUT, STATES, PILOTS = "sweep.json", "states.safetensors", "pilots.safetensors"
SENTENCES = "sentences.jsonl"
MEMORY = 4 << 30
"""Bytes of states that are read into memory as a whole."""
C = TypeVar("C", bound=Collector)


class KeptSentences(Mapping[int, "Sentence"]):
    """The sentences that tables point to, by their number in the corpus; kept as text until one is asked for."""

    def __init__(self, lines: Mapping[int, bytes]) -> None:
        self._lines = lines

    @staticmethod
    def of(sentences: Iterable[tuple[int, Sentence]]) -> KeptSentences:
        """Some sentences, by their numbers."""
        return KeptSentences(
            {number: json.dumps(sentence_to_json(each), ensure_ascii=False).encode() for number, each in sentences}
        )

    @staticmethod
    def read(path: Path) -> KeptSentences:
        """The sentences of a file that `to_bytes` made."""
        try:
            parts = [line.partition(b"\t") for line in path.read_bytes().splitlines()]
            return KeptSentences({int(number): text for number, _, text in parts})
        except (OSError, ValueError) as error:
            raise SweepError(f"{str(path)!r} is damaged or missing ({error}); the sweep cannot be read.") from None

    def to_bytes(self) -> bytes:
        """One line for each: its number, a tab, and JSON."""
        return b"".join(b"%d\t%s\n" % (number, self._lines[number]) for number in sorted(self._lines))

    def __getitem__(self, number: int) -> Sentence:
        return sentence_of_json(json.loads(self._lines[number]))

    def __iter__(self) -> Iterator[int]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


@dataclass(frozen=True, eq=False)
class Found:
    """The states of a finished sweep; `found[Moments]` is the view of its Moments, ready for analyses.

    `about` is everything that names the sweep: models, corpus, collectors, settings and versions. `corpus_words` are
    the most frequent words, in small letters, with their counts.
    """

    about: Mapping[str, Any]
    models: tuple[ModelFacts, ...]
    collectors: Mapping[str, Collector]
    states: States
    pilots: Mapping[str, State]
    counts: Counts
    corpus_words: Mapping[str, int]
    sentences: KeptSentences

    def __getitem__(self, which: type[Collector] | Collector | str) -> Any:
        name = self._name(which)
        return self.collectors[name].view(self.states[name], self.setting(name))

    def __contains__(self, which: object) -> bool:
        return bool(self._names(which))

    @overload
    def collector(self, which: type[C]) -> C: ...
    @overload
    def collector(self, which: Collector | str) -> Collector: ...
    def collector(self, which: type[Collector] | Collector | str) -> Collector:
        """The collector itself, with its options."""
        return self.collectors[self._name(which)]

    def setting(self, name: str) -> Setting:
        """What the collector of a name was told."""
        import torch

        return Setting(self.models, self.about["reading"]["pooling"], torch.device("cpu"), self.pilots.get(name))

    def _names(self, which: object) -> list[str]:
        if isinstance(which, type):
            return [name for name, each in self.collectors.items() if isinstance(each, which)]
        return [name for name, each in self.collectors.items() if which in (each, name, each.kind)]

    def _name(self, which: type[Collector] | Collector | str) -> str:
        names = self._names(which)
        asked = which.__name__ if isinstance(which, type) else str(which)
        if not names:
            raise SweepError(
                f"This sweep collected no {asked}; it has {listing(self.collectors.values())}. Sweep again with it."
            )
        if len(names) > 1:
            raise SweepError(f"This sweep has {len(names)} of {asked}: {listing(names)}; ask for one of them by name.")
        return names[0]

    @property
    def words(self) -> int:
        """Words of the corpus."""
        return self.counts.words

    @property
    def groups(self) -> int:
        """Document groups of the corpus."""
        return self.about["groups"]

    @property
    def record(self) -> Mapping[str, Any]:
        """What happened on the way: batches that were halved, and words that only some of the models have."""
        return self.states[RECORD].facts

    def sentence(self, number: int) -> Sentence:
        """A sentence that a collector points to."""
        if number not in self.sentences:
            raise SweepError(f"Sentence {number} was not kept with this sweep; it keeps those that its tables show.")
        return self.sentences[number]

    def provenance(
        self, function: str, arguments: Mapping[str, Any] | None = None, *, seed: int | None = None
    ) -> Provenance:
        """Where numbers made from this sweep come from."""
        from pellucid.results import Provenance

        corpus = self.about["corpus"]
        return Provenance(
            function=function,
            arguments={**dict(arguments or {}), "sweep": self._settings()},
            models=tuple({"name": model.name, "fingerprint": model.fingerprint} for model in self.models),
            corpus={**corpus, "sentences": self.counts.sentences, "words": self.counts.words},
            seed=seed,
            versions=self.about["versions"],
        )

    def _settings(self) -> dict[str, Any]:
        """The settings of the sweep that its numbers depend on."""
        names = ("reading", "collectors", "device", "budget", "shard_tokens", "threads", "dtype")
        told = {name: self.about[name] for name in names if name in self.about}
        return {**told, "models": [{"dtype": each.dtype, "attention": each.attention} for each in self.models]}

    @staticmethod
    def load(folder: str | Path, *, memory_limit: int = MEMORY) -> Found:
        """A sweep that was finished in a folder; of states over `memory_limit` bytes, arrays are read when needed."""
        folder = Path(folder)
        if not (folder / ABOUT).is_file():
            raise SweepError(f"There is no sweep in {str(folder)!r}: it has no {ABOUT}.")
        if not (folder / STATES).is_file():
            raise SweepError(f"The sweep in {str(folder)!r} is not finished; run the same command again to finish it.")
        pilots = load_states(folder / PILOTS) if (folder / PILOTS).is_file() else {}
        sentences = KeptSentences.read(folder / SENTENCES)
        states = load_states(folder / STATES, on_disk=(folder / STATES).stat().st_size > memory_limit)
        return found_of(read_about(folder), states, pilots, sentences)


def read_about(folder: Path) -> dict[str, Any]:
    """What names the sweep in a folder; of a newer format it is refused."""
    try:
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        newer = int(about["format"]) > FORMAT
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SweepError(f"{str(folder / ABOUT)!r} is damaged ({error}); the sweep cannot be read.") from None
    if newer:
        raise SweepError(
            f"The sweep in {str(folder)!r} has format {about['format']}; this Pellucid reads {FORMAT}: update it."
        )
    return about


def found_of(about: Mapping[str, Any], states: States, pilots: Mapping[str, State], sentences: KeptSentences) -> Found:
    """The parts of a finished sweep put together."""
    sizes: dict[str, Any] = {**about["counts"], "tokens": tuple(about["counts"]["tokens"])}
    return Found(
        {name: value for name, value in about.items() if name not in ("counts", "frequent")},
        tuple(facts_of_json(each) for each in about["models"]),
        {name: collector_of(about["collectors"][name]) for name in sorted(about["collectors"], key=_number)},
        states,
        pilots,
        Counts(**sizes),
        dict(sorted(about["frequent"].items(), key=lambda item: (-item[1], item[0]))),
        sentences,
    )


def _number(name: str) -> int:
    """The number with which a collector's name begins."""
    return int(name.partition("-")[0])


def facts_to_json(facts: ModelFacts) -> dict[str, Any]:
    """Facts of a model as JSON holds them."""
    sites = [[site.kind, site.layer, site.stack] for site in facts.sites]
    return {**asdict(facts), "sites": sites, "sizes": {name: list(size) for name, size in facts.sizes.items()}}


def facts_of_json(told: Mapping[str, Any]) -> ModelFacts:
    """The facts that `facts_to_json` told."""
    options: dict[str, Any] = {
        **told,
        "sites": tuple(Site(kind, layer, stack) for kind, layer, stack in told["sites"]),
        "sizes": {name: tuple(size) for name, size in told["sizes"].items()},
    }
    return ModelFacts(**options)


def sentence_to_json(sentence: Sentence) -> dict[str, Any]:
    """A sentence as JSON holds it."""
    told: dict[str, Any] = {
        name: getattr(sentence, name) for name in ("id", "document", "text", "spans", "arcs", "joint")
    }
    told |= {"labels": dict(sentence.labels), "facts": dict(sentence.facts)}
    if sentence.second is not None:
        told["second"] = sentence_to_json(sentence.second)
    return told


def sentence_of_json(told: Mapping[str, Any]) -> Sentence:
    """The sentence that `sentence_to_json` told."""
    options: dict[str, Any] = {
        **told,
        "spans": tuple((start, stop) for start, stop in told["spans"]),
        "arcs": tuple(Arc(*arc) for arc in told["arcs"]),
        "labels": {name: tuple(values) for name, values in told["labels"].items()},
    }
    if "second" in told:
        options["second"] = sentence_of_json(told["second"])
    return Sentence(**options)
