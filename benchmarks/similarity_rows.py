"""Made-up rows of two models' layers with a spectrum like that of real ones, and the sweep they would come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from pellucid import Moments
    from pellucid.collect.collector import Setting
    from pellucid.collect.found import Found
    from pellucid.collect.state import State
    from pellucid.collect.words import WordBatch

SITES, WIDTH = 13, 768
LEFT, RIGHT = "0:resid.*", "1:resid.*"
BATCH = 2048  # rows that come at once, as from a batch of the sweep's own budget
FALL = 1.0
"""Variance of the i-th direction is i^−FALL. The layers of all-MiniLM-L6-v2 fall by 0.8 to 1.15 over UD English."""
GROUPS = 10


def setting(
    *, sites: int = SITES, width: int = WIDTH, pilot: State | None = None, device: torch.device | None = None
) -> Setting:
    """What a sweep over the streams of two models tells its collectors, without the models."""
    import torch

    from pellucid.collect.collector import ModelFacts, Setting
    from pellucid.model.sites import Site

    places = tuple(Site("resid", layer) for layer in range(sites))
    sizes = {str(site): (width,) for site in places}
    models = tuple(ModelFacts(name, name, places, sizes, False, "fused", "float32") for name in ("one", "two"))
    return Setting(models, "mean", device or torch.device("cpu"), pilot)


def collector(*, groups: bool = False, precision: str = "float32") -> Moments:
    """Moments of every layer of one model with every layer of the other, and of each with itself."""
    from pellucid import Moments

    return Moments((LEFT, RIGHT), pairs=((LEFT, RIGHT),), groups=groups, precision=precision)


class Layers:
    """Makes rows: every layer of both models sees the same words, each through directions and noise of its own.

    Later layers share less of the words' common part, from nine tenths of their variance down to half. `means` is the
    largest mean of a feature; with 0 all means are near 0.
    """

    def __init__(
        self, told: Setting, *, fall: float = FALL, means: float = 0.0, device: torch.device | None = None
    ) -> None:
        import torch

        self.keys = told.keys((LEFT, RIGHT))
        self.device = device or torch.device("cpu")
        width = told.width(self.keys[0])
        seeded = torch.Generator(self.device).manual_seed(0)
        self.scale = torch.arange(1, width + 1, device=self.device).pow(-fall / 2)
        self.turns = {key: self._turn(width, seeded) for key in self.keys}
        self.shifts = {key: 0.1 * torch.randn(width, generator=seeded, device=self.device) for key in self.keys}
        for shift in self.shifts.values():
            shift[:4] += means * torch.tensor([1.0, -0.5, 0.25, 0.1], device=self.device)

    def _turn(self, width: int, seeded: torch.Generator) -> Tensor:
        import torch

        return torch.linalg.qr(torch.randn(width, width, generator=seeded, device=self.device))[0]

    def rows(self, start: int, count: int) -> dict[str, Tensor]:
        """`count` rows of every layer, numbered from `start`."""
        import torch

        seeded = torch.Generator(self.device).manual_seed(start + 1)
        common = torch.randn(count, len(self.scale), generator=seeded, device=self.device)
        made: dict[str, Tensor] = {}
        for number, key in enumerate(self.keys):
            shared = 0.9 - 0.4 * (number % SITES) / SITES
            own = torch.randn(count, len(self.scale), generator=seeded, device=self.device)
            mixed = (shared**0.5 * common + (1 - shared) ** 0.5 * own) * self.scale
            made[key] = mixed @ self.turns[key] + self.shifts[key]
        return made

    def batches(self, n: int, *, size: int = BATCH) -> Iterable[WordBatch]:
        """`n` rows of every layer, a batch at a time, in `GROUPS` document groups."""
        for start in range(0, n, size):
            count = min(size, n - start)
            yield batch_of(self.rows(start, count), start, group=start * GROUPS // n)


def batch_of(rows: dict[str, Tensor], start: int, *, group: int = 0) -> WordBatch:
    """Rows as a sweep gives them to collectors."""
    import numpy as np

    from pellucid.collect.words import WordBatch

    count = len(next(iter(rows.values())))
    numbers = np.arange(start, start + count)
    return WordBatch(rows, numbers, np.zeros_like(numbers), numbers, group, {})


def gathered(chosen: Moments, told: Setting, batches: Iterable[WordBatch]) -> State:
    """A collector's state over all batches, from empty."""
    accumulator = chosen.open(told)
    for batch in batches:
        accumulator.add(batch)
    return accumulator.state()


def found_of(chosen: Moments, told: Setting, state: State) -> Found:
    """One collector's state as a finished sweep, ready for `similarity.grid`."""
    from pellucid.collect.found import Found, KeptSentences
    from pellucid.collect.plan import Counts
    from pellucid.results import versions

    about: dict[str, Any] = {
        "reading": {"pooling": "mean"},
        "corpus": {"name": "made up", "fingerprint": "", "unit": "document"},
        "versions": versions(),
        "groups": GROUPS,
    }
    n = sum(int(array[0]) for name, array in state.arrays.items() if name.endswith("/n"))
    counts = Counts(sentences=0, documents=0, words=n, tokens=(n, n))
    return Found(about, told.models, {"moments": chosen}, {"moments": state}, {}, counts, {}, KeptSentences({}))


def described(spectrum: Sequence[float] | np.ndarray[Any, Any]) -> str:
    """A spectrum in one phrase: what its first directions hold, and how many hold nearly everything."""
    import numpy as np

    shares = np.cumsum(spectrum) / np.sum(spectrum)
    first = ", ".join(f"{shares[count - 1]:.0%}" for count in (1, 10, 100) if count <= len(shares))
    most = int(np.searchsorted(shares, 0.99)) + 1
    return f"first 1, 10, 100 directions hold {first} of the variance, {most} of {len(shares)} hold 99%"
