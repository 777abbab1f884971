"""`pellucid study thesis`: a thesis on SVCCA and CKA run again, beside what chance gives."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _options as options
from pellucid.cli._command import command_line
from pellucid.cli._print import console, print_json, print_table
from pellucid.cli._study import Out, Runs, Source, claims_told, data_folder, runs_folder, scale_of, tell

if TYPE_CHECKING:
    from pellucid.studies.thesis.tables import Study

EXAMPLES = """Examples: pellucid study thesis --data wikitext2 -o thesis ;
pellucid study thesis --data wikitext2 --quick -o thesis ; pellucid study thesis --from thesis -o again"""


def thesis(
    out: Out,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder of WikiText-2 with its tags (default: wikitext2 where PELLUCID_DATA points)."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small part of the text, for a laptop: less than ten minutes.")
    ] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="Tiny networks, to see that everything works.")] = False,
    source: Source = None,
    runs: Runs = None,
    device: options.Device = None,
    seed: Annotated[int, typer.Option(min=0, help="Of both trainings.")] = 0,
    json: options.Json = False,
) -> None:
    """Train the thesis's two networks, compare their layers as it did and word by word, and judge its claims."""
    from pellucid.saving import check_free
    from pellucid.studies.thesis.page import write_page
    from pellucid.studies.thesis.tables import read

    check_free(out)
    scale, command = scale_of(quick=quick, smoke=smoke), command_line()
    if source is not None:
        study = read(source)
        page = write_page(study, out, command=command)
    else:
        from pellucid.studies.thesis.running import compute

        kept = runs_folder(out, runs)
        screen = console(stderr=True)
        with tempfile.TemporaryDirectory() as room, options.resumable(kept):
            computed = compute(
                Path(room) / "numbers",
                runs=kept,
                data=data_folder(data, "wikitext2"),
                scale=scale,
                device=device,
                seed=seed,
                command=command,
                say=screen.print,
            )
            study = read(computed)
            page = write_page(study, out, command=command)
    if json:
        _print_json(study, page)
        return
    _print_tables(study)
    tell(page)


def _print_tables(study: Study) -> None:
    from pellucid.studies.thesis import rows

    for table in (rows.training(study), rows.noise(study), rows.between(study), rows.beside(study)):
        print_table(table.columns, table.rows, title=table.caption, right=table.numbers)
    judged = rows.verdicts(study)
    print_table(judged.columns[:3], [row[:3] for row in judged.rows], title="What stands")


def _print_json(study: Study, page: Path) -> None:
    from pellucid.studies.thesis.claims import claims

    print_json(
        {
            "page": str(page),
            "scale": study.facts["scale"],
            "claims": claims_told(claims(study)),
            "scores": [asdict(each) for each in study.scores],
        }
    )
