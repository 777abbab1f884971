"""The activation store: a folder of immutable shards that reads one layer, one neuron or a slice without the rest."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.collect.collector import ModelFacts
from pellucid.collect.found import facts_of_json, sentence_of_json
from pellucid.collect.keep import DTYPES, SHARDS
from pellucid.collect.state import FORMAT
from pellucid.corpus.sentence import Sentence
from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pandas import DataFrame

ABOUT, PLAN = "store.json", "plan.json"
_NAMES = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32"}


@dataclass(frozen=True)
class Entry:
    """One shard of the manifest: its number, document group, rows, first row in the corpus, and the files' hashes."""

    shard: int
    group: int
    rows: int
    first: int
    hashes: Mapping[str, str]

    @property
    def name(self) -> str:
        """What the shard's files are called."""
        return f"{self.shard:06d}"


class Store:
    """Activations on disk: `store.layer("resid.3")` is [rows, width], `store.unit("neurons.5", 17)` is [rows].

    Rows are words in the order of the corpus; `store.words()` tells which. Nothing is read before it is asked for.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], entries: tuple[Entry, ...]) -> None:
        self.folder, self.about, self.entries = folder, about, entries

    @staticmethod
    def open(folder: str | Path) -> Store:
        """A store, complete or still growing; its files are compared with their hashes by `verify`."""
        folder = Path(folder)
        if not (folder / ABOUT).is_file():
            raise SweepError(f"There is no store in {str(folder)!r}: it has no {ABOUT}.")
        try:
            about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            newer = int(about["format"]) > FORMAT
        except (ValueError, KeyError, TypeError) as error:
            raise SweepError(f"{str(folder / ABOUT)!r} is damaged ({error}); the store cannot be read.") from None
        if newer:
            raise SweepError(
                f"The store in {str(folder)!r} has format {about['format']}; this Pellucid reads {FORMAT}: update it."
            )
        files = sorted((folder / SHARDS).glob("[0-9]*[0-9].json"))
        entries = sorted((_entry(file) for file in files), key=lambda entry: entry.shard)
        return Store(folder, about, tuple(entries))

    # -- what is in it -----------------------------------------------------------------------------------------------

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The sites that are kept, in the order of the models."""
        several = len(self.models) > 1
        names = [f"{n}:{site}" if several else str(site) for n, each in enumerate(self.models) for site in each.sites]
        return tuple(name for name in names if name in self.about["widths"])

    def width(self, key: str) -> int:
        """Columns of a site's rows."""
        self._check_key(key)
        return self.about["widths"][key]

    @property
    def rows(self) -> int:
        """Rows of all shards that are there."""
        return sum(entry.rows for entry in self.entries)

    @property
    def dtype(self) -> torch.dtype:
        """The type that values are kept in."""
        return DTYPES[self.about["dtype"]]

    @property
    def missing(self) -> tuple[int, ...]:
        """Shards that are planned and not there yet."""
        present = {entry.shard for entry in self.entries}
        return tuple(number for number in range(self.about["shards"]) if number not in present)

    def check_complete(self) -> None:
        """Raises where shards are missing."""
        if self.missing:
            raise SweepError(
                f"The store in {str(self.folder)!r} is not complete: {len(self.missing)} shards are missing. Build it "
                "to the end first."
            )

    @property
    def models(self) -> tuple[ModelFacts, ...]:
        """The models whose activations these are."""
        return tuple(facts_of_json(each) for each in self.about["models"])

    @property
    def bytes(self) -> int:
        """Disk that the shards take."""
        files = [self.folder / SHARDS / file for entry in self.entries for file in entry.hashes]
        return sum(file.stat().st_size for file in files if file.is_file())

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r}, {self.rows:,} rows, {listing(self.keys, most=4)}, {self.about['dtype']})"

    # -- reading -----------------------------------------------------------------------------------------------------

    def layer(self, key: str) -> Tensor:
        """All rows of one site, [rows, width], as they are kept."""
        self._check_key(key)
        whole = torch.empty(self.rows, self.width(key), dtype=self.dtype)
        if not whole.numel():
            return whole
        target = memoryview(whole.view(torch.uint8).numpy()).cast("B")  # pyright: ignore[reportArgumentType]
        place = 0
        for entry in self.entries:
            begin, size = self._where(entry, key)
            with self._file(entry).open("rb", buffering=0) as file:
                file.seek(begin)
                _fill(file, target[place : place + size], entry)
            place += size
        return whole

    def unit(self, key: str, number: int) -> Tensor:
        """One unit over all rows, [rows], without reading the others."""
        width = self.width(key)
        if not 0 <= number < width:
            raise SweepError(f"{key} has units 0 to {width - 1}; there is no unit {number}.")
        parts = [self._mapped(entry, key)[:, number].clone() for entry in self.entries]
        return torch.cat(parts) if parts else torch.empty(0, dtype=self.dtype)

    def slice(self, key: str, start: int, stop: int) -> Tensor:
        """Rows from `start` up to `stop` of one site, [stop − start, width]."""
        self._check_key(key)
        if not 0 <= start <= stop <= self.rows:
            raise SweepError(f"The store has rows 0 to {self.rows}; there is no slice from {start} to {stop}.")
        parts: list[Tensor] = []
        before = 0
        for entry in self.entries:
            low, high = max(start - before, 0), min(stop - before, entry.rows)
            if low < high:
                parts.append(self._mapped(entry, key)[low:high].clone())
            before += entry.rows
        return torch.cat(parts) if parts else torch.empty(0, self.width(key), dtype=self.dtype)

    def words(self, columns: list[str] | None = None) -> DataFrame:
        """What every row is: its word, sentence, position, document and labels, in the order of the rows."""
        import pandas

        library: Any = pandas
        frames = [self.table(entry, columns).to_pandas() for entry in self.entries]
        if not frames:
            raise SweepError(f"The store in {str(self.folder)!r} has no shard yet, so it has no words.")
        whole = library.concat(frames, ignore_index=True)
        absent = [name for name in columns or () if name not in whole]
        if absent:
            known = self.words().columns
            raise SweepError(f"The words of this store have no {listing(absent)}; they have {listing(known, most=40)}.")
        return whole[columns] if columns is not None else whole

    def table(self, entry: Entry, columns: list[str] | None = None) -> Any:
        """The words of one shard as an Arrow table; columns that only other shards have are left out."""
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        library: Any = arrow
        reader: Any = parquet
        path = self.folder / SHARDS / f"{entry.name}.parquet"
        try:
            held = set(reader.read_schema(path).names)
            return reader.read_table(path, columns=columns and [name for name in columns if name in held])
        except (OSError, library.ArrowInvalid) as error:
            raise _damaged(path, str(error)) from None

    def sentences(self, entry: Entry) -> dict[int, Sentence]:
        """The sentences of one shard, by their number in the corpus."""
        path = self.folder / SHARDS / f"{entry.name}.sentences.json"
        try:
            told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _damaged(path, str(error)) from None
        return {int(number): sentence_of_json(each) for number, each in told.items()}

    def text(self) -> Iterator[Sentence]:
        """All sentences that the store was built from, for what must be counted in the whole text."""
        return (sentence for entry in self.entries for sentence in self.sentences(entry).values())

    def shard(self, entry: Entry, key: str) -> Tensor:
        """The rows of one site in one shard, read where they lie on disk."""
        self._check_key(key)
        return self._mapped(entry, key)

    def verify(self) -> None:
        """Reads everything and compares it with the hashes; the first file that differs is named."""
        for _ in self.verified():
            pass
        if self.missing:
            raise SweepError(
                f"{len(self.missing)} of {self.about['shards']} shards are not there ({listing(self.missing)}); run "
                "the command that builds the store again."
            )

    def verified(self) -> Iterator[Entry]:
        """Each shard, after its files were compared with their hashes."""
        for entry in self.entries:
            for file, hashed in entry.hashes.items():
                path = self.folder / SHARDS / file
                try:
                    content = path.read_bytes()
                except OSError as error:
                    raise _damaged(path, error.strerror or "it cannot be read") from None
                if blake2b(content, digest_size=16).hexdigest() != hashed:
                    raise _damaged(path, "its content is not what was written")
            yield entry

    # -- where things lie --------------------------------------------------------------------------------------------

    def _check_key(self, key: str) -> None:
        if key not in self.about["widths"]:
            raise SweepError(f"This store does not hold {key!r}; it holds {listing(self.keys, most=40)}.")

    def _file(self, entry: Entry) -> Path:
        return self.folder / SHARDS / f"{entry.name}.safetensors"

    @cached_property
    def _headers(self) -> dict[int, dict[str, tuple[int, int]]]:
        return {}

    def _where(self, entry: Entry, key: str) -> tuple[int, int]:
        """Where a site's rows begin in a shard's file, and how many bytes they take."""
        if entry.shard not in self._headers:
            self._headers[entry.shard] = self._header(entry)
        return self._headers[entry.shard][key]

    def _header(self, entry: Entry) -> dict[str, tuple[int, int]]:
        path = self._file(entry)
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                told: dict[str, Any] = json.loads(file.read(length))
                size = path.stat().st_size
        except (OSError, ValueError) as error:
            raise _damaged(path, str(error)) from None
        places: dict[str, tuple[int, int]] = {}
        for key in self.keys:
            expected = [entry.rows, self.width(key)]
            if key not in told or told[key]["shape"] != expected or told[key]["dtype"] != _NAMES[self.dtype]:
                raise _damaged(path, f"it does not hold {key} as {expected} {self.about['dtype']}")
            begin, end = told[key]["data_offsets"]
            if 8 + length + end > size:
                raise _damaged(path, "it is cut off")
            places[key] = (8 + length + begin, end - begin)
        return places

    def _mapped(self, entry: Entry, key: str) -> Tensor:
        """A shard's rows of one site, [rows, width], lying on disk until they are touched; not to be written to."""
        begin, size = self._where(entry, key)
        if not size:
            return torch.empty(0, self.width(key), dtype=self.dtype)
        page = begin - begin % mmap.ALLOCATIONGRANULARITY
        with self._file(entry).open("rb") as file:
            lying = mmap.mmap(file.fileno(), size + begin - page, offset=page, access=mmap.ACCESS_COPY)
        count = size // self.dtype.itemsize
        flat = torch.frombuffer(lying, dtype=self.dtype, offset=begin - page, count=count)
        return flat.view(entry.rows, self.width(key))


def _entry(path: Path) -> Entry:
    try:
        return Entry(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise _damaged(path, str(error)) from None


def _fill(file: Any, target: memoryview, entry: Entry) -> None:
    """Reads a file until a buffer is full."""
    place = 0
    while place < len(target):
        read = file.readinto(target[place:])
        if not read:
            raise _damaged(Path(file.name), f"shard {entry.shard} is cut off")
        place += read


def _damaged(path: Path, why: str) -> SweepError:
    return SweepError(
        f"{str(path)!r} is damaged or missing ({why}); delete the files of that shard (its number and any ending) and "
        "run the command that builds the store again."
    )
