"""Token identifiability: whether a hidden state still tells which token of the text it belongs to, layer by layer."""

from __future__ import annotations

import json
import warnings
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
from pellucid.identifiability.notes import IdentifiabilityWarning, notes_table
from pellucid.identifiability.token_maps import few_tokens, fit_linear, fit_mlp
from pellucid.identifiability.token_split import SHARE, Split, split
from pellucid.model import Model
from pellucid.model.twin import twin_of
from pellucid.results import Array, Coordinate, Result, ResultError, Table
from pellucid.uncertainty import Interval, jackknife, over_groups

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus

PHRASES = {
    "identity": "the state as it is",
    "linear": "a linear map to the input, fitted by least squares on other documents",
    "mlp": "a perceptron with one hidden layer, trained on other documents",
}
SAMPLE = 8192
"""Tokens that a perceptron is trained on."""


@dataclass(frozen=True, eq=False)
class TokenIdentifiability(Result):
    """The share of tokens that are found again from their states, [measure, layer].

    A measure is a map and a distance, such as `linear cosine`. Tables: `labels` and `frequencies` (the same by the
    word's label and by how often the whole corpus has it, and how many groups of documents have such words), `label
    intervals` and `frequency intervals` (of those that two or more groups have), `random model` (of a randomly
    initialised model), `groups` (the shares without each group of documents, from which intervals of differences can be
    had), `notes` (how the corpus was split, and what was cut).
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

    Maps are fitted on four fifths of the documents (of the sentences, where there are fewer than five documents):
    `linear` from moments of one pass, `mlp` on a sample of tokens. The rest is asked about. Texts over the model's
    limit are cut. The input is what enters the first block, after any norm of the embedding. Chance is the share
    of a text's places that hold the token's id; with `random`, a randomly initialised model stands beside, with maps of
    its own. Intervals are over groups of documents, with the maps as they are. `layers` are those whose states are
    asked about (default: all but `to`); perceptrons of many wide ones are slow.
    """
    names = tuple(dict.fromkeys(maps))
    check_names(names)
    sites = _looked_at(model, to, layers)
    parts = split(corpus)
    asking = _Asking(sites, parts, names, label, seed, progress)
    found, view, notes = asking.of(model)
    values = view.rates
    interval = over_groups(view, lambda part: part.rates, lambda part: part.n)
    depths = tuple(int(key.rpartition(".")[2]) for key in view.keys)
    axes: dict[str, tuple[Coordinate, ...]] = {"measure": view.measures, "layer": depths}
    tables = _by(view, "labels", "label", axes) | _by(view, "frequencies", "frequency", axes) | _without(view, axes)
    twin = twin_of(model, seed) if random else None
    if twin is not None:
        tables["random model"] = Table(axes, {"value": asking.of(twin)[1].rates})
    tables |= notes_table([_told(parts), *notes])
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
                "split": parts.by,
            },
            seed=seed,
        ),
        tables=tables,
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


def _told(parts: Split) -> str:
    """How the corpus was split."""
    line = f"Maps were fitted on four fifths of the {parts.by}, and the others asked about."
    if parts.by == "documents":
        return line
    return f"{line} There are fewer than {SHARE} documents, so that sentences of one stand on both sides."


@dataclass(frozen=True, eq=False)
class _Asking:
    """What is asked of a model: the sites, of which the first is mapped to, both parts of the corpus, and the maps."""

    sites: Sequence[str]
    parts: Split
    names: tuple[str, ...]
    label: str
    seed: int
    progress: bool | None

    def of(self, model: Model) -> tuple[Found, NearestView, list[str]]:
        """What maps fitted on one part of the corpus find in the other, and what is to be said of it."""
        target, every = self.sites[0], ",".join(self.sites)
        with TemporaryDirectory() as room:
            file, notes = None, list[str]()
            if set(self.names) - {"identity"}:
                arrays, notes = self._fitted(model)
                file = str(Path(room) / "maps.safetensors")
                _write(arrays, file)
            counts = Path(room) / "counts.json"
            counts.write_text(json.dumps(self.parts.counts, ensure_ascii=False), encoding="utf-8")
            nearest = NearestTokens(every, to=target, names=self.names, maps=file, counts=str(counts), label=self.label)
            found = sweep(model, self.parts.ask, nearest, pooling="all", long="truncate", progress=self.progress)
            return found, found[NearestTokens], [*notes, *(f"Asked about: {line}" for line in found.about["notes"])]

    def _fitted(self, model: Model) -> tuple[dict[str, Array], list[str]]:
        """The maps to the first site, fitted on one part of the corpus, and what is to be said of them."""
        target, keys, every = self.sites[0], self.sites[1:], ",".join(self.sites)
        mlp = "mlp" in self.names
        drawn = [TokenSample(every, size=SAMPLE, seed=self.seed)] if mlp else []
        wanted = [Moments(every, pairs=((target, every),)), *drawn]
        fitted = sweep(model, self.parts.learn, wanted, pooling="all", long="truncate", progress=self.progress)
        moments = fitted[Moments]
        arrays = fit_linear(moments, keys, target)
        told = [few_tokens("The linear map", moments.n, model.size(keys[0])[-1])] if "linear" in self.names else []
        if mlp:
            sample = fitted[TokenSample]
            arrays |= fit_mlp(sample, keys, target, arrays, seed=self.seed)
            told.append(few_tokens("The perceptron", sample.n, model.size(keys[0])[-1], most=SAMPLE))
        few = [line for line in told if line is not None]
        for line in few:
            warnings.warn(line, IdentifiabilityWarning, stacklevel=4)
        return arrays, [*few, *(f"Fitted on: {line}" for line in fitted.about["notes"])]


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


def _by(view: NearestView, name: str, kind: str, axes: Mapping[str, tuple[Coordinate, ...]]) -> dict[str, Table]:
    """Rates by class of tokens, where there are any, and the intervals of those that several groups have."""
    classes = tuple(sorted(view.classes(kind)))
    if not classes:
        return {}
    told = [view.in_class(kind, value) for value in classes]
    shape = (len(classes), len(axes["measure"]), len(axes["layer"]))
    ends = {value: _interval(view, kind, value) for value in classes}
    sizes = np.array([[count, ends[value][1]] for value, (_, _, count) in zip(classes, told, strict=True)])
    columns = {
        "rate": np.stack([rates for rates, _, _ in told]),
        "chance": np.broadcast_to(np.stack([chance for _, chance, _ in told])[:, None], shape),
        "tokens": np.broadcast_to(sizes[:, :1, None], shape),
        "groups": np.broadcast_to(sizes[:, 1:, None], shape),
    }
    tables = {name: Table({kind: classes, **axes}, columns)}
    known = {value: found for value, (found, _) in ends.items() if found.low is not None and found.high is not None}
    if known:
        low, high = (np.stack([getattr(each, end) for each in known.values()]) for end in ("low", "high"))
        both = {"low": np.clip(low, 0, 1), "high": np.clip(high, 0, 1)}
        tables[f"{kind} intervals"] = Table({kind: tuple(known), **axes}, both)
    return tables


def _interval(view: NearestView, kind: str, value: str) -> tuple[Interval, int]:
    """The interval of the rates of a class over the groups of documents that have it, and how many do."""
    sizes = {number: view.group(number).size_of(kind, value) for number in view.groups}
    have = {number: float(size) for number, size in sizes.items() if size}
    several = len(have) > 1
    without = [view.without(number).in_class(kind, value)[0] if several else np.empty(0) for number in have]
    return jackknife(view.in_class(kind, value)[0], without, list(have.values())), len(have)
