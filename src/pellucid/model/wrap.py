"""Models that are not transformers: any PyTorch module with sites named by the user, and tables of word vectors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.errors import ModelError, SiteError, TextError, listing
from pellucid.model.edits import Edit
from pellucid.model.frame import Frame
from pellucid.model.loading import Opened
from pellucid.model.model import Model
from pellucid.model.sites import CUSTOM, Site
from pellucid.model.survey import Survey
from pellucid.model.taps import Layout, Located, Slot, Tap


class WrappedModel(Model):
    """A PyTorch module under Pellucid's interface; see `Model.wrap`."""

    def __init__(
        self,
        module: nn.Module,
        *,
        tokenize: Callable[[Any], Any] | None,
        sites: Mapping[str, str],
        name: str | None = None,
    ) -> None:
        paths = dict(module.named_modules())
        if not sites:
            raise SiteError("A wrapped module needs at least one site: sites={'name': 'module.path'}.")
        taps = {Site(CUSTOM, label): _tap(label, path, paths) for label, path in sites.items()}
        located = Located(taps, {}, repeated=frozenset(paths))
        opened = Opened(module.eval(), None, "eager", name or type(module).__name__)
        super().__init__(opened, Survey(located, tuple(taps), {}))
        self._tokenize = tokenize

    def tokenize(self, texts: Any, pair: Any = None, **_: Any) -> Any:
        """What the user's own function makes of the text."""
        if self._tokenize is None:
            raise TextError(f"{self.name!r} was wrapped without tokenize=…; give run the module's own input.")
        return self._tokenize(texts if pair is None else (texts, pair))

    def size(self, site: str | Site) -> tuple[int, ...]:
        raise SiteError(f"The size of {str(site)!r} is known only from a run: a wrapped module is not probed.")

    def _forward(self, arguments: Any) -> Any:
        if isinstance(arguments, Mapping):
            return self.hf(**arguments)
        return self.hf(*arguments) if isinstance(arguments, tuple) else self.hf(arguments)

    def _arguments(self, batch: Any) -> tuple[Any, Frame]:
        first = (
            next(iter(batch.values()))
            if isinstance(batch, Mapping)
            else batch[0]
            if isinstance(batch, tuple)
            else batch
        )
        if not isinstance(first, Tensor):
            raise TextError(
                "A wrapped module is run on a tensor, a tuple or a dictionary of tensors, not on a "
                f"{type(first).__name__}."
            )
        return batch, Frame(first.shape[0])

    def _check_edit(self, edit: Edit, site: Site) -> None:
        edit.check(site, None)


def _tap(label: str, path: str, paths: Mapping[str, nn.Module]) -> Tap:
    """The tap for `module.path`, `module.path:input` or `module.path:1.0`."""
    module, _, part = path.partition(":")
    if module not in paths:
        raise SiteError(
            f"The site {label!r} points to {module!r}, and there is no such module; there are "
            f"{listing(filter(None, paths))}."
        )
    if part == "input":
        return Tap(module, "input", None, layout=Layout(native=True))
    if part and not re.fullmatch(r"\d+(\.\d+)*", part):
        raise SiteError(
            f"The site {label!r} ends in ':{part}'; write ':input', or numbers such as ':0' or ':1.0' for a part of "
            "the output."
        )
    slot: Slot | None = tuple(int(number) for number in part.split(".")) if part else None
    return Tap(module, "output", slot, layout=Layout(native=True))


def read_vectors(path: str | Path) -> Model:
    """Word vectors in text form, one word and its numbers a line (an optional first line gives the two counts)."""
    path = Path(path)
    if not path.is_file():
        raise ModelError(f"There is no file {str(path)!r}; give a GloVe or word2vec file in text form.")
    words, rows = _read_rows(path)
    unknown = words.get("<unk>", words.get("unk", len(rows)))
    table = torch.tensor(rows if unknown < len(rows) else [*rows, [0.0] * len(rows[0])])

    def tokenize(texts: str | Sequence[str]) -> Tensor:
        """Word ids [B, T]; unknown words and the ends of shorter texts are the unknown word."""
        lines = [text.split() for text in ([texts] if isinstance(texts, str) else texts)]
        width = max(map(len, lines), default=0)
        if not lines or not all(lines):
            raise TextError("Each text must hold at least one word; an empty one was given.")
        ids = [[words.get(word, words.get(word.lower(), unknown)) for word in line] for line in lines]
        return torch.tensor([[*row, *[unknown] * (width - len(row))] for row in ids])

    embedding = nn.Sequential()
    embedding.add_module("embed", nn.Embedding.from_pretrained(table))
    return Model.wrap(embedding, tokenize=tokenize, sites={"embed": "embed"}, name=path.name)


def _read_rows(path: Path) -> tuple[dict[str, int], list[list[float]]]:
    """The words with their row numbers, and the rows; a repeated word keeps its first vector."""
    words: dict[str, int] = {}
    rows: list[list[float]] = []
    promised: list[int] = []
    lines = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                parts = line.rstrip().split(" ")
                if number == 1 and len(parts) == 2 and all(part.isdigit() for part in parts):
                    promised = [int(part) for part in parts]
                    continue
                if rows and len(parts) > len(rows[0]) + 1:  # a word with spaces in it
                    parts = [" ".join(parts[: -len(rows[0])]), *parts[-len(rows[0]) :]]
                row = _read_row(parts, f"{path.name}, line {number}", len(rows[0]) if rows else None)
                lines += 1
                if parts[0] not in words:
                    words[parts[0]] = len(rows)
                    rows.append(row)
    except UnicodeDecodeError as error:
        raise ModelError(f"{path.name} is not text in UTF-8 ({error.reason} at byte {error.start}).") from None
    if not rows:
        raise ModelError(f"{path.name} holds no vectors.")
    if promised and promised != [lines, len(rows[0])]:
        raise ModelError(
            f"{path.name} promises {promised[0]} words of {promised[1]} numbers in its first line, and holds {lines} "
            f"of {len(rows[0])}; the file is cut short or damaged."
        )
    return words, rows


def _read_row(parts: list[str], place: str, width: int | None) -> list[float]:
    """The numbers after a word."""
    try:
        row = [float(part) for part in parts[1:] if part]
    except ValueError:
        raise ModelError(f"{place}: not a word followed by numbers.") from None
    if not all(math.isfinite(number) for number in row):
        raise ModelError(f"{place}: a number is not finite.")
    if not row or (width is not None and len(row) != width):
        raise ModelError(f"{place}: {len(row)} numbers where the lines before have {width or 'at least 1'}.")
    return row
