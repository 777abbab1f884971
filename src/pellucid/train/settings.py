"""Settings: everything that decides what a training gives, beside the text; with defaults for each task and preset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pellucid.errors import TrainError, listing

TASK_NAMES = ("lm", "mlm", "tagger", "translate", "classify", "qa", "nli")
PRESETS = {
    "small": "a small network of today (pre-norm GPT-2 for lm, BERT for the others), byte-pair tokens, AdamW",
    "thesis": "the networks and the training of the thesis on SVCCA and CKA: 240 wide, whole words, SGD in steps",
    "identifiable": "attention whose weights are determined by its output: values as wide as the text is long",
}
OPTIMISERS = ("adamw", "sgd")
SCHEDULES = ("step", "cosine", "constant")
VOCABULARIES = ("word", "bpe")
ROWS = ("stream", "sentences")


@dataclass(frozen=True)
class Settings:
    """What is trained, and how; plain values, so that they go to JSON and back.

    `source` is a model to start from, whose network and vocabulary are kept. `rows` says what one row of a batch is: a
    piece of the running text (`stream`: the text is laid in `batch` columns and read `length` tokens at a time) or a
    sentence (`sentences`, padded). `warmup` and `masked` are shares, of all steps and of all tokens.
    """

    task: str
    preset: str = "small"
    source: str | None = None
    # the network
    layers: int = 4
    width: int = 192
    heads: int = 6
    feed_forward: int = 768
    length: int = 128
    dropout: float = 0.1
    embedding_dropout: float = 0.1
    mask: bool = False
    # the vocabulary
    vocabulary: str = "bpe"
    vocabulary_size: int = 8192
    least: int = 3
    # the data
    label: str | None = None
    rows: str = "sentences"
    masked: float = 0.15
    # the training
    epochs: int = 10
    batch: int = 32
    optimiser: str = "adamw"
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    warmup: float = 0.05
    decay: float = 0.7
    decay_every: int = 4
    weight_decay: float = 0.01
    clip: float = 1.0
    label_smoothing: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        _choose(self.task, TASK_NAMES, "task", "tasks")
        _choose(self.preset, PRESETS, "preset", "presets")
        _choose(self.optimiser, OPTIMISERS, "optimiser", "optimisers")
        _choose(self.schedule, SCHEDULES, "schedule", "schedules")
        _choose(self.vocabulary, VOCABULARIES, "vocabulary", "vocabularies")
        _choose(self.rows, ROWS, "kind of rows", "kinds")
        for name in ("layers", "width", "heads", "feed_forward", "epochs", "batch", "decay_every", "least"):
            if getattr(self, name) < 1:
                raise TrainError(f"{name}={getattr(self, name)} leaves nothing to train; give at least 1.")
        if self.length < 4:
            raise TrainError(f"length={self.length} holds no text beside the special tokens; give at least 4.")
        for name in ("dropout", "embedding_dropout", "masked", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise TrainError(f"{name}={getattr(self, name)} is no share; give at least 0 and less than 1.")
        if not 0 <= self.warmup <= 1:
            raise TrainError(f"warmup={self.warmup} is no share of the steps; give 0 to 1.")
        for name in ("learning_rate", "decay", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise TrainError(f"{name}={getattr(self, name)} cannot be used; give a number over 0.")
        if self.seed < 0:
            raise TrainError(f"seed={self.seed} cannot be used; give 0 or more.")
        if not self.weight_decay >= 0:
            raise TrainError(f"weight_decay={self.weight_decay} would make weights grow; give 0 or more.")
        if self.source is None and self.width % self.heads and self.preset != "identifiable":
            raise TrainError(
                f"A width of {self.width} cannot be shared out among {self.heads} heads; choose a multiple of them."
            )

    @property
    def stacks(self) -> tuple[str, ...]:
        """The stacks of blocks that the network has: one without a name, or an encoder and a decoder."""
        return ("encoder", "decoder") if self.task == "translate" else ("",)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of_json(values: Mapping[str, Any]) -> Settings:
        """Settings as they were written; a field that this version does not know is refused."""
        known = {field.name for field in fields(Settings)}
        unknown = [name for name in values if name not in known]
        if unknown:
            raise TrainError(
                f"The run has a setting {unknown[0]!r}, unknown to this Pellucid: it was made by another version."
            )
        return Settings(**values)


_THESIS: dict[str, Any] = {
    "layers": 6,
    "width": 240,
    "heads": 12,
    "feed_forward": 1024,
    "length": 32,
    "dropout": 0.1,
    "embedding_dropout": 0.5,
    "vocabulary": "word",
    "vocabulary_size": 0,
    "least": 3,
    "epochs": 50,
    "batch": 64,
    "optimiser": "sgd",
    "learning_rate": 5.8,
    "schedule": "step",
    "warmup": 0.0,
    "decay": 0.7,
    "decay_every": 4,
    "weight_decay": 0.0,
    "clip": 0.5,
}
_DEFAULTS: dict[tuple[str, str], dict[str, Any]] = {
    ("small", "lm"): {"mask": True, "rows": "stream", "feed_forward": 768},
    ("small", "mlm"): {"rows": "stream", "epochs": 20},
    ("small", "tagger"): {"layers": 2, "length": 128},
    ("small", "translate"): {"layers": 2, "length": 64, "epochs": 20, "batch": 64, "label_smoothing": 0.1},
    ("small", "classify"): {"layers": 2},
    ("small", "qa"): {"length": 192},
    ("small", "nli"): {},
    ("thesis", "lm"): {"mask": True, "rows": "stream"},
    ("thesis", "mlm"): {"rows": "stream"},
    ("thesis", "tagger"): {
        "layers": 2,
        "heads": 8,
        "mask": True,
        "rows": "stream",
        "learning_rate": 1.8,
        "decay": 0.65,
        "decay_every": 2,
    },
    ("thesis", "translate"): {"rows": "sentences", "optimiser": "adamw", "learning_rate": 5e-4, "length": 64},
    ("thesis", "classify"): {"layers": 2, "heads": 8, "length": 128, "learning_rate": 0.5},
    ("thesis", "qa"): {"layers": 2, "heads": 8, "length": 192, "learning_rate": 0.5},
    ("thesis", "nli"): {"layers": 2, "heads": 8, "length": 128, "learning_rate": 0.5},
    ("identifiable", "lm"): {"mask": True, "rows": "stream", "heads": 4, "width": 128},
    ("identifiable", "tagger"): {"mask": True, "heads": 4, "width": 128, "layers": 2},
    ("identifiable", "classify"): {"mask": True, "heads": 4, "width": 128, "layers": 2},
    ("identifiable", "qa"): {"mask": True, "heads": 4, "width": 192, "length": 192},
    ("identifiable", "nli"): {"mask": True, "heads": 4, "width": 128},
}
_TUNED: dict[str, Any] = {"epochs": 3, "learning_rate": 5e-5, "batch": 32}
"""What changes where training starts from a model that has learned something already."""


def settings_for(task: str, preset: str = "small", **changes: Any) -> Settings:
    """The settings of a task under a preset, with changes; those with a `source` are gentler, as fine-tuning is."""
    _choose(task, TASK_NAMES, "task", "tasks")
    _choose(preset, PRESETS, "preset", "presets")
    known = [field.name for field in fields(Settings)]
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise TrainError(f"There is no setting {unknown[0]!r}; there are {listing(known, most=40)}.")
    defaults = _DEFAULTS.get((preset, task))
    if defaults is None:
        able = [name for kind, name in _DEFAULTS if kind == preset]
        raise TrainError(f"The preset {preset!r} has no network for {task}; it has those for {listing(able)}.")
    common = _THESIS if preset == "thesis" else {}
    tuned = _TUNED if changes.get("source") is not None else {}
    return Settings(task, preset, **{**common, **defaults, **tuned, **changes})


def _choose(given: str, among: Any, what: str, several: str) -> None:
    if given not in among:
        raise TrainError(f"There is no {what} {given!r}; the {several} are {listing(among, most=20)}.")
