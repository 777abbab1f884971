"""What the commands on neurons share: a model or a store to read, and results saved with their page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli import _sweeping as sweeping
from pellucid.cli._command import under_command
from pellucid.cli._print import console, print_json
from pellucid.errors import PellucidError, listing

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.results import Result

LONG = "window"
"""What becomes of sentences over the model's limit, unless something else is asked for."""


def check_out(out: Path | None) -> None:
    """Raises where results are to be saved and cannot be."""
    from pellucid.saving import check_free

    if out is not None:
        check_free(out)


def source_of(
    name: str,
    corpus: str | None,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    running: sweeping.Running | None = None,
    long: str = LONG,
) -> tuple[Model | Store, Corpus | None]:
    """A store of that name, or a model and the corpus that it reads; a store has no use for how to read."""
    from pellucid.collect.store import Store

    if options.is_store(name):
        if corpus is not None:
            raise PellucidError(f"The store {name!r} has its text already; leave --corpus out.")
        unused = [*given(shape), *(each for each in given(opening) if each != "--device")]
        unused += ways_of_reading(running or sweeping.Running(), long)
        if unused:
            raise PellucidError(f"The store {name!r} was read already, so leave {listing(unused)} out.")
        return Store.open(name), None
    if corpus is None:
        raise PellucidError(f"{name!r} is no store, and a model needs a text to read: name one with --corpus.")
    read = shape.open(corpus)
    return opening.open(name), read


def given(group: corpora.CorpusShape | options.Opening | sweeping.Running) -> list[str]:
    """The options of a group that were given, as they are typed."""
    usual = asdict(type(group)())
    return [f"--{name.replace('_', '-')}" for name, value in asdict(group).items() if value != usual[name]]


def ways_of_reading(running: sweeping.Running, long: str) -> list[str]:
    """The options of how a model reads a text that were given, as they are typed."""
    return [*given(running), *(["--long"] if long != LONG else [])]


def check_ways(methods: Sequence[str], running: sweeping.Running, long: str) -> None:
    """Raises where it was said how to read the text, and no method reads it: ablation runs the model's own task."""
    from pellucid.neurons import RANKINGS

    unused = ways_of_reading(running, long)
    if unused and all(name in RANKINGS and not RANKINGS[name].reads for name in methods):
        raise PellucidError(f"{listing(methods)} runs the model's own task on the text; leave {listing(unused)} out.")


def check_twin(source: object, methods: Sequence[str]) -> None:
    """Raises where methods that learn are to read a store without the model's randomly initialised twin."""
    from pellucid.collect.store import Store
    from pellucid.neurons import RANKINGS
    from pellucid.reading import random_twin

    learning = [name for name in methods if name in RANKINGS and RANKINGS[name].pooled]
    if not learning or not isinstance(source, Store) or random_twin(source.models, 0) is not None:
        return
    names = listing(each.name for each in source.models)
    raise PellucidError(
        f"What {listing(learning)} learns means nothing without a randomly initialised model beside, and the store "
        f"{str(source.folder)!r} holds {names} alone; build one that has both: pellucid store build "
        f"{source.models[0].name} --corpus FILE --control -o FOLDER"
    )


def reading(
    source: object, methods: list[str], running: sweeping.Running | None = None, long: str = LONG
) -> dict[str, Any]:
    """How a model reads the text, as `rank` takes it; a store was read already, and ablation runs a task."""
    from pellucid.model import Model
    from pellucid.neurons import RANKINGS

    if not isinstance(source, Model) or not any(name in RANKINGS and RANKINGS[name].reads for name in methods):
        return {}
    usual, told = asdict(sweeping.Running()), asdict(running or sweeping.Running())
    return {**{key: value for key, value in told.items() if value != usual[key]}, "long": long}


def training(source: object, methods: list[str], opening: options.Opening) -> dict[str, Any]:
    """Where methods that train do so, as `rank` takes it: where the model is, or where it was asked to be."""
    from pellucid.model import Model
    from pellucid.model.loading import usable
    from pellucid.neurons import RANKINGS
    from pellucid.neurons.probing.training import device_beside
    from pellucid.neurons.ranked import own_options

    if isinstance(source, Model):
        where = device_beside(source)
    else:
        where = None if opening.device is None else str(usable(opening.device))
    trains = any(name in RANKINGS and "device" in own_options(name) for name in methods)
    return {"device": where} if trains and where is not None else {}


def give(
    made: Mapping[str, Result],
    out: Path | None,
    json: bool,
    *,
    model: str,
    about: str,
    headings: Mapping[str, str] | None = None,
    tell: Callable[[str, Any], None] | None = None,
    dump: Callable[[Any], Mapping[str, Any]] | None = None,
) -> None:
    """Saves results and their page, all or nothing, and prints them; `headings` are those of page and tables."""
    from pellucid.cli._neuron_summary import print_summary
    from pellucid.report.neuron_results import write_results

    told = {name: under_command(each) for name, each in made.items()}
    page = None if out is None else write_results(out, told, model=model, about=about, headings=headings)
    if json:
        print_json({name: dict(dump(each) if dump else each.to_json()) for name, each in told.items()})
        return
    for name, each in told.items():
        if tell is not None:
            tell(name, each)
        else:
            print_summary(each, (headings or {}).get(name, name))
    if out is not None and page is not None:
        console().print(f"Saved in {out}; look at one with: pellucid show {out / next(iter(told))}", markup=False)
        console().print(f"Open this file in a browser: {page.resolve()}", markup=False)
