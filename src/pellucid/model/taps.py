"""Taps: where in a module's inputs or outputs a site's tensor passes, and how it is laid out there."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pellucid.model.sites import Site

if TYPE_CHECKING:
    from torch import Tensor

Slot = tuple[int | str, ...]
"""Path to a tensor inside nested tuples, lists and dictionaries; the empty path is the thing itself."""


@dataclass(frozen=True)
class Layout:
    """How a token tensor lies inside the model: [B, T, d], [B·T, d], [T, B, d], or with heads side by side."""

    time_first: bool = False
    heads: int | None = None
    native: bool = False  # as it is, whatever its shape (wrapped modules)
    crop: bool = False  # the model pads the sequence to a multiple of its window

    def read(self, native: Tensor, batch: int, length: int | None) -> Tensor:
        """The tensor as [B, T, d], or [B, H, T, dh] where heads lie side by side; a view wherever possible."""
        if self.native:
            return native
        value = native
        if value.dim() == 2:
            value = value.unflatten(0, (batch, -1))  # tokens of all sequences in one row
        elif self.time_first:
            value = value.transpose(0, 1)
        if self.crop and length is not None:
            value = value[:, :length]
        if self.heads is None:
            return value
        width = value.shape[2] // max(self.heads, 1)  # a layer may have lost all its heads
        return value.view(value.shape[0], value.shape[1], self.heads, width).transpose(1, 2)

    def write(self, value: Tensor, native: Tensor, batch: int) -> Tensor:
        """The inverse of `read`: `value` in the native layout, with any cropped tail of `native` put back."""
        import torch

        if self.native:
            return value
        if self.heads is not None:
            value = value.transpose(1, 2).flatten(2)
        if self.crop:
            whole = Layout(time_first=self.time_first).read(native, batch, None)
            value = torch.cat([value, whole[:, value.shape[1] :]], dim=1)
        if self.time_first:
            value = value.transpose(0, 1)
        return value.reshape(native.shape)


@dataclass(frozen=True)
class Tap:
    """One point of a forward pass: the `call`-th call of a module, at its input or output.

    Without a slot, the first floating-point tensor found there is meant.
    """

    module: str
    end: Literal["input", "output"]
    slot: Slot | None
    call: int = 0
    layout: Layout = Layout()
    scale: float = 1.0
    clone: bool = False


@dataclass(frozen=True)
class Window:
    """Attention within `radius` tokens, computed in chunks by a module: its T × T pattern is made of query and key."""

    module: str
    radius: int


@dataclass(frozen=True)
class Located:
    """Where every site of a model is, as found by one probe pass.

    `attention` and `experts` map (module path, call) to the site whose stack and layer that call serves; `shared` holds
    the taps of experts that every token passes, whose units follow the routed experts' in the same `neurons` site.
    `sums` defines a site as the sum of two others; `edit_taps` holds taps for edits where they differ from capture;
    `inline` the sites seen only by watching attention's own operations (heads and attn without a projection module).
    `repeated` names modules called several times in a pass; `read_only` says why a site cannot be edited.
    """

    taps: Mapping[Site, Tap]
    attention: Mapping[tuple[str, int], Site]
    experts: Mapping[tuple[str, int], Site] = field(default_factory=dict[tuple[str, int], Site])
    shared: Mapping[Site, Tap] = field(default_factory=dict[Site, Tap])
    sums: Mapping[Site, tuple[Site, Site]] = field(default_factory=dict[Site, tuple[Site, Site]])
    edit_taps: Mapping[Site, Tap] = field(default_factory=dict[Site, Tap])
    forms: Mapping[str | None, str] = field(default_factory=dict[str | None, str])
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    windows: Mapping[Site, Window] = field(default_factory=dict[Site, "Window"])
    inline: frozenset[Site] = frozenset()
    repeated: frozenset[str] = frozenset()
    read_only: Mapping[Site, str] = field(default_factory=dict[Site, str])
    interface: bool = False


def find_slot(value: Any, *, dims: tuple[int, ...] = (2, 3)) -> Slot | None:
    """The path of the first floating-point tensor with so many dimensions, searching depth first."""
    import torch

    if isinstance(value, torch.Tensor):
        return () if value.is_floating_point() and value.dim() in dims else None
    children: list[tuple[int | str, Any]] = []
    if isinstance(value, Mapping):
        children = list(value.items())  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, (tuple, list)):
        children = list(enumerate(value))  # pyright: ignore[reportUnknownArgumentType]
    for key, child in children:
        found = find_slot(child, dims=dims)
        if found is not None:
            return (key, *found)
    return None


def get_slot(value: Any, slot: Slot) -> Any:
    """The thing at a slot."""
    for key in slot:
        value = value[key]
    return value


def put_slot(value: Any, slot: Slot, new: Any) -> Any:
    """A shallow copy of nested tuples, lists and dictionaries with the thing at `slot` replaced."""
    if not slot:
        return new
    key, rest = slot[0], slot[1:]
    if isinstance(value, Mapping):
        changed: Any = copy(value)
        changed[key] = put_slot(value[key], rest, new)
        return changed
    items = list(value)
    items[key] = put_slot(items[key], rest, new)  # type: ignore[index]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*items)
    return type(value)(items)
