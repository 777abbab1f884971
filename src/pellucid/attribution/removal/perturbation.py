"""Attribution without gradients: many changed copies of a text in few passes, in as much memory as is allowed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import weak
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pellucid.attribution.passes import ELSEWHERE, ROOM
from pellucid.attribution.removal import coalitions
from pellucid.attribution.removal.groups import Groups, grouped, of_tokens
from pellucid.attribution.sweep import Asked, Key, Swept
from pellucid.errors import AttributionError, OutOfMemory
from pellucid.model import Edit
from pellucid.model.memory import ran_out
from pellucid.model.sites import Site

if TYPE_CHECKING:
    from pellucid.attribution.removal.groups import Grouping
    from pellucid.attribution.targets import Resolved
    from pellucid.model import Batch, Model

Array = np.ndarray[Any, Any]
Change = Callable[[slice], Iterable[Edit]]
"""Gives the edits of some of the copies, [K·B, …] each: all texts K times, one repetition after the other."""

Begin = Callable[[slice], Mapping[Site, Tensor]]
"""Gives the streams [K·B, T, width] with which a pass of some of the copies may start, none for a whole pass."""

MOST = 256
"""Copies in one pass, where memory does not say less."""


def scored(
    model: Model,
    batch: Batch,
    *,
    change: Change,
    count: int,
    targets: Sequence[Resolved],
    memory_limit: int | None = None,
    begin: Begin | None = None,
) -> Tensor:
    """The targets' scores [count, targets, B] at `count` changed copies of a batch, in float64.

    The first pass holds one copy and tells what one costs; further ones hold as many as fit into `memory_limit` bytes.
    Where memory runs out all the same, passes become smaller, down to single copies.
    """
    wanted = tuple(dict.fromkeys(site for target in targets for site in target.sites))
    found: list[Tensor] = []
    done, most = 0, 1
    while done < count:
        where = slice(done, min(done + most, count))
        weight = _Weight(model) if done == 0 else None
        try:
            with weight or nullcontext():
                start = begin(where) if begin is not None else {}
                run = model.run(batch.repeated(where.stop - done), wanted, change(where), start=start)
                scores = torch.stack([target.score(run).detach().double() for target in targets])
            del run
        except (RuntimeError, MemoryError, OutOfMemory) as error:
            if not isinstance(error, OutOfMemory) and not ran_out(error):
                raise
            if where.stop - done == 1:
                raise OutOfMemory(
                    f"{model.device} ran out of memory on a single copy of the text ({batch.size} × "
                    f"{batch.ids.shape[1]} tokens); use a shorter text or a smaller precision."
                ) from error
            most = (where.stop - done) // 2
            continue
        if weight is not None:
            room = memory_limit or ROOM.get(model.device.type, ELSEWHERE)
            most = max(1, min(MOST, room // max(1, weight.most)))
        _check(targets, scores)
        found.append(scores.unflatten(1, (where.stop - done, -1)).transpose(0, 1).cpu())  # [copies, targets, B]
        done = where.stop
    return torch.cat(found)


def sweep_perturbed(
    asked: Asked,
    methods: Sequence[str],
    *,
    by: str = "site",
    groups: Grouping = "tokens",
    window: int = 3,
    stride: int = 1,
    samples: int = 25,
    seed: int = 0,
    replacement: object = "zero",
) -> Swept:
    """The attributions of methods that take tokens (or, for `ablation`, any site's places) away and look what changes.

    A group's number is shared equally by its tokens, so that it is their sum. `replacement` tells what a site other
    than the input gets: `zero`, its `mean` over the text, or else what stands there when the input is the baseline.
    """
    from pellucid.attribution.removal.units import ablate_sites

    inner = [site for site in asked.sites if site.kind != "embed"]
    beyond = [name for name in methods if name != "ablation"]
    if inner and beyond:
        raise AttributionError(
            f"{' and '.join(beyond)} takes tokens of the text away, so it speaks of 'embed' alone, not of {inner[0]}; "
            "of these methods, ablation works at any site."
        )
    if samples < 2 and {"shapley", "lime"} & set(methods):
        raise AttributionError(f"Sampling needs at least two samples to know its error; {samples} was asked for.")
    divided = grouped(asked.batch, groups)
    swept: Swept | None = None
    for name in methods if len(inner) < len(asked.sites) else ():
        found = _inputs(asked, name, divided, window=window, stride=stride, samples=samples, seed=seed)
        swept = found if swept is None else swept.joined(found)
    if inner:
        found = ablate_sites(replace(asked, sites=tuple(inner)), divided, by=by, replacement=replacement)
        swept = found if swept is None else swept.joined(found)
    assert swept is not None
    return swept


def _inputs(asked: Asked, method: str, groups: Groups, *, window: int, stride: int, samples: int, seed: int) -> Swept:
    """One method at the embeddings: every text has a plan of its own, and all run side by side."""
    if method == "occlusion":
        groups = of_tokens(asked.batch)
    plans: list[coalitions.Plan] = []
    for row in range(asked.batch.size):
        players = groups.count(row)
        if method == "occlusion":
            lengths = [int((groups.members[row, side] >= 0).sum()) for side in groups.sides.values()]
            plans.append(coalitions.occluded(lengths, window, stride))
        elif method == "ablation":
            plans.append(coalitions.ablated(players))
        else:
            make = coalitions.shared_out if method == "shapley" else coalitions.linear
            plans.append(make(players, samples, seed))
    count = max(len(plan.present) for plan in plans)
    change = _replaced(asked, groups, [plan.present for plan in plans])
    values = scored(
        asked.model,
        asked.batch,
        change=change,
        count=count,
        targets=asked.targets,
        memory_limit=asked.memory_limit,
    )
    parts: dict[Key, Tensor] = {}
    reach: dict[Key, Tensor] = {}
    for row, plan in enumerate(plans):
        found = plan.read(values[: len(plan.present), :, row].numpy())
        share = np.ones(groups.count(row)) if method == "occlusion" else groups.sizes(row)
        for kept, numbers in zip((parts, reach), found, strict=True):
            _put(kept, asked, method, groups, row, numbers / share[:, None])
    sampled = any(bool(part.any()) for part in reach.values())
    notes = "; ".join(dict.fromkeys(plan.note for plan in plans if plan.note))
    return Swept(
        tuple(asked.end),
        parts,
        values[1],
        values[0],
        0,
        len(values),
        notes,
        reach=reach if sampled else {},
    )


def _replaced(asked: Asked, groups: Groups, plans: Sequence[Array]) -> Change:
    """Copies in which the embeddings of absent groups are those of the baseline; beyond a text's plan, whole texts."""

    def change(where: slice) -> list[Edit]:
        there = np.ones((where.stop - where.start, *groups.members.shape), dtype=bool)  # [K, B, T]
        for row, present in enumerate(plans):
            mine = groups.members[row] >= 0
            chosen = present[where]
            there[: len(chosen), row, mine] = chosen[:, groups.members[row, mine]]
        edits: list[Edit] = []
        for site, end in asked.end.items():
            kept = torch.from_numpy(there[:, :, groups.sides[site.stack]]).to(end.device)[..., None]
            edits.append(Edit.patch(site, torch.where(kept, end, asked.start[site]).flatten(0, 1)))
        return edits

    return change


def _put(parts: dict[Key, Tensor], asked: Asked, method: str, groups: Groups, row: int, numbers: Array) -> None:
    """The numbers [groups, targets] of one text on its tokens, as attributions [B, T, 1] of the embeddings."""
    for site in asked.sites:
        if site.kind != "embed":
            continue
        mine = groups.side(site)
        real = mine[row] >= 0
        for number in range(len(asked.targets)):
            part = parts.setdefault((method, number, site), torch.zeros(*mine.shape, 1, dtype=torch.float64))
            part[row, real, 0] = torch.from_numpy(numbers[mine[row, real], number])


def _check(targets: Sequence[Resolved], scores: Tensor) -> None:
    for target, score in zip(targets, scores, strict=True):
        if not bool(score.isfinite().all()):
            raise AttributionError(
                f"The target {target.name!r} is not a finite number for a changed copy; the model overflows."
            )


class _Weight(TorchDispatchMode):
    """The most bytes of tensors made in a block that lived at the same time, the model's own weights aside."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known = weak.WeakIdKeyDictionary()
        for weights in (*model.hf.parameters(), *model.hf.buffers()):
            self._known[weights.untyped_storage()] = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage: Any) -> None:
        if storage in self._known:
            return
        self._known[storage] = True
        size = storage.nbytes()
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._gone, size)

    def _gone(self, size: int) -> None:
        self.now -= size
