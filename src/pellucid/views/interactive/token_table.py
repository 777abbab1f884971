"""A table of rows × tokens: colours, or words on colours, for as many tokens as are readable side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pellucid.views.interactive.colours import ACCENT, Colours, ink_on
from pellucid.views.interactive.sheet import Sheet, fitted, text_width, visible
from pellucid.views.style import INK, NOTE, thinned

_LABEL, _WORD = 6.4, 6.0
_NARROWEST = {False: 0.115, True: 0.36}  # inches of a column without and with words
_WIDEST = {False: 1.2, True: 0.75}
_LEVEL = 0.15  # inches of names that do not stand upright
_LONGEST = 0.75  # inches of a token's name


class TokenTable:
    """Cells of `colours` [rows, tokens, 3] with the tokens above them and the rows' names at the left.

    `words` [rows][tokens] are written into the cells, framed where the next token is that word. The table is `height`
    inches high, and `notes` say which tokens were left out.
    """

    def __init__(
        self,
        name: str,
        rows: Sequence[str],
        tokens: Mapping[str, Any],
        colours: Colours,
        chosen: int,
        *,
        width: float,
        words: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self.rows, self.tokens, self.colours, self.chosen, self.words = rows, tokens, colours, chosen, words
        worded = words is not None
        self.labels = max(text_width(row, _LABEL) for row in rows) + 0.08
        room = width - self.labels
        total = len(tokens["text"])
        self.count = min(total, max(1, int(room / _NARROWEST[worded])))
        self.first = max(0, min(chosen - self.count // 2, total - self.count)) if chosen >= 0 else 0
        self.row = {(True, False): 0.135, (True, True): 0.12, (False, False): 0.135, (False, True): 0.085}[
            worded, len(rows) > 24
        ]
        self.places = list(range(self.first, self.first + self.count))
        if tokens["rtl"]:
            self.places.reverse()
        self.names = [fitted(visible(tokens["text"][place]), _LONGEST, _LABEL) for place in self.places]
        self.narrow(min(_WIDEST[worded], room / self.count))
        left_out = (
            f"{name}: tokens {self.first + 1} to {self.first + self.count} of {total:,}; the others are left out."
        )
        self.notes = [left_out] if self.count < total else []

    def narrow(self, cell: float) -> None:
        """Makes every column `cell` inches wide; names stand upright where they do not fit otherwise."""
        self.cell = cell
        self.upright = any(text_width(name, _LABEL, True) + 0.06 > cell for name in self.names)
        self.head = max(text_width(name, _LABEL, True) for name in self.names) + 0.07 if self.upright else _LEVEL
        self.height = self.head + len(self.rows) * self.row

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draws it with its top left corner at (x, y)."""
        left, top = x + self.labels, y + self.head
        wide, high = self.count * self.cell, len(self.rows) * self.row
        sheet.image(left, top, wide, high, self.colours[:, self.places])
        for column in range(1, self.count):
            sheet.line(left + column * self.cell, top, left + column * self.cell, top + high, "white", 0.4)
        for row in range(1, len(self.rows)):
            sheet.line(left, top + row * self.row, left + wide, top + row * self.row, "white", 0.4)
        for column, (place, name) in enumerate(zip(self.places, self.names, strict=True)):
            middle = left + (column + 0.5) * self.cell
            up, bold = (0.04 if self.upright else _LEVEL / 2), place == self.chosen
            sheet.text(middle, top - up, name, size=_LABEL, bold=bold, align="center", upright=self.upright)
            if place == self.chosen:
                sheet.rect(left + column * self.cell, top, self.cell, high, INK, frame=True)
        for row in thinned(self.rows, max(1, int(high / 0.1))):
            middle = top + (row + 0.5) * self.row
            sheet.text(left - 0.05, middle, self.rows[row], size=_LABEL, colour=NOTE, align="right")
        if self.words is not None:
            self._write(sheet, left, top, self.words)

    def _write(self, sheet: Sheet, x: float, y: float, words: Sequence[Sequence[str]]) -> None:
        """Words into the cells, framed where they come true."""
        for row, line in enumerate(words):
            for column, place in enumerate(self.places):
                word, colour = line[place], self.colours[row, place]
                left, top = x + column * self.cell, y + row * self.row
                text = fitted(visible(word.strip() or word), self.cell - 0.04, _WORD)
                middle = (left + self.cell / 2, top + self.row / 2)
                sheet.text(*middle, text, size=_WORD, colour=ink_on(colour), align="center")
                if self._comes_true(word, place):
                    sheet.rect(left + 0.01, top + 0.01, self.cell - 0.02, self.row - 0.02, ACCENT, frame=True)

    def _comes_true(self, word: str, place: int) -> bool:
        """Whether a word is the token that follows a place; blanks around it do not matter."""
        texts = self.tokens["text"]
        return place + 1 < len(texts) and word.strip() == texts[place + 1].strip() != ""
