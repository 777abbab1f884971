"""The reader of Hugging Face data sets: from the hub, from local files, or given as objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.corpus.readers.files import content_hash
from pellucid.corpus.readers.names import Unique
from pellucid.corpus.readers.records import Fields, sentence_of
from pellucid.corpus.sentence import Sentence
from pellucid.errors import CorpusError, listing

_BUILDERS = {".parquet": "parquet", ".arrow": "arrow", ".json": "json", ".jsonl": "json", ".csv": "csv", ".txt": "text"}


@dataclass(frozen=True)
class Source:
    """A data set as it was asked for: a name on the hub, a local path, or an object of the library."""

    data: Any
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    streaming: bool = True

    @property
    def path(self) -> Path | None:
        """The local file or folder that the name means, if there is one."""
        return Path(self.data) if isinstance(self.data, (str, Path)) and Path(self.data).exists() else None

    @property
    def title(self) -> str:
        """What to call the data set in messages."""
        if isinstance(self.data, (str, Path)):
            parts = (str(self.data), self.config, self.split)
            return " ".join(part for part in parts if part is not None)
        return "the given data set"

    def content(self) -> list[str] | None:
        """What names the content: hashes of local files, or the revision on the hub; None where nothing does."""
        if self.path is not None:
            files = [self.path] if self.path.is_file() else sorted(p for p in self.path.rglob("*") if p.is_file())
            root = self.path.parent if self.path.is_file() else self.path
            return [f"{file.relative_to(root).as_posix()}={content_hash(file)}" for file in files]
        if not isinstance(self.data, (str, Path)) or self.revision is None:
            return None
        return [str(self.data), self.revision]


def load(source: Source) -> Any:
    """The one split of the data set that is meant."""
    loaded = source.data
    if isinstance(loaded, (str, Path)):
        loaded = _loaded(source)
    if isinstance(loaded, Mapping):
        splits = list(loaded)
        if source.split is not None and source.split not in loaded:
            raise CorpusError(f"{source.title} has no split {source.split!r}; it has {listing(splits)}.")
        if source.split is None and len(splits) != 1:
            raise CorpusError(f"{source.title} has several splits: name one of {listing(splits)} with split=….")
        loaded = loaded[splits[0] if source.split is None else source.split]
    if not hasattr(loaded, "features") or not hasattr(loaded, "__iter__"):
        raise CorpusError(
            f"A {type(loaded).__name__} is no data set: give a name on the hub, a path, or an object of `datasets`."
        )
    return loaded


def _loaded(source: Source) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise CorpusError(
            "Reading Hugging Face data sets needs the library `datasets`: install it with pip install datasets."
        ) from error
    path = source.path
    try:
        if path is not None and path.is_dir() and any((path / name).is_file() for name in _SAVED):
            return datasets.load_from_disk(str(path))
        if path is not None and path.is_file():
            builder = _BUILDERS.get(path.suffix.lower())
            if builder is None:
                raise CorpusError(f"{path} is not a data file; the kinds are {listing(_BUILDERS)}.")
            return datasets.load_dataset(builder, data_files=str(path), streaming=source.streaming)
        return datasets.load_dataset(
            str(source.data), source.config, revision=source.revision, streaming=source.streaming
        )
    except CorpusError:
        raise
    except Exception as error:  # the library raises errors of many kinds, its own and those of the network
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise CorpusError(f"The data set {source.title} cannot be opened: {reason[0].rstrip('.')}.") from error


_SAVED = ("dataset_info.json", "state.json", "dataset_dict.json")


def read_dataset(source: Source, fields: Fields) -> Iterator[Sentence]:
    """The sentences of a data set, one per row, with class labels by their names."""
    rows = load(source)
    names = _class_names(rows.features or {})
    unique = Unique()
    for number, row in enumerate(rows, start=1):
        where = f"{source.title}, row {number}"
        fields.check(list(row), where)
        record = {key: names[key](value) if key in names else value for key, value in row.items()}
        found = sentence_of(record, fields, str(number), where)
        if found is not None:
            yield unique.sentence(found) if fields.id is not None else found


def _class_names(features: Mapping[str, Any]) -> dict[str, Callable[[Any], Any]]:
    """For each field of class numbers, the function that turns them into names."""
    found: dict[str, Callable[[Any], Any]] = {}
    for key, feature in features.items():
        single: Any = feature
        several: Any = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", None)
        if hasattr(single, "int2str"):
            found[key] = _namer(list(single.names), many=False)
        elif hasattr(several, "int2str"):
            found[key] = _namer(list(several.names), many=True)
    return found


def _namer(names: list[str], *, many: bool) -> Callable[[Any], Any]:
    def one(value: Any) -> str | None:
        """The name of a class; −1 stands for an example without a label."""
        return names[value] if isinstance(value, int) and 0 <= value < len(names) else None

    return (lambda values: None if values is None else [one(value) for value in values]) if many else one
