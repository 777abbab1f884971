"""Ranking by several methods at once: one pass for all that stream, one store for all that read rows."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pellucid.errors import listing
from pellucid.neurons.arrays import ROWS, array_store
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.concepts import Concept, as_concept
from pellucid.neurons.methods import LABEL, RANKINGS
from pellucid.neurons.rare_classes import noted, without_rare, words_in_store, words_in_sweep
from pellucid.neurons.sources import Sites, check_pooling, found_in, patterns, usual_sites
from pellucid.results import ResultError

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.neurons.ranking import Ranking
    from pellucid.results import Array

Options = dict[str, Any]
_OURS = frozenset({"source", "corpus", "concept", "sites", "control", "pooling", "preset", "least", "seed"})
"""What `rank` itself takes, and gives to every method that has it."""
_FIXED = frozenset({"penalty", "random", "progress"})
"""What a method's name says already, or what several methods cannot share."""


def rank(
    source: Found | Store | Model | Array,
    corpus: Corpus | Sequence[Any] | Array | None = None,
    *,
    concept: str | Concept = LABEL,
    methods: str | Sequence[str] = "probeless",
    sites: Sites = None,
    control: bool = True,
    pooling: str | None = None,
    preset: str | None = None,
    least: int = 0,
    seed: int = 0,
    **options: Any,
) -> dict[str, Ranking]:
    """Rankings by several methods, by the method's name; all that need one pass share it, all others one store.

    `control` reads the text with a randomly initialised twin too (the twin of a store or sweep, where it holds one),
    which probes, forests and Gaussians always have.
    `pooling` makes rows of words (mean, first, last of their sub-words; a model's default is mean) or of whole
    sentences (sentence-mean, -max …).
    `options` are those of the methods (quantile, exact, standardise, trees …), each for all methods that have it, and
    with a model those of `sweep`; one that nothing here would use is refused. `exact=True` with a model reads it into a
    temporary store. Where `ablation` is among several methods and no sites are named, all rank the MLP units alone.
    `least` leaves out classes with fewer words, where the concept does not name its classes: methods that train do so
    anyway (`fewest`), and of the others the table `left out` tells which.

    Arrays that another program made are ranked too, `rank(rows, labels)`: `options` may then be those of
    `array_store`. `preset="neurox"` ranks a store or arrays by that library's own arithmetic, to compare with.
    """
    names = _known(methods)
    if isinstance(source, ROWS):
        source, corpus, options = _of_arrays(source, corpus, options)
    asked, text = as_concept(concept), cast("Corpus | None", corpus)
    check_pooling(source, pooling)
    if preset is not None:
        return _preset(source, preset, names, asked, sites, seed, options)
    own, read = _dealt(options, names, source)
    _check_control(source, names, control)
    sites = _in_common(source, names, sites, read.get("side", "source"))
    streamed = [name for name in names if RANKINGS[name].gather is not None and not own[name].get("exact")]
    stored = [name for name in names if RANKINGS[name].pooled or own[name].get("exact")]
    found = None
    if streamed:
        gather = _gathering(streamed)
        found = found_in(source, text, asked, gather, sites=sites, control=control, seed=seed, pooling=pooling, **read)
    made: dict[str, Ranking] = {}
    with _rows(source, text, asked, stored, sites, pooling, seed, read) as (rows, rest):
        for name in names:
            first = (found,) if name in streamed else (rows, rest) if name in stored else (source, text)
            extra = {"pooling": pooling} if RANKINGS[name].pooled else {}
            narrow, rare = _narrowed(name, first[0], asked, sites, least)
            ranking = home(name)(*first, concept=narrow, sites=sites, seed=seed, **extra, **own[name])
            made[name] = noted(ranking, rare)
    return made


def _narrowed(name: str, source: Any, concept: Concept, sites: Sites, least: int) -> tuple[Concept, dict[str, int]]:
    """What a method ranks for: the concept without classes of few words, and these; methods that train do it anyway."""
    from pellucid.collect.found import Found
    from pellucid.collect.store import Store

    if least < 2 or RANKINGS[name].gather is None or concept.classes:
        return concept, {}
    if isinstance(source, Found):
        return without_rare(concept, words_in_sweep(source, concept, sites), least)
    if isinstance(source, Store) and concept.base is not None:
        return without_rare(concept, words_in_store(source, concept), least)
    return concept, {}


def home(name: str) -> Callable[..., Any]:
    """The function of a method."""
    return _found(RANKINGS[name].home)


def own_options(name: str) -> tuple[str, ...]:
    """The options that a method has for itself."""
    own = home(name)
    given = _OURS | _FIXED | (own.keywords.keys() if isinstance(own, partial) else set[str]())
    taken = signature(own).parameters.values()
    return tuple(each.name for each in taken if each.kind is Parameter.KEYWORD_ONLY and each.name not in given)


def _known(methods: str | Sequence[str]) -> list[str]:
    names = [methods] if isinstance(methods, str) else list(dict.fromkeys(methods))
    unknown = [name for name in names if name not in RANKINGS]
    if unknown or not names:
        raise ResultError(f"There is no ranking by {listing(unknown)}; there are {listing(RANKINGS, most=40)}.")
    return names


def _of_arrays(rows: Any, labels: Any, options: Options) -> tuple[Store, None, Options]:
    """Arrays as a store, and the options that are left for the methods."""
    if labels is None:
        raise ResultError("Rows need labels: rank(rows, labels), one for each row.")
    theirs = [each.name for each in signature(array_store).parameters.values() if each.kind is Parameter.KEYWORD_ONLY]
    store = array_store(rows, labels, **{name: value for name, value in options.items() if name in theirs})
    return store, None, {name: value for name, value in options.items() if name not in theirs}


def _preset(
    source: Any, preset: str, names: list[str], concept: Concept, sites: Sites, seed: int, options: Options
) -> dict[str, Ranking]:
    from pellucid.collect.store import Store
    from pellucid.neurons.neurox import neurox_ranking

    if preset != "neurox" or not isinstance(source, Store):
        raise ResultError(f"There is no preset {preset!r} for this: there is 'neurox', of a store or of arrays.")
    if options:
        raise ResultError(f"preset={preset!r} has all settings of its own, so {listing(options)} would not be used.")
    return {name: neurox_ranking(source, name, concept, sites, seed) for name in names}


def _dealt(options: Options, names: Sequence[str], source: Any) -> tuple[dict[str, Options], Options]:
    """The options of every method, and those of reading a model; one that would not be used is refused by name."""
    from pellucid.collect.sweep import sweep
    from pellucid.model import Model

    known = {name: own_options(name) for name in names}
    reads = isinstance(source, Model) and any(RANKINGS[name].reads for name in names)
    hidden = {"models", "corpus", "collectors", "pooling"}
    reading = [name for name in signature(sweep).parameters if name not in hidden] if reads else []
    every = list(dict.fromkeys([option for mine in known.values() for option in mine] + reading))
    wrong = [option for option in options if option not in every]
    if wrong:
        raise ResultError(
            f"Ranking a {type(source).__name__} by {listing(names)} has no use for {listing(wrong)}; "
            + (f"the options are {listing(every, most=40)}." if every else "there are no options.")
        )
    own = {name: {option: options[option] for option in mine if option in options} for name, mine in known.items()}
    return own, {option: options[option] for option in reading if option in options}


def _check_control(source: Any, names: Sequence[str], control: bool) -> None:
    from pellucid.collect.found import Found

    if not control and not isinstance(source, Found) and all(RANKINGS[name].pooled for name in names):
        raise ResultError("control=False leaves nothing out: probes, forests and Gaussians always have their controls.")


def _in_common(source: Any, names: Sequence[str], sites: Sites, side: str) -> Sites:
    """The sites that all methods rank: where ablation is among several and none are named, the MLP units alone."""
    from pellucid.model import Model

    removing = [name for name in names if not RANKINGS[name].reads]
    if sites is not None or not isinstance(source, Model) or not removing or len(removing) == len(names):
        return sites
    chosen = tuple(pattern for pattern in usual_sites(source.sites, side) if "neurons" in pattern.split("."))
    if not chosen:
        return sites
    warnings.warn(
        f"{listing(removing)} removes MLP units unless sites are named, so all methods rank {listing(chosen)} alone, "
        "and their rankings can be compared; name the sites to rank others.",
        NeuronWarning,
        stacklevel=3,
    )
    return chosen


def _gathering(names: Sequence[str]) -> Callable[[tuple[str, ...], str], list[Collector]]:
    """What several methods read from one sweep, each collector once."""

    def gather(chosen: tuple[str, ...], label: str) -> list[Collector]:
        made = [each for name in names for each in _found(str(RANKINGS[name].gather))(chosen, label)]
        return list(dict.fromkeys(made))

    return gather


@contextmanager
def _rows(
    source: Any,
    corpus: Corpus | None,
    concept: Concept,
    names: Sequence[str],
    sites: Sites,
    pooling: str | None,
    seed: int,
    read: Mapping[str, Any],
) -> Generator[tuple[Any, Corpus | None]]:
    """What methods that read rows are given: a model and its text in one temporary store, or the source as it is."""
    from pellucid.collect.build import build_store
    from pellucid.collect.sentence_rows import is_whole
    from pellucid.model import Model

    if not names or not isinstance(source, Model) or corpus is None:
        yield source, corpus
        return
    twin = any(RANKINGS[name].pooled for name in names)
    models = [source, Model.random_like(source, seed)] if twin else [source]
    how = pooling or "mean"
    whole = is_whole(how)
    theirs = {name for name in signature(build_store).parameters if name not in ("folder", "dtype", "part")}
    told = {name: value for name, value in read.items() if name in theirs and value is not None}
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        chosen = patterns(sites) or usual_sites(source.sites, read.get("side", "source"))
        text = corpus.labelled(concept) if whole else corpus
        settings: Options = {"long": "truncate" if whole else "window", **told}
        yield (
            build_store(models, text, Path(folder) / "store", chosen, dtype="float32", pooling=how, **settings),
            None,
        )


def _found(home: str) -> Callable[..., Any]:
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)
