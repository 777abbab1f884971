"""Edits: changes to the tensors passing at a site, on chosen heads, neurons and positions, during one run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pellucid.errors import EditError, SiteError, listing
from pellucid.model.sites import Site

if TYPE_CHECKING:
    from torch import Tensor

Indices = int | Sequence[int] | None
Value = "Tensor | float | None"


@dataclass(frozen=True)
class View:
    """The part of a text that a tensor holds: the position of its first token, how many positions are known (negative
    ones count from there), whether more may come, and which tokens are real ([B, T])."""

    start: int
    known: int
    growing: bool = False
    real: Tensor | None = None


ACTIONS = ("zero", "mean", "set", "scale", "add", "patch", "gate")
_PER_UNIT = frozenset({"scale", "gate"})
"""Actions whose one-dimensional value holds one number per chosen head (elsewhere: per feature)."""


@dataclass(frozen=True, eq=False)
class Edit:
    """A change at one site: `Edit.zero("heads.3", heads=[2])`.

    `units` are heads at per-head sites (query, key, value, pattern, heads) and features elsewhere; `positions` are
    token positions (query rows at `pattern`, key positions at `key` and `value`), negative ones from the end.
    """

    site: str | Site
    action: str
    value: Any = None
    units: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None

    @classmethod
    def zero(
        cls, site: str | Site, *, heads: Indices = None, neurons: Indices = None, positions: Indices = None
    ) -> Edit:
        """Sets the chosen part to zero."""
        return cls(site, "zero", None, _units(heads, neurons), _indices(positions))

    @classmethod
    def mean(
        cls,
        site: str | Site,
        value: Tensor | None = None,
        *,
        heads: Indices = None,
        neurons: Indices = None,
        positions: Indices = None,
    ) -> Edit:
        """Replaces the chosen part by a mean: `value`, or where none is given the mean over the batch's real tokens."""
        return cls(site, "mean", value, _units(heads, neurons), _indices(positions))

    @classmethod
    def set(
        cls,
        site: str | Site,
        value: Tensor | float,
        *,
        heads: Indices = None,
        neurons: Indices = None,
        positions: Indices = None,
    ) -> Edit:
        """Sets the chosen part to a number, or to a tensor that fits it."""
        return cls(site, "set", value, _units(heads, neurons), _indices(positions))

    @classmethod
    def scale(
        cls,
        site: str | Site,
        value: Tensor | float,
        *,
        heads: Indices = None,
        neurons: Indices = None,
        positions: Indices = None,
    ) -> Edit:
        """Multiplies the chosen part by a number, or by one number per chosen head or feature."""
        return cls(site, "scale", value, _units(heads, neurons), _indices(positions))

    @classmethod
    def add(
        cls,
        site: str | Site,
        value: Tensor | float,
        *,
        heads: Indices = None,
        neurons: Indices = None,
        positions: Indices = None,
    ) -> Edit:
        """Adds a number or a vector to the chosen part."""
        return cls(site, "add", value, _units(heads, neurons), _indices(positions))

    @classmethod
    def patch(
        cls,
        site: str | Site,
        source: Mapping[str, Tensor] | Tensor,
        *,
        heads: Indices = None,
        neurons: Indices = None,
        positions: Indices = None,
    ) -> Edit:
        """Replaces the chosen part by what stood there in another run (or in a tensor of the site's shape)."""
        return cls(site, "patch", source, _units(heads, neurons), _indices(positions))

    @classmethod
    def gate(
        cls,
        site: str | Site,
        value: Tensor,
        *,
        heads: Indices = None,
        neurons: Indices = None,
        positions: Indices = None,
    ) -> Edit:
        """Multiplies each chosen head or feature by its own gate; gradients reach `value`."""
        return cls(site, "gate", value, _units(heads, neurons), _indices(positions))

    @classmethod
    def parse(cls, text: str) -> Edit:
        """An edit written `SITE[:UNITS][@POSITIONS]=ACTION[:NUMBER]`, such as `heads.3:2,5=zero` or
        `neurons.4:17@0=set:3`."""
        match = re.fullmatch(r"\s*([\w.\-]+)(?::([\d,\-]+))?(?:@([\d,\-]+))?\s*=\s*(\w+)(?::(\S+))?\s*", text)
        form = (
            "write SITE[:UNITS][@POSITIONS]=ACTION[:NUMBER], for example 'heads.3:2=zero' or 'neurons.4:17=scale:0.5'"
        )
        if match is None:
            raise EditError(f"The edit {text!r} cannot be read; {form}.")
        site, units, positions, action, number = match.groups()
        if action not in ("zero", "mean", "set", "scale", "add"):
            raise EditError(
                f"The edit {text!r} asks for {action!r}; the actions are zero, mean, set:NUMBER, scale:NUMBER and "
                "add:NUMBER."
            )
        takes_number = action in ("set", "scale", "add")
        if takes_number != (number is not None):
            raise EditError(
                f"The edit {text!r} {'needs a number after' if takes_number else 'takes no number after'} "
                f"{action!r}; {form}."
            )
        try:
            value = float(number) if number is not None else None
            if value is not None and not math.isfinite(value):
                raise ValueError(number)
            return cls(site, action, value, _span(units), _span(positions))
        except ValueError:
            raise EditError(f"The edit {text!r} has a part that is not a number; {form}.") from None

    def __str__(self) -> str:
        units = f":{','.join(map(str, self.units))}" if self.units else ""
        positions = f"@{','.join(map(str, self.positions))}" if self.positions else ""
        number = f":{_number(self.value)}" if isinstance(self.value, (int, float)) else ""
        return f"{self.site}{units}{positions}={self.action}{number}"

    def check(self, site: Site, sizes: tuple[int, ...] | None) -> None:
        """Raises where the edit cannot fit a site of these sizes: (heads, width), (width,), or unknown before a run."""
        if self.action not in ACTIONS:
            raise EditError(f"There is no edit called {self.action!r}; the edits are {listing(ACTIONS)}.")
        if self.action == "patch" and isinstance(self.value, Mapping) and _found(self.value, site) is None:
            raise EditError(
                f"The run to patch from did not record {site}; ask for it with sites=['{site}'] in that run."
            )
        if sizes is None:
            return
        count = sizes[0] if site.per_head else sizes[-1]
        self._check_units(site, count)
        chosen, noun = len(self.units) if self.units else count, _noun(site)
        shape = tuple(getattr(self.value, "shape", ())) if not isinstance(self.value, Mapping) else ()
        if self.action in _PER_UNIT and len(shape) == 1 and shape[0] not in (1, chosen):
            raise EditError(
                f"{self.action} at {site} got {shape[0]} values for {chosen} {noun}s; give one number per chosen "
                f"{noun}."
            )

    def _check_units(self, site: Site, count: int) -> None:
        for unit in self.units or ():
            if not 0 <= unit < count:
                noun = _noun(site)
                raise SiteError(f"{site} has {count} {noun}s, numbered 0 to {count - 1}; {noun} {unit} does not exist.")

    def apply(self, tensor: Tensor, site: Site, *, view: View | None = None) -> Tensor:
        """The tensor with the edit made, on a copy; `view` tells which part of the text the tensor holds."""
        unit_axis, position_axis = (1, 2) if site.per_head else (tensor.dim() - 1, 1)
        view = view or View(0, tensor.shape[position_axis] if tensor.dim() > 2 else 0)
        self._check_units(site, tensor.shape[unit_axis])
        if self.action == "patch" and view.start > 0:
            return tensor  # a patch comes from a whole text: in generation it is made in the prompt's pass
        positions = self._local_positions(site, tensor, position_axis, view)
        if positions is not None and not positions:
            return tensor
        index = _index(tensor, unit_axis, self.units, position_axis, positions)
        part = tensor[index]
        try:
            new = self._new(part, site, index, tensor, view.real).to(part.dtype).expand_as(part)
        except RuntimeError as error:
            if "out of memory" in str(error):
                raise
            raise EditError(
                f"The value of {self.action} at {site} has shape {_shape(self.value)}, which does not fit the chosen "
                f"part, of shape {tuple(part.shape)}."
            ) from None
        out = tensor.clone()
        out[index] = new
        return out

    def _new(self, part: Tensor, site: Site, index: tuple[Any, ...], tensor: Tensor, real: Tensor | None) -> Tensor:
        """The new content of the chosen part."""
        import torch

        def given() -> Tensor:
            value = torch.as_tensor(self.value).to(part.device)
            if site.per_head and value.dim() == 1 and self.action in _PER_UNIT:
                return value[:, None, None]
            if site.per_head and value.dim() == 2 and site.kind != "pattern":
                return value[:, None, :]  # one vector per head
            return value

        makers: dict[str, Callable[[], Tensor]] = {
            "zero": lambda: torch.zeros_like(part),
            "set": given,
            "scale": lambda: part * given(),
            "gate": lambda: part * given(),
            "add": lambda: part + given(),
            "mean": lambda: (
                given() if self.value is not None else _batch_mean(tensor, site, real)[index_without_batch(index)]
            ),
            "patch": lambda: self._source(site, tensor)[index],
        }
        return makers[self.action]()

    def _source(self, site: Site, tensor: Tensor) -> Tensor:
        source: Any = _found(self.value, site) if isinstance(self.value, Mapping) else self.value
        if tuple(source.shape) != tuple(tensor.shape):
            raise EditError(
                f"The patch for {site} has shape {tuple(source.shape)} and the run has {tuple(tensor.shape)}; patch "
                "between runs of "
                "equal batch and length."
            )
        return source.to(tensor)

    def _local_positions(self, site: Site, tensor: Tensor, axis: int, view: View) -> list[int] | None:
        """The chosen positions that lie in this tensor, counted from its first token."""
        if self.positions is None:
            return None
        if tensor.dim() < 3:
            raise EditError(f"{site} has no token positions here; leave out positions=.")
        for position in self.positions:
            if position < -view.known or (position >= view.known and not view.growing):
                raise SiteError(
                    f"{site} has {view.known} positions, 0 to {view.known - 1}; position {position} does not exist."
                )
        absolute = [position if position >= 0 else position + view.known for position in self.positions]
        return [place - view.start for place in absolute if view.start <= place < view.start + tensor.shape[axis]]


def index_without_batch(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same index for a tensor whose batch axis has length one."""
    return (slice(None), *index[1:])


def _batch_mean(tensor: Tensor, site: Site, real: Tensor | None) -> Tensor:
    """Mean over the batch's real tokens, kept broadcastable against the tensor."""
    import torch

    if tensor.dim() < 3:
        return tensor.mean(dim=0, keepdim=True)
    axis = 2 if site.per_head else 1
    if real is None or real.shape[1] != tensor.shape[axis]:
        real = torch.ones(tensor.shape[0], tensor.shape[axis], device=tensor.device)
    weights = real.to(tensor.dtype).reshape(real.shape[0], *([1] * (axis - 1)), -1, 1)
    mean = (tensor * weights).sum(dim=(0, axis), keepdim=True) / weights.sum()
    return mean.expand(1, *tensor.shape[1:])


def _index(
    tensor: Tensor,
    unit_axis: int,
    units: tuple[int, ...] | None,
    position_axis: int,
    positions: list[int] | None,
) -> tuple[Any, ...]:
    """An index that picks units × positions and leaves the other axes whole."""
    import torch

    index: list[Any] = [slice(None)] * tensor.dim()
    chosen = [
        (axis, list(values)) for axis, values in ((unit_axis, units), (position_axis, positions)) if values is not None
    ]
    chosen.sort()
    for place, (axis, values) in enumerate(chosen):
        picked = torch.tensor(values, device=tensor.device)
        index[axis] = picked.reshape([-1 if place == other else 1 for other in range(len(chosen))])
    return tuple(index)


def _units(heads: Indices, neurons: Indices) -> tuple[int, ...] | None:
    if heads is not None and neurons is not None:
        raise EditError("An edit is aimed at heads or at neurons, not both; make two edits.")
    return _indices(heads if heads is not None else neurons)


def _indices(values: Indices) -> tuple[int, ...] | None:
    if values is None:
        return None
    chosen = (values,) if isinstance(values, int) else tuple(int(value) for value in values)
    if not chosen:
        raise EditError("An edit was given an empty list of heads, neurons or positions; leave it out to choose all.")
    return chosen


def _span(text: str | None) -> tuple[int, ...] | None:
    """`2,5-7` as (2, 5, 6, 7); a leading minus counts from the end."""
    if text is None:
        return None
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(-?\d+)(?:-(\d+))?", part)
        if match is None:
            raise ValueError(part)
        first, last = int(match[1]), int(match[2] or match[1])
        if match[2] and not 0 <= first <= last:
            raise ValueError(part)
        numbers.extend(range(first, last + 1))
    return tuple(numbers)


def _found(source: Mapping[Any, Any], site: Site) -> Any:
    """What a run, or a dictionary by site or by name, holds for a site."""
    known = [key for key in (site, str(site)) if key in source]
    return source[known[0]] if known else None


def _noun(site: Site) -> str:
    return "head" if site.per_head else "unit"


def _number(value: float) -> str:
    """A number as short as it can be read back."""
    return short if float(short := f"{value:g}") == value else repr(float(value))


def _shape(value: Any) -> tuple[int, ...] | str:
    shape = getattr(value, "shape", None)
    return (
        tuple(shape)
        if shape is not None
        else ("one number" if isinstance(value, (int, float)) and math.isfinite(value) else "unknown")
    )
