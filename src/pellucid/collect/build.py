"""Building a store: the shards of a plan, written by any number of writers into one folder."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pellucid.collect.collector import Patterns, Setting
from pellucid.collect.encode import Encoder, Reading
from pellucid.collect.engines import engine_of
from pellucid.collect.found import facts_to_json
from pellucid.collect.job import Job, make_job
from pellucid.collect.keep import DTYPES, SHARDS, Keep
from pellucid.collect.plan import Plan, make_plan, notes, read_shards
from pellucid.collect.progress import Progress, readable_bytes
from pellucid.collect.runner import States
from pellucid.collect.state import FORMAT, write_whole
from pellucid.collect.store import ABOUT, PLAN, Store
from pellucid.collect.sweep import threads_for, using_threads
from pellucid.errors import SweepError
from pellucid.model import Model
from pellucid.results import versions

if TYPE_CHECKING:
    from pellucid.corpus import Corpus

_ABANDONED = 3600  # seconds after which nobody can still be writing half a file


def build_store(
    models: Model | Sequence[Model],
    corpus: Corpus,
    folder: str | Path,
    sites: Patterns = "resid.*",
    *,
    dtype: str = "float16",
    part: tuple[int, int] = (0, 1),
    engine: str = "inline",
    workers: int | None = None,
    threads: int | None = None,
    token_budget: int | None = None,
    shard_tokens: int = 8192,
    pooling: str = "mean",
    special: bool = False,
    long: str = "refuse",
    overlap: int | None = None,
    side: str = "source",
    progress: bool | None = None,
) -> Store:
    """Runs a model over a corpus and keeps the rows of `sites` on disk; the options are those of `sweep`.

    A build that was stopped goes on from the shards that are there. Several may write into one folder: `part=(i, n)`
    makes every n-th shard from i on. One with other settings is refused.
    """
    opened = [models] if isinstance(models, Model) else list(models)
    place = Path(folder)
    if not 0 <= part[0] < part[1]:
        raise SweepError(f"part={part} means nothing: give (i, n) with i from 0 to n − 1.")
    patterns = (sites,) if isinstance(sites, str) else tuple(sites)
    keep = Keep(patterns, str(place.absolute()), dtype)
    reading = Reading(pooling, special, long, overlap, side)
    job = make_job(opened, {"keep": keep}, reading, token_budget=token_budget)
    chosen = engine_of(engine, workers, opened[0].device)
    setting = Setting(job.models, pooling, torch.device("cpu"))
    widths = {key: setting.width(key) for key in setting.keys(patterns)}
    about: dict[str, Any] = {
        "format": FORMAT,
        "kind": "store",
        "models": [facts_to_json(each) for each in job.models],
        "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint, "unit": corpus.unit},
        "reading": asdict(reading),
        "dtype": dtype,
        "widths": widths,
        "device": opened[0].device.type,
        "threads": _threads(place, threads) or threads_for(threads, chosen),
        "budget": job.budget,
        "shard_tokens": shard_tokens,
        "versions": versions(),
    }
    with Progress(progress) as shown:
        _refuse_other(place, about)
        shown.begin(f"Reading {corpus.name}", None)
        plan = _plan(place, opened, job, corpus, shard_tokens)
        _claim(place, {**about, "rules": corpus.rules}, plan)
        store = Store.open(place)
        missing = [index for index in store.missing if index % part[1] == part[0]]
        size = sum(shard.rows for shard in plan.shards) * sum(widths.values()) * DTYPES[dtype].itemsize
        shown.say(f"{plan.counts.words:,} words in {len(plan.shards)} shards, {len(missing)} to do; about "
                  f"{readable_bytes(size)} on disk in all.")  # fmt: skip
        for line in notes(plan):
            shown.say(line)
        total = sum(plan.shards[index].tokens for index in missing)
        shown.begin("Building the store", total)
        with using_threads(about["threads"]), tempfile.TemporaryDirectory(prefix="pellucid-") as work:
            job = replace(job, threads=about["threads"])
            done = chosen.run(job, opened, read_shards(plan, corpus, missing), _Nowhere(Path(work), len(plan.shards)))
            for shard in done:
                shown.advance(shard.tokens)
    return _tidied(Store.open(place))


def _threads(place: Path, asked: int | None) -> int | None:
    """The threads to go on with in a store that was begun, unless others are asked for."""
    return asked or (Store.open(place).about.get("threads") if (place / ABOUT).is_file() else None)


def _tidied(store: Store) -> Store:
    """The store, without the halves of files that killed writers left; those of the last hour may be in work."""
    for half in [*store.folder.glob(".*.part"), *(store.folder / SHARDS).glob(".*.part")]:
        with suppress(FileNotFoundError):
            if time.time() - half.stat().st_mtime > _ABANDONED:
                half.unlink()
    return store


class _Nowhere:
    """Where an engine puts states that nobody needs: the shards' own files are what counts."""

    durable = False

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count

    def put(self, level: int, index: int, states: States) -> None:
        """Forgets a state."""

    def put_file(self, index: int) -> None:
        """Forgets a state that a worker wrote."""
        (self.folder / f"0-{index}.safetensors").unlink(missing_ok=True)


def _plan(place: Path, models: Sequence[Model], job: Job, corpus: Corpus, shard_tokens: int) -> Plan:
    if (place / PLAN).is_file() and (place / ABOUT).is_file() and corpus.fingerprint is not None:
        return Plan.read(place / PLAN)
    encoders = [Encoder(model, job.reading) for model in models]
    return make_plan(encoders, corpus, budget=job.budget, shard_tokens=shard_tokens)


_NAMES = {"widths": "sites", "dtype": "precision", "budget": "token budget", "shard_tokens": "shard size"}
"""Settings whose names in the manifest say little."""


def _refuse_other(place: Path, about: Mapping[str, Any]) -> None:
    """Raises where a folder holds something else, or a store with other settings."""
    if not (place / ABOUT).is_file():
        if place.exists() and (not place.is_dir() or any(not _ours(item) for item in place.iterdir())):
            raise SweepError(f"{str(place)!r} is not empty and holds no store; choose another folder.")
        if not place.absolute().parent.is_dir():
            raise SweepError(f"There is no folder {str(place.absolute().parent)!r} to write {place.name!r} in.")
        return
    before = Store.open(place).about
    mine: dict[str, Any] = json.loads(json.dumps(about))
    if about["corpus"]["fingerprint"] is None:
        raise SweepError(
            f"The corpus {about['corpus']['name']!r} has no fingerprint, so the store in {str(place)!r} cannot be gone "
            "on with; choose another folder."
        )
    other = [name for name in mine if _plain(name, mine) != _plain(name, before)]
    if other:
        told = ", ".join(_NAMES.get(name, name) for name in other)
        raise SweepError(
            f"{str(place)!r} holds a store with another setting ({told}); use the same, or another folder."
        )


def _ours(item: Path) -> bool:
    """Whether another writer, or one that was killed, can have put this beside a description still to come."""
    return item.name == SHARDS or (item.name.lstrip(".").startswith(f"{ABOUT}.") and item.suffix == ".part")


def _plain(name: str, about: Mapping[str, Any]) -> Any:
    """A setting without the name that a model or a corpus was opened by."""
    value = about.get(name)
    if name == "models" and value is not None:
        return [{**each, "name": ""} for each in value]
    return value["fingerprint"] if name == "corpus" and value is not None else value


def _claim(place: Path, about: Mapping[str, Any], plan: Plan) -> None:
    """Makes the store's folder and its description, unless another writer was first; then the two must agree."""
    if not (place / ABOUT).is_file():
        _describe(place, about, plan)
    if not (place / PLAN).is_file():
        write_whole(place / PLAN, plan.to_json().encode())  # after the description: only its own plan may stand there


def _describe(place: Path, about: Mapping[str, Any], plan: Plan) -> None:
    whole = {
        **about,
        "shards": len(plan.shards),
        "groups": plan.groups,
        "counts": asdict(plan.counts),
        "frequent": plan.frequent,
        "notes": notes(plan),
        "labels": list(plan.labels),
        "facts": list(plan.facts),
    }
    try:
        (place / SHARDS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SweepError(f"The folder {str(place)!r} cannot be made ({error.strerror}).") from None
    draft = place / f".{ABOUT}.{os.getpid()}.part"
    write_whole(draft, (json.dumps(whole, sort_keys=True, ensure_ascii=False) + "\n").encode())
    try:
        os.link(draft, place / ABOUT)  # fails where the name is taken: one writer wins
    except FileExistsError:
        _refuse_other(place, about)
    except OSError:  # a file system without links
        draft.replace(place / ABOUT)
    finally:
        draft.unlink(missing_ok=True)
