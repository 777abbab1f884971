"""Looks on disk: what is kept of a network at each epoch of its training, and reading it again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pellucid.collect.collector import ModelFacts, Setting, collector_of
from pellucid.collect.found import SENTENCES, Found, KeptSentences, facts_of_json, facts_to_json, found_of
from pellucid.collect.sample import TokenSample, TokenSampleView
from pellucid.collect.state import Array, State, load_states, save_states
from pellucid.errors import TrainError, listing
from pellucid.saving import whole_folder, write_file
from pellucid.train.folder import DYNAMICS

FORMAT = 1
ABOUT, LOOK = "dynamics.json", "look.json"
MOMENTS, SAMPLE, PATTERNS = "moments.safetensors", "sample.safetensors", "patterns.safetensors"
_EPOCH, _PILOT = "epoch-", "pilot-"


@dataclass(frozen=True)
class Look:
    """One epoch: the network's facts at that time, and the files that hold what was gathered of it."""

    epoch: int
    folder: Path
    model: ModelFacts
    sample_hash: str

    def patterns(self) -> dict[str, Array]:
        """Attention weights [heads, tokens, tokens] in float32 on the sentence of the pictures, by site."""
        place = self.folder / PATTERNS
        if not place.is_file():
            return {}
        return {name: array.astype(np.float32) for name, array in load_states(place)["patterns"].arrays.items()}


@dataclass(frozen=True)
class Looks:
    """The folder of all looks; `about` is everything that the epochs have in common."""

    folder: Path
    about: Mapping[str, Any]

    @staticmethod
    def open(folder: str | Path) -> Looks:
        """The looks in the folder of a run, or in its `dynamics`."""
        given = Path(folder)
        place = given if (given / ABOUT).is_file() else given / DYNAMICS
        try:
            about: dict[str, Any] = json.loads((place / ABOUT).read_text(encoding="utf-8"))
            written = about["format"]
        except FileNotFoundError:
            raise TrainError(
                f"{str(given)!r} holds nothing of how a network learned: it has no {DYNAMICS}/{ABOUT}; give the folder "
                "of a training that was watched."
            ) from None
        except (OSError, ValueError, KeyError, TypeError):
            raise TrainError(f"{str(place / ABOUT)!r} is damaged and cannot be read; train again.") from None
        if written != FORMAT:
            raise TrainError(
                f"The looks in {str(place)!r} have format {written}, and this Pellucid reads format {FORMAT}; open "
                "them with the version that made them."
            )
        return Looks(place, about)

    @staticmethod
    def begin(folder: Path, about: Mapping[str, Any], sentences: KeptSentences) -> Looks:
        """A new folder of looks; what names it is written last."""
        folder.mkdir(parents=True, exist_ok=True)
        told = {**about, "format": FORMAT}
        write_file(folder / SENTENCES, sentences.to_bytes())
        write_file(folder / ABOUT, (json.dumps(told, sort_keys=True, ensure_ascii=False) + "\n").encode())
        return Looks(folder, json.loads(json.dumps(told)))

    @cached_property
    def sentences(self) -> KeptSentences:
        """The sentences that sampled words stand in."""
        return KeptSentences.read(self.folder / SENTENCES)

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that were looked at, rising."""
        found = (place.parent.name for place in self.folder.glob(f"{_EPOCH}*/{LOOK}"))
        return tuple(sorted(int(name.removeprefix(_EPOCH)) for name in found))

    def place(self, epoch: int) -> Path:
        """The folder of one epoch."""
        return self.folder / f"{_EPOCH}{epoch:04d}"

    def look(self, epoch: int) -> Look:
        """What is kept of one epoch."""
        place = self.place(epoch)
        if not (place / LOOK).is_file():
            raise TrainError(
                f"Epoch {epoch} was not looked at in {str(self.folder)!r}; there are {listing(self.epochs, most=60)}."
            )
        try:
            told: dict[str, Any] = json.loads((place / LOOK).read_text(encoding="utf-8"))
            return Look(epoch, place, facts_of_json(told["model"]), told["sample"])
        except (OSError, ValueError, KeyError, TypeError):
            raise TrainError(
                f"{str(place / LOOK)!r} is damaged and cannot be read; look at that epoch again."
            ) from None

    def found(self, epoch: int) -> Found:
        """One epoch's moments and sample, as a sweep over the validation text gives them."""
        look = self.look(epoch)
        held = {**load_states(look.folder / SAMPLE), **load_states(look.folder / MOMENTS)}
        states = {name: state for name, state in held.items() if not name.startswith(_PILOT)}
        pilots = {name.removeprefix(_PILOT): state for name, state in held.items() if name.startswith(_PILOT)}
        about = {**self.about, "models": [facts_to_json(look.model)]}
        return found_of(about, states, pilots, self.sentences)

    def sample(self, epoch: int) -> tuple[Look, TokenSampleView]:
        """One epoch's sampled words alone."""
        look = self.look(epoch)
        name, state = next(iter(load_states(look.folder / SAMPLE).items()))
        setting = Setting((look.model,), self.about["reading"]["pooling"], torch.device("cpu"))
        return look, collector_of(self.about["collectors"][name]).view(state, setting)

    def write(self, epoch: int, found: Found, patterns: Mapping[str, Array]) -> Look:
        """Keeps one epoch, whole or not at all; an earlier look at it is replaced."""
        place = self.place(epoch)
        sample = next(name for name, each in found.collectors.items() if isinstance(each, TokenSample))
        others = {name: state for name, state in found.states.items() if name != sample}
        others |= {f"{_PILOT}{name}": state for name, state in found.pilots.items()}
        told = {"epoch": epoch, "model": facts_to_json(found.models[0]), "sample": sample_hash(found.states[sample])}
        fresh = place.with_name(f".{place.name}.new")  # where a kill leaves it, it is not taken for an epoch
        shutil.rmtree(fresh, ignore_errors=True)
        with whole_folder(fresh) as work:
            save_states(work / SAMPLE, {sample: found.states[sample]}, durable=False)
            save_states(work / MOMENTS, others, durable=False)
            if patterns:
                arrays = {name: weights.astype(np.float16) for name, weights in patterns.items()}
                save_states(work / PATTERNS, {"patterns": State(arrays)}, durable=False)
            (work / LOOK).write_text(json.dumps(told, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        shutil.rmtree(place, ignore_errors=True)
        fresh.rename(place)
        return self.look(epoch)


def sample_hash(state: State) -> str:
    """A hash of which words a sample holds."""
    order = np.argsort(state.arrays["ordinal"], kind="stable")
    hashed = blake2b(digest_size=16)
    for name in ("hash", "ordinal", "sentence", "position"):
        hashed.update(np.ascontiguousarray(state.arrays[name][order]).tobytes())
    return hashed.hexdigest()
