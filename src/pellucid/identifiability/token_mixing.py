"""Token mixing: how much of its own input a token's state still holds at every layer, and where the rest comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.progress import Progress
from pellucid.errors import ModelError, TextError
from pellucid.identifiability.jacobians import check_probes, reactions, shares_of
from pellucid.identifiability.notes import notes_table
from pellucid.model import Model
from pellucid.model.twin import twin_of
from pellucid.results import Array, Coordinate, Provenance, Result, ResultError, Table
from pellucid.uncertainty import Interval, document_groups, over_documents

if TYPE_CHECKING:
    from pellucid.corpus import Corpus, Sentence
    from pellucid.identifiability.jacobians import Probes, Reactions

MEASURES = {
    "own": "share of a token's own input in what its state reacts to",
    "not largest": "share of tokens whose own input is not the largest contributor to their state",
    "reach": "tokens between a state and what it reacts to, weighted by the shares",
    "near": "share of the two tokens before and the two after, of what is not a token's own",
}
NEAR = 2
"""Tokens to either side that count as near."""
OFFSETS = 16
"""Tokens to either side that the profile by distance tells apart."""


@dataclass(frozen=True, eq=False)
class TokenMixing(Result):
    """How mixed the states of every layer are, [measure, layer]; layer 0 is the input.

    Tables: `offsets` (share of what stands so many tokens before or after, by layer, beside equal shares), `random
    model` (the same measures of a randomly initialised model), both with intervals; `texts` (document and tokens of
    every text, and the error of its norms), `by text` (every measure of every text), `groups` (offsets without each
    group of documents), `directions` (`not largest` by half the directions), `notes` (texts that were left out).
    """

    kind: ClassVar[str] = "identifiability.mixing"
    title: ClassVar[str] = "How far tokens mix"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "equal shares of all tokens that a state can react to"


@dataclass(frozen=True, eq=False)
class _Text:
    """One text's sums over its tokens: [measure, layer], of equal shares [measure], and by offset [layer, offset], the
    last row of equal shares; `half` are tokens that are not their own largest contributor by half the directions."""

    document: str
    tokens: int
    told: Array
    even: Array
    offsets: Array
    half: Array
    error: float


def mixing(
    model: Model,
    corpus: Corpus,
    *,
    sentences: int = 40,
    probes: Probes = None,
    random: bool = True,
    seed: int = 0,
    progress: bool | None = None,
) -> TokenMixing:
    """Hidden token attribution over the first `sentences` of a corpus (Brunner et al. 2020), layer by layer.

    What input token i contributes to the state of token j is ‖∂e_j/∂x_i‖_F over its sum over all i. Norms are exact
    where that takes a few seconds, and else estimated from 16 random directions per token; `probes` asks for another
    number, or for "exact". The largest of many noisy norms is too large, and `not largest` with it: `directions` tells
    what half the directions give, whose noise is twice as large. Special tokens contribute, and are not counted
    themselves. With `random`, a randomly initialised model of the same shape stands beside.
    """
    if sentences < 1:
        raise ModelError(f"sentences={sentences} leaves nothing to look at; give 1 or more.")
    check_probes(probes)
    chosen = list(corpus.take(sentences))
    twin = twin_of(model, seed) if random else None
    networks = [model] if twin is None else [model, twin]
    with Progress(progress) as shown:
        shown.begin("carrying derivatives", len(chosen) * len(networks))
        lost: dict[str, int] = {}
        found = [list(_texts(network, chosen, probes, seed, shown, lost)) for network in networks]
    if not found[0]:
        raise ResultError(f"No text of {corpus.name!r} has two tokens and fits into the model, so nothing can mix.")
    values, interval = _over(found[0], [text.told for text in found[0]])
    layers = tuple(range(values.shape[1]))
    axes: dict[str, tuple[Coordinate, ...]] = {"measure": tuple(MEASURES), "layer": layers}
    tables = _tables(found[0], axes) | notes_table(_left_out(lost, len(networks)))
    if len(found) > 1:
        drawn, ends = _over(found[1], [text.told for text in found[1]])
        tables["random model"] = Table(axes, {"value": drawn, **_ends(ends)})
    told = sum(text.tokens for text in found[0])
    even = sum(text.even for text in found[0]) / told
    corpus_facts = {"name": corpus.name, "fingerprint": corpus.fingerprint, "sentences": len(found[0]), "tokens": told}
    return TokenMixing(
        axes=axes,
        values=values,
        null=np.repeat(np.asarray(even)[:, None], values.shape[1], axis=1),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=Provenance(
            "identifiability.mixing",
            {"sentences": sentences, "probes": probes, "random": len(found) > 1},
            ({"name": model.name, "fingerprint": model.fingerprint},),
            corpus_facts,
            seed=seed,
        ),
        tables=tables,
    )


def _texts(
    model: Model,
    sentences: Sequence[Sentence],
    probes: Probes,
    seed: int,
    shown: Progress,
    lost: dict[str, int],
) -> Iterator[_Text]:
    """Every text that fits into the model and has two tokens or more; `lost` counts the others by their fault."""
    for number, sentence in enumerate(sentences):
        batch = model.tokenize([sentence.text], truncate=True)
        length = int(batch.mask.sum())
        counted = (~batch.special[0] & batch.mask[0].bool()).cpu().numpy()
        fault = "one token alone" if length < 2 or not counted.any() else None
        if length == model.limit and _too_long(model, sentence.text):
            fault = f"more than the {model.limit} tokens that the model reads"
        if fault is None:
            told = reactions(model, batch, probes=probes, seed=seed + number)
            yield _measured(sentence.document, told, counted, causal=model.causal)
        else:
            lost[fault] = lost.get(fault, 0) + 1
        shown.advance(1)


def _too_long(model: Model, text: str) -> bool:
    """Whether a text has more tokens than the model takes."""
    try:
        model.tokenize([text])
    except TextError:
        return True
    return False


def _left_out(lost: Mapping[str, int], networks: int) -> list[str]:
    """A sentence on the texts of each fault; every network lost the same ones."""
    return [
        f"{count // networks} of the texts {'has' if count == networks else 'have'} {fault}, and "
        f"{'is' if count == networks else 'are'} left out."
        for fault, count in lost.items()
    ]


def _measured(document: str, told: Reactions, counted: Array, *, causal: bool) -> _Text:
    """The sums of one text."""
    shares = told.shares.numpy()  # [layer, token, input]
    size = shares.shape[1]
    sees = np.tri(size) if causal else np.ones((size, size))
    away = np.arange(size)[None, :] - np.arange(size)[:, None]  # input − token
    own, seen = shares[:, counted], sees[counted].sum(1)
    alike = (sees / sees.sum(1, keepdims=True))[None, counted]
    equal = _sums(alike, counted, away[counted])[:, 0]
    equal[list(MEASURES).index("not largest")] = (1 - 1 / seen).sum()  # of equal ones, any may be the largest
    bins = np.clip(away[counted], -OFFSETS - 1, OFFSETS + 1) + OFFSETS + 1
    profile = np.stack([np.bincount(bins.ravel(), layer.ravel(), 2 * OFFSETS + 3) for layer in (*own, *alike)])
    error = told.error.numpy()[1:, counted]
    weights = own[1:]
    halves = [_not_largest(shares_of(half).numpy()[:, counted], counted) for half in told.halves]
    return _Text(
        document,
        int(counted.sum()),
        _sums(own, counted, away[counted]),
        equal,
        profile,
        np.mean(halves, axis=0),
        float((error * weights).sum() / max(weights.sum(), 1e-300)),
    )


def _sums(shares: Array, counted: Array, away: Array) -> Array:
    """Every measure summed over the counted tokens, [measure, layer], of shares [layer, counted token, input]."""
    token = np.flatnonzero(counted)
    row = np.arange(len(token))
    own = shares[:, row, token]
    others = np.array(shares)
    others[:, row, token] = 0
    rest = others.sum(-1)
    near = (others * (np.abs(away) <= NEAR)).sum(-1)
    part = np.divide(near, rest, out=np.zeros_like(near), where=rest > 0)
    not_largest = _not_largest(shares, counted)
    return np.stack([own.sum(1), not_largest, (shares * np.abs(away)).sum((1, 2)), part.sum(1)])


def _not_largest(shares: Array, counted: Array) -> Array:
    """How many counted tokens have a larger contributor than themselves, [layer]."""
    token = np.flatnonzero(counted)
    own = shares[:, np.arange(len(token)), token]
    return (shares.max(-1) > own).sum(1)


def _over(texts: Sequence[_Text], sums: Sequence[Array]) -> tuple[Array, Interval]:
    """Means over tokens of every text's sums, and their interval over documents, which weigh as their tokens."""
    sizes = np.array([text.tokens for text in texts], dtype=float)
    held = np.stack([np.append(own.ravel(), size) for own, size in zip(sums, sizes, strict=True)])
    shape = sums[0].shape

    def means(part: Array) -> Array:
        whole = part.sum(axis=0)
        return (whole[:-1] / whole[-1]).reshape(shape)

    return over_documents(held, [text.document for text in texts], means, sizes=sizes.tolist())


def _ends(interval: Interval) -> dict[str, Array]:
    return {} if interval.low is None or interval.high is None else {"low": interval.low, "high": interval.high}


def _tables(texts: Sequence[_Text], axes: Mapping[str, tuple[Coordinate, ...]]) -> dict[str, Table]:
    """Shares by offset with their intervals, every text, and what half the directions give."""
    each = np.stack([text.told / text.tokens for text in texts])
    half, _ = _over(texts, [text.half for text in texts])
    return {
        **_profile(texts, axes["layer"]),
        "texts": _listed(texts),
        "by text": Table({"text": tuple(range(1, len(each) + 1)), **axes}, {"value": each}),
        "directions": Table({"layer": axes["layer"]}, {"not largest by half": half}),
    }


def _profile(texts: Sequence[_Text], layers: tuple[Coordinate, ...]) -> dict[str, Table]:
    """Share by offset (input − token) and layer with its interval, and that of equal shares; and without each group."""
    near = range(-OFFSETS, OFFSETS + 1)
    names = (f"< {near[0]}", *near, f"> {near[-1]}")
    share, interval = _over(texts, [text.offsets.T for text in texts])
    ends = {name: end[:, :-1] for name, end in _ends(interval).items()}
    even = np.repeat(share[:, -1:], len(layers), axis=1)
    axes: dict[str, tuple[Coordinate, ...]] = {"offset": names, "layer": layers}
    found = {"offsets": Table(axes, {"share": share[:, :-1], **ends, "equal shares": even})}
    group, tokens = document_groups([text.document for text in texts]), np.array([text.tokens for text in texts])
    if not ends:
        return found
    numbers, sums = tuple(dict.fromkeys(group.tolist())), np.stack([text.offsets[:-1].T for text in texts])
    without = np.stack([sums[group != number].sum(0) / tokens[group != number].sum() for number in numbers])
    sizes = np.array([tokens[group == number].sum() for number in numbers])[:, None, None]
    columns = {"without": without, "tokens": np.broadcast_to(sizes, without.shape)}
    return found | {"groups": Table({"group": numbers, **axes}, columns)}


def _listed(texts: Sequence[_Text]) -> Table:
    """Every text: its document, its counted tokens, and the standard error of its norms as a share (0: exact)."""
    return Table.of_rows(
        {
            "document": [text.document for text in texts],
            "tokens": [text.tokens for text in texts],
            "error": [text.error for text in texts],
        }
    )
