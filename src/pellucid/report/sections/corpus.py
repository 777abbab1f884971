"""The text that was read: how much of it, how it met the tokenizer, its frequent words and its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.report.html import Cell, Row, bar, element, joined, number, share, word
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import Sheet

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.corpus.info import CorpusInfo, LabelInfo

SHOWN, VALUES = 15, 6
"""Frequent words that the page shows, and values of each label."""


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """Counts, what was cut or dropped, frequent words, labels."""
    info = subject.corpus.info()
    sheet.facts(
        [
            ("Corpus", element("bdi", info.name)),
            ("Sentences", number(info.sentences)),
            ("Documents", f"{number(info.documents)} ({info.unit})"),
            ("Words", number(found.words)),
            ("Different words", number(info.distinct_words)),
            (
                "Words per sentence",
                f"{number(info.words / max(1, info.sentences))} on average, {info.longest[1]} at most",
            ),
            ("Tokens", number(found.counts.tokens[0])),
            ("Tokens per word", number(found.counts.tokens[0] / max(1, found.words))),
            ("Fingerprint", element("code", subject.corpus.fingerprint or "none: this text cannot be named")),
        ]
    )
    for sentence in _losses(found):
        sheet.text(sentence)
    _frequent(sheet, info)
    if info.labels:
        sheet.heading("Labels")
        sheet.table(
            ["label", "on", "labelled", "values", "most frequent values"],
            [_label(label) for label in info.labels],
            caption="What the corpus says of its words and sentences beyond the text itself.",
            name="labels",
            right=["labelled", "values"],
        )
    else:
        sheet.note("This corpus has no labels: nothing is known of its words but the words themselves.")


def _frequent(sheet: Sheet, info: CorpusInfo) -> None:
    most = info.frequent[0][1]
    rows = [(Cell(word(text), text), bar(count, most), Cell(share(count / info.words), count / info.words))
            for text, count in info.frequent[:SHOWN]]  # fmt: skip
    sheet.table(
        ["word", "times", "share of the text"],
        rows,
        caption=f"The {len(rows)} most frequent words.",
        name="frequent_words",
        right=["share of the text"],
    )


def _label(label: LabelInfo) -> Row:
    shown = [
        joined([word(value), element("span", f" {number(count)}", class_="aside")]) for value, count in label.values
    ]
    more = f" and {number(label.distinct - VALUES)} more" if label.distinct > VALUES else ""
    written = ", ".join(f"{value} {count}" for value, count in label.values)
    frequent = Cell(joined([joined(shown[:VALUES], ", "), more]), written)
    return Cell(element("strong", label.name), label.name), f"{label.of}s", label.labelled, label.distinct, frequent


def _losses(found: Found) -> list[str]:
    """What did not go into the numbers, a sentence each."""
    counts, models = found.counts, len(found.models)  # each model's losses are in the sums, and all lose the same
    told: list[str] = []
    if counts.windowed:
        told.append(
            f"Sentences longer than the model's limit ({number(counts.windowed)} of them) were read in "
            "overlapping windows; every word counts once."
        )
    if counts.truncated:
        told.append(
            f"Sentences longer than the model's limit ({number(counts.truncated)} of them) were cut, with a "
            f"loss of {number(counts.lost_words // models)} words."
        )
    if counts.missing_words:
        told.append(
            f"The tokenizer has no token of its own for {number(counts.missing_words // models)} words; they are in "
            "the counts above and in no other number."
        )
    if counts.scattered:
        told.append(
            "Sentences of one document stand apart in this corpus, so that the groups of documents behind the "
            "intervals may cut through documents."
        )
    return told or ["Nothing was cut or left out: every word was read within the model's limit."]


SECTION = Section(
    title="The text",
    order=20,
    explanation="What the model read: everything below holds for text like this, and may differ on other text.",
    render=render,
)
