"""The folder of a training: what it was told, its log, its checkpoints, and what it goes on from after a kill."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.errors import TrainError, listing
from pellucid.saving import whole_folder, write_file
from pellucid.train.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid.model import Model

FORMAT = 1
"""The newest form of run.json that can be read here."""
ABOUT, LOG, STEPS, TEST, LATEST = "run.json", "log.csv", "steps.csv", "test.json", "latest.safetensors"
CHECKPOINTS = "checkpoints"
DYNAMICS = "dynamics"
Row = dict[str, Any]
_LEFT = re.compile(r"\..+\.[0-9a-f]{8}\.part|\.epoch-\d+\.new")
"""Names of what is written before it takes its own name; a kill leaves it behind."""


@dataclass(frozen=True)
class Run:
    """A training on disk; `facts` is all that its run.json says."""

    folder: Path
    facts: Mapping[str, Any]

    @staticmethod
    def open(folder: str | Path) -> Run:
        """The run in a folder, finished or not."""
        place = Path(folder)
        try:
            facts = json.loads((place / ABOUT).read_text(encoding="utf-8"))
            written = facts["format"]
            if written == FORMAT and not {"settings", "state", "labels", "best", "corpora"} <= facts.keys():
                raise ValueError("it lacks what every run has")
        except FileNotFoundError:
            raise TrainError(
                f"{str(place)!r} is not the folder of a training: it has no {ABOUT}; `pellucid train` makes one."
            ) from None
        except (OSError, ValueError, KeyError, TypeError):
            raise TrainError(f"{str(place / ABOUT)!r} is damaged and cannot be read; train again.") from None
        if written != FORMAT:
            newer = isinstance(written, int) and written > FORMAT
            raise TrainError(
                f"The run in {str(place)!r} has format {written}, and this Pellucid reads format {FORMAT}; "
                f"{'update Pellucid' if newer else 'open it with the version that made it'}."
            )
        return Run(place, facts)

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def settings(self) -> Settings:
        return Settings.of_json(self.facts["settings"])

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The classes that the network tells apart, in its order."""
        found = self.facts["labels"]
        return None if found is None else tuple(found)

    @property
    def finished(self) -> bool:
        return self.facts["state"] == "finished"

    @property
    def log(self) -> list[Row]:
        """One row per epoch that is done; epoch 0 is the network before training."""
        return read_rows(self.folder / LOG)

    @property
    def steps(self) -> list[Row]:
        """The mean loss of every few steps."""
        return read_rows(self.folder / STEPS)

    @property
    def test(self) -> Mapping[str, Any] | None:
        """Scores on the test text beside what chance gives, and of which epoch; None where there was no such text."""
        place = self.folder / TEST
        return json.loads(place.read_text(encoding="utf-8")) if place.is_file() else None

    @property
    def best(self) -> int:
        """The epoch with the best score on the validation text."""
        return best_epoch(self.log, f"valid_{self.facts['best']['metric']}", larger=self.facts["best"]["larger"])

    def checkpoints(self) -> dict[int, Path]:
        """The folders of the epochs that were kept, by epoch; each opens with `Model.load`."""
        found = sorted((self.folder / CHECKPOINTS).glob("epoch-*"))
        return {int(place.name.removeprefix("epoch-")): place for place in found}

    def checkpoint(self, epoch: int | None = None) -> Path:
        """The folder of one epoch that was kept (default: the last)."""
        kept = self.checkpoints()
        if not kept:
            raise TrainError(f"The run in {str(self.folder)!r} has kept no epoch yet.")
        wanted = max(kept) if epoch is None else epoch
        if wanted not in kept:
            raise TrainError(
                f"The run in {str(self.folder)!r} did not keep epoch {wanted}; it kept {listing(kept, most=60)}."
            )
        return kept[wanted]

    def model(self, epoch: int | None = None, **options: Any) -> Model:
        """One epoch's network, opened (default: the last that was kept); options are those of `Model.load`."""
        from pellucid.model import Model

        return Model.load(self.checkpoint(epoch), **options)


@dataclass(frozen=True, eq=False)
class Latest:
    """What a killed training goes on from: tensors by name, and small facts that JSON can hold."""

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]


def best_epoch(log: Sequence[Row], metric: str, *, larger: bool) -> int:
    """The epoch whose score is best; of equals the first."""
    rows = [row for row in log if row.get(metric) is not None]
    if not rows:
        raise TrainError(f"No epoch has been scored by {metric} yet.")
    best = (max if larger else min)(rows, key=lambda row: row[metric])
    return int(best["epoch"])


def checkpoint_folder(folder: Path, epoch: int) -> Path:
    return folder / CHECKPOINTS / f"epoch-{epoch:04d}"


def write_about(folder: Path, facts: Mapping[str, Any]) -> None:
    write_file(folder / ABOUT, (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode())


def write_test(folder: Path, scores: Mapping[str, Any]) -> None:
    write_file(folder / TEST, (json.dumps(scores, indent=2) + "\n").encode())


def write_checkpoint(folder: Path, epoch: int, network: Any, tokenizer: Any) -> None:
    """One epoch's network and vocabulary, as a folder that `Model.load` opens; one that is there already stays."""
    place = checkpoint_folder(folder, epoch)
    if place.is_dir():
        return
    from pellucid.model.loading import quiet

    place.parent.mkdir(exist_ok=True)
    with whole_folder(place) as work, quiet():
        network.save_pretrained(work)
        tokenizer.save_pretrained(work)


def drop_checkpoint(folder: Path, epoch: int) -> None:
    shutil.rmtree(checkpoint_folder(folder, epoch), ignore_errors=True)


def leftovers(folder: Path) -> list[Path]:
    """What a killed process left half-written in a run's folder: nothing that is anything yet."""
    places = [place for place in (folder, folder / CHECKPOINTS, folder / DYNAMICS) if place.is_dir()]
    return sorted(item for place in places for item in place.iterdir() if _LEFT.fullmatch(item.name))


def clear_leftovers(folder: Path) -> None:
    """Removes them; only for the one who holds the folder's lock."""
    _remove(leftovers(folder))


def clear_beside(folder: Path) -> None:
    """Removes what was left when a folder of this name was being written and the process was killed."""
    work = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{8}}\.part")
    around = folder.absolute().parent
    if around.is_dir():
        _remove(item for item in around.iterdir() if work.fullmatch(item.name))


def _remove(items: Iterable[Path]) -> None:
    for item in items:
        if item.is_dir():
            shutil.rmtree(item, ignore_errors=True)
        else:
            item.unlink(missing_ok=True)


def write_latest(folder: Path, latest: Latest) -> None:
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in latest.tensors.items()}
    about = json.dumps({"format": FORMAT, **latest.facts})
    write_file(folder / LATEST, save(tensors, {"about": about}))


def read_latest(folder: Path) -> Latest | None:
    """What `write_latest` wrote, or None where nothing was written yet."""
    from safetensors import SafetensorError, safe_open

    place = folder / LATEST
    if not place.is_file():
        return None
    try:
        with safe_open(place, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["about"])
            written = facts["format"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise TrainError(
            f"{str(place)!r} is damaged ({error}); delete it, and training begins from the start."
        ) from None
    if written != FORMAT:
        raise TrainError(
            f"The state to go on from in {str(place)!r} has format {written}, and this Pellucid reads format {FORMAT}; "
            "go on with the version that made it, or delete that file, and training begins from the start."
        )
    return Latest(tensors, facts)


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Rows as a table with the columns of all of them, in the order in which they first appear."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(path, text.getvalue().encode(), durable=False)


def read_rows(path: Path) -> list[Row]:
    """Rows of a table, numbers as numbers; an empty cell is None, and a table that is not there has no rows."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
