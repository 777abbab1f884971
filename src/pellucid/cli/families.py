"""`pellucid families`: which families of transformers work, checked on the spot."""

from __future__ import annotations

from typing import Annotated

import typer

from pellucid.cli import _options as options
from pellucid.cli._print import console, print_json, print_table


def register(app: typer.Typer) -> None:
    app.command(name="families", epilog="Example: pellucid families gpt2 bert")(families)


def families(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[FAMILY]…", help="Families to check (default: all).")
    ] = None,
    json: options.Json = False,
) -> None:
    """Check Pellucid on a tiny random model of each family: every site, edit and gradient, against an independent
    oracle.

    A family is full when every kind of site is there and every check that applies passes. All of them take about two
    minutes.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from pellucid.families.check import check_families, table
    from pellucid.families.configs import FAMILIES

    reports = check_families(names)
    done = []
    columns = (
        TextColumn("checking {task.fields[family]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        chosen = names or list(FAMILIES)
        task = progress.add_task("", total=len(chosen), family=chosen[0])
        for place, report in enumerate(reports, start=1):
            done.append(report)
            progress.update(task, completed=place, family=chosen[min(place, len(chosen) - 1)])
    if json:
        print_json(table(done))
        return
    rows = [
        (
            report.name,
            report.status,
            report.form,
            report.attention,
            sum(report.passed.values()),
            "; ".join(
                [
                    *report.missing,
                    *report.failed,
                    *(f"{what}: not applicable ({why})" for what, why in report.left_out.items()),
                ]
            ),
        )
        for report in done
    ]
    print_table(
        ["family", "status", "form checked", "attention", "checks", "missing or left out, and why"],
        rows,
        right=["checks"],
    )
    counts = {status: sum(report.status == status for report in done) for status in ("full", "partial", "none")}
    console().print(", ".join(f"{count} {status}" for status, count in counts.items()) + f" of {len(done)} families")
