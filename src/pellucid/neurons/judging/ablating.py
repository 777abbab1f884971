"""The all-neurons sweep: every neuron of a site replaced in turn, many to a pass, and what the model's answers lose.

What stands below a site's layer is computed once for all of its neurons: passes start with the text's own stream there,
where the model allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pellucid.errors import SiteError, listing
from pellucid.heads.weighing.ablating import SCORES, TOKENS, real_tokens
from pellucid.heads.weighing.measuring import LABELLED, Measured
from pellucid.model import Edit
from pellucid.model.sites import Site
from pellucid.results import Array
from pellucid.train.tasks import IGNORED

if TYPE_CHECKING:
    from pellucid.model import Model
    from pellucid.neurons.judging.goal_words import GoalWords

REPLACEMENTS = ("zero", "mean")
EVERY = "all answers"
Gone = Mapping[Site, Sequence[int]]
"""Neurons that are already replaced, by their site."""


@dataclass(frozen=True, eq=False)
class Losses:
    """What answers lose without each neuron, summed: [neurons, classes, groups], beside `counts` [classes, groups].

    `drops` sums (p − p')/p with p the probability of the answer that the whole model gives and p' that without the
    neuron; `losses` the change of the loss in nats; `flips` the answers that change. Goals that are of none of the
    `classes` are not counted.
    """

    drops: Array
    losses: Array
    flips: Array
    counts: Array
    classes: tuple[str, ...]


def goal_classes(found: Measured, words: GoalWords | None = None) -> tuple[str, ...]:
    """The classes that answers are told apart by: those of words, or the model's labels, or none: all answers
    together."""
    if words is not None:
        return words.classes
    return found.labels if found.labels is not None and found.task.name in LABELLED else (EVERY,)


def site_width(model: Model, site: Site) -> int:
    """Neurons of a site; the slices of all heads stand side by side."""
    size = model.size(site)
    return size[0] * size[1] if len(size) == 2 else size[0]


def site_means(found: Measured, sites: Sequence[Site]) -> dict[Site, Tensor]:
    """The mean [neurons] of every neuron over all real tokens of the corpus, special ones included."""
    sums: dict[Site, Tensor] = {}
    counts: dict[Site, float] = {}
    for step in range(found.steps()):
        through = found.passing(sites=sites)
        found.task.logits(through, found.batch(step))
        assert through.last is not None and through.last.batch is not None
        for site in sites:
            real = real_tokens(through.last.batch, site).to(found.model.device).double()
            tensor = through.last[site].double()
            tensor = tensor.transpose(1, 2).flatten(2) if tensor.dim() == 4 else tensor  # [B, T, neurons]
            added = torch.einsum("btd,bt->d", tensor, real)
            sums[site] = sums[site] + added if site in sums else added
            counts[site] = counts.get(site, 0.0) + float(real.sum())
    return {site: total / counts[site] for site, total in sums.items()}


def check_replacement(replacement: str) -> None:
    """Raises where neurons cannot be replaced so."""
    if replacement not in REPLACEMENTS:
        raise SiteError(f"Neurons cannot be replaced by {replacement!r}; choose {listing(REPLACEMENTS)}.")


def sweep_neurons(
    found: Measured,
    site: Site,
    units: Sequence[int],
    replacement: str = "zero",
    *,
    gone: Gone | None = None,
    means: Mapping[Site, Tensor] | None = None,
    words: GoalWords | None = None,
    tokens: int = TOKENS,
    whole: bool = False,
    advance: Callable[[int], None] | None = None,
) -> Losses:
    """Replaces each of a site's `units` in turn by zero, or by its mean over the corpus (`means`), on all batches.

    Those in `gone` are replaced in every pass; answers are compared with those of the model as it is. With
    `words`, they are told apart by the classes of these. As many copies of a batch as fit in `tokens` run together.
    With `whole` every pass is run from the first layer.
    """
    check_replacement(replacement)
    _check_units(found.model, site, units)
    gone = gone or {}
    if means is None and replacement == "mean":
        means = site_means(found, list(dict.fromkeys([site, *gone])))
    start = None if whole else _start(found.model, site)
    tally = _Tally(found, len(units), words)
    for step in range(found.steps()):
        batch = found.batch(step)
        through = found.passing(sites=() if start is None else (start,))
        tally.answered(step, found.task.logits(through, batch), batch["goals"])
        assert through.last is not None
        stream = None if start is None else through.last[start]
        below = {place: gone[place] for place in gone if start is not None and _below(place, start)}
        if below and start is not None:
            stream = _stream(found, batch, start, below, replacement, means)
        for part in _parts(units, found, batch, tokens):
            copies = {name: tensor.repeat(len(part), *[1] * (tensor.dim() - 1)) for name, tensor in batch.items()}
            edits = _edits(found.model, site, [units[place] for place in part], len(batch["input_ids"]), replacement,
                           gone, means, start)  # fmt: skip
            begun = None if stream is None or start is None else {start: stream.repeat(len(part), 1, 1)}
            tally.add(part, found.task.logits(found.passing(edits, start=begun), copies))
        if advance is not None:
            advance(1)
    return tally.sums()


def replaced(
    site: Site, units: Sequence[int], replacement: str, means: Mapping[Site, Tensor] | None, model: Model
) -> list[Edit]:
    """The edits that replace some neurons of a site in all rows of a pass."""
    return _edits(model, site, [], 1, replacement, {site: units}, means, None)


def _edits(
    model: Model,
    site: Site,
    units: Sequence[int],
    rows: int,
    replacement: str,
    gone: Gone,
    means: Mapping[Site, Tensor] | None,
    start: Site | None,
) -> list[Edit]:
    """The edits of copies of a batch: copy k has its own unit multiplied by 0, and a mean added; all have `gone`."""
    parameter = next(model.hf.parameters())
    edits: list[Edit] = []
    places: list[Site] = [*gone, *([site] if units and site not in gone else [])]
    for place in places:
        if start is not None and _below(place, start):
            continue  # the stream that the pass starts with has it already
        copies = units if place == site and units else [None]
        gate = torch.ones(len(copies), site_width(model, place), dtype=parameter.dtype, device=parameter.device)
        gate[:, list(gone.get(place, ()))] = 0.0
        for copy, unit in enumerate(copies):
            if unit is not None:
                gate[copy, unit] = 0.0
        repeats = rows if len(copies) > 1 or (place == site and units) else 1
        edits.append(Edit.gate(place, _shaped(model, place, gate.repeat_interleave(repeats, dim=0))))
        if replacement == "mean":
            assert means is not None
            instead = (1 - gate) * means[place].to(gate)
            edits.append(Edit.add(place, _shaped(model, place, instead.repeat_interleave(repeats, dim=0))))
    return edits


def _shaped(model: Model, site: Site, values: Tensor) -> Tensor:
    """Numbers of neurons [n, neurons] as they fit the site's tensor: [n, 1, neurons] or [n, heads, 1, width]."""
    size = model.size(site)
    return values.view(len(values), size[0], 1, size[1]) if len(size) == 2 else values[:, None]


def _stream(
    found: Measured,
    batch: Mapping[str, Tensor],
    start: Site,
    gone: Gone,
    replacement: str,
    means: Mapping[Site, Tensor] | None,
) -> Tensor:
    """The stream at the layer where passes start, without neurons that stand below it."""
    edits = [edit for site, units in gone.items() for edit in replaced(site, units, replacement, means, found.model)]
    through = found.passing(edits, sites=(start,))
    found.task.logits(through, batch)
    assert through.last is not None
    return through.last[start]


def _below(site: Site, start: Site) -> bool:
    """Whether the stream at `start` already has what a site gives; starts are in the encoder, or the only stack."""
    if site.stack != start.stack:
        return False  # the decoder and its cross attention come later
    return site.kind == "embed" or (isinstance(site.layer, int) and site.layer < int(start.layer or 0))


def _start(model: Model, site: Site) -> Site | None:
    """The stream with which passes for a site can start; None where they run whole."""
    if site.stack not in (None, "encoder") or not isinstance(site.layer, int) or site.layer < 1:
        return None
    own = Site("resid", site.layer, site.stack)
    return own if own in model.sites and not model.cannot_start((own,)) else None


def _check_units(model: Model, site: Site, units: Sequence[int]) -> None:
    width = site_width(model, site)
    wrong = [unit for unit in units if not 0 <= unit < width]
    if wrong or not len(units):
        asked = f"neuron {wrong[0]}" if wrong else "no neuron"
        raise SiteError(f"{site} has neurons 0 to {width - 1}; {asked} was asked for.")


def _parts(units: Sequence[int], found: Measured, batch: Mapping[str, Tensor], tokens: int) -> Iterator[list[int]]:
    """Places of units that are replaced in one pass, not more than fit."""
    rows, width = batch["input_ids"].shape
    scores = batch["goals"].numel() * found.examples.classes
    most = max(1, min(tokens // (rows * width), SCORES // max(1, scores)))
    for begin in range(0, len(units), most):
        yield list(range(begin, min(begin + most, len(units))))


class _Tally:
    """Sums what answers lose by the class of the goal and by document group, as batches come."""

    def __init__(self, found: Measured, units: int, words: GoalWords | None) -> None:
        self._found, self._words, self._classes = found, words, goal_classes(found, words)
        shape = (units, len(self._classes), found.group_count)
        self._sums = {name: np.zeros(shape) for name in ("drops", "losses", "flips")}
        self._counts = np.zeros(shape[1:])

    def answered(self, step: int, logits: Tensor, goals: Tensor) -> None:
        """The answers of the model as it is, for a batch."""
        flat = goals.flatten()
        told = None if self._words is None else self._words.codes(step).flatten().to(flat)
        self._real = flat != IGNORED if told is None else (flat != IGNORED) & (told >= 0)
        self._goals = flat[self._real]
        logs = torch.log_softmax(logits.flatten(0, -2).float(), dim=-1)[self._real]
        self._answers = logs.argmax(dim=-1)
        self._plain = logs.gather(1, self._answers[:, None])[:, 0].double()
        self._right = logs.gather(1, self._goals[:, None])[:, 0].double()
        owners = self._found.groups[self._found.owners(step).numpy()]
        each = flat.numel() // len(owners)
        groups = np.repeat(owners, each)[self._real.cpu().numpy()]
        codes = self._goals if told is None else told[self._real]
        codes = codes.cpu().numpy() if len(self._classes) > 1 else np.zeros(len(groups), dtype=np.int64)
        self._place = codes, groups
        np.add.at(self._counts, self._place, 1)

    def add(self, units: Sequence[int], logits: Tensor) -> None:
        """The logits of copies of the batch, without one of the units each."""
        logs = torch.log_softmax(logits.flatten(0, -2).float(), dim=-1).view(len(units), len(self._real), -1)
        logs = logs[:, self._real]
        shape = (len(units), len(self._goals))
        answers = self._answers.repeat(len(units))[:, None]
        now = logs.flatten(0, 1).gather(1, answers)[:, 0].view(*shape).double()
        right = logs.flatten(0, 1).gather(1, self._goals.repeat(len(units))[:, None])[:, 0].view(*shape).double()
        parts = {
            "drops": 1 - (now - self._plain).exp(),
            "losses": self._right - right,
            "flips": (logs.argmax(dim=-1) != self._answers).double(),
        }
        for name, part in parts.items():
            for unit, row in zip(units, part.cpu().numpy(), strict=True):
                np.add.at(self._sums[name][unit], self._place, row)

    def sums(self) -> Losses:
        """All sums."""
        return Losses(self._sums["drops"], self._sums["losses"], self._sums["flips"], self._counts, self._classes)
