"""NeuroX's files and NeuroX's arithmetic, to compare with: what `preset="neurox"` of `rank` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pellucid.errors import CorpusError, listing
from pellucid.neurons.arrays import ArrayStore, array_store
from pellucid.neurons.concepts import Concept, scored_places
from pellucid.neurons.methods import LABEL
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.results import Array, ResultError

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.neurons.probing.rows import Rows
    from pellucid.neurons.sources import Sites

EPOCHS, BATCH, STEP, PENALTY = 10, 32, 1e-3, 1e-3
"""How `train_logistic_regression_probe` trains, with the penalties of its tutorials."""
STEPS = 100
"""Into how many parts `get_neuron_ordering` divides the weight of a class."""


def neurox_store(activations: str | Path, words: str | Path, labels: str | Path, *, label: str = LABEL) -> ArrayStore:
    """An activations file of NeuroX (.json, one sentence per line; .hdf5 with h5py) with its words and labels.

    Layers become `resid.0`, `resid.1` …; a line where the numbers of words, labels and activations differ is named.
    """
    parts, named, told, owner, depth = [], [], [], [], 0
    texts, tags = ([line.split() for line in _lines(path)] for path in (words, labels))
    for line, (matrix, layers) in enumerate(_activations(Path(activations))):
        if line >= len(texts) or line >= len(tags) or not len(matrix) == len(texts[line]) == len(tags[line]):
            counts = [len(each[line]) if line < len(each) else 0 for each in (texts, tags)]
            raise CorpusError(
                f"Line {line + 1} has {len(matrix)} activations, {counts[0]} words and {counts[1]} labels; each word "
                "needs one of each, in the tokenisation that the activations were extracted with."
            )
        if parts and (layers, matrix.shape[1]) != (depth, parts[0].shape[1]):
            raise CorpusError(
                f"Line {line + 1} has {layers} layers and {matrix.shape[1]} neurons in all, and line 1 {depth} and "
                f"{parts[0].shape[1]}; extract all sentences from the same layers of one model."
            )
        parts.append(matrix)
        named += texts[line]
        told += tags[line]
        owner += [line] * len(matrix)
        depth = layers
    if not parts or not len(parts) == len(texts) == len(tags):
        raise CorpusError(
            f"{str(activations)!r} has {len(parts)} sentences, {str(words)!r} {len(texts)} and {str(labels)!r} "
            f"{len(tags)}; all three need the same sentences, one on each line."
        )
    return array_store(
        np.concatenate(parts),
        told,
        words=named,
        sentences=owner,
        layers=depth,
        label=label,
        name=Path(activations).name,
    )


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise CorpusError(f"{str(path)!r} cannot be read ({error}).") from None


def _activations(path: Path) -> Iterator[tuple[Array, int]]:
    """The rows [words, layers · width] of every sentence, and how many layers they have."""
    if path.suffix == ".hdf5":
        yield from _of_hdf5(path)
        return
    for number, line in enumerate(_lines(path), start=1):
        try:
            features = json.loads(line)["features"]
            rows = np.array([np.concatenate([part["values"] for part in word["layers"]]) for word in features])
            yield rows.reshape(len(features), -1), len(features[0]["layers"]) if features else 1
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusError(
                f"Line {number} of {str(path)!r} is no NeuroX activation ({error}); it holds JSON lines with features, "
                "layers and values, or is an .hdf5 file."
            ) from None


def _of_hdf5(path: Path) -> Iterator[tuple[Array, int]]:
    try:
        import h5py  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
    except ImportError:
        raise CorpusError("An .hdf5 file of activations needs h5py: pip install h5py.") from None
    library: Any = h5py
    with library.File(path, "r") as file:
        for number in sorted(int(name) for name in file if name != "sentence_to_index"):
            layers = np.asarray(file[str(number)])  # [layers, words, width]
            yield np.swapaxes(layers, 0, 1).reshape(layers.shape[1], -1), len(layers)


def neurox_ranking(store: Store, method: str, concept: Concept, sites: Sites, seed: int) -> Ranking:
    """One of NeuroX's rankings, by its own arithmetic, of a store or of arrays."""
    from pellucid.neurons.precision import precision
    from pellucid.neurons.probeless import probeless
    from pellucid.neurons.probing.gaussian import gaussian

    ways: dict[str, Callable[[], Ranking]] = {
        "probeless": lambda: probeless(store, concept=concept, sites=sites, seed=seed),
        "iou": lambda: precision(store, concept=concept, sites=sites, exact=True, preset="neurox", seed=seed),
        "probe-elastic": lambda: _probe(store, concept, sites, seed),
        "gaussian": lambda: gaussian(store, concept=concept, sites=sites, by="information", preset="neurox",
                                     seed=seed).ranking(),
    }  # fmt: skip
    if method not in ways:
        raise ResultError(f"NeuroX has no ranking by {method!r}; preset='neurox' has {listing(ways)}.")
    return ways[method]()


def _probe(store: Store, concept: Concept, sites: Sites, seed: int) -> Ranking:
    """Weights of a linear probe on raw activations, beside those of the same probe of shuffled labels.

    Overall is the order of `mass_steps`, as 1 for step 0 down to 1/101 for step 100, and 0 for neurons without weight.
    """
    from pellucid.neurons.probing.material import Reading, material

    found = material(store, concept, Reading(sites, seed=seed), controlled=False)
    learned, goals = found.split.training, found.data.goals
    shuffled = goals.copy()
    shuffled[learned] = np.random.default_rng(seed).permutation(goals[learned])
    real, chance = (
        trained(found.rows, each, learned, len(found.data.classes), seed=seed) for each in (goals, shuffled)
    )
    kept = scored_places(found.data.classes)
    names, (score, null) = found.rows.names, (1 - mass_steps(each) / (STEPS + 1) for each in (real, chance))
    told = {"method": "probe-elastic", "preset": "neurox", "epochs": EPOCHS, "batch": BATCH, "step": STEP}
    return Ranking(
        axes={"class": tuple(found.data.classes[place] for place in kept), "neuron": names},
        values=real[kept],
        null=np.abs(chance)[kept],
        low=None,
        high=None,
        resampled="no interval: NeuroX trains one probe",
        provenance=found.provenance("neurons.probe", {**told, "l1": PENALTY, "l2": PENALTY}, seed),
        tables={"overall": overall_table(names, score, null=null)},
    )


def mass_steps(weights: Array) -> Array:
    """The step at which each neuron [neurons] enters NeuroX's order of weights [classes, neurons]: 0 to 100, or 101.

    Step p takes from every class the fewest neurons, by |w|, that hold p per cent of the class's Σ|w|, and at least one
    (Dalvi et al. 2019): a neuron enters where those before it in some class hold less than p per cent.
    """
    first = np.full(weights.shape[1], STEPS + 1)
    for size in np.abs(weights):
        order = np.argsort(-size, kind="stable")
        before = np.concatenate([[0.0], np.cumsum(size[order])[:-1]])
        steps = np.searchsorted(size.sum() * np.arange(STEPS + 1) / STEPS, before, side="right")
        steps[0] = 0
        first[order] = np.minimum(first[order], np.where(size[order] > 0, np.minimum(steps, STEPS), STEPS + 1))
    return first


def trained(rows: Rows, goals: Array, wanted: Array, classes: int, *, seed: int) -> Array:
    """Weights [classes, neurons] as NeuroX trains them on the wanted rows: raw activations, batches in the order of the
    rows, Adam, and cross-entropy + λ₁·Σ|w| + λ₂·√Σw² (a norm, not its square)."""
    torch.manual_seed(seed)
    layer = torch.nn.Linear(len(rows.names), classes)
    optimizer = torch.optim.Adam(layer.parameters(), lr=STEP)
    with torch.enable_grad():
        for _ in range(EPOCHS):
            for numbers, part in rows.batches(wanted, BATCH, None):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(layer(part), torch.from_numpy(goals[numbers]))
                weight = layer.weight
                (loss + PENALTY * weight.abs().sum() + PENALTY * weight.square().sum().sqrt()).backward()
                optimizer.step()
    return layer.weight.detach().double().numpy()
