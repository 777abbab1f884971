"""The still figure of the neuron view: how one head's query and keys make its attention, neuron by neuron."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import PellucidError
from pellucid.results import WIDTH as PAGE
from pellucid.views.interactive.colours import ACCENT, FILL, RAISED, Scale, css, diverging, scale_of
from pellucid.views.interactive.dot_product import check_softmax, neurons_by_share
from pellucid.views.interactive.held import WEIGHT, Floats, Held
from pellucid.views.interactive.sheet import Sheet, fitted, line_height, quoted, short, text_width, visible, weight_text
from pellucid.views.interactive.shown import places_shown, units
from pellucid.views.style import FAINT, INK, NOTE

WIDTH = PAGE
MOST = 40
"""Keys that are readable on a page."""

_COLOURED = 0.99  # share of the numbers whose colours are not full: a few outliers must not make the others pale
_ROW = 0.17
_STRIP = 0.12
_SIZE, _SMALL = 7.2, 6.4


class NeuronPicture:
    """The strips and bars of one query of one head; `height` in inches for a width, and `notes` on what they show."""

    def __init__(self, held: Held, state: Mapping[str, Any], width: float) -> None:
        block = held.block(state["block"])
        layer, head = state["layer"], state["head"]
        if layer not in block["layers"]:
            raise PellucidError(f"{held.name} has no layer {layer}.")
        if head >= block["heads"][block["layers"].index(layer)]:
            raise PellucidError(f"{held.name} has no head {head} in layer {layer}.")
        self.width, self.layer, self.head = width, layer, head
        self.queries, self.keys = held.tokens(block["queries"])["text"], held.tokens(block["keys"])["text"]
        self.query = query_place(state, held.tokens(block["queries"]))
        query, keys = held.vectors(block, layer, head)
        reach = min(self.query + 1, len(keys)) if block["causal"] and block["queries"] == block["keys"] else len(keys)
        self.q, self.k = query[self.query], keys[:reach]
        self.product: Floats = self.q * self.k
        self.factor = float(block["vectors"]["scale"])
        self.dots = self.product.sum(axis=1, dtype=np.float64) * self.factor
        matrix = held.matrix(block, state["weighting"], layer, head)
        row = np.array([self.query])
        codes = matrix.rows(row)[0, :reach]
        self.weights = WEIGHT[codes].astype(np.float64)
        self.check = check_softmax(self.product, self.factor, codes, float(WEIGHT[matrix.dropped(row)[0]]))
        self._choose_rows(state, held.tokens(block["keys"]))
        self.order = neurons_by_share(self.product[self.chosen])
        self._lay_out()
        self.height = self.top + len(self.rows) * _ROW
        self.notes = self._notes()

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draws it with its top left corner at (x, y)."""
        scales = {
            "q": scale_of(self.q, signed=True),
            "k": scale_of(self.k, signed=True, share=_COLOURED),
            "q∘k": scale_of(self.product, signed=True, share=_COLOURED),
        }
        self._draw_head(sheet, x, y, scales)
        top = y + self.top
        if self.chosen in self.rows:
            sheet.rect(x, top + self.rows.index(self.chosen) * _ROW, self.width, _ROW, RAISED)
        for row, key in enumerate(self.rows):
            text = fitted(visible(self.keys[key]), self.token - 0.02, _SIZE, bold=key == self.chosen)
            sheet.text(x + 0.02, top + (row + 0.5) * _ROW, text, size=_SIZE, bold=key == self.chosen)
        _draw_strips(sheet, x + self.keys_x, top, self.strip, self.k[self.rows][:, self.order], scales["k"])
        _draw_strips(sheet, x + self.products_x, top, self.strip, self.product[self.rows][:, self.order], scales["q∘k"])
        self._draw_bars(sheet, x, top)

    def _choose_rows(self, state: Mapping[str, Any], tokens: Mapping[str, Any]) -> None:
        """The keys that have a row, in the order of the text, and the one that the neurons' order follows."""
        hiding = {"hide_special": state["hideSpecial"], "hide_sinks": state["hideSinks"]}
        seen = [int(key) for key in places_shown(units(tokens, "tokens"), state["to"], **hiding) if key < len(self.k)]
        if not seen:
            raise PellucidError("No key is shown: show special tokens or sinks, or choose another segment.")
        given = units(tokens, state["unit"])
        asked = given[state["right"][0]].start if state["right"] and state["right"][0] < len(given) else -1
        self.chosen = asked if asked in seen else max(seen, key=lambda key: (self.weights[key], -key))
        self.reached = len(seen)
        largest = sorted(seen, key=lambda key: (key != self.chosen, -self.weights[key], key))[:MOST]
        self.rows = sorted(largest)
        self.hidden = float(self.weights.sum() - self.weights[seen].sum())
        self.left_out = float(self.weights[seen].sum() - self.weights[self.rows].sum())

    def _lay_out(self) -> None:
        """Left to right: tokens, strips of keys, strips of products, dot products, weights."""
        self.gap = 0.06 if self.width < 4.5 else 0.09
        names = [visible(self.queries[self.query]), *(visible(self.keys[key]) for key in self.rows)]
        widest = max(text_width(name, _SIZE, True) for name in names) + 0.06
        self.token = min(widest, 0.19 * self.width)
        self.number = 0.07 + max(text_width(short(float(value)), _SMALL) for value in self.dots[self.rows])
        self.share = 0.07 + max(text_width(_three(float(weight)), _SMALL) for weight in self.weights[self.rows])
        self.bar = min(0.9, max(0.22, 0.12 * self.width - 0.16))
        room = self.width - self.token - self.number - self.share - 2 * self.bar - 4 * self.gap
        self.strip = room / 2
        self.keys_x = self.token + self.gap
        self.products_x = self.keys_x + self.strip + self.gap
        self.dot_x = self.products_x + self.strip + self.gap
        self.weight_x = self.dot_x + self.number + self.bar + self.gap
        self.titles = 2 * line_height(_SIZE) + 0.05
        self.top = self.titles + line_height(_SMALL) + _ROW + 0.08

    def _draw_head(self, sheet: Sheet, x: float, y: float, scales: Mapping[str, Scale]) -> None:
        """What is shown, the colours, the names of the columns, and the query's strip."""
        title = f"layer {self.layer}, head {self.head}, query {quoted(self.queries[self.query])}"
        sheet.text(x, y + line_height(_SIZE) / 2, fitted(title, self.width, _SIZE), size=_SIZE)
        self._draw_ramp(sheet, x, y + 1.5 * line_height(_SIZE), scales)
        middle = y + self.titles + line_height(_SMALL) / 2
        columns = [
            (self.keys_x, self.strip, ("q, then k of each key", "q, then k")),
            (self.products_x, self.strip, ("q∘k, neuron by neuron", "q∘k")),
            (self.dot_x, self.number + self.bar, (f"q·k × {short(self.factor)}", "q·k, scaled", "q·k")),
            (self.weight_x, self.share + self.bar, ("softmax weight", "softmax", "weight")),
        ]
        for left, wide, texts in columns:
            text = next((each for each in texts if text_width(each, _SMALL) <= wide), texts[-1])
            sheet.text(x + left, middle, text, size=_SMALL, colour=NOTE)
        top = y + self.titles + line_height(_SMALL)
        name = fitted(visible(self.queries[self.query]), self.token - 0.02, _SIZE, bold=True)
        sheet.text(x + 0.02, top + 0.5 * _ROW, name, size=_SIZE, bold=True, colour=ACCENT)
        _draw_strips(sheet, x + self.keys_x, top, self.strip, self.q[self.order][None], scales["q"])
        line = y + self.top - 0.04
        sheet.line(x, line, x + self.width, line, FAINT)

    def _draw_ramp(self, sheet: Sheet, x: float, middle: float, scales: Mapping[str, Scale]) -> None:
        ramp = min(0.8, 0.16 * self.width)
        sheet.text(x, middle, "−", size=_SMALL, colour=NOTE)
        sheet.image(x + 0.1, middle - 0.037, ramp, 0.075, diverging(np.linspace(-1, 1, 65))[None])
        full = ", ".join(f"{name} ±{short(scale.high)}" for name, scale in scales.items())
        room = self.width - ramp - 0.2
        text = f"+   full colour at {full}"
        sheet.text(
            x + ramp + 0.15,
            middle,
            text if text_width(text, _SMALL) < room else f"+   {full}",
            size=_SMALL,
            colour=NOTE,
        )

    def _draw_bars(self, sheet: Sheet, x: float, y: float) -> None:
        dots, weights = self.dots[self.rows], self.weights[self.rows]
        low, high = min(0.0, float(dots.min())), max(0.0, float(dots.max()))
        unit = self.bar / (high - low) if high > low else 0.0
        start = x + self.dot_x + self.number
        zero = start - low * unit
        below, above = (css(diverging(np.array([share]))[0]) for share in (-0.66, 0.66))
        beside = x + self.weight_x + self.share
        most = float(weights.max())
        for at in (zero, beside):
            sheet.line(at, y, at, y + len(self.rows) * _ROW, FAINT)
        for row, (dot, weight) in enumerate(zip(dots, weights, strict=True)):
            middle = y + (row + 0.5) * _ROW
            length = abs(float(dot)) * unit
            sheet.rect(zero - length if dot < 0 else zero, middle - 0.045, length, 0.09, below if dot < 0 else above)
            sheet.text(start - 0.05, middle, short(float(dot)), size=_SMALL, colour=INK, align="right")
            if most > 0:
                sheet.rect(beside, middle - 0.045, self.bar * float(weight) / most, 0.09, FILL)
            sheet.text(beside - 0.05, middle, _three(float(weight)), size=_SMALL, colour=INK, align="right")

    def _notes(self) -> list[str]:
        key = f"{quoted(self.keys[self.chosen])} ({self.chosen})"
        own = weight_text(float(self.weights[self.chosen]))
        found = [f"Neurons stand in the order of their share of q·k with {key}, which has the weight {own}."]
        if len(self.rows) < self.reached:
            found.append(
                f"Shown are the {len(self.rows)} keys of {self.reached:,} with the largest weights; the others, left "
                f"out, have {weight_text(self.left_out)} together."
            )
        if self.hidden >= 0.0005:
            found.append(f"Hidden keys have {weight_text(self.hidden)}.")
        if self.check.verdict == "window":
            found.append("Only some keys are within this query's reach: the weights are the softmax over those.")
        elif self.check.verdict == "differs":
            found.append(
                f"The softmax of q·k × {short(self.factor)} differs from the weights by up to "
                f"{short(self.check.difference)}, at {quoted(self.keys[self.check.key])} ({self.check.key}): this "
                "model adds position terms to q·k, or masks keys."
            )
        return found


def query_place(state: Mapping[str, Any], tokens: Mapping[str, Any]) -> int:
    """The token that is asked about: the first chosen one, else the last that is not special."""
    given = units(tokens, state["unit"])
    if state["left"] and state["left"][0] < len(given):
        return given[state["left"][0]].start
    ordinary: Sequence[int] = [place for place in range(len(tokens["text"])) if place not in set(tokens["special"])]
    return ordinary[-1] if ordinary else len(tokens["text"]) - 1


def _three(weight: float) -> str:
    """A weight with three places."""
    return f"{weight:.3f}" if weight >= 0.0005 else "0" if weight == 0 else "<0.001"


def _draw_strips(sheet: Sheet, x: float, y: float, width: float, values: NDArray[Any], scale: Scale) -> None:
    """Strips one above the other, `values` [strips, neurons]."""
    for row, colours in enumerate(scale.colours(values)):
        sheet.image(x, y + row * _ROW + (_ROW - _STRIP) / 2, width, _STRIP, colours[None])
