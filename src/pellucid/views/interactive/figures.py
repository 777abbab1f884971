"""The still figure of an interactive view: what its page shows in the same state, for svg, png and pdf files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pellucid.errors import PellucidError
from pellucid.results import WIDTH
from pellucid.views.interactive import head_figure, neuron_figure, text_figure
from pellucid.views.interactive.attention import LATER
from pellucid.views.interactive.held import Held
from pellucid.views.interactive.model_figure import ModelPicture, natural_width
from pellucid.views.interactive.sheet import Sheet, paragraph_height, wrapped, write_lines
from pellucid.views.interactive.statistics import SINKS
from pellucid.views.style import INK, NOTE, house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pellucid.views.interactive.view import View

_EDGE = 0.1
_TITLE, _NAME, _NOTE = 10.0, 8.5, 6.8
_NARROWEST = 2.8  # inches of a panel beside another
_BETWEEN = 0.25

_PLAIN: dict[str, Any] = {
    "average": "none",
    "unit": "tokens",
    "hideSpecial": False,
    "hideSinks": False,
    "from": None,
    "to": None,
    "left": [],
    "right": [],
    "sort": None,
    "colour": None,
    "head": 0,
    "track": None,
    "map": None,
    "theme": "auto",
}


class Picture(Protocol):
    """A part of a figure: its size in inches, and what is to be said below it."""

    width: float
    height: float
    notes: list[str]

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draws it with its top left corner at (x, y)."""
        ...


_PICTURES: dict[str, Callable[[Held, Mapping[str, Any], float], Picture]] = {
    "heads": head_figure.HeadPicture,
    "model": ModelPicture,
    "neurons": neuron_figure.NeuronPicture,
    "text": text_figure.TextPicture,
}
_WIDTHS: dict[str, Callable[[Held, Mapping[str, Any]], float]] = {
    "heads": lambda held, state: head_figure.WIDTH,
    "model": natural_width,
    "neurons": lambda held, state: neuron_figure.WIDTH,
    "text": lambda held, state: text_figure.WIDTH,
}
"""Inches of a figure of each mode where no width is asked for."""


def draw(view: View, *, width: float | None = None) -> Figure:
    """The figure of a view in its state, `width` inches wide (each mode has a width of its own).

    Two panels stand side by side, or one below the other where the figure is narrow. Colours are those of the page in
    daylight, whatever the theme.
    """
    state = full_state(view.header)
    with house_style():
        panels = [Held(view, number) for number in range(len(view.header["panels"]))]
        wide = (
            float(width)
            if width is not None
            else WIDTH
            if len(panels) > 1
            else _WIDTHS[state["mode"]](panels[0], state)
        )
        inner = wide - 2 * _EDGE
        beside = (inner - _BETWEEN * (len(panels) - 1)) / len(panels)
        abreast = len(panels) if beside >= _NARROWEST else 1
        parts = _parts(panels, state, beside if abreast > 1 else inner)
        rows = [parts[start : start + abreast] for start in range(0, len(parts), abreast)]
        title = wrapped(str(view.header["title"]), inner, _TITLE)
        notes = [line for note in _notes(view, state, parts) for line in wrapped(note, inner, _NOTE)]
        bottom = (
            _EDGE + paragraph_height(title, _TITLE) + 0.08 + sum(_height(row) + _BETWEEN for row in rows) - _BETWEEN
        )
        sheet = Sheet(wide, bottom + (0.1 + paragraph_height(notes, _NOTE) if notes else 0) + _EDGE)
        y = write_lines(sheet, wide / 2, _EDGE, title, size=_TITLE, colour=INK, align="center") + 0.08
        for row in rows:
            for place, part in enumerate(row):
                part.draw(sheet, _EDGE + place * (part.picture.width + _BETWEEN), y, head=_head(row))
            y += _height(row) + _BETWEEN
        write_lines(sheet, _EDGE, bottom + 0.1, notes, size=_NOTE, colour=NOTE)
        return sheet.figure


def full_state(header: Mapping[str, Any]) -> dict[str, Any]:
    """A header's state, with the page's defaults for the names that it leaves out."""
    given = header["state"]
    blocks = [block for panel in header["panels"] for block in panel["blocks"]]
    name = given.get("block", blocks[0]["name"] if blocks else "")
    mine = [block for block in blocks if block["name"] == name]
    layers = sorted({layer for block in mine for layer in block["layers"]})
    weightings = [weighting for block in mine for weighting in block["weightings"]]
    state: dict[str, Any] = {
        **_PLAIN,
        "mode": "model" if blocks else "text",
        "block": name,
        "weighting": weightings[0] if weightings else "attention",
        "layer": layers[0] if layers else 0,
        **given,
    }
    layer = state["layer"]
    counts = [block["heads"][block["layers"].index(layer)] for block in mine if layer in block["layers"]]
    state.setdefault("heads", list(range(max(counts, default=0))))
    state["heads"] = sorted(set(state["heads"]))
    many = state["average"] == "none" and len(state["heads"]) > 3
    state.setdefault("mass", 0.5 if many and not state["left"] and not state["right"] else 0.95)
    return state


@dataclass(frozen=True)
class _Part:
    """The picture of one panel, and its name where there are several."""

    name: list[str]
    picture: Picture

    @property
    def head(self) -> float:
        """Inches of the name."""
        return paragraph_height(self.name, _NAME) + 0.06 if self.name else 0.0

    def draw(self, sheet: Sheet, x: float, y: float, *, head: float) -> None:
        middle = x + self.picture.width / 2
        write_lines(sheet, middle, y, self.name, size=_NAME, colour=INK, align="center")
        self.picture.draw(sheet, x, y + head)


class _Absent:
    """A sentence in the place of a picture that a panel cannot give."""

    def __init__(self, sentence: str, width: float) -> None:
        self.width, self.notes = width, list[str]()
        self.lines = wrapped(sentence, width, _NAME)
        self.height = paragraph_height(self.lines, _NAME) + 0.1

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        write_lines(sheet, x, y, self.lines, size=_NAME, colour=NOTE)


def _head(row: Sequence[_Part]) -> float:
    """Inches of the names of pictures side by side."""
    return max(part.head for part in row)


def _height(row: Sequence[_Part]) -> float:
    return _head(row) + max(part.picture.height for part in row)


def _parts(panels: Sequence[Held], state: Mapping[str, Any], width: float) -> list[_Part]:
    """The pictures of all panels; where none can be drawn, the first one's reason is raised."""
    found: list[_Part] = []
    reasons: list[PellucidError] = []
    for panel in panels:
        name = wrapped(panel.name, width, _NAME) if len(panels) > 1 else []
        try:
            found.append(_Part(name, _PICTURES[state["mode"]](panel, _own_state(panels[0], panel, state), width)))
        except PellucidError as reason:
            reasons.append(reason)
            found.append(_Part(name, _Absent(str(reason), width)))
    if len(reasons) == len(panels):
        raise reasons[0]
    return found


def _own_state(first: Held, panel: Held, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state for a panel: chosen places mean nothing where its tokens differ from the first panel's."""
    mine, theirs = ({name: each["text"] for name, each in held.panel["tokens"].items()} for held in (panel, first))
    return state if mine == theirs else {**state, "left": [], "right": []}


def _notes(view: View, state: Mapping[str, Any], parts: Sequence[_Part]) -> list[str]:
    """What is said below: the pictures' notes by panel, then those of all, then the view's that matter here."""
    shared = [note for note in parts[0].picture.notes if all(note in part.picture.notes for part in parts)]
    found: list[str] = []
    for number, part in enumerate(parts):
        own = [note for note in part.picture.notes if note not in shared]
        if own:
            found.append(f"{view.header['panels'][number]['name']}: {' '.join(own)}")
    found += shared
    sinks = state["hideSinks"] or "sinks" in (state["sort"], state["colour"])
    apart = {LATER, *(() if sinks else (SINKS,))}
    return list(dict.fromkeys([*found, *(note for note in view.notes if note not in apart)]))
