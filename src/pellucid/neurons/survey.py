"""A survey of neurons: which of a site's units are dead, silent, saturated, vary much or little, or follow the place or
frequency of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.errors import listing
from pellucid.neurons.class_sums import ClassSums, sums_of
from pellucid.neurons.concepts import Concept
from pellucid.neurons.ranking import neuron_names
from pellucid.neurons.reading_tables import SATURATED, SILENT, kind_of
from pellucid.neurons.sources import (
    Sites,
    check_read,
    patterns,
    site_of,
    twin_keys,
    usual_sites,
    view_of,
    without_control,
)
from pellucid.results import Array, Result, ResultError, Table
from pellucid.uncertainty import jackknife

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.collect.quantiles import QuantilesView
    from pellucid.corpus import Corpus
    from pellucid.model import Model

MEASURES = {
    "spread": "standard deviation over the median one of its site",
    "position": "share of the variance that the place in the sentence explains (η² of bands)",
    "frequency": "share of the variance that the frequency of the word explains (η² of bands)",
}
FOLLOWED = ("position", "frequency")
WIDE, NARROW, FOLLOWS = 3.0, 1 / 3, 0.1
"""Spreads from which on, and up to which, a neuron varies much or little, and the η² from which on it follows."""
KINDS = {
    "dead": "it never changes",
    "mostly silent": "within 1% of its largest size from 0 at most words",
    "saturated": "within 1% of its range from an end of it at most words",
    "high variance": "its spread is 3 or more",
    "low variance": "its spread is ⅓ or less",
    "position": "the place explains a tenth or more of its variance",
    "frequency": "the frequency explains a tenth or more of its variance",
}


@dataclass(frozen=True, eq=False)
class NeuronSurvey(Result):
    """Spread of every neuron, and what place and frequency of words explain of it, [measure, neuron].

    Tables: `activity` (mean, sd, smallest, largest, silent, saturated and the kind of each neuron; shares are read off
    histograms) and `sites` (how many neurons of each kind every site has, here and in the random model).
    """

    kind: ClassVar[str] = "neurons.survey"
    title: ClassVar[str] = "Neurons that vary, are silent, or follow place and frequency"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "the median neuron; for η², words dealt out at random"

    @property
    def neurons(self) -> tuple[str, ...]:
        """The names of all neurons, site by site."""
        return tuple(str(name) for name in self.axes["neuron"])

    def of_kind(self, kind: str) -> list[str]:
        """The names of the neurons of a kind; those that vary or follow most come first."""
        if kind not in KINDS:
            raise ResultError(f"There is no kind {kind!r} of neurons; there are {', '.join(KINDS)}.")
        chosen = np.flatnonzero(np.array([kind in each.split(", ") for each in self.table("activity").columns["kind"]]))
        measure = self.place("measure", kind if kind in FOLLOWED else "spread")
        sign = 1 if kind == "low variance" else -1
        return [self.neurons[place] for place in chosen[np.argsort(sign * self.values[measure, chosen], kind="stable")]]


def survey_collectors(sites: tuple[str, ...]) -> list[Collector]:
    """What a survey needs; the text must carry the properties `position` and `frequency` as labels."""
    from pellucid.collect.classes import ClassMoments
    from pellucid.collect.quantiles import Quantiles

    followed = [ClassMoments(sites, label=name, covariance="diagonal", groups=True) for name in FOLLOWED]
    return [*followed, Quantiles(sites)]


def survey(
    source: Found | Model,
    corpus: Corpus | None = None,
    *,
    sites: Sites = None,
    control: bool = True,
    seed: int = 0,
    **options: Any,
) -> NeuronSurvey:
    """All neurons of some sites (default: residual stream and MLP units) at a glance, from one sweep.

    A sweep must have `survey_collectors(sites)`; a model reads the corpus beside its random twin (`control`), and that
    of a sweep counts where it is there. η² is
    Σ_b n_b (μ_b − μ)² / Σ (x − μ)² over bands b, and (B − 1)/(n − 1) by chance. Intervals leave out document groups.
    """
    from pellucid.collect.found import Found
    from pellucid.collect.quantiles import Quantiles

    if isinstance(source, Found):
        check_read(source, corpus, options)
        found = source if control else without_control(source)
    else:
        found = _swept(source, corpus, sites, control, seed, options)
    values, null, again, sizes, about = _measured(found, sites)
    quantiles = _with_keys(found, Quantiles, about["keys"])
    interval = jackknife(values, again, sizes)
    activity = _activity(quantiles, about["keys"], about["mean"], about["sd"], values)
    neurons = tuple(n for key in about["keys"] for n in neuron_names(site_of(key), len(quantiles.smallest(key))))
    twin = None
    if about["twins"]:
        other, _ = _followed(found, about["twins"], sites)
        twin = _activity(quantiles, about["twins"], other["mean"], other["sd"], other["values"])["kind"]
    owner = [site_of(key) for key in about["keys"] for _ in range(len(quantiles.smallest(key)))]
    return NeuronSurvey(
        axes={"measure": tuple(MEASURES), "neuron": neurons},
        values=values,
        null=null,
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("neurons.survey", {"sites": list(patterns(sites))}, seed=seed),
        tables={"activity": Table({"neuron": neurons}, activity), "sites": _sites(owner, activity["kind"], twin)},
    )


def _swept(
    model: Model, corpus: Corpus | None, sites: Sites, control: bool, seed: int, options: Mapping[str, Any]
) -> Found:
    from pellucid.collect.sweep import sweep

    if corpus is None:
        raise ResultError("A model needs a corpus to read: survey(model, corpus).")
    for name in FOLLOWED:
        corpus = corpus.labelled(Concept.property(name))
    models = [model, type(model).random_like(model, seed)] if control else [model]
    chosen = patterns(sites) or usual_sites(model.sites, options.get("side", "source"))
    return sweep(models, corpus, survey_collectors(chosen), **options)


def _measured(found: Found, sites: Sites) -> tuple[Array, Array, list[Array], list[float], dict[str, Any]]:
    """Measures, chance, the same without each document group and the groups' words, and what they came from."""
    from pellucid.collect.classes import ClassMoments

    view, keys = view_of(found, ClassMoments, Concept.property(FOLLOWED[0]), sites)
    about, bands = _followed(found, keys, sites)
    n = float(view.counts.sum())
    null = np.stack([np.ones_like(about["sd"]), *(np.full_like(about["sd"], (len(b) - 1) / (n - 1)) for b in bands)])
    sizes = {number: float(view.group(number).counts.sum()) for number in view.groups}
    kept = [number for number, size in sizes.items() if size] if len(sizes) > 1 else []
    again = [_followed(found, keys, sites, without=number)[0]["values"] for number in kept]
    told = {**about, "keys": keys, "twins": twin_keys(found, view, keys)}
    return about["values"], null, again, [sizes[number] for number in kept], told


def _followed(
    found: Found, keys: Sequence[str], sites: Sites, *, without: int | None = None
) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """Measures [measure, neuron], mean and sd [neuron] of some keys, and the bands of place and of frequency."""
    from pellucid.collect.classes import ClassMoments

    parts: list[Array] = []
    bands: list[tuple[str, ...]] = []
    sums: ClassSums | None = None
    places: list[slice] = []
    for name in FOLLOWED:
        concept = Concept.property(name)
        view, _ = view_of(found, ClassMoments, concept, sites)
        if len(view.values) < 2:
            told = listing(view.values) or "unknown"
            raise ResultError(f"The {name} of every word is {told}, so nothing can follow it; give more text.")
        grouping = concept.grouped(view.label, view.values)
        sums = sums_of(view if without is None else view.without(without), keys, grouping)
        places = [view.columns.slices[view.keys.index(key)] for key in keys]
        total = sums.total
        parts.append(np.where(total > 0, 1 - sums.within / np.where(total > 0, total, 1.0), 0.0).clip(0, 1))
        bands.append(tuple(grouping))
    assert sums is not None
    sd = np.sqrt(sums.total)
    ends = np.cumsum([place.stop - place.start for place in places])
    middle = np.concatenate([np.full(len(part), np.median(part)) for part in np.split(sd, ends[:-1])])
    spread = np.where(middle > 0, sd / np.where(middle > 0, middle, 1.0), 0.0)
    mean = (sums.counts / sums.counts.sum()) @ sums.means
    return {"values": np.stack([spread, *parts]), "mean": mean, "sd": sd}, bands


def _activity(view: QuantilesView, keys: Sequence[str], mean: Array, sd: Array, values: Array) -> dict[str, Array]:
    """The columns of the table `activity`, [neuron] each."""
    low, high = (np.concatenate([side(key) for key in keys]).astype(np.float64) for side in
                 (view.smallest, view.largest))  # fmt: skip
    silent, ends = (np.concatenate(part) for part in zip(*(_shares(view, key) for key in keys), strict=True))
    kinds: list[str] = []
    for unit in range(len(sd)):
        first = kind_of(float(high[unit] - low[unit]), float(silent[unit]), float(ends[unit])).partition(":")[0]
        spread, position, frequency = values[:, unit]
        if first == "dead":
            kinds.append(first)
            continue
        told = [first] if first != "varies" else []
        told += ["high variance"] if spread >= WIDE else ["low variance"] if spread <= NARROW else []
        told += [name for name, share in zip(FOLLOWED, (position, frequency), strict=True) if share >= FOLLOWS]
        kinds.append(", ".join(told) or "varies")
    return {
        "mean": mean, "sd": sd, "smallest": low, "largest": high, "silent": silent, "saturated": ends,
        "kind": np.array(kinds),
    }  # fmt: skip


def _shares(view: QuantilesView, key: str) -> tuple[Array, Array]:
    """The share of words at which each unit is silent, and at an end of its range, read off its histogram."""
    low, high = view.smallest(key).astype(np.float64), view.largest(key).astype(np.float64)
    silent, ends = np.ones(len(low)), np.ones(len(low))
    for unit in np.flatnonzero(high > low).tolist():
        counts, edges = view.histogram(key, unit)
        edges = np.clip(edges, low[unit], high[unit])
        below = np.concatenate([[0], np.cumsum(counts)]) / counts.sum()
        near, reach = SILENT * max(abs(low[unit]), abs(high[unit])), SATURATED * (high[unit] - low[unit])
        at = np.interp([-near, near, low[unit] + reach, high[unit] - reach], edges, below)
        silent[unit], ends[unit] = at[1] - at[0], at[2] + 1 - at[3]
    return silent, ends


def _sites(owner: Sequence[str], kinds: Array, twin: Array | None) -> Table:
    """How many neurons of each kind every site has, and in the random model (−1 where there is none)."""
    names = tuple(dict.fromkeys(owner))
    place = np.array(owner)

    def count(of: Array | None, site: str, kind: str) -> int:
        if of is None:
            return -1
        return sum(kind in each.split(", ") for each in of[place == site].tolist())

    cells = {column: np.array([[count(of, site, kind) for kind in KINDS] for site in names])
             for column, of in (("neurons", kinds), ("random model", twin))}  # fmt: skip
    cells["of"] = np.array([[int((place == site).sum())] * len(KINDS) for site in names])
    return Table({"site": names, "kind": tuple(KINDS)}, cells)


def _with_keys(found: Found, kind: type[Collector], keys: Sequence[str]) -> Any:
    """The view of a collector that has all of some keys."""
    views = [found[name] for name, each in found.collectors.items() if isinstance(each, kind)]
    for view in views:
        if all(key in view.keys for key in keys):
            return view
    raise ResultError(f"A survey needs {kind.__name__} of the same sites; sweep with survey_collectors(sites).")
