"""Scores that need the words themselves, from a sample: RBF CKA, nearest neighbours, ranks and distances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from pellucid.errors import listing
from pellucid.similarity import nulls, tiles
from pellucid.similarity.cka import ratio
from pellucid.similarity.metrics import Metric, number_of, register
from pellucid.similarity.nulls import Null
from pellucid.similarity.pair import Array, SimilarityError

NEIGHBOURS = 10


@dataclass(frozen=True, eq=False)
class SampleSet:
    """Rows [n, d] of the same words at several sites; what all pairs need of them is worked out once."""

    rows: Mapping[str, Array]
    _products: dict[str, tiles.Products] = field(default_factory=dict[str, tiles.Products])
    _neighbours: dict[tuple[str, int], Array] = field(default_factory=dict[tuple[str, int], Array])
    _lock: Lock = field(default_factory=Lock)

    @property
    def n(self) -> int:
        """Words."""
        return len(next(iter(self.rows.values())))

    def products(self, name: str, form: tiles.Form) -> tiles.Products:
        """The products of one form of all sites, under a name."""
        with self._lock:  # one thread makes them, the others wait
            if name not in self._products:
                bands = [form(centred(rows)) for rows in self.rows.values()]
                self._products[name] = tiles.products(bands, self.n)
        return self._products[name]

    def neighbours(self, name: str, k: int) -> Array:
        """The k nearest words of every word at one site, [n, k]."""
        if k >= self.n:
            raise SimilarityError(f"{k} neighbours were asked for, and there are {self.n} words; ask for fewer.")
        if (name, k) not in self._neighbours:
            self._neighbours[name, k] = tiles.neighbours(np.asarray(self.rows[name], dtype=np.float64), k)
        return self._neighbours[name, k]

    def place(self, name: str) -> int:
        """The number of a site."""
        if name not in self.rows:
            raise SimilarityError(f"There is no sample of {name!r}; there are those of {listing(self.rows, most=40)}.")
        return list(self.rows).index(name)


@dataclass(frozen=True, eq=False)
class Samples:
    """Two sites of a sample."""

    sample: SampleSet
    left: str
    right: str

    @property
    def n(self) -> int:
        """Words."""
        return self.sample.n

    def centred_products(self, name: str, form: tiles.Form) -> tuple[float, float, float]:
        """U-centred products of left with right, left with itself and right with itself.

        ⟨M, M'⟩ − 2/(n−2)·Σ_i r_i·r'_i + (Σr)(Σr')/((n−1)(n−2)) for row sums r: n(n−3) times the unbiased HSIC.
        """
        found = self.sample.products(name, form)
        left, right = self.sample.place(self.left), self.sample.place(self.right)
        both, own, other = (_u_centred(found, *pair) for pair in ((left, right), (left, left), (right, right)))
        return both, own, other


def _u_centred(found: tiles.Products, one: int, other: int) -> float:
    n, (r, s) = found.n, (found.sums[one], found.sums[other])
    inner = float(found.inner[one, other])
    left = float(inner - 2 / (n - 2) * (r @ s) + r.sum() * s.sum() / ((n - 1) * (n - 2)))
    return left if abs(left) > 1e-12 * abs(inner) else 0.0  # nothing but rounding: all words are the same


def centred(rows: Array) -> Array:
    """Rows in float64 without their mean."""
    wide = np.asarray(rows, dtype=np.float64)
    return wide - wide.mean(0)


def linear_cka(samples: Samples) -> float:
    """Debiased linear CKA from all pairs of words: the same number as from moments."""
    return ratio(*samples.centred_products("linear", tiles.linear))


def rbf_cka(samples: Samples, *, width: float = 1.0) -> float:
    """Debiased CKA with Gaussian kernels whose width is `width` times the root of the median squared distance."""
    return ratio(*samples.centred_products(f"rbf:{width}", tiles.rbf(width)))


def biased_rbf_cka(samples: Samples, *, width: float = 1.0) -> float:
    """The same with doubly centred kernels, their diagonals of ones included (Kornblith et al. 2019)."""
    found = samples.sample.products(f"rbf:{width}", tiles.rbf(width))
    left, right = samples.sample.place(samples.left), samples.sample.place(samples.right)
    n, sums = found.n, found.sums + 1

    def product(one: int, other: int) -> float:
        r, s = sums[one], sums[other]
        return float(found.inner[one, other] + n - 2 / n * (r @ s) + r.sum() * s.sum() / n**2)

    return ratio(product(left, right), product(left, left), product(right, right))


def distance_correlation(samples: Samples) -> float:
    """Bias-corrected squared distance correlation (Székely and Rizzo 2013); may be negative."""
    return ratio(*samples.centred_products("distances", tiles.distances))


def rank_rsa(samples: Samples) -> float:
    """Spearman correlation of the distances between all pairs of words."""
    found = samples.sample.products("ranks", tiles.distance_ranks)
    left, right = samples.sample.place(samples.left), samples.sample.place(samples.right)
    pairs = found.n * (found.n - 1)

    def product(one: int, other: int) -> float:
        return float(found.inner[one, other] - found.sums[one].sum() * found.sums[other].sum() / pairs)

    return ratio(product(left, right), product(left, left), product(right, right))


def shared_neighbours(samples: Samples, k: int) -> Array:
    """How many of its k nearest words each word has in common on both sides, [n]."""
    left, right = (samples.sample.neighbours(name, k) for name in (samples.left, samples.right))
    return (left[:, :, None] == right[:, None, :]).sum((1, 2))


def mutual_knn(samples: Samples, *, k: int = NEIGHBOURS) -> float:
    """Mean |N_x ∩ N_y|/k (Huh et al. 2024)."""
    return float(shared_neighbours(samples, k).mean() / k)


def knn_overlap(samples: Samples, *, k: int = NEIGHBOURS) -> float:
    """Mean |N_x ∩ N_y|/|N_x ∪ N_y|."""
    shared = shared_neighbours(samples, k)
    return float((shared / (2 * k - shared)).mean())


def _neighbour_null(samples: Samples, k: int, *, jaccard: bool) -> Null:
    """Sets of k of n − 1 words drawn at random share a hypergeometric number.

    Words are not independent (neighbours are often mutual, and some words are near to many), which the exact variance
    of the number shared in all, over permutations, accounts for.
    """
    from scipy.stats import hypergeom

    n, shared = samples.n, np.arange(k + 1)
    chance: Array = hypergeom.pmf(shared, n - 1, k, k)
    score = shared / (2 * k - shared) if jaccard else shared / k
    mean = float(chance @ score)
    alone = n * float(chance @ (shared - chance @ shared) ** 2)  # if words were independent
    both = _shared_variance(*(samples.sample.neighbours(name, k) for name in (samples.left, samples.right)))
    spread = float(chance @ (score - mean) ** 2) / n
    return Null(mean, float(np.sqrt(spread * both / alone)) if alone > 0 else 0.0)


def _shared_variance(left: Array, right: Array) -> float:
    """The variance of Σ_ij A_ij·B_π(i)π(j) over permutations, A and B the neighbour matrices with k ones per row.

    With entries less k/(n−1), rows sum to 0: products of two entries of one matrix sum to S (the same), R (turned
    round), −S (same row), Q − S (same column; Q is the sum of squares of the columns' sums), −R (a chain, twice), and
    S + R − Q (no word in common).
    """
    n = len(left)
    (s, r, q), (t, u, v) = _neighbour_sums(left), _neighbour_sums(right)
    two, three = n * (n - 1), n * (n - 1) * (n - 2)
    return max(
        0.0,
        (s * t + r * u) / two
        + (s * t + (q - s) * (v - t) + 2 * r * u) / three
        + (s + r - q) * (t + u - v) / (three * (n - 3)),
    )


def _neighbour_sums(found: Array) -> tuple[float, float, float]:
    n, k = found.shape
    share = k / (n - 1)
    own = np.repeat(np.arange(n), k)
    mutual = int(np.isin(own * n + found.ravel(), found.ravel() * n + own).sum())
    columns = np.bincount(found.ravel(), minlength=n) - k
    return n * k * (1 - share), mutual - n * k * share, float(columns @ columns)


def _rank_null(samples: Samples) -> Null:
    """Mean 0; the variance over permutations of words, from the doubly centred matrix of ranks."""
    found = samples.sample.products("ranks", tiles.distance_ranks)
    places = [samples.sample.place(name) for name in (samples.left, samples.right)]
    pairs = found.n * (found.n - 1)
    spread = [float(found.inner[place, place] - found.sums[place].sum() ** 2 / pairs) for place in places]
    if not min(spread) > 0:
        return Null(0.0, 0.0)
    return Null(0.0, float(np.sqrt(nulls.hollow_variance(found, *places) / np.prod(spread))))


def _tuned_rbf(argument: str) -> Metric:
    return _rbf(f"rbf-cka:{argument}", number_of("rbf-cka", argument))


def _rbf(name: str, width: float) -> Metric:
    return Metric(
        name=name,
        about=f"debiased CKA with Gaussian kernels, {width:g} times the median distance wide",
        needs="sample",
        score=lambda samples: rbf_cka(samples, width=width),
        null=lambda samples: nulls.debiased(samples.n),
        tuned=_tuned_rbf,
    )


def _count(name: str, argument: str) -> int:
    value = number_of(name, argument)
    if value != int(value):
        raise SimilarityError(f"{name}:{argument} asks for no whole number of neighbours.")
    return int(value)


def _mutual(name: str, k: int) -> Metric:
    return Metric(
        name=name,
        about=f"share of the {k} nearest words (cosine) that both sides have in common",
        needs="sample",
        score=lambda samples: mutual_knn(samples, k=k),
        null=lambda samples: _neighbour_null(samples, k, jaccard=False),
        tuned=lambda argument: _mutual(f"mutual-knn:{argument}", _count("mutual-knn", argument)),
    )


def _overlap(name: str, k: int) -> Metric:
    return Metric(
        name=name,
        about=f"the {k} nearest words that both sides have in common, over all that either has",
        needs="sample",
        score=lambda samples: knn_overlap(samples, k=k),
        null=lambda samples: _neighbour_null(samples, k, jaccard=True),
        tuned=lambda argument: _overlap(f"knn-overlap:{argument}", _count("knn-overlap", argument)),
    )


RBF = register(_rbf("rbf-cka", 1.0))
MUTUAL = register(_mutual("mutual-knn", NEIGHBOURS))
OVERLAP = register(_overlap("knn-overlap", NEIGHBOURS))
RANK_RSA = register(
    Metric(
        name="rsa-spearman",
        about="Spearman correlation of the distances between words",
        needs="sample",
        score=rank_rsa,
        null=_rank_null,
    )
)
DISTANCE = register(
    Metric(
        name="distance-correlation",
        about="bias-corrected distance correlation, squared",
        needs="sample",
        score=distance_correlation,
        null=lambda samples: nulls.debiased(samples.n),
    )
)
