"""The probe: one small forward pass in which every module call and every attention call is watched."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.model.attention import NAMES, attention_name, listening
from pellucid.model.frame import Wiring
from pellucid.model.taps import Slot, find_slot, get_slot
from pellucid.model.watch import AttentionOps


@dataclass
class Call:
    """One call of a module: when it began and ended in the order of all events, and what went in and came out."""

    name: str
    module: nn.Module
    number: int  # which call of this module, from 0
    start: int
    parents: tuple[int, ...]  # places in `Trace.calls` of the calls around it, outermost first
    inputs: dict[str, Any]
    end: int = -1
    output: Any = None

    @property
    def input_slot(self) -> Slot | None:
        """Where the hidden states come in."""
        named = self.inputs["kwargs"].get("hidden_states")
        if isinstance(named, Tensor):
            return ("kwargs", "hidden_states")
        return find_slot(self.inputs)

    @property
    def output_slot(self) -> Slot | None:
        """Where the hidden states come out."""
        return find_slot(self.output)

    @property
    def input(self) -> Tensor | None:
        slot = self.input_slot
        return None if slot is None else get_slot(self.inputs, slot)

    @property
    def result(self) -> Tensor | None:
        slot = self.output_slot
        return None if slot is None else get_slot(self.output, slot)


@dataclass
class Attention:
    """One call of attention: which module call it happened in, and its tensors [B, H, T, ·]."""

    owner: int  # place in `Trace.calls`
    order: int
    query: Tensor
    key: Tensor
    heads: Tensor | None = None
    number: int = 0  # which attention call of its module, from 0
    windowed: bool = False
    projected: Tensor | None = None  # the output projection, where the attention module itself computes it

    @property
    def crossed(self) -> bool:
        """Whether queries and keys come from different sequences (the probe gives them different lengths)."""
        return self.query.shape[2] != self.key.shape[2]


@dataclass
class Trace:
    """Everything that happened in a probe pass, in order; holds every tensor so that none is overwritten."""

    batch: int
    inputs: dict[str, Tensor]
    calls: list[Call] = field(default_factory=list[Call])
    attention: list[Attention] = field(default_factory=list[Attention])
    output: Any = None

    def inside(self, place: int) -> list[Call]:
        """The calls made within a call, in the order in which they began."""
        return [call for call in self.calls if place in call.parents]


class _Watcher:
    """Collects a trace; also the listener of the attention interface and the handler of watched operations."""

    def __init__(self, wiring: Wiring, inputs: dict[str, Tensor]) -> None:
        self.trace = Trace(next(iter(inputs.values())).shape[0], inputs)
        self._names = wiring.names
        self._counts: dict[str, int] = defaultdict(int)
        self._attend_counts: dict[str, int] = defaultdict(int)
        self._open: list[int] = []
        self._clock = 0

    def tick(self) -> int:
        self._clock += 1
        return self._clock

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = self._names[id(module)]
        inputs = {"args": args, "kwargs": kwargs}
        call = Call(name, module, self._counts[name], self.tick(), tuple(self._open), _snapshot(inputs))
        self._counts[name] += 1
        self._open.append(len(self.trace.calls))
        self.trace.calls.append(call)

    def leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        call = self.trace.calls[self._open.pop()]
        call.end, call.output = self.tick(), _snapshot(output)
        if is_windowed(module):
            heads = call.output[0].unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
            place = self.trace.calls.index(call)
            self.trace.attention.append(Attention(place, call.start, heads, heads, heads, call.number, windowed=True))

    @property
    def here(self) -> int | None:
        """The innermost call now running, unless its attention is windowed."""
        place = self._open[-1] if self._open else None
        return None if place is None or is_windowed(self.trace.calls[place].module) else place

    def attend(self, module: nn.Module) -> _Watched:
        name = self._names[id(module)]
        number = self._attend_counts[name]
        self._attend_counts[name] += 1
        place = max(place for place in self._open if self.trace.calls[place].module is module)
        return _Watched(self, place, number)


class _Watched:
    """One attention call during the probe."""

    wants_pattern = changes_pattern = False

    def __init__(self, watcher: _Watcher, owner: int, number: int = 0) -> None:
        self._watcher, self._owner, self._number = watcher, owner, number

    def scores(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        self._found = Attention(self._owner, self._watcher.tick(), query, key, number=self._number)
        return query, key

    def value(self, value: Tensor) -> Tensor:
        return value

    def pattern(self, pattern: Tensor) -> Tensor:
        return pattern

    def mix(self, pattern: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return pattern, value

    def mixed(self, heads: Tensor) -> Tensor:
        self._found.heads = heads.clone()
        self._watcher.trace.attention.append(self._found)
        return heads

    def projected(self, output: Tensor) -> Tensor:
        self._found.projected = output.clone()
        return output


def probe(wiring: Wiring, inputs: dict[str, Tensor], *, attention: str, interface: bool) -> Trace:
    """Runs the model once on a small batch and gives the trace of it."""
    module, watcher = wiring.module, _Watcher(wiring, inputs)
    with ExitStack() as stack:
        for part in module.modules():
            stack.callback(part.register_forward_pre_hook(watcher.enter, with_kwargs=True).remove)
            stack.callback(part.register_forward_hook(watcher.leave).remove)
        stack.enter_context(torch.no_grad())
        if interface:
            stack.enter_context(attention_name(wiring.configs, NAMES[attention]))
            stack.enter_context(listening(watcher))
        else:
            open_calls: dict[Any, _Watched] = {}
            watched = AttentionOps(
                lambda: watcher.here,
                lambda place: open_calls.setdefault(place, _Watched(watcher, place)),  # type: ignore[arg-type]
                lambda: watcher.trace.batch,
            )
            stack.enter_context(watched)
        watcher.trace.output = module(**inputs)
    for found in watcher.trace.attention:
        if not interface:
            found.number = watcher.trace.calls[found.owner].number
    return watcher.trace


def is_windowed(module: nn.Module) -> bool:
    """Whether a module computes attention in overlapping chunks of a window (Longformer and its relatives)."""
    return hasattr(module, "one_sided_attn_window_size")


def _snapshot(value: Any) -> Any:
    """Nested tuples, lists and dictionaries with every tensor copied, so that in-place changes do not reach it."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _snapshot(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (tuple, list)):
        return tuple(_snapshot(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    return value
