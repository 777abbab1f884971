"""States: what a collector has gathered so far, as plain arrays that merge, travel between processes and are saved."""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np

from pellucid.errors import SweepError
from pellucid.saving import whole_file, write_file

Array = np.ndarray[Any, Any]
FORMAT = 1
ADVICE = "Then run the same command again: what is finished is kept."
_DTYPES = {
    **{f"F{8 * size}": np.dtype(f"f{size}") for size in (2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": np.dtype(f"u{size}") for size in (1, 2, 4, 8)},
    "BOOL": np.dtype(bool),
}
"""Types of numbers by the names that safetensors files give them."""
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Later:
    """An array that `make` reads or works out, whose type and shape are known before."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    make: Callable[[], Array]

    @property
    def bytes(self) -> int:
        """Memory that it will take."""
        return self.dtype.itemsize * math.prod(self.shape)


class Deferred(Mapping[str, Array]):
    """Arrays by name that are made when they are asked for, each time anew: so a state may be larger than memory."""

    def __init__(self, parts: Mapping[str, Later]) -> None:
        self.parts = parts

    def __getitem__(self, name: str) -> Array:
        return self.parts[name].make()

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, ({name: np.array(array) for name, array in self.items()},)  # another machine has not our files


def later(arrays: Mapping[str, Array], name: str) -> Later:
    """One of some arrays, not yet made where they are deferred."""
    if isinstance(arrays, Deferred):
        return arrays.parts[name]
    array = arrays[name]
    return Later(array.dtype, array.shape, lambda: array)


def under(arrays: Mapping[str, Array], head: str) -> Mapping[str, Array]:
    """The arrays named `HEAD/NAME`, by NAME; deferred where they are."""
    names = {name[len(head) + 1 :]: name for name in arrays if name.startswith(f"{head}/")}
    if isinstance(arrays, Deferred):
        return Deferred({short: arrays.parts[name] for short, name in names.items()})
    return {short: arrays[name] for short, name in names.items()}


@dataclass(frozen=True, eq=False)
class State:
    """Arrays by name, and small facts that JSON can hold."""

    arrays: Mapping[str, Array] = field(default_factory=dict[str, Array])
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def bytes(self) -> int:
        """Memory that the arrays take, or would take."""
        return sum(later(self.arrays, name).bytes for name in self.arrays)

    def same(self, other: State) -> bool:
        """Whether two states are equal to the last bit."""
        return (
            json.dumps(self.facts, sort_keys=True) == json.dumps(other.facts, sort_keys=True)
            and self.arrays.keys() == other.arrays.keys()
            and all(
                mine.dtype == its.dtype and mine.shape == its.shape and mine.tobytes() == its.tobytes()
                for mine, its in ((self.arrays[name], other.arrays[name]) for name in self.arrays)
            )
        )


class _File:
    """A file that stays open, even when its name is gone, for as long as one of its arrays may be asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def __del__(self) -> None:
        self.file.close()

    def later(self, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> Later:
        """The array that begins at a byte."""
        return Later(dtype, shape, partial(self._read, dtype, shape, start))

    def _read(self, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> Array:
        """Maps the array into memory: only what is looked at is read, and it is let go with the array."""
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.asarray(np.memmap(self.file, dtype, "r", start, shape))


def put_away(arrays: Mapping[str, Array], folder: Path) -> Deferred:
    """The same arrays in a file without a name in a folder; the disk has room again when nobody asks for them."""
    try:
        file = TemporaryFile(dir=folder if folder.is_dir() else None)  # noqa: SIM115  # closed with its last array
        kept, parts = _File(file), dict[str, Later]()  # pyright: ignore[reportArgumentType]
        for name, array in arrays.items():
            parts[name] = kept.later(array.dtype, array.shape, file.tell())
            file.write(_flat(array))
        file.flush()
    except OSError as error:
        raise SweepError(f"{str(folder)!r} has no room for statistics ({error.strerror}). {ADVICE}") from error
    return Deferred(parts)


def save_states(path: Path, states: Mapping[str, State], *, durable: bool = True) -> None:
    """Several states as one safetensors file, whole or not at all; the same states always give the same bytes.

    Arrays are made and written one after another: deferred ones are never in memory together.
    """
    parts = {f"{name}/{part}": later(state.arrays, part) for name, state in states.items() for part in state.arrays}
    facts = {name: state.facts for name, state in states.items()}
    check = zlib.crc32(json.dumps(facts, sort_keys=True).encode())
    places = _places(parts)
    size = -(-len(_header(parts, places, facts, 2**32)) // 8) * 8  # room for the largest checksum, which comes last
    with whole_file(path, durable=durable, advice=ADVICE) as file:
        file.write(struct.pack("<Q", size))
        for name in sorted(parts):
            flat = _flat(parts[name].make())
            check = zlib.crc32(flat, check)
            file.seek(8 + size + places[name])
            file.write(flat)
        file.seek(8)
        file.write(_header(parts, places, facts, check).ljust(size))


def _places(parts: Mapping[str, Later]) -> dict[str, int]:
    """Where each array begins: large types first, so that all lie at multiples of their size."""
    places, place = dict[str, int](), 0
    for name in sorted(parts, key=lambda name: (-parts[name].dtype.itemsize, name)):
        places[name] = place
        place += parts[name].bytes
    return places


def _header(parts: Mapping[str, Later], places: Mapping[str, int], facts: Mapping[str, Any], check: int) -> bytes:
    """The opening of a safetensors file; our own words are one entry of its metadata."""
    about = json.dumps({"format": FORMAT, "facts": facts, "check": check}, sort_keys=True)
    told: dict[str, Any] = {"__metadata__": {"about": about}}
    for name, start in places.items():
        part = parts[name]
        if part.dtype not in _CODES:
            raise SweepError(f"The array {name!r} holds {part.dtype}, which cannot be saved; keep numbers in states.")
        ends = [start, start + part.bytes]
        told[name] = {"dtype": _CODES[part.dtype], "shape": list(part.shape), "data_offsets": ends}
    return json.dumps(told).encode()


def load_states(path: Path, *, on_disk: bool = False) -> dict[str, State]:
    """The states that `save_states` wrote; a damaged file raises.

    `on_disk` leaves the arrays where they are: each is read when it is asked for, also when the file has been removed.
    """
    read: dict[str, Array] = {}
    try:
        file = _File(path.open("rb"))
        about, there = _opening(file, path)
        facts: dict[str, Any] = about["facts"]
        check = zlib.crc32(json.dumps(facts, sort_keys=True).encode())
        for name in sorted(there):
            array = there[name]
            if not on_disk:
                array = read[name] = np.array(array)
            check = zlib.crc32(_flat(array), check)
        if check != about["check"]:
            raise ValueError("its content does not fit its checksum")
    except (OSError, KeyError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise SweepError(
            f"{str(path)!r} is damaged or missing ({error}); delete it, and the sweep will make it again."
        ) from error
    return {name: State(under(there if on_disk else read, name), facts[name]) for name in facts}


def _opening(file: _File, path: Path) -> tuple[dict[str, Any], Deferred]:
    """What a file of states tells of itself, and its arrays."""
    size = os.fstat(file.file.fileno()).st_size
    (length,) = struct.unpack("<Q", file.file.read(8))
    if 8 + length > size:
        raise ValueError("it ends too early")
    told: dict[str, Any] = json.loads(file.file.read(length))
    about: dict[str, Any] = json.loads(told.pop("__metadata__")["about"])
    if about["format"] > FORMAT:
        raise SweepError(f"{str(path)!r} was written by a newer Pellucid (format {about['format']}); update.")
    parts: dict[str, Later] = {}
    for name, each in told.items():
        begin, end = each["data_offsets"]
        parts[name] = file.later(_DTYPES[each["dtype"]], tuple(each["shape"]), 8 + length + begin)
        if parts[name].bytes != end - begin or 8 + length + end > size:
            raise ValueError("it ends too early")
    return about, Deferred(parts)


def _flat(array: Array) -> Any:
    """The bytes of an array, in C order."""
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # pyright: ignore[reportArgumentType]


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes a file of a sweep or a store, all of it or nothing, also when killed."""
    write_file(path, content, durable=durable, advice=ADVICE)
