"""Gaussian selection: neurons chosen one by one so that Gaussians of the classes tell held-out words apart best.

One multivariate Gaussian is fitted per class, over all neurons. That of a subset is a sub-block, and adding a neuron to
a subset needs its conditional mean and variance alone: both are kept for all neurons and updated with every choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pellucid.errors import listing
from pellucid.results import Array, ResultError

CRITERIA = ("likelihood", "information", "accuracy")
_ROWS = 128
_AT_ONCE = 512
"""Neurons that are tried alone at a time."""
_FLOOR = 1e-6
HELD = 2 << 30
"""Bytes of R, [classes, n, d], that are held; where it would take more, its rows are worked out anew at every step."""
_CLOSE = 8
"""Neurons with the best scores in float32 whose scores are worked out again in float64."""


@dataclass(frozen=True, eq=False)
class Gaussians:
    """A Gaussian per class: `means` [classes, d], `covariances` [classes, d, d], log `prior` [classes]."""

    means: Array
    covariances: Array
    prior: Array


@dataclass(frozen=True, eq=False)
class Selection:
    """The neurons chosen, in order, and the criterion on held-out words after each, [k]."""

    picks: Array
    scores: Array


def fitted(counts: Array, means: Array, covariances: Array, *, dimensions: int | None = None) -> Gaussians:
    """Maximum a posteriori Gaussians from each class's count [classes], mean [classes, d] and covariance (÷ n).

    The prior is normal–inverse-Wishart with μ₀ the class mean (whatever κ₀ is, the mean stays there), Λ₀ = diag(class
    covariance) and ν₀ = d + 2, so Σ = (Λ₀ + n·S)/(ν₀ + n + d + 2) (Torroba Hennigen, Williams & Cotterell 2020); d is
    `dimensions` where these are some of more. To the variance of every neuron in every class a millionth of its
    variance over all classes is added, so that no Gaussian is a point; one that never changes at all keeps 0. Where
    rounding leaves a variance below 0, the neuron is the same for all words of the class, and goes with no other.
    """
    return fitted_in_place(counts, means, covariances.astype(np.float64), dimensions=dimensions)


def fitted_in_place(counts: Array, means: Array, covariances: Array, *, dimensions: int | None = None) -> Gaussians:
    """The same as `fitted`, in the memory of the covariances, which become those of the Gaussians."""
    d, places = dimensions or means.shape[1], np.arange(means.shape[1])
    share = counts / counts.sum()
    diagonal = np.maximum(covariances[:, places, places], 0.0)
    total = share @ (diagonal + (means - share @ means) ** 2)
    for own, count, variance in zip(covariances, counts, diagonal, strict=True):
        own[variance == 0], own[:, variance == 0] = 0.0, 0.0
        own *= count
        own[places, places] += variance
        own /= (d + 2) + count + d + 2
        own[places, places] += _FLOOR * total
    return Gaussians(means, covariances, np.log(share))


def select(gaussians: Gaussians, rows: Tensor, goals: Array, count: int, *, by: str = "likelihood") -> Selection:
    """Chooses `count` neurons greedily by held-out rows [n, d] and their classes [n].

    `by` is the mean log-probability of the right class (likelihood), that and the entropy of the prior, what the
    neurons tell of the class (information: the same picks), or accuracy. With R = x − E[x | chosen] and s the
    conditional variances, choosing j gives R ← R − R_j·u/√s_j and s ← s − u², u = Cov(·, j | chosen)/√s_j: a step of
    pivoted Cholesky.
    """
    _check(gaussians, rows, count, by)
    means, prior = torch.from_numpy(gaussians.means), torch.from_numpy(gaussians.prior)
    classes, d = means.shape
    away = _away(rows, means) if 4 * classes * len(rows) * d <= HELD else None  # R: [classes, n, d]
    base = prior[:, None].expand(classes, len(rows)).clone()  # log p(class) + log p(chosen | class)
    spread = torch.from_numpy(np.einsum("zdd->zd", gaussians.covariances).copy())
    still = (spread <= 0).any(0).numpy()
    answers, alive = torch.from_numpy(goals), int((~still).sum())
    factors = torch.zeros(classes, count, d, dtype=torch.float64)  # u of every choice
    owns = torch.zeros(classes, count, len(rows), dtype=torch.float64)  # R_j/√s_j of every choice

    def exact(columns: Array, step: int) -> Tensor:
        """R of some neurons in float64, [classes, n, columns]."""
        start = rows[:, torch.from_numpy(columns)].double() - means[:, None, columns]
        return start - torch.einsum("zkn,zkc->znc", owns[:, :step], factors[:, :step, columns])

    def some(part: slice, step: int) -> Tensor:
        """R of some rows in float32, [classes, rows, d]."""
        if away is not None:
            return away[:, part]
        own = owns[:, :step, part].transpose(1, 2).float()
        return torch.baddbmm(_away(rows[part], means), own, factors[:, :step].float(), alpha=-1)

    picks, scores = list[int](), list[float]()
    for step in range(count):
        rough = _scores(partial(some, step=step), base, spread, answers, prior, by)
        rough[still] = -np.inf
        rough[picks] = -np.inf
        close = np.sort(np.argsort(-rough, kind="stable")[: min(_CLOSE, alive - step)])
        columns = exact(close, step)
        found = _scores(partial(_rows_of, columns), base, spread[:, close], answers, prior, by)
        place = int(found.argmax())
        pick = int(close[place])
        picks.append(pick)
        scores.append(float(found[place]))
        column = torch.from_numpy(gaussians.covariances[:, :, pick].copy())
        column -= torch.einsum("zk,zkd->zd", factors[:, :step, pick], factors[:, :step])
        size = column[:, pick].clamp(min=1e-300).sqrt()
        factors[:, step] = column / size[:, None]
        owns[:, step] = columns[:, :, place] / size[:, None]
        base += -owns[:, step].square() / 2 - size.log()[:, None]
        for z in range(classes if away is not None else 0):
            assert away is not None
            away[z].addr_(owns[z, step].float(), factors[z, step].float(), alpha=-1)
        spread = spread - factors[:, step].square()
    return Selection(np.array(picks), np.array(scores))


def _away(rows: Tensor, means: Tensor) -> Tensor:
    """Rows [n, d] less the mean of each class in float32, [classes, n, d]."""
    return torch.stack([(rows.double() - mean).float() for mean in means])


def _rows_of(away: Tensor, part: slice) -> Tensor:
    return away[:, part]


def _scores(
    away: Callable[[slice], Tensor], base: Tensor, spread: Tensor, goals: Tensor, prior: Tensor, by: str
) -> Array:
    """The criterion with each neuron added, [d]: classes given the chosen neurons and this one; in R's precision.

    `away` gives R of some rows, [classes, rows, d].
    """
    safe = spread.clamp(min=1e-300)
    height, inverse = (safe.log() / 2)[:, None], (0.5 / safe)[:, None]
    total = torch.zeros(spread.shape[1], dtype=torch.float64)
    for start in range(0, len(goals), _ROWS):
        part = slice(start, start + _ROWS)
        logs = away(part).square()
        dtype = logs.dtype
        logs *= -inverse.to(dtype)
        logs += base[:, part, None].to(dtype) - height.to(dtype)
        answer = goals[part]
        if by == "accuracy":
            total += (logs.argmax(0) == answer[:, None]).double().sum(0)
            continue
        right = logs.gather(0, answer[None, :, None].expand(1, -1, logs.shape[2]))[0]
        most = logs.amax(0)
        total += (right - most - logs.sub_(most).exp_().sum(0).log_()).double().sum(0)
    mean = total / len(goals)
    return (mean + float(-(prior.exp() * prior).sum()) if by == "information" else mean).numpy()


def alone(gaussians: Gaussians, rows: Tensor, goals: Array) -> Array:
    """The mean log-probability of the right class given each neuron alone, [d]: the first step of a selection.

    `covariances` may be variances [classes, d].
    """
    means, prior = torch.from_numpy(gaussians.means), torch.from_numpy(gaussians.prior)
    given = gaussians.covariances
    spread = torch.from_numpy(given if given.ndim == 2 else np.einsum("zdd->zd", given).copy())
    base = prior[:, None].expand(len(prior), len(rows))
    found: list[Array] = []
    for start in range(0, means.shape[1], _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        away = _away(rows[:, part], means[:, part])
        found.append(
            _scores(partial(_rows_of, away), base, spread[:, part], torch.from_numpy(goals), prior, "likelihood")
        )
    return np.where((spread <= 0).any(0).numpy(), -np.inf, np.concatenate(found))


def prefixes(gaussians: Gaussians, picks: Array, rows: Tensor) -> Array:
    """log p(class | first k neurons picked) for every k, [k, classes, n], of rows [n, d]; exact, in float64."""
    chosen = rows[:, torch.from_numpy(picks)].double()
    found: list[Tensor] = []
    for mean, covariance, prior in zip(gaussians.means, gaussians.covariances, gaussians.prior, strict=True):
        factor = torch.linalg.cholesky(torch.from_numpy(covariance[np.ix_(picks, picks)]))
        scaled = torch.linalg.solve_triangular(factor, (chosen - torch.from_numpy(mean[picks])).T, upper=False)
        each = -scaled.square() / 2 - factor.diagonal().log()[:, None]
        found.append(each.cumsum(0) + float(prior))
    logs = torch.stack(found, dim=1)  # [k, classes, n]
    return (logs - torch.logsumexp(logs, dim=1, keepdim=True)).numpy()


def _check(gaussians: Gaussians, rows: Tensor, count: int, by: str) -> None:
    if by not in CRITERIA:
        raise ResultError(f"Neurons cannot be selected by {by!r}; choose {listing(CRITERIA)}.")
    alive = int((np.einsum("zdd->zd", gaussians.covariances) > 0).all(0).sum())
    if not alive:
        raise ResultError("No neuron changes with the text, so none can be selected; give other rows, or other sites.")
    if not 1 <= count <= alive:
        raise ResultError(f"{alive} neurons change with the text, so {count} cannot be selected; use 1 to {alive}.")
    if not len(rows):
        raise ResultError("There are no held-out words to select neurons by; give more text.")
