"""Views of attention: heads, all heads of a model, and the neurons of a head's queries and keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pellucid.collect.effective_weights import RAW
from pellucid.views.interactive.reading import read
from pellucid.views.interactive.view import View, make, shown_text
from pellucid.views.interactive.weights import check_quality

if TYPE_CHECKING:
    from pellucid.model import Model

LATER = "The text is long: the weights of a layer are made by the model when they are looked at."


def head_view(
    model: Model,
    text: str,
    *,
    pair: str | None = None,
    target: str | None = None,
    generate: int = 0,
    layers: Iterable[int] | None = None,
    quality: float = 1.0,
    weights: str = RAW,
    title: str | None = None,
    state: Mapping[str, Any] | None = None,
) -> View:
    """Where chosen heads look, token by token (Vig 2019).

    `pair` is a second sentence, `target` what a decoder reads, `generate` continues the text by so many tokens. With
    `quality` below 1, each row keeps its largest weights up to that share of its total, and says what it dropped. With
    `weights="effective"`, absolute values of effective attention are drawn, and its negative part is there beside them.
    """
    options = _Options(pair, target, generate, layers, quality, title, state, weights)
    return _view(model, text, "heads", options)


def model_view(
    model: Model,
    text: str,
    *,
    pair: str | None = None,
    target: str | None = None,
    generate: int = 0,
    layers: Iterable[int] | None = None,
    quality: float = 1.0,
    weights: str = RAW,
    title: str | None = None,
    state: Mapping[str, Any] | None = None,
) -> View:
    """All heads of all layers at once, to be sorted and coloured by what they do (options as in `head_view`)."""
    options = _Options(pair, target, generate, layers, quality, title, state, weights)
    return _view(model, text, "model", options)


def neuron_view(
    model: Model,
    text: str,
    *,
    pair: str | None = None,
    target: str | None = None,
    generate: int = 0,
    layers: Iterable[int] | None = None,
    quality: float = 1.0,
    title: str | None = None,
    state: Mapping[str, Any] | None = None,
) -> View:
    """How a head's queries and keys make its attention: q, k, q∘k, q·k and softmax (options as in `head_view`).

    Queries and keys are held as float16, those of the first layers where all would take more than about 20 MB.
    """
    options = _Options(pair, target, generate, layers, quality, title, state)
    return _view(model, text, "neurons", options)


class _Options:
    """The options that every view of attention has."""

    def __init__(
        self,
        pair: str | None,
        target: str | None,
        generate: int,
        layers: Iterable[int] | None,
        quality: float,
        title: str | None,
        state: Mapping[str, Any] | None,
        weights: str = RAW,
    ) -> None:
        check_quality(quality)
        self.pair, self.target, self.generate = pair, target, generate
        self.layers = None if layers is None else layers if isinstance(layers, int) else tuple(layers)
        self.quality, self.title, self.state, self.weights = quality, title, state, weights


def _view(model: Model, text: str, mode: str, options: _Options) -> View:
    from pellucid.views.interactive.live import Live
    from pellucid.views.interactive.scene import Scene, pattern_sites

    pattern_sites(model)
    reading = read(model, text, pair=options.pair, target=options.target, generate=options.generate)
    layers: Any = options.layers
    scene = Scene(model, reading, layers=layers, quality=options.quality, weights=options.weights)
    built = scene.build(scene.look(vectors=mode == "neurons"))
    notes = [*([LATER] if scene.large else []), *built.notes]
    if mode == "neurons" and not any(block["vectors"] for block in built.panel["blocks"]):
        mode = "heads"  # the notes say why
    return make(
        "attention",
        shown_text(text, options.pair, options.target) if options.title is None else options.title,
        [built.panel],
        built.chunks,
        notes=notes,
        first={"mode": mode},
        state=options.state,
        live=Live([scene]),
    )
