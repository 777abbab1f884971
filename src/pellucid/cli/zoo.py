"""`pellucid zoo`: the small trained models that come with Pellucid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _options as options
from pellucid.cli._print import console, print_json, print_table
from pellucid.errors import ModelError

if TYPE_CHECKING:
    from pellucid.zoo import Card

EXAMPLES = """Examples: pellucid zoo ; pellucid zoo lm --verify ; pellucid run zoo:lm "The city of" """


def register(app: typer.Typer) -> None:
    app.command(name="zoo", epilog=EXAMPLES)(zoo)


def zoo(
    name: Annotated[str | None, typer.Argument(help="A model whose card to print (default: list all).")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the model's files with the card's hashes.")] = False,
    json: options.Json = False,
) -> None:
    """List the models that come with Pellucid, or print the card of one; they are opened as zoo:NAME."""
    from pellucid import zoo as shipped

    if name is None:
        if verify:
            raise ModelError("--verify needs a model's name, as in pellucid zoo lm --verify; pellucid zoo lists them.")
        _print_all(shipped.models(), json=json)
        return
    name = name.removeprefix("zoo:")
    found = shipped.card(name)
    checked = shipped.verify(name) if verify else None
    if json:
        report = {**found.facts, "size": found.size, "path": str(shipped.path(name))}
        print_json(report if checked is None else {**report, "verified": list(checked)})
    elif checked is not None:
        console().print(f"zoo:{name}: {' and '.join(checked)} are those that the card names")
    else:
        console().print((shipped.path(name) / "README.md").read_text(encoding="utf-8").rstrip())


def _print_all(cards: tuple[Card, ...], *, json: bool) -> None:
    """Every model in one table, or as one JSON object."""
    from pellucid.zoo.cards import shown

    if json:
        print_json({"models": [_row(card) for card in cards]})
        return
    rows = [
        (
            f"zoo:{card.name}",
            card.kind,
            f"{card.parameters:,}",
            f"{card.size / 1e6:.1f} MB",
            str(card.main),
            shown(card.main.metric, card.main.chance),
            card.licence,
        )
        for card in cards
    ]
    columns = ["name", "kind", "parameters", "size", "test score", "chance", "licence"]
    print_table(columns, rows, right=["parameters", "size", "chance"])


def _row(card: Card) -> dict[str, Any]:
    return {
        "name": card.name,
        "kind": card.kind,
        "parameters": card.parameters,
        "size": card.size,
        "metric": card.main.metric,
        "score": card.main.value,
        "chance": card.main.chance,
        "licence": card.licence,
    }
