"""States: what a collector has gathered so far, as plain arrays that merge, travel between processes and are saved."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.errors import SweepError

Array = np.ndarray[Any, Any]
FORMAT = 1


@dataclass(frozen=True, eq=False)
class State:
    """Arrays by name, and small facts that JSON can hold."""

    arrays: Mapping[str, Array] = field(default_factory=dict[str, Array])
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def bytes(self) -> int:
        """Memory that the arrays take."""
        return sum(array.nbytes for array in self.arrays.values())

    def same(self, other: State) -> bool:
        """Whether two states are equal to the last bit."""
        return (
            json.dumps(self.facts, sort_keys=True) == json.dumps(other.facts, sort_keys=True)
            and self.arrays.keys() == other.arrays.keys()
            and all(
                mine.dtype == other.arrays[name].dtype
                and mine.shape == other.arrays[name].shape
                and mine.tobytes() == other.arrays[name].tobytes()
                for name, mine in self.arrays.items()
            )
        )


def save_states(path: Path, states: Mapping[str, State], *, durable: bool = True) -> None:
    """Several states as one safetensors file, whole or not at all; the same states always give the same bytes."""
    from safetensors.numpy import save

    arrays = {
        f"{name}/{part}": np.ascontiguousarray(state.arrays[part])
        for name, state in sorted(states.items())
        for part in sorted(state.arrays)
    }
    facts = {name: state.facts for name, state in states.items()}
    about = json.dumps({"format": FORMAT, "facts": facts, "check": _checksum(arrays)}, sort_keys=True)
    write_whole(path, save(arrays, {"about": about}), durable=durable)  # several entries would come in any order


def load_states(path: Path) -> dict[str, State]:
    """The states that `save_states` wrote; a damaged file raises."""
    from safetensors import SafetensorError, safe_open

    arrays: dict[str, dict[str, Array]] = {}
    try:
        with safe_open(path, framework="numpy") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["about"])
            if about["format"] > FORMAT:
                raise SweepError(f"{str(path)!r} was written by a newer Pellucid (format {about['format']}); update.")
            facts: dict[str, Any] = about["facts"]
            for name in file.keys():  # noqa: SIM118  # not a mapping
                collector, _, part = name.partition("/")
                arrays.setdefault(collector, {})[part] = file.get_tensor(name)
        whole = {f"{name}/{part}": array for name, parts in arrays.items() for part, array in parts.items()}
        if _checksum(whole) != about["check"]:
            raise ValueError("its content does not fit its checksum")
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise SweepError(
            f"{str(path)!r} is damaged or missing ({error}); delete it, and the sweep will make it again."
        ) from error
    return {name: State(arrays.get(name, {}), facts[name]) for name in facts}


def _checksum(arrays: Mapping[str, Array]) -> int:
    """A checksum over the arrays in the order of their names."""
    value = 0
    for name in sorted(arrays):
        flat = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        value = zlib.crc32(memoryview(flat), value)  # pyright: ignore[reportArgumentType]
    return value


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes a file under a temporary name, then renames it: readers see all of it or nothing, also after a kill."""
    work = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with work.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        work.replace(path)
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        work.unlink(missing_ok=True)
        raise SweepError(
            f"{str(path)!r} could not be written ({error.strerror}); make room or choose another folder, then run the "
            "same command again: what is finished is kept."
        ) from error


def sync_folder(folder: Path) -> None:
    """Makes a rename durable, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
