"""Passes with gradients: many points of one path or cloud in few batches, in as much memory as is allowed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pellucid.errors import AttributionError, OutOfMemory
from pellucid.model import Edit
from pellucid.model.gradient import sparse
from pellucid.model.memory import ran_out
from pellucid.model.sites import Site

if TYPE_CHECKING:
    from pellucid.attribution.targets import Resolved
    from pellucid.model import Batch, Model, Run

Points = Mapping[Site, Tensor]
At = Callable[[slice], Points]
"""Gives the tensors [K, B, …] that replace those of the moved sites at some of the points."""

MOST = 64
"""Points in one batch, however small they are."""
ROOM = {"cpu": 3 << 29}
"""Bytes for the passes where no limit is given; always the same, so that the same call gives the same bytes. On a CPU
larger batches are slower."""
ELSEWHERE = 8 << 30
PASSING = 1.5
"""What a batch takes at most (measured), over what its graph keeps and it hands over: the rest comes and goes."""


class PaddingError(AttributionError):
    """Numbers of a padded batch that are not finite: alone, each text may well have some."""


def not_finite(what: str, why: str, batch: Batch) -> AttributionError:
    """The error that something is not a finite number, and what to do; `why` where there is no padding."""
    if bool(batch.mask.all()) and (batch.target_mask is None or bool(batch.target_mask.all())):
        return AttributionError(f"{what} is not a finite number: {why}.")
    return PaddingError(
        f"{what} is not a finite number in a padded batch: some models have no gradients where a token sees only "
        "padding (most often in float64); explain the texts one by one, or open the model in float32."
    )


@dataclass(frozen=True, eq=False)
class Pass:
    """What passed at K neighbouring points: values [K, B, …] by site, scores [K, B] and gradients by target."""

    where: slice
    values: Mapping[Site, Tensor]
    scores: tuple[Tensor, ...]
    gradients: tuple[Mapping[Site, Tensor], ...]


@dataclass(frozen=True, eq=False)
class Held:
    """What stands still while points move: tensors [B, …] by site.

    With `late`, streams between blocks (`resid.l`) that move or stand still are where passes start.
    """

    values: Points = field(default_factory=dict[Site, Tensor])
    late: bool = False


@contextmanager
def frozen(model: Model) -> Generator[None]:
    """Weights that take no gradients for a while: passes then keep and compute only what sites need."""
    learning = [weight for weight in model.hf.parameters() if weight.requires_grad]
    try:
        for weight in learning:
            weight.requires_grad_(False)
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)


def passes(
    model: Model,
    batch: Batch,
    *,
    at: At,
    count: int,
    sites: Sequence[Site],
    targets: Sequence[Resolved],
    memory_limit: int | None = None,
    held: Held | None = None,
) -> Iterator[Pass]:
    """Runs `count` points in order, in batches of as many as fit into `memory_limit` bytes.

    The first batch holds one point and tells what one costs. Where memory runs out all the same, batches become
    smaller, down to single points.
    """
    held, done, most, room = held or Held(), 0, 1, memory_limit or ROOM.get(model.device.type, ELSEWHERE)
    while done < count:
        where = slice(done, min(done + most, count))
        try:
            with _measured(model, wanted=done == 0 and count > 1) as weight:
                found = _one(model, batch, at, where, sites, targets, held)
        except (RuntimeError, MemoryError, OutOfMemory) as error:
            if not isinstance(error, OutOfMemory) and not ran_out(error):
                raise
            if most == 1:
                raise OutOfMemory(
                    f"{model.device} ran out of memory on a single point of the path ({batch.size} × "
                    f"{batch.ids.shape[1]} tokens); use a shorter text, fewer sites or a smaller precision."
                ) from error
            most = max(1, (where.stop - where.start) // 2)
            continue
        if done == 0:
            most = max(1, min(MOST, int(room / (PASSING * (weight.total + _handed(found)) + 1))))
        done = where.stop
        yield found


def _one(
    model: Model,
    batch: Batch,
    at: At,
    where: slice,
    sites: Sequence[Site],
    targets: Sequence[Resolved],
    held: Held,
) -> Pass:
    count = where.stop - where.start
    given = {site: point.flatten(0, 1).requires_grad_() for site, point in at(where).items()}
    for site, value in held.values.items():
        given[site] = value.repeat(count, *[1] * (value.dim() - 1))
    start = {site: value for site, value in given.items() if held.late and site.kind == "resid"}
    edits = [Edit.patch(site, value) for site, value in given.items() if site not in start]
    wanted = tuple(dict.fromkeys([*sites, *(site for target in targets for site in target.sites)]))
    with frozen(model), sparse(model.hf), torch.enable_grad():
        run = model.run(batch.repeated(count), wanted, edits, gradients=True, start=start)
        scores = [target.score(run) for target in targets]
        for target, score in zip(targets, scores, strict=True):
            _check(target, score, batch)
        slopes = _slopes(run, sites, scores)
    return Pass(
        where,
        {site: run[site].detach().unflatten(0, (count, -1)) for site in sites},
        tuple(score.detach().unflatten(0, (count, -1)) for score in scores),
        tuple({site: slope.unflatten(0, (count, -1)) for site, slope in each.items()} for each in slopes),
    )


def _slopes(run: Run, sites: Sequence[Site], scores: Sequence[Tensor]) -> list[dict[Site, Tensor]]:
    """The gradient of every score at every site; zero where it does not depend on it."""
    values = [run[site] for site in sites]
    found: list[dict[Site, Tensor]] = []
    for number, score in enumerate(scores):
        more = number + 1 < len(scores)
        slopes = torch.autograd.grad(score.sum(), values, retain_graph=more, allow_unused=True, materialize_grads=True)
        found.append(dict(zip(sites, slopes, strict=True)))
    return found


def _check(target: Resolved, score: Tensor, batch: Batch) -> None:
    if not score.requires_grad:
        raise AttributionError(
            f"The target {target.name!r} cannot be differentiated: it does not depend on the model's activations in a "
            "way that has a gradient."
        )
    if not bool(score.isfinite().all()):
        raise not_finite(f"The target {target.name!r}", "the model overflows along the path", batch)


class _Weight:
    """Bytes that a pass keeps for its gradients."""

    def __init__(self, model: Model) -> None:
        self.total = 0
        self._seen = {weight.untyped_storage().data_ptr() for weight in (*model.hf.parameters(), *model.hf.buffers())}

    def keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.total += storage.nbytes()
        return tensor.detach()  # the tensor itself would keep its own graph alive


def _unpacked(tensor: Tensor) -> Tensor:
    return tensor


@contextmanager
def _measured(model: Model, *, wanted: bool) -> Generator[_Weight]:
    """Counts what the graph of a pass keeps beside the weights, where that is wanted."""
    weight = _Weight(model)
    if not wanted:
        yield weight
        return
    with torch.autograd.graph.saved_tensors_hooks(weight.keep, _unpacked):
        yield weight


def _handed(found: Pass) -> int:
    """Bytes of the values and gradients that a pass hands over."""
    tensors = [*found.values.values(), *(slope for slopes in found.gradients for slope in slopes.values())]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
