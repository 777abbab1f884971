"""What the commands of all studies share: their sizes, where their data is, and how their ends are told."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli._print import console, print_table

if TYPE_CHECKING:
    from pellucid.studies.claims import CaseClaim, Claim
    from pellucid.studies.thesis.verdicts import Claim as ThesisClaim

DATA = "PELLUCID_DATA"
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")]
Data = Annotated[
    Path | None, typer.Option(help="The folder with ud_english_ewt (default: where PELLUCID_DATA points).")
]
Source = Annotated[Path | None, typer.Option("--from", metavar="FOLDER", help="Only draw the numbers in this folder.")]
CasesSource = Annotated[
    Path | None,
    typer.Option("--from", metavar="FOLDER", help="Only draw the numbers in this folder: a page's, or its runs."),
]
Runs = Annotated[Path | None, typer.Option(help="Where work is kept, to go on later (default: OUT-runs).")]


def scale_of(*, quick: bool, smoke: bool) -> str:
    """The size of a study."""
    from pellucid.studies.claims import StudyError

    if quick and smoke:
        raise StudyError("--quick and --smoke ask for different sizes of the study; give one of them.")
    return "quick" if quick else "smoke" if smoke else "full"


def data_folder(given: Path | None, *parts: str) -> Path | None:
    """The folder of the data: the one given, or the place `parts` name where PELLUCID_DATA points, if it is there."""
    if given is not None or not os.environ.get(DATA):
        return given
    place = Path(os.environ[DATA]).joinpath(*parts)
    return place if place.is_dir() else None


def runs_folder(out: Path, given: Path | None) -> Path:
    """Where unfinished work is kept: the folder given, or OUT-runs beside the page."""
    place = out.resolve()
    return place.with_name(f"{place.name}-runs") if given is None else given


def tell(page: Path) -> None:
    """Says where the page is."""
    console().print(f"Open this file in a browser: {page.resolve()}")


def claims_told(found: Sequence[Claim | ThesisClaim]) -> list[dict[str, Any]]:
    """Claims as JSON holds them."""
    return [{**asdict(each), "verdict": each.verdict} for each in found]


def print_claims(found: Sequence[CaseClaim], *, of: str = "model") -> None:
    """A row for every claim, the model or case that it was judged on, the verdict and the numbers."""
    rows = [(each.claim, each.case, each.verdict, each.found) for each in found]
    print_table(("claim", of, "verdict", "numbers"), rows, title="What stands")
