"""`pellucid show`: a saved result, as tables, JSON, CSV or a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _options as options
from pellucid.errors import PellucidError

if TYPE_CHECKING:
    from pellucid.results import Result

EXAMPLES = """Examples: pellucid show results/heads ;
pellucid show results/heads --csv heads.csv --plot heads.svg"""


def register(app: typer.Typer) -> None:
    app.command(name="show", epilog=EXAMPLES)(show)


def show(
    path: Annotated[
        Path, typer.Argument(help="A folder that Result.save, a report, `pellucid run --out` or a sweep wrote.")
    ],
    json: options.Json = False,
    csv: Annotated[Path | None, typer.Option(help="Write the numbers to this CSV file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the result to this .svg, .png or .pdf file.")] = None,
) -> None:
    """Show a saved result: its numbers beside chance, its interval, and where it comes from."""
    from pellucid.results import Result, read_about

    kind = "sweep" if (path / "sweep.json").is_file() else read_about(path).get("kind")
    if kind in ("run", "sweep"):
        if csv is not None or plot is not None:
            what = {"run": "recorded run: it has tensors", "sweep": "sweep: it has statistics"}[str(kind)]
            raise PellucidError(f"{str(path)!r} is a {what}, but no table or figure; --csv and --plot are for results.")
        _show_other(path, str(kind), json=json)
        return
    result = Result.load(path)
    if plot is not None:
        _plot(result, plot)
    if csv is not None:
        result.save_table(csv)
    _print(result, json=json)
    for written in (csv, plot):
        if written is not None and not json:
            typer.echo(f"Wrote {written}")


def _show_other(path: Path, kind: str, *, json: bool) -> None:
    """What is saved in the same way as a result, but is none."""
    if kind == "sweep":
        from pellucid.cli.sweep import show_found
        from pellucid.collect.found import Found

        show_found(Found.load(path), json=json)
        return
    from pellucid.cli._recorded import show_recorded
    from pellucid.results import read_about

    show_recorded(path, read_about(path), json=json)


def _plot(result: Result, path: Path) -> None:
    from pellucid.saving import write_file
    from pellucid.views.style import FORMATS, figure_bytes

    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise PellucidError(f"A figure is written to a file ending in .{', .'.join(FORMATS)}; got {path.name!r}.")
    write_file(path, figure_bytes(result.plot(), kind))


def _print(result: Result, *, json: bool) -> None:
    from pellucid.cli._print import print_json
    from pellucid.cli._result import print_result

    if json:
        told: dict[str, Any] = result.to_json()
        print_json(told)
    else:
        print_result(result)
