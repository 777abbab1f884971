"""The attention of one text: what is in it, and the passes that make its chunks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.collect.effective_weights import EFFECTIVE, RAW, Meeting, check_weights, normalised
from pellucid.collect.null_space import check_numbers, effective
from pellucid.errors import PellucidError, SiteError, listing
from pellucid.model.sites import Site, describe
from pellucid.views.interactive import statistics
from pellucid.views.interactive.payload import Chunk, deflated, numbers, strip_rows
from pellucid.views.interactive.reading import Reading
from pellucid.views.interactive.tokens import TokenList
from pellucid.views.interactive.vectors import Vectors
from pellucid.views.interactive.view import shown_name
from pellucid.views.interactive.weights import checked, coded

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid.model import Model

ATTENTION, ABSOLUTE, NEGATIVE = "attention", "effective", "negative"
ABOUT = {ATTENTION: "Attention weights: how much each query takes from each key; a row sums to 1."}
EFFECTIVE_ABOUT = {
    ABSOLUTE: "Effective attention, which gives the same output without the part that has no effect: absolute values. "
    "Rows do not sum to 1.",
    NEGATIVE: "Where effective attention is below zero: absolute values; positive ones are left out.",
}
SIGNED = (
    "Weights are effective attention: what is left of attention without the part that has no effect on a head's "
    "output. It has signs; absolute values are drawn, and the weights called “negative” show what is below "
    "zero. Its statistics are of absolute values with rows that sum to one."
)
THUMB = 48
LARGEST = 144 * 1500**2
"""Weights that are held in a page or a notebook; more are made when they are looked at."""

_STACKS: dict[str | None, tuple[str, str, str]] = {
    None: ("self", "text", "text"),
    "encoder": ("encoder", "source", "source"),
    "decoder": ("decoder", "target", "target"),
    "cross": ("cross", "target", "source"),
}
"""Stack of a site → name of the block, token list of its queries and of its keys."""


@dataclass(frozen=True)
class Block:
    """One grid of heads: where its patterns are, whose tokens they join, and how they are stored."""

    name: str
    sites: Mapping[int, Site]
    heads: Mapping[int, int]
    queries: str
    keys: str
    causal: bool
    strip: int
    thumb: int
    quality: float
    weightings: Mapping[str, str]

    @property
    def layers(self) -> list[int]:
        """Numbers of its layers."""
        return list(self.sites)

    @property
    def own(self) -> bool:
        """Whether queries and keys are the same tokens."""
        return self.queries == self.keys

    def told(self, vectors: dict[str, Any] | None, more: Mapping[str, str]) -> dict[str, Any]:
        """The block as the header holds it; `more` are statistics beside the usual ones."""
        usual = {name: statistics.MEASURES[name] for name in statistics.names(own=self.own)}
        return {
            "name": self.name,
            "causal": self.causal,
            "queries": self.queries,
            "keys": self.keys,
            "layers": self.layers,
            "heads": [self.heads[layer] for layer in self.layers],
            "weightings": dict(self.weightings),
            "strip": self.strip,
            "quality": self.quality,
            "thumb": self.thumb,
            "statistics": {**usual, **more},
            "vectors": vectors,
        }


@dataclass(frozen=True)
class Built:
    """A scene's panel for the header, its chunks, and notes on both."""

    panel: dict[str, Any]
    chunks: dict[str, Chunk]
    notes: list[str]


Beside = Callable[[Block, int, "Tensor"], None]
"""What else looks at every layer's weights [H, queries, keys] as they pass."""

More = Mapping[str, tuple[str, list[Any]]]
"""Further statistics of a block: name → sentence, and values [layers][H]."""


class Scene:
    """The attention of one model on one text: blocks of heads, and the passes that read them."""

    def __init__(
        self,
        model: Model,
        reading: Reading,
        *,
        layers: Iterable[int] | None,
        quality: float,
        panel: int = 0,
        weights: str = RAW,
    ) -> None:
        check_weights(weights)
        self.model, self.reading, self.panel, self.effective = model, reading, panel, weights == EFFECTIVE
        about = EFFECTIVE_ABOUT if self.effective else ABOUT
        self.blocks = {block.name: block for block in _blocks(model, reading.tokens, layers, quality, about)}
        if self.effective:
            _check_values(model, [site for block in self.blocks.values() for site in block.sites.values()])

    @property
    def weights(self) -> int:
        """Weights of all heads."""
        return sum(
            len(block.weightings)
            * sum(block.heads.values())
            * len(self.tokens(block)[0])
            * len(self.tokens(block)[1])
            // (1 + block.causal)
            for block in self.blocks.values()
        )

    @property
    def large(self) -> bool:
        """Whether its weights are too many to be held."""
        return self.weights > LARGEST

    def tokens(self, block: Block) -> tuple[TokenList, TokenList]:
        """Tokens of a block's queries and keys."""
        return self.reading.tokens[block.queries], self.reading.tokens[block.keys]

    def look(self, *, vectors: bool = False, beside: Beside | None = None) -> Seen:
        """One pass over the text: thumbnails, statistics and, unless they are too many, all weights.

        With `vectors`, queries and keys too. `beside` sees every layer's weights as well.
        """
        return Seen(self, keep=not self.large, vectors=Vectors(self) if vectors else None, beside=beside)

    def build(self, seen: Seen, more: Mapping[str, More] | None = None) -> Built:
        """The panel and the chunks of a pass; `more` are further statistics of blocks."""
        sunk = self._sinks(seen.facts)
        chunks: dict[str, Chunk] = {}
        told: list[dict[str, Any]] = []
        for name, block in self.blocks.items():
            extra = (more or {}).get(name, {})
            own = statistics.table(seen.facts[name], self.tokens(block)[1], sunk[block.keys], own=block.own)
            added = [_filled(block, values) for _, values in extra.values()]
            for weighting in block.weightings:
                chunks[f"t/{self.panel}/{name}/{weighting}"] = deflated(seen.thumbs[name, weighting].tobytes())
            chunks[f"s/{self.panel}/{name}"] = numbers(np.concatenate([own, *added]), "<f4")
            vectors = None if seen.vectors is None else seen.vectors.told(block)
            told.append(block.told(vectors, {name: about for name, (about, _) in extra.items()}))
        chunks.update({name: seen.chunks[name] for name in sorted(seen.chunks, key=self._order)})
        notes = [*self.reading.notes, *([SIGNED] if self.effective else [])]
        notes += [*([] if seen.vectors is None else seen.vectors.notes()), statistics.SINKS]
        panel = {
            "name": shown_name(self.model),
            "model": self.model.name,
            "fingerprint": self.model.fingerprint,
            "tokens": {name: each.told(sunk.get(name, ())) for name, each in self.reading.tokens.items()},
            "blocks": told,
        }
        return Built(panel, chunks, notes)

    def layer_chunks(self, block: Block, layer: int) -> dict[str, Chunk]:
        """All weights of one layer, from a pass of its own."""
        return Seen(self, keep=True, only=(block, layer)).chunks

    def exact(self, block: Block, layer: int, rows: slice, weighting: str) -> Tensor:
        """The model's own weights of some query rows of a layer, [H, rows, keys], from a pass of its own."""

        found: list[Tensor] = []
        waiting = Meeting([str(block.sites[layer])])

        def taken(site: Site, tensor: Tensor) -> None:
            drawn = self.drawn(site, tensor, waiting, causal=block.causal)
            if drawn is not None:
                found.append(drawn[1][weighting][:, rows].float().cpu().clone())
                raise _Enough

        with suppress(_Enough):
            self.model.run(self.reading.batch, self.read([block.sites[layer]]), reduce=taken, logits=False)
        return found[0]

    def read(self, sites: Iterable[Site]) -> list[Site]:
        """The sites that weights at some patterns are made of."""
        return [each for site in sites for each in ((site, site.beside("value")) if self.effective else (site,))]

    def drawn(
        self, site: Site, tensor: Tensor, waiting: Meeting, *, causal: bool
    ) -> tuple[Tensor, dict[str, Tensor]] | None:
        """What is measured of a layer's weights [H, queries, keys], and what is drawn of them by weighting; nothing as
        long as its values have not come."""
        if not self.effective:
            weights = checked(tensor, str(site), causal=causal)
            return weights, {ATTENTION: weights}
        met = waiting.met(str(site), tensor)
        if met is None:
            return None
        name, pattern, values = met
        weights = checked(pattern, name, causal=causal)
        check_numbers(weights, values[0], name)
        signed = effective(weights, values[0]).float()
        return normalised(signed), {ABSOLUTE: signed.abs(), NEGATIVE: (-signed).clamp(min=0)}

    def _sinks(self, facts: Mapping[str, list[statistics.LayerFacts]]) -> dict[str, list[int]]:
        """Sinks of every token list, from the blocks whose keys it is."""
        found: dict[str, list[int]] = {name: [] for name in self.reading.tokens}
        for block in self.blocks.values():
            queries, keys = self.tokens(block)
            chance = statistics.uniform(len(queries), len(keys), causal=block.causal)
            sunk = statistics.sinks([each.received for each in facts[block.name]], chance)
            found[block.keys] = sorted({*found[block.keys], *sunk})
        return found

    def _order(self, name: str) -> tuple[int, int, int, int, int]:
        """Where a chunk of weights or vectors stands in a file: by block, layer, head and strip."""
        parts = name.split("/")
        numbers_ = [int(part) for part in parts[4 if parts[0] == "a" else 3 :]]
        block = list(self.blocks).index(parts[2])
        return ("aqk".index(parts[0]) > 0, block, *[*numbers_, 0, 0, 0][:3])  # pyright: ignore[reportReturnType]


class _Enough(Exception):
    """Ends a pass where the one layer asked for has passed: what comes after it need not be computed."""


class Seen:
    """One forward pass, whose patterns are coded, measured and deflated as they come and never held together."""

    def __init__(
        self,
        scene: Scene,
        *,
        keep: bool,
        vectors: Vectors | None = None,
        beside: Beside | None = None,
        only: tuple[Block, int] | None = None,
    ) -> None:
        self.scene, self.keep, self.vectors, self.beside, self.only = scene, keep, vectors, beside, only
        self.chunks: dict[str, Chunk] = {}
        self.thumbs: dict[tuple[str, str], Any] = {}
        self._measured: dict[tuple[str, int], statistics.LayerFacts] = {}
        self._gauges: dict[str, statistics.Gauge] = {}
        self._places: dict[Site, tuple[Block, int]] = {}
        if only is not None:
            self._places[only[0].sites[only[1]]] = only
        for block in scene.blocks.values() if only is None else ():
            self._places.update({site: (block, layer) for layer, site in block.sites.items()})
            self._gauges[block.name] = statistics.Gauge(*scene.tokens(block), causal=block.causal)
            shape = (len(block.layers), max(block.heads.values()), block.thumb, block.thumb)
            self.thumbs.update({(block.name, each): np.zeros(shape, np.uint8) for each in block.weightings})
        self._waiting = Meeting([str(site) for site in self._places])
        self._run()

    @property
    def facts(self) -> dict[str, list[statistics.LayerFacts]]:
        """What was measured of every layer, by block."""
        blocks = self.scene.blocks
        return {name: [self._measured[name, layer] for layer in block.layers] for name, block in blocks.items()}

    def _run(self) -> None:
        read = self.scene.read(self._places)
        sites: list[Site] = [*read, *([] if self.vectors is None else self.vectors.sites)]
        workers = ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1))
        waiting: list[Future[dict[str, Chunk]]] = []

        def reduce(site: Site, tensor: Tensor) -> None:
            if site in read:
                made = self._pattern(site, tensor, workers)
                waiting.extend(made or [])
                if self.only is not None and made is not None:
                    raise _Enough
                return
            assert self.vectors is not None
            self.vectors.take(site, tensor)

        try:
            with suppress(_Enough):
                self.scene.model.run(self.scene.reading.batch, sites, reduce=reduce, logits=False)
            for future in waiting:
                self.chunks.update(future.result())
        finally:
            workers.shutdown(cancel_futures=True)
        if self.vectors is not None:
            self.chunks.update(self.vectors.chunks())

    def _pattern(
        self, site: Site, tensor: Tensor, workers: ThreadPoolExecutor
    ) -> list[Future[dict[str, Chunk]]] | None:
        """Chunks of a layer in the making; None as long as its values have not come."""
        site_of_weights = site.beside("pattern")
        block, layer = self._places[site_of_weights]
        read = self.scene.drawn(site, tensor, self._waiting, causal=block.causal)
        if read is None:
            return None
        weights, drawn = read
        queries, keys = self.scene.tokens(block)
        assert tuple(weights.shape) == (block.heads[layer], len(queries), len(keys)), (site, weights.shape)
        if self.beside is not None:
            self.beside(block, layer, weights)
        if self.vectors is not None:
            self.vectors.see(site_of_weights, weights)
        packed = {name: coded(each, block.quality) for name, each in drawn.items()}
        if self.only is None:
            self._measured[block.name, layer] = self._gauges[block.name].measure(weights)
            place = block.layers.index(layer)
            for name, each in packed.items():
                self.thumbs[block.name, name][place, : block.heads[layer]] = each.thumbnails(block.thumb)
        if not self.keep:
            return []

        def head(weighting: str, number: int) -> dict[str, Chunk]:
            stem = f"a/{self.scene.panel}/{block.name}/{weighting}/{layer}/{number}"
            made = packed[weighting].head(number, causal=block.causal, rows=block.strip)
            return {f"{stem}/{place}": chunk for place, chunk in enumerate(made)}

        return [workers.submit(head, name, number) for name in packed for number in range(block.heads[layer])]


def _filled(block: Block, values: list[Any]) -> Any:
    """Values [layers][H] as [1, layers, most heads]; absent heads are zero."""
    found = np.zeros((1, len(block.layers), max(block.heads.values())), np.float32)
    for layer, heads in enumerate(values):
        found[0, layer, : len(heads)] = heads
    return found


def pattern_sites(model: Model) -> list[Site]:
    """The attention patterns of a model; one that has none is refused with what it has."""
    found = [site for site in model.sites if site.kind == "pattern"]
    if not found:
        why = "; ".join(f"{name}: {reason}" for name, reason in model.missing.items() if "pattern" in name)
        raise SiteError(
            f"{model.name!r} has no attention patterns to show{f' ({why})' if why else ''}; its sites are "
            f"{describe(model.sites)}."
        )
    return found


def _check_values(model: Model, sites: Iterable[Site]) -> None:
    """Raises where effective attention is asked of a layer whose values are not shown."""
    for site in sites:
        if site.beside("value") not in model.sites:
            why = next((reason for name, reason in model.missing.items() if "value" in name), "it has none")
            raise SiteError(
                f"Effective attention needs the values of {site}, and {model.name!r} does not show them ({why}); look "
                "at its raw weights."
            )


def _blocks(
    model: Model,
    tokens: Mapping[str, TokenList],
    layers: Iterable[int] | None,
    quality: float,
    weightings: Mapping[str, str],
) -> list[Block]:
    """The blocks of heads of a model, with the layers asked for."""
    sites = pattern_sites(model)
    asked = _asked_layers(layers, sites)
    found: list[Block] = []
    for stack, (name, queries, keys) in _STACKS.items():
        mine = {int(site.layer or 0): site for site in sites if site.stack == stack}
        mine = {layer: site for layer, site in mine.items() if asked is None or layer in asked}
        if not mine:
            continue
        rows, columns = len(tokens[queries]), len(tokens[keys])
        found.append(
            Block(
                name,
                mine,
                {layer: model.size(site)[0] for layer, site in mine.items()},
                queries,
                keys,
                causal=stack == "decoder" or (stack is None and model.causal),
                strip=strip_rows(rows, columns),
                thumb=min(THUMB, max(rows, columns)),
                quality=float(quality),
                weightings=weightings,
            )
        )
    return found


def _asked_layers(layers: Iterable[int] | None, sites: list[Site]) -> set[int] | None:
    if layers is None:
        return None
    asked = list(layers) if not isinstance(layers, int) else [layers]
    known = sorted({int(site.layer or 0) for site in sites})
    wrong = [layer for layer in asked if layer not in known or isinstance(layer, bool)]
    if wrong or not asked:
        named = listing(wrong) if wrong else "none"
        raise PellucidError(f"layers={named} cannot be shown: this model has the layers {known[0]} to {known[-1]}.")
    return set(asked)
