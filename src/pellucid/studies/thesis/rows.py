"""The study's numbers as tables to read: published ones beside ours, chance and random networks, as plain text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pellucid.studies.thesis import published
from pellucid.studies.thesis.arrays import CORRELATIONS, KERNELS
from pellucid.studies.thesis.chance import google_null
from pellucid.studies.thesis.claims import claims
from pellucid.studies.thesis.tables import Score, Study

NAMES = {
    "thesis-svcca": "SVCCA (the mean of google/svcca)",
    "cca": "mean ρ",
    "kornblith-cka": "CKA linear",
    "cka": "CKA linear, debiased",
    "kornblith-rbf-cka:1": "CKA RBF",
    "kornblith-rbf-cka:0.5": "CKA RBF .5",
}
"""Scores in the thesis's layout, as people call them."""

_HEADS = ("score", "tagger – LM", "published", "ours", "random tagger", "random LM", "both random")
_BIASED = "kornblith-cka"
_NUMBER = re.compile(r"(−?[\d.,]+%?( to −?[\d.]+)?)?")


@dataclass(frozen=True)
class Rows:
    """A table of text: a name for files, what it shows, its columns, and its rows."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that hold numbers, to be aligned to the right."""
        return tuple(
            column
            for place, column in enumerate(self.columns)
            if all(_NUMBER.fullmatch(row[place]) for row in self.rows)
        )

    def markdown(self) -> str:
        """The table as it stands in a Markdown page."""
        numbers = self.numbers
        lines = [self.columns, tuple("---:" if column in numbers else "---" for column in self.columns), *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def number(value: float | None, places: int = 3) -> str:
    """A number to so many places, minus as −; nothing where there is none."""
    return "" if value is None else f"{round(value, places) + 0.0:.{places}f}".replace("-", "−")


def interval(score: Score) -> str:
    """Both ends of an interval."""
    return "" if score.low is None else f"{number(score.low)} to {number(score.high)}"


def all_rows(study: Study) -> list[Rows]:
    """Every table, in the order of the page."""
    return [verdicts(study), training(study), noise(study), between(study), beside(study), *grids(study)]


def verdicts(study: Study) -> Rows:
    """The claims and whether they stand."""
    rows = [(each.claim, each.where, each.verdict, each.found) for each in claims(study)]
    return Rows(
        "claims",
        "What the thesis claims, where, and whether it stands by the rule stated for it.",
        ("claim", "section", "verdict", "numbers"),
        tuple(rows),
    )


def rules(study: Study) -> Rows:
    """The rule that each claim is judged by."""
    rows = [(each.claim, each.rule) for each in claims(study)]
    return Rows("rules", "The rule that each claim is judged by.", ("claim", "stands where"), tuple(rows))


def training(study: Study) -> Rows:
    """The published scores of both networks beside ours and guessing."""
    told = study.facts["training"]
    accuracy, guessed = (told["tagger"]["test"][name]["accuracy"] for name in ("scores", "chance"))
    perplexity, unigram = (told["lm"]["test"][name]["perplexity"] for name in ("scores", "chance"))
    return Rows(
        "training",
        f"Scores on the test text of {study.facts['text']['name']}, after {study.last} epochs.",
        ("network", "score", "published", "ours", "chance"),
        (
            ("tagger", "accuracy", f"{published.ACCURACY.value:.1%}", f"{accuracy:.1%}", f"{guessed:.1%}"),
            (
                "language model",
                "perplexity",
                number(published.PERPLEXITY.value, 1),
                number(perplexity, 1),
                f"{unigram:,.1f}",
            ),
        ),
    )


def noise(study: Study) -> Rows:
    """What unrelated numbers score in the thesis's layout."""
    layout, drawn = study.facts["layout"], study.facts["noise"]
    shape = google_null(published.POINTS, published.ROWS, published.ROWS).mean
    rows: list[tuple[str, ...]] = []
    for score in (*CORRELATIONS, *KERNELS):
        found = drawn[score]
        rows.append((NAMES[score], number(found["value"]), number(found["chance"])))
    return Rows(
        "noise",
        f"Two arrays of independent Gaussian noise, {layout['rows']:,} × {layout['columns']} × {layout['width']}, read "
        f"as {layout['rows']:,} × {layout['columns'] * layout['width']:,}: drawn, and in closed form. In the published "
        f"shape, 3,104 × 15,360, the closed form of SVCCA is {shape:.3f}.",
        ("score", "drawn", "closed form"),
        tuple(rows),
    )


def _pairs() -> list[tuple[int, int]]:
    return [(one, other) for one in (1, 2) for other in (1, 2)]


def between(study: Study) -> Rows:
    """Tables 1 and 2 in the thesis's layout, beside chance and random networks."""
    rows: list[tuple[str, ...]] = []
    moved = {each.left: each for each in study.of("shifted", "thesis", "thesis-svcca")}
    for name, (score, _) in published.SCORES.items():
        for one, other in _pairs():
            found = study.one("between", "thesis", score, f"tagger.{one}", f"lm.{other}")
            same = one == other and f"tagger.{one}" in moved
            apart = study.one("shifted", "thesis", score, found.left, found.right).value if same else None
            unbiased = study.one("between", "thesis", "cka", found.left, found.right) if score == _BIASED else None
            rows.append(
                (
                    name,
                    f"{one} – {other}",
                    number(published.printed(name, one, other), 2),
                    number(published.printed_alone(name, one) if one == other else None),
                    number(found.value),
                    number(None if unbiased is None else unbiased.value),
                    number(found.chance),
                    number(found.shuffled),
                    number(found.random_left),
                    number(found.random_right),
                    number(found.random_both),
                    number(apart),
                )
            )
    return Rows(
        "table-2-thesis-layout",
        "Tables 1 and 2 in the thesis's layout (table 1 where it prints another number for the same layers). Debiased: "
        "linear CKA without the bias of few rows. Chance is its mean in closed form; shuffled: one side dealt out "
        "once; random: an untrained network in place of the tagger or of the language model (LM); other words: columns "
        "as long as in the thesis, where the two networks read different words at the same places.",
        (*_HEADS[:3], "table 1", "ours", "debiased", "chance", "shuffled", *_HEADS[4:], "other words"),
        tuple(rows),
    )


def beside(study: Study) -> Rows:
    """The same layers word by word."""
    rows: list[tuple[str, ...]] = []
    for name, (_, score) in published.SCORES.items():
        for one, other in _pairs():
            found = study.one("between", "words", score, f"tagger.{one}", f"lm.{other}")
            rows.append(
                (
                    name,
                    f"{one} – {other}",
                    number(published.printed(name, one, other), 2),
                    number(found.value),
                    interval(found),
                    number(found.chance),
                    number(found.random_left),
                    number(found.random_right),
                    number(found.random_both),
                )
            )
    text, groups = study.facts["text"], study.facts["groups"]
    return Rows(
        "table-2-word-by-word",
        f"The same layers word by word: {text['words']:,} words × {study.facts['layout']['width']} features (Gaussian "
        f"kernels: {text['sampled']:,} words), CKA debiased, SVCCA of the directions that hold 99% of the variance. "
        f"Intervals: jackknife over {len(groups['words'])} groups of documents, 95%.",
        (*_HEADS[:4], "95% interval", "chance", *_HEADS[4:]),
        tuple(rows),
    )


def grids(study: Study) -> list[Rows]:
    """The layers of the language model against each other, in both layouts: figures 6, 7 and 10."""
    made: list[Rows] = []
    depth = study.depth["lm"]
    for name, scores in published.SCORES.items():
        if name == "CKA RBF .5":
            continue
        for layout, score in zip(("thesis", "words"), scores, strict=True):
            made.append(
                Rows(
                    f"within-{name.lower().replace(' ', '-')}-{layout}",
                    f"{name} between layers of the language model, "
                    + ("in the thesis's layout." if layout == "thesis" else "word by word."),
                    ("layer", *(str(layer) for layer in range(1, depth + 1)), "chance", "random, with last"),
                    tuple(_grid_row(study, layout, score, layer) for layer in range(1, depth + 1)),
                )
            )
    return made


def _grid_row(study: Study, layout: str, score: str, layer: int) -> tuple[str, ...]:
    depth = study.depth["lm"]
    found = [study.one("within", layout, score, f"lm.{layer}", f"lm.{other}") for other in range(1, depth + 1)]
    other = study.one("within", layout, score, f"lm.{layer}", f"lm.{depth}")
    chance = max(each.chance for each in found)
    return (str(layer), *(number(each.value, 2) for each in found), number(chance, 2), number(other.random_both, 2))
