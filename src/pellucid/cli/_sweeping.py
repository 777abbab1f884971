"""Options of commands that run a model over a corpus, and collectors written as words."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector

Engine = Annotated[str, typer.Option(help="Who runs it: inline, processes, ray, or ray://HOST:PORT for a cluster.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Workers of processes and ray (default: one per core or GPU).")
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads per worker (default: the cores shared out).")]
TokenBudget = Annotated[int | None, typer.Option(min=1, help="Most tokens of a batch, padding included.")]
Pooling = Annotated[str, typer.Option(help="A word's row from its sub-words: mean, first, last; all keeps each.")]
Special = Annotated[bool, typer.Option("--special", help="Count special tokens too (with --pooling all).")]
Long = Annotated[str, typer.Option(help="Sentences over the model's limit: refuse, truncate or window.")]
Overlap = Annotated[int | None, typer.Option(min=0, help="Tokens of context shared by windows (default: a quarter).")]
Side = Annotated[str, typer.Option(help="Which words of an encoder–decoder: source or target.")]


@dataclass(frozen=True)
class Running:
    """Who runs a sweep, named as `sweep` names it."""

    engine: Engine = "inline"
    workers: Workers = None
    threads: Threads = None
    token_budget: TokenBudget = None


@dataclass(frozen=True)
class Pooled:
    """What a row is, named as `sweep` names it."""

    pooling: Pooling = "mean"
    special: Special = False
    long: Long = "refuse"
    overlap: Overlap = None
    side: Side = "source"


def collector_from(text: str) -> Collector:
    """The collector that words describe: its kind, then sites and options, as in `moments resid.* pairs=diagonal`."""
    from pellucid.collect.collector import collector_of, kinds

    kind, *words = text.split() or [""]
    known = {name: each for name, each in kinds().items() if name != "keep"}
    if kind not in known:
        raise SweepError(f"There is no collector called {kind!r}; there are {listing(sorted(known))}.")
    options: dict[str, Any] = {}
    sites = tuple(word for word in words if "=" not in word)
    if sites and "sites" not in {field.name for field in fields(known[kind])}:
        raise SweepError(f"The collector {kind!r} takes no sites, and {listing(sites)} was given.")
    if sites:
        options["sites"] = list(sites)
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            options[name] = _checked(known[kind], name, _value(value))
    try:
        return collector_of({"kind": kind, **options})
    except TypeError as error:
        missing = listing(name for name in _required(known[kind]) if name not in options)
        raise SweepError(f"The collector {kind!r} also needs {missing}: write it as NAME=VALUE.") from error


def _checked(collector: type[Collector], name: str, value: Any) -> Any:
    """A value of the type that the option has by default, where it has one."""
    default: Any = next((each.default for each in fields(collector) if each.name == name), None)
    wanted = {bool: "true or false", int: "a whole number", str: "a word"}.get(type(default))
    if wanted is not None and type(value) is not type(default):
        raise SweepError(f"The option {name} of {collector.kind!r} takes {wanted}, not {value!r}.")
    return value


def _required(collector: type[Collector]) -> list[str]:
    return [each.name for each in fields(collector) if each.default is MISSING and each.default_factory is MISSING]


def _value(text: str) -> Any:
    """Numbers and truth values as themselves, everything else as text."""
    lowered = {"True": "true", "False": "false"}.get(text, text)
    try:
        return json.loads(lowered)
    except ValueError:
        return text
