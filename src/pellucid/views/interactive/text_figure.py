"""The still figure of the text view: the text coloured by a track, and below it values and predictions by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pellucid.errors import PellucidError
from pellucid.results import WIDTH as PAGE
from pellucid.views.interactive.colours import Colours, Scale, css, ink_on, scale_of
from pellucid.views.interactive.held import Held
from pellucid.views.interactive.legend import HEIGHT as LEGEND
from pellucid.views.interactive.legend import draw_scale, titled
from pellucid.views.interactive.sheet import (
    Sheet,
    fitted,
    paragraph_height,
    text_width,
    visible,
    wrapped,
    write_lines,
)
from pellucid.views.interactive.token_table import TokenTable
from pellucid.views.style import INK, NOTE

WIDTH = PAGE
_TALLEST = 9.4  # inches, so that the whole fits on a page
_FEWEST = 5  # lines of text that are shown at least

_SIZE, _ABOUT = 8.5, 6.8
_LINE, _BOX = 0.2, 0.165
_SPACE, _PAD = 0.04, 0.012
_PROBABILITY = Scale(0.0, 1.0, False)
_FRAMES = "A frame marks predictions of the token that does follow."


class TextPicture:
    """The text and the tables of one panel; `height` in inches for a width, and `notes` on what was left out."""

    def __init__(self, held: Held, state: Mapping[str, Any], width: float) -> None:
        text = held.panel.get("text")
        if not text:
            raise PellucidError(f"{held.name} has no values for its text.")
        self.width, self.tokens = width, held.tokens()
        self.chosen = state["left"][0] if state["left"] else -1
        self.parts: list[Heading] = []
        tracks = text["tracks"]
        track = state["track"] if state["track"] in tracks else next(iter(tracks), None)
        self.values = None if track is None else held.track(track)
        if track is not None and self.values is not None:
            facts = tracks[track]
            scale = scale_of(self.values, signed=facts["signed"])
            colours = scale.colours(self.values)
            self.parts.append(Heading(titled(track), facts["about"], scale, facts["unit"], width))
        else:
            colours = None
        self.tables = self._tables(held, text, state["map"])
        rest = sum(part.height for part in self.parts)
        rest += sum(0.16 + part.height + table.height for part, table in self.tables)
        most = max(_FEWEST, int((_TALLEST - rest) / _LINE))
        self.flow = Flow(self.tokens, colours, self.values, self.chosen, width=width, most=most)
        self.height = rest + self.flow.height
        self.notes = [*self.flow.notes, *(note for _, table in self.tables for note in table.notes)]

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draws it with its top left corner at (x, y)."""
        for part in self.parts:
            part.draw(sheet, x, y)
            y += part.height
        self.flow.draw(sheet, x, y)
        y += self.flow.height
        for part, table in self.tables:
            y += 0.16
            part.draw(sheet, x, y)
            table.draw(sheet, x, y + part.height)
            y += part.height + table.height

    def _tables(self, held: Held, text: Mapping[str, Any], asked: str | None) -> list[tuple[Heading, TokenTable]]:
        """The map and the lens; where the state names one, that one alone."""
        found: list[tuple[Heading, TokenTable]] = []
        maps = text["maps"]
        name = asked if asked in maps else next(iter(maps), None)
        if name is not None and asked != "lens":
            facts, values = maps[name], held.map(name)
            scale = scale_of(values, signed=facts["signed"])
            table = TokenTable(
                titled(name), facts["rows"], self.tokens, scale.colours(values), self.chosen, width=self.width
            )
            found.append((Heading(titled(name), facts["about"], scale, facts["unit"], self.width), table))
        if text["lens"] and asked in (None, "lens"):
            facts = text["lens"]
            words, ids, probabilities = held.lens()
            names = [[words[place] for place in row] for row in ids[:, :, 0]]
            table = TokenTable(
                "Predictions",
                facts["rows"],
                self.tokens,
                _PROBABILITY.colours(probabilities[:, :, 0]),
                self.chosen,
                width=self.width,
                words=names,
            )
            found.append(
                (Heading("Predictions", f"{facts['about']} {_FRAMES}", _PROBABILITY, "probability", self.width), table)
            )
        return found


class Heading:
    """The heading of a part: what its colours stand for, and a sentence about it."""

    def __init__(self, name: str, about: str, scale: Scale, unit: str, width: float) -> None:
        self.name, self.scale, self.unit, self.width = name, scale, unit, width
        self.about = wrapped(about, width, _ABOUT)
        self.height = LEGEND + paragraph_height(self.about, _ABOUT) + 0.06

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        draw_scale(sheet, x, y, self.scale, self.name, unit=self.unit, width=self.width)
        write_lines(sheet, x, y + LEGEND, self.about, size=_ABOUT, colour=NOTE)


class Flow:
    """The text in lines, every token on the colour of its value."""

    def __init__(
        self, tokens: Mapping[str, Any], colours: Colours | None, values: Any, chosen: int, *, width: float, most: int
    ) -> None:
        self.tokens, self.colours, self.values, self.chosen, self.width = tokens, colours, values, chosen, width
        self.texts = [fitted(visible(text), width - 2 * _PAD, _SIZE) for text in tokens["text"]]
        self.special = set(tokens["special"])
        self.places = self._place()
        lines = 1 + max(line for line, _ in self.places)
        self.lines = min(lines, most)
        middle = self.places[chosen][0] if chosen >= 0 else 0
        self.first = max(0, min(middle - self.lines // 2, lines - self.lines))
        self.height = self.lines * _LINE
        seen = [place for place, (line, _) in enumerate(self.places) if self.first <= line < self.first + self.lines]
        cut = f"Text: tokens {seen[0] + 1} to {seen[-1] + 1} of {len(self.texts):,}; the others are left out."
        self.notes = [cut] if self.lines < lines else []

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        for place, (line, left) in enumerate(self.places):
            if not self.first <= line < self.first + self.lines:
                continue
            wide = self._wide(place)
            start = x + (self.width - left - wide if self.tokens["rtl"] else left)
            middle = y + (line - self.first + 0.5) * _LINE
            ink = NOTE if place in self.special else INK
            if self.colours is not None and not np.isnan(self.values[place]):
                sheet.rect(start, middle - _BOX / 2, wide, _BOX, css(self.colours[place]))
                ink = ink_on(self.colours[place])
            if place == self.chosen:
                sheet.rect(start, middle - _BOX / 2, wide, _BOX, INK, frame=True)
            sheet.text(start + wide / 2, middle, self.texts[place], size=_SIZE, colour=ink, align="center")

    def _wide(self, place: int) -> float:
        return text_width(self.texts[place], _SIZE) + 2 * _PAD

    def _place(self) -> list[tuple[int, float]]:
        """Line of each token, and inches from the line's beginning; words stay whole where they fit on a line."""
        found: list[tuple[int, float]] = []
        line, at = 0, 0.0
        for word in _words(self.tokens):
            whole = sum(self._wide(place) for place in word)
            before = _SPACE if at > 0 and self.tokens["space"][word[0]] == "1" else 0.0
            if at > 0 and at + before + whole > self.width:
                line, at, before = line + 1, 0.0, 0.0
            at += before
            for place in word:
                if at > 0 and at + self._wide(place) > self.width:
                    line, at = line + 1, 0.0
                found.append((line, at))
                at += self._wide(place)
            if any("⏎" in self.texts[place] or "↵" in self.texts[place] for place in word):
                line, at = line + 1, 0.0
        return found


def _words(tokens: Mapping[str, Any]) -> Sequence[Sequence[int]]:
    """Places of tokens that follow each other without a space; a line break ends them."""
    found: list[list[int]] = []
    for place, space in enumerate(tokens["space"]):
        ended = place > 0 and any(sign in tokens["text"][place - 1] for sign in "⏎\n")
        if place == 0 or space == "1" or ended:
            found.append([])
        found[-1].append(place)
    return found
