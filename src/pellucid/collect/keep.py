"""Writing the store: the rows of a shard as one safetensors file, its words as Parquet, its sentences as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Setting
from pellucid.collect.found import sentence_to_json
from pellucid.collect.state import Array, State, write_whole
from pellucid.collect.words import WordBatch, all_words, word_labels
from pellucid.corpus.sentence import Sentence
from pellucid.errors import SweepError, listing

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
SHARDS = "shards"


@dataclass(frozen=True)
class Keep(Collector):
    """Keeps the rows themselves, on disk: one immutable file per shard, written whole or not at all."""

    kind: ClassVar[str] = "keep"

    sites: tuple[str, ...]
    folder: str
    dtype: str = "float16"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise SweepError(f"A store cannot hold {self.dtype!r}; use one of {listing(DTYPES)}.")

    @property
    def rows(self) -> tuple[str, ...]:
        return self.sites

    def open(self, setting: Setting) -> Accumulator:
        return _Writer(self, setting)

    def merge(self, left: State, right: State) -> State:
        return State({}, {"shards": [*left.facts["shards"], *right.facts["shards"]]})


class _Writer(Accumulator):
    """The rows of one shard, in the order of the corpus, until they are written."""

    def __init__(self, keep: Keep, setting: Setting) -> None:
        self.keep, self.setting = keep, setting
        self.keys = setting.keys(keep.sites)
        dtype = DTYPES[keep.dtype]
        self.rows = {key: torch.zeros(setting.rows, setting.width(key), dtype=dtype) for key in self.keys}
        self.present = np.zeros(setting.rows, dtype=bool)
        self.sentence = np.zeros(setting.rows, dtype=np.int64)
        self.position = np.zeros(setting.rows, dtype=np.int64)
        self.sentences: dict[int, Sentence] = {}
        self.group = 0

    def add(self, batch: WordBatch) -> None:
        places = batch.ordinal - self.setting.start
        target = torch.from_numpy(places)
        for key in self.keys:
            self.rows[key][target] = batch.rows[key].cpu().to(self.rows[key].dtype)
        self.present[places] = True
        self.sentence[places], self.position[places] = batch.sentence, batch.position
        self.sentences.update(batch.sentences)
        self.group = batch.group

    def state(self) -> State:
        kept = torch.from_numpy(self.present)
        rows = {key: value if bool(kept.all()) else value[kept] for key, value in self.rows.items()}
        self._check(rows)
        numbers = np.flatnonzero(self.present) + self.setting.start
        folder = Path(self.keep.folder) / SHARDS
        name = f"{self.setting.shard:06d}"
        files = {
            f"{name}.safetensors": _tensors(rows),
            f"{name}.parquet": _parquet(self._columns(numbers)),
            f"{name}.sentences.json": _sentences(self.sentences),
        }
        for file, content in files.items():
            write_whole(folder / file, content)
        entry: dict[str, Any] = {
            "shard": self.setting.shard,
            "group": self.group,
            "rows": len(numbers),
            "first": int(numbers[0]) if len(numbers) else self.setting.start,
            "hashes": {file: blake2b(content, digest_size=16).hexdigest() for file, content in files.items()},
        }
        write_whole(folder / f"{name}.json", json.dumps(entry, sort_keys=True).encode())
        return State({}, {"shards": [self.setting.shard]})

    def _check(self, rows: Mapping[str, Tensor]) -> None:
        """A value that the store's type cannot hold would come back as infinity: refused by name."""
        for key, value in rows.items():
            if not bool(torch.isfinite(value).all()):
                raise SweepError(
                    f"{key} has values that {self.keep.dtype} cannot hold (over 65,504 for float16, or not a number "
                    "in the model itself); keep them as bfloat16 or float32 (--keep bfloat16)."
                )

    def _columns(self, numbers: Array) -> dict[str, Any]:
        """The metadata of every row: its place in the corpus, its word, its labels."""
        sentence, position = self.sentence[self.present], self.position[self.present]
        names = sorted({name for each in self.sentences.values() for name in [*each.labels, *each.facts]})
        columns: dict[str, Any] = {
            "row": numbers,
            "sentence": sentence,
            "position": position,
            "sentence_id": [self.sentences[number].id for number in sentence.tolist()],
            "document": [self.sentences[number].document for number in sentence.tolist()],
            "group": np.full(len(numbers), self.group),
        }
        for name in ["word", *names]:
            known = {number: _labels(each, name) for number, each in self.sentences.items()}
            places = zip(sentence.tolist(), position.tolist(), strict=True)
            values = [known[number][place] if place >= 0 else None for number, place in places]
            columns[name if name not in columns else f"label_{name}"] = values
        return columns


def _labels(sentence: Sentence, name: str) -> Sequence[str | None]:
    """A label at every word; `word` is the word as it is written."""
    return all_words(sentence) if name == "word" else word_labels(sentence, name)


def _tensors(rows: Mapping[str, Tensor]) -> bytes:
    from safetensors.torch import save

    return save({key: value.contiguous() for key, value in rows.items()})


def _parquet(columns: Mapping[str, Any]) -> bytes:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise SweepError("A store needs pyarrow for its table of words: pip install pyarrow.") from None
    library: Any = arrow
    writer: Any = parquet
    buffer = io.BytesIO()
    writer.write_table(library.table(dict(columns)), buffer, compression="zstd")
    return buffer.getvalue()


def _sentences(sentences: Mapping[int, Sentence]) -> bytes:
    told = {str(number): sentence_to_json(sentences[number]) for number in sorted(sentences)}
    return json.dumps(told, ensure_ascii=False).encode()
