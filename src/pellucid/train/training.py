"""A training under way: epochs of steps, each evaluated, logged, watched and kept; a kill costs at most a minute."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pellucid.errors import TrainError
from pellucid.train import folder as folders
from pellucid.train.folder import Latest, Row, Run
from pellucid.train.intervals import intervals
from pellucid.train.optimisers import learning_rate

if TYPE_CHECKING:
    from pellucid.collect.progress import Progress
    from pellucid.train.dynamics_watching import Watcher
    from pellucid.train.freezing import Freezer
    from pellucid.train.preparing import Prepared
    from pellucid.train.settings import Settings
    from pellucid.train.steps import Steps
    from pellucid.train.trackers import Tracker

EVERY = 50
"""Steps whose mean loss is one row of steps.csv, and after which a loss that is no number is noticed."""


class Training:
    """A training under way: counts of epochs and steps, the log so far, and all that must happen after each epoch."""

    def __init__(
        self,
        prepared: Prepared,
        settings: Settings,
        folder: Path,
        facts: dict[str, Any],
        steps: Steps,
        watcher: Watcher | None,
        freezer: Freezer | None,
        trackers: Sequence[Tracker],
        kept: str | Collection[int],
        bar: Progress,
        save_every: float,
    ) -> None:
        self.prepared, self.settings, self.folder, self.facts = prepared, settings, folder, facts
        self.steps, self.watcher, self.freezer, self.trackers = steps, watcher, freezer, trackers
        self.kept, self.bar, self.save_every = kept, bar, save_every
        self.per_epoch = prepared.training.steps()
        self.log: list[Row] = []
        self.rows: list[Row] = []
        self.epoch = self.step = 0  # epochs that are done, and steps of the next one that are
        self.total = 0.0  # sum of the losses of those steps
        self.spent = 0.0  # seconds, before this process too
        self.training = 0.0  # seconds of the steps of the epoch under way
        self.frozen: list[str] = []
        self.good: tuple[int, dict[str, torch.Tensor]] | None = None  # the last epoch that is done, and its weights
        self.began = self.saved = time.perf_counter()

    def run(self) -> Run:
        """All that is left to do."""
        latest = folders.read_latest(self.folder)
        if latest is not None:
            self._restore(latest)
        elif (self.folder / folders.LOG).is_file():
            self.bar.say("no state to go on from was saved yet, so training begins from the start")
        folders.write_about(self.folder, self.facts)
        if latest is not None:
            self._write_tables()
        self._drop()
        for tracker in self.trackers:
            tracker.begin(folders.Run(self.folder, self.facts))
        if latest is None:
            self._close(0)
        tokens = self.prepared.training.tokens
        done = self.epoch * tokens + self.step * tokens // self.per_epoch
        self.bar.begin("training", self.settings.epochs * tokens, done)
        for epoch in range(self.epoch + 1, self.settings.epochs + 1):
            self._epoch(epoch)
            self._close(epoch)
        return self._finish()

    def _epoch(self, epoch: int) -> None:
        """The steps of one epoch that are not yet taken."""
        examples, settings = self.prepared.training, self.settings
        losses = torch.zeros(EVERY, device=self.steps.device)
        self.prepared.network.train()
        before, share = time.perf_counter(), examples.tokens / self.per_epoch
        for step in range(self.step, self.per_epoch):
            number = (epoch - 1) * self.per_epoch + step + 1
            rate = learning_rate(settings, epoch, number, settings.epochs * self.per_epoch)
            losses[step % EVERY] = self.steps.take(examples.batch(epoch, step), rate)
            last = step + 1 == self.per_epoch
            if last or (step + 1) % EVERY == 0:
                taken = step % EVERY + 1
                self._count(epoch, number, losses[:taken].tolist())
                self.step = step + 1
                self.bar.advance(round(taken * share))
                now = time.perf_counter()
                self.training, before = self.training + now - before, now
                if not last and now - self.saved >= self.save_every:
                    self._save()
                    before = time.perf_counter()

    def _count(self, epoch: int, number: int, losses: list[float]) -> None:
        """The losses of the steps up to a number; one that is no number ends the training."""
        wrong = next((place for place, loss in enumerate(losses) if not math.isfinite(loss)), None)
        if wrong is not None:
            self._stop(f"The loss was no number at step {number - len(losses) + wrong + 1} (epoch {epoch})")
        self.total += sum(losses)
        self.rows.append({"step": number, "epoch": epoch, "loss": sum(losses) / len(losses)})

    def _check_weights(self) -> None:
        """Weights that are no numbers end the training before anything of them is kept."""
        if not all(bool(torch.isfinite(weight).all()) for weight in self.prepared.network.parameters()):
            number = self.epoch * self.per_epoch + self.step
            self._stop(f"The weights were no numbers any more after step {number} (epoch {self.epoch + 1})")

    def _stop(self, why: str) -> None:
        """Ends a training that has gone wrong; the last good epoch is kept, whichever were wanted."""
        if self.good is not None and self.kept != "best":  # the best so far is there already
            epoch, weights = self.good
            self._put(weights)
            folders.write_checkpoint(self.folder, epoch, self.prepared.network, self.prepared.tokenizer)
        state = folders.read_latest(self.folder)
        kept = (
            "no state to go on from was saved yet"
            if state is None
            else f"its last good state, after step {state.facts['number']}, is kept"
        )
        checkpoints = folders.Run(self.folder, self.facts).checkpoints()
        told = f"; the last checkpoint is that of epoch {max(checkpoints)}" if checkpoints else ""
        message = (
            f"{why}, so training stopped: {kept} in {str(self.folder)!r}{told}. A lower learning rate or a smaller "
            "clip usually helps, in another folder."
        )
        folders.write_about(self.folder, {**self.facts, "state": "stopped", "why": message})
        for tracker in self.trackers:
            tracker.end(None, failed=True)
        raise TrainError(message)

    def _close(self, epoch: int) -> None:
        """After an epoch: scores, log, checkpoint, a look inside, freezing, and the state to go on from."""
        network = self.prepared.network
        self._check_weights()
        row: Row = {"epoch": epoch, "step": epoch * self.per_epoch, "seconds": 0.0}
        if epoch:
            number = epoch * self.per_epoch
            row["learning_rate"] = learning_rate(self.settings, epoch, number, self.settings.epochs * self.per_epoch)
            row["train_loss"] = self.total / self.per_epoch
        network.eval()
        began = time.perf_counter()
        scores = self.prepared.task.evaluate(network, self.prepared.valid, self.steps.device, self.settings)
        row.update({f"valid_{name}": value for name, value in scores.items()})
        looked = time.perf_counter()
        if self.watcher is not None:
            self.watcher.look(epoch)
        row.update(
            training_seconds=self.training,
            validation_seconds=looked - began,
            watching_seconds=time.perf_counter() - looked,
        )
        if epoch and self.freezer is not None and self.watcher is not None:
            self._freeze(self.freezer.after(epoch, self.watcher))
            row["frozen"] = self.freezer.layers
        row["seconds"] = self.spent + time.perf_counter() - self.began
        self.log.append(row)
        self.epoch, self.step, self.total, self.training = epoch, 0, 0.0, 0.0
        self.good = epoch, {name: weight.detach().clone() for name, weight in network.named_parameters()}
        self._keep(epoch)
        self._write_tables()
        for tracker in self.trackers:
            tracker.epoch(row)
            tracker.steps(each for each in self.rows if each["epoch"] == epoch)
        self.bar.say(_line(row))
        if epoch == self.settings.epochs or time.perf_counter() - self.saved >= self.save_every:
            self._save()

    def _write_tables(self) -> None:
        folders.write_rows(self.folder / folders.LOG, self.log)
        folders.write_rows(self.folder / folders.STEPS, self.rows)

    def _freeze(self, names: Collection[str]) -> None:
        """Freezes parameters from now on."""
        new = set(names).difference(self.frozen)
        if new:
            for name, parameter in self.prepared.network.named_parameters():
                if name in new:
                    parameter.requires_grad_(False)
            self.frozen += sorted(new)
            self.steps.begin_again()

    def _keep(self, epoch: int) -> None:
        """Keeps the epoch as a checkpoint where it is wanted."""
        last = epoch == self.settings.epochs
        if self.kept == "best":
            none = not folders.Run(self.folder, self.facts).checkpoints()  # as where another choice was made at first
            chosen = self._best() == epoch or (last and none)
        else:
            chosen = last or (self.kept == "all" if isinstance(self.kept, str) else epoch in self.kept)
        if chosen:
            folders.write_checkpoint(self.folder, epoch, self.prepared.network, self.prepared.tokenizer)

    def _best(self) -> int:
        task = self.prepared.task
        return folders.best_epoch(self.log, f"valid_{task.best}", larger=task.larger_is_better)

    def _drop(self) -> None:
        """Drops the checkpoints of epochs that are still to come, and all but the best where that alone is kept.

        The one that was best before goes no sooner than the state to go on from knows of a better one.
        """
        there = folders.Run(self.folder, self.facts).checkpoints()
        done = [row["epoch"] for row in self.log]
        keep = [epoch for epoch in there if epoch in done]
        if self.kept == "best" and keep and self._best() in keep:
            keep = [self._best()]
        for epoch in there:
            if epoch not in keep:
                folders.drop_checkpoint(self.folder, epoch)

    def _save(self) -> None:
        """The state to go on from; one with weights that are no numbers is never written."""
        self._check_weights()
        tensors = {f"network/{name}": weight for name, weight in self.prepared.network.named_parameters()}
        for place, state in self.steps.optimiser.state_dict()["state"].items():
            tensors.update({f"optimiser/{place}/{name}": torch.as_tensor(value) for name, value in state.items()})
        tensors["random/cpu"] = torch.get_rng_state()
        if self.steps.device.type == "cuda":
            tensors["random/cuda"] = torch.cuda.get_rng_state(self.steps.device)
        facts = {
            "epoch": self.epoch,
            "step": self.step,
            "number": self.epoch * self.per_epoch + self.step,
            "total": self.total,
            "training": self.training,
            "seconds": self.spent + time.perf_counter() - self.began,
            "log": self.log,
            "rows": self.rows,
            "frozen": self.frozen,
        }
        folders.write_latest(self.folder, Latest(tensors, facts))
        self._drop()
        self.saved = time.perf_counter()

    def _put(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Puts weights, by the names of the parameters, into the network."""
        with torch.no_grad():
            for name, parameter in self.prepared.network.named_parameters():
                parameter.copy_(weights[name])

    def _restore(self, latest: Latest) -> None:
        """Takes up the state in which an earlier process left off."""
        facts, tensors = latest.facts, latest.tensors
        known = {name.removeprefix("network/"): each.shape for name, each in tensors.items() if name[:8] == "network/"}
        built = {name: weight.shape for name, weight in self.prepared.network.named_parameters()}
        other = [name for name in {**known, **built} if known.get(name) != built.get(name)]
        if other:
            raise TrainError(
                f"The state to go on from in {str(self.folder)!r} is of another network than these libraries build (as "
                f"{min(other)} shows); go on with the versions in its {folders.ABOUT}, or delete {folders.LATEST}, and "
                "training begins from the start."
            )
        self.epoch, self.step, self.total = facts["epoch"], facts["step"], facts["total"]
        self.log, self.rows = list(facts["log"]), list(facts["rows"])
        self.spent, self.training = facts["seconds"], facts["training"]
        self._freeze(facts["frozen"])
        weights = {name.removeprefix("network/"): tensor for name, tensor in tensors.items()}
        self._put(weights)
        if not self.step:
            self.good = self.epoch, {name: weights[name] for name in known}
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimiser/"):
                _, place, key = name.split("/")
                state.setdefault(int(place), {})[key] = tensor
        self.steps.optimiser.load_state_dict({**self.steps.optimiser.state_dict(), "state": state})
        torch.set_rng_state(tensors["random/cpu"])
        if "random/cuda" in tensors and self.steps.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random/cuda"], self.steps.device)
        self.bar.say(f"going on after step {facts['number']:,} (epoch {self.epoch + 1})")

    def _finish(self) -> Run:
        """Scores on the test text, of the best epoch where the best is kept; and the run as finished."""
        run = folders.Run(self.folder, self.facts)
        prepared, scores = self.prepared, dict[str, float]()
        if prepared.test is not None:
            epoch = self.settings.epochs
            if self.kept == "best":
                epoch = max(run.checkpoints())
                _load_weights(prepared.network, run.checkpoint(epoch))
            prepared.network.eval()
            scores = prepared.task.evaluate(prepared.network, prepared.test, self.steps.device, self.settings)
            chance = prepared.task.chance(prepared.test, prepared.training, self.settings)
            ends, resampled = intervals(
                prepared.task, prepared.network, prepared.groups, scores, self.steps.device, self.settings
            )
            told = {"epoch": epoch, "scores": scores, "chance": chance, "interval": ends, "resampled": resampled}
            folders.write_test(self.folder, told)
        for tracker in self.trackers:
            tracker.end(scores)
        folders.write_about(self.folder, {**self.facts, "state": "finished"})
        return Run.open(self.folder)


def _load_weights(network: Any, folder: Path) -> None:
    from safetensors.torch import load_file

    missing, unknown = network.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    tied = set(network.state_dict()).difference(name for name, _ in network.named_parameters())  # stored once
    assert not unknown and set(missing) <= tied, "a checkpoint has the names of its network"


def _line(row: Row) -> str:
    """An epoch in one line."""
    parts = [f"epoch {row['epoch']}"]
    for name, value in row.items():
        if name == "train_loss" or name.startswith("valid_"):
            parts.append(f"{name.replace('_', ' ')} {value:.4g}")
    return "  ".join([*parts, f"{row['seconds']:.0f} s"])
