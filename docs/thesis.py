"""Fills docs/thesis.md with the numbers of a study: `python docs/thesis.py FOLDER`, once `pellucid study` made it.

The numbers and some figures are copied to docs/thesis/; every block between `<!-- NAME -->` and `<!-- end -->` in the
page is written anew from them. Without a folder, the blocks are written from the numbers that lie there already.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from pellucid.studies.thesis import figures, rows
from pellucid.studies.thesis.page import CURVES
from pellucid.studies.thesis.tables import Study, read, write
from pellucid.views import figure_bytes

PAGE = Path(__file__).parent / "thesis.md"
NUMBERS = Path(__file__).parent / "thesis"
BLOCK = re.compile(r"(<!-- (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def blocks(study: Study) -> dict[str, str]:
    """What stands in each block of the page."""
    made = {
        table.name: f"{table.markdown()}\n\n{table.caption}" for table in [*rows.all_rows(study), rows.rules(study)]
    }
    return made | {"scale": study.facts["scale"]["about"]}


def filled(text: str, study: Study) -> str:
    """The page with every block as the numbers have it; a block that does not exist is refused."""
    made = blocks(study)

    def block(found: re.Match[str]) -> str:
        if found["name"] not in made:
            sys.exit(f"There is no table {found['name']!r}; there are {', '.join(made)}.")
        return f"{found[1]}{made[found['name']]}\n{found[3]}"

    return BLOCK.sub(block, text)


def draw(study: Study) -> None:
    """The figures of the page."""
    drawn = {
        "spectra": figures.spectra(study),
        "between": figures.partners(study, "words"),
        "within": figures.grids(study, random=False),
        "within-random": figures.grids(study, random=True),
    }
    for name, (kind, task, title) in CURVES.items():
        lefts = [f"{task}.{layer}" for layer in range(1, study.depth[task] + 1)]
        for which in figures.CURVES:
            drawn[f"{name}-{which.lower()}"] = figures.curves(study, kind, lefts, which, title=f"{title}: {which}")
    for name, figure in drawn.items():
        (NUMBERS / f"{name}.svg").write_bytes(figure_bytes(figure, "svg"))


def main() -> None:
    """Copies the numbers of a folder, draws, and fills the page."""
    if len(sys.argv) > 1:
        study = read(sys.argv[1])
        shutil.rmtree(NUMBERS, ignore_errors=True)
        NUMBERS.mkdir()
        write(study, NUMBERS)
    study = read(NUMBERS)
    draw(study)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), study), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
