"""Scores as they were published, faults included, to compare with numbers in print; each says what is wrong with it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from pellucid.errors import listing
from pellucid.similarity import nulls, tiles
from pellucid.similarity.caution import SimilarityWarning
from pellucid.similarity.cca import VARIANCE, correlations
from pellucid.similarity.cka import biased_cka
from pellucid.similarity.metrics import Metric, number_of, register
from pellucid.similarity.nulls import Kernel, Null
from pellucid.similarity.pair import Array, Pair, Side, SimilarityError
from pellucid.similarity.sampled import Samples, biased_rbf_cka

LEADING = 0.98
"""Share of Σρ whose leading correlations enter the mean of google/svcca."""
HIGH_CHANCE = 0.05
"""A biased score warns where chance alone gives more than this."""
RBF_WIDTH = 0.5
"""Width of the Gaussian kernels over the median distance, as in the published notebook of CKA."""
PRESETS = {
    "google": ("google-svcca",),
    "kornblith": ("kornblith-cka", "kornblith-rbf-cka"),
    "thesis": ("thesis-svcca",),
}


def preset(name: str) -> tuple[str, ...]:
    """The names of the scores of a published variant, for `grid(found, preset("google"))`.

    `google` is SVCCA as in google/svcca, `kornblith` CKA as first published, linear and with Gaussian kernels, and
    `thesis` the mean of google/svcca without a singular value decomposition before it.
    """
    if name not in PRESETS:
        raise SimilarityError(f"There is no preset {name!r}; there are {listing(sorted(PRESETS))}.")
    return PRESETS[name]


def leading_count(values: Array, share: float) -> int:
    """How many of some falling values make up a share of their sum."""
    sums = np.cumsum(values)
    return int(np.searchsorted(sums, share * sums[-1] * (1 - 1e-12)) + 1)


def google_mean(rho: Array) -> float:
    """The mean of the leading correlations that make up 98% of Σρ: the weak ones are left out, so it is too high."""
    return float(rho[: leading_count(rho, LEADING)].mean()) if rho.any() else 0.0


def google_svcca(pair: Pair) -> float:
    """`google_mean` after both sides were cut to the directions that hold 99% of Σs, where Σs² is their variance."""
    return google_mean(correlations(pair, *_kept(pair)))


def thesis_svcca(pair: Pair) -> float:
    """`google_mean` over all directions of both sides."""
    return google_mean(correlations(pair, pair.left.rank, pair.right.rank))


def _kept(pair: Pair) -> tuple[int, int]:
    return _by_singular_values(pair.left), _by_singular_values(pair.right)


def _by_singular_values(side: Side) -> int:
    """Directions that hold 99% of Σs, for singular values s = √λ within the rank."""
    return leading_count(np.sqrt(side.spectrum[0][: side.rank]), VARIANCE) if side.rank else 0


def _google_null(n: int, p: int, q: int) -> Null:
    return _drawn_google(n, p, q) if p and q else Null(0.0, 0.0)


@lru_cache(maxsize=512)
def _drawn_google(n: int, p: int, q: int) -> Null:
    """Draws of independent Gaussian sides of ranks p and q: the part that is averaged has no closed form."""
    draws = [nulls.drawn_correlations(n, p, q, np.random.default_rng([0, draw])) for draw in range(nulls.DRAWS)]
    means = [google_mean(np.sort(rho)[::-1]) for rho in draws]
    return Null(float(np.mean(means)), float(np.std(means, ddof=1)))


def _linear_null(pair: Pair) -> Null:
    if not (pair.left.power > 0 and pair.right.power > 0):
        return Null(0.0, 0.0)
    return nulls.biased_cka(pair.n, *nulls.kernels(pair))


def _rbf_null(samples: Samples, width: float) -> Null:
    """The closed form over permutations, from the doubly centred kernels HKH whose diagonals are 1 − 2r_i/n + Σr/n²."""
    found = samples.sample.products(f"rbf:{width}", tiles.rbf(width))
    kernels: list[Kernel] = []
    for place in (samples.sample.place(name) for name in (samples.left, samples.right)):
        n, r = found.n, found.sums[place] + 1
        diagonal = 1 - 2 * r / n + r.sum() / n**2
        power = float(found.inner[place, place] + n - 2 / n * (r @ r) + r.sum() ** 2 / n**2)
        kernels.append(Kernel(float(diagonal.sum()), power, float(diagonal @ diagonal)))
    if not min(kernel.power for kernel in kernels) > 0:
        return Null(0.0, 0.0)
    return nulls.biased_cka(found.n, *kernels)


def _warned(name: str, score: Callable[[Any], float], wrong: str) -> Callable[[Any], float]:
    """A score that says each time what is wrong with it; Python shows the same sentence once."""

    def scored(data: Any) -> float:
        warnings.warn(f"{name} {wrong}", SimilarityWarning, stacklevel=2)
        return score(data)

    return scored


def _warned_of_chance(
    name: str, score: Callable[[Any], float], null: Callable[[Any], Null], instead: str
) -> Callable[[Any], float]:
    """A biased score that warns where chance alone is high."""

    def scored(data: Any) -> float:
        if null(data).mean > HIGH_CHANCE:  # the sentence names no number of its own, so that Python shows it once
            warnings.warn(
                f"{name} is biased: with so few words for so many features unrelated sides score over {HIGH_CHANCE:g}, "
                f"as the chance told beside it says; use {instead!r}, whose chance is 0.",
                SimilarityWarning,
                stacklevel=2,
            )
        return score(data)

    return scored


_GOOGLE_MEAN = "averages only the leading correlations that make up 98% of their sum, which raises it above the mean"
GOOGLE = register(
    Metric(
        name="google-svcca",
        about="SVCCA as in google/svcca: cut by 99% of Σs instead of the variance Σs², and averaged over the leading "
        "98% of Σρ alone, so too high",
        needs="moments",
        score=_warned(
            "google-svcca",
            google_svcca,
            f"cuts at 99% of Σs, which is not the variance Σs², and {_GOOGLE_MEAN}, also for noise; use 'svcca'.",
        ),
        null=lambda pair: _google_null(pair.n, *_kept(pair)),
        whole=True,
    )
)
THESIS = register(
    Metric(
        name="thesis-svcca",
        about="all canonical correlations, averaged as in google/svcca over the leading 98% of Σρ alone, so too high",
        needs="moments",
        score=_warned(
            "thesis-svcca",
            thesis_svcca,
            f"{_GOOGLE_MEAN}, and keeps every direction, so that noise of 3,104 features in 15,360 words scores .44; "
            "use 'svcca', or 'cca' for all directions.",
        ),
        null=lambda pair: _google_null(pair.n, pair.left.rank, pair.right.rank),
        whole=True,
    )
)
KORNBLITH = register(
    Metric(
        name="kornblith-cka",
        about="linear CKA as first published, biased: it grows with features over words, also for noise",
        needs="moments",
        score=_warned_of_chance("kornblith-cka", biased_cka, _linear_null, "cka"),
        null=_linear_null,
        cheap=True,
    )
)


def _tuned_rbf(argument: str) -> Metric:
    return _rbf(f"kornblith-rbf-cka:{argument}", number_of("kornblith-rbf-cka", argument))


def _rbf(name: str, width: float) -> Metric:
    null = partial(_rbf_null, width=width)
    return Metric(
        name=name,
        about=f"CKA with Gaussian kernels as first published, {width:g} times the median distance wide, biased by the "
        "kernels' diagonals",
        needs="sample",
        score=_warned_of_chance(name, partial(biased_rbf_cka, width=width), null, f"rbf-cka:{width:g}"),
        null=null,
        tuned=_tuned_rbf,
    )


KORNBLITH_RBF = register(_rbf("kornblith-rbf-cka", RBF_WIDTH))
