"""`pellucid study neurons`: which neurons carry linguistic concepts, with the published findings beside."""

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

    from pellucid.studies.neurons.tables import Case

EXAMPLES = """Examples: pellucid study neurons --data data -o neurons ;
pellucid study neurons --data data --model ./MiniLM --model ./SmolLM2 --model zoo:lm -o neurons ;
pellucid study neurons --data data --quick -o neurons ; pellucid study neurons --from neurons-runs -o neurons"""


def neurons(
    out: Out,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="A model; may be repeated (default: zoo:mlm, zoo:lm and zoo:tagger)."),
    ] = None,
    data: Data = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small samples: about a minute with the zoo.")] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Few generated sentences, to see that everything works.")
    ] = False,
    source: CasesSource = None,
    runs: Runs = None,
    device: options.Device = None,
    seed: Annotated[int, typer.Option(min=0, help="Of splits, probes, draws and random networks.")] = 0,
    json: options.Json = False,
) -> None:
    """Find which neurons carry parts of speech, number and syntactic relations, and judge what was published about it.

    Each model is a file in the runs folder once it is finished; run again, the study goes on with the next. Models may
    be computed on different machines and drawn together with --from.
    """
    from pellucid.saving import check_free
    from pellucid.studies.neurons.claims import claims
    from pellucid.studies.neurons.page import write_page
    from pellucid.studies.neurons.tables import read_cases

    check_free(out)
    scale = scale_of(quick=quick, smoke=smoke)
    if source is not None:
        cases = read_cases(source)
    else:
        given = {"data": data_folder(data), "scale": scale, "device": device, "seed": seed}
        cases = _computed(runs_folder(out, runs), model, given)
    page = write_page(cases, out, command=command_line())
    if json:
        _print_json(cases, page)
        return
    print_claims(claims(cases))
    tell(page)


def _computed(kept: Path, models: list[str] | None, given: dict[str, Any]) -> tuple[Case, ...]:
    """The models asked for, each kept in a folder once it is finished."""
    from pellucid.studies.neurons.cases import ZOO, case_names
    from pellucid.studies.neurons.running import compute
    from pellucid.studies.neurons.tables import read_cases

    wanted = models or list(ZOO)
    with options.resumable(kept):
        compute(kept, models=wanted, say=console(stderr=True).print, **given)
    names = case_names(wanted)
    return tuple(case for case in read_cases(kept) if case.name in names)


def _print_json(cases: Sequence[Case], page: Path) -> None:
    from pellucid.studies.neurons.claims import claims

    told = {
        case.name: {
            "model": case.facts["model"],
            "asked": case.facts["asked"],
            "accuracy": case.grids["probe pos"].at("accuracy", case.grids["probe pos"].columns[0]).value,
            "kept": dict(
                zip(
                    map(str, case.grids["anew pos"].columns),
                    (case.grids["anew pos"].row("top") / case.numbers["whole pos"].value).tolist(),
                    strict=True,
                )
            ),
        }
        for case in cases
    }
    print_json({"page": str(page), "models": told, "claims": claims_told(claims(cases))})
