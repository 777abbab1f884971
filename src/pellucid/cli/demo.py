"""`pellucid demo`: a report on the small language model that comes with Pellucid, on text generated here."""

from __future__ import annotations

import json
import secrets
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from pellucid.cli._print import console
from pellucid.cli.report import teller
from pellucid.errors import PellucidError

MODEL, SENTENCES = "zoo:lm", 600
MARKER = "pellucid demo"
FOLDER = Path("pellucid-demo")


def register(app: typer.Typer) -> None:
    app.command(name="demo", epilog="Example: pellucid demo")(demo)


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder to make; an earlier demo's is replaced.")
    ] = FOLDER,
    quick: Annotated[bool, typer.Option("--quick", help="Read the first 200 sentences only.")] = False,
) -> None:
    """Write a report on the small language model that comes with Pellucid: one HTML file, to be read offline."""
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.report import report

    replacing = _earlier(out)
    place = out.with_name(f".{out.resolve().name}.{secrets.token_hex(4)}.new") if replacing else out
    try:
        report(
            Model.load(MODEL),
            Corpus.grammar(SENTENCES),
            place,
            quick=quick,
            command=shlex.join(["pellucid", *sys.argv[1:]]),
            marker=MARKER,
            say=teller(),
        )
        if replacing:
            shutil.rmtree(out)
            place.rename(out)
    finally:
        if replacing:
            shutil.rmtree(place, ignore_errors=True)
    screen = console()
    screen.print(f"Open this file in a browser: {(out / 'report.html').resolve()}")
    screen.print("The same for a model of your own: pellucid report ./my-model --corpus notes.txt -o my-report")


def _earlier(folder: Path) -> bool:
    """Whether a folder is an earlier demo's, to be replaced; one that holds anything else is refused."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    try:
        about = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        if about["made by"] == MARKER:
            return True
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise PellucidError(
        f"{str(folder)!r} exists and is not an earlier demo's folder, so it is left alone; choose another with --out."
    )
