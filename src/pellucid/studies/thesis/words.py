"""The right layout: words as samples and features as features, with scores that chance leaves at 0, and intervals.

Products are made on the rows' device; every formula is that of `pellucid.similarity`. Only Gaussian kernels are made
here again, because they are wanted on the accelerator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.moment_sums import MomentsView, Pairs, view_of
from pellucid.collect.sums import Columns
from pellucid.similarity import nulls
from pellucid.similarity.cka import ratio
from pellucid.similarity.metrics import chosen
from pellucid.similarity.nulls import Kernel, Null
from pellucid.similarity.sources import MomentPairs
from pellucid.studies.thesis.arrays import Scored, gaussian, median, squared_distances
from pellucid.uncertainty import jackknife

Array = np.ndarray[Any, Any]
KeyPairs = Sequence[tuple[str, str]]
MOMENTS = ("cka", "kornblith-cka")
"""Scores from moments that take no time."""
SLOW = ("svcca",)
"""Scores from moments that decompose them."""
RBF = {"rbf-cka:1": 1.0, "rbf-cka:0.5": 0.5}
"""Gaussian kernels without bias, by their width over the root of the median squared distance."""
BIASED_RBF = {f"kornblith-{name}": name for name in RBF}
"""The same as first published, diagonals included."""


@dataclass(frozen=True)
class Estimate:
    """A score of all words with chance and the ends of its interval; `without` has it without each document group."""

    scored: Scored
    low: float | None
    high: float | None
    without: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Grouping:
    """Which words belong to which group of documents, [n], words of a group one after another; `sample` are places of
    the words whose kernels are made, rising."""

    groups: Array
    sample: Array

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Words of each group."""
        return tuple(int(count) for count in np.unique(self.groups, return_counts=True)[1])

    @cached_property
    def sampled(self) -> Array:
        """The group of every sampled word."""
        return self.groups[self.sample]

    @cached_property
    def sampled_sizes(self) -> tuple[int, ...]:
        """Sampled words of each group."""
        return tuple(int(count) for count in np.unique(self.sampled, return_counts=True)[1])

    def undivided(self) -> Grouping:
        """The same words as one group, where no interval is wanted."""
        return Grouping(np.zeros_like(self.groups), self.sample)


def moments(rows: Mapping[str, Tensor], groups: Array, pairs: KeyPairs) -> MomentsView:
    """Moments of rows [n, width] by key, and of some pairs of keys, in float64 on the rows' device, groups apart."""
    keys = tuple(rows)
    columns = Columns(keys, [part.shape[1] for part in rows.values()])
    numbers = {tuple(sorted((keys.index(one), keys.index(other)))) for one, other in pairs}
    chosen_pairs: Pairs = tuple(sorted({*((n, n) for n in range(len(keys))), *((a, b) for a, b in numbers)}))
    shift = torch.cat([part.double().mean(0) for part in rows.values()]).cpu().numpy().astype(np.float32)
    parts: dict[str, Mapping[str, Array]] = {}
    for group in np.unique(groups):
        chosen_rows = torch.from_numpy(np.flatnonzero(groups == group))
        parts[str(group)] = _sums(rows, chosen_rows, columns, chosen_pairs, shift)
    return view_of(columns, chosen_pairs, shift, parts)


def _sums(
    rows: Mapping[str, Tensor], numbers: Tensor, columns: Columns, pairs: Pairs, shift: Array
) -> dict[str, Array]:
    """The sums of one group about the shift, as `MomentsView` describes them."""
    given = list(rows.values())
    numbers = numbers.to(given[0].device)
    raw = [part[numbers].double() for part in given]
    about = [part - torch.from_numpy(shift[place]).to(part) for part, place in zip(raw, columns.slices, strict=True)]
    norms = torch.stack([part.square().sum(1) for part in about])  # [keys, rows]
    lengths = torch.stack([part.square().sum(1) for part in raw])
    asked = torch.zeros(len(given), len(given), dtype=norms.dtype, device=norms.device)
    for one, other in pairs:
        asked[one, other] = asked[other, one] = 1
    found = {
        "sum": torch.cat([part.sum(0) for part in about]),
        "lengths": lengths.sqrt().sum(1),
        "squares": lengths.sum(1),
        "norms": norms.sum(1),
        "fourth": (norms @ norms.T) * asked,
        "third": torch.cat([(norms @ part) * asked[:, [at]] for at, part in enumerate(about)], dim=1),
    }
    for left, part in enumerate(about):
        others = torch.cat([about[right] for one, right in pairs if one == left], dim=1)
        found[f"product.{left}"] = part.T @ others
    return {"n": np.array([len(numbers)]), **{name: value.cpu().numpy() for name, value in found.items()}}


def moment_estimates(
    rows: Mapping[str, Tensor], grouping: Grouping, pairs: KeyPairs, names: Iterable[str]
) -> dict[tuple[str, str], dict[str, Estimate]]:
    """Scores from moments of some pairs of keys, with chance and jackknife intervals over groups of documents."""
    view = moments(rows, grouping.groups, pairs)
    whole = MomentPairs(view, "float64")
    others = [MomentPairs(view.without(group), "float64") for group in view.groups] if len(view.groups) > 1 else []
    found: dict[tuple[str, str], dict[str, Estimate]] = {pair: {} for pair in pairs}
    for metric in chosen(names):
        for pair in pairs:
            data = whole.pair(*pair)
            without = [metric.score(each.pair(*pair)) for each in others]
            scored = Scored(metric.score(data), metric.null(data))
            found[pair][metric.name] = estimated(scored, without, grouping.sizes)
    return found


def estimated(scored: Scored, without: Sequence[float], sizes: Sequence[int]) -> Estimate:
    """A score with its jackknife interval from the scores without each group, whose sizes may differ."""
    ends = jackknife(np.array(scored.value), [np.array(value) for value in without], sizes[: len(without)])
    low, high = (None if end is None else float(end) for end in (ends.low, ends.high))
    return Estimate(scored, low, high, tuple(float(value) for value in without))


class Kernels:
    """A Gaussian kernel between sampled words without its diagonal, and its sums by groups of documents."""

    def __init__(self, kernel: Tensor, groups: Array) -> None:
        """`kernel` is [words, words], `groups` are the groups of the words."""
        self.matrix = kernel.fill_diagonal_(0.0)
        members = torch.from_numpy((groups[:, None] == np.unique(groups)).astype(np.float64))
        self.members = members.to(kernel.device)  # [words, groups]
        self.sums = self.matrix @ self.members  # [words, groups]: of a word's row, each group's part

    @cached_property
    def own(self) -> list[_Sums]:
        """The sums of this kernel with itself, over all words and without each group."""
        return _all_sums(self, self)


def gaussian_kernels(rows: Tensor, groups: Array) -> dict[str, Kernels]:
    """The kernels of all widths between words [words, features]; widths are those of all words in every estimate."""
    wide = rows.double()
    wide = wide - wide.mean(0)
    squared = squared_distances(wide @ wide.T)
    middle = median(squared)
    return {name: Kernels(gaussian(squared, width, middle), groups) for name, width in RBF.items()}


@dataclass(frozen=True)
class _Sums:
    """Of two kernels over n words: Σ_ij M_ij·M'_ij, Σ_i r_i·s_i, Σr and Σs for row sums r and s."""

    n: int
    inner: float
    crossed: float
    left: float
    right: float

    def unbiased(self) -> float:
        """n(n−3) times the unbiased HSIC."""
        n = self.n
        return self.inner - 2 / (n - 2) * self.crossed + self.left * self.right / ((n - 1) * (n - 2))

    def biased(self) -> float:
        """⟨HKH, HLH⟩ of the kernels with ones on their diagonals."""
        n = self.n
        crossed = self.crossed + self.left + self.right + n
        return self.inner + n - 2 / n * crossed + (self.left + n) * (self.right + n) / n**2


def _all_sums(left: Kernels, right: Kernels) -> list[_Sums]:
    """The sums over all words, and over all but those of each group."""
    members = left.members
    blocks = members.T @ (left.matrix * right.matrix) @ members  # [groups, groups]
    counts = members.sum(0)
    found: list[_Sums] = []
    for group in (None, *range(members.shape[1] if members.shape[1] > 1 else 0)):
        kept = torch.ones(members.shape[1], dtype=members.dtype, device=members.device)
        if group is not None:
            kept[group] = 0
        inside = members @ kept  # 1 for the words that stay
        r, s = left.sums @ kept * inside, right.sums @ kept * inside
        numbers = torch.stack([kept @ counts, kept @ blocks @ kept, r @ s, r.sum(), s.sum()]).tolist()
        found.append(_Sums(round(numbers[0]), *numbers[1:]))
    return found


def kernel_estimates(left: Kernels, right: Kernels, sizes: Sequence[int], name: str) -> dict[str, Estimate]:
    """CKA with Gaussian kernels, without bias under `name` and as first published, with intervals over documents."""
    both, own, other = _all_sums(left, right), left.own, right.own
    parts = list(zip(both, own, other, strict=True))
    debiased = [ratio(*(each.unbiased() for each in part)) for part in parts]
    biased = [ratio(*(each.biased() for each in part)) for part in parts]
    n = both[0].n
    return {
        name: estimated(Scored(debiased[0], nulls.debiased(n)), debiased[1:], sizes),
        f"kornblith-{name}": estimated(
            Scored(biased[0], _biased_null(left, right, own[0], other[0])), biased[1:], sizes
        ),
    }


def _biased_null(left: Kernels, right: Kernels, own: _Sums, other: _Sums) -> Null:
    """The closed form over permutations; HKH has the diagonal 1 − 2r_i/n + Σr/n², r the row sums of K."""
    kernels: list[Kernel] = []
    for side, sums in ((left, own), (right, other)):
        r = side.sums.sum(1) + 1
        diagonal = 1 - 2 * r / sums.n + r.sum() / sums.n**2
        kernels.append(Kernel(float(diagonal.sum()), sums.biased(), float(diagonal @ diagonal)))
    return nulls.biased_cka(own.n, *kernels)
