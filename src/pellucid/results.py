"""Results: what every analysis returns. Numbers with named axes, what chance gives, an interval, and their origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from pellucid.errors import PellucidError, listing
from pellucid.provenance import Provenance as Provenance
from pellucid.provenance import versions as versions
from pellucid.saving import write_file, write_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Array = np.ndarray[Any, Any]
Coordinate = str | int | float
Axes = Mapping[str, tuple[Coordinate, ...]]

FORMAT = 1
ABOUT, ARRAYS = "result.json", "arrays.safetensors"
WIDTH = 7.2
"""Width of a figure in inches that fills a report's column."""

_PACKAGES = (
    "pellucid.overview",
    "pellucid.heads",
    "pellucid.identifiability",
    "pellucid.neurons",
    "pellucid.similarity",
    "pellucid.attribution",
    "pellucid.train",
)
"""The packages whose analyses define kinds of results."""

_CELLS = ("values", "null", "low", "high")


class ResultError(PellucidError):
    """A result that cannot be made, saved or read, or does not have what was asked of it."""


@dataclass(frozen=True, eq=False)
class Table:
    """Further numbers or texts that belong to a result: columns, each an array whose axes are `axes`, in that order."""

    axes: Axes
    columns: Mapping[str, Array]

    def __post_init__(self) -> None:
        _settle_axes(self)
        columns = {name: _frozen(column) for name, column in self.columns.items()}
        for name, column in columns.items():
            _check_shape(f"the column {name!r}", column, self.axes)
            if column.dtype.kind == "f":
                _check_finite(f"the column {name!r}", column, self.axes)
        object.__setattr__(self, "columns", columns)

    def to_frame(self) -> DataFrame:
        """One row per cell: a column for every axis, then the table's own."""
        return _frame(self.axes, self.columns)

    @staticmethod
    def of_rows(columns: Mapping[str, Any]) -> Table:
        """A table of plain rows, numbered from 1."""
        arrays = {name: np.asarray(column) for name, column in columns.items()}
        length = len(next(iter(arrays.values())))
        empty = {name: np.empty(0, dtype="U1") if not length else column for name, column in arrays.items()}
        return Table({"row": tuple(range(1, length + 1))}, empty)


@dataclass(frozen=True, eq=False)
class Result:
    """What an analysis found: `values` with named `axes` (name → coordinates, in the array's order).

    `null` is what chance gives for every cell and [`low`, `high`] an interval; each has the shape of `values`, or is
    None. `resampled` names the unit whose resampling gave the interval, or says why there is none. A first axis called
    `measure` holds several measures of the same things. `tables` holds what has other axes, by name.
    """

    kind: ClassVar[str]
    title: ClassVar[str] = ""
    phrases: ClassVar[Mapping[str, str]] = {}
    """One phrase per measure: what it is, and its unit."""
    chance: ClassVar[str] = "chance"
    """What `null` is, in a few words."""
    gaps: ClassVar[bool] = False
    """Whether things may be missing, such as heads that a layer has lost: all of their measures are NaN."""

    axes: Axes
    values: Array
    null: Array | None
    low: Array | None
    high: Array | None
    resampled: str
    provenance: Provenance
    tables: Mapping[str, Table] = field(default_factory=dict[str, Table])

    _kinds: ClassVar[dict[str, type[Result]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            Result._kinds[cls.kind] = cls

    def __post_init__(self) -> None:
        _settle_axes(self)
        missing = np.isnan(self.values).all(0, keepdims=True) if self.gaps and np.ndim(self.values) else False
        for name in _CELLS:
            given = getattr(self, name)
            if given is not None:
                array = _frozen(np.asarray(given, dtype=np.float64))
                _check_shape(f"{name!r}", array, self.axes)
                _check_finite(f"{name!r}", np.where(missing, 0.0, array), self.axes)
                object.__setattr__(self, name, array)
        if (self.low is None) != (self.high is None):
            raise ResultError("A result has both ends of its interval, or neither.")
        if not self.resampled:
            raise ResultError("A result names the unit that its interval resampled, or says why there is no interval.")

    @property
    def measures(self) -> Mapping[str, str]:
        """One phrase for each of the result's measures."""
        return type(self).phrases

    def measure(self, name: str) -> Array:
        """The values of one measure, without the measure axis."""
        return self.values[self.place("measure", name)]

    def place(self, axis: str, coordinate: Coordinate) -> int:
        """Where a coordinate stands on an axis."""
        if axis not in self.axes:
            raise ResultError(f"This {self.kind!r} result has no axis {axis!r}; it has {listing(self.axes)}.")
        if coordinate not in self.axes[axis]:
            raise ResultError(
                f"There is no {axis} {coordinate!r} in this {self.kind!r} result; it has {listing(self.axes[axis])}."
            )
        return self.axes[axis].index(coordinate)

    def table(self, name: str) -> Table:
        """One of the result's tables."""
        if name not in self.tables:
            raise ResultError(f"This {self.kind!r} result has no table {name!r}; it has {listing(self.tables)}.")
        return self.tables[name]

    def to_frame(self) -> DataFrame:
        """One row per cell: a column for every axis, then value, null, low and high (missing where there is none)."""
        return _frame(self.axes, self._cells())

    def plot(self, *, width: float = WIDTH) -> Figure:
        """The result as a matplotlib figure, `width` inches wide."""
        from pellucid.views import draw

        return draw(self, width=width)

    def save(self, folder: str | Path) -> Path:
        """Writes a new folder with `result.json` and `arrays.safetensors`, whole or not at all."""
        from safetensors.numpy import save

        about = json.dumps(self._about(), indent=2, ensure_ascii=False) + "\n"
        arrays = {name: np.ascontiguousarray(array) for name, array in sorted(self._numbers().items())}
        write_folder(Path(folder), {ABOUT: about.encode(), ARRAYS: save(arrays)})
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The result that `save` wrote; `Result.load` opens every kind, a kind's own `load` only that one."""
        about = read_about(folder)
        known = kinds()
        kind = about.get("kind")
        if kind == "run":
            raise ResultError(f"{str(folder)!r} is a recorded run, not a result; look at it with `pellucid show`.")
        if kind not in known:
            raise ResultError(
                f"{str(folder)!r} holds a {kind!r}, which is no kind of result; the kinds are {listing(sorted(known))}."
            )
        found = known[kind]
        if not issubclass(found, cls):
            raise ResultError(f"{str(folder)!r} holds a {kind!r} result, not a {cls.kind!r} one; use Result.load.")
        return _restore(found, about, Path(folder))

    def save_table(self, path: str | Path) -> Path:
        """Writes the rows of `to_frame` as a CSV file."""
        write_file(Path(path), csv_of(self.axes, self._cells()))
        return Path(path)

    def same(self, other: Result) -> bool:
        """Whether two results are equal to the last bit."""
        mine, theirs = self._numbers(), other._numbers()
        return (
            type(self) is type(other)
            and json.dumps(self._about()) == json.dumps(other._about())
            and mine.keys() == theirs.keys()
            and all(
                array.dtype == theirs[name].dtype and array.tobytes() == theirs[name].tobytes()
                for name, array in mine.items()
            )
        )

    def to_json(self) -> dict[str, Any]:
        """All of the result as one JSON object; the numbers are nested lists."""
        told = self._about()
        told.update({name: None if cell is None else _plain(cell) for name, cell in self._cells().items()})
        for name, table in self.tables.items():
            told["tables"][name]["columns"] = {column: array.tolist() for column, array in table.columns.items()}
        return told

    def _cells(self) -> dict[str, Array | None]:
        return {"value": self.values, "null": self.null, "low": self.low, "high": self.high}

    def _about(self) -> dict[str, Any]:
        """What `result.json` holds: everything but the numbers."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "title": self.title,
            "axes": {name: list(coordinates) for name, coordinates in self.axes.items()},
            "resampled": self.resampled,
            "tables": {
                name: {
                    "axes": {axis: list(coordinates) for axis, coordinates in table.axes.items()},
                    "columns": {
                        column: array.tolist() if array.dtype.kind == "U" else str(array.dtype)
                        for column, array in table.columns.items()
                    },
                }
                for name, table in self.tables.items()
            },
            "provenance": self.provenance.to_json(),
        }

    def _numbers(self) -> dict[str, Array]:
        """What `arrays.safetensors` holds."""
        cells = {name: getattr(self, name) for name in _CELLS if getattr(self, name) is not None}
        columns = {
            f"{name}/{column}": array
            for name, table in self.tables.items()
            for column, array in table.columns.items()
            if array.dtype.kind != "U"
        }
        return {**cells, **columns}


def kinds() -> dict[str, type[Result]]:
    """Every kind of result: those of the analyses, and those that the user's own modules define."""
    for package in _PACKAGES:
        import_module(package)
    return dict(Result._kinds)  # pyright: ignore[reportPrivateUsage]


def read_about(folder: str | Path) -> dict[str, Any]:
    """The content of a folder's `result.json`, of any kind; a missing, damaged or newer one raises."""
    path = Path(folder) / ABOUT
    if not path.is_file():
        raise ResultError(f"There is no saved result in {str(folder)!r}: it has no {ABOUT}.")
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        format_number = int(about["format"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error
    if format_number > FORMAT:
        raise ResultError(
            f"{str(folder)!r} was saved by a newer Pellucid (format {format_number}, this one reads {FORMAT}); update."
        )
    return cast("dict[str, Any]", about)


def read_arrays(folder: str | Path) -> dict[str, Array]:
    """The arrays of a folder's `arrays.safetensors`."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = Path(folder) / ARRAYS
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise _damaged(path, error) from error


def csv_of(axes: Axes, columns: Mapping[str, Array | None]) -> bytes:
    """Cells as the bytes of a CSV file: a column for every axis, then those given; empty where there is no number."""
    import csv
    import io
    from itertools import product

    flat = [[""] * _size(axes) if column is None else column.ravel().tolist() for column in columns.values()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*axes, *columns])
    for place, row in zip(product(*axes.values()), zip(*flat, strict=True), strict=True):
        writer.writerow([*place, *row])
    return text.getvalue().encode()


def _restore(kind: type[Any], about: Mapping[str, Any], folder: Path) -> Any:
    arrays = read_arrays(folder)
    try:
        tables = {
            name: Table(
                _axes(told["axes"]),
                {
                    column: np.asarray(content, dtype=np.str_)
                    if isinstance(content, list)
                    else arrays[f"{name}/{column}"]
                    for column, content in told["columns"].items()
                },
            )
            for name, told in about["tables"].items()
        }
        cells = {name: arrays.get(name) for name in _CELLS}
        if cells["values"] is None:
            raise KeyError("values")
        provenance = Provenance.of_json(about["provenance"])
        return kind(
            axes=_axes(about["axes"]), **cells, resampled=about["resampled"], provenance=provenance, tables=tables
        )
    except (KeyError, TypeError, ValueError, AttributeError, ResultError) as error:
        raise _damaged(folder, error) from error


def _damaged(path: Path, error: Exception) -> ResultError:
    return ResultError(f"{str(path)!r} is damaged ({type(error).__name__}: {error}); make the result again.")


def _axes(told: Mapping[str, Any]) -> Axes:
    return {name: tuple(coordinates) for name, coordinates in told.items()}


def _settle_axes(holder: Result | Table) -> None:
    """Coordinates as plain Python values, so that they are the same before saving and after."""
    axes = {
        name: tuple(item.item() if isinstance(item, np.generic) else item for item in coordinates)
        for name, coordinates in holder.axes.items()
    }
    object.__setattr__(holder, "axes", axes)


def _frozen(array: Array) -> Array:
    """A copy that cannot be written to; texts as NumPy's own strings."""
    copy = np.array(array, dtype=np.str_) if array.dtype.kind in "OU" else np.array(array, order="C")
    copy.setflags(write=False)
    return copy


def _plain(array: Array) -> list[Any]:
    """Nested lists, with None for what is missing."""
    plain = array.astype(object)
    plain[np.isnan(array)] = None
    return plain.tolist()


def _size(axes: Axes) -> int:
    return int(np.prod([len(coordinates) for coordinates in axes.values()], dtype=np.int64))


def _check_shape(what: str, array: Array, axes: Axes) -> None:
    shape = tuple(len(coordinates) for coordinates in axes.values())
    if array.shape != shape:
        named = ", ".join(f"{name}: {size}" for name, size in zip(axes, shape, strict=True))
        raise ResultError(f"{what} has the shape {list(array.shape)}, but the axes are {named}.")


def _check_finite(what: str, array: Array, axes: Axes) -> None:
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        place = ", ".join(f"{name} {axes[name][at]}" for name, at in zip(axes, bad[0].tolist(), strict=True))
        raise ResultError(
            f"{what} is not a number in {len(bad)} of {array.size} cells, first at {place}: leave out what was not "
            "measured, or say why."
        )


def _frame(axes: Axes, columns: Mapping[str, Array | None]) -> DataFrame:
    import pandas as pd

    grid = np.indices([len(coordinates) for coordinates in axes.values()]).reshape(len(axes), -1)
    places = {
        name: np.asarray(coordinates, dtype=object)[at]
        for (name, coordinates), at in zip(axes.items(), grid, strict=True)
    }
    cells = {name: np.full(_size(axes), np.nan) if array is None else array.ravel() for name, array in columns.items()}
    return pd.DataFrame({**places, **cells}).infer_objects()
