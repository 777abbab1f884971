"""Maps of attention against hidden token attribution: do they rank tokens as the states react to them?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.collect.progress import Progress
from pellucid.errors import ModelError
from pellucid.heads.flow.following import HIDDEN, METHODS, Settings, chosen, followed
from pellucid.heads.flow.graph import check_work
from pellucid.heads.flow.reading import attention_sites, eager, read
from pellucid.identifiability.hidden_flow import hidden_maps, probes_for
from pellucid.identifiability.rank_agreement import BASELINES, LEAST, agreement
from pellucid.model.twin import twin_of
from pellucid.results import Array, Coordinate, Provenance, Result, ResultError, Table
from pellucid.uncertainty import over_documents

if TYPE_CHECKING:
    from pellucid.attribution.targets import Target
    from pellucid.corpus import Corpus, Sentence
    from pellucid.heads.flow.reading import Reading
    from pellucid.model import Model

COMPARED = tuple(name for name in METHODS if name != "attribution")
"""The methods that are compared by default; attribution asks about a target."""
MOST = 8
"""Positions of a text that are looked at where attention flow is among the methods, spread over it."""


@dataclass(frozen=True, eq=False)
class FlowAgreement(Result):
    """Rank correlation of maps of attention with hidden token attribution, [measure, layer]; a measure is a method.

    Tables: `baselines` (maps that look at no weights), `random model` (the same correlations in a randomly initialised
    model), `positions` (how many were compared), `texts` (tokens and positions of every text, and the error of its
    hidden token attribution).
    """

    kind: ClassVar[str] = "identifiability.flow_agreement"
    title: ClassVar[str] = "Maps of attention and what states react to"
    phrases: ClassVar[Mapping[str, str]] = METHODS
    chance: ClassVar[str] = "the same maps with their tokens permuted"

    @property
    def measures(self) -> Mapping[str, str]:
        """One phrase for each method."""
        return {str(name): METHODS[str(name)] for name in self.axes["measure"]}


@dataclass(frozen=True, eq=False)
class _Text:
    """One text: sums [measures and baselines, layer, (correlation, positions, by chance)], and the hidden error."""

    document: str
    tokens: int
    positions: int
    sums: Array
    error: float


def flow_agreement(
    model: Model,
    corpus: Corpus,
    methods: str | Iterable[str] = COMPARED,
    *,
    sentences: int = 40,
    target: str | Target | None = None,
    residual: float = Settings.residual,
    steps: int = Settings.steps,
    probes: int | None = None,
    random: bool = True,
    seed: int = 0,
    progress: bool | None = None,
) -> FlowAgreement:
    """Spearman's correlation of every method's map with hidden token attribution, over the first `sentences`.

    At each position the tokens in its sight are ranked by both, from three tokens on; correlations are averaged over
    positions, special tokens being sources alone. Attribution is ranked by size. With `flow`, at most 8 positions of a
    text are looked at; one longer than the model takes is cut. With `random`, a randomly initialised model of the same
    shape stands beside.
    """
    if sentences < 1:
        raise ModelError(f"sentences={sentences} leaves nothing to look at; give 1 or more.")
    names, settings = chosen(methods), Settings(residual, target, steps)
    attention_sites(model)  # one without any is refused before texts are read
    texts = list(corpus.take(sentences))
    twin = twin_of(model, seed) if random else None
    networks = [model] if twin is None else [model, twin]
    if "attribution" in names:
        networks = [eager(network) for network in networks]
    readings = [_readings(network, texts, names) for network in networks]
    if not readings[0]:
        raise ResultError(
            f"No text of {corpus.name!r} has a position that sees {LEAST} tokens and fits into the model, so no ranks "
            "can be compared."
        )
    with Progress(progress) as shown:
        shown.begin("following information", sum(map(len, readings)))
        found = [list(_texts(each, names, settings, probes, seed, shown)) for each in readings]
    return _result(model, corpus, names, found, settings, sentences=sentences, probes=probes, seed=seed)


def _readings(model: Model, texts: Sequence[Sentence], methods: Sequence[str]) -> list[tuple[Sentence, Reading]]:
    """Every text that can be compared, at its positions; one that takes too long is refused before any work."""
    found: list[tuple[Sentence, Reading]] = []
    for sentence in texts:
        batch = model.tokenize([sentence.text], truncate=True)
        if batch.tokens < LEAST:
            continue
        reading = read(model, batch)
        sees = np.arange(1, reading.length + 1) if reading.causal else np.full(reading.length, reading.length)
        places = np.flatnonzero(~reading.tokens["special"] & (sees >= LEAST))
        if "flow" in methods and len(places) > MOST:
            places = places[np.linspace(0, len(places) - 1, MOST).round().astype(int)]
        if len(places):
            found.append((sentence, reading.at(places.tolist())))
            if "flow" in methods:
                check_work(len(reading.sites), reading.length, len(places))
    return found


def _texts(
    readings: Sequence[tuple[Sentence, Reading]],
    methods: Sequence[str],
    settings: Settings,
    probes: int | None,
    seed: int,
    shown: Progress,
) -> Iterable[_Text]:
    for number, (sentence, reading) in enumerate(readings):
        maps = followed(reading, methods, settings).maps
        hidden = hidden_maps(reading, probes=probes_for(reading, probes), seed=seed + number)
        sizes = np.stack([np.abs(maps[name]) for name in methods])
        sums = agreement(sizes, hidden.maps[HIDDEN], reading.positions, causal=reading.causal, seed=seed + number)
        error = float(np.mean([check.error for check in hidden.checks]))
        yield _Text(sentence.document, reading.length, len(reading.positions), sums, error)
        shown.advance(1)


def _result(
    model: Model,
    corpus: Corpus,
    names: Sequence[str],
    found: Sequence[Sequence[_Text]],
    settings: Settings,
    *,
    sentences: int,
    probes: int | None,
    seed: int,
) -> FlowAgreement:
    """Means over positions with their intervals, and the tables."""
    texts, count = found[0], len(names)
    sums = np.stack([text.sums for text in texts])  # [text, measure + baseline, layer, 3]
    values, interval = over_documents(sums, [text.document for text in texts], _means)
    layers: tuple[Coordinate, ...] = tuple(range(values.shape[1]))
    axes: dict[str, tuple[Coordinate, ...]] = {"measure": tuple(names), "layer": layers}
    baselines: dict[str, Array] = {"value": values[count:]}
    if interval.low is not None and interval.high is not None:
        baselines |= {"low": interval.low[count:], "high": interval.high[count:]}
    tables = {
        "baselines": Table({"baseline": tuple(BASELINES), "layer": layers}, baselines),
        "positions": Table(axes, {"positions": sums.sum(0)[:count, :, 1]}),
        "texts": Table.of_rows(
            {name: [getattr(text, name) for text in texts] for name in ("tokens", "positions", "error")}
        ),
    }
    if len(found) > 1:
        twin = _means(np.stack([text.sums for text in found[1]]))
        tables["random model"] = Table(axes, {"value": twin[:count]})
    facts: dict[str, Any] = {"methods": list(names), "sentences": sentences, "probes": probes}
    facts |= {"residual": settings.residual, "random": len(found) > 1}
    facts |= {"steps": settings.steps, "target": str(settings.target or "predicted")} if "attribution" in names else {}
    tokens = sum(text.tokens for text in texts)
    return FlowAgreement(
        axes=axes,
        values=values[:count],
        null=_means(sums[..., [2, 1]])[:count],
        low=None if interval.low is None else interval.low[:count],
        high=None if interval.high is None else interval.high[:count],
        resampled=interval.resampled,
        provenance=Provenance(
            "identifiability.flow_agreement",
            facts,
            ({"name": model.name, "fingerprint": model.fingerprint},),
            {"name": corpus.name, "fingerprint": corpus.fingerprint, "sentences": len(texts), "tokens": tokens},
            seed=seed,
        ),
        tables=tables,
    )


def _means(part: Array) -> Array:
    """Sums over positions, over their number; 0 where a method told nothing at any."""
    whole = part.sum(axis=0)
    return whole[..., 0] / np.maximum(whole[..., 1], 1)
