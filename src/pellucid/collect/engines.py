"""Engines: who runs the shards. All give the same states, whatever dies on the way, because a shard always starts from
zero and is only counted when it is finished."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from pellucid.collect.job import Job
from pellucid.collect.plan import Ahead, Shard
from pellucid.collect.runner import Runner, States
from pellucid.collect.state import save_states
from pellucid.errors import PellucidError, SweepError, listing

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from pellucid.corpus import Sentence
    from pellucid.model import Model

DEATHS = 3
"""How often a worker may die on one shard before the sweep stops and names the sentence."""
Tasks = Iterator[tuple[Shard, "list[Sentence]"]]


class Sink(Protocol):
    """Where finished states go: the merge tree of a sweep. Workers write `0-N.safetensors` into its folder."""

    folder: Path
    durable: bool
    count: int

    def put(self, level: int, index: int, states: States) -> None: ...
    def put_file(self, index: int) -> None: ...


class Engine(Protocol):
    """Runs tasks and puts their states into the tree; yields each shard as it is done."""

    @property
    def workers(self) -> int | None: ...

    def run(self, job: Job, models: list[Model], tasks: Tasks, tree: Sink) -> Iterator[Shard]: ...


class Inline:
    """Runs every shard in this process, one after another; `ahead` is what planning has read already."""

    workers = 1

    def __init__(self) -> None:
        self.ahead = Ahead()

    def run(self, job: Job, models: list[Model], tasks: Tasks, tree: Sink) -> Iterator[Shard]:
        """Yields each shard when it is done."""
        runner = Runner(job, models, ahead=self.ahead)
        for shard, sentences in tasks:
            tree.put(0, shard.index, runner.shard(shard, sentences))
            del sentences
            self.ahead.let_go(shard)
            yield shard


@dataclass
class _Worker:
    """A process that runs shards, the end of its pipe, and what it is at."""

    process: BaseProcess
    pipe: Connection
    task: tuple[Shard, list[Sentence]] | None = None
    at: tuple[str, int] = ("batch", 0)
    ready: bool = False


class Processes:
    """Runs shards in processes of this machine; a worker that dies is replaced, and its shard is run again."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, job: Job, models: list[Model], tasks: Tasks, tree: Sink) -> Iterator[Shard]:
        """Yields each shard when it is done."""
        devices = _devices(models, team_of(self))
        waiting: deque[tuple[Shard, list[Sentence]]] = deque()
        deaths: dict[int, int] = {}
        team = [_start(job, tree, device) for device in devices]
        try:
            while True:
                for worker in team:
                    if worker.ready and worker.task is None:
                        _hand_out(worker, waiting.popleft() if waiting else next(tasks, None), deaths)
                if all(worker.ready and worker.task is None for worker in team):
                    return
                for place, worker in _news(team):
                    message = _receive(worker)
                    if message is None:
                        if worker.task is not None:
                            _count_death(worker, deaths)
                            waiting.append(worker.task)
                        worker.process.join()
                        if worker.task is None and not worker.ready:
                            _count_start(deaths, worker.process.exitcode)
                        team[place] = _start(job, tree, devices[place])
                    elif message[0] == "done":
                        assert worker.task is not None
                        shard, worker.task = worker.task[0], None
                        tree.put_file(shard.index)
                        yield shard
        finally:
            for worker in team:
                worker.process.terminate()
                worker.process.join()


def _devices(models: list[Model], workers: int) -> list[str]:
    """Each worker's device: accelerators are dealt out where there are several."""
    device = models[0].device
    if device.type == "cpu":
        return ["cpu"] * workers
    return [f"{device.type}:{number % torch.accelerator.device_count()}" for number in range(workers)]


def _start(job: Job, tree: Sink, device: str) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    options = {"folder": str(tree.folder), "durable": tree.durable, "device": device}
    process = context.Process(target=_work, args=(theirs, job), kwargs=options, daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _hand_out(worker: _Worker, task: tuple[Shard, list[Sentence]] | None, deaths: dict[int, int]) -> None:
    """Gives a worker its next task, if there is one; the last try of a task goes sentence by sentence."""
    if task is None:
        return
    worker.task, worker.at = task, ("batch", 0)
    try:
        worker.pipe.send((*task, deaths.get(task[0].index, 0) == DEATHS - 1))
    except OSError:
        return  # it has died: the closed pipe is noticed next


def _news(team: list[_Worker]) -> Iterator[tuple[int, _Worker]]:
    """Workers that have said something, or whose pipe has closed because they died."""
    heard = set(wait([worker.pipe for worker in team]))
    for place, worker in enumerate(team):
        if worker.pipe in heard:
            yield place, worker


def _receive(worker: _Worker) -> tuple[Any, ...] | None:
    """A worker's next message; None where it has died. Its errors are raised here."""
    try:
        message: tuple[Any, ...] = worker.pipe.recv()
    except (EOFError, OSError):
        return None
    if message[0] == "ready":
        worker.ready = True
    elif message[0] == "failed":
        raise message[1]
    elif message[0] in ("batch", "sentence"):
        worker.at = (message[0], message[1])
    return message


def _count_death(worker: _Worker, deaths: dict[int, int]) -> None:
    """Counts a worker's death on its shard; one too many stops the sweep, with the sentence it died of."""
    assert worker.task is not None
    shard, sentences = worker.task
    deaths[shard.index] = deaths.get(shard.index, 0) + 1
    if deaths[shard.index] < DEATHS:
        return
    worker.process.join()
    kind, number = worker.at
    if kind == "sentence":
        where = f"sentence {sentences[number].id!r} ({sentences[number].text[:80]!r})"
    else:
        members = [sentences[member].id for member in shard.batches[number].members]
        where = f"a batch of the sentences {listing(members, most=8)}"
    raise SweepError(
        f"A worker died {DEATHS} times on the same shard (exit code {worker.process.exitcode}), at {where}. If memory "
        "is short use a smaller token_budget (--token-budget); otherwise leave the sentence out."
    )


def _count_start(deaths: dict[int, int], code: int | None) -> None:
    deaths[-1] = deaths.get(-1, 0) + 1
    if deaths[-1] >= DEATHS:
        raise SweepError(
            f"Workers died {DEATHS} times before they could begin (exit code {code}): a script must start its work "
            "under if __name__ == '__main__', a collector of your own must be in a module and not in a notebook, and "
            "if memory is short, use fewer workers (--workers)."
        )


def _work(pipe: Connection, job: Job, *, folder: str, durable: bool, device: str) -> None:
    """What a worker process does: opens the models, then shard after shard until the pipe closes."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        runner = Runner.open(job, device=device)
        pipe.send(("ready",))
        while True:
            shard, sentences, careful = pipe.recv()
            if careful:
                _look_ahead(pipe, runner, shard, sentences)
            states = runner.shard(shard, sentences, announce=lambda number: pipe.send(("batch", number)))
            save_states(Path(folder) / f"0-{shard.index}.safetensors", states, durable=durable)
            pipe.send(("done", shard.index))
    except (EOFError, ConnectionError, KeyboardInterrupt):  # whoever hands out the shards is gone
        return
    except Exception as error:
        pipe.send(("failed", _portable(error)))


def _look_ahead(pipe: Connection, runner: Runner, shard: Shard, sentences: list[Sentence]) -> None:
    """Every sentence alone, announced before it runs, so that the one that kills a worker is known by name."""
    for number, sentence in enumerate(sentences):
        pipe.send(("sentence", number))
        runner.alone(sentence)


def _portable(error: Exception) -> Exception:
    """An error that another process can raise: ours as they are, others with their story."""
    if isinstance(error, PellucidError):
        public = next(kind for kind in type(error).__mro__ if not kind.__name__.startswith("_"))
        return public(str(error))
    story = "".join(traceback.format_exception(error)[-3:])
    return RuntimeError(f"{type(error).__name__} in a worker: {error}\n{story}")


def engine_of(name: str, workers: int | None, device: torch.device) -> Engine:
    """The engine of a name: `inline`, `processes`, `ray` or `ray://address`."""
    if name == "inline":
        if workers not in (None, 1):
            raise SweepError(f"The inline engine is one worker, not {workers}; use engine='processes' for several.")
        return Inline()
    if workers is not None and workers < 1:
        raise SweepError(f"A sweep needs at least one worker, not {workers}.")
    if name == "processes":
        return Processes(workers or (default_workers() if device.type == "cpu" else torch.accelerator.device_count()))
    if name == "ray" or name.startswith("ray:"):
        from pellucid.collect.ray_engine import RayEngine

        return RayEngine(workers, address=name if name.startswith("ray://") else None)
    raise SweepError(f"There is no engine {name!r}; use inline, processes, ray or ray://HOST:PORT.")


def team_of(engine: Engine) -> int:
    """How many workers an engine has."""
    return engine.workers or default_workers()


def default_workers() -> int:
    """One worker per core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
