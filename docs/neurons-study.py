"""Fills docs/neurons-study.md with the numbers of a study: `python docs/neurons-study.py FOLDER`.

FOLDER is one that `pellucid study neurons` made, or its runs. The numbers are copied to docs/neurons-study/; every
block between `<!-- NAME -->` and `<!-- end -->` in the page is written anew from them. Without a folder, the blocks are
written from the numbers that lie there already.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pellucid.studies.neurons import rows
from pellucid.studies.neurons.claims import claims
from pellucid.studies.neurons.tables import CONCEPTS, Case, read_cases, write

PAGE = Path(__file__).parent / "neurons-study.md"
NUMBERS = Path(__file__).parent / "neurons-study"
BLOCK = re.compile(r"(<!-- (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A table of the page."""
    shown = [[str(getattr(cell, "shown", cell)).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [list(columns), ["---"] * len(columns), *shown])


def blocks(cases: Sequence[Case]) -> dict[str, str]:
    """What stands in each block of the page."""
    models = [case.model for case in cases]
    found = claims(cases)
    held = {(each.claim, each.case): each for each in found}
    verdicts: list[list[str]] = []
    for claim, *cells, published in rows.verdict_rows(found, cases):
        told = [held.get((claim, case.name)) for case in cases]
        if not any(told):  # a claim about all models
            own = next(each for each in found if each.claim == claim)
            verdicts.append([claim.rstrip("."), f"**{own.verdict}**: {own.found}", *[""] * (len(cases) - 1), published])
            continue
        shown = ["" if each is None else f"**{cell}**: {each.found.partition('; ')[0]}"
                 for each, cell in zip(told, cells, strict=True)]  # fmt: skip
        verdicts.append([claim.rstrip("."), *shown, published])
    stand, fall, open_ = (sum(each.holds is holds for each in found) for holds in (True, False, None))
    return {
        "count": f"Of {len(found)} judgements {stand} stand, {fall} do not, and {open_} cannot be told.",
        "models": table(("model", "class", "neurons", "ranked on", "judged on", "own task"), _models(cases)),
        "verdicts": table(("claim", *models, "published"), verdicts),
        "smallest": table(
            ("model", "concept", "neurons", "accuracy of all", "within 1%", "within 2%", "within 5%"),
            rows.smallest_rows(cases),
        ),
        "controls": table(
            ("model", "concept", "accuracy", "95% interval", "random model", "control task", "most frequent class"),
            _controls(cases),
        ),
        "set-controls": table(
            ("model", "probe of", "accuracy of all", "most frequent class", "random model", "control task"),
            rows.control_rows(cases),
        ),
        "stability": table(
            ("model", "ranking", "first neurons", "agreement", "95% interval", "two random orders"),
            rows.stability_rows(cases),
        ),
    }


def _models(cases: Sequence[Case]) -> list[list[str]]:
    def text(case: Case, part: str) -> str:
        counted = case.facts["counts"][part]
        return f"{counted['sentences']:,} sentences, {counted['words']:,} words"

    return [
        [case.model, str(case.facts["model"]["class"]),
         f"{case.neurons:,} ({', '.join(case.facts['sites']['stream'])})", text(case, "ranked"), text(case, "judged"),
         str(case.facts["task"] or "none")]
        for case in cases
    ]  # fmt: skip


def _controls(cases: Sequence[Case]) -> list[list[Any]]:
    made: list[list[Any]] = []
    for case in cases:
        for concept, told in CONCEPTS.items():
            grid = case.grids[f"probe {concept}"]
            every = grid.columns[0]
            accuracy = grid.at("accuracy", every)
            beside = [grid.at(row, every).value for row in ("random model", "control task")]
            cells = [rows.per_cent(each) for each in (*beside, accuracy.chance)]
            made.append([case.model, told, rows.per_cent(accuracy.value), rows.ends_of(accuracy), *cells])
    return made


def filled(text: str, cases: Sequence[Case]) -> str:
    """The page with every block as the numbers have it; a block that does not exist is refused."""
    made = blocks(cases)

    def block(found: re.Match[str]) -> str:
        if found["name"] not in made:
            sys.exit(f"There is no table {found['name']!r}; there are {', '.join(made)}.")
        return f"{found[1]}{made[found['name']]}\n{found[3]}"

    return BLOCK.sub(block, text)


def main() -> None:
    """Copies the numbers of a folder, and fills the page."""
    if len(sys.argv) > 1:
        given = read_cases(sys.argv[1])
        shutil.rmtree(NUMBERS, ignore_errors=True)
        NUMBERS.mkdir()
        for case in given:
            write(case, NUMBERS)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), read_cases(NUMBERS)), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
