"""The job of a sweep: the models, what is read of them, and how, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pellucid.collect.collector import Collector, ModelFacts, Setting
from pellucid.collect.encode import Reading
from pellucid.collect.sentence_rows import is_whole
from pellucid.collect.state import State
from pellucid.errors import SweepError, listing
from pellucid.model import Model
from pellucid.model.sites import Site
from pellucid.uncertainty import GROUPS


@dataclass(frozen=True)
class Job:
    """All that a worker needs to run shards, in this process or another."""

    recipes: tuple[Callable[..., Model], ...]
    models: tuple[ModelFacts, ...]
    reading: Reading
    collectors: Mapping[str, Collector]
    budget: int
    threads: int | None = None
    pilots: Mapping[str, State] = field(default_factory=dict[str, State])


def facts_of(model: Model, *, side: str) -> ModelFacts:
    """What a sweep must know of a model; of an encoder–decoder, only the sites of the side that is looked at."""
    if not hasattr(model.hf, "config"):
        raise SweepError(
            f"{model.name!r} is a wrapped module, whose tokens cannot be aligned with words; a sweep takes "
            "transformers models."
        )
    sites = tuple(site for site in model.sites if _visible(model, site, side))
    sizes = {str(site): model.size(site) for site in sites}
    dtype = str(next(model.hf.parameters()).dtype).removeprefix("torch.")
    causal = model.causal or side == "target"  # a decoder sees only what stands before
    return ModelFacts(model.name, model.fingerprint, sites, sizes, causal, model.attention, dtype)


def _visible(model: Model, site: Site, side: str) -> bool:
    """Whether a site's tokens are those of the side that is looked at."""
    config: Any = model.hf.config
    if not getattr(config, "is_encoder_decoder", False):
        return True
    if site.stack is None:
        return (site.kind == "logits") == (side == "target")
    return site.stack == ("encoder" if side == "source" else "decoder")


def make_job(
    models: Sequence[Model], collectors: Mapping[str, Collector], reading: Reading, *, token_budget: int | None
) -> Job:
    """The job of some models and collectors; what cannot work together is refused here."""
    if not models or not collectors:
        raise SweepError("A sweep needs at least one model and one collector.")
    if reading.pooling == "all" and len(models) > 1:
        raise SweepError("Several models meet at words; pooling='all' keeps sub-words, which differ between them.")
    reading_whole = [each for each in collectors.values() if is_whole(reading.pooling) and each.raw]
    if reading_whole:
        raise SweepError(
            f"{type(reading_whole[0]).__name__} reads words, and pooling={reading.pooling!r} makes rows of sentences."
        )
    devices = sorted({str(model.device) for model in models})
    if len(devices) > 1:
        raise SweepError(f"The models of one sweep must be on one device; these are on {listing(devices)}.")
    budget = token_budget or (2048 if models[0].device.type == "cpu" else 16384)
    facts = tuple(facts_of(model, side=reading.side) for model in models)
    job = Job(tuple(model.recipe for model in models), facts, reading, collectors, budget)
    _check_sites(job, models)
    return job


def state_bytes(job: Job) -> int:
    """Bytes that the finished states take; collectors over their own limits raise."""
    setting = Setting(job.models, job.reading.pooling, torch.device("cpu"))
    return sum(collector.memory(setting, GROUPS) for collector in job.collectors.values())


def _check_sites(job: Job, models: Sequence[Model]) -> None:
    """Raises for sites that a model does not have, or whose tensors hold no row for every word."""
    setting = Setting(job.models, job.reading.pooling, torch.device("cpu"))
    for collector in job.collectors.values():
        for key in setting.keys(collector.rows) if collector.rows else ():
            site = key.rpartition(":")[2]
            kind = site.split(".")
            if "pattern" in kind:
                raise SweepError(
                    f"{site} holds attention weights, which are a matrix for a whole text and not a row for each word; "
                    "choose other sites, such as resid.*, heads.* or neurons.*."
                )
            if "logits" in kind and any(_per_text(model) for model in models):
                raise SweepError(
                    f"{site} has one row for a whole text and not a row for each word; choose other sites, such as "
                    "resid.*."
                )
        if collector.raw:
            setting.keys(collector.raw)


def _per_text(model: Model) -> bool:
    return type(model.hf).__name__.endswith("ForSequenceClassification")
