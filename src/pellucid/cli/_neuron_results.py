"""What the commands on neurons share: a model or a store to read, and results saved with their page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli import _sweeping as sweeping
from pellucid.cli._print import console, print_json
from pellucid.errors import PellucidError

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.results import Result

Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="A folder for the results and their page; it must be new or empty.")
]
SourceArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A folder, a GGUF file, a name on the Hugging Face hub, or a saved store."),
]
OptionalCorpus = Annotated[
    str | None,
    typer.Option("--corpus", metavar="FILE", help="What the model reads: a file, FIRST+SECOND, or grammar[:COUNT]."),
]


@dataclass(frozen=True)
class Scoring:
    """Options of single methods, named as they name them; what no chosen method has is refused."""

    quantile: Annotated[float | None, typer.Option(help="iou: neurons fire above this quantile (default: .95).")] = None
    threshold: Annotated[float | None, typer.Option(help="iou: neurons fire above this value instead.")] = None
    ends: Annotated[
        str | None, typer.Option(help="iou, precision: both ends of the values, or upper alone (default: both).")
    ] = None
    exact: Annotated[
        bool, typer.Option("--exact", help="iou, precision: from the values themselves, read into a store.")
    ] = False
    standardise: Annotated[
        bool, typer.Option("--standardise", help="probeless: divide by each neuron's standard deviation.")
    ] = False

    def given(self) -> dict[str, Any]:
        """The options that were given."""
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        made = {name: value for name, value in told.items() if value is not None and value is not False}
        return {"quantile": None, **made} if "threshold" in made else made


def source_of(
    name: str, corpus: str | None, shape: corpora.CorpusShape, opening: options.Opening
) -> tuple[Model | Store, Corpus | None]:
    """A store of that name, or a model and the corpus that it reads."""
    from pellucid.collect.store import ABOUT, Store

    if (Path(name) / ABOUT).is_file():
        if corpus is not None:
            raise PellucidError(f"The store {name!r} has its text already; leave --corpus out.")
        return Store.open(name), None
    if corpus is None:
        raise PellucidError(f"The model {name!r} needs a text to read: name it with --corpus.")
    return opening.open(name), shape.open(corpus)


def reading(source: object, methods: list[str], running: sweeping.Running, long: str) -> dict[str, Any]:
    """How a model reads the text, as `rank` takes it; a store was read already, and ablation runs a task."""
    from pellucid.model import Model
    from pellucid.neurons import RANKINGS

    given = {name: value for name, value in asdict(running).items() if value != getattr(sweeping.Running(), name)}
    reads = isinstance(source, Model) and any(name in RANKINGS and RANKINGS[name].reads for name in methods)
    return {**given, "long": long} if reads else given


def under_command(made: Mapping[str, Result]) -> dict[str, Any]:
    """The results with the command that made them."""
    command = shlex.join(["pellucid", *sys.argv[1:]])
    return {name: replace(each, provenance=replace(each.provenance, command=command)) for name, each in made.items()}


def give(
    made: Mapping[str, Result],
    out: Path | None,
    json: bool,
    *,
    model: str,
    about: str,
    tell: Callable[[str, Any], None] | None = None,
    dump: Callable[[Any], Mapping[str, Any]] | None = None,
) -> None:
    """Saves results and their page, all or nothing, and prints them."""
    from pellucid.cli._result import print_result
    from pellucid.report.neuron_results import write_results

    told = under_command(made)
    page = None if out is None else write_results(out, told, model=model, about=about)
    if json:
        print_json({name: dict(dump(each) if dump else each.to_json()) for name, each in told.items()})
        return
    for name, each in told.items():
        if tell is not None:
            tell(name, each)
            continue
        console().print(f"[{name}]", style="bold", markup=False)
        print_result(each)
    if out is not None and page is not None:
        console().print(f"Saved in {out}; look at one with: pellucid show {out / next(iter(told))}", markup=False)
        console().print(f"Open this file in a browser: {page.resolve()}", markup=False)
