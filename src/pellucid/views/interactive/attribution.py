"""The view of an attribution: the text coloured by it, with a choice of method, target and place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.model.sites import HEAD_KINDS
from pellucid.views.attribution_parts import named, origin, shown_tokens, signed, signs, strongest, told
from pellucid.views.interactive.payload import numbers
from pellucid.views.interactive.view import View, make, shown_text

if TYPE_CHECKING:
    from pellucid.attribution import Attribution
    from pellucid.results import Array, Coordinate
    from pellucid.views.interactive.payload import Chunk


def attribution_view(
    result: Attribution, *, most: int = 40, title: str | None = None, state: Mapping[str, Any] | None = None
) -> View:
    """A text coloured by what its tokens did, and all places (or targets) below it, token by token.

    The colours are of one method, target and place, chosen in the page. Of more than `most` places, the strongest are
    there. The tokens of an encoder–decoder's target follow those of its source.
    """
    scene = _Scene(result, most)
    model = result.provenance.models[0]
    panel = {
        "name": model["name"],
        "model": model["name"],
        "fingerprint": model["fingerprint"],
        "tokens": {"text": shown_tokens(result)},
        "blocks": [],
        "text": {"tracks": scene.tracks, "maps": scene.maps, "lens": None},
    }
    given = result.provenance.corpus
    read = [given[name] for name in ("text", "pair", "decoder") if name in given]
    return make(
        "text",
        title if title is not None else shown_text(*read) if read else result.title,
        [panel],
        scene.chunks,
        notes=[*signs(result), origin(result), *scene.notes],
        first={"mode": "text", "track": next(iter(scene.tracks))},
        state=state,
        live=None,
    )


class _Scene:
    """Tracks, maps and numbers of a result."""

    def __init__(self, result: Attribution, most: int) -> None:
        self.result, self.most = result, most
        self.tracks: dict[str, dict[str, Any]] = {}
        self.maps: dict[str, dict[str, Any]] = {}
        self.chunks: dict[str, Chunk] = {}
        self.notes: list[str] = []
        rows: list[Array] = []
        for which, measure in enumerate(result.axes["measure"]):
            for number, target in enumerate(result.axes["target"]):
                rows += self._add(measure, target, result.values[which, number])
            if len(result.axes["place"]) == 1 and len(result.axes["target"]) > 1:
                self._add_targets(measure, result.values[which, :, 0])
        self.chunks["text/0/tracks"] = numbers(np.stack(rows), "<f4")

    def _add(self, measure: Coordinate, target: Coordinate, values: Array) -> list[Array]:
        """The numbers [place, token] of one method for one target; answers the tracks' rows."""
        result = self.result
        places, about = result.axes["place"], told(result, measure, target)
        kept = strongest(values, self.most)
        facts: dict[str, Any] = {"signed": signed(result, measure), "unit": ""}
        for at in kept:
            name = named(result, measure=measure, target=target, place=places[at])
            self.tracks[name] = {"about": f"{about} Place: {places[at]}.", **facts}
        if len(places) > 1:
            name = named(result, measure=measure, target=target)
            rows = [str(places[at]) for at in kept]
            self.maps[name] = {"heading": _heading(result), "about": about, "rows": rows, **facts}
            self.chunks[f"text/0/map/{name}"] = numbers(values[kept], "<f4")
        if len(kept) < len(places):
            note = f"Of {len(places):,} places the {len(kept)} are shown whose attributions are largest in size."
            self.notes = [note]
        return [values[at] for at in kept]

    def _add_targets(self, measure: Coordinate, values: Array) -> None:
        """The numbers [target, token] of one method at the only place."""
        facts: dict[str, Any] = {"signed": signed(self.result, measure), "unit": ""}
        about = f"What every token did for each of {len(values)} targets."
        rows = [str(name) for name in self.result.axes["target"]]
        self.maps[str(measure)] = {"heading": "Target by target", "about": about, "rows": rows, **facts}
        self.chunks[f"text/0/map/{measure}"] = numbers(values, "<f4")


def _heading(result: Attribution) -> str:
    """What the rows of a map of places are: layers of one kind of site, heads, units, or places of several kinds."""
    split = [str(place).partition(":") for place in result.axes["place"]]
    kinds = {re.sub(r"\.\d+$", "", site).rpartition(".")[2] for site, _, _ in split} - {"embed"}
    if all(unit for _, _, unit in split):
        return "Head by head" if kinds <= HEAD_KINDS else "Unit by unit"
    return "Layer by layer" if len(kinds) == 1 else "Place by place"
