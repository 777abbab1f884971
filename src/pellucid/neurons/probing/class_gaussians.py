"""Gaussians of the classes of a concept: fitted on rows, on fewer neurons where all would take too much memory, or on
the class covariances of a sweep."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.concepts import Concept
from pellucid.neurons.probing.gaussian_selection import Gaussians, alone, fitted, fitted_in_place
from pellucid.neurons.probing.labels import warn_of_rare
from pellucid.neurons.probing.rows import Rows, SomeNeurons
from pellucid.neurons.ranking import neuron_names
from pellucid.neurons.sources import Sites, site_of, view_of
from pellucid.results import Array, ResultError

if TYPE_CHECKING:
    from pellucid.collect.found import Found

LIMIT = 1 << 30
"""Bytes of class covariances that are held; with more neurons than fit, those that tell most alone are read."""


def class_gaussians(
    rows: Rows, goals: Array, wanted: Array, classes: int, *, dimensions: int | None = None
) -> Gaussians:
    """The Gaussian of each class from the wanted rows, in one pass, about a pilot mean, in float64."""
    d = len(rows.names)
    counts, pilot = _counted(goals, wanted, classes), None
    first, second = np.zeros((classes, d)), np.zeros((classes, d, d))
    for numbers, part in rows.batches(wanted & (goals >= 0), 1024, None):
        pilot = part.mean(0) if pilot is None else pilot
        away, codes = (part - pilot).double(), goals[numbers]
        for code in np.unique(codes):
            mine = away[torch.from_numpy(codes == code)]
            first[code] += mine.sum(0).numpy()
            torch.from_numpy(second[code]).addmm_(mine.T, mine)
    assert pilot is not None
    offset = first / counts[:, None]
    for code in range(classes):
        second[code] /= counts[code]
        second[code] -= np.outer(offset[code], offset[code])
    return fitted_in_place(counts, pilot.double().numpy() + offset, second, dimensions=dimensions)


def class_variances(rows: Rows, goals: Array, wanted: Array, classes: int) -> Gaussians:
    """The Gaussian of each class of every neuron alone: `covariances` are variances [classes, d]."""
    counts, pilot = _counted(goals, wanted, classes), None
    first, second = np.zeros((classes, len(rows.names))), np.zeros((classes, len(rows.names)))
    for numbers, part in rows.batches(wanted & (goals >= 0), 1024, None):
        pilot = part.mean(0) if pilot is None else pilot
        away, codes = (part - pilot).double().numpy(), goals[numbers]
        for code in np.unique(codes):
            first[code] += away[codes == code].sum(0)
            second[code] += (away[codes == code] ** 2).sum(0)
    assert pilot is not None
    offset = first / counts[:, None]
    share, spread = counts / counts.sum(), np.maximum(second / counts[:, None] - offset**2, 0.0)
    total = share @ (spread + (offset - share @ offset) ** 2)
    return Gaussians(pilot.double().numpy() + offset, spread + 1e-6 * total, np.log(share))


def _counted(goals: Array, wanted: Array, classes: int) -> Array:
    counts = np.bincount(goals[wanted & (goals >= 0)], minlength=classes).astype(np.float64)
    if (counts < 2).any():
        raise ResultError("A Gaussian needs two or more words of every class in the documents to learn from.")
    return counts


def most_neurons(classes: int) -> int:
    """How many neurons have class covariances that fit in memory."""
    return int((LIMIT / (8 * classes)) ** 0.5)


def those_that_fit(lone: Gaussians, held: Tensor, goals: Array, count: int) -> Array:
    """The places of the neurons to read: all where they fit, else those that tell the classes of held words best, each
    by itself, in the order of the model."""
    classes, total = lone.means.shape
    most = most_neurons(classes)
    if total <= most:
        return np.arange(total)
    if most < count:
        raise ResultError(
            f"Gaussians of {classes} classes fit in memory with {most:,} neurons, and {count:,} are to be chosen; use "
            "a smaller count, or fewer classes."
        )
    return np.sort(np.argsort(-alone(lone, held, goals), kind="stable")[:most])


def some(rows: Rows, places: Array) -> Rows:
    """Rows of some neurons; the same rows where these are all."""
    return rows if len(places) == len(rows.names) else SomeNeurons(rows, places)


def warn_of_few(classes: Sequence[str], counts: Array, dimensions: int) -> None:
    """Warns, once for all classes, where a class has fewer words than a Gaussian has dimensions."""
    few = int(np.argmin(counts))
    short = int((np.asarray(counts) < dimensions).sum())
    if short:
        warnings.warn(
            f"{short} of {len(classes)} classes have fewer words to learn from than there are neurons, {dimensions:,} "
            f"({classes[few]!r} has {int(counts[few]):,}): the prior makes their variances smaller by n/(n + "
            "2d), so what is told of them is far off; give more text, or fewer sites.",
            NeuronWarning,
            stacklevel=3,
        )


def warn_of_still(count: int, usual: int, total: int) -> None:
    """Warns where fewer neurons are chosen than is usual, because the others never change; none are refused later."""
    if 0 < count < usual:
        warnings.warn(
            f"{count:,} of {total:,} neurons change with the text, so {count:,} are chosen, and not {usual:,}.",
            NeuronWarning,
            stacklevel=3,
        )


@dataclass(frozen=True, eq=False)
class OfSweep:
    """The Gaussians of a sweep's class covariances, with the names of classes and neurons, and words [classes].

    `left_out` are the classes that are too rare, with their counts.
    """

    gaussians: Gaussians
    classes: tuple[str, ...]
    neurons: tuple[str, ...]
    counts: Array
    left_out: Mapping[str, int]


def gaussians_of_sweep(found: Found, concept: Concept, sites: Sites, *, fewest: int) -> OfSweep:
    """The Gaussians of one site from `ClassMoments(site, label=…, covariance="full")`; rare classes are left out."""
    from pellucid.collect.classes import ClassMoments

    view, keys = view_of(found, ClassMoments, concept, sites, covariance="full")
    if len(keys) > 1:
        raise ResultError(
            f"A sweep has covariances inside each site, and not between {site_of(keys[0])} and {site_of(keys[1])}; "
            "choose one with sites=, or give a store."
        )
    (key,) = keys
    grouping = concept.grouped(view.label, view.values)
    words = {name: int(view.counts[list(places)].sum()) for name, places in grouping.items()}
    kept = tuple(name for name in grouping if words[name] >= max(2, fewest))
    if len(kept) < 2:
        raise ResultError(
            f"{concept.name!r} has {len(kept)} classes with at least {fewest} words; give more text, or lower fewest "
            "(--fewest)."
        )
    left_out = {name: count for name, count in words.items() if name not in kept}
    warn_of_rare(concept, left_out, fewest)
    means = view.means(key)
    covariances = np.zeros((len(kept), means.shape[1], means.shape[1]))
    centres: list[Array] = []
    for own, name in zip(covariances, kept, strict=True):
        shares = {place: view.counts[place] / words[name] for place in grouping[name] if view.counts[place]}
        centre = sum((share * means[place] for place, share in shares.items()), np.zeros(means.shape[1]))
        for place, share in shares.items():
            away = means[place] - centre
            own += share * (view.covariance(view.values[place], key) + np.outer(away, away))
        centres.append(centre)
    counts = np.array([words[name] for name in kept], dtype=np.float64)
    made = fitted(counts, np.stack(centres), covariances)
    return OfSweep(made, kept, neuron_names(site_of(key), means.shape[1]), counts, left_out)


def drawn(made: Gaussians, count: int, dice: np.random.Generator) -> tuple[Tensor, Array]:
    """Rows [count, d] and their classes, drawn from the Gaussians themselves, classes as often as they occur."""
    goals = np.sort(dice.choice(len(made.prior), size=count, p=np.exp(made.prior)))
    rows = torch.from_numpy(dice.normal(size=(count, made.means.shape[1])))
    for code in np.unique(goals):
        mine = torch.from_numpy(goals == code)
        sizes, directions = torch.linalg.eigh(torch.from_numpy(made.covariances[code]))
        spread = directions * sizes.clamp(min=0).sqrt()  # rounding of a sweep's sums may leave sizes below 0
        rows[mine] = torch.from_numpy(made.means[code]) + rows[mine] @ spread.T
    return rows, goals
