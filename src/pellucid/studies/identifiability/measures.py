"""The curves of the study of identifiability, from sweeps and results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.collect.freedom import AttentionFreedom
from pellucid.collect.sweep import sweep
from pellucid.identifiability.attention_freedom import CLASSES, freedom_of
from pellucid.reading import view_with
from pellucid.studies.claims import StudyError
from pellucid.studies.identifiability.tables import ENDS, Array, Curve, nearest
from pellucid.uncertainty import document_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pellucid.collect.freedom import FreedomView
    from pellucid.corpus import Corpus
    from pellucid.identifiability import FlowAgreement, TokenIdentifiability, TokenMixing
    from pellucid.model import Model

ATTENTION = ("sees", "free", "free_with_sum", "unique", "moved", "shifted", "argmax")
"""Measures of attention on the page, as the collector calls them."""
QUERIES = "queries"
"""The row that counts queries of each length: means over several lengths are weighted by it."""
FEWEST = 40
"""Queries of a length below which it is left out."""
NONE = np.empty(0)
_ROWS = (*ATTENTION, QUERIES)
_CHANCE = tuple(f"{name}_by_chance" for name in ATTENTION[1:])
CEILING = "ceiling"
"""The row of the most that any map can agree with estimated hidden token attribution."""


def spread(layers: int, count: int) -> list[int]:
    """So many of the layers 1 to `layers`, the last one first chosen, evenly apart."""
    few = min(count, layers)
    return sorted({layers - round(place * layers / max(few, 1)) for place in range(few)})


def attention_curves(model: Model, sentences: Corpus, passages: Corpus) -> dict[str, Curve]:
    """Attention on sentences by layer; on passages by the keys in sight, and by layer beyond the heads' width."""
    by_layer, _ = _swept(model, sentences)
    long, width = _swept(model, passages)
    kept = _lengths(long.view, long.keys)
    beyond = [place for place in kept if first_of(CLASSES[place]) > width]
    depth = long if beyond else by_layer
    return {
        "sentences": by_layer.curve(lambda view: _by_layer(view, by_layer.keys, None), by_layer.layers),
        "lengths": long.curve(lambda view: _by_length(view, long.keys)[:, kept], [CLASSES[place] for place in kept]),
        "depth": depth.curve(lambda view: _by_layer(view, depth.keys, beyond or None), depth.layers),
    }


class _Swept:
    """The freedom of attention over a corpus."""

    def __init__(self, view: FreedomView, keys: Sequence[str], layers: Sequence[str]) -> None:
        self.view, self.keys, self.layers = view, keys, layers

    def curve(self, read: Callable[[FreedomView], Array], places: Sequence[str]) -> Curve:
        """What `read` tells of the measures, the queries and chance, [rows and chance, places]."""
        told = read(self.view)
        whole, drawn = told[: len(_ROWS)], told[len(_ROWS) :]
        sizes = {number: self.view.group(number).n(self.keys[0]) for number in self.view.groups}
        kept = [number for number, size in sizes.items() if size] if len(sizes) > 1 else []
        without = np.array([read(self.view.without(number))[: len(_ROWS)] for number in kept])
        chance = np.stack([whole[0], *drawn, whole[-1]])  # of keys in sight and queries there is none
        return Curve(_ROWS, tuple(places), whole, chance, without, np.array([sizes[number] for number in kept]))


def _swept(model: Model, corpus: Corpus) -> tuple[_Swept, int]:
    """One sweep, and how wide the values of the heads are."""
    found = sweep(model, corpus, freedom_of(model), long="truncate", progress=False)
    view, mine = view_with(found, AttentionFreedom, "pattern", ask="AttentionFreedom()")
    sizes = found.models[0].sizes
    width = min(sizes[key.replace("pattern", "value")][-1] for key in mine.values())
    return _Swept(view, list(mine.values()), [str(layer) for layer in mine]), width


def first_of(length: str) -> int:
    """The fewest keys of a class of length."""
    return int(length.partition("–")[0])


def last_of(length: str) -> float:
    """The most keys of a class of length."""
    most = length.partition("–")[2]
    return int(most) if most else np.inf


def _lengths(view: FreedomView, keys: Sequence[str]) -> list[int]:
    """The classes of length with enough queries, also without any one group of documents."""
    counts = view.counts(keys[0])
    rest = [view.without(number).counts(keys[0]) for number in view.groups if view.group(number).n(keys[0])]
    least = np.min([counts, *rest], axis=0) if len(rest) > 1 else counts
    found = [place for place in range(len(counts)) if counts[place] >= FEWEST and least[place] > 0]
    if not found:
        raise StudyError(f"No length of text has {FEWEST} tokens whose attention can be read; give more text.")
    return found


def _by_length(view: FreedomView, keys: Sequence[str]) -> Array:
    """Every measure, the queries, and chance, means over all heads, [rows and chance, classes]."""
    counts = view.counts(keys[0])

    def told(names: Sequence[str]) -> list[Array]:
        return [np.mean([view.by_length(name, key).mean(0) for key in keys], axis=0) for name in names]

    return np.stack([*told(ATTENTION), counts, *told(_CHANCE)])


def _by_layer(view: FreedomView, keys: Sequence[str], classes: Sequence[int] | None) -> Array:
    """The same by layer, of the queries of some classes of length or of all, [rows and chance, layers]."""
    counts = view.counts(keys[0])
    chosen = np.arange(len(counts)) if classes is None else np.array(classes)
    weights = counts[chosen] / counts[chosen].sum()

    def told(names: Sequence[str]) -> list[Array]:
        return [np.array([view.by_length(name, key)[:, chosen].mean(0) @ weights for key in keys]) for name in names]

    return np.stack([*told(ATTENTION), np.full(len(keys), counts[chosen].sum()), *told(_CHANCE)])


def token_curve(found: TokenIdentifiability) -> Curve:
    """Shares of tokens that are found again, by layer."""
    assert found.null is not None
    groups = found.tables.get("groups")
    random = found.tables.get("random model")
    return Curve(
        tuple(map(str, found.axes["measure"])),
        tuple(map(str, found.axes["layer"])),
        found.values,
        found.null,
        NONE if groups is None else groups.columns["without"],
        NONE if groups is None else groups.columns["tokens"][:, 0, 0],
        None if random is None else random.columns["value"],
    )


def mixing_curve(found: TokenMixing) -> Curve:
    """Measures of mixing by layer, and without each group of documents."""
    assert found.null is not None
    texts, random = found.table("texts").columns, found.tables.get("random model")
    tokens = texts["tokens"].astype(float)
    sums = found.table("by text").columns["value"] * tokens[:, None, None]
    apart = _groups(texts["document"].tolist())
    return Curve(
        tuple(map(str, found.axes["measure"])),
        tuple(map(str, found.axes["layer"])),
        found.values,
        found.null,
        np.array([sums[~own].sum(0) / tokens[~own].sum() for own in apart]),
        np.array([tokens[own].sum() for own in apart]),
        None if random is None else random.columns["value"],
    )


def _groups(documents: Sequence[str]) -> list[Array]:
    """Which texts belong to each group of documents; none where there is one document."""
    group = document_groups(documents)
    return [group == number for number in dict.fromkeys(group.tolist())] if len(set(documents)) > 1 else []


def offset_curve(found: TokenMixing) -> Curve:
    """Contributions by distance after the first, the middle and the last layer, beside equal shares."""
    table, groups = found.table("offsets"), found.tables.get("groups")
    near = nearest(table.axes["offset"])
    names = tuple(str(table.axes["offset"][at]).replace("-", "−") for at in near)
    last = len(table.axes["layer"]) - 1
    kept = [min(1, last), (last + 1) // 2, last]
    share, even = (table.columns[name].T[kept][:, near] for name in ("share", "equal shares"))
    if groups is None:
        return Curve(ENDS, names, share, even, NONE, NONE)
    without, sizes = groups.columns["without"], groups.columns["tokens"]
    return Curve(ENDS, names, share, even, without.transpose(0, 2, 1)[:, kept][..., near], sizes[:, 0, 0].astype(float))


def flow_curve(found: FlowAgreement) -> Curve:
    """Rank correlations with hidden token attribution by layer, of methods and baselines, and the ceiling."""
    table, random = found.table("by text"), found.tables.get("random model")
    kept = [at for at, name in enumerate(table.axes["map"]) if name != "equal"]  # which ranks nothing
    sums, positions = (table.columns[name][:, kept] for name in ("correlations", "positions"))
    ends = found.table("ceiling").columns["ceiling"][None]
    apart = _groups(found.table("texts").columns["document"].tolist())

    def means(own: Array) -> Array:
        return np.concatenate([sums[own].sum(0) / np.maximum(positions[own].sum(0), 1), ends])

    values = means(np.ones(len(sums), dtype=bool))
    drawn = None if random is None else random.columns["value"]
    rest = None if drawn is None else np.zeros((len(values) - len(drawn), drawn.shape[1]))
    return Curve(
        (*(str(table.axes["map"][at]) for at in kept), CEILING),
        tuple(str(int(layer) + 1) for layer in table.axes["layer"]),
        values,
        np.zeros_like(values),
        np.array([means(~own) for own in apart]),
        np.array([positions[own].max((1, 2)).sum() for own in apart], dtype=float),
        None if drawn is None or rest is None else np.concatenate([drawn, rest]),
    )
