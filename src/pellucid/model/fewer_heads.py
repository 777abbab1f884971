"""Networks from which heads were removed: what differs from what their configuration says, and opening them again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from pellucid.errors import ModelError, listing

FILE = "pellucid.json"
"""The file that says which heads of a saved network are gone."""
FORMAT = 1
WEIGHTS = "model.safetensors"
_HELD = "pellucid_fewer_heads"
"""The attribute of a network that holds its `FewerHeads`."""


@dataclass(frozen=True)
class FewerHeads:
    """Which heads a network has left, and how it differs from its configuration.

    `had` and `kept` are by site (`heads.3`): how many heads there were, and the numbers, in the whole model, of those
    that are left. `attributes` and `settings` are by module path: what its attributes, or its own copy of the
    configuration, say instead. `repeats` says which head of a key or value projection each query head reads. `reason`
    says why the configuration cannot express the network; it is empty where it can.
    """

    had: Mapping[str, int]
    kept: Mapping[str, Sequence[int]]
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    repeats: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the removed heads spelt out for whoever opens the file."""
        removed = {
            site: [head for head in range(count) if head not in self.kept[site]] for site, count in self.had.items()
        }
        return {"format": FORMAT, "kind": "fewer heads", "removed": removed, **asdict(self)}

    @staticmethod
    def of_json(told: Mapping[str, Any]) -> FewerHeads:
        """What `to_json` told."""
        names = ("had", "kept", "attributes", "settings", "repeats", "reason")
        return FewerHeads(**{name: told[name] for name in names})


class RepeatedLinear(nn.Linear):
    """A key or value projection whose heads are read by unequal numbers of query heads: [..., Hkv·dh] → [..., H·dh]."""

    repeats: Tensor

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as nn.Linear calls it
        """The projection, with every head repeated for each query head that reads it."""
        projected = super().forward(input)
        heads = int(self.repeats.max()) + 1
        return projected.unflatten(-1, (heads, -1)).index_select(-2, self.repeats).flatten(-2)


class BiasOnly(Conv1D):
    """A Conv1D output projection without any head to project: it gives its bias for every token."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., 0] → [..., nf]; Conv1D itself cannot lay out a tensor without elements."""
        return x.new_zeros(*x.shape[:-1], self.nf) + self.bias


def held(module: nn.Module) -> FewerHeads | None:
    """What was removed from a network; None for a whole one."""
    return getattr(module, _HELD, None)


def hold(module: nn.Module, fewer: FewerHeads) -> None:
    """Lets a network know what was removed from it."""
    setattr(module, _HELD, fewer)


def settle(module: nn.Module, fewer: FewerHeads, shapes: Mapping[str, Sequence[int]]) -> None:
    """Gives a network, built from its configuration, the shapes and attributes of one with fewer heads, in place.

    Weights are cut off, not chosen: they are to be filled from a file, or are random anyway.
    """
    for name, parameter in list(module.named_parameters()):
        shape = tuple(shapes[name]) if name in shapes else tuple(parameter.shape)
        if shape != tuple(parameter.shape):
            put(module, name, parameter.detach()[tuple(slice(size) for size in shape)])
    change(module, fewer)


def change(module: nn.Module, fewer: FewerHeads) -> None:
    """Sets the attributes, settings and repeated projections that a network with fewer heads has, in place."""
    for path, values in fewer.attributes.items():
        part: Any = module.get_submodule(path)
        for name, value in values.items():
            setattr(part, name, value)
    for path, values in fewer.settings.items():
        part = module.get_submodule(path)
        part.config = copy(part.config)
        for name, value in values.items():
            setattr(part.config, name, value)
    for path, places in fewer.repeats.items():
        part = module.get_submodule(path)
        part.__class__ = RepeatedLinear
        part.register_buffer("repeats", torch.tensor(places, device=part.weight.device), persistent=False)
    hold(module, fewer)


def put(module: nn.Module, name: str, value: Tensor) -> None:
    """Replaces a parameter by one of another shape, and the sizes that its module tells."""
    path, _, own = name.rpartition(".")
    part: Any = module.get_submodule(path)
    setattr(part, own, nn.Parameter(value.contiguous().clone(), requires_grad=getattr(part, own).requires_grad))
    if own != "weight":
        return
    if isinstance(part, nn.Linear):
        part.out_features, part.in_features = part.weight.shape
    elif isinstance(part, Conv1D):
        part.nx, part.nf = part.weight.shape
        if not part.nx:
            part.__class__ = BiasOnly


def read(folder: Path) -> FewerHeads | None:
    """What a saved network says of its heads; None for a folder of a whole one."""
    place = folder / FILE
    if not place.is_file():
        return None
    try:
        told = json.loads(place.read_text(encoding="utf-8"))
        written = told["format"]
        if written == FORMAT:
            return FewerHeads.of_json(told)
    except (OSError, ValueError, KeyError, TypeError):
        raise ModelError(f"{str(place)!r} is damaged: it does not say which heads are left. Copy it again.") from None
    raise ModelError(
        f"{str(folder)!r} was saved by another Pellucid (format {written}, this one reads {FORMAT}); update."
    )


def build(cls: Any, config: Any, folder: Path, fewer: FewerHeads, *, dtype: Any, attention: str) -> nn.Module:
    """The network of a folder that its configuration alone cannot express."""
    from safetensors import safe_open
    from safetensors.torch import load_model

    if [cls.__name__] != config.architectures:
        raise ModelError(
            f"{str(folder)!r} holds a {listing(config.architectures or ['network'])} with heads removed, and opens as "
            "that alone; leave the head at 'auto'."
        )
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        names = list(file.keys())  # not a mapping
        shapes = {name: file.get_slice(name).get_shape() for name in names}
        stored = file.get_tensor(names[0]).dtype
    with torch.random.fork_rng(devices=[]):
        module = cls._from_config(
            config, attn_implementation=attention, dtype=stored if dtype in (None, "auto") else dtype
        )
    settle(module, fewer, shapes)
    missing, unknown = load_model(module, folder / WEIGHTS, strict=False)
    if missing or unknown:
        wrong = listing([*missing, *unknown], most=3)
        raise ModelError(f"The weights and the {FILE} of {str(folder)!r} do not belong together (as {wrong} shows).")
    return module.eval()
