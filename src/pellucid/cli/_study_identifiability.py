"""`pellucid study identifiability`: what attention and states can tell, with published claims beside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _options as options
from pellucid.cli._command import command_line
from pellucid.cli._print import console, print_json
from pellucid.cli._study import (
    CasesSource,
    Data,
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

    from pellucid.studies.identifiability.tables import Case

EXAMPLES = """Examples: pellucid study identifiability --data data -o told ;
pellucid study identifiability --data data --quick -o told ;
pellucid study identifiability --data data --models zoo:mlm,MiniLM=./MiniLM,SmolLM2=./SmolLM2 -o told ;
pellucid study identifiability --from told-runs -o told"""


def identifiability(
    out: Out,
    data: Data = None,
    models: Annotated[
        str | None,
        typer.Option(
            help="Models with commas between them, each MODEL or NAME=MODEL, NAME as on the page (default: three of "
            "the zoo).",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small samples: a minute for the models of the zoo.")] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="A few generated sentences, to see that everything works.")
    ] = False,
    source: CasesSource = None,
    runs: Runs = None,
    device: options.Device = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random networks, directions and perceptrons.")] = 0,
    json: options.Json = False,
) -> None:
    """Tell how far attention is unique, tokens are told from states and states mix, and judge what was published.

    Each model is a file in the runs folder once it is finished; run again, the study goes on with the next. Models may
    be computed on different machines and drawn together with --from.
    """
    from pellucid.saving import check_free
    from pellucid.studies.identifiability.claims import claims
    from pellucid.studies.identifiability.page import write_page
    from pellucid.studies.identifiability.tables import read_cases

    check_free(out)
    scale = scale_of(quick=quick, smoke=smoke)
    if source is not None:
        cases = read_cases(source)
    else:
        given = {"data": data_folder(data), "scale": scale, "device": device, "seed": seed}
        cases = _computed(runs_folder(out, runs), models, given)
    page = write_page(cases, out, command=command_line())
    if json:
        _print_json(cases, page)
        return
    print_claims(claims(cases))
    tell(page)


def _computed(kept: Path, models: str | None, given: dict[str, Any]) -> tuple[Case, ...]:
    """The models asked for, each kept in a folder once it is finished."""
    from pellucid.studies.identifiability.cases import MODELS, named_models
    from pellucid.studies.identifiability.running import compute
    from pellucid.studies.identifiability.tables import read_cases

    chosen = named_models(MODELS if models is None else models)
    with options.resumable(kept):
        compute(kept, chosen, say=console(stderr=True).print, **given)
    return tuple(case for case in read_cases(kept) if case.name in chosen)


def _print_json(cases: Sequence[Case], page: Path) -> None:
    from pellucid.studies.identifiability.claims import claims

    told = {case.name: {name: case.facts[name] for name in ("model", "asked", "texts")} for case in cases}
    print_json({"page": str(page), "models": told, "claims": claims_told(claims(cases))})
