"""The sweep: one pass of one or several models over a corpus, for any number of collectors; a kill costs nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pellucid.collect.collector import Collector, check_labels
from pellucid.collect.encode import Encoder, Reading, looked_at
from pellucid.collect.engines import Engine, Inline, Tasks, default_workers, engine_of, team_of
from pellucid.collect.found import (
    ABOUT,
    PILOTS,
    SENTENCES,
    STATES,
    Found,
    KeptSentences,
    facts_to_json,
    found_of,
    read_about,
)
from pellucid.collect.job import Job, make_job, state_bytes
from pellucid.collect.lock import locked
from pellucid.collect.plan import Ahead, Plan, make_plan, notes, read_shards
from pellucid.collect.progress import Progress, readable_bytes
from pellucid.collect.runner import Runner
from pellucid.collect.state import FORMAT, State, load_states, save_states, write_whole
from pellucid.collect.tree import Tree
from pellucid.errors import SweepError
from pellucid.model import Model
from pellucid.uncertainty import GROUPS

if TYPE_CHECKING:
    from collections.abc import Generator

    from pellucid.collect.plan import Shard
    from pellucid.corpus import Corpus, Sentence

PLAN, NODES = "plan.json", "nodes"
_MERGING = 3e-9  # seconds for every byte of a state
LARGE = 1 << 28
"""Bytes of states from which a shard may hold several document groups: to merge one state for each costs too much."""


def sweep(
    models: Model | Sequence[Model],
    corpus: Corpus,
    collectors: Collector | Iterable[Collector],
    *,
    folder: str | Path | None = None,
    engine: str = "inline",
    workers: int | None = None,
    threads: int | None = None,
    token_budget: int | None = None,
    shard_tokens: int | None = None,
    pooling: str = "mean",
    special: bool = False,
    long: str = "refuse",
    overlap: int | None = None,
    side: str = "source",
    memory_limit: int | None = None,
    progress: bool | None = None,
) -> Found:
    """One pass over a corpus that answers many questions: every collector's statistics, of every model.

    Words are rows: `pooling` (mean, first, last) says how they come from sub-words, `all` keeps every sub-word; with
    sentence-mean, -max, -first ([CLS] where there is one) or -last, whole sentences are. `long` says what happens to
    sentences over the limit: refuse, truncate, or window with `overlap` tokens of context. `engine` is inline,
    processes, ray or ray://HOST:PORT. With a `folder` the sweep is saved there and goes on from where it was stopped;
    the result has the same bytes. `token_budget` is the most padded tokens of a batch. Statistics that together take
    more than `memory_limit` bytes stay on disk (in the `folder`, else in a temporary one for as long as the result is
    held) and are read array by array; the numbers are the same.
    """
    opened = [models] if isinstance(models, Model) else list(models)
    wanted = [collectors] if isinstance(collectors, Collector) else list(collectors)
    named = {f"{number}-{collector.kind}": collector for number, collector in enumerate(wanted)}
    job = make_job(opened, named, Reading(pooling, special, long, overlap, side), token_budget=token_budget)
    size = state_bytes(job)
    on_disk = memory_limit is not None and size > memory_limit
    shard_tokens = shard_tokens or default_shard(job, opened)
    place = None if folder is None else Path(folder)
    chosen = engine_of(engine, workers, opened[0].device)
    about = description(job, corpus, opened[0].device.type, shard_tokens)
    with ExitStack() as stack:
        shown = stack.enter_context(Progress(progress))
        if place is not None:
            stack.enter_context(locked(place))
            threads = _settle(place, about, corpus, threads)
            if (place / STATES).is_file():
                shown.say(f"{place}: this sweep is finished; its result is read from there.")
                _clear(place)
                return Found.load(place) if memory_limit is None else Found.load(place, memory_limit=memory_limit)
        about["threads"] = threads = threads_for(threads, chosen)
        stack.enter_context(using_threads(threads))
        ahead = None
        if isinstance(chosen, Inline):
            chosen.ahead = ahead = Ahead(lasting=place is not None)
        plan = _plan(place, opened, job, corpus, about, shard_tokens, ahead, shown)
        tree = Tree(named, len(plan.shards), None if place is None else place / NODES, on_disk=on_disk)
        stack.callback(_tidy, tree, place)
        missing = tree.missing()
        tasks = read_shards(plan, corpus, missing, ahead)
        pilots, tasks = _pilots(place, Runner(job, opened, ahead=ahead), plan, tasks)
        job = replace(job, threads=threads, pilots=pilots)
        if on_disk:
            job = replace(job, collectors={name: each.on_disk(tree.folder) for name, each in named.items()})
        done = sum(shard.tokens for shard in plan.shards) - sum(plan.shards[index].tokens for index in missing)
        _announce(shown, plan, job, f"{engine}, {_count(team_of(chosen), 'worker')}", done)
        shown.say(_room(size, len(plan.shards), on_disk))
        shown.begin("Sweeping", sum(shard.tokens for shard in plan.shards), done)
        for shard in chosen.run(job, opened, tasks, tree):
            shown.advance(shard.tokens)
        return _finish(place, about, plan, tree, job, corpus)


def default_shard(job: Job, models: Sequence[Model]) -> int:
    """Tokens of a shard: enough that merging its states takes about a hundredth of the time of gathering them."""
    cpu = models[0].device.type == "cpu"
    working = (part for model in models for part in model.hf.modules() if not isinstance(part, nn.Embedding))
    weights = sum(weight.numel() for part in working for weight in part.parameters(recurse=False))
    token = 2 * max(1, weights) / (2e11 if cpu else 1e13)  # seconds, roughly
    return max(4 * job.budget, min(1 << 20, int(100 * _MERGING * state_bytes(job) / token)))


def planned(
    models: Sequence[Model],
    job: Job,
    corpus: Corpus,
    shard_tokens: int,
    *,
    mixed: bool | None = None,
    ahead: Ahead | None = None,
) -> Plan:
    """The plan of a job over a corpus, which is read once; a label that it lacks is refused.

    `mixed` lets a shard hold documents of several groups (default: where states are large, so that few are made).
    What is read of the first sentences goes into `ahead`.
    """
    encoders = [Encoder(model, job.reading) for model in models]
    groups = GROUPS if any(collector.grouped for collector in job.collectors.values()) else 1
    mixed = state_bytes(job) > LARGE if mixed is None else mixed
    sizes: dict[str, Any] = {"budget": job.budget, "shard_tokens": shard_tokens, "groups": groups, "mixed": mixed}
    plan = make_plan(encoders, corpus, **sizes, ahead=ahead)
    check_labels(job.collectors.values(), plan.labels)
    return plan


def description(job: Job, corpus: Corpus, device: str, shard_tokens: int) -> dict[str, Any]:
    """What names a sweep: two with the same name give the same bytes."""
    from pellucid.results import versions

    return {
        "format": FORMAT,
        "kind": "sweep",
        "models": [facts_to_json(model) for model in job.models],
        "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint, "unit": corpus.unit},
        "rules": corpus.rules,
        "collectors": {name: collector.describe() for name, collector in job.collectors.items()},
        "reading": asdict(job.reading),
        "device": device,
        "budget": job.budget,
        "shard_tokens": shard_tokens,
        "versions": versions(),
    }


_NAMES = {
    "models": "another model (or the same with other weights)",
    "corpus": "another corpus",
    "collectors": "other collectors",
    "reading": "another pooling, side or treatment of long sentences",
    "device": "another kind of device",
    "budget": "another token budget",
    "shard_tokens": "another shard size",
    "versions": "other versions of Pellucid, torch, transformers or numpy",
    "format": "another format",
    "kind": "something else than a sweep",
    "threads": "another number of threads",
}


def _settle(place: Path, about: dict[str, Any], corpus: Corpus, threads: int | None) -> int | None:
    """Checks that a folder is free or holds this same sweep; the number of threads to go on with."""
    halves = [half for name in (ABOUT, PLAN, PILOTS, STATES) for half in place.glob(f".{name}.*.part")]
    if not (place / ABOUT).is_file():
        if any(item.name != ".lock" and item not in halves for item in place.iterdir()):
            raise SweepError(f"{str(place)!r} is not empty and holds no sweep; choose another folder.")
        _remove(halves)
        return threads
    if corpus.fingerprint is None:
        raise SweepError(
            f"The corpus {corpus.name!r} has no fingerprint (a stream without a revision, or a filter without a name), "
            f"so the sweep in {str(place)!r} cannot be gone on with; choose another folder."
        )
    before = read_about(place)
    mine = json.loads(json.dumps({**about, "threads": threads or before.get("threads")}))
    other = [name for name in _NAMES if mine.get(name) != before.get(name) and not _renamed(name, mine, before)]
    if other:
        raise SweepError(
            f"{str(place)!r} holds a sweep with {', '.join(_NAMES[name] for name in other)}; give another folder, or "
            "delete that one."
        )
    _remove(halves)
    return before.get("threads")


def _remove(files: Iterable[Path]) -> None:
    """Removes what a kill left of files that were being written."""
    for file in files:
        file.unlink(missing_ok=True)


def _renamed(name: str, mine: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether models or a corpus differ in the names they were opened by only, not in their fingerprints."""
    if name == "models":
        return [{**each, "name": ""} for each in mine[name]] == [{**each, "name": ""} for each in before[name]]
    return name == "corpus" and mine[name]["fingerprint"] == before[name]["fingerprint"]


def _plan(
    place: Path | None,
    models: Sequence[Model],
    job: Job,
    corpus: Corpus,
    about: dict[str, Any],
    shard_tokens: int,
    ahead: Ahead | None,
    shown: Progress,
) -> Plan:
    """The plan, from the folder where it was saved, or made by reading the corpus once."""
    if place is not None and (place / ABOUT).is_file() and (place / PLAN).is_file():
        return Plan.read(place / PLAN)
    if corpus.fingerprint is None and place is not None:
        shown.say(f"The corpus {corpus.name!r} has no fingerprint: if this sweep is stopped it cannot be resumed.")
    shown.begin(f"Reading {corpus.name}", None)
    plan = planned(models, job, corpus, shard_tokens, ahead=ahead)
    if place is not None:
        write_whole(place / ABOUT, _json(about))  # first: a folder with anything else and no name is not ours
        write_whole(place / PLAN, plan.to_json().encode())
    return plan


def _pilots(place: Path | None, runner: Runner, plan: Plan, tasks: Tasks) -> tuple[dict[str, State], Tasks]:
    """What the pilot found, from the folder or from the plan and a batch of the first shard; and all tasks again."""
    if place is not None and (place / PILOTS).is_file():
        return load_states(place / PILOTS), tasks
    opening: list[tuple[Shard, list[Sentence]]] = []
    for shard, sentences in tasks:
        opening.append((shard, sentences))
        if shard.batches:
            break
    told = {name: each.foreseen(plan.frequent) for name, each in runner.job.collectors.items()}
    pilots = {name: state for name, state in told.items() if state is not None} | runner.pilot(*opening[-1])
    if place is not None:
        save_states(place / PILOTS, pilots)
    return pilots, _first(opening, tasks)


def _first(opening: list[tuple[Shard, list[Sentence]]], tasks: Tasks) -> Tasks:
    """Some tasks, each held no longer than until it is handed out, and then the others."""
    while opening:
        yield opening.pop(0)
    yield from tasks


def _announce(shown: Progress, plan: Plan, job: Job, team: str, done: int) -> None:
    """The plan in a few lines."""
    counts = plan.counts
    shown.say(
        f"{counts.sentences:,} sentences in {counts.documents:,} documents, {counts.words:,} words, "
        f"{sum(counts.tokens):,} tokens; {len(plan.shards)} shards, one pass of "
        f"{_count(len(job.models), 'model')} ({team}, "
        f"{_count(job.threads or 1, 'thread')} each)."
    )
    for line in notes(plan):
        shown.say(line)
    if done:
        shown.say(f"{done:,} tokens were done before; going on from there.")


def _room(size: int, shards: int, on_disk: bool) -> str:
    """What statistics of so many bytes take."""
    if on_disk:
        return (
            f"Statistics of {readable_bytes(size)} are more than may be held in memory: they stay on disk, which takes "
            f"up to {readable_bytes(disk_bytes(size))} while running."
        )
    levels = max(1, (shards - 1).bit_length())
    memory, disk = readable_bytes(3 * size), readable_bytes(levels * size)
    return f"Memory for statistics up to {memory} per worker; disk while running up to {disk}."


def disk_bytes(size: int) -> int:
    """Disk that a sweep takes while it runs, whose finished states take `size` bytes and stay on disk.

    What waits to be merged takes about as much as the finished states, and so do those being written; the third is for
    shards under way.
    """
    return 3 * size


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _finish(place: Path | None, about: dict[str, Any], plan: Plan, tree: Tree, job: Job, corpus: Corpus) -> Found:
    """Adds the sentences that tables point to, saves the whole, and gives it back."""
    states = tree.root()
    numbers = {number for name, collector in job.collectors.items() for number in collector.sentences(states[name])}
    whole = {**about, **told_by(plan)}
    how = job.reading.side, job.reading.pooling
    kept = KeptSentences.of((number, looked_at(each, *how)) for number, each in _sentences(corpus, numbers))
    if place is not None:
        write_whole(place / SENTENCES, kept.to_bytes())
        write_whole(place / ABOUT, _json(whole))
        tree.hand_over(place / STATES)
    return found_of(json.loads(_json(whole)), states, job.pilots, kept)  # in the order that a file has


def told_by(plan: Plan) -> dict[str, Any]:
    """What a finished sweep says of its corpus."""
    return {
        "groups": plan.groups,
        "counts": asdict(plan.counts),
        "frequent": plan.frequent,
        "notes": notes(plan),
        "facts": list(plan.facts),
    }


def _sentences(corpus: Corpus, numbers: set[int]) -> Iterator[tuple[int, Sentence]]:
    """The sentences of some numbers, from one reading of the corpus that ends with the last of them."""
    last = max(numbers, default=-1)
    for number, sentence in zip(range(last + 1), corpus, strict=False):
        if number in numbers:
            yield number, sentence


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _tidy(tree: Tree, place: Path | None) -> None:
    """Removes what only an unfinished sweep needs."""
    if place is None or (place / STATES).is_file():
        tree.close()
    if place is not None and (place / STATES).is_file():
        _clear(place)


def _clear(place: Path) -> None:
    """Leaves of a finished sweep what its result is read from, also where a kill had cut the tidying short."""
    shutil.rmtree(place / NODES, ignore_errors=True)
    (place / PLAN).unlink(missing_ok=True)


def threads_for(asked: int | None, engine: Engine) -> int:
    """Threads of each worker: as asked, else all of torch's for one worker, an equal share of the cores for more."""
    share = max(1, default_workers() // team_of(engine))
    return asked or (torch.get_num_threads() if isinstance(engine, Inline) else share)


@contextmanager
def using_threads(count: int) -> Generator[None]:
    """That many threads for torch, for the length of a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
