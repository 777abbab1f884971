"""Maps of attention against hidden token attribution: do they rank tokens as the states react to them?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.attribution.targets import Target, default_targets
from pellucid.collect.progress import Progress
from pellucid.errors import AttributionError, ModelError
from pellucid.heads.flow.following import HIDDEN, METHODS, Settings, chosen, followed
from pellucid.heads.flow.graph import check_work
from pellucid.heads.flow.reading import attention_sites, eager, read
from pellucid.identifiability.hidden_flow import hidden_maps
from pellucid.identifiability.jacobians import check_probes
from pellucid.identifiability.notes import notes_table
from pellucid.identifiability.rank_agreement import BASELINES, LEAST, SUMS, agreement, baseline_maps, ceiling
from pellucid.model.twin import twin_of
from pellucid.results import Array, Coordinate, Provenance, Result, ResultError, Table
from pellucid.uncertainty import Interval, over_documents

if TYPE_CHECKING:
    from pellucid.corpus import Corpus, Sentence
    from pellucid.heads.flow.reading import Reading
    from pellucid.identifiability.jacobians import Probes
    from pellucid.model import Model

FIRST = 1
"""Where the first word of a text stands, after a special token."""
MOST = 8
"""Positions of a text that are looked at where attention flow is among the methods, spread over it."""


@dataclass(frozen=True, eq=False)
class FlowAgreement(Result):
    """Rank correlation of maps of attention with hidden token attribution, [measure, layer]; a measure is a method.

    Tables: `baselines` (maps that look at no weights), `random model` (the same correlations in a randomly initialised
    model), both with intervals; `chance` (the sd over permutations, and how many of them a correlation is from 0),
    `positions` (how many were compared, how many of these a map gave no ranks, how many it said nothing about),
    `ceiling` (how well estimated hidden token attribution agrees with itself, and the most that any map can reach for
    it), `texts` (tokens and positions of every text, and the error of its hidden token attribution), `by text` (their
    sums of correlations), `notes`.
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
    """One text: sums [measures, baselines and halves, layer, `SUMS`], and the hidden error."""

    document: str
    tokens: int
    positions: int
    sums: Array
    error: float


def flow_agreement(
    model: Model,
    corpus: Corpus,
    methods: str | Iterable[str] | None = None,
    *,
    sentences: int = 40,
    target: str | Target | None = None,
    residual: float = Settings.residual,
    steps: int = Settings.steps,
    probes: Probes = None,
    random: bool = True,
    seed: int = 0,
    progress: bool | None = None,
) -> FlowAgreement:
    """Spearman's correlation of every method's map with hidden token attribution, over the first `sentences`.

    At each position the tokens in its sight are ranked by both, from three tokens on; correlations are averaged over
    positions, special tokens being sources alone. Methods are all by default; attribution, which is ranked by size, is
    left out where the model predicts no one thing and no `target` is named. With `flow`, at most 8 positions of a text
    are looked at; one longer than the model takes is cut. Noise of estimated norms (`probes`, see `mixing`) lowers all
    correlations, and `ceiling` tells how far. With `random`, a randomly initialised model of the same shape stands
    beside.
    """
    if sentences < 1:
        raise ModelError(f"sentences={sentences} leaves nothing to look at; give 1 or more.")
    check_probes(probes)
    names, notes = chosen(METHODS if methods is None else methods), list[str]()
    if methods is None and target is None:
        names, target, notes = compared(model)
    settings = Settings(residual, target, steps)
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
    facts: dict[str, Any] = {"methods": list(names), "sentences": sentences, "probes": probes, "residual": residual}
    facts |= {"steps": steps, "target": str(target or "predicted")} if "attribution" in names else {}
    return _result(model, corpus, names, found, facts | {"random": len(found) > 1}, notes, seed)


def compared(model: Model) -> tuple[list[str], Target | None, list[str]]:
    """The methods that are compared by default, what attribution explains, and a note on that.

    A model that tells something of every token is asked about the first word; one that predicts nothing, or two things,
    is not asked at all.
    """
    name = type(model.hf).__name__
    kinds = {"MaskedLM": Target.token(position=FIRST), "TokenClassification": Target.label(position=FIRST)}
    for kind, target in kinds.items():
        if kind in name:
            return list(METHODS), target, ["Attribution explains what is predicted at the first word."]
    try:
        found, *more = default_targets(model)
        if not more:
            return list(METHODS), found, []
        why = "this model predicts more than one thing"
    except AttributionError as error:
        why = str(error).partition(",")[0]
    return [method for method in METHODS if method != "attribution"], None, [f"Attribution is left out: {why}."]


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
    probes: Probes,
    seed: int,
    shown: Progress,
) -> Iterable[_Text]:
    for number, (sentence, reading) in enumerate(readings):
        maps = followed(reading, methods, settings).maps
        hidden, halves = hidden_maps(reading, probes=probes, seed=seed + number)
        whole = hidden.maps[HIDDEN]
        sizes = [np.abs(maps[name]) for name in methods]
        sizes += [*baseline_maps(reading.positions, whole.shape[-1], layers=len(whole))]
        sums = agreement(np.stack(sizes), whole, reading.positions, causal=reading.causal)
        itself = agreement(halves[:1], halves[1], reading.positions, causal=reading.causal)
        error = float(np.mean([check.error for check in hidden.checks]))
        both = np.concatenate([sums, itself])
        yield _Text(sentence.document, reading.length, len(reading.positions), both, error)
        shown.advance(1)


def _result(
    model: Model,
    corpus: Corpus,
    names: Sequence[str],
    found: Sequence[Sequence[_Text]],
    facts: dict[str, Any],
    notes: Sequence[str],
    seed: int,
) -> FlowAgreement:
    """Means over positions with their intervals, and the tables."""
    texts, count = found[0], len(names)
    values, interval = _over(texts)
    axes: dict[str, tuple[Coordinate, ...]] = {"measure": tuple(names), "layer": tuple(range(values.shape[1]))}
    tables = _tables(texts, axes, values, interval) | notes_table(notes)
    if len(found) > 1:
        twin, ends = _over(found[1])
        tables["random model"] = Table(axes, {"value": twin[:count], **_ends(ends, slice(count))})
    tokens = sum(text.tokens for text in texts)
    return FlowAgreement(
        axes=axes,
        values=values[:count],
        null=np.zeros_like(values[:count]),
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


def _tables(
    texts: Sequence[_Text], axes: Mapping[str, tuple[Coordinate, ...]], values: Array, interval: Interval
) -> dict[str, Table]:
    """Baselines, chance, positions, the ceiling and the texts."""
    count, layer = len(axes["measure"]), {"layer": axes["layer"]}
    sums = np.sum([text.sums for text in texts], axis=0)
    own = {name: sums[:count, :, place] for place, name in enumerate(SUMS)}
    spread = np.sqrt(own["variance"]) / np.maximum(own["positions"], 1)
    away = np.divide(values[:count], spread, out=np.zeros_like(spread), where=spread > 0)
    silent = sum(text.positions for text in texts) - own["positions"]
    base = slice(count, count + len(BASELINES))
    columns = {name: [getattr(text, name) for text in texts] for name in ("document", "tokens", "positions", "error")}
    return {
        "baselines": Table({"baseline": tuple(BASELINES), **layer}, {"value": values[base], **_ends(interval, base)}),
        "chance": Table(axes, {"sd": spread, "z": away}),
        "positions": Table(
            axes, {"positions": own["positions"], "without ranks": own["without ranks"], "silent": silent}
        ),
        "ceiling": Table(layer, {"between halves": values[-1], "ceiling": ceiling(values[-1])}),
        "texts": Table.of_rows(columns),
        "by text": _by_text(texts, (*axes["measure"], *BASELINES)),
    }


def _by_text(texts: Sequence[_Text], maps: tuple[Coordinate, ...]) -> Table:
    """The sums of correlations and positions of every text, from which intervals of differences can be had."""
    sums = np.stack([text.sums[: len(maps)] for text in texts])
    axes = {"text": tuple(range(1, len(texts) + 1)), "map": maps, "layer": tuple(range(sums.shape[2]))}
    return Table(axes, {"correlations": sums[..., 0], "positions": sums[..., 1]})


def _over(texts: Sequence[_Text]) -> tuple[Array, Interval]:
    """Means over positions with their interval over documents, which weigh as their positions."""
    sums = np.stack([text.sums for text in texts])  # [text, measure + baseline + halves, layer, sum]
    sizes = [float(text.positions) for text in texts]
    return over_documents(sums, [text.document for text in texts], _means, sizes=sizes)


def _ends(interval: Interval, part: slice) -> dict[str, Array]:
    if interval.low is None or interval.high is None:
        return {}
    return {"low": interval.low[part], "high": interval.high[part]}


def _means(part: Array) -> Array:
    """Sums over positions, over their number; 0 where a method told nothing at any, which `positions` tells."""
    whole = part.sum(axis=0)
    return whole[..., 0] / np.maximum(whole[..., 1], 1)
