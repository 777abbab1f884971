"""The Ray engine: shards on the machines of a cluster, one set of models per actor, merged where they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pellucid.collect.engines import DEATHS, Sink, Tasks, default_workers
from pellucid.collect.job import Job
from pellucid.collect.plan import Shard
from pellucid.collect.runner import Runner, States, merge_states
from pellucid.errors import PellucidError, SweepError

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.corpus import Sentence
    from pellucid.model import Model

_BLOCK = 3  # at most 2³ shards are merged in the cluster before their state is fetched and saved


class _Actor:
    """Lives in the cluster: opens the models once, then runs shard after shard."""

    def __init__(self, job: Job, device: str) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self.job, self.device = job, device

    @cached_property
    def runner(self) -> Runner:
        return Runner.open(
            self.job, device=self.device
        )  # not at the start: Ray would tell of an error there as of a death

    def shard(self, shard: Shard, sentences: list[Sentence]) -> States:
        return self.runner.shard(shard, sentences)

    def alone(self, sentence: Sentence) -> None:
        self.runner.alone(sentence)


def _merge(collectors: Mapping[str, Collector], left: States, right: States) -> States:
    return merge_states(collectors, left, right)


class RayEngine:
    """Runs shards as tasks of Ray actors, in a Ray of this machine or in the cluster at `address`.

    An actor that dies is started again, wherever there is room, and its shard is run again.
    """

    def __init__(self, workers: int | None, *, address: str | None) -> None:
        self.workers, self.address = workers, address

    def run(self, job: Job, models: list[Model], tasks: Tasks, tree: Sink) -> Iterator[Shard]:
        """Yields each shard when it is done."""
        with _connected(self.address, (self.workers or 1) * (job.threads or 1)) as ray:
            graphics = models[0].device.type == "cuda"
            needs = {"num_cpus": job.threads or 1, "num_gpus": int(graphics)}
            hire = partial(_hire, ray, ray.put(job), needs, models[0].device.type)
            team = [hire(tries=DEATHS) for _ in range(_room(ray, needs, self.workers))]
            level = _level(tree.count, len(team))
            blocks = (list(block) for _, block in groupby(tasks, key=lambda task: task[0].index >> level))
            cluster = _Cluster(ray, team, hire, job, level, tree)
            more = True
            while more or cluster.waiting:
                while more and len(cluster.waiting) < 2 * len(team):
                    block = next(blocks, None)
                    more = block is not None
                    if block is not None:
                        cluster.submit(block)
                if cluster.waiting:
                    yield cluster.next_done()


def _room(ray: Any, needs: Mapping[str, int], asked: int | None) -> int:
    """How many actors to start: as many as asked for, or as there is room for; more than that would wait for ever."""
    there = ray.cluster_resources()
    room = int(there.get("CPU", 0)) // needs["num_cpus"]
    if needs["num_gpus"]:
        room = min(room, int(there.get("GPU", 0)))
    if room < 1 or (asked or 1) > room:
        raise SweepError(
            f"Ray has {there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs, room for {room} workers of "
            f"{needs['num_cpus']} threads{' and a GPU' if needs['num_gpus'] else ''}, and {asked or 1} were asked for; "
            "use fewer workers or threads."
        )
    return asked or room


def _hire(ray: Any, job: Any, needs: Mapping[str, int], device: str, *, tries: int) -> Any:
    """An actor that tries each task so often, started again after each death, or not at all for a single try."""
    restarts = -1 if tries > 1 else 0
    return ray.remote(_Actor).options(max_restarts=restarts, max_task_retries=tries - 1, **needs).remote(job, device)


@dataclass
class _Block:
    """Shards under one node of the tree, and the node's state to come (None where some were done before)."""

    index: int
    tasks: dict[Any, tuple[Shard, list[Sentence]]]
    top: Any
    left: int


class _Cluster:
    """What is under way in the cluster."""

    def __init__(self, ray: Any, team: list[Any], hire: Callable[..., Any], job: Job, level: int, tree: Sink) -> None:
        self.ray, self.team, self.hire, self.level, self.tree = ray, team, hire, level, tree
        self.merge = ray.remote(num_cpus=0)(_merge)
        self.collectors = ray.put(dict(job.collectors))
        self.waiting: dict[Any, tuple[_Block, int]] = {}  # shard's reference → its block, its actor
        self.busy = [0] * len(team)

    def submit(self, tasks: list[tuple[Shard, list[Sentence]]]) -> None:
        """Hands the shards of one block to the actors that have least to do."""
        refs: dict[int, Any] = {}
        actors: list[int] = []
        for shard, sentences in tasks:
            actor = self.busy.index(min(self.busy))
            self.busy[actor] += 1
            actors.append(actor)
            refs[shard.index] = self.team[actor].shard.remote(shard, sentences)
        index = tasks[0][0].index >> self.level
        first, last = index << self.level, min((index + 1) << self.level, self.tree.count)
        whole = sorted(refs) == list(range(first, last))
        top = self._node(refs, self.level, index) if whole else None
        block = _Block(index, dict(zip(refs.values(), tasks, strict=True)), top, len(tasks))
        self.waiting |= {ref: (block, actor) for ref, actor in zip(refs.values(), actors, strict=True)}

    def _node(self, refs: Mapping[int, Any], level: int, index: int) -> Any:
        """The state of a node of the tree, as Ray will have it once its shards are done."""
        if level == 0:
            return refs[index]
        left = self._node(refs, level - 1, 2 * index)
        if (2 * index + 1) << (level - 1) >= self.tree.count:
            return left
        return self.merge.remote(self.collectors, left, self._node(refs, level - 1, 2 * index + 1))

    def next_done(self) -> Shard:
        """Waits for the next finished shard; a block whose shards are all done goes into the tree."""
        done, _ = self.ray.wait(list(self.waiting), num_returns=1)
        block, actor = self.waiting.pop(done[0])
        self.busy[actor] -= 1
        block.left -= 1
        shard = block.tasks[done[0]][0]
        if block.top is None:
            self.tree.put(0, shard.index, self._get(done[0], block))
        elif block.left == 0:
            self.tree.put(self.level, block.index, self._get(block.top, block))
        return shard

    def _get(self, ref: Any, block: _Block) -> States:
        """A state, or the error of the shard that failed."""
        failures = self.ray.exceptions.RayError
        try:
            return self.ray.get(ref)
        except failures as error:
            for part, (_, sentences) in block.tasks.items():
                try:
                    self.ray.get(part)
                except failures as cause:
                    self._explain(cause, sentences)
            raise error

    def _explain(self, error: Any, sentences: list[Sentence]) -> None:
        """Raises what went wrong in a shard; where its actors keep dying, with the sentence that they die of."""
        told = getattr(error, "cause", None)
        if isinstance(told, PellucidError):
            raise told from None
        if not isinstance(error, self.ray.exceptions.RayActorError):
            raise error
        others = [task for block, _ in self.waiting.values() for task in block.tasks.values()]
        for actor in self.team:
            self.ray.kill(actor)  # makes room for one that nothing else is asked of
        scout = self.hire(tries=1)
        for sentence in (*sentences, *(each for _, part in others for each in part)):  # a death fails all that waited
            try:
                self.ray.get(scout.alone.remote(sentence))
            except self.ray.exceptions.RayError:
                raise SweepError(
                    f"A worker died {DEATHS} times on the same shard, at sentence {sentence.id!r} "
                    f"({sentence.text[:80]!r}). If memory is short use a smaller token_budget (--token-budget); "
                    "otherwise leave the sentence out."
                ) from error
        raise SweepError(
            f"A worker died {DEATHS} times on the shard that begins with sentence {sentences[0].id!r}, though each of "
            "its sentences runs alone; use a smaller token_budget (--token-budget)."
        ) from error


def _level(count: int, workers: int) -> int:
    """How many levels are merged in the cluster: all workers stay busy, and not too much waits to be saved."""
    return min(_BLOCK, max(0, (count // (2 * workers)).bit_length() - 1))


@contextmanager
def _connected(address: str | None, cores: int) -> Generator[Any]:
    """Ray, connected to a cluster or started here; what was started here is stopped again."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise SweepError("The engine 'ray' needs Ray: pip install 'pellucid[ray]'.") from None
    library: Any = ray
    if library.is_initialized():
        yield library
        return
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None and "RAY_ADDRESS" not in os.environ:
        options |= {"include_dashboard": False, "num_cpus": max(2, default_workers(), cores)}
    try:
        library.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise SweepError(f"Ray could not be reached at {address or 'this machine'} ({error}).") from error
    try:
        yield library
    finally:
        library.shutdown()
