"""Models that are really smaller: heads removed for good, proved equal to the gated model, saved and opened again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pellucid.errors import ModelError
from pellucid.heads.naming import find_heads
from pellucid.heads.pruning.cutting import cut
from pellucid.heads.pruning.feeding import probe_batch
from pellucid.model import Model, fewer_heads
from pellucid.model.edits import Edit
from pellucid.model.fewer_heads import FewerHeads
from pellucid.model.loading import Opened, quiet
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from pellucid.model.batch import Batch
    from pellucid.model.sites import Site

TOLERANCE = 1e-5
"""The largest difference from the gated model, as a share of its largest output, in single precision."""


@dataclass(frozen=True)
class Saved:
    """Where a model was saved, whether transformers alone opens it (`hugging_face`), and if not, why."""

    folder: Path
    hugging_face: bool
    reason: str


def smaller(model: Model, heads: Iterable[str], *, gates: Mapping[str, float] | None = None) -> Model:
    """A copy of a model without the named heads (`3.2`, `cross.0.1`): same outputs as with their gates closed.

    `gates` are factors for heads that stay; they become part of the weights that take the heads' outputs. Weights that
    only the named heads used are gone from every projection; with grouped queries a key and value head goes with the
    last of its query heads. The copy is run beside the gated model before it is given back. What stays is numbered anew
    from 0 in each layer; `kept_heads` tells the old numbers. All heads of a layer may go.
    """
    removed: dict[Site, list[int]] = {}
    for site, head in find_heads(model, heads):
        removed.setdefault(site, []).append(head)
    scales: dict[Site, dict[int, float]] = {}
    for name, factor in (gates or {}).items():
        ((site, head),) = find_heads(model, [name])
        scales.setdefault(site, {})[head] = factor
    module, fewer = cut(model, removed, scales)
    config: Any = module.config
    config.architectures = [type(module).__name__]  # as it will be when saved
    module, fewer = _told_by_config(module, fewer)
    fewer_heads.hold(module, fewer)
    gone = sum(count - len(fewer.kept[site]) for site, count in fewer.had.items())
    name = f"{model.name.partition(' without ')[0]} without {gone} heads" if gone else model.name
    _prove(model, module, removed, scales)
    return Model(Opened(module.eval(), model.tokenizer, model.attention, name, model.notes))


def kept_heads(model: Model) -> dict[str, tuple[int, ...]]:
    """For every site `heads.L`, the numbers that the model's heads had before any was removed."""
    fewer = fewer_heads.held(model.hf)
    if fewer is not None:
        return {site: tuple(heads) for site, heads in fewer.kept.items()}
    return {str(site): tuple(range(model.size(site)[0])) for site in model.sites if site.kind == "heads"}


def save_smaller(model: Model, folder: str | Path) -> Saved:
    """Writes a model from which heads were removed as a new folder that `Model.load` opens, whole or not at all.

    Where the configuration can express it, the folder is an ordinary Hugging Face one; otherwise the weights come with
    a small pellucid.json that says which heads are gone, and why transformers alone cannot open it.
    """
    from safetensors.torch import save_model

    place, hf = Path(folder), model.hf
    fewer = fewer_heads.held(hf)
    if fewer is None:
        raise ModelError(f"{model.name!r} has all its heads; remove some with heads.smaller(model, heads) first.")
    with whole_folder(place) as work, quiet():
        if fewer.reason:
            config: Any = hf.config
            config.save_pretrained(work)
            save_model(hf, str(work / fewer_heads.WEIGHTS), metadata={"format": "pt"})
        else:
            whole: Any = hf
            whole.save_pretrained(work)
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(work)
        told = json.dumps(fewer.to_json(), indent=2) + "\n"
        (work / fewer_heads.FILE).write_text(told, encoding="utf-8")
    return Saved(place, not fewer.reason, fewer.reason)


def saved_in(folder: str | Path) -> Saved | None:
    """How a folder holds a model from which heads were removed; None where it holds none."""
    fewer = fewer_heads.read(Path(folder))
    return None if fewer is None else Saved(Path(folder), not fewer.reason, fewer.reason)


@dataclass(frozen=True)
class Cost:
    """What a model takes: its weights, and the floating-point operations of one forward pass over a batch."""

    parameters: int
    flops: int


def cost(model: Model, batch: Batch | None = None) -> Cost:
    """Counted, not timed; the batch is a small one of random tokens unless one is given."""
    from torch.utils.flop_counter import FlopCounterMode

    weights = sum(weight.numel() for weight in model.hf.parameters())
    with FlopCounterMode(display=False) as counter:
        model.run(batch or probe_batch(model))
    return Cost(weights, counter.get_total_flops())


def _prove(
    model: Model,
    module: nn.Module,
    removed: Mapping[Site, Sequence[int]],
    scales: Mapping[Site, Mapping[int, float]],
) -> None:
    """Raises where the smaller network computes anything else than the gated one, or cannot run."""
    batch = probe_batch(model)
    edits = [Edit.zero(site, heads=heads) for site, heads in removed.items()]
    edits += [
        Edit.gate(site, torch.tensor(list(factors.values())), heads=list(factors)) for site, factors in scales.items()
    ]
    wanted = _first(model.run(batch, edits=edits).output)
    arguments: Any = model._arguments(batch)[0]  # pyright: ignore[reportPrivateUsage]
    try:
        with torch.no_grad():
            found = _first(module(**arguments))
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        why = f"its parts do not fit together without them ({' '.join(str(error).split())[:120]})"
        if any(model.size(site)[0] == len(heads) for site, heads in removed.items()):
            why += "; it may work if each layer keeps a head"
        raise _refused(model, why) from error
    precision = max(torch.finfo(wanted.dtype).eps / torch.finfo(torch.float32).eps, 1.0)
    most = TOLERANCE * precision * max(1.0, float(wanted.abs().max()))
    if found.shape != wanted.shape or not float((found - wanted).abs().max()) <= most:
        raise _refused(model, "without them it computes something else than with their gates closed")


def _refused(model: Model, why: str) -> ModelError:
    return ModelError(
        f"Heads of a {type(model.hf).__name__} cannot be removed: {why}. Gates (Edit.gate, Edit.zero) work all the "
        "same."
    )


def _first(output: Any) -> Tensor:
    return next(iter(output.values())).float()


def _told_by_config(module: nn.Module, fewer: FewerHeads) -> tuple[nn.Module, FewerHeads]:
    """The network with a configuration that says how many heads it has, where one can; else the reason why not."""
    config: Any = getattr(module, "config", None)
    counts = {len(heads) for heads in fewer.kept.values()}
    if fewer.repeats:
        return module, replace(fewer, reason="key and value heads are read by unequal numbers of query heads")
    if len(counts) > 1:
        left = f"{min(counts)} to {max(counts)}"
        return module, replace(fewer, reason=f"its layers have {left} heads, and its configuration has one number")
    if counts == {0}:
        return module, replace(fewer, reason="no heads are left, and its configuration asks for at least one")
    new = deepcopy(config)
    widths = {int(getattr(module.get_submodule(path), "head_dim", 0)) for path in fewer.attributes}
    settings = {"num_attention_heads": counts.pop(), "num_key_value_heads": _groups(module, fewer)}
    if len(widths) == 1 and hasattr(config, "head_dim"):
        settings["head_dim"] = widths.pop()
    for name, value in settings.items():
        if value is not None and hasattr(config, name):
            setattr(new, name, value)
    if not _shapes_agree(type(module), new, module):
        why = f"the configuration of a {type(module).__name__} ties the width of a head to the number of heads"
        return module, replace(fewer, reason=why)
    with quiet(), torch.random.fork_rng(devices=[]):
        fresh: Any = type(module)
        fresh = fresh._from_config(new, attn_implementation=config._attn_implementation, dtype=module.dtype)
    fresh.load_state_dict(module.state_dict())
    return fresh.to(module.device).eval(), FewerHeads(fewer.had, fewer.kept)


def _groups(module: nn.Module, fewer: FewerHeads) -> int | None:
    """Key and value heads of every layer, where all have equally many."""
    found: set[int] = set()
    for path in fewer.attributes:
        owner: Any = module.get_submodule(path)
        key: Any = getattr(owner, "k_proj", None)
        if isinstance(key, nn.Linear) and getattr(owner, "head_dim", 0):
            found.add(key.out_features // owner.head_dim)
    return found.pop() if len(found) == 1 else None


def _shapes_agree(cls: Any, config: Any, module: nn.Module) -> bool:
    """Whether a configuration gives a network with exactly these shapes."""
    try:
        with torch.device("meta"), quiet():
            built = cls(config)
    except (ValueError, ZeroDivisionError, RuntimeError, TypeError):
        return False
    shapes = {name: tuple(weight.shape) for name, weight in built.named_parameters()}
    return shapes == {name: tuple(weight.shape) for name, weight in module.named_parameters()}
