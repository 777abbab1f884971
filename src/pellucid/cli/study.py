"""`pellucid study`: published tables and figures made again, beside what chance gives; a file for each study."""

from __future__ import annotations

import typer

from pellucid.cli import _study_heads, _study_identifiability, _study_neurons, _study_qa, _study_thesis


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Published studies run again, beside what chance gives.", no_args_is_help=True)
    group.command(name="thesis", epilog=_study_thesis.EXAMPLES)(_study_thesis.thesis)
    group.command(name="qa", epilog=_study_qa.EXAMPLES)(_study_qa.qa)
    group.command(name="heads", epilog=_study_heads.EXAMPLES)(_study_heads.heads)
    group.command(name="neurons", epilog=_study_neurons.EXAMPLES)(_study_neurons.neurons)
    group.command(name="identifiability", epilog=_study_identifiability.EXAMPLES)(
        _study_identifiability.identifiability
    )
    app.add_typer(group, name="study")
