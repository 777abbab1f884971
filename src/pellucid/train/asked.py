"""What a training is asked to keep and to tell beside its settings, and whether a finished one has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pellucid.collect.lock import locked
from pellucid.collect.progress import Progress
from pellucid.errors import TrainError, listing
from pellucid.train import folder as folders
from pellucid.train.folder import Run
from pellucid.train.freezing import Freeze
from pellucid.train.trackers import open_trackers

KEPT = ("all", "best", "last")


@dataclass(frozen=True)
class Asked:
    """The epochs to keep (by a word of KEPT, or by number), watching, the rule for freezing, and trackers by name."""

    checkpoints: str | frozenset[int]
    watch: bool
    freeze: Freeze | None
    trackers: tuple[str, ...]

    @staticmethod
    def of(
        checkpoints: str | Iterable[int], *, epochs: int, watch: bool, freeze: Freeze | None, trackers: Iterable[str]
    ) -> Asked:
        """What was asked of a training of so many epochs; what cannot be is refused."""
        if freeze is not None and not watch:
            raise TrainError("Freezing looks at what is watched; leave watching on, or give no rule for freezing.")
        return Asked(_kept(checkpoints, epochs), watch, freeze, tuple(dict.fromkeys(trackers)))

    def to_json(self) -> dict[str, Any]:
        """The same as run.json holds it."""
        named = isinstance(self.checkpoints, str)
        return {
            "checkpoints": self.checkpoints if named else sorted(self.checkpoints),
            "watch": self.watch,
            "freeze": None if self.freeze is None else asdict(self.freeze),
            "trackers": list(self.trackers),
        }


def given_back(run: Run, asked: Asked, *, progress: bool | None) -> Run:
    """A finished run as it is, where it has what is asked of it; what it lacks for good is refused.

    A tracker that it did not have is told everything from the run's tables.
    """
    _check(run, asked)
    before: dict[str, Any] = run.facts.get("asked", {})
    late = [name for name in asked.trackers if name not in before.get("trackers", ())]
    opened = open_trackers(late, run.folder, run.folder.name)
    told = f"The run in {str(run.folder)!r} is finished, so nothing was trained; it kept {_epochs(run.checkpoints())}"
    if opened or folders.leftovers(run.folder):
        with locked(run.folder):
            folders.clear_leftovers(run.folder)
            for tracker in opened:
                tracker.begin(run)
                tracker.end(None if run.test is None else run.test["scores"])
            if opened:
                trackers = [*before.get("trackers", ()), *late]
                folders.write_about(run.folder, {**run.facts, "asked": {**before, "trackers": trackers}})
                told += f", and {listing(late)} was told what its tables hold"
    with Progress(progress) as bar:
        bar.say(f"{told}.")
    return Run.open(run.folder)


def _check(run: Run, asked: Asked) -> None:
    """Refuses to give back a finished run that lacks what is asked of it."""
    before: dict[str, Any] = run.facts.get("asked", {})
    new, place = asked.to_json(), str(run.folder)
    if before.get("checkpoints") != new["checkpoints"]:
        kept = run.checkpoints()
        absent = [epoch for epoch in _wanted(run, asked) if epoch not in kept]
        if absent:
            raise TrainError(
                f"Checkpoints {_written(asked)} were asked for, and the run in {place!r} is finished and kept "
                f"{_epochs(kept)}, not {_epochs(absent)}; train in another folder to have them."
            )
    if asked.watch and not before.get("watch", (run.folder / folders.DYNAMICS).is_dir()):
        raise TrainError(
            f"The run in {place!r} is finished and was not watched, which cannot be made up for; ask for it without "
            "watching (--no-watch), or train in another folder."
        )
    if before and before["freeze"] != new["freeze"]:
        rules = [_rule(each) for each in (before["freeze"], new["freeze"])]
        raise TrainError(
            f"The run in {place!r} is finished and was trained {rules[0]}, and now it is {rules[1]}; ask for the same, "
            "or train in another folder."
        )


def _kept(checkpoints: str | Iterable[int], epochs: int) -> str | frozenset[int]:
    if isinstance(checkpoints, str):
        if checkpoints not in KEPT:
            raise TrainError(f"Checkpoints cannot be kept by {checkpoints!r}; choose {listing(KEPT)} or name epochs.")
        return checkpoints
    wanted = frozenset(checkpoints)
    wrong = [epoch for epoch in sorted(wanted) if not 0 <= epoch <= epochs]
    if wrong:
        raise TrainError(f"There is no epoch {wrong[0]} in a training of {epochs} epochs; name some of 0 to {epochs}.")
    return wanted


def _wanted(run: Run, asked: Asked) -> list[int]:
    """The epochs that a run would have kept, had this been asked from the start."""
    last = run.settings.epochs
    if not isinstance(asked.checkpoints, str):
        return sorted({*asked.checkpoints, last})
    return {"all": list(range(last + 1)), "best": [run.best], "last": [last]}[asked.checkpoints]


def _written(asked: Asked) -> str:
    if isinstance(asked.checkpoints, str):
        return repr(asked.checkpoints)
    return ",".join(str(epoch) for epoch in sorted(asked.checkpoints))


def _rule(freeze: dict[str, Any] | None) -> str:
    if freeze is None:
        return "without freezing"
    return f"with freezing ({', '.join(f'{name}={value}' for name, value in freeze.items())})"


def _epochs(epochs: Iterable[int]) -> str:
    found = sorted(epochs)
    if len(found) > 3 and found[-1] - found[0] == len(found) - 1:
        return f"epochs {found[0]} to {found[-1]}"
    return f"epoch{'s' * (len(found) != 1)} {listing(found)}"
