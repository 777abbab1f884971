"""Cutting heads out of a network: its projections lose the weights of those heads, and its counts are set right."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pellucid.errors import ModelError, listing
from pellucid.heads.pruning.feeding import Feeding, feeding, probed
from pellucid.model import fewer_heads
from pellucid.model.fewer_heads import FewerHeads

if TYPE_CHECKING:
    from pellucid.model import Model
    from pellucid.model.sites import Site
    from pellucid.model.taps import Located

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
_GROUPS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
_SHARES = ("num_key_value_groups", "n_rep")
_WIDTHS = ("all_head_size", "embed_dim", "split_size", "inner_dim")
"""What attention modules call their number of heads, of key and value heads, of queries for each, and their width."""
_TOLD = re.compile(r"self\.config\.(num_attention_heads|num_key_value_heads)")
_SPLIT_IN = 3


@dataclass(frozen=True, eq=False)
class Cut:
    """What is left of one attention module: query heads, key and value heads, and by how many queries each is read."""

    owner: str
    projection: str
    heads: int
    groups: int
    kept: list[int]

    @property
    def kept_groups(self) -> list[int]:
        """Key and value heads that some kept query head reads."""
        return sorted({head // (self.heads // self.groups) for head in self.kept})

    @property
    def reads(self) -> list[int]:
        """Which kept key and value head each kept query head reads."""
        groups = self.kept_groups
        return [groups.index(head // (self.heads // self.groups)) for head in self.kept]

    @property
    def share(self) -> int | None:
        """Query heads for each key and value head; None where they are not equally many."""
        counts = {self.reads.count(group) for group in range(len(self.kept_groups))}
        return 1 if not counts else counts.pop() if len(counts) == 1 else None


def cut(
    model: Model, removed: Mapping[Site, Sequence[int]], scales: Mapping[Site, Mapping[int, float]]
) -> tuple[nn.Module, FewerHeads]:
    """A copy of a network without some heads, and the record of what is left; the network itself stays as it is.

    What heads in `scales` give is multiplied, in the weights that take their output. With grouped queries a key and
    value head goes when all its query heads go; what is left may be read by unequal numbers of query heads, and the
    projection then repeats its output accordingly.
    """
    located: Located = model.located
    planned = _planned(model, located, removed)
    module = deepcopy(model.hf)
    _scale(module, model, located, scales)
    fewer = _record(model, planned)
    spared = frozenset(each.projection for each in planned.values())
    done: set[str] = set()
    run = probed(model, planned)
    for site, each in planned.items():
        if each.owner in done:
            continue  # layers that share their weights
        done.add(each.owner)
        parts = feeding(model, run, site, each.owner, spared)
        weights = dict(model.hf.named_parameters())
        if not any("query" in part.rows and weights[name].dim() > 1 for name, part in parts.items()):
            raise ModelError(
                f"Heads of {site} cannot be removed: what makes their queries does not part into heads (a norm over "
                "all of them, for one). Gates (Edit.gate, Edit.zero) work all the same."
            )
        fewer = _cut_one(module, each, parts, fewer)
    fewer_heads.change(module, fewer)
    return module, fewer


def _planned(model: Model, located: Located, removed: Mapping[Site, Sequence[int]]) -> dict[Site, Cut]:
    """What is left of every attention module that loses heads."""
    owners = {site.beside("heads"): owner for (owner, _), site in located.attention.items()}
    found: dict[Site, Cut] = {}
    for site, gone in removed.items():
        if site not in owners or site not in located.taps:
            raise ModelError(
                f"Heads of {site} cannot be removed: {type(model.hf).__name__} computes attention in a way of its own "
                "(in windows, or with the output projection inside). Gates (Edit.gate, Edit.zero) work all the same."
            )
        heads, groups = model.size(site)[0], model.size(site.beside("key"))[0]
        kept = [head for head in range(heads) if head not in gone]
        found[site] = Cut(owners[site], located.taps[site].module, heads, groups, kept)
    for owner in {each.owner for each in found.values()}:
        sharing = [site for site, path in owners.items() if path == owner]
        left = {tuple(found[site].kept) if site in found else None for site in sharing}
        if len(left) > 1:
            raise ModelError(
                f"{listing(sharing)} share their weights, so that a head can be removed from all of them or from none; "
                "name it in each, or use gates (Edit.gate, Edit.zero)."
            )
    return found


def _scale(module: nn.Module, model: Model, located: Located, scales: Mapping[Site, Mapping[int, float]]) -> None:
    """Multiplies the weights that take the output of some heads, in place."""
    done: dict[str, Mapping[int, float]] = {}
    for site, factors in scales.items():
        if site not in located.taps:
            raise ModelError(f"The gates of {site} cannot become part of its weights: it has no output projection.")
        path = located.taps[site].module
        if done.setdefault(path, factors) != factors:
            raise ModelError(f"{site} shares its weights with another layer whose gates are others; use gates instead.")
        if done[path] is not factors:
            continue
        projection: Any = module.get_submodule(path)
        weight = projection.weight.data if isinstance(projection, nn.Linear) else projection.weight.data.T  # Conv1D
        width = weight.shape[1] // model.size(site)[0]
        for head, factor in factors.items():
            weight[:, head * width : (head + 1) * width] *= factor


def _record(model: Model, planned: Mapping[Site, Cut]) -> FewerHeads:
    """Heads by their numbers in the whole model, also where some were removed before."""
    before = fewer_heads.held(model.hf)
    sizes = {str(site): model.size(site)[0] for site in model.sites if site.kind == "heads"}
    if before is None:
        before = FewerHeads(sizes, {site: list(range(count)) for site, count in sizes.items()})
    kept = {site: list(heads) for site, heads in before.kept.items()}
    for site, each in planned.items():
        kept[str(site)] = [kept[str(site)][head] for head in each.kept]
    return replace(before, kept=kept)


def _cut_one(module: nn.Module, each: Cut, parts: Mapping[str, Feeding], fewer: FewerHeads) -> FewerHeads:
    """One attention module of the copy loses its heads; what else must be set is added to the record."""
    left = {"query": each.kept, "key": each.kept_groups, "value": each.kept_groups}
    if each.groups == each.heads:
        left["key"] = left["value"] = each.kept
    parameters = dict(module.named_parameters())
    for name, part in parts.items():
        chosen = part.kept(left).to(parameters[name].device)
        fewer_heads.put(module, name, parameters[name].detach().index_select(part.axis, chosen))
    for name, parameter in module.get_submodule(each.owner).named_parameters(recurse=False):
        if parameter.dim() == 1 and len(parameter) == each.heads:  # one number for each head, such as a sink
            fewer_heads.put(module, f"{each.owner}.{name}", parameter.detach()[each.kept])
    weight = f"{each.projection}.weight"
    axis = 1 if isinstance(module.get_submodule(each.projection), nn.Linear) else 0  # Conv1D has its input first
    width = parameters[weight].shape[axis] // each.heads
    columns = torch.cat([torch.arange(head * width, (head + 1) * width) for head in each.kept] or [torch.zeros(0)])
    chosen = columns.long().to(parameters[weight].device)
    fewer_heads.put(module, weight, parameters[weight].detach().index_select(axis, chosen))
    repeats = dict(fewer.repeats)
    if each.share is None:
        repeats.update(_repeated(module, each, parts, repeats))
    attributes = _attributes(module.get_submodule(each.owner), each, width)
    settings = _settings(module.get_submodule(each.owner), each)
    return replace(
        fewer,
        attributes={**fewer.attributes, each.owner: {**fewer.attributes.get(each.owner, {}), **attributes}},
        settings={**fewer.settings, **({each.owner: settings} if settings else {})},
        repeats=repeats,
    )


def _repeated(
    module: nn.Module, each: Cut, parts: Mapping[str, Feeding], before: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    """The key and value projections whose heads are read by unequal numbers of query heads."""
    paths = {name.rpartition(".")[0]: set(part.rows) for name, part in parts.items()}
    found = [path for path, kinds in paths.items() if kinds <= {"key", "value"}]
    plain = all(isinstance(module.get_submodule(path), nn.Linear) and path not in before for path in found)
    if len(found) != 2 or not plain:  # a fused projection gives queries too
        raise ModelError(
            f"{each.owner} would be left with key and value heads that are read by unequal numbers of query heads, "
            "which its projections cannot express; remove as many query heads from each group, or whole groups."
        )
    return dict.fromkeys(found, each.reads)


def _attributes(owner: Any, each: Cut, width: int) -> dict[str, Any]:
    """The counts that an attention module holds, set to what is left."""
    kept, groups = len(each.kept), len(each.kept_groups)
    if each.share is None:
        groups = kept
    news: dict[str, tuple[int, Any]] = dict.fromkeys(_HEADS, (each.heads, kept))
    news.update(dict.fromkeys(_GROUPS, (each.groups, groups)))
    news.update(dict.fromkeys(_SHARES, (each.heads // each.groups, each.share or 1)))
    news.update(dict.fromkeys(_WIDTHS, (each.heads * width, kept * width)))
    found = {name: new for name, (old, new) in news.items() if _holds(owner, name, old)}
    if found.get("split_size") == 0:  # nothing can be split in three only by saying so
        found["split_size"] = [0] * _SPLIT_IN
    return found


def _holds(owner: Any, name: str, value: int) -> bool:
    return isinstance(getattr(owner, name, None), int) and getattr(owner, name) == value


def _settings(owner: Any, each: Cut) -> dict[str, Any]:
    """What an attention module reads from the configuration while it runs: it gets a copy of its own."""
    read = set(_TOLD.findall(inspect.getsource(type(owner).forward)))
    groups = len(each.kept) if each.share is None else len(each.kept_groups)
    new = {"num_attention_heads": len(each.kept), "num_key_value_heads": groups}
    found: dict[str, Any] = {name: value for name, value in new.items() if name in read}
    if not each.kept and hasattr(owner, "config"):  # some versions of torch divide by the heads in their fused kernels
        found["_attn_implementation_internal"] = "eager"
    return found
