"""`pellucid sites`: what is inside a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from pellucid.cli import _options as options
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table

if TYPE_CHECKING:
    from pellucid.model import Model


def register(app: typer.Typer) -> None:
    app.command(name="sites", epilog="Example: pellucid sites ./my-model")(spread(sites))


def sites(
    model: options.ModelArgument,
    *,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Show the named places of a model: what can be read and edited, and how large each is."""
    opened = opening.open(model)
    if json:
        print_json(_as_json(opened))
    else:
        show_sites(opened)


def show_sites(model: Model) -> None:
    """The model's facts and its sites as a table."""
    screen = console()
    screen.print(model.name, style="bold")
    forms = ", ".join(f"{stack}: {form}" if stack else form for stack, form in model.forms.items())
    count = sum(parameter.numel() for parameter in model.hf.parameters())
    screen.print(
        f"{type(model.hf).__name__}, {count:,} parameters, {forms} blocks, {model.attention} attention, {model.device}"
    )
    for note in model.notes:
        screen.print(f"Note: {note}.")
    print_table(["sites", "shape", "what"], _rows(model))
    for name, reason in model.missing.items():
        screen.print(f"Not available: {name} ({reason}).")


def _rows(model: Model) -> list[tuple[str, str, str]]:
    """One row per stack, kind and shape, its layers in short form."""
    from pellucid.model.sites import MEANINGS

    groups: dict[tuple[str | None, str, str], list[Any]] = {}
    for site in model.sites:
        groups.setdefault((site.stack, site.kind, _shape(model, site)), []).append(site)
    rows: list[tuple[str, str, str]] = []
    for (_, kind, shape), members in groups.items():
        first, last = members[0], members[-1]
        whole = [site.layer for site in members] == list(range(first.layer or 0, (last.layer or 0) + 1))
        short = f"{first}-{last.layer}" if len(members) > 1 and whole else ", ".join(map(str, members))
        rows.append((short, shape, MEANINGS.get(kind, "named by you")))
    return rows


def _shape(model: Model, site: Any) -> str:
    size = model.size(site)
    if site.kind == "pattern":
        return f"[B, {size[0]}, T, {'S' if site.stack == 'cross' else 'T'}]"
    if site.per_head:
        axis = "S" if site.stack == "cross" and site.kind in ("key", "value") else "T"
        return f"[B, {size[0]}, {axis}, {size[1]}]"
    return f"[B, {size[0]}]" if _is_per_text(model, site) else f"[B, T, {size[0]}]"


def _is_per_text(model: Model, site: Any) -> bool:
    return site.kind == "logits" and type(model.hf).__name__.endswith("ForSequenceClassification")


def _as_json(model: Model) -> dict[str, Any]:
    return {
        "model": model.name,
        "class": type(model.hf).__name__,
        "parameters": sum(parameter.numel() for parameter in model.hf.parameters()),
        "attention": model.attention,
        "forms": {stack or "": form for stack, form in model.forms.items()},
        "notes": list(model.notes),
        "sites": [{"site": str(site), "size": list(model.size(site))} for site in model.sites],
        "missing": dict(model.missing),
    }
