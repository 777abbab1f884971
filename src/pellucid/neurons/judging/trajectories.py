"""Trajectories: how neurons move, word by word, through sentences built from one template."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.errors import listing
from pellucid.neurons.judging.ablation import named_sites
from pellucid.neurons.ranking import split_name
from pellucid.results import Array, Provenance, Result, ResultError, Table
from pellucid.uncertainty import t_quantile

if TYPE_CHECKING:
    from pellucid.model import Model

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "number": {
        "singular": ("the", "key|book|dog|boy", "near the", "cabinet|table|house", "is|was", "old|red|small"),
        "plural": ("the", "keys|books|dogs|boys", "near the", "cabinet|table|house", "are|were", "old|red|small"),
    },
    "negation": {
        "plain": ("the", "film|book|song|meal", "is really|was really", "good|nice|great"),
        "negated": ("the", "film|book|song|meal", "is not|was not", "good|nice|great"),
    },
    "intensifiers": {
        "weak": ("the", "film|book|song|meal", "was fairly|was slightly", "good|bad|long"),
        "strong": ("the", "film|book|song|meal", "was very|was extremely", "good|bad|long"),
    },
}
"""Built-in stimuli: for each kind two or more groups of sentences of equal length; | stands between alternatives."""


@dataclass(frozen=True, eq=False)
class Trajectories(Result):
    """The mean activation of neurons by word position and kind of sentence, [measure, stimulus, position].

    A measure is a neuron. Chance is the mean of all kinds: a neuron that does not tell them apart. Table `spread` has
    the standard deviation over sentences, `words` an example of each kind.
    """

    kind: ClassVar[str] = "neurons.trajectories"
    title: ClassVar[str] = "How neurons move through templated sentences"
    chance: ClassVar[str] = "the mean of all kinds of sentence"

    @property
    def measures(self) -> Mapping[str, str]:
        """One phrase for each neuron."""
        return {str(name): "mean activation at each word" for name in self.axes["measure"]}


def sentences(slots: Sequence[str]) -> list[list[str]]:
    """Every sentence of a template, as words; each slot has alternatives, and an alternative may have several words."""
    made = [" ".join(choice).split() for choice in product(*(slot.split("|") for slot in slots))]
    lengths = {len(words) for words in made}
    if len(lengths) != 1:
        raise ResultError(f"The sentences of a template have {sorted(lengths)} words; all must have as many.")
    return made


def trajectories(
    model: Model, neurons: Sequence[str], stimuli: str | Mapping[str, Sequence[Sequence[str]]] = "number"
) -> Trajectories:
    """The mean ± interval of neurons at each word of several kinds of sentence, all of one length.

    `stimuli` is number, negation or intensifiers, or lists of sentences (as words) by the name of their kind. Words of
    several tokens have the mean of these. The interval is over the sentences of a kind (t, 95%).
    """
    groups = _groups(stimuli)
    length = _length(groups)
    chosen = named_sites(model, neurons)
    names = [str(name) for name in dict.fromkeys(neurons)]
    sites = [str(site) for site in chosen]
    every = _read(model, [words for texts in groups.values() for words in texts], names, sites)
    ends = np.cumsum([len(texts) for texts in groups.values()])[:-1]
    read = dict(zip(groups, np.split(every, ends), strict=True))
    mean = np.stack([read[kind].mean(axis=0) for kind in groups], axis=1)  # [neuron, kind, position]
    deviation = np.stack([read[kind].std(axis=0, ddof=1) for kind in groups], axis=1)
    counts = np.array([len(texts) for texts in groups.values()])
    reach = np.array([t_quantile(0.975, int(count) - 1) / count**0.5 for count in counts])[None, :, None] * deviation
    axes = {"measure": tuple(names), "stimulus": tuple(groups), "position": tuple(range(1, length + 1))}
    example = np.array([texts[0] for texts in groups.values()])
    told = {"stimuli": stimuli if isinstance(stimuli, str) else "given", "neurons": names}
    words = sum(len(texts) for texts in groups.values()) * length
    return Trajectories(
        axes=axes,
        values=mean,
        null=np.repeat(mean.mean(axis=1, keepdims=True), len(groups), axis=1),
        low=mean - reach,
        high=mean + reach,
        resampled=f"{listing(counts.tolist())} sentences, each its own document (t, 95%)",
        provenance=Provenance(
            "neurons.trajectories",
            told,
            ({"name": model.name, "fingerprint": model.fingerprint},),
            {"name": "templates", "fingerprint": "none", "sentences": int(counts.sum()), "words": words},
        ),
        tables={
            "spread": Table(axes, {"sd": deviation}),
            "words": Table({"stimulus": axes["stimulus"], "position": axes["position"]}, {"word": example}),
        },
    )


def _groups(stimuli: str | Mapping[str, Sequence[Sequence[str]]]) -> dict[str, list[list[str]]]:
    if isinstance(stimuli, str):
        if stimuli not in TEMPLATES:
            raise ResultError(f"There are no stimuli {stimuli!r}; there are {listing(TEMPLATES)}.")
        return {kind: sentences(slots) for kind, slots in TEMPLATES[stimuli].items()}
    found = {kind: [list(words) for words in texts] for kind, texts in stimuli.items()}
    few = [kind for kind, texts in found.items() if len(texts) < 2]
    if few or len(found) < 2:
        raise ResultError("Trajectories compare two or more kinds of sentence with two or more sentences each.")
    return found


def _length(groups: Mapping[str, Sequence[Sequence[str]]]) -> int:
    lengths = {len(words) for texts in groups.values() for words in texts}
    if len(lengths) != 1:
        raise ResultError(f"The sentences have {sorted(lengths)} words; trajectories need the same number in each.")
    return lengths.pop()


def _read(model: Model, texts: Sequence[Sequence[str]], names: Sequence[str], sites: Sequence[str]) -> Array:
    """Activations [sentence, neuron, position] of sentences of one length, mean over the tokens of a word."""
    from pellucid.collect.build import build_store
    from pellucid.corpus import Corpus

    length = len(texts[0])
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        text = Corpus.of(texts, name="templates")
        store = build_store(model, text, Path(folder) / "store", tuple(sites), dtype="float32", progress=False)
        if store.rows != len(texts) * length:
            raise ResultError(
                f"{len(texts) * length - store.rows} words of the templates have no token of their own for "
                f"{model.name!r}; use other words."
            )
        parts = [store.unit(site, unit) for site, unit in map(split_name, names)]
    return np.stack([part.double().numpy().reshape(len(texts), length) for part in parts], axis=1)
