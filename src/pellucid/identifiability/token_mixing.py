"""Token mixing: how much of its own input a token's state still holds at every layer, and where the rest comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.collect.progress import Progress
from pellucid.errors import ModelError
from pellucid.identifiability.jacobians import reactions, stream
from pellucid.model import Model
from pellucid.model.twin import twin_of
from pellucid.results import Array, Coordinate, Provenance, Result, ResultError, Table
from pellucid.uncertainty import over_documents

if TYPE_CHECKING:
    from pellucid.corpus import Corpus, Sentence
    from pellucid.identifiability.jacobians import Reactions

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
EXACT = 1024
"""Directions (tokens × width) up to which norms are exact unless probes are asked for."""
PROBES = 16
"""Random directions per token where norms are estimated."""


@dataclass(frozen=True, eq=False)
class TokenMixing(Result):
    """How mixed the states of every layer are, [measure, layer]; layer 0 is the input.

    Tables: `offsets` (share of what stands so many tokens before or after, by layer, beside equal shares), `random
    model` (the same measures of a randomly initialised model), `texts` (document and tokens of every text, and the
    error of its norms), `by text` (every measure of every text).
    """

    kind: ClassVar[str] = "identifiability.mixing"
    title: ClassVar[str] = "How far tokens mix"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "equal shares of all tokens that a state can react to"


@dataclass(frozen=True, eq=False)
class _Text:
    """One text's sums over its tokens: [measure, layer], of equal shares [measure], and by offset [layer, offset], the
    last row of equal shares."""

    document: str
    tokens: int
    told: Array
    even: Array
    offsets: Array
    error: float


def mixing(
    model: Model,
    corpus: Corpus,
    *,
    sentences: int = 40,
    probes: int | None = None,
    random: bool = True,
    seed: int = 0,
    progress: bool | None = None,
) -> TokenMixing:
    """Hidden token attribution over the first `sentences` of a corpus (Brunner et al. 2020), layer by layer.

    What input token i contributes to the state of token j is ‖∂e_j/∂x_i‖_F over its sum over all i. Norms are exact
    where tokens × width are few, and else estimated from random directions, 16 per token; `probes` asks for another
    number. Special tokens contribute, and are not counted themselves. With `random`, a randomly initialised model of
    the same shape stands beside.
    """
    if sentences < 1:
        raise ModelError(f"sentences={sentences} leaves nothing to look at; give 1 or more.")
    chosen = list(corpus.take(sentences))
    twin = twin_of(model, seed) if random else None
    networks = [model] if twin is None else [model, twin]
    with Progress(progress) as shown:
        shown.begin("carrying derivatives", len(chosen) * len(networks))
        found = [list(_texts(network, chosen, probes, seed, shown)) for network in networks]
    if not found[0]:
        raise ResultError(f"No text of {corpus.name!r} has two tokens and fits into the model, so nothing can mix.")
    values, interval = over_documents(_stacked(found[0]), [text.document for text in found[0]], _means)
    layers = tuple(range(values.shape[1]))
    axes: dict[str, tuple[Coordinate, ...]] = {"measure": tuple(MEASURES), "layer": layers}
    each = np.stack([text.told / text.tokens for text in found[0]])
    tables = {
        "offsets": _profile(found[0], layers),
        "texts": _listed(found[0]),
        "by text": Table({"text": tuple(range(1, len(each) + 1)), **axes}, {"value": each}),
    }
    if len(found) > 1:
        tables["random model"] = Table(axes, {"value": _means(_stacked(found[1]))})
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
    model: Model, sentences: Sequence[Sentence], probes: int | None, seed: int, shown: Progress
) -> Iterator[_Text]:
    """Every text that fits into the model and has two tokens or more."""
    width = model.size(stream(model)[0])[-1]
    for number, sentence in enumerate(sentences):
        batch = model.tokenize([sentence.text])
        length = int(batch.mask.sum())
        counted = (~batch.special[0] & batch.mask[0].bool()).cpu().numpy()
        if length > 1 and counted.any() and (model.limit is None or length <= model.limit):
            few = probes is None and length * width <= EXACT
            asked = None if few else (PROBES if probes is None else probes)
            told = reactions(model, batch, probes=asked, seed=seed + number)
            yield _measured(sentence.document, told, counted, causal=model.causal)
        shown.advance(1)


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
    return _Text(
        document,
        int(counted.sum()),
        _sums(own, counted, away[counted]),
        equal,
        profile,
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
    not_largest = others.max(-1) > own
    return np.stack([own.sum(1), not_largest.sum(1), (shares * np.abs(away)).sum((1, 2)), part.sum(1)])


def _stacked(texts: Sequence[_Text]) -> Array:
    """Sums and the number of tokens of every text, [text, measure + 1, layer]."""
    return np.stack([np.concatenate([text.told, np.full((1, text.told.shape[1]), text.tokens)]) for text in texts])


def _means(part: Array) -> Array:
    whole = part.sum(axis=0)
    return whole[:-1] / whole[-1]


def _profile(texts: Sequence[_Text], layers: tuple[int, ...]) -> Table:
    """Share by offset (input − token) and layer, and that of equal shares."""
    tokens = sum(text.tokens for text in texts)
    near = range(-OFFSETS, OFFSETS + 1)
    names = (f"< {near[0]}", *near, f"> {near[-1]}")
    whole: Any = sum(text.offsets for text in texts)
    share = whole.T / tokens
    even = np.repeat(share[:, -1:], len(layers), axis=1)
    return Table({"offset": names, "layer": layers}, {"share": share[:, :-1], "equal shares": even})


def _listed(texts: Sequence[_Text]) -> Table:
    """Every text: its document, its counted tokens, and the standard error of its norms as a share (0: exact)."""
    return Table.of_rows(
        {
            "document": [text.document for text in texts],
            "tokens": [text.tokens for text in texts],
            "error": [text.error for text in texts],
        }
    )
