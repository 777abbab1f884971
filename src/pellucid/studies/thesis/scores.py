"""Which layers are compared, in both layouts: tagger with language model, layers within it, and all epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.studies.thesis import arrays as wides
from pellucid.studies.thesis import words
from pellucid.studies.thesis.arrays import Wide
from pellucid.studies.thesis.tables import Score
from pellucid.studies.thesis.words import Estimate, Grouping, Kernels

QUANTILES = 101
"""Points at which canonical correlations are kept."""
CONTROLS = ("random_left", "random_right", "random_both")
"""Where random networks stand: on the left, on the right, or on both sides."""
NO_CONTROLS = (None, None, None)


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of a network at an epoch, over the text: [rows, columns, width], and which words it counts.

    `order` gives the words of the right layout as places of the flat array; `grouping` their groups of documents.
    """

    name: str
    epoch: int
    array: Tensor
    order: Tensor
    grouping: Grouping

    @property
    def key(self) -> str:
        """The layer's name at its epoch."""
        return f"{self.name}@{self.epoch}"

    @cached_property
    def wide(self) -> Wide:
        """The layer in the thesis's layout."""
        return Wide(self.array)

    @cached_property
    def rows(self) -> Tensor:
        """The layer in the right layout, [words, width]."""
        return self.array.reshape(-1, self.array.shape[-1])[self.order]

    @cached_property
    def kernels(self) -> dict[str, Kernels]:
        """Gaussian kernels between sampled words."""
        sample = torch.from_numpy(self.grouping.sample).to(self.rows.device)
        return words.gaussian_kernels(self.rows[sample], self.grouping.sampled)


Pair = tuple[Layer, Layer]
Found = dict[tuple[str, str], dict[tuple[str, str], Estimate]]
"""Estimates by the keys of two layers, then by layout and score."""


def compared(pairs: Sequence[Pair], *, slow: bool, intervals: bool) -> Found:
    """Every score of some pairs of layers in both layouts; `slow` also those that decompose matrices."""
    found: Found = {(left.key, right.key): {} for left, right in pairs}
    for left, right in pairs:
        for name, scored in wides.scores(left.wide, right.wide, correlations=slow).items():
            found[left.key, right.key]["thesis", name] = Estimate(scored, None, None, ())
    grouping = pairs[0][0].grouping
    rows = {layer.key: layer.rows for pair in pairs for layer in pair}
    names = [*words.MOMENTS, *(words.SLOW if slow else ())]
    keys = list(found)
    divided = grouping if intervals else grouping.undivided()
    for key, estimates in words.moment_estimates(rows, divided, keys, names).items():
        found[key] |= {("words", name): estimate for name, estimate in estimates.items()}
    for left, right in pairs:
        for name in words.RBF:
            made = words.kernel_estimates(left.kernels[name], right.kernels[name], grouping.sampled_sizes, name)
            for each, estimate in made.items():
                kept = estimate if intervals else Estimate(estimate.scored, None, None, ())
                found[left.key, right.key]["words", each] = kept
    return found


def between(
    tagger: Sequence[Layer], lm: Sequence[Layer], random: tuple[Sequence[Layer], Sequence[Layer]]
) -> list[Score]:
    """Every layer of the tagger with every layer of the language model.

    Those that the thesis prints stand beside shuffled sides and random networks; `random` are a tagger and a language
    model with random weights.
    """
    found = compared([(one, other) for one in tagger for other in lm], slow=True, intervals=True)
    beside: dict[tuple[str, str], dict[str, dict[tuple[str, str], float]]] = {}
    lower = len(tagger)  # the language model's layers that have a counterpart in the tagger
    for at in ((i, j) for i in range(len(tagger)) for j in range(lower)):
        one, other = tagger[at[0]], lm[at[1]]
        blank, bare = random[0][at[0]], random[1][at[1]]
        beside[one.key, other.key] = dict(
            zip(CONTROLS, _listed([(blank, other), (one, bare), (blank, bare)]), strict=True)
        )
    made: list[Score] = []
    generator = torch.Generator().manual_seed(0)
    for left in tagger:
        for right in lm:
            key = (left.key, right.key)
            dealt = wides.shuffled(left.wide, right.wide, generator) if key in beside else None
            for at, estimate in found[key].items():
                controls = [beside[key][name][at] if key in beside else None for name in CONTROLS]
                made.append(_score("between", left, right, at, estimate, controls, shuffled=dealt))
    return made


def _listed(pairs: Sequence[Pair]) -> list[dict[tuple[str, str], float]]:
    """The values alone of some pairs, in their order."""
    found = compared(pairs, slow=True, intervals=False)
    return [{at: each.scored.value for at, each in found[left.key, right.key].items()} for left, right in pairs]


def shifted(tagger: Sequence[Layer], lm: Sequence[Layer]) -> list[Score]:
    """The same layers where the tagger's text is laid in other columns: other words stand at the same places."""
    pairs = list(zip(tagger, lm, strict=False))
    made: list[Score] = []
    for left, right in pairs:
        for name, scored in wides.scores(left.wide, right.wide).items():
            made.append(_score("shifted", left, right, ("thesis", name), Estimate(scored, None, None, ())))
        rows = {layer.key: layer.rows for layer in (left, right)}
        estimates = words.moment_estimates(rows, left.grouping, [(left.key, right.key)], ("cka", "svcca"))
        for name, estimate in estimates[left.key, right.key].items():
            made.append(_score("shifted", left, right, ("words", name), estimate))
    return made


def within(lm: Sequence[Layer], random: Sequence[Layer]) -> list[Score]:
    """Every layer of the language model with itself and all later ones, beside those of a random one."""
    places = [(i, j) for i in range(len(lm)) for j in range(i, len(lm))]
    pairs = [(lm[i], lm[j]) for i, j in places]
    found = compared(pairs, slow=True, intervals=True)
    control = _listed([(random[i], random[j]) for i, j in places])
    return [
        _score("within", left, right, at, estimate, (None, None, control[place][at]))
        for place, (left, right) in enumerate(pairs)
        for at, estimate in found[left.key, right.key].items()
    ]


@dataclass(frozen=True, eq=False)
class Ends:
    """The trained networks that epochs are compared with, and random networks of the same architectures."""

    lm: Sequence[Layer]
    tagger: Sequence[Layer]
    random_lm: Sequence[Layer]
    random_tagger: Sequence[Layer]


class Curves:
    """Compares the layers of one epoch after another with those at the end, and with each other."""

    def __init__(self, ends: Ends) -> None:
        self.ends = ends
        shared = zip(ends.random_tagger, ends.lm, strict=False)
        apart = list(zip(ends.random_tagger, ends.random_lm, strict=False))
        own = [*zip(ends.random_lm, ends.lm, strict=True), *zip(ends.random_tagger, ends.tagger, strict=True)]
        self._beside = {
            "final": self._values(own),
            "target": self._values(list(shared)),
            "epochs": self._values(apart),
        }

    def _values(self, pairs: Sequence[Pair]) -> dict[str, dict[tuple[str, str], float]]:
        """The scores of random networks by the name of the left layer."""
        return {left.name: values for (left, _), values in zip(pairs, _listed(pairs), strict=True)}

    def epoch(self, lm: Sequence[Layer], tagger: Sequence[Layer], *, slow: bool) -> list[Score]:
        """All numbers of one epoch."""
        ends = self.ends
        pairs: dict[str, list[Pair]] = {
            "final": [*zip(lm, ends.lm, strict=True), *zip(tagger, ends.tagger, strict=True)],
            "target": list(zip(tagger, ends.lm, strict=False)),
            "epochs": list(zip(tagger, lm, strict=False)),
        }
        found = compared([pair for several in pairs.values() for pair in several], slow=slow, intervals=True)
        made: list[Score] = []
        for kind, several in pairs.items():
            for left, right in several:
                for at, estimate in found[left.key, right.key].items():
                    beside = self._beside[kind][f"random {left.name}"][at]
                    controls = (None, None, beside) if kind == "epochs" else (beside, None, None)
                    bare = Estimate(estimate.scored, estimate.low, estimate.high, ())
                    made.append(_score(kind, left, right, at, bare, controls))
        return made


def _score(
    kind: str,
    left: Layer,
    right: Layer,
    at: tuple[str, str],
    estimate: Estimate,
    controls: Sequence[float | None] = NO_CONTROLS,
    *,
    shuffled: dict[str, float] | None = None,
) -> Score:
    """A number; `controls` are those of random networks on the left, on the right and on both sides."""
    layout, score = at
    return Score(
        kind,
        layout,
        score,
        left.name,
        left.epoch,
        right.name,
        right.epoch,
        value=estimate.scored.value,
        chance=estimate.scored.null.mean,
        sd=estimate.scored.null.sd,
        shuffled=None if shuffled is None or layout != "thesis" else shuffled[score],
        random_left=controls[0],
        random_right=controls[1],
        random_both=controls[2],
        low=estimate.low,
        high=estimate.high,
        without=estimate.without,
    )


def noise(rows: int, columns: int, width: int, *, seed: int, device: Any) -> tuple[dict[str, Any], list[float]]:
    """Scores of independent Gaussian noise in the thesis's layout beside chance, and its canonical correlations."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    one, other = (Wide(torch.randn(rows, columns, width, generator=generator).to(device)) for _ in range(2))
    found = wides.scores(one, other)
    told = {name: {"value": each.value, "chance": each.null.mean, "sd": each.null.sd} for name, each in found.items()}
    return told, spectrum(wides.canonical(one, other))


def spectrum(rho: np.ndarray) -> list[float]:
    """Canonical correlations from the largest down at evenly spaced ranks."""
    return [float(value) for value in np.quantile(rho, np.linspace(1, 0, QUANTILES))]


def spectra(tagger: Sequence[Layer], lm: Sequence[Layer]) -> dict[str, list[float]]:
    """The canonical correlations of the same layers of both networks, in the thesis's layout."""
    return {
        f"{left.name} – {right.name}": spectrum(wides.canonical(left.wide, right.wide))
        for left, right in zip(tagger, lm, strict=False)
    }
