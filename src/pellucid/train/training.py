"""A training under way: epochs of steps, each evaluated, logged, watched and kept; a kill costs at most a minute."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pellucid.errors import TrainError
from pellucid.train import folder as folders
from pellucid.train.folder import Latest, Row, Run
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
        self.began = self.saved = time.perf_counter()

    def run(self) -> Run:
        """All that is left to do."""
        latest = folders.read_latest(self.folder)
        folders.write_about(self.folder, self.facts)
        if latest is not None:
            self._restore(latest)
            self._write_tables()
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
            self._stop(epoch, number - len(losses) + wrong + 1)
        self.total += sum(losses)
        self.rows.append({"step": number, "epoch": epoch, "loss": sum(losses) / len(losses)})

    def _stop(self, epoch: int, number: int) -> None:
        good = folders.read_latest(self.folder)
        kept = (
            "nothing was kept" if good is None else f"its last good state, after step {good.facts['number']}, is kept"
        )
        checkpoints = folders.Run(self.folder, self.facts).checkpoints()
        told = f"; the last checkpoint is that of epoch {max(checkpoints)}" if checkpoints else ""
        message = (
            f"The loss was no number at step {number} (epoch {epoch}), so training stopped: {kept} in "
            f"{str(self.folder)!r}{told}. A lower learning rate or a smaller clip usually helps."
        )
        folders.write_about(self.folder, {**self.facts, "state": "stopped", "why": message})
        raise TrainError(message)

    def _close(self, epoch: int) -> None:
        """After an epoch: scores, log, checkpoint, a look inside, freezing, and the state to go on from."""
        network = self.prepared.network
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
        network, tokenizer = self.prepared.network, self.prepared.tokenizer
        if self.kept == "best":
            task = self.prepared.task
            if folders.best_epoch(self.log, f"valid_{task.best}", larger=task.larger_is_better) == epoch:
                folders.write_checkpoint(self.folder, epoch, network, tokenizer)
                for other in folders.Run(self.folder, self.facts).checkpoints():
                    if other != epoch:
                        folders.drop_checkpoint(self.folder, other)
            return
        chosen = self.kept == "all" if isinstance(self.kept, str) else epoch in self.kept
        if chosen or epoch == self.settings.epochs:
            folders.write_checkpoint(self.folder, epoch, network, tokenizer)

    def _save(self) -> None:
        """The state to go on from; one with weights that are no numbers is never written."""
        weights = dict(self.prepared.network.named_parameters())
        if not all(bool(torch.isfinite(weight).all()) for weight in weights.values()):
            self._stop(self.epoch + 1, self.epoch * self.per_epoch + self.step + 1)
        tensors = {f"network/{name}": weight for name, weight in weights.items()}
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
        self.saved = time.perf_counter()

    def _restore(self, latest: Latest) -> None:
        """Takes up the state in which an earlier process left off."""
        facts, tensors = latest.facts, latest.tensors
        self.epoch, self.step, self.total = facts["epoch"], facts["step"], facts["total"]
        self.log, self.rows = list(facts["log"]), list(facts["rows"])
        self.spent, self.training = facts["seconds"], facts["training"]
        self._freeze(facts["frozen"])
        with torch.no_grad():
            for name, parameter in self.prepared.network.named_parameters():
                parameter.copy_(tensors[f"network/{name}"])
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimiser/"):
                _, place, key = name.split("/")
                state.setdefault(int(place), {})[key] = tensor
        self.steps.optimiser.load_state_dict({**self.steps.optimiser.state_dict(), "state": state})
        torch.set_rng_state(tensors["random/cpu"])
        if "random/cuda" in tensors and self.steps.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random/cuda"], self.steps.device)
        for epoch in folders.Run(self.folder, self.facts).checkpoints():
            if epoch > self.epoch:
                folders.drop_checkpoint(self.folder, epoch)
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
            folders.write_test(self.folder, {"epoch": epoch, "scores": scores, "chance": chance})
        for tracker in self.trackers:
            tracker.end(scores)
        folders.write_about(self.folder, {**self.facts, "state": "finished"})
        return Run.open(self.folder)


def _load_weights(network: Any, folder: Path) -> None:
    from safetensors.torch import load_file

    network.load_state_dict(load_file(folder / "model.safetensors"), strict=False)  # tied weights are stored once


def _line(row: Row) -> str:
    """An epoch in one line."""
    parts = [f"epoch {row['epoch']}"]
    for name, value in row.items():
        if name == "train_loss" or name.startswith("valid_"):
            parts.append(f"{name.replace('_', ' ')} {value:.4g}")
    return "  ".join([*parts, f"{row['seconds']:.0f} s"])
