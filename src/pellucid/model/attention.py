"""Reading and changing attention through transformers' attention interface.

Two attention functions are registered under names of our own, together with the mask function each needs (a name
without a mask function would silently run without a mask). They call the very function the model would have used;
what passes is shown to the recorder of the running pass, held in a context variable. Outside a pass they are
transparent.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

from pellucid.model.watch import AttentionOps

FUSED, EAGER = "pellucid_fused", "pellucid_eager"
NAMES = {"fused": FUSED, "eager": EAGER}
"""Our attention functions, by the attention setting under which they are used."""

Attend = Callable[..., tuple[Tensor, Tensor | None]]


class Listener(Protocol):
    """What a running pass offers to an attention call."""

    def attend(self, module: nn.Module) -> AttentionCall | None:
        """The recorder of this call of an attention module, or None where nothing is asked of it."""
        ...


class AttentionCall(Protocol):
    """One call of attention as seen by the recorder; the methods return what the model goes on with."""

    wants_pattern: bool
    changes_pattern: bool

    def scores(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]: ...
    def mix(self, pattern: Tensor, value: Tensor) -> tuple[Tensor, Tensor]: ...
    def value(self, value: Tensor) -> Tensor: ...
    def pattern(self, pattern: Tensor) -> Tensor: ...
    def mixed(self, heads: Tensor) -> Tensor: ...
    def projected(self, output: Tensor) -> Tensor: ...


_listener: ContextVar[Listener | None] = ContextVar("pellucid_attention", default=None)


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Shows every attention call made in the block to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def attention_name(configs: Sequence[Any], name: str) -> Generator[None]:
    """Makes every part of a model use the attention function `name`, and puts the old names back."""
    before = [config._attn_implementation_internal for config in configs]
    try:
        for config in configs:
            config._attn_implementation_internal = name
        yield
    finally:
        for config, old in zip(configs, before, strict=True):
            config._attn_implementation_internal = old


def uses_interface(cls: type[nn.Module]) -> bool:
    """Whether a model's own file dispatches attention through the interface."""
    return any(
        hasattr(sys.modules[base.__module__], "ALL_ATTENTION_FUNCTIONS") for base in cls.__mro__ if _is_model_file(base)
    )


def _is_model_file(cls: type) -> bool:
    return ".models." in cls.__module__ or not cls.__module__.startswith(("transformers.", "torch."))


@cache
def _own(cls: type[nn.Module], name: str) -> Any:
    """A name from the file that defines a module's class (or the class it inherits from)."""
    for base in cls.__mro__:
        found = getattr(sys.modules[base.__module__], name, None)
        if found is not None and _is_model_file(base):
            return found
    raise RuntimeError(f"{cls.__name__} has no {name} in its own file")


def _fused(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
):
    attend: Attend = _own(type(module), "ALL_ATTENTION_FUNCTIONS")["sdpa"]
    if not query.shape[1]:  # of a layer without heads; some versions of torch would divide by their number
        attend = _own(type(module), "eager_attention_forward")
    call = _call_of(module)
    if call is None:
        return attend(module, query, key, value, attention_mask, **options)
    query, key = call.scores(query, key)
    value = call.value(value)
    output, weights = attend(module, query, key, value, attention_mask, **options)
    if call.wants_pattern:
        call.pattern(pattern_beside(module, query, key, attention_mask, **options))
    call.mixed(output.transpose(1, 2))
    return output, weights


def _eager(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
):
    attend: Attend = _own(type(module), "eager_attention_forward")
    call = _call_of(module)
    if call is None:
        return attend(module, query, key, value, attention_mask, **options)
    query, key = call.scores(query, key)
    value = call.value(value)
    if call.changes_pattern:
        with AttentionOps(lambda: 0, lambda _: _PatternOnly(call), lambda: query.shape[0]):
            output, weights = attend(module, query, key, value, attention_mask, **options)
    else:
        output, weights = attend(module, query, key, value, attention_mask, **options)
        if call.wants_pattern:
            assert weights is not None, "eager attention always returns its weights"
            call.pattern(weights)
    call.mixed(output.transpose(1, 2))
    return output, weights


class _PatternOnly:
    """Shows only the pattern to a call: query, key and value have passed it already, before grouped heads were
    repeated."""

    def __init__(self, call: AttentionCall) -> None:
        self._call = call

    def scores(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return query, key

    def mix(self, pattern: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return self._call.pattern(pattern), value

    def mixed(self, heads: Tensor) -> Tensor:
        return heads

    def projected(self, output: Tensor) -> Tensor:
        return output


def _call_of(module: nn.Module) -> AttentionCall | None:
    listener = _listener.get()
    return None if listener is None else listener.attend(module)


def pattern_beside(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    *,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """The attention weights that a fused kernel used without returning them, [B, H, T, S].

    Follows the arguments of `scaled_dot_product_attention`: softmax(scale · q kᵀ + bias), masked.
    """
    batch, heads, length, width = query.shape
    if not heads:  # a layer that has lost all its heads
        return query.new_zeros(batch, 0, length, key.shape[2])
    groups = heads // key.shape[1]
    scale = 1 / math.sqrt(width) if scaling is None else scaling
    grouped = (query * scale).unflatten(1, (key.shape[1], groups))  # [B, Hkv, G, T, dh]
    scores = torch.matmul(grouped.flatten(2, 3), key.transpose(-1, -2))  # [B, Hkv, G·T, S]
    scores = scores.view(batch, heads, length, key.shape[2])
    if position_bias is not None:
        scores = scores + position_bias
    if mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        if causal and length > 1:
            future = torch.ones(length, key.shape[2], dtype=torch.bool, device=query.device).triu(1)
            scores = scores.masked_fill_(future, -torch.inf)
    elif mask.dtype == torch.bool:
        scores = scores.masked_fill_(~mask, -torch.inf)
    else:
        scores = scores.add_(mask)
    return torch.softmax(scores, dim=-1)  # sums in float32 inside, whatever the type of the scores


def windowed_pattern(query: Tensor, key: Tensor, radius: int, real: Tensor | None) -> Tensor:
    """Attention within `radius` tokens on either side, as T × T: softmax of q kᵀ over the real keys near each query."""
    places = torch.arange(query.shape[2], device=query.device)
    hidden = (places[:, None] - places[None, :]).abs() > radius
    scores = torch.matmul(query, key.transpose(-1, -2)).masked_fill(hidden, -torch.inf)
    if real is not None:
        scores = scores.masked_fill(~real[:, None, None, :], torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)


AttentionInterface.register(FUSED, _fused)
AttentionInterface.register(EAGER, _eager)
AttentionMaskInterface.register(FUSED, sdpa_mask)
AttentionMaskInterface.register(EAGER, eager_mask)
