"""Learning which heads a model can do without: gates are trained against a growing price of open heads."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.errors import TrainError, listing
from pellucid.heads.pruning.gates import START, HeadGates
from pellucid.model import Model
from pellucid.model.loading import Opened
from pellucid.train.folder import Latest, read_latest, write_latest

if TYPE_CHECKING:
    from pellucid.collect.progress import Progress
    from pellucid.heads.weighing.measuring import Measured

SCHEDULES = {
    "linear": "the price rises evenly from 0 to its full height",
    "constant": "the full price from the first step on",
    "steps": "the price doubles from stage to stage, one for every point of the curve, up to its full height",
}


@dataclass(frozen=True)
class GateSettings:
    """How gates are trained; plain values, so that they go to JSON and back.

    `strength` is λ, the price of an open head in nats per goal, and `schedule` how it is reached. `rate` is the
    learning rate of gates; with `tune` the weights are trained as well, at `tune_rate`. The curve gets at most `points`
    points.
    """

    strength: float = 0.1
    schedule: str = "linear"
    epochs: int = 3
    batch: int = 32
    rate: float = 0.1
    tune: bool = False
    tune_rate: float = 5e-5
    points: int = 12
    start: float = START
    seed: int = 0

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise TrainError(f"There is no schedule {self.schedule!r}; there are {listing(SCHEDULES)}.")
        for name in ("strength", "rate", "tune_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise TrainError(f"{name}={getattr(self, name)} cannot be used; give a number over 0.")
        for name in ("epochs", "batch", "points"):
            if getattr(self, name) < 1:
                raise TrainError(f"{name}={getattr(self, name)} leaves nothing to train; give at least 1.")

    def strength_at(self, step: int, steps: int) -> float:
        """λ of a step, counted from 1, of `steps` in all."""
        if self.schedule == "constant":
            return self.strength
        if self.schedule == "linear":
            return self.strength * step / steps
        stage = (step - 1) * self.points // steps
        return self.strength * 2.0 ** (stage + 1 - self.points)


@dataclass(frozen=True, eq=False)
class Point:
    """One look on the way: after how many steps, at which λ, every gate in evaluation, and the mean task loss."""

    step: int
    strength: float
    gates: Mapping[str, float]
    loss: float

    @property
    def open(self) -> int:
        """Heads whose gate is not closed."""
        return sum(gate > 0 for gate in self.gates.values())


Look = Callable[[HeadGates], Mapping[str, Any]]
"""What is measured at a point, as plain values; it is kept with the point, also through a kill."""


def check_reach(measured: Measured, settings: GateSettings) -> None:
    """Refuses a training so short that no gate could close: Adam moves a gate by about its rate in a step.

    A gate is closed in evaluation at log a = ln(−low/high).
    """
    law, steps = HeadGates.of(measured.model).law, measured.steps() * settings.epochs
    reach, needed = steps * settings.rate, settings.start - math.log(-law.low / law.high)
    if reach < needed:
        raise TrainError(
            f"{steps} steps at a rate of {settings.rate} move a gate by {reach:.2g} at most, and closing takes "
            f"{needed:.2g}: give more epochs or text, a smaller batch or a larger rate."
        )


def tunable(model: Model) -> Model:
    """A copy of a model whose weights can be trained; the model itself stays as it is."""
    module = deepcopy(model.hf)
    for parameter in module.parameters():
        if parameter.is_floating_point():
            parameter.requires_grad_(True)
    return Model(Opened(module, model.tokenizer, model.attention, model.name, model.notes))


class GateTraining:
    """Gates in training: steps of Adam on task loss + λ·ΣP(open), looked at from time to time; resumable."""

    def __init__(
        self, measured: Measured, settings: GateSettings, look: Look, bar: Progress, folder: Path | None, every: float
    ) -> None:
        self.measured, self.settings, self.look, self.bar = measured, settings, look, bar
        self.folder, self.every = folder, every
        self.gates = HeadGates.of(measured.model, start=settings.start)
        weights = list(measured.model.hf.parameters()) if settings.tune else []
        groups: list[dict[str, Any]] = [{"params": self.gates.parameters, "lr": settings.rate}]
        if weights:
            groups.append({"params": weights, "lr": settings.tune_rate})
        self.optimiser = torch.optim.Adam(groups, betas=(0.9, 0.98))
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.per_epoch = measured.steps()
        self.steps = self.per_epoch * settings.epochs
        self.step, self.loss, self.counted = 0, 0.0, 0
        self.points: list[tuple[Point, Mapping[str, Any]]] = []

    def run(self) -> list[tuple[Point, Mapping[str, Any]]]:
        """All steps that are left, and what was seen at every point, the model as it is first."""
        self._restore()
        if not self.points:
            self._look(0.0)
        tokens = self.measured.examples.tokens * self.settings.epochs
        self.bar.begin("learning gates", tokens, tokens * self.step // self.steps)
        saved = time.perf_counter()
        while self.step < self.steps:
            self._step()
            self.bar.advance(tokens // self.steps)
            if self._is_point(self.step):
                self._look(self.settings.strength_at(self.step, self.steps))
            if self.folder is not None and (time.perf_counter() - saved >= self.every or self.step == self.steps):
                self._save(self.folder)
                saved = time.perf_counter()
        return self.points

    def _is_point(self, step: int) -> bool:
        """Whether a step ends one of `points` stretches of equal length."""
        points = min(self.settings.points, self.steps)
        return step * points // self.steps != (step - 1) * points // self.steps

    def _step(self) -> None:
        """One step: gates drawn anew, the gradient of both terms, Adam."""
        epoch, at = divmod(self.step, self.per_epoch)
        batch = self.measured.batch(at, epoch + 1)
        strength = self.settings.strength_at(self.step + 1, self.steps)
        task = self.measured.loss(batch, self.gates.training_edits(self.generator))
        self.optimiser.zero_grad(set_to_none=True)
        trained = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        grads = torch.autograd.grad(task + strength * self.gates.penalty(), trained, allow_unused=True)
        for parameter, grad in zip(trained, grads, strict=True):
            parameter.grad = grad
        if self.settings.tune:
            torch.nn.utils.clip_grad_norm_(list(self.measured.model.hf.parameters()), 1.0)
        self.optimiser.step()
        value = float(task.detach())
        self.step += 1
        if not math.isfinite(value) or not self.gates.finite():
            self._stop(value)
        self.loss, self.counted = self.loss + value, self.counted + 1

    def _stop(self, loss: float) -> None:
        state = None if self.folder is None else read_latest(self.folder)
        kept = (
            "nothing was kept"
            if state is None
            else f"its state after step {state.facts['step']} is kept in {str(self.folder)!r}"
        )
        raise TrainError(
            f"{'The gates were' if math.isfinite(loss) else 'The loss was'} no number at step {self.step}, so pruning "
            f"stopped: {kept}. A lower rate usually helps, in another folder."
        )

    def _look(self, strength: float) -> None:
        gates = {name: gate for name, gate, _ in self.gates.table()}
        point = Point(self.step, strength, gates, self.loss / max(1, self.counted))
        self.points.append((point, self.look(self.gates)))
        self.loss, self.counted = 0.0, 0
        told = f", loss {point.loss:.4f}" if point.step else ""
        self.bar.say(f"step {point.step:,}: {point.open} of {len(gates)} heads open at λ {strength:.3g}{told}")

    def _save(self, folder: Path) -> None:
        """The state to go on from."""
        tensors: dict[str, Tensor] = {f"gates/{site}": place for site, place in self.gates.locations.items()}
        if self.settings.tune:
            tensors.update({f"weights/{name}": item for name, item in self.measured.model.hf.named_parameters()})
        for place, state in self.optimiser.state_dict()["state"].items():
            tensors.update({f"adam/{place}/{name}": torch.as_tensor(value) for name, value in state.items()})
        tensors["random"] = self.generator.get_state()
        points = [{"point": asdict(point), "seen": dict(seen)} for point, seen in self.points]
        facts = {"step": self.step, "loss": self.loss, "counted": self.counted, "points": json.dumps(points)}
        write_latest(folder, Latest(tensors, facts))

    def _restore(self) -> None:
        """Takes up the state in which an earlier process left off."""
        latest = None if self.folder is None else read_latest(self.folder)
        if latest is None:
            return
        facts, tensors = latest.facts, latest.tensors
        with torch.no_grad():
            for site, place in self.gates.locations.items():
                place.copy_(tensors[f"gates/{site}"])
            if self.settings.tune:
                for name, weight in self.measured.model.hf.named_parameters():
                    weight.copy_(tensors[f"weights/{name}"])
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            if name.startswith("adam/"):
                _, at, key = name.split("/")
                state.setdefault(int(at), {})[key] = tensor
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})
        self.generator.set_state(tensors["random"])
        self.step, self.loss, self.counted = facts["step"], facts["loss"], facts["counted"]
        self.points = [(Point(**told["point"]), told["seen"]) for told in json.loads(facts["points"])]
        self.bar.say(f"going on after step {self.step:,} of {self.steps:,}")
