"""Following models while they learn: one sweep per checkpoint, with at most two models in memory at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.collect.collector import Collector
from pellucid.collect.lock import locked
from pellucid.collect.moments import Moments
from pellucid.collect.sample import TokenSample
from pellucid.model.sites import expand
from pellucid.results import Coordinate
from pellucid.similarity.metrics import Metric, chosen
from pellucid.similarity.pair import SimilarityError
from pellucid.similarity.training import Convergence, EpochByEpoch, convergence, epoch_by_epoch

if TYPE_CHECKING:
    from torch import nn

    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus
    from pellucid.model import Model

    Checkpoint = str | Path | Model | nn.Module
    Checkpoints = Sequence[Checkpoint] | Mapping[Coordinate, Checkpoint]
    Opens = Callable[[Checkpoint], Model]
    Sweeps = Callable[..., Found]


def follow(
    checkpoints: Checkpoints,
    corpus: Corpus,
    scores: str | Iterable[str] = "cka",
    *,
    sites: str = "resid.*",
    folder: str | Path | None = None,
    random: bool = True,
    groups: bool = True,
    interval: bool | None = None,
    seed: int = 0,
    load: Opens | None = None,
    using: Sweeps | None = None,
) -> Convergence:
    """`convergence` of a run's checkpoints, the last one being the final model; each is swept beside it, one by one.

    Checkpoints are folders, names or models, in a list or by step. With a `folder`, each sweep is saved under it
    (`step-00001`, `random`) and a stopped call goes on from there. `random` adds a randomly initialised model of this
    `seed`, from which `freezable` measures; `groups=False` takes a tenth of the memory and gives no interval. `load`
    opens a checkpoint (`Model.load`), `using` is the sweep to run: `partial(sweep, pooling="first", progress=False)`.
    """
    steps = _by_step(checkpoints, least=2)
    wanted = chosen(scores)
    *earlier, (_, final) = steps.items()
    last = _open(final, load)
    collectors = _collectors(wanted, last, sites, groups)

    def swept() -> Iterator[Found]:
        for name, (_, source) in zip(_names(steps), earlier, strict=False):
            yield _swept([_open(source, load), last], corpus, collectors, _place(folder, name), using)

    with _held(folder):
        models = [_random(last, seed), last] if random else []
        beside = _swept(models, corpus, collectors, _place(folder, "random"), using) if models else None
        names = [metric.name for metric in wanted]
        return convergence(swept(), names, steps=tuple(steps), interval=interval, random=beside)


def follow_runs(
    one: Checkpoints,
    other: Checkpoints,
    corpus: Corpus,
    scores: str | Iterable[str] = "cka",
    *,
    sites: str = "resid.*",
    folder: str | Path | None = None,
    groups: bool = True,
    interval: bool | None = None,
    load: Opens | None = None,
    using: Sweeps | None = None,
) -> EpochByEpoch:
    """`epoch_by_epoch` of two runs: each checkpoint of one is swept beside that of the other, as in `follow`."""
    steps, others = _by_step(one, least=1), _by_step(other, least=1)
    if tuple(steps) != tuple(others):
        raise SimilarityError(
            f"Two runs are compared step by step, but one has the steps {list(steps)} and the other {list(others)}; "
            "give both the same."
        )
    wanted = chosen(scores)

    def swept() -> Iterator[Found]:
        with _held(folder):
            for name, (step, source) in zip(_names(steps), steps.items(), strict=True):
                models = [_open(source, load), _open(others[step], load)]
                collectors = _collectors(wanted, models[1], sites, groups)
                yield _swept(models, corpus, collectors, _place(folder, name), using)

    return epoch_by_epoch(swept(), [metric.name for metric in wanted], steps=tuple(steps), interval=interval)


def _by_step(checkpoints: Checkpoints, *, least: int) -> dict[Coordinate, Checkpoint]:
    """Checkpoints by step, numbered from 1 where they came as a list."""
    if isinstance(checkpoints, str | Path):
        raise SimilarityError(f"{str(checkpoints)!r} is one checkpoint; give a list of them, or a dict by step.")
    given = checkpoints.items() if isinstance(checkpoints, Mapping) else enumerate(checkpoints, start=1)
    steps: dict[Coordinate, Checkpoint] = {step: source for step, source in given}  # noqa: C416  # other keys than int
    if len(steps) < least:
        raise SimilarityError(f"{len(steps)} checkpoints were given, and following a run needs at least {least}.")
    return steps


def _open(source: Checkpoint, load: Opens | None) -> Model:
    from pellucid.model import Model

    return source if isinstance(source, Model) else (load or Model.load)(source)


def _random(model: Model, seed: int) -> Model:
    from pellucid.model import Model

    if not hasattr(model.hf, "config"):
        raise SimilarityError(
            f"{model.name!r} has no configuration to build a randomly initialised model from; pass random=False."
        )
    return Model.random_like(model, seed)


def _collectors(wanted: Sequence[Metric], model: Model, sites: str, groups: bool) -> list[Collector]:
    """What these scores read of every layer of two models, each layer beside its own alone."""
    every = [site for part in sites.split(",") for site in expand(part.strip(), model.sites)]
    names = tuple(dict.fromkeys(map(str, every)))
    made: list[Collector] = []
    if any(metric.needs == "moments" for metric in wanted):
        pairs = tuple((f"0:{name}", f"1:{name}") for name in names)
        precision = "float64" if any(metric.whole for metric in wanted) else "float32"
        made.append(Moments(names, pairs=pairs, groups=groups, precision=precision))
    if any(metric.needs == "sample" for metric in wanted):
        made.append(TokenSample(names))
    return made


def _swept(
    models: list[Model], corpus: Corpus, collectors: list[Collector], place: Path | None, using: Sweeps | None
) -> Found:
    """One sweep; the models that nobody else holds are let go of before anything else is opened."""
    from pellucid.collect.sweep import sweep

    found = (using or partial(sweep, long="window"))(models, corpus, collectors, folder=place)
    models.clear()
    gc.collect()
    return found


def _held(folder: str | Path | None) -> AbstractContextManager[None]:
    """The folder of all sweeps, made where needed and held against a second run."""
    return nullcontext() if folder is None else locked(Path(folder))


def _place(folder: str | Path | None, name: str) -> Path | None:
    return None if folder is None else Path(folder) / name


def _names(steps: Mapping[Coordinate, Checkpoint]) -> list[str]:
    """The folders of steps: by the steps themselves where all are whole numbers, else by their places."""
    whole = [step for step in steps if isinstance(step, int) and step >= 0]
    numbers = whole if len(whole) == len(steps) else range(1, len(steps) + 1)
    return [f"step-{number:05d}" for number in numbers]
