"""States: what a collector has gathered so far, as plain arrays that merge, travel between processes and are saved."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.errors import SweepError
from pellucid.saving import write_file

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
    about = json.dumps({"format": FORMAT, "facts": facts, "check": _checksum(arrays, facts)}, sort_keys=True)
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
        if _checksum(whole, facts) != about["check"]:
            raise ValueError("its content does not fit its checksum")
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise SweepError(
            f"{str(path)!r} is damaged or missing ({error}); delete it, and the sweep will make it again."
        ) from error
    return {name: State(arrays.get(name, {}), facts[name]) for name in facts}


def _checksum(arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> int:
    """A checksum over the facts, and the arrays in the order of their names."""
    value = zlib.crc32(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(arrays):
        flat = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        value = zlib.crc32(memoryview(flat), value)  # pyright: ignore[reportArgumentType]
    return value


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes a file of a sweep or a store, all of it or nothing, also when killed."""
    write_file(path, content, durable=durable, advice="Then run the same command again: what is finished is kept.")
