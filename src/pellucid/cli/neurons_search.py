"""`pellucid neurons search`: neurons that other models have too."""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli import _sweeping as sweeping
from pellucid.cli._careful import careful
from pellucid.cli._groups import spread
from pellucid.cli._neuron_options import Out, Seed, group
from pellucid.cli._neuron_rankings import print_ranking
from pellucid.cli._neuron_results import check_out, give
from pellucid.errors import PellucidError, listing

if TYPE_CHECKING:
    from pellucid.model import Model

SEARCH = """Examples: pellucid neurons search zoo:lm --with zoo:mlm --corpus grammar:300 ;
pellucid neurons search zoo:lm --with zoo:mlm --with zoo:tagger --corpus dev.conllu --score mincorr --sites neurons.2
-o alike"""


def register(app: typer.Typer) -> None:
    group(app).command(name="search", epilog=SEARCH)(spread(search))


def search(
    model: options.ModelArgument,
    others: Annotated[list[str], typer.Option("--with", metavar="MODEL", help="Another model (may be repeated).")],
    corpus: corpora.CorpusOption,
    score: Annotated[
        list[str] | None,
        typer.Option(help="maxcorr, mincorr, linreg or svcca (may be repeated; default: maxcorr)."),
    ] = None,
    sites: Annotated[str, typer.Option(help="Sites whose neurons are ranked; all equally wide.")] = "resid.*",
    other_sites: Annotated[str | None, typer.Option(help="Sites of the other models (default: the same).")] = None,
    top: Annotated[int, typer.Option(min=1, help="Neurons to print.")] = 15,
    out: Out = None,
    control: Annotated[bool, typer.Option(help="Look in random models like the others too.")] = True,
    seed: Seed = 0,
    long: sweeping.Long = "window",
    *,
    running: sweeping.Running,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Rank neurons by their likes in other models: the largest correlation, the least, a linear map, or SVCCA."""
    from pellucid.collect.moments import Moments
    from pellucid.collect.sweep import sweep
    from pellucid.model import Model
    from pellucid.neurons import search as searched
    from pellucid.neurons.methods import SEARCHES

    scores = list(dict.fromkeys(score or ["maxcorr"]))
    unknown = [name for name in scores if name not in SEARCHES]
    if unknown:
        raise PellucidError(f"There is no search by {listing(unknown)}; there are {listing(SEARCHES)}.")
    check_out(out)
    read = shape.open(corpus)
    models = [opening.open(name) for name in (model, *others)]
    models += [Model.random_like(each, seed) for each in models[1:]] if control else []
    if scores != ["svcca"]:
        _check_widths(models[0], sites)
    left = _sites_of(0, sites)
    right = [_sites_of(number, other_sites or sites) for number in range(1, len(models))]
    moments = Moments((left, *right), pairs=tuple((left, each) for each in right), groups=True)
    with careful():
        found = sweep(models, read, [moments], long=long, **asdict(running))
        chosen = ",".join(right[: len(others)])
        made = {name: searched(found, score=name, left=left, right=chosen, seed=seed) for name in scores}
    about = f"Neurons that {listing(others)} {'has' if len(others) == 1 else 'have'} too, over {read.name}."
    give(made, out, json, model=model, about=about,
         tell=lambda _, each: print_ranking(each, top))  # fmt: skip


def _sites_of(number: int, sites: str) -> str:
    """Patterns of sites, with commas, as those of one of several models."""
    return ",".join(f"{number}:{part.strip()}" for part in sites.split(","))


def _check_widths(model: Model, sites: str) -> None:
    """Raises where the sites that are ranked together have different numbers of neurons."""
    from pellucid.model.sites import expand

    widths: dict[int, str] = {}
    for site in expand(sites, model.sites):
        widths.setdefault(prod(model.size(site)), str(site))
    if len(widths) > 1:
        told = listing(f"{site} has {width}" for width, site in widths.items())
        raise PellucidError(f"Sites that are ranked together have equally many neurons, and {told}; search them apart.")
