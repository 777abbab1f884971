"""`pellucid neurons survey`: all neurons of some sites at a glance."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli import _sweeping as sweeping
from pellucid.cli._groups import spread
from pellucid.cli._neuron_options import Control, Seed, SitesOption, group
from pellucid.cli._neuron_results import check_out, give
from pellucid.cli._print import console, print_table

if TYPE_CHECKING:
    from pellucid.neurons import NeuronSurvey

SURVEY = """Examples: pellucid neurons survey zoo:tagger --corpus grammar:300 ;
pellucid neurons survey zoo:lm --corpus dev.conllu --sites neurons.* --top 5 -o survey"""


def register(app: typer.Typer) -> None:
    group(app).command(name="survey", epilog=SURVEY)(spread(survey))


def survey(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    sites: SitesOption = None,
    top: Annotated[int, typer.Option(min=1, help="Neurons to name of each kind.")] = 8,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the result and a page; it must be new or empty.")
    ] = None,
    control: Control = True,
    seed: Seed = 0,
    long: sweeping.Long = "window",
    *,
    running: sweeping.Running,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Count the neurons that are dead, silent, saturated, vary much or little, or follow place and frequency."""
    from pellucid.neurons import survey as surveyed

    check_out(out)
    read, opened = shape.open(corpus), opening.open(model)
    how = {**asdict(running), "long": long}
    result = surveyed(opened, read, sites=sites, control=control, seed=seed, **how)
    about = f"Neurons that are dead, silent or saturated, and those that follow place or frequency, over {read.name}."
    give({"survey": result}, out, json, model=opened.name, about=about, headings={"survey": "All neurons at a glance"},
         tell=lambda _, each: _print(each, top))  # fmt: skip


def _print(result: NeuronSurvey, top: int) -> None:
    from pellucid.neurons.survey import KINDS

    table = result.table("sites")
    kinds = [str(kind) for kind in table.axes["kind"]]
    rows = [
        [site, table.columns["of"][at, 0], *(_cell(table.columns, at, place) for place in range(len(kinds)))]
        for at, site in enumerate(table.axes["site"])
    ]
    print_table(["site", "neurons", *kinds], rows, title=f"{result.title} (in the random model)",
                right=["neurons", *kinds])  # fmt: skip
    named = [[kind, KINDS[kind], ", ".join(result.of_kind(kind)[:top])] for kind in kinds if result.of_kind(kind)]
    print_table(["kind", "is", "first neurons"], named)
    console().print(f"interval: {result.resampled}")


def _cell(columns: object, at: int, place: int) -> str:
    assert isinstance(columns, dict)
    own, other = int(columns["neurons"][at, place]), int(columns["random model"][at, place])
    return str(own) if other < 0 else f"{own} ({other})"
