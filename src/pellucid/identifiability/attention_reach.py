"""Attention reach: when attention is unique, and whether a head's own keys could make the other weights at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from pellucid.collect.freedom import EDGES
from pellucid.collect.null_space import check_numbers, in_sight
from pellucid.collect.output_space import OutputSpace, deficient
from pellucid.collect.output_space import told as outputs_told
from pellucid.errors import ModelError, TextError
from pellucid.heads.roles.layers import stacked
from pellucid.identifiability.attention_freedom import CLASSES, patterns_with_values
from pellucid.identifiability.key_space import Reach, reach
from pellucid.identifiability.notes import notes_table, rounding_told
from pellucid.model.sites import expand
from pellucid.results import Array, Coordinate, Provenance, Result, ResultError, Table
from pellucid.uncertainty import over_documents

if TYPE_CHECKING:
    from pellucid.corpus import Corpus, Sentence
    from pellucid.model import Model
    from pellucid.model.sites import Site

MEASURES = {
    "unique": "share of queries whose weights could be no others with the same output, by their values",
    "unique with keys": "the same where the others must be weights that the head's own keys make, near those that are",
    "free": "dimensions in which a query's weights may move with the same output, summing to what they sum to",
    "free with keys": "those of them in which the head's own keys can move the weights",
    "second in reach": "share of queries with a second attention that the head's own keys could make",
    "outside": "part of the way to a second attention that lies outside what keys span, over queries that have one",
}
_MIXED = ("xlnet", "deberta", "deberta-v2", "transfo-xl")
"""Types of models whose queries also meet vectors of positions."""


@dataclass(frozen=True, eq=False)
class AttentionReach(Result):
    """How unique attention is once a head's keys must be able to make it, [measure, layer, head].

    Tables: `widths` (of values and keys in every layer, and up to how many keys in sight weights are unique),
    `lengths` (both shares of unique queries by the keys that a query sees), `when` (the share of unique queries of a
    whole text by its length, with values in general position), `heads` (the share of queries whose rank hangs on the
    cut), `notes` (what was cut or left out). Where a layer has fewer heads than others, the values of those it has not
    are NaN.
    """

    kind: ClassVar[str] = "identifiability.reachable"
    gaps: ClassVar[bool] = True
    title: ClassVar[str] = "Weights that a head could make"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "keys and values in general position"


@dataclass(frozen=True, eq=False)
class _Text:
    """Sums of one text: `sums` [measure + 2, layer, head] with queries and those with a second attention last, `even`
    the same in general position, `classes` [class, (queries, unique, unique with keys), layer, head] and `uncertain`
    [layer, head]; `cut` where it is longer than the model reads."""

    document: str
    cut: bool
    sums: Array
    even: Array
    classes: Array
    uncertain: Array


def reachable(model: Model, corpus: Corpus, *, sentences: int = 40, queries: int = 16, seed: int = 0) -> AttentionReach:
    """Whether attention is unique once a head's keys must be able to make it (Bhardwaj et al. 2021), over the first
    `sentences` of a corpus and up to `queries` tokens of each, evenly spread.

    A head's weights are a softmax of q·k_j: whatever the query, their logarithms stay in what the keys in sight span,
    up to a constant. Counted are dimensions in which a change of the query moves the weights but not the output, and
    whether the second attention of `second_pattern` (half-way) lies within that span. With d_k ≤ d_v nothing is
    expected to be left open near the weights; weights far from them that also give the output are not looked for. Texts
    over the model's limit are cut there.
    """
    if sentences < 1 or queries < 1:
        raise ModelError(f"sentences={sentences} and queries={queries} leave nothing to look at; give 1 or more.")
    sites = _sites(model)
    lost = deficient(model, sites)
    given = list(corpus.take(sentences))
    texts = list(_texts(model, sites, given, queries, seed, OutputSpace(lost)))
    if not texts:
        raise ResultError(f"No text of {corpus.name!r} has a word that the model reads, so nothing can be told.")
    notes = [*_lengths_told(texts, len(given)), *outputs_told(lost), *rounding_told(str(model.hf.dtype))]
    values, interval = over_documents(
        np.stack([text.sums for text in texts]), [text.document for text in texts], _means
    )
    several = len({site.stack for site in sites}) > 1
    layers = tuple(f"{site.stack}.{site.layer}" if several else int(site.layer or 0) for site in sites)
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": tuple(MEASURES),
        "layer": layers,
        "head": tuple(range(values.shape[2])),
    }
    count = int(sum(np.nanmax(text.sums[-2]) for text in texts))
    facts = {"name": corpus.name, "fingerprint": corpus.fingerprint, "sentences": len(texts), "tokens": count}
    return AttentionReach(
        axes=axes,
        values=values,
        null=_means(np.stack([text.even for text in texts])),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=Provenance(
            "identifiability.reachable",
            {"sentences": sentences, "queries": queries},
            ({"name": model.name, "fingerprint": model.fingerprint},),
            facts,
            seed=seed,
        ),
        tables={**_tables(model, sites, texts, axes), **notes_table(notes)},
    )


def _lengths_told(texts: Sequence[_Text], given: int) -> list[str]:
    """What is to be said of texts that were cut or passed over."""
    cut = sum(text.cut for text in texts)
    lines = [f"{cut} of {len(texts)} texts are cut at the model's limit."] if cut else []
    return lines + ([f"{given - len(texts)} texts have no word and are left out."] if len(texts) < given else [])


def _sites(model: Model) -> tuple[Site, ...]:
    """The self-attention over the text; a model in which keys are not all that a query meets is refused."""
    sites = expand(patterns_with_values(model), model.sites)
    why = keys_do_not_tell(model, sites)
    if why is not None:
        raise ResultError(f"{why}; ask attention() instead, which needs values only.")
    return sites


def keys_do_not_tell(model: Model, sites: Sequence[Site]) -> str | None:
    """Why keys do not span the logarithms of the weights that heads can make; None where they do."""
    absent = [site for site in sites if site.beside("key") not in model.sites]
    if absent:
        why = next((reason for name, reason in model.missing.items() if "key" in name), "it has none")
        return f"{model.name!r} does not show the keys of {absent[0]} ({why}), so that their span is not known"
    config: Any = model.hf.config
    relative = str(getattr(config, "position_embedding_type", "") or "")
    if getattr(config, "model_type", "") in _MIXED or relative.startswith("relative"):
        return (
            f"The queries of {model.name!r} also meet vectors of positions, so that keys alone do not span what its "
            "heads can make"
        )
    if getattr(config, "attn_logit_softcapping", None) is not None:
        return (
            f"{model.name!r} caps its attention scores, so that the logarithms of its weights do not stay in what its "
            "keys span"
        )
    return None


def _texts(
    model: Model, sites: Sequence[Site], sentences: Sequence[Sentence], queries: int, seed: int, outputs: OutputSpace
) -> Iterator[_Text]:
    """Every text that has a word, cut at the model's limit."""
    read = [site.beside(kind) for site in sites for kind in ("pattern", "value", "key")]
    for number, sentence in enumerate(sentences):
        batch, cut = read_text(model, sentence.text)
        counted = (~batch.special[0] & batch.mask[0].bool()).nonzero()[:, 0].cpu()
        if not len(counted):
            continue
        spread = np.unique(np.linspace(0, len(counted) - 1, min(queries, len(counted))).round().astype(int))
        run = model.run(batch, read, logits=False)
        rows = counted[torch.from_numpy(spread)]
        parts = [_layer(run, site, rows, seed + number, outputs) for site in sites]
        yield _Text(sentence.document, cut, *(stacked_last(each) for each in zip(*parts, strict=True)))


def read_text(model: Model, text: str) -> tuple[Any, bool]:
    """A text as a batch, cut at the model's limit, and whether it was cut."""
    try:
        return model.tokenize([text]), False
    except TextError:
        return model.tokenize([text], truncate=True), True


def stacked_last(parts: Sequence[Array]) -> Array:
    """Arrays [..., heads] or [classes, …, heads] of every layer, with layers before heads."""
    return stacked(parts, axis=-2)


def _layer(
    run: Any, site: Site, rows: torch.Tensor, seed: int, outputs: OutputSpace
) -> tuple[Array, Array, Array, Array]:
    """One layer's sums, those in general position, classes [class, 3, head] and uncertain queries [head]."""
    pattern, values, keys = (run[site.beside(kind)][0] for kind in ("pattern", "value", "key"))
    check_numbers(pattern[:, rows], values, str(site))
    chosen = pattern[:, rows.to(pattern.device)]
    passed = outputs.through(str(site), values, len(chosen))
    told = reach(chosen, passed, keys, seed=seed, dtype=values.dtype)
    sees = in_sight(chosen).sum(-1).cpu().numpy()  # [queries]
    own, open_ = _measured(told), _others(told).cpu().numpy()  # [measure, head, query], [head, query]
    even = _general(sees, values.shape[-1], keys.shape[-1])  # [measure, query]
    places = np.searchsorted(EDGES, sees)
    counts = np.stack([np.ones_like(own[0]), own[0], own[1]])  # [3, head, query]
    classes = np.stack([counts[..., places == place].sum(-1) for place in range(len(CLASSES))])
    size = np.full(len(chosen), float(len(rows)))
    sums = np.concatenate([own.sum(-1), [size, open_.sum(-1)]])
    general = np.concatenate([even.sum(-1), [len(rows), (even[0] == 0).sum()]])
    return sums, np.repeat(general[:, None], len(chosen), axis=1), classes, told.uncertain.sum(-1).cpu().numpy() + 0.0


def _others(told: Reach) -> torch.Tensor:
    """Where there is a second attention, [head, query]."""
    return (told.free > 0) & told.second


def _measured(told: Reach) -> Array:
    """`MEASURES` of every head and query."""
    columns = [
        told.free == 0,
        told.free_with_keys == 0,
        told.free,
        told.free_with_keys,
        told.reached,
        told.outside * _others(told),
    ]
    return torch.stack([column.double() for column in columns]).cpu().numpy()


def _general(sees: Array, width: int, key_width: int) -> Array:
    """`MEASURES` of queries [n] with so many keys in sight, where values and keys are in general position."""
    room = np.maximum(sees - 1, 0)  # dimensions of weights that sum to one
    free = np.maximum(room - width, 0)
    spanned = np.minimum(key_width, room)
    with_keys = np.where(free > 0, np.maximum(spanned - width, 0), 0)
    outside = np.where(free > 0, np.sqrt((room - spanned) / np.maximum(room, 1)), 0.0)
    return np.stack([free == 0, with_keys == 0, free, with_keys, (free > 0) & (spanned == room), outside]).astype(float)


def _means(part: Array) -> Array:
    """Means over queries, [measure, layer, head], from sums [text, measure + 2, layer, head]."""
    whole = part.sum(axis=0)
    last = list(MEASURES).index("outside")
    found = whole[:-2] / whole[-2]
    found[last] = whole[last] / np.maximum(whole[-1], 1)
    return found


def _tables(
    model: Model, sites: Sequence[Site], texts: Sequence[_Text], axes: Mapping[str, tuple[Coordinate, ...]]
) -> dict[str, Table]:
    grid = {"layer": axes["layer"], "head": axes["head"]}
    sizes = {kind: [model.size(site.beside(kind)) for site in sites] for kind in ("pattern", "value", "key")}
    widths = np.array([size[-1] for size in sizes["value"]])
    key_widths = np.array([size[-1] for size in sizes["key"]])
    classes = np.nansum(np.stack([text.classes for text in texts]), axis=(0, 3, 4))  # [class, 3]
    there = np.flatnonzero(classes[:, 0])
    uncertain = np.sum([text.uncertain for text in texts], axis=0) / np.sum([text.sums[-2] for text in texts], axis=0)
    return {
        "widths": Table(
            {"layer": axes["layer"]},
            {
                "heads": np.array([size[0] for size in sizes["pattern"]]),
                "key–value heads": np.array([size[0] for size in sizes["value"]]),
                "width of values": widths,
                "width of keys": key_widths,
                "unique up to": widths + 1,
                "keys make all unique": key_widths <= widths,
            },
        ),
        "lengths": Table(
            {"keys in sight": tuple(CLASSES[place] for place in there)},
            {
                "queries and heads": classes[there, 0].astype(np.int64),
                "unique": classes[there, 1] / classes[there, 0],
                "unique with keys": classes[there, 2] / classes[there, 0],
            },
        ),
        "when": when_unique(int(widths.min()), causal=model.causal, limit=model.limit),
        "heads": Table(grid, {"uncertain": np.nan_to_num(uncertain)}),
    }


def when_unique(width: int, *, causal: bool, limit: int | None = None) -> Table:
    """The share of a text's queries with unique weights by its length, for values `width` wide in general position.

    Weights that sum to one are unique with up to width + 1 keys in sight. Where a query sees the whole text, that holds
    for all queries or for none; where it sees its prefix alone, for the first width + 1.
    """
    longest = max(EDGES[-1], limit or 0)
    known = {*(edge for edge in EDGES if edge <= longest), width + 1, limit or width + 1}
    lengths: list[int] = sorted(known)
    sizes = np.array(lengths)
    share = np.minimum(1.0, (width + 1) / sizes) if causal else (sizes <= width + 1).astype(float)
    return Table({"tokens": tuple(lengths)}, {"unique": share, "free at the last": np.maximum(0, sizes - width - 1)})
