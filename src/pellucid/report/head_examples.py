"""Examples of heads in a page: one view for each sentence, and addresses that open it on a head."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from pellucid.report.html import number
from pellucid.report.sheet import Sheet

if TYPE_CHECKING:
    from pellucid.heads import HeadFunctions
    from pellucid.heads.roles.examples import Example
    from pellucid.model import Model


@dataclass(frozen=True)
class Link:
    """An address within the folder of a page, and what is there."""

    address: str
    told: str


@dataclass
class Shown:
    """The examples that a page shows: `links` by row, column and function; `block` is the stack that views open."""

    block: str | None = None
    files: dict[str, str] = field(default_factory=dict[str, str])
    links: dict[tuple[int, int, str], list[Link]] = field(default_factory=dict[tuple[int, int, str], list[Link]])

    def address(self, file: str, layer: int, head: int) -> str:
        """Where a sentence's view stands open on one head."""
        state = {"layer": layer, "heads": [head]} | ({} if self.block is None else {"block": self.block})
        return f"{file}#state={quote(json.dumps(state, separators=(',', ':')))}"

    def of_cells(self, result: HeadFunctions) -> dict[tuple[int, int], Link]:
        """Where each head of the map leads: its main function's best example, or the first sentence of any."""
        if not self.files:
            return {}
        first = next(iter(self.files.values()))
        labels = result.table("labels").columns["main"]
        found: dict[tuple[int, int], Link] = {}
        for row, layer in enumerate(result.axes["layer"]):
            for column in range(len(result.axes["head"])):
                if not result.present[row, column]:
                    continue
                own = self.links.get((row, column, str(labels[row, column])))
                other = self.address(first, int(str(layer).rpartition(".")[2]), column)
                told = "no function found" if labels[row, column] == "none" else labels[row, column]
                name = f"head {layer}.{column}, {told}"
                found[row, column] = Link(own[0].address if own else other, name)
        return found


def write_examples(sheet: Sheet, model: Model, found: Sequence[Example], *, side: str, weights: str) -> Shown:
    """Writes a view of every example's sentence, each once, by raw or effective weights, and says where they are."""
    from pellucid.views import head_view

    two = any(site.stack == "encoder" for site in model.sites)
    shown = Shown(("encoder" if side == "source" else "decoder") if two else None)
    for example in found:
        sentence = example.sentence
        if sentence.id not in shown.files:
            file = f"views/sentence-{len(shown.files) + 1}.html"
            target = sentence.second.text if two and sentence.second is not None else None
            (sheet.folder / "views").mkdir(exist_ok=True)
            head_view(model, sentence.text, target=target, weights=weights).save(sheet.folder / file)
            shown.files[sentence.id] = file
        address = shown.address(shown.files[sentence.id], example.layer, example.head)
        told = f"{number(example.hits)} of {number(example.cases)} words"
        shown.links.setdefault((example.place, example.head, example.function), []).append(Link(address, told))
    sheet.files.extend(shown.files.values())
    return shown
