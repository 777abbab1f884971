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


_OTHERS = {
    "run": "a recorded run, which has tensors",
    "sweep": "a sweep, which has statistics",
    "store": "a store, which has activations",
    "report": "a report, which has several results",
}
"""What is saved in the same way as a result, but is none."""


def register(app: typer.Typer) -> None:
    app.command(name="show", epilog=EXAMPLES)(show)


def show(
    path: Annotated[
        Path,
        typer.Argument(help="A folder that Result.save, `pellucid run --out`, a sweep, store or report wrote."),
    ],
    json: options.Json = False,
    csv: Annotated[Path | None, typer.Option(help="Write the numbers to this CSV file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the result to this .svg, .png or .pdf file.")] = None,
) -> None:
    """Show a saved result: its numbers beside chance, its interval, and where it comes from."""
    from pellucid.results import Result, read_about

    named = next((kind for kind in ("sweep", "store") if (path / f"{kind}.json").is_file()), None)
    kind = named or str(read_about(path).get("kind"))
    if kind in _OTHERS:
        if csv is not None or plot is not None:
            raise PellucidError(f"{str(path)!r} is {_OTHERS[kind]}; --csv and --plot are for single results.")
        _show_other(path, kind, json=json)
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
    from pellucid.cli._print import print_json
    from pellucid.results import read_about

    if kind == "sweep":
        from pellucid.cli.sweep import show_found
        from pellucid.collect.found import Found

        show_found(Found.load(path), json=json)
    elif kind == "store":
        from pellucid.cli.store import info

        info(path, verify=False, json=json)
    elif kind == "run":
        from pellucid.cli._recorded import show_recorded

        show_recorded(path, read_about(path), json=json)
    elif json:
        print_json(read_about(path))
    else:
        typer.echo(f"The page is {path / 'report.html'}; open it in a browser. Its results, for pellucid show:")
        for folder in sorted((path / "results").glob("*/")):
            typer.echo(f"  {folder}")


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
