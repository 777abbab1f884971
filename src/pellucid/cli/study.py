"""`pellucid study`: published tables and figures made again, beside what chance gives."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _options as options
from pellucid.cli._print import console, print_json, print_table

if TYPE_CHECKING:
    from pellucid.studies import qa_claims, qa_tables, thesis_verdicts
    from pellucid.studies.thesis_tables import Study

EXAMPLES = """Examples: pellucid study thesis --data wikitext2 -o thesis ;
pellucid study thesis --data wikitext2 --quick -o thesis ; pellucid study thesis --from thesis -o again"""
QA_EXAMPLES = """Examples: pellucid study qa -o answers ; pellucid study qa --quick -o answers ;
pellucid study qa ./my-qa-model --corpus dev.json -o answers ; pellucid study qa --from answers -o again"""
DATA = "PELLUCID_DATA"


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Published studies run again, beside what chance gives.", no_args_is_help=True)
    group.command(name="thesis", epilog=EXAMPLES)(thesis)
    group.command(name="qa", epilog=QA_EXAMPLES)(qa)
    app.add_typer(group, name="study")


def thesis(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")],
    data: Annotated[
        Path | None,
        typer.Option(help="The folder of WikiText-2 with its tags (default: wikitext2 where PELLUCID_DATA points)."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small part of the text, for a laptop: less than ten minutes.")
    ] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="Tiny networks, to see that everything works.")] = False,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Only draw the numbers in this folder.")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Where the two trainings are kept, to go on later (default: OUT-runs).")
    ] = None,
    device: options.Device = None,
    seed: Annotated[int, typer.Option(min=0, help="Of both trainings.")] = 0,
    json: options.Json = False,
) -> None:
    """Train the thesis's two networks, compare their layers as it did and word by word, and judge its claims."""
    from pellucid.saving import check_free
    from pellucid.studies.thesis_page import write_page
    from pellucid.studies.thesis_tables import read

    check_free(out)
    scale, command = _scale(quick=quick, smoke=smoke), shlex.join(["pellucid", *sys.argv[1:]])
    if source is not None:
        study = read(source)
        page = write_page(study, out, command=command)
    else:
        from pellucid.studies.thesis import compute

        place = out.resolve()
        kept = place.with_name(f"{place.name}-runs") if runs is None else runs
        screen = console(stderr=True)
        with tempfile.TemporaryDirectory() as room, options.resumable(kept):
            computed = compute(
                Path(room) / "numbers",
                runs=kept,
                data=_data(data),
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
    _tell(page)


def _scale(*, quick: bool, smoke: bool) -> str:
    """The size of a study."""
    from pellucid.studies.thesis_tables import StudyError

    if quick and smoke:
        raise StudyError("--quick and --smoke ask for different sizes of the study; give one of them.")
    return "quick" if quick else "smoke" if smoke else "full"


def _tell(page: Path) -> None:
    console().print(f"Open this file in a browser: {page.resolve()}")


def _claims_told(found: Sequence[qa_claims.Claim | thesis_verdicts.Claim]) -> list[dict[str, Any]]:
    """Claims as JSON holds them."""
    return [{**asdict(each), "verdict": each.verdict} for each in found]


def _data(given: Path | None) -> Path | None:
    """The folder of the text: the one given, or where PELLUCID_DATA points."""
    if given is not None or not os.environ.get(DATA):
        return given
    place = Path(os.environ[DATA]) / "wikitext2"
    return place if place.is_dir() else None


def _print_tables(study: Study) -> None:
    from pellucid.studies import thesis_rows as rows

    for table in (rows.training(study), rows.noise(study), rows.between(study), rows.beside(study)):
        print_table(table.columns, table.rows, title=table.caption, right=table.numbers)
    judged = rows.verdicts(study)
    print_table(judged.columns[:3], [row[:3] for row in judged.rows], title="What stands")


def _print_json(study: Study, page: Path) -> None:
    from pellucid.studies.thesis_claims import claims

    print_json(
        {
            "page": str(page),
            "scale": study.facts["scale"],
            "claims": _claims_told(claims(study)),
            "scores": [asdict(each) for each in study.scores],
        }
    )


def qa(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")],
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A model that answers questions (default: zoo:qa).")
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Questions in the form of SQuAD, or questions:COUNT:SEED (default: generated ones)."
        ),
    ] = None,
    method: Annotated[
        str, typer.Option(help="conductance, or integrated_gradients for each layer's own path (slower).")
    ] = "conductance",
    steps: Annotated[
        int | None, typer.Option(min=2, help="Steps of a path (default: until sums are complete).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="40 questions: a minute or two.")] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="A few questions, to see that everything works.")] = False,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Only draw the numbers in this folder.")
    ] = None,
    device: options.Device = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the network with random weights.")] = 0,
    json: options.Json = False,
) -> None:
    """Explain start and end of a model's answers at every layer, over many questions, beside a random network."""
    from pellucid.saving import check_free
    from pellucid.studies.qa_page import write_page
    from pellucid.studies.qa_tables import read

    check_free(out)
    scale, command = _scale(quick=quick, smoke=smoke), shlex.join(["pellucid", *sys.argv[1:]])
    if source is not None:
        study = read(source)
    else:
        from pellucid.corpus import Corpus
        from pellucid.model import Model
        from pellucid.studies.qa import compute_study

        with tempfile.TemporaryDirectory() as room:
            numbers = compute_study(
                Path(room) / "numbers",
                model=None if model is None and smoke else Model.load(model or "zoo:qa", head="qa", device=device),
                corpus=None if corpus is None else Corpus.open(corpus),
                scale=scale,
                method=method,
                steps=steps,
                seed=seed,
                say=console(stderr=True).print,
            )
            study = read(numbers)
    page = write_page(study, out, command=command)
    if json:
        _print_answers_json(study, page)
        return
    _print_answers(study)
    _tell(page)


def _print_answers(study: qa_tables.Study) -> None:
    from pellucid.studies import qa_figures
    from pellucid.studies.qa_claims import claims

    rows = [
        [cell if isinstance(cell, str) else str(cell.shown) for cell in row] for row in qa_figures.spread_rows(study)
    ]
    print_table(qa_figures.SPREAD_COLUMNS, rows, title="Spread over tokens, by layer", right=qa_figures.NUMBERS)
    judged = [(each.claim, each.verdict, each.found) for each in claims(study)]
    print_table(("claim", "verdict", "numbers"), judged, title="What stands")


def _print_answers_json(study: qa_tables.Study, page: Path) -> None:
    from pellucid.studies.qa_claims import claims

    right = sum(one.right for one in study.questions)
    print_json(
        {
            "page": str(page),
            "facts": dict(study.facts),
            "questions": len(study.questions),
            "right": right,
            "claims": _claims_told(claims(study)),
        }
    )
