"""The precision in which a model computes, and whether its weights are quantised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pellucid.errors import AttributionError

if TYPE_CHECKING:
    from pellucid.attribution.methods import Method
    from pellucid.model import Model

_PACKED = "torch.ao.nn"
"""Where torch's own quantised layers live; they pass no gradients back."""


def precision(model: Model) -> str:
    """The types of all parameters, those that hold most first, and whether weights are quantised."""
    sizes: Counter[str] = Counter()
    for parameter in model.hf.parameters():
        sizes[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    told = " and ".join(name for name, _ in sizes.most_common())
    whole = any(not name.startswith(("float", "bfloat")) for name in sizes)
    said = getattr(getattr(model.hf, "config", None), "quantization_config", None) is not None
    return f"{told}, quantised weights" if whole or said or packed(model) else told


def packed(model: Model) -> bool:
    """Whether the network has layers whose weights are packed in a way that has no gradients."""
    kinds = {type(module).__module__ for module in model.hf.modules()}
    return any(kind.startswith(_PACKED) and "quantized" in kind for kind in kinds)


def check_gradients(model: Model, methods: Sequence[Method]) -> None:
    """Refuses methods that need gradients where quantised layers pass none back: they would read as zeros."""
    needing = [method.name for method in methods if method.passes != "perturbation"]
    if needing and packed(model):
        raise AttributionError(
            f"{needing[0]} needs gradients, and the quantised layers of {model.name!r} pass none back; use ablation, "
            "occlusion, shapley or lime, or the model before it was quantised."
        )
