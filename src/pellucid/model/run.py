"""What a pass gives back: the tensors asked for, by site, and the model's own output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pellucid.errors import SiteError
from pellucid.model.batch import Batch
from pellucid.model.sites import Site, describe, single

if TYPE_CHECKING:
    from torch import Tensor


class Captured(Mapping["str | Site", Any]):
    """Recorded tensors by site; a name that was not recorded raises and lists what was."""

    def __init__(self, values: Mapping[Site, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, site: str | Site) -> Any:
        if isinstance(site, Site) and site in self._values:
            return self._values[site]
        if not self._values:
            raise SiteError(
                f"{str(site)!r} was not recorded: this run was not asked for any site; pass sites=[…] to run."
            )
        try:
            return self._values[single(site, tuple(self._values))]
        except SiteError:
            raise SiteError(
                f"{str(site)!r} was not recorded in this run, which has {describe(self._values)}."
            ) from None

    def __contains__(self, site: object) -> bool:
        return site in self._values or any(str(known) == site for known in self._values)

    def __iter__(self) -> Iterator[Site]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Run(Captured):
    """One pass: `run["heads.3"]` is a recorded tensor, `run.logits` the model's scores, `run.output` its output.

    `note` says why a pass that was to start at a layer ran whole; it is empty elsewhere.
    """

    def __init__(self, values: Mapping[Site, Any], batch: Batch | None, output: Any, note: str = "") -> None:
        super().__init__(values)
        self.batch, self.output, self.note = batch, output, note

    @property
    def logits(self) -> Tensor:
        """The model's scores."""
        logits = self.output.get("logits") if isinstance(self.output, Mapping) else None
        if logits is None:
            raise SiteError(
                "This model gives no logits: it was loaded without a head, or its head has another kind of output."
            )
        return logits


@dataclass(frozen=True)
class Generation:
    """Text made by the model: ids [B, T] of prompt and continuation, the new text, and what each step recorded.

    `steps[0]` covers the whole prompt, every later step one new token.
    """

    ids: Tensor
    prompt_length: int
    texts: tuple[str, ...]
    steps: tuple[Captured, ...]

    @property
    def new_ids(self) -> Tensor:
        """Ids of the continuation alone, [B, N]."""
        return self.ids[:, self.prompt_length :]
