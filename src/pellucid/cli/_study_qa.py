"""`pellucid study qa`: what the answers of a model rest on, layer by layer, beside a random network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _options as options
from pellucid.cli._command import command_line
from pellucid.cli._print import console, print_json, print_table
from pellucid.cli._study import Out, Source, claims_told, scale_of, tell

if TYPE_CHECKING:
    from pellucid.studies.qa.tables import Study

EXAMPLES = """Examples: pellucid study qa -o answers ; pellucid study qa --quick -o answers ;
pellucid study qa ./my-qa-model --corpus dev.json -o answers ; pellucid study qa --from answers -o again"""


def qa(
    out: Out,
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
    source: Source = None,
    device: options.Device = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the network with random weights.")] = 0,
    json: options.Json = False,
) -> None:
    """Explain start and end of a model's answers at every layer, over many questions, beside a random network."""
    from pellucid.saving import check_free
    from pellucid.studies.qa.page import write_page
    from pellucid.studies.qa.tables import read

    check_free(out)
    scale, command = scale_of(quick=quick, smoke=smoke), command_line()
    if source is not None:
        study = read(source)
    else:
        from pellucid.corpus import Corpus
        from pellucid.model import Model
        from pellucid.studies.qa.running import compute_study

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
    tell(page)


def _print_answers(study: Study) -> None:
    from pellucid.studies.qa import figures as qa_figures
    from pellucid.studies.qa.claims import claims

    rows = [
        [cell if isinstance(cell, str) else str(cell.shown) for cell in row] for row in qa_figures.spread_rows(study)
    ]
    print_table(qa_figures.SPREAD_COLUMNS, rows, title="Spread over tokens, by layer", right=qa_figures.NUMBERS)
    judged = [(each.claim, each.verdict, each.found) for each in claims(study)]
    print_table(("claim", "verdict", "numbers"), judged, title="What stands")


def _print_answers_json(study: Study, page: Path) -> None:
    from pellucid.studies.qa.claims import claims

    right = sum(one.right for one in study.questions)
    print_json(
        {
            "page": str(page),
            "facts": dict(study.facts),
            "questions": len(study.questions),
            "right": right,
            "claims": claims_told(claims(study)),
        }
    )
