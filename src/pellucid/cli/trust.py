"""`pellucid trust`: whether attributions say what a model really uses."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table

if TYPE_CHECKING:
    from pellucid.attribution import Trust

EXAMPLES = """Examples: pellucid trust zoo:sentiment --corpus reviews.txt -o believed ;
pellucid trust zoo:lm --corpus grammar:50 --methods saliency,integrated_gradients,ablation --sentences 20 -o believed"""


def register(app: typer.Typer) -> None:
    app.command(name="trust", epilog=EXAMPLES)(spread(trust))


@dataclass(frozen=True)
class Trying:
    """How attributions are tried, named as `attribution.trust` names it."""

    baseline: Annotated[
        str, typer.Option(help="What removed tokens become: auto, zero, mean, pad or mask (also where paths start).")
    ] = "auto"
    special: Annotated[bool, typer.Option("--special", help="Remove special tokens too.")] = False
    steps: Annotated[int, typer.Option(min=2, help="Steps of a path.")] = 25
    samples: Annotated[int, typer.Option(min=2, help="Draws, of methods that draw at random.")] = 10
    points: Annotated[int, typer.Option(min=2, help="Steps of insertion and deletion curves.")] = 10
    draws: Annotated[int, typer.Option(min=2, help="Random orders and attributions that tell chance.")] = 20
    perturbations: Annotated[int, typer.Option(min=1, help="Small changes of the input, for sensitivity.")] = 4
    radius: Annotated[float, typer.Option(min=0.0, help="Their size, in standard deviations of the embeddings.")] = 0.02
    cascade: Annotated[int, typer.Option(min=1, help="Steps in which weights become random, from the top.")] = 3
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn at random.")] = 0


def trust(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")],
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="Methods, with commas or repeated; all for every one (default: the quick ones). pellucid attribute "
            "--methods lists them."
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="What is explained, as for pellucid attribute (default: what the model predicts)."),
    ] = None,
    measures: Annotated[
        str | None,
        typer.Option(
            help="Only some of completeness, infidelity, unexplained, sensitivity, insertion, deletion, "
            "randomisation, with commas."
        ),
    ] = None,
    sentences: Annotated[int, typer.Option(min=1, help="How many sentences, from the first.")] = 50,
    memory_limit: Annotated[float | None, typer.Option(min=0.01, help="Gigabytes for passes (default: 1.1).")] = None,
    *,
    trying: Trying,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Try methods of attribution on a model: do they say what it uses, or no more than random numbers would?"""
    from pellucid.attribution import trust as judge
    from pellucid.attribution.methods import chosen
    from pellucid.report.trust import write_trust
    from pellucid.saving import check_free

    check_free(out)
    names = [name.strip() for item in methods or () for name in item.split(",")]
    everything = names == ["all"]
    if names and not everything:
        chosen(names)  # an unknown one is told before a model is opened
    read, opened = shape.open(corpus), opening.open(model)
    result = judge(
        opened,
        read,
        "all" if everything else names or None,
        target or None,
        measures=None if measures is None else [name.strip() for name in measures.split(",")],
        sentences=sentences,
        **asdict(trying),
        memory_limit=None if memory_limit is None else round(memory_limit * 1e9),
        progress=None,
    )
    command = shlex.join(["pellucid", *sys.argv[1:]])
    result = replace(result, provenance=replace(result.provenance, command=command))
    page = write_trust(out, result, title=opened.name, command=command)
    if json:
        print_json(result.to_json())
        return
    _print(result)
    console().print(f"Open this file in a browser: {page.resolve()}")


def _print(result: Trust) -> None:
    """A row for every method, chance beneath, and what the numbers say in words."""
    from pellucid.attribution.trials.verdicts import verdicts

    assert result.null is not None
    measures = [str(name) for name in result.axes["measure"]]
    rows = [
        (str(method), *(_cell(result, place, at) for place in range(len(measures))))
        for at, method in enumerate(result.axes["method"])
    ]
    chance = ("chance (mean)", *(f"{row.mean():.3f}" for row in result.null))
    print_table(["method", *measures], [*rows, chance], title=result.title, right=measures)
    for name, meaning in result.measures.items():
        console().print(f"{name}: {meaning}")
    console().print(f"chance: {result.chance}; interval: {result.resampled}")
    skipped = result.table("skipped")
    for why, count in zip(skipped.columns["why"].tolist(), skipped.columns["sentences"].tolist(), strict=True):
        if count:
            console().print(f"skipped: {count} sentence{'' if count == 1 else 's'} {why}")
    for name, why in dict(result.provenance.arguments.get("left out", {})).items():
        console().print(f"left out: {name}: {why}")
    for each in verdicts(result):
        console().print(f"{each.method}: {each.sentence}")


def _cell(result: Trust, place: int, at: int) -> str:
    value = f"{result.values[place, at]:.3f}"
    if result.low is None or result.high is None:
        return value
    reach = max(result.values[place, at] - result.low[place, at], result.high[place, at] - result.values[place, at])
    return f"{value} ±{reach:.2f}"
