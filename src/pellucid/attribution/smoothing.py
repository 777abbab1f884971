"""SmoothGrad and its kin: the target's gradient under noise on the input, for all sites from the same passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pellucid.attribution.baselines import real
from pellucid.attribution.passes import passes
from pellucid.attribution.sweep import Asked, Swept, scores_at_end
from pellucid.errors import AttributionError
from pellucid.model.sites import Site

_APART = 1_000_003  # between the seeds of two runs, so that their samples are not the same


def sweep_noise(asked: Asked, methods: Sequence[str], *, samples: int, noise: float, seed: int) -> Swept:
    """The mean, mean square and variance of the gradient over `samples` noisy inputs (Smilkov et al. 2017).

    The noise is normal; its deviation is `noise` times the range of each text's own embeddings.
    """
    if samples < 2 or noise <= 0:
        raise AttributionError(f"Noise needs at least two samples and a size above 0; got {samples} and {noise}.")
    spread = {site: noise * _range(end, real(asked.batch, site, end)) for site, end in asked.end.items()}

    def at(where: slice) -> Mapping[Site, Tensor]:
        made: dict[Site, list[Tensor]] = {site: [] for site in asked.end}
        for sample in range(where.start, where.stop):  # each with its own seed, so that batches change nothing
            generator = torch.Generator().manual_seed(seed * _APART + sample)
            for site, end in asked.end.items():
                made[site].append(end + torch.randn(end.shape, generator=generator).to(end) * spread[site])
        return {site: torch.stack(points) for site, points in made.items()}

    sums: dict[tuple[int, Site], tuple[Tensor, Tensor]] = {}
    for found in passes(
        asked.model,
        asked.batch,
        at=at,
        count=samples,
        sites=asked.sites,
        targets=asked.targets,
        memory_limit=asked.memory_limit,
        held=asked.held,
    ):
        for number, slopes in enumerate(found.gradients):
            for site, slope in slopes.items():
                first, second = slope.double().sum(dim=0), slope.double().square().sum(dim=0)
                old = sums.get((number, site))
                sums[number, site] = (first, second) if old is None else (old[0] + first, old[1] + second)
    parts = {
        (name, number, site): _taken(name, one, two, samples).cpu()
        for name in methods
        for (number, site), (one, two) in sums.items()
    }
    note = f"{samples} noisy inputs of size {noise:g}, seed {seed}"
    return Swept(tuple(asked.end), parts, None, scores_at_end(asked), 0, samples, note)


def _range(end: Tensor, real: Tensor) -> Tensor:
    """From the smallest to the largest number of each text's real tokens, [B, 1, 1]."""
    high, low = end.masked_fill(~real, -torch.inf), end.masked_fill(~real, torch.inf)
    return high.amax(dim=(1, 2), keepdim=True) - low.amin(dim=(1, 2), keepdim=True)


def _taken(method: str, first: Tensor, second: Tensor, samples: int) -> Tensor:
    mean, square = first / samples, second / samples
    if method == "smoothgrad":
        return mean.abs()
    return square if method == "smoothgrad_squared" else (square - mean.square()).clamp(min=0)
