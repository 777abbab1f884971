"""`pellucid zoo`: the small trained models that come with Pellucid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _options as options
from pellucid.cli._print import console, print_json, print_table
from pellucid.errors import ModelError

if TYPE_CHECKING:
    from pellucid.zoo import Card


def register(app: typer.Typer) -> None:
    app.command(
        name="zoo", epilog='Examples: pellucid zoo ; pellucid zoo lm --verify ; pellucid run zoo:lm "The city of"'
    )(zoo)


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
    if json:
        print_json({"models": [_row(card) for card in cards]})
        return
    rows = [
        (
            f"zoo:{row['name']}",
            row["kind"],
            f"{row['parameters']:,}",
            f"{row['size'] / 1e6:.1f} MB",
            f"{row['perplexity_per_token']:.1f} per token, {row['perplexity_per_word']:.1f} per word",
            row["licence"],
        )
        for row in map(_row, cards)
    ]
    columns = ["name", "kind", "parameters", "size", "test perplexity", "licence"]
    print_table(columns, rows, right=["parameters", "size"])


def _row(card: Card) -> dict[str, Any]:
    test = card.scores["test"]
    return {
        "name": card.name,
        "kind": card.kind,
        "parameters": card.parameters,
        "size": card.size,
        "perplexity_per_token": test["perplexity_per_token"],
        "perplexity_per_word": test["perplexity_per_word"],
        "licence": card.licence,
    }
