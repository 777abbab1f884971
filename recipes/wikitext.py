"""WikiText-2 as articles of ordinary English: one normalisation for all three files."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pellucid.errors import PellucidError

SPLITS = ("train", "valid", "test")
UNKNOWN = "<unk>"
LEAST = 3  # how often a word must occur in the training text; valid.txt and test.txt were made with the same rule

NORMALISATION = (
    f"In all three files, words that occur fewer than {LEAST} times in the training text become {UNKNOWN}, blank lines "
    "are dropped, and the spaces that WikiText puts around punctuation are taken out again, so that the text reads "
    "like ordinary English ('role @-@ playing' is 'role-playing', '= = Plot = =' is '== Plot ==')."
)

_TITLE = re.compile(r"= (?!=).* (?<!= )=")
_SPACING = (
    (re.compile(r" @([-.,])@ "), r"\1"),
    (re.compile(r'" ([^"]*) "'), r'"\1"'),
    (re.compile(r" '(s|t|re|m|ve|ll|d)\b"), r"'\1"),
    (re.compile(r"s ' (?=\w)"), "s' "),
    (re.compile(r" ([,.;:!?)\]%])"), r"\1"),
    (re.compile(r"([(\[$£]) "), r"\1"),
)


@dataclass(frozen=True)
class Split:
    """One file of WikiText-2: its articles after normalisation, and how many words the file itself holds."""

    articles: tuple[str, ...]
    words: int


def find_data() -> Path | None:
    """The folder with train.txt, valid.txt and test.txt, where PELLUCID_DATA or ../shared/data holds it."""
    root = Path(os.environ.get("PELLUCID_DATA", Path(__file__).parents[2] / "shared" / "data"))
    folder = root / "wikitext2"
    return folder if all((folder / f"{name}.txt").is_file() for name in SPLITS) else None


def read(folder: Path) -> dict[str, Split]:
    """The three splits under one normalisation; a word is what stands between spaces in the file."""
    absent = [f"{name}.txt" for name in SPLITS if not (folder / f"{name}.txt").is_file()]
    if absent:
        raise PellucidError(f"The folder {str(folder)!r} lacks {', '.join(absent)}; give the folder of WikiText-2.")
    lines = {name: (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines() for name in SPLITS}
    counts = Counter(word for line in lines["train"] for word in line.split())
    known = frozenset(word for word, count in counts.items() if count >= LEAST)
    return {
        name: Split(tuple(articles(lines[name], known)), sum(len(line.split()) for line in lines[name]))
        for name in SPLITS
    }


def articles(lines: Iterable[str], known: frozenset[str]) -> list[str]:
    """Lines gathered into articles: each begins at a title, `= Title =` after a blank line; a paragraph is one line."""
    found: list[list[str]] = []
    after_blank = True
    for line in lines:
        words = line.split()
        is_title = after_blank and _TITLE.fullmatch(" ".join(words)) is not None
        after_blank = not words
        if not words:
            continue
        if is_title or not found:
            found.append([])
        found[-1].append(natural(word if word in known else UNKNOWN for word in words))
    return ["\n".join(paragraphs) + "\n" for paragraphs in found]


def natural(words: Iterable[str]) -> str:
    """Words as ordinary English, without the spaces around punctuation."""
    text = " ".join(words)
    heading = re.fullmatch(r"((?:= )+)(.*?)((?: =)+)", text)
    if heading:
        marks = "=" * heading[1].count("=")
        return f"{marks} {natural([heading[2]])} {marks}"
    for pattern, replacement in _SPACING:
        text = pattern.sub(replacement, text)
    return text
