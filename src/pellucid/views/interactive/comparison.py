"""Two models on the same text, side by side, and how far their heads differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pellucid.views.interactive.attention import LATER
from pellucid.views.interactive.reading import read
from pellucid.views.interactive.view import View, make, shown_name, shown_text
from pellucid.views.interactive.weights import check_quality

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid.model import Model
    from pellucid.views.interactive.scene import Block, More, Scene

DIFFERENCE = "difference"
ABOUT = (
    "How unlike the two models' heads of the same number are: Jensen–Shannon divergence of their attention over ln 2, "
    "mean over queries; 0 is the same, 1 nothing in common."
)


def compare_view(
    left: Model,
    right: Model,
    text: str,
    *,
    pair: str | None = None,
    target: str | None = None,
    layers: Iterable[int] | None = None,
    quality: float = 1.0,
    title: str | None = None,
    state: Mapping[str, Any] | None = None,
) -> View:
    """Two models on one text in two panels, with a statistic `difference` where their heads can be paired.

    Heads are paired by number where both models have the same tokens, layers and heads; the notes say why not.
    """
    from pellucid.views.interactive.live import Live
    from pellucid.views.interactive.scene import Scene, pattern_sites

    check_quality(quality)
    chosen = None if layers is None else layers if isinstance(layers, int) else tuple(layers)
    scenes: list[Scene] = []
    for panel, model in enumerate((left, right)):
        pattern_sites(model)
        reading = read(model, text, pair=pair, target=target)
        scenes.append(Scene(model, reading, layers=chosen, quality=quality, panel=panel))  # pyright: ignore[reportArgumentType]
    one, other = scenes
    why = {name: _unlike(one, other, name) for name in one.blocks}
    paired = _Divergence({name for name, reason in why.items() if reason is None})
    seen = [one.look(beside=paired.first), other.look(beside=paired.second)]
    found = {name: paired.told(block) for name, block in one.blocks.items() if name in paired.blocks}
    built = [scene.build(each, found) for scene, each in zip(scenes, seen, strict=True)]
    notes = [*built[0].notes, *built[1].notes]
    reasons = [f"Heads of block {name!r} are not paired: {reason}." for name, reason in why.items() if reason]
    first: dict[str, Any] = {"mode": "model"}
    if next(iter(one.blocks)) in found:
        first["colour"] = DIFFERENCE
    return make(
        "compare",
        shown_text(text, pair, target) if title is None else title,
        [each.panel for each in built],
        {**built[0].chunks, **built[1].chunks},
        notes=list(dict.fromkeys([*reasons, *([LATER] if one.large or other.large else []), *notes])),
        first=first,
        state=state,
        live=Live(scenes),
    )


def _unlike(one: Scene, other: Scene, name: str) -> str | None:
    """Why the heads of a block cannot be paired; None where they can."""
    if name not in other.blocks:
        return f"{shown_name(other.model)} has no such block"
    mine, theirs = one.blocks[name], other.blocks[name]
    if mine.heads != theirs.heads:
        shapes = [f"{len(block.layers)} layers of {_counts(block)} heads" for block in (mine, theirs)]
        return f"{shown_name(one.model)} has {shapes[0]} and {shown_name(other.model)} {shapes[1]}"
    if mine.causal != theirs.causal:
        return "one model sees later tokens and the other does not"
    if any(a.text != b.text for a, b in zip(one.tokens(mine), other.tokens(theirs), strict=True)):
        return "the models read the text as different tokens"
    if one.large or other.large:
        return "the text is too long to hold the attention of one model beside the other's"
    return None


def _counts(block: Block) -> str:
    return " or ".join(str(count) for count in sorted(set(block.heads.values())))


class _Divergence:
    """Holds one model's attention as float16 until the other's comes, layer by layer."""

    def __init__(self, blocks: set[str]) -> None:
        self.blocks = blocks
        self._held: dict[tuple[str, int], Tensor] = {}
        self._found: dict[tuple[str, int], list[float]] = {}

    def first(self, block: Block, layer: int, weights: Tensor) -> None:
        """A layer of the first model, [H, queries, keys]."""
        if block.name in self.blocks:
            self._held[block.name, layer] = weights.cpu().half()

    def second(self, block: Block, layer: int, weights: Tensor) -> None:
        """The same layer of the second model."""
        held = self._held.pop((block.name, layer), None)
        if held is not None:
            pairs = zip(held, weights.cpu().half(), strict=True)
            self._found[block.name, layer] = [divergence(mine, theirs) for mine, theirs in pairs]

    def told(self, block: Block) -> More:
        """The statistic of a block."""
        return {DIFFERENCE: (ABOUT, [self._found[block.name, layer] for layer in block.layers])}


def divergence(one: Tensor, other: Tensor) -> float:
    """Mean over rows of the Jensen–Shannon divergence of two attention patterns [queries, keys], over ln 2.

    JS = H(½(p + q)) − ½H(p) − ½H(q), with each row normalised first.
    """
    import math

    import torch

    p, q = (part.double() / part.double().sum(1, keepdim=True).clamp(min=1e-30) for part in (one, other))
    entropy = torch.special.entr
    rows = entropy((p + q) / 2).sum(1) - (entropy(p).sum(1) + entropy(q).sum(1)) / 2
    return float(rows.clamp(min=0).mean() / math.log(2))
