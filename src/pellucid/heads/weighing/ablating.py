"""The all-heads sweep: every head of every layer replaced in turn, on a corpus, many to a pass.

What stands below a head's layer is computed once for all heads: passes start with the text's own stream at that layer,
where the model allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pellucid.errors import ModelError, SiteError, listing
from pellucid.heads.naming import head_name, head_sites
from pellucid.heads.weighing.measuring import Measured, rows_of
from pellucid.heads.weighing.scoring import Sums
from pellucid.model import Edit
from pellucid.model.sites import Site
from pellucid.train.tasks.answering import Questions, best_spans, chosen_answers
from pellucid.train.tasks.scores import words_f1

if TYPE_CHECKING:
    from pellucid.model import Model

Array = np.ndarray[Any, Any]
REPLACEMENTS = ("zero", "mean")
TOKENS = 4096
"""Tokens of a pass: as many heads are replaced together as copies of a batch fit."""
SCORES = 1 << 25
"""Logits of a pass, which a large vocabulary fills before the tokens do."""


@dataclass(frozen=True, eq=False)
class Ablated:
    """What the sweep summed: of the model as it is (`plain`, no leading axis), and of each replacement of each head.

    `ablated` has the axes [replacement, head, group]. `notes` says where passes could not start at a layer.
    """

    heads: tuple[str, ...]
    replacements: tuple[str, ...]
    plain: Sums
    ablated: Sums
    notes: tuple[str, ...]
    passes: int


@dataclass(frozen=True)
class Job:
    """A head to be replaced: its number among all, its site, its number there, and what comes in its place."""

    number: int
    site: Site
    head: int
    replacement: str


def attention_heads(model: Model) -> tuple[Site, ...]:
    """The sites that have heads; a model without any, or none left, is refused in a sentence."""
    sites = tuple(site for site in head_sites(model) if model.size(site)[0] > 0)
    if not sites:
        raise ModelError(
            f"{model.name!r} has no attention heads left, so none can be weighed; open the model unpruned."
        )
    return sites


def sweep_heads(
    found: Measured,
    replacements: Sequence[str] = REPLACEMENTS,
    *,
    tokens: int = TOKENS,
    whole: bool = False,
    advance: Callable[[int], None] | None = None,
) -> Ablated:
    """Replaces every head in turn by zero, or by its mean over all real tokens of the corpus (taken in a pass before).

    As many copies of a batch as fit in `tokens` are run together, each with another head replaced. With `whole` every
    pass is run from the first layer, as it is where a model cannot start later. `advance` is told of finished batches.
    """
    unknown = [name for name in replacements if name not in REPLACEMENTS]
    if unknown or not replacements:
        asked = repr(unknown[0]) if unknown else "nothing"
        raise SiteError(f"Heads cannot be replaced by {asked}; choose {listing(REPLACEMENTS)}.")
    sites = attention_heads(found.model)
    means = corpus_means(found, sites) if "mean" in replacements else {}
    heads = tuple(head_name(site, head) for site in sites for head in range(found.model.size(site)[0]))
    jobs = _jobs(found.model, sites, replacements)
    starting = _Starting(found.model, sites, whole=whole)
    tally, plain = _Tally(found, len(jobs)), _Tally(found, 1)
    passes = 0
    for step in range(found.steps()):
        batch = found.batch(step)
        through = found.passing(sites=starting.streams)
        plain.add([0], step, found.task.logits(through, batch), batch["goals"])
        assert through.last is not None
        streams = {site: through.last[site] for site in starting.streams}
        passes += 1
        for part in _parts(jobs, found, batch, tokens):
            copies = {name: tensor.repeat(len(part), *[1] * (tensor.dim() - 1)) for name, tensor in batch.items()}
            start = {site: streams[site].repeat(len(part), 1, 1) for site in starting.of(part[0].site)}
            edits = replacing(found.model, part, batch["input_ids"].shape[0], means)
            logits = found.task.logits(found.passing(edits, start=start or None), copies)
            tally.add([job.number for job in part], step, logits, copies["goals"])
            passes += 1
        if advance is not None:
            advance(1)
    shape = (len(replacements), len(heads))
    return Ablated(heads, tuple(replacements), plain.sums(()), tally.sums(shape), starting.notes, passes)


def corpus_means(found: Measured, sites: Sequence[Site]) -> dict[Site, Tensor]:
    """The mean output [heads, width] of every head over all real tokens of the corpus, special ones included."""
    sums: dict[Site, Tensor] = {}
    counts: dict[Site, float] = {}
    for step in range(found.steps()):
        through = found.passing(sites=sites)
        found.task.logits(through, found.batch(step))
        assert through.last is not None and through.last.batch is not None
        for site in sites:
            real = real_tokens(through.last.batch, site).to(found.model.device)
            added = torch.einsum("bhtd,bt->hd", through.last[site].double(), real.double())
            sums[site] = sums[site] + added if site in sums else added
            counts[site] = counts.get(site, 0.0) + float(real.sum())
    return {site: total / counts[site] for site, total in sums.items()}


def real_tokens(batch: Any, site: Site) -> Tensor:
    """Which positions [B, T] of a heads site are real: the decoder's for its own and for cross attention."""
    mask = batch.mask if site.stack in (None, "encoder") or batch.target_mask is None else batch.target_mask
    return mask.bool()


def replacing(model: Model, part: Sequence[Job], rows: int, means: dict[Site, Tensor]) -> list[Edit]:
    """The edits of copies of a batch, all at one site: copy k has its head multiplied by 0, and a mean added."""
    site = part[0].site
    count, width = model.size(site)
    parameter = next(model.hf.parameters())
    gate = torch.ones(len(part), count, 1, 1, dtype=parameter.dtype, device=parameter.device)
    instead = torch.zeros(len(part), count, 1, width, dtype=parameter.dtype, device=parameter.device)
    for copy, job in enumerate(part):
        assert job.site == site
        gate[copy, job.head] = 0.0
        if job.replacement == "mean":
            instead[copy, job.head, 0] = means[site][job.head].to(instead)
    edits = [Edit.gate(site, gate.repeat_interleave(rows, dim=0))]
    if any(job.replacement == "mean" for job in part):
        edits.append(Edit.add(site, instead.repeat_interleave(rows, dim=0)))
    return edits


def heads_replaced(found: Measured, replacements: Sequence[str]) -> Iterator[tuple[Job, Edit]]:
    """Every head with the edit that replaces it in all rows of a pass."""
    sites = attention_heads(found.model)
    means = corpus_means(found, sites) if "mean" in replacements else {}
    for job in _jobs(found.model, sites, replacements):
        zero = job.replacement == "zero"
        value = None if zero else means[job.site][job.head][None].to(next(found.model.hf.parameters()))
        yield job, Edit.zero(job.site, heads=job.head) if zero else Edit.mean(job.site, value, heads=job.head)


def _jobs(model: Model, sites: Sequence[Site], replacements: Sequence[str]) -> list[Job]:
    """Every head with every replacement, those of one site together; numbered by replacement, then by head."""
    sizes = [model.size(site)[0] for site in sites]
    first = np.cumsum([0, *sizes]).tolist()
    return [
        Job(number * first[-1] + first[place] + head, site, head, replacement)
        for place, site in enumerate(sites)
        for head in range(sizes[place])
        for number, replacement in enumerate(replacements)
    ]


def _parts(jobs: Sequence[Job], found: Measured, batch: dict[str, Tensor], tokens: int) -> Iterator[list[Job]]:
    """Jobs that are run together: of one site, and not more than fit."""
    rows, width = batch["input_ids"].shape
    longest = max(width, batch["goals"].shape[-1] if batch["goals"].dim() == 2 else 1)
    scores = batch["goals"].numel() * found.examples.classes
    most = max(1, min(tokens // (rows * longest), SCORES // max(1, scores)))
    site, part = None, list[Job]()
    for job in jobs:
        if part and (job.site != site or len(part) == most):
            yield part
            part = []
        site = job.site
        part.append(job)
    yield part


class _Starting:
    """At which streams passes start for each site of heads, and why they do not where they cannot."""

    def __init__(self, model: Model, sites: Sequence[Site], *, whole: bool) -> None:
        self._of: dict[Site, tuple[Site, ...]] = {}
        told: dict[str, None] = {}
        for site in sites:
            start = () if whole else _streams(model, site)
            why = model.cannot_start(start) if start else ""
            if why:
                told[f"passes for {site} and others run whole: {why}"] = None
            self._of[site] = () if why else start
        self.notes = tuple(told)[:1]
        self.streams = tuple(dict.fromkeys(stream for start in self._of.values() for stream in start))

    def of(self, site: Site) -> tuple[Site, ...]:
        """The streams that passes with a head of this site replaced start with; none where they are whole."""
        return self._of[site]


def _streams(model: Model, site: Site) -> tuple[Site, ...]:
    """The stream that enters a head's block; for the decoder's, also what the encoder ends with."""
    layer = int(site.layer or 0)
    if site.stack in (None, "encoder"):
        own = Site("resid", layer, site.stack)
        return (own,) if layer > 0 and own in model.sites else ()
    last = max((one for one in model.sites if one.kind == "resid" and one.stack == "encoder"), key=_layer, default=None)
    own = Site("resid", layer, "decoder")
    found = [] if last is None else [last]
    return (*found, *([own] if layer > 0 and own in model.sites else ()))


def _layer(site: Site) -> int:
    return int(site.layer or 0)


class _Tally:
    """Sums losses and points of some jobs by document group, as batches come."""

    def __init__(self, found: Measured, jobs: int) -> None:
        self._found, groups = found, found.group_count
        self._losses, self._points = np.zeros((jobs, groups)), np.zeros((jobs, groups))
        self._goals = np.zeros(groups)
        self._counted: set[int] = set()
        questions = found.examples if isinstance(found.examples, Questions) else None
        self._questions = questions
        rows = 0 if questions is None else len(questions.asked)
        self._spans = np.zeros((jobs, rows, 4))

    def add(self, jobs: Sequence[int], step: int, logits: Tensor, goals: Tensor) -> None:
        """The logits of copies of a batch, one job each, beside the goals of all copies."""
        groups = self._found.groups[self._found.owners(step).numpy()]
        rows = rows_of(logits, goals)
        losses, hits, count = (part.view(len(jobs), -1).cpu().numpy() for part in (rows.losses, rows.hits, rows.goals))
        for place, job in enumerate(jobs):
            np.add.at(self._losses[job], groups, losses[place])
            np.add.at(self._points[job], groups, hits[place])
        if step not in self._counted:
            self._counted.add(step)
            np.add.at(self._goals, groups, count[0])
        if self._questions is not None:
            row = self._questions.held.order.rows(0, step)
            inside = self._questions.inside[row].repeat(len(jobs), 1).to(logits.device)
            spans = best_spans(logits, inside).view(len(jobs), -1, 4).cpu().numpy()
            self._spans[np.array(jobs)[:, None], row.numpy()[None]] = spans

    def sums(self, shape: tuple[int, ...]) -> Sums:
        """The sums, jobs in a shape."""
        points, out_of = self._points, self._goals
        if self._questions is not None:
            points, out_of = self._answers(self._questions)
        groups = len(out_of)
        return Sums(self._losses.reshape(*shape, groups), self._goals, points.reshape(*shape, groups), out_of)

    def _answers(self, questions: Questions) -> tuple[Array, Array]:
        """F1 of the answers [jobs, groups], summed over questions, and how many questions each group has."""
        groups, right = self._found.groups, [question.answer for question in questions.questions]
        points = np.zeros_like(self._points)
        for job, spans in enumerate(self._spans):
            answers = chosen_answers(questions, torch.arange(len(spans)), torch.from_numpy(spans))
            np.add.at(points[job], groups, [words_f1(*pair) for pair in zip(answers, right, strict=True)])
        return points, np.bincount(groups, minlength=points.shape[1]).astype(np.float64)
