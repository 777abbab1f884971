"""Token identifiability: whether a hidden state still tells which token of the text it belongs to, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from pellucid.collect.moments import Moments
from pellucid.collect.nearest_tokens import NearestTokens, NearestView, check_names
from pellucid.collect.sample import TokenSample
from pellucid.collect.sweep import sweep
from pellucid.identifiability.jacobians import stream
from pellucid.identifiability.token_maps import fit_linear, fit_mlp
from pellucid.model import Model
from pellucid.model.twin import twin_of
from pellucid.results import Array, Coordinate, Result, ResultError, Table
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus, Sentence

PHRASES = {
    "identity": "the state as it is",
    "linear": "a linear map to the input, fitted by least squares on other documents",
    "mlp": "a perceptron with one hidden layer, trained on other documents",
}
SHARE = 5
"""Every so many-th document is asked about, the others fit the maps."""
SAMPLE = 8192
"""Tokens that a perceptron is trained on."""


@dataclass(frozen=True, eq=False)
class TokenIdentifiability(Result):
    """The share of tokens that are found again from their states, [measure, layer].

    A measure is a map and a distance, such as `linear cosine`. Tables: `labels` and `frequencies` (the same by the
    word's label and by how often the corpus has it), `random model` (of a randomly initialised model), `groups` (the
    shares without each group of documents, from which intervals of differences can be had).
    """

    kind: ClassVar[str] = "identifiability.tokens"
    title: ClassVar[str] = "Whether tokens can be told from their states"
    chance: ClassVar[str] = "a random place of the text"

    @property
    def measures(self) -> Mapping[str, str]:
        return {
            str(name): f"nearest by {str(name).split()[1]}: {PHRASES[str(name).split()[0]]}"
            for name in self.axes["measure"]
        }


def tokens(
    model: Model,
    corpus: Corpus,
    *,
    maps: Sequence[str] = ("identity", "linear", "mlp"),
    to: int = 0,
    layers: Sequence[int] | None = None,
    label: str = "upos",
    random: bool = True,
    seed: int = 0,
    progress: bool | None = None,
) -> TokenIdentifiability:
    """How many tokens are found again: the state at a layer, mapped to layer `to` (0: the input), is nearest to the
    state there of a token with the same id, among all tokens of its text (Brunner et al. 2020).

    Maps are fitted on four fifths of the documents: `linear` from moments of one pass, `mlp` on a sample of tokens. The
    rest is asked about. The input is what enters the first block, after any norm of the embedding. Chance is the share
    of a text's places that hold the token's id; with `random`, a randomly initialised model stands beside, with maps of
    its own. Intervals are over groups of documents, with the maps as they are. `layers` are those whose states are
    asked about (default: all but `to`); perceptrons of many wide ones are slow.
    """
    names = tuple(dict.fromkeys(maps))
    check_names(names)
    learn, ask = _parts(corpus)
    sites = _looked_at(model, to, layers)
    found, view = _asked(model, sites, learn, ask, names, label, seed, progress)
    values = view.rates
    interval = over_groups(view, lambda part: part.rates, lambda part: part.n)
    depths = tuple(int(key.rpartition(".")[2]) for key in view.keys)
    axes: dict[str, tuple[Coordinate, ...]] = {"measure": view.measures, "layer": depths}
    tables = {
        of: made for of, kind in (("labels", "label"), ("frequencies", "frequency")) if (made := _by(view, kind, axes))
    }
    tables |= _without(view, axes)
    twin = twin_of(model, seed) if random else None
    if twin is not None:
        _, drawn = _asked(twin, sites, learn, ask, names, label, seed, progress)
        tables["random model"] = Table(axes, {"value": drawn.rates})
    return TokenIdentifiability(
        axes=axes,
        values=values,
        null=np.broadcast_to(view.chance, values.shape),
        low=None if interval.low is None else np.clip(interval.low, 0, 1),
        high=None if interval.high is None else np.clip(interval.high, 0, 1),
        resampled=interval.resampled,
        provenance=replace(
            found.provenance("identifiability.tokens"),
            arguments={
                "maps": list(names),
                "to": to,
                "layers": None if layers is None else list(depths),
                "label": label,
                "random": twin is not None,
            },
            seed=seed,
        ),
        tables=tables,
    )


def _parts(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """A corpus in two parts by documents: to fit maps, and to ask about."""
    documents: dict[str, int] = {}
    for sentence in corpus:
        documents.setdefault(sentence.document, len(documents))
    if len(documents) < SHARE:
        raise ResultError(
            f"{corpus.name} has {len(documents)} documents, too few to hold some out; give one with {SHARE} or more."
        )

    def asked(sentence: Sentence) -> bool:
        return documents[sentence.document] % SHARE == SHARE - 1

    return (
        corpus.filter(lambda sentence: not asked(sentence), name=f"{corpus.name}, four fifths"),
        corpus.filter(asked, name=f"{corpus.name}, one fifth"),
    )


def _looked_at(model: Model, to: int, layers: Sequence[int] | None) -> list[str]:
    """The names of the sites: first that of layer `to`, then the others that were asked for, in order."""
    by_layer = {site.layer: str(site) for site in stream(model)}
    if to not in by_layer:
        raise ResultError(f"There is no layer {to} to map states to; {model.name!r} has 0 to {len(by_layer) - 1}.")
    unknown = [layer for layer in layers or () if layer not in by_layer]
    if unknown:
        raise ResultError(f"There is no layer {unknown[0]} to look at; {model.name!r} has 0 to {len(by_layer) - 1}.")
    wanted = [site for layer, site in by_layer.items() if layer != to and (layers is None or layer in layers)]
    if not wanted:
        raise ResultError(f"layers={list(layers or ())} leaves nothing to map to layer {to}; give others than that.")
    return [by_layer[to], *wanted]


def _asked(
    model: Model,
    sites: Sequence[str],
    learn: Corpus,
    ask: Corpus,
    names: tuple[str, ...],
    label: str,
    seed: int,
    progress: bool | None,
) -> tuple[Found, NearestView]:
    """The maps to the first site, fitted on one part of the corpus, and what they find in the other."""
    target, keys, every = sites[0], sites[1:], ",".join(sites)
    with TemporaryDirectory() as room:
        file = None
        if set(names) - {"identity"}:
            wanted = [Moments(every, pairs=((target, every),))]
            drawn = [TokenSample(every, size=SAMPLE, seed=seed)] if "mlp" in names else []
            fitted = sweep(model, learn, [*wanted, *drawn], pooling="all", long="truncate", progress=progress)
            moments = fitted[Moments]
            arrays = fit_linear(moments, keys, target)
            if "mlp" in names:
                arrays |= fit_mlp(fitted[TokenSample], keys, target, arrays, seed=seed)
            file = str(Path(room) / "maps.safetensors")
            _write(arrays, file)
        nearest = NearestTokens(every, to=target, names=names, maps=file, label=label)
        found = sweep(model, ask, nearest, pooling="all", long="truncate", progress=progress)
        return found, found[NearestTokens]


def _write(arrays: Mapping[str, Array], file: str) -> None:
    from safetensors.torch import save_file

    save_file(
        {name: torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)) for name, array in arrays.items()}, file
    )


def _without(view: NearestView, axes: Mapping[str, tuple[Coordinate, ...]]) -> dict[str, Table]:
    """The rates without each group of documents, where there are several, and the tokens of the group."""
    sizes = {number: size for number in view.groups if (size := view.group(number).n)}
    if len(sizes) < 2:
        return {}
    rates = np.stack([view.without(number).rates for number in sizes])
    tokens = np.broadcast_to(np.array(list(sizes.values()))[:, None, None], rates.shape)
    return {"groups": Table({"group": tuple(sizes), **axes}, {"without": rates, "tokens": tokens})}


def _by(view: NearestView, kind: str, axes: Mapping[str, tuple[Coordinate, ...]]) -> Table | None:
    """Rates by class of tokens, where there are any."""
    classes = tuple(sorted(view.classes(kind)))
    if not classes:
        return None
    told = [view.in_class(kind, value) for value in classes]
    shape = (len(classes), len(axes["measure"]), len(axes["layer"]))
    columns = {
        "rate": np.stack([rates for rates, _, _ in told]),
        "chance": np.broadcast_to(np.stack([chance for _, chance, _ in told])[:, None], shape),
        "tokens": np.broadcast_to(np.array([count for _, _, count in told])[:, None, None], shape),
    }
    return Table({kind: classes, **axes}, columns)
