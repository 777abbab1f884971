"""Fills docs/identifiability-study.md from docs/identifiability-study/: `python docs/identifiability-study.py`.

Every block between `<!-- NAME -->` and `<!-- end -->` in the page is written anew from the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pellucid.heads.flow.following import METHODS
from pellucid.studies.identifiability.claims import QUESTIONS, claims
from pellucid.studies.identifiability.measures import CEILING
from pellucid.studies.identifiability.tables import Case, read_cases

PAGE = Path(__file__).with_suffix(".md")
FLOW = PAGE.with_name("flow.md")
BESIDE = {"nearness": "nearness alone", "own token": "own token alone", CEILING: "the most that any could reach"}
NUMBERS = Path(__file__).with_suffix("")
BLOCK = re.compile(r"(<!-- (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def judged(cases: Sequence[Case]) -> str:
    """Every claim with its verdict and numbers on every model."""
    found = {(each.claim, each.case): f"**{each.verdict}**: {each.found}" for each in claims(cases)}
    rows = [
        (asked.claim.rstrip("."), *(found[asked.claim, case.name] for case in cases), asked.published)
        for asked in QUESTIONS
    ]
    return table(("claim", *names(cases), "published"), rows)


def counted(cases: Sequence[Case]) -> str:
    """How many judgements there are of each kind."""
    found = [each.holds for each in claims(cases)]
    stand, fall, open_ = (found.count(verdict) for verdict in (True, False, None))
    return f"Of {len(found)} judgements {stand} stand, {fall} do not, and {open_} cannot be told."


def sizes(cases: Sequence[Case]) -> str:
    """What was read of each model."""
    rows = [
        ("parameters, in millions", *(f"{case.facts['model']['parameters'] / 1e6:.1f}" for case in cases)),
        ("layers; width of a head", *(f"{case.facts['model']['layers']}; {case.width}" for case in cases)),
        ("sentences for attention", *(f"{case.facts['size']['read']}" for case in cases)),
        (
            "passages, up to so many words",
            *(f"{case.facts['size']['passages']}, {case.facts['size']['words']}" for case in cases),
        ),
        ("sentences to tell tokens in", *(f"{case.facts['size']['told']:,}" for case in cases)),
        ("tokens asked about", *(f"{case.facts['counts']['tokens asked about']:,}" for case in cases)),
        ("layers with perceptrons", *(", ".join(case.curves["perceptrons"].places) for case in cases)),
        (
            "sentences for mixing, up to so many words",
            *(f"{case.facts['size']['mixed']}, {case.facts['size']['longest']}" for case in cases),
        ),
        ("directions for each token", *(f"{case.facts['size']['probes']}" for case in cases)),
        ("sentences for maps of attention", *(f"{case.facts['size'].get('followed', 0)}" for case in cases)),
        ("error of the norms", *(f"{case.facts['counts']['error of the norms']:.1%}" for case in cases)),
    ]
    return table(("", *names(cases)), rows)


def followed(cases: Sequence[Case]) -> str:
    """How maps of attention agree with what states react to, after the last layer."""
    held = [case for case in cases if "flow" in case.curves]
    rows = [(f"`{method}`", *(_agreement(case, method) for case in held)) for method in METHODS]
    rows += [(told, *(_agreement(case, name) for case in held)) for name, told in BESIDE.items()]
    return table(("", *names(held)), rows)


def _agreement(case: Case, row: str) -> str:
    """One correlation with its interval and the random network's."""
    curve = case.curves["flow"]
    if row not in curve.rows:
        return "not asked"
    at, ends = curve.rows.index(row), curve.interval(lambda values: values)
    told = f"{curve.values[at, -1]:.2f}"
    if row == CEILING or ends.low is None or ends.high is None:
        return told.replace("-", "−")
    told += f" ({ends.low[at, -1]:.2f} to {ends.high[at, -1]:.2f})"
    told += f" [{curve.random[at, -1]:.2f}]" if curve.random is not None and row in METHODS else ""
    return told.replace("-", "−")


def names(cases: Sequence[Case]) -> list[str]:
    """Models as the page writes them."""
    return [f"`{case.name}`" if ":" in case.name else case.name for case in cases]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def filled(text: str, cases: Sequence[Case]) -> str:
    """The page with every block as the numbers have it."""
    made = {"claims": judged(cases), "counts": counted(cases), "sizes": sizes(cases), "flow": followed(cases)}
    return BLOCK.sub(lambda found: f"{found[1]}{made[found['name']]}\n{found[3]}", text)


if __name__ == "__main__":
    for page in (PAGE, FLOW):
        page.write_text(filled(page.read_text(encoding="utf-8"), read_cases(NUMBERS)), encoding="utf-8")
