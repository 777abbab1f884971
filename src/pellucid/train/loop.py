"""Training from the outside: text and settings in, a run folder out; run again, it goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pellucid.collect.lock import locked
from pellucid.collect.progress import Progress
from pellucid.errors import TrainError, listing
from pellucid.model.loading import usable
from pellucid.train import folder as folders
from pellucid.train.asked import Asked, given_back
from pellucid.train.dynamics_watching import Watcher
from pellucid.train.folder import Run
from pellucid.train.freezing import Freeze, Freezer
from pellucid.train.preparing import Prepared, held_out, prepare
from pellucid.train.settings import Settings
from pellucid.train.steps import Steps
from pellucid.train.trackers import open_trackers
from pellucid.train.training import Training

if TYPE_CHECKING:
    from pellucid.corpus import Corpus

PRECISIONS = ("auto", "float32", "bfloat16")


def train(
    corpus: Corpus,
    settings: Settings,
    folder: str | Path,
    *,
    valid: Corpus | None = None,
    test: Corpus | None = None,
    checkpoints: str | Iterable[int] = "last",
    watch: bool = True,
    freeze: Freeze | None = None,
    trackers: Sequence[str] = (),
    device: str | torch.device | None = None,
    precision: str = "auto",
    recorded: bool | None = None,
    save_every: float = 60.0,
    progress: bool | None = None,
    command: str | None = None,
) -> Run:
    """Trains a network on a corpus and keeps everything about it in a folder; run again, it goes on where it was.

    Without `valid`, every tenth document is held out. `checkpoints` says which epochs to keep: `all`, `best` (by the
    validation score), `last`, or numbers of epochs (0 is the network before training). `watch` keeps what `dynamics`
    compares; `freeze` freezes layers that have settled. `precision` is auto (bfloat16 on a GPU), float32 or bfloat16;
    `recorded` takes steps as a CUDA graph (default: where all batches have one shape). The state is saved every
    `save_every` seconds.
    """
    place = Path(folder)
    asked = Asked.of(checkpoints, epochs=settings.epochs, watch=watch, freeze=freeze, trackers=trackers)
    where = usable(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if precision not in PRECISIONS:
        raise TrainError(f"There is no precision {precision!r}; there are {listing(PRECISIONS)}.")
    half = precision == "bfloat16" or (precision == "auto" and where.type == "cuda")
    if valid is None:
        corpus, valid = held_out(corpus)
    before = _begun(place, corpus, valid, test, settings)
    if before is not None and before.finished:
        return given_back(before, asked, progress=progress)
    now = "bfloat16" if half else "float32"
    if before is not None and before.facts.get("precision", now) != now:
        raise TrainError(
            f"The run in {str(folder)!r} was begun in {before.facts['precision']}, and now it is {now}; go on with "
            f"--precision {before.facts['precision']}, or train in another folder."
        )
    with locked(place), torch.random.fork_rng([where] if where.type == "cuda" else []):
        folders.clear_leftovers(place)
        opened = open_trackers(asked.trackers, place, place.name)
        torch.manual_seed(settings.seed)
        prepared = prepare(corpus, valid, test, settings)
        prepared.network.to(where)
        graph = (where.type == "cuda" and prepared.training.fixed) if recorded is None else recorded
        steps = Steps(prepared.network, _loss(prepared, settings), settings, where, half=half, recorded=graph)
        watcher = None
        if watch:
            watcher = Watcher(
                prepared.network, prepared.tokenizer, valid, place / folders.DYNAMICS, settings, device=where
            )
        freezer = None if freeze is None else Freezer(freeze, prepared.network)
        facts = _facts(prepared, settings, corpus, valid, test, where, half, command) | {"asked": asked.to_json()}
        with Progress(progress) as bar:
            return Training(
                prepared, settings, place, facts, steps, watcher, freezer, opened, asked.checkpoints, bar, save_every
            ).run()


def _begun(folder: Path, corpus: Corpus, valid: Corpus, test: Corpus | None, settings: Settings) -> Run | None:
    """The run that is in the folder already, or None; one of another kind is refused."""
    if not folder.is_dir():
        return None
    parts = folders.leftovers(folder)
    if all(item.name == ".lock" or item in parts for item in folder.iterdir()):  # killed before it began
        return None
    run = Run.open(folder)
    old, new = run.facts["settings"], settings.to_json()
    other = [name for name in new if old.get(name) != new[name]]
    if other:
        raise TrainError(
            f"The run in {str(folder)!r} was begun with {other[0]}={old.get(other[0])!r}, and now it is "
            f"{new[other[0]]!r}; use the same settings to go on, or another folder."
        )
    for split, given in (("training", corpus), ("valid", valid), ("test", test)):
        meant = run.facts["corpora"].get(split)
        if (None if meant is None else meant["fingerprint"]) != (None if given is None else given.fingerprint):
            raise TrainError(
                f"The run in {str(folder)!r} was begun with another {split} text "
                f"({'none' if meant is None else meant['name']}); use the same to go on, or another folder."
            )
    return run


def _loss(prepared: Prepared, settings: Settings) -> Callable[[Any, Any], Any]:
    return lambda network, batch: prepared.task.loss(network, batch, settings)


def _facts(
    prepared: Prepared,
    settings: Settings,
    corpus: Corpus,
    valid: Corpus,
    test: Corpus | None,
    device: torch.device,
    half: bool,
    command: str | None,
) -> dict[str, Any]:
    """What run.json says."""
    import transformers

    from pellucid import __version__

    splits = {"training": (corpus, prepared.training), "valid": (valid, prepared.valid), "test": (test, prepared.test)}
    weights = list(prepared.network.parameters())
    return {
        "format": folders.FORMAT,
        "state": "training",
        "settings": settings.to_json(),
        "labels": None if prepared.labels is None else list(prepared.labels),
        "corpora": {
            name: {
                "name": text.name,
                "fingerprint": text.fingerprint,
                "sentences": examples.sentences,
                "tokens": examples.tokens,
            }
            for name, (text, examples) in splits.items()
            if text is not None and examples is not None
        },
        "best": {"metric": prepared.task.best, "larger": prepared.task.larger_is_better},
        "chance": prepared.task.chance(prepared.valid, prepared.training, settings),
        "network": {
            "class": type(prepared.network).__name__,
            "parameters": sum(weight.numel() for weight in weights),
            "trained": sum(weight.numel() for weight in weights if weight.requires_grad),
            "vocabulary": len(prepared.tokenizer),
        },
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "precision": "bfloat16" if half else "float32",
        "versions": {"pellucid": __version__, "torch": torch.__version__, "transformers": transformers.__version__},
        "command": command,
    }
