"""Hard-concrete gates: a number from 0 to 1 for every head, mostly exactly 0 or 1, that can be learned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pellucid.errors import SiteError
from pellucid.heads.naming import head_name, head_sites
from pellucid.model.edits import Edit

if TYPE_CHECKING:
    from pellucid.model import Model
    from pellucid.model.sites import Site

START = 3.0
"""log a of a gate before it has learned anything: in evaluation it is exactly 1, so that the model is itself."""


@dataclass(frozen=True)
class HardConcrete:
    """The distribution of a gate with location log a (Louizos et al. 2018; for heads Voita et al. 2019).

    s = σ((logit u + log a)/T) with u uniform, stretched to (low, high) and clipped to [0, 1].
    """

    temperature: float = 0.33
    low: float = -0.1
    high: float = 1.1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and self.low < 0 and self.high > 1 and 0 < self.eps < 0.5):
            raise SiteError(
                f"A hard-concrete gate needs a temperature over 0, a stretch from under 0 to over 1 and a small eps; "
                f"got {self}."
            )

    def drawn(self, location: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Gates as they are in training, one draw for each location; gradients reach the location."""
        uniform = torch.rand(location.shape, generator=generator, dtype=torch.float64)
        uniform = self.eps + (1 - 2 * self.eps) * uniform  # logit(0) and logit(1) are infinite
        noise = torch.logit(uniform).to(location)
        return self._stretched(torch.sigmoid((noise + location) / self.temperature))

    def settled(self, location: Tensor) -> Tensor:
        """Gates as they are in evaluation, without noise and temperature: clip(1.2·σ(log a) − 0.1, 0, 1)."""
        return self._stretched(torch.sigmoid(location))

    def chance_open(self, location: Tensor) -> Tensor:
        """P(gate ≠ 0) = σ(log a − T·ln(−low/high)): what the penalty sums."""
        return torch.sigmoid(location - self.temperature * math.log(-self.low / self.high))

    def chance_whole(self, location: Tensor) -> Tensor:
        """P(gate = 1) = σ(log a − T·ln((1 − low)/(high − 1)))."""
        return torch.sigmoid(location - self.temperature * math.log((1 - self.low) / (self.high - 1)))

    def _stretched(self, share: Tensor) -> Tensor:
        return (share * (self.high - self.low) + self.low).clamp(0.0, 1.0)


@dataclass(frozen=True, eq=False)
class HeadGates:
    """One gate for each head of a model: `locations` holds log a [heads] for every site `heads.L`."""

    locations: Mapping[Site, Tensor]
    law: HardConcrete = HardConcrete()

    @staticmethod
    def of(model: Model, *, start: float = START, law: HardConcrete | None = None) -> HeadGates:
        """Gates for all heads of a model, encoder, decoder and cross attention alike, all at the same location."""
        places = {
            site: torch.full((model.size(site)[0],), start, device=model.device, requires_grad=True)
            for site in head_sites(model)
        }
        return HeadGates(places, law or HardConcrete())

    @property
    def parameters(self) -> list[Tensor]:
        """What is learned."""
        return list(self.locations.values())

    def __len__(self) -> int:
        return sum(location.numel() for location in self.locations.values())

    def training_edits(self, generator: torch.Generator | None = None) -> list[Edit]:
        """Edits that multiply every head's output by a gate drawn anew."""
        return self._edits({site: self.law.drawn(place, generator) for site, place in self.locations.items()})

    def edits(self) -> list[Edit]:
        """Edits that multiply every head's output by its gate in evaluation."""
        return self._edits({site: self.law.settled(place).detach() for site, place in self.locations.items()})

    @staticmethod
    def _edits(values: Mapping[Site, Tensor]) -> list[Edit]:
        return [Edit.gate(site, value) for site, value in values.items() if value.numel()]

    def penalty(self) -> Tensor:
        """Σ P(open) over all heads: how many heads are expected to be open."""
        return torch.stack([self.law.chance_open(place).sum() for place in self.locations.values()]).sum()

    def table(self) -> list[tuple[str, float, float]]:
        """The name of every head, its gate in evaluation, and the chance that it is open in training."""
        return [
            (head_name(site, head), gate, chance)
            for site, location in self.locations.items()
            for head, (gate, chance) in enumerate(self._pairs(location))
        ]

    def _pairs(self, location: Tensor) -> Iterator[tuple[float, float]]:
        place = location.detach()
        yield from zip(self.law.settled(place).tolist(), self.law.chance_open(place).tolist(), strict=True)

    def closed(self) -> list[str]:
        """The heads whose gate in evaluation is exactly 0."""
        return [name for name, gate, _ in self.table() if gate == 0]

    def finite(self) -> bool:
        """Whether every location is a number."""
        return all(bool(place.isfinite().all()) for place in self.locations.values())
