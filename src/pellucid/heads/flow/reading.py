"""One text and the stack that it is followed through: its tokens, the positions looked at, and attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.attribution.targets import positions as places
from pellucid.attribution.text_tokens import text_tokens, unpadded
from pellucid.errors import ModelError, SiteError, TextError, listing
from pellucid.model import Model
from pellucid.model.batch import Batch
from pellucid.model.loading import Opened

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid.model.sites import Site

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Reading:
    """A text without padding in a model, the attention `sites` (`pattern.l`) of one stack, and chosen positions."""

    model: Model
    batch: Batch
    sites: tuple[Site, ...]
    tokens: dict[str, Array]
    positions: tuple[int, ...]

    @property
    def stack(self) -> str | None:
        """The stack whose tokens are followed."""
        return self.sites[0].stack

    @property
    def length(self) -> int:
        """Tokens of the stack's text."""
        return len(self.tokens["token"])

    @property
    def labels(self) -> tuple[str, ...]:
        """Every token with its number."""
        return tuple(f"{number} {token}" for number, token in enumerate(self.tokens["token"]))

    @property
    def causal(self) -> bool:
        """Whether tokens of the stack see only what stands before them."""
        return self.model.causal or self.stack == "decoder"

    def at(self, positions: Sequence[int]) -> Reading:
        """The same text at other positions, negative ones from the end."""
        decoder = self.stack == "decoder"
        chosen = [int(places(self.batch, position, decoder=decoder)[0]) for position in positions]
        if not chosen:
            raise SiteError("No position was given; leave positions= out to look at all of them.")
        return replace(self, positions=tuple(dict.fromkeys(chosen)))


def read(
    model: Model,
    text: str | Batch,
    *,
    pair: str | None = None,
    decoder: str | None = None,
    stack: str | None = None,
) -> Reading:
    """A text at all its positions; padding of a batch is left out. Encoder–decoders: `stack` is encoder or decoder."""
    sites = attention_sites(model, stack)
    batch = unpadded(text) if isinstance(text, Batch) else model.tokenize(text, pair, target=decoder)
    if batch.size != 1:
        raise TextError(f"Information is followed through one text, and {batch.size} were given; give one at a time.")
    columns, spans = text_tokens(model, batch)
    tokens = {name: column[spans[sites[0].stack]] for name, column in columns.items()}
    found = Reading(model, batch, sites, tokens, tuple(range(len(tokens["token"]))))
    if found.length < 2:
        raise TextError("The text has one token, so nothing can flow from one to another; give a longer one.")
    return found


def attention_sites(model: Model, stack: str | None = None) -> tuple[Site, ...]:
    """The sites `pattern.l` of a stack, one for every block; a model or layer without attention weights is refused."""
    stacks = [*dict.fromkeys(site.stack for site in model.sites if site.kind == "pattern" and site.stack != "cross")]
    if not stacks:
        raise ModelError(
            f"{model.name!r} has no layers of softmax attention whose weights can be read, so nothing can be followed "
            "through them; identifiability.mixing needs no attention."
        )
    if stack is None:
        stack = stacks[0]
    if stack not in stacks:
        known = listing(stacks) if None not in stacks else "one alone, so leave stack= out"
        raise SiteError(f"There is no stack {stack!r} to follow; {model.name!r} has {known}.")
    found = tuple(site for site in model.sites if site.kind == "pattern" and site.stack == stack)
    blocks = [site for site in model.sites if site.kind == "resid" and site.stack == stack]
    gone = [blocks[0].beside("pattern", layer) for layer in range(len(blocks) - 1)] if blocks else []
    for site in gone:
        if site not in found:
            why = model.missing.get(str(site), "this layer has no softmax attention")
            raise ModelError(f"The attention weights of {site} cannot be read ({why}), so nothing flows through it.")
    return found


def mean_pattern(site: Site, pattern: Tensor) -> Array:
    """The mean over heads of a pattern [1, heads, T, T], as [T, T]; weights that are no numbers are refused."""
    if not bool(pattern.isfinite().all()):
        raise ModelError(
            f"The attention weights of {site} are not numbers on this text (NaN or infinity); try another dtype."
        )
    return pattern[0].double().mean(0).cpu().numpy()


def eager(model: Model) -> Model:
    """The same network with eager attention, whose weights can be changed; parameters are shared, nothing is copied."""
    if model.attention == "eager":
        return model
    network: Any = model.hf
    shared = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    made = deepcopy(network, shared)
    made.set_attn_implementation("eager")
    return Model(Opened(made, model.tokenizer, "eager", model.name, model.notes))
