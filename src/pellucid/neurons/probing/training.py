"""Training probes: many linear classifiers on the same rows at once, in shuffled batches, with early stopping.

A probe, its controls and their seeds differ in labels and in the rows that they learn from, not in what they read: so
one pass over the rows trains all of them, and each product of a batch serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pellucid.neurons.probing.rows import Rows
from pellucid.results import Array, ResultError

if TYPE_CHECKING:
    from pellucid.model import Model

_FALLS = 4
"""How often a task's step becomes smaller before it has learned what it can."""
_FALL = 0.3
_DECAYS = 0.9, 0.999
_STEP, _BIAS_STEP = 0.05, 0.01
_MOST_HELD, _FEWEST_HELD, _HELD_AT_ONCE = 4096, 256, 1024
_UNSEEN = 0.5
"""Words that every class has more than were counted, where training starts: so one without any has a finite bias."""


@dataclass(frozen=True, eq=False)
class Task:
    """One classifier to train: its class of every row, `goals` [rows] (−1: none), and what it may learn from.

    Rows in `learned` [rows] are learned from, those in `held` [rows] stop the training early. With `columns` [neurons]
    it reads these neurons alone.
    """

    goals: Array
    learned: Array
    held: Array
    columns: Array | None = None


@dataclass(frozen=True)
class Settings:
    """How probes are trained: weights of the penalties l1·Σ|w| + l2/2·Σw² on the mean loss, and the rest.

    `batch` is by default a fiftieth of the rows, 32 to 512; `step` is that of Adam (default .05/√neurons for weights,
    .01 for biases). An epoch counts as progress where the loss falls by the share `tolerance`. Where l2 alone is set,
    the goal is that of scikit-learn's LogisticRegression with C = 1/(l2·rows).
    """

    l1: float = 1e-3
    l2: float = 1e-3
    epochs: int = 60
    batch: int | None = None
    step: float | None = None
    tolerance: float = 1e-4
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.l1 < 0 or self.l2 < 0:
            raise ResultError(f"A penalty cannot be negative: l1={self.l1}, l2={self.l2}; use 0 or more.")
        if self.epochs < 1 or (self.batch is not None and self.batch < 1):
            raise ResultError(f"epochs={self.epochs} in batches of {self.batch} trains nothing; use 1 or more of each.")


@dataclass(frozen=True, eq=False)
class Fitted:
    """Trained classifiers: `weights` [tasks, classes, neurons] of standardised neurons and `biases` [tasks, classes].

    `mean` and `deviation` [neurons] are those of the rows learned from; a neuron that never changes has the deviation 0
    and the weight 0. `epochs` [tasks] is when each was best; 0 where nothing learned beat the shares of the classes.
    """

    weights: Array
    biases: Array
    mean: Array
    deviation: Array
    epochs: Array

    def without(self, neurons: Array) -> Fitted:
        """The same classifiers with some `neurons` [neurons] at their mean, as if they had nothing to say."""
        return replace(self, weights=np.where(neurons, np.float32(0), self.weights))

    def guesses(self, rows: Tensor) -> Array:
        """The class that each task gives each row of raw activations [n, neurons]: [tasks, n]."""
        scaled = standardised(rows, torch.from_numpy(self.mean), torch.from_numpy(self.deviation))
        tasks, classes, _ = self.weights.shape
        flat = torch.from_numpy(self.weights.reshape(tasks * classes, -1)).float()
        scores = (scaled @ flat.T).view(-1, tasks, classes) + torch.from_numpy(self.biases).float()
        return scores.argmax(dim=2).T.numpy()


def device_beside(model: Model) -> str:
    """Where probes of a model train: where it is, or on the CPU where its device knows no float64."""
    return str(model.device) if model.device.type in ("cpu", "cuda") else "cpu"


def moments(rows: Rows, wanted: Array) -> tuple[Array, Array]:
    """Mean and standard deviation [neurons] of the wanted rows, in float64."""
    count, width = int(wanted.sum()), len(rows.names)
    if not count:
        raise ResultError("There are no rows to learn from: no labelled word was left.")
    shift: Tensor | None = None
    first, second = torch.zeros(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    for _, part in rows.batches(wanted, 1024, None):
        shift = part.mean(0) if shift is None else shift
        away = (part - shift).double()  # squares of small or large numbers would leave the range of float32
        first += away.sum(0)
        second += away.square().sum(0)
    assert shift is not None
    variance = (second / count - (first / count) ** 2).clamp(min=0)
    mean = shift.double() + first / count
    still = variance <= 1e-12 * mean.square()  # float32 rounding of a number that never changes
    return mean.numpy(), torch.where(still, 0.0, variance.sqrt()).numpy()


def standardised(rows: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Rows in standard deviations from the mean, in float32; 0 for neurons that never change."""
    inverse = torch.where(deviation > 0, 1 / deviation.clamp(min=1e-300), 0.0)
    return (rows - mean.to(rows)) * inverse.to(rows)


def fit(
    rows: Rows,
    tasks: Sequence[Task],
    classes: int,
    settings: Settings,
    *,
    advance: Callable[[int], None] | None = None,
) -> Fitted:
    """Trains all tasks together by proximal Adam on the mean cross-entropy with elastic net.

    Each starts without weights, at the log shares of the classes among its rows, so that one that learns nothing says
    the most frequent class. After an epoch without progress of a task (its loss on held rows, or where it has none its
    own objective), its step is made smaller; after four it has finished. The weights of its best epoch count. Neurons
    are standardised with the moments of all rows that any task learns from. The same seed gives the same numbers.
    """
    learned = np.stack([task.learned & (task.goals >= 0) for task in tasks], axis=1)  # [rows, tasks]
    any_learned: Array = np.asarray(learned.any(axis=1))
    mean, deviation = moments(rows, any_learned)
    state = _State(rows, tasks, classes, settings, mean, deviation)
    goals = np.stack([task.goals for task in tasks], axis=1)
    dice = np.random.default_rng([settings.seed, 1])
    size = settings.batch or min(512, max(32, int(any_learned.sum()) // 50))
    for epoch in range(1, settings.epochs + 1):
        state.begin()
        for numbers, part in rows.batches(any_learned, size, dice):
            state.learn(part, torch.from_numpy(goals[numbers]), torch.from_numpy(learned[numbers]))
        if advance is not None:
            advance(1)
        if state.settled(epoch):
            break
    return Fitted(*state.best(), mean, deviation, state.epochs.cpu().numpy())


class _State:
    """Weights of all tasks [neurons, tasks, classes] while they are trained, and the best of each so far."""

    def __init__(
        self, rows: Rows, tasks: Sequence[Task], classes: int, settings: Settings, mean: Array, deviation: Array
    ) -> None:
        device = torch.device(settings.device)
        width, count = len(rows.names), len(tasks)
        self.settings, self.device = settings, device
        self.mean, self.deviation = torch.from_numpy(mean).to(device), torch.from_numpy(deviation).to(device)
        reads = np.stack([np.ones(width, bool) if task.columns is None else task.columns for task in tasks], axis=1)
        self.reads = torch.from_numpy(reads & (deviation > 0)[:, None]).float().to(device)[:, :, None]
        self.weights = torch.zeros(width, count, classes, device=device)
        self.biases, entropy = _shares(tasks, classes, device)
        self.averages = [torch.zeros_like(each) for each in (self.weights, self.biases, self.biases, self.biases)]
        self.steps = 0
        self.neurons = self.reads[:, :, 0].sum(0).clamp(min=1)
        usual = torch.stack([_STEP / self.neurons.sqrt(), torch.full_like(self.neurons, _BIAS_STEP)])
        self.step = torch.full_like(usual, settings.step) if settings.step else usual  # [weights and biases, tasks]
        self.falls = torch.zeros(count, dtype=torch.long, device=device)
        self.epochs = torch.zeros(count, dtype=torch.long, device=device)
        self.kept = self.weights.clone(), self.biases.clone()
        self._hold(rows, tasks)
        self.lowest = self._reached(entropy)
        self.learned_best = torch.full_like(self.lowest, float("inf"))

    def _hold(self, rows: Rows, tasks: Sequence[Task]) -> None:
        """Reads the rows that stop tasks early, once: some thousand of each fold, the same for all its tasks, or as
        many as take half of the memory; a few hundred in any case."""
        dice = np.random.default_rng([self.settings.seed, 2])
        asked = [task.held & (task.goals >= 0) for task in tasks]
        folds = {held.tobytes(): np.flatnonzero(held) for held in asked}
        fitting = rows.memory // 2 // (4 * len(rows.names) * len(folds))
        most = min(_MOST_HELD, max(_FEWEST_HELD, fitting))
        drawn = {
            key: np.sort(dice.choice(numbers, most, replace=False)) if len(numbers) > most else numbers
            for key, numbers in folds.items()
        }
        chosen = [drawn[held.tobytes()] for held in asked]
        every = np.unique(np.concatenate(chosen))
        self.held_goals = torch.from_numpy(np.stack([task.goals[every] for task in tasks], axis=1)).to(self.device)
        mine = np.stack([np.isin(every, numbers) for numbers in chosen], axis=1)
        self.held_weights = torch.from_numpy(mine).float().to(self.device)  # [held, tasks]
        self.held = rows.take(every).to(self.device) if len(every) else None

    def begin(self) -> None:
        """An epoch begins."""
        self.loss, self.seen = torch.zeros_like(self.lowest), torch.zeros_like(self.lowest)

    def scores(self, part: Tensor) -> tuple[Tensor, Tensor]:
        """Standardised rows and their logits [n, tasks, classes]."""
        scaled = standardised(part.to(self.device), self.mean, self.deviation)
        width, count, classes = self.weights.shape
        return scaled, (scaled @ self.weights.view(width, -1)).view(-1, count, classes) + self.biases

    def learn(self, part: Tensor, goals: Tensor, learned: Tensor) -> None:
        """One step of every task on a batch."""
        scaled, logits = self.scores(part)
        goals, weight = goals.to(self.device), learned.to(self.device).float()
        logs = torch.log_softmax(logits, dim=2)
        answers = goals.clamp(min=0)[:, :, None]
        self.loss -= (logs.gather(2, answers)[:, :, 0] * weight).sum(0)
        self.seen += weight.sum(0)
        slope = logs.exp()
        slope.scatter_add_(2, answers, -torch.ones_like(answers, dtype=slope.dtype))
        slope *= (weight / weight.sum(0).clamp(min=1))[:, :, None]
        gradient = (scaled.T @ slope.flatten(1)).view_as(self.weights)
        gradient += self.settings.l2 * self.weights
        self._move(gradient * self.reads, slope.sum(0))

    def _move(self, gradient: Tensor, bias_gradient: Tensor) -> None:
        """Adam with one scale for all weights of a class, then the proximal step of l1 under that scale.

        Standardised neurons need none of their own; with one, those that say little would move as fast as the others.
        """
        self.steps += 1
        first, second = _DECAYS
        sizes = torch.linalg.vector_norm(gradient, dim=0).square() / self.neurons[:, None], bias_gradient.square()
        for place, (slope, size) in enumerate(zip((gradient, bias_gradient), sizes, strict=True)):
            self.averages[2 * place].lerp_(slope, 1 - first)
            self.averages[2 * place + 1].lerp_(size, 1 - second)
        fade, spread = 1 - first**self.steps, 1 - second**self.steps
        moving = (self.falls < _FALLS).float() * self.step
        squares = zip(moving, self.averages[1::2], strict=True)
        scale, bias_scale = (own[:, None] / ((size / spread).sqrt() + 1e-8) for own, size in squares)
        self.weights -= self.averages[0] * (scale / fade)
        if self.settings.l1:
            self.weights.copy_(self.weights.sign() * (self.weights.abs() - scale * self.settings.l1).clamp(min=0))
        self.biases -= self.averages[2] * (bias_scale / fade)

    def settled(self, epoch: int) -> bool:
        """Compares every task with its best epoch, the start among them; whether all have finished.

        Progress is over what was learned before: a first epoch that does not beat the start may still lead there.
        """
        penalty = self.settings.l1 * self.weights.abs().sum((0, 2)) + self.settings.l2 / 2 * self.weights.square().sum(
            (0, 2)
        )
        now = self._reached(self.loss / self.seen.clamp(min=1) + penalty)
        moving = self.falls < _FALLS
        better = moving & (now < self.lowest)
        progress = moving & (now < self.learned_best * (1 - self.settings.tolerance))
        self.learned_best = torch.where(moving, torch.minimum(now, self.learned_best), self.learned_best)
        for kept, mine in zip(self.kept, (self.weights, self.biases), strict=True):
            kept.copy_(torch.where(better.view(-1, 1) if mine.dim() == 2 else better.view(1, -1, 1), mine, kept))
        self.lowest = torch.where(better, now, self.lowest)
        self.epochs = torch.where(better, epoch, self.epochs)
        self.falls += (moving & ~progress).long()
        self.step = torch.where(progress, self.step, self.step * _FALL)
        return bool((self.falls >= _FALLS).all())

    def _reached(self, objective: Tensor) -> Tensor:
        """What tells whether a task makes progress, [tasks]: its loss on held rows, or its objective without any."""
        if self.held is None:
            return objective
        lost, count = self._lost(self.held), self.held_weights.sum(0)
        return torch.where(count > 0, (lost * self.held_weights).sum(0) / count.clamp(min=1), objective)

    def _lost(self, held: Tensor) -> Tensor:
        """The loss of every task at every held row, [held, tasks]; a few rows at a time, as copies of all take room."""
        lost: list[Tensor] = []
        for start in range(0, len(held), _HELD_AT_ONCE):
            part = slice(start, start + _HELD_AT_ONCE)
            logs = torch.log_softmax(self.scores(held[part])[1], dim=2)
            lost.append(-logs.gather(2, self.held_goals[part].clamp(min=0)[:, :, None])[:, :, 0])
        return torch.cat(lost)

    def best(self) -> tuple[Array, Array]:
        """Weights [tasks, classes, neurons] and biases of each task's best epoch."""
        weights, biases = (each.cpu().numpy() for each in self.kept)
        return np.ascontiguousarray(weights.transpose(1, 2, 0)), biases


def _shares(tasks: Sequence[Task], classes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Log shares of the classes [tasks, classes] among the rows that each task learns from, and what it loses there in
    the mean by saying these of every row, [tasks]."""
    counts = np.stack([np.bincount(task.goals[task.learned & (task.goals >= 0)], minlength=classes) for task in tasks])
    smooth = counts + _UNSEEN
    logs = np.log(smooth / smooth.sum(axis=1, keepdims=True))
    lost = -(counts * logs).sum(axis=1) / np.maximum(1, counts.sum(axis=1))
    return torch.from_numpy(logs).float().to(device), torch.from_numpy(lost).float().to(device)
