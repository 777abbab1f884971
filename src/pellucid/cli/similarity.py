"""`pellucid similarity`: how alike the layers of one or two models are."""

from __future__ import annotations

import shlex
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli import _sweeping as sweeping
from pellucid.cli._careful import careful
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table

if TYPE_CHECKING:
    from pellucid.results import Result
    from pellucid.similarity import SimilarityGrid
    from pellucid.similarity.comparing import Comparison

EXAMPLES = """Examples: pellucid similarity zoo:lm --corpus grammar:500 -o layers ;
pellucid similarity ./base ./tuned --corpus dev.conllu --metrics cka,svcca,pwcca -o compared"""


def register(app: typer.Typer) -> None:
    app.command(name="similarity", epilog=EXAMPLES)(spread(similarity))


class Comparing(TypedDict):
    """Options of `compare` that say how scores are computed."""

    random: bool
    significance: bool
    method: str
    precision: str
    sample: int
    memory_limit: int | None
    seed: int


@dataclass(frozen=True)
class Scoring:
    """Which scores, and how they are computed."""

    metrics: Annotated[str, typer.Option(help="Scores, with commas between: cka, svcca, pwcca, rbf-cka …")] = "cka"
    p_values: Annotated[bool, typer.Option("--p-values", help="Also test by shuffling whole documents.")] = False
    intervals: Annotated[bool, typer.Option("--intervals", help="Intervals of all scores, not of CKA alone.")] = False
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Also compare with randomly initialised models.")
    ] = True
    method: Annotated[str, typer.Option(help="auto, moments, gram or minibatch.")] = "auto"
    precision: Annotated[str, typer.Option(help="Of products: auto, float32 or float64.")] = "auto"
    sample: Annotated[int, typer.Option(min=16, help="Words of scores that look at single words.")] = 4096
    memory_limit: Annotated[
        float | None,
        typer.Option(min=0.01, help="Gigabytes for statistics; more goes to disk (default: by what is free)."),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Of the random models and of all that is drawn at random.")] = 0

    def scores(self) -> list[str]:
        """The scores by name; an unknown one raises."""
        from pellucid.similarity.metrics import chosen

        return [metric.name for metric in chosen(self.metrics)]

    def of_comparison(self) -> Comparing:
        """The options as `compare` takes them."""
        return {
            "random": self.control,
            "significance": self.p_values,
            "method": self.method,
            "precision": self.precision,
            "sample": self.sample,
            "memory_limit": None if self.memory_limit is None else round(self.memory_limit * 1e9),
            "seed": self.seed,
        }

    def take(self, found: Comparison, scores: list[str]) -> tuple[list[SimilarityGrid], list[Result]]:
        """A grid for every score, and the tests where they are asked for."""
        from pellucid.similarity.permutations import FORMS

        grids = [found.grid(name, interval=True if self.intervals else None) for name in scores]
        tested = [name for name in scores if name in FORMS] or ["cka"]
        return grids, [found.significance(tested, seed=self.seed)] if self.p_values else []


def similarity(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL [OTHER]", help="One model (its layers with each other), or two."),
    ],
    corpus: corpora.CorpusOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")],
    sites: Annotated[str, typer.Option(help="Sites to compare: resid.*, neurons.3, heads.* …")] = "resid.*",
    other_sites: Annotated[str | None, typer.Option(help="Sites of the other side (default: the same).")] = None,
    long: sweeping.Long = "window",
    sweep: Annotated[
        Path | None, typer.Option(help="Keep the pass over the text here, to go on after an interruption.")
    ] = None,
    *,
    scoring: Scoring,
    running: sweeping.Running,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Compare representations: every layer with every other, with what chance and a random model would give."""
    from pellucid.report.comparison import write_comparison
    from pellucid.saving import check_free
    from pellucid.similarity import compare
    from pellucid.similarity.pair import SimilarityError

    check_free(out)
    scores = scoring.scores()
    if len(models) > 2:
        raise SimilarityError(f"{len(models)} models were given; one or two can be compared at a time.")
    read = shape.open(corpus)
    opened = [opening.open(name) for name in models]
    notes: list[str] = []

    def say(line: str) -> None:
        notes.append(line)
        console(stderr=True).print(line)

    with nullcontext() if sweep is None else options.resumable(sweep), careful(say):
        found = compare(
            opened[0],
            opened[1] if len(opened) > 1 else None,
            read,
            scores=scores,
            sites=sites,
            right_sites=other_sites,
            folder=sweep,
            long=long,
            say=say,
            **scoring.of_comparison(),
            **asdict(running),
        )
        grids, tests = scoring.take(found, scores)
    command = shlex.join(["pellucid", *sys.argv[1:]])
    grids = [replace(each, provenance=replace(each.provenance, command=command)) for each in grids]
    title = " and ".join(model.name for model in opened)
    about = f"How alike their representations are over {found.found.words:,} words of {read.name}."
    page = write_comparison(out, grids, tests, title=title, about=about, notes=notes, command=command)
    if json:
        print_json({str(each.axes["measure"][0]): each.to_json() for each in grids})
        return
    _print_means(grids)
    console().print(f"Open this file in a browser: {page.resolve()}")


def _print_means(grids: list[SimilarityGrid]) -> None:
    """A line for every score: its mean and range beside chance and random models."""
    rows = [
        (
            each.axes["measure"][0],
            f"{each.values.mean():.3f}",
            f"{each.values.min():.3f} to {each.values.max():.3f}",
            "" if each.null is None else f"{each.null.mean():.3f}",
            ", ".join(
                f"{table.columns['value'].mean():.3f}" for name, table in each.tables.items() if "random" in name
            ),
        )
        for each in grids
    ]
    heads = ["score", "mean", "range", "chance", "with random models"]
    print_table(heads, rows, right=heads[1:])
