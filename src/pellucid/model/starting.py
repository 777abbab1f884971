"""Starting a pass at a layer: the blocks below hand their input on, and the stream is put in where the pass starts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pellucid.errors import SiteError
from pellucid.model.batch import Batch
from pellucid.model.edits import Edit
from pellucid.model.frame import Wiring
from pellucid.model.sites import Site
from pellucid.model.survey import probe_inputs
from pellucid.model.taps import Located, Slot, Tap, get_slot

if TYPE_CHECKING:
    from pellucid.model.model import Model

Start = Mapping[str, Tensor] | Mapping[Site, Tensor]
"""The stream [B, T, d] with which a pass starts, by the site `resid.l` (one for each stack that starts late)."""


class Starts:
    """The layers at which a model's passes can start: each is tried once, and what stands against it is remembered."""

    def __init__(self, wiring: Wiring, located: Located) -> None:
        self._wiring, self._located = wiring, located
        self._reasons: dict[frozenset[Site], str] = {}
        self._forms: dict[str, int | None] = {}  # by block: how many things it gives beside the stream; None: no tuple

    def check(self, start: Iterable[Site], touched: Iterable[Site]) -> None:
        """Raises where a start is no stream, or a site that is to be read or changed lies below it."""
        for site in start:
            if site.kind != "resid":
                raise SiteError(f"A pass starts with a stream between blocks, such as 'resid.3', not with '{site}'.")
        layers = {site.stack: site for site in start}
        for site in touched:
            first = layers.get("decoder" if site.stack == "cross" else site.stack)
            if first is not None and isinstance(site.layer, int) and site.layer < int(first.layer or 0):
                raise SiteError(f"{site} lies below {first}, where the pass starts, so nothing passes there.")

    def reason(self, model: Model, sites: Iterable[Site]) -> str:
        """Why the model's passes cannot start at these sites; empty where they can."""
        key = frozenset(sites)
        if key not in self._reasons:
            self._reasons[key] = self._built_against(key) or self._tried(model, key)
        return self._reasons[key]

    @contextmanager
    def skipped(self, sites: Iterable[Site]) -> Generator[None]:
        """The blocks below the sites hand their input on for a while; afterwards they are what they were."""
        with ExitStack() as stack:
            for tap in self._below(sites):
                module = self._wiring.parts[tap.module]
                own = vars(module).get("forward")
                stack.callback(_put_back, module, own)
                assert tap.slot is not None
                module.forward = _handing_on(tap.slot, self._forms[tap.module])
            yield

    # -- the trial ---------------------------------------------------------------------------------------------------

    def _tried(self, model: Model, sites: frozenset[Site]) -> str:
        """Compares a pass that starts at the sites with a whole one, on a small batch of random tokens."""
        inputs = probe_inputs(model.hf)
        batch = Batch.of_ids(
            inputs["input_ids"].cpu(),
            target_ids=inputs["decoder_input_ids"].cpu() if "decoder_input_ids" in inputs else None,
        )
        with self._watched(self._below(sites)):
            whole = model.run(batch, tuple(sites))
        try:
            with self.skipped(sites):
                late = model.run(batch, (), [Edit.patch(site, whole[site]) for site in sites])
        except (TypeError, ValueError, AttributeError, LookupError, RuntimeError) as error:
            return f"the model needs what the blocks below hand on ({' '.join(str(error).split())[:100]})"
        one, other = (next(iter(run.output.values())) for run in (whole, late))
        if not bool(torch.isfinite(one).all()):
            return "its answers are not all numbers (NaN or infinity)"
        near = torch.allclose(one, other, rtol=1e-4, atol=32 * torch.finfo(one.dtype).eps * float(one.abs().max()))
        return "" if near else "the blocks above need more of those below than the stream"

    def _built_against(self, sites: Iterable[Site]) -> str:
        """What in the model's build keeps blocks from being left out."""
        located = self._located
        for site in sites:
            if site in located.read_only:
                return located.read_only[site]
            if site in located.edit_taps:
                return "its blocks are no modules of their own"
        for tap in self._below(sites):
            if tap.module in located.repeated:
                return f"{tap.module} is called several times in a pass"
            if tap.slot is None or tap.end != "input":
                return "its blocks are no modules of their own"
        return ""

    def _below(self, sites: Iterable[Site]) -> list[Tap]:
        """Where the stream enters each block below the sites."""
        taps = self._located.taps
        return [taps[site.beside("resid", layer)] for site in sites for layer in range(int(site.layer or 0))]

    @contextmanager
    def _watched(self, taps: Sequence[Tap]) -> Generator[None]:
        """Notes in what form each block gives its stream: alone, or first of several things."""

        def look(tap: Tap) -> Callable[..., None]:
            def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
                self._forms[tap.module] = None if isinstance(output, Tensor) else len(output) - 1

            return hook

        with ExitStack() as stack:
            for tap in taps:
                stack.callback(self._wiring.parts[tap.module].register_forward_hook(look(tap)).remove)
            yield


def _handing_on(slot: Slot, more: int | None) -> Callable[..., Any]:
    """A forward that gives what came in, in the form in which the block gives its stream, and nothing beside it."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        stream = get_slot({"args": args, "kwargs": kwargs}, slot)
        return stream if more is None else (stream, *[None] * more)

    return forward


def _put_back(module: nn.Module, own: Any) -> None:
    if own is None:
        del module.forward
    else:
        module.forward = own
