"""`pellucid study heads`: what heads do, which matter and how few are enough, with published claims beside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _options as options
from pellucid.cli._command import command_line
from pellucid.cli._print import console, print_json
from pellucid.cli._study import (
    CasesSource,
    Out,
    Runs,
    claims_told,
    data_folder,
    print_claims,
    runs_folder,
    scale_of,
    tell,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pellucid.studies.heads.tables import Case

EXAMPLES = """Examples: pellucid study heads --data data -o heads ; pellucid study heads --data data --quick -o heads ;
pellucid study heads --data data --lm ./SmolLM2 --encoder ./MiniLM -o heads ;
pellucid study heads --only lm --lm ./SmolLM2 --data data -o heads ; pellucid study heads --from heads-runs -o heads"""


def heads(
    out: Out,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder with multi30k, ud_english_ewt and sst2 (default: where PELLUCID_DATA points)."),
    ] = None,
    lm: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The language model (default: zoo:lm stands in).")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The classifier, or an encoder that is tuned on sst2 first (default: zoo:sentiment stands in).",
        ),
    ] = None,
    only: Annotated[str, typer.Option(help="Cases: translate, lm, classify.")] = "translate,lm,classify",
    quick: Annotated[bool, typer.Option("--quick", help="Small samples: less than five minutes.")] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Tiny networks and generated texts, to see that everything works.")
    ] = False,
    source: CasesSource = None,
    runs: Runs = None,
    device: options.Device = None,
    seed: Annotated[int, typer.Option(min=0, help="Of gates, tuning, samples and random networks.")] = 0,
    json: options.Json = False,
) -> None:
    """Find what attention heads do, weigh and prune them in three models, and judge what was published about it.

    Each case is a file in the runs folder once it is finished; run again, the study goes on with the next. Cases may be
    computed on different machines and drawn together with --from.
    """
    from pellucid.saving import check_free
    from pellucid.studies.heads.claims import claims
    from pellucid.studies.heads.page import write_page
    from pellucid.studies.heads.tables import read_cases

    check_free(out)
    scale = scale_of(quick=quick, smoke=smoke)
    if source is None:
        source = runs_folder(out, runs)
        given = {"data": data_folder(data), "lm": lm, "encoder": encoder, "scale": scale, "device": device}
        _compute(source, only, {**given, "seed": seed})
    cases = read_cases(source)
    page = write_page(cases, out, command=command_line())
    if json:
        _print_json(cases, page)
        return
    print_claims(claims(cases), of="case")
    tell(page)


def _compute(kept: Path, only: str, given: dict[str, Any]) -> None:
    """Computes the cases asked for, and keeps each in a folder once it is finished."""
    from pellucid.studies.heads.running import checked_cases, compute

    wanted = checked_cases([name.strip() for name in only.split(",") if name.strip()])
    with options.resumable(kept):
        compute(kept, only=wanted, say=console(stderr=True).print, **given)


def _print_json(cases: Sequence[Case], page: Path) -> None:
    from pellucid.studies.heads.claims import claims

    told = {
        case.name: {
            "model": case.facts["model"],
            "asked": case.facts["asked"],
            "chosen": case.pruning.chosen,
            "kept": dict(zip(map(str, case.curve.counts), case.curve.kept[0].tolist(), strict=True)),
            "labels": {text: found.labels for text, found in case.functions.items()},
        }
        for case in cases
    }
    print_json({"page": str(page), "cases": told, "claims": claims_told(claims(cases))})
