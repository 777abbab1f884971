"""`pellucid run`: one text through a model, with sites read and edits made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _options as options
from pellucid.cli._groups import spread
from pellucid.cli._predictions import compared, predictions
from pellucid.cli._print import console, print_json, print_table

if TYPE_CHECKING:
    from pellucid.model import Model, Run

EXAMPLES = """Examples: pellucid run ./my-model "The keys are" --sites resid.*,heads.3 ;
pellucid run ./my-model "The keys are" --edit heads.3:2=zero --generate 10"""


def register(app: typer.Typer) -> None:
    app.command(name="run", epilog=EXAMPLES)(spread(run))


def run(
    model: options.ModelArgument,
    text: Annotated[str, typer.Argument(help="The text to run the model on.")],
    sites: Annotated[
        list[str] | None,
        typer.Option(help="Sites to read: resid.*, heads.3, neurons.2-4 … (may be repeated)."),
    ] = None,
    edit: Annotated[
        list[str] | None,
        typer.Option(help="SITE[:UNITS][@POSITIONS]=ACTION[:NUMBER], such as heads.3:2=zero (may be repeated)."),
    ] = None,
    pair: Annotated[str | None, typer.Option(help="A second sentence, for models of sentence pairs.")] = None,
    target: Annotated[str | None, typer.Option(help="What the decoder of an encoder–decoder model reads.")] = None,
    generate: Annotated[int, typer.Option(min=0, help="Continue the text by so many tokens (greedily).")] = 0,
    top: Annotated[int, typer.Option(min=1, help="How many predictions to show.")] = 5,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut text that is too long for the model.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save what was read to this folder.")] = None,
    *,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Run a model on a text: predictions, the tensors at chosen sites, and what an edit changes."""
    from pellucid.cli._save import check_free, save_run
    from pellucid.model import Edit

    edits = [Edit.parse(item) for item in edit or []]
    if out is not None:
        check_free(out)
    opened = opening.open(model)
    batch = opened.tokenize(text, pair, target=target, truncate=truncate)
    plain = opened.run(batch, sites or ()) if not edits else opened.run(batch)
    edited = opened.run(batch, sites or (), edits) if edits else None
    shown = plain if edited is None else edited
    before = predictions(opened, plain, top)
    after = None if edited is None else predictions(opened, edited, top)
    continued = _continuations(opened, batch, generate, edits)
    if out is not None:
        save_run(out, opened, text, shown, edits)
    if json:
        report = {
            "model": opened.name,
            "text": text,
            "edits": [str(item) for item in edits],
            "sites": _statistics(shown),
        }
        print_json({**report, "before": before, "after": after, "generated": continued})
        return
    if len(shown):
        rows = [(name, *facts.values()) for name, facts in _statistics(shown).items()]
        print_table(
            ["site", "shape", "mean", "sd", "smallest", "largest"],
            rows,
            right=["mean", "sd", "smallest", "largest"],
        )
    compared(before, after, edits)
    for label, passage in continued.items():
        console().print(f"{label}: {passage}")
    if out is not None:
        console().print(f"Saved to {out}")


def _continuations(model: Model, batch: Any, count: int, edits: list[Any]) -> dict[str, str]:
    """The text that follows, without and with the edits."""
    if count <= 0:
        return {}
    found = {
        "continues" if not edits else "continues without edits": model.generate(batch, max_new_tokens=count).texts[0]
    }
    if edits:
        found["continues with edits"] = model.generate(batch, max_new_tokens=count, edits=edits).texts[0]
    return found


def _statistics(run: Run) -> dict[str, dict[str, Any]]:
    """Shape and simple statistics of every tensor that was read."""
    facts: dict[str, dict[str, Any]] = {}
    for site, value in run.items():
        numbers = value.float()
        summary = (numbers.mean(), numbers.std(correction=0), numbers.min(), numbers.max())
        names = ("mean", "sd", "smallest", "largest")
        facts[str(site)] = {
            "shape": list(value.shape),
            **{name: round(float(x), 5) for name, x in zip(names, summary, strict=True)},
        }
    return facts
