"""Watching attention's own operations in models that compute it inline, without transformers' attention interface.

Inside an attention module the order of operations is always the same: a matrix product of query and key, a softmax, a
matrix product of the resulting pattern with the value. This mode sees the three go by and may replace their operands.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_PRODUCTS: frozenset[Any] = frozenset(
    {torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm, torch.Tensor.bmm}
)
_ADDED_PRODUCTS: frozenset[Any] = frozenset({torch.baddbmm, torch.Tensor.baddbmm})
_SOFTMAXES: frozenset[Any] = frozenset({torch.softmax, torch.Tensor.softmax, torch.nn.functional.softmax})


class AttentionHandler(Protocol):
    """What an attention call passes through; each method returns the tensors that the model goes on with."""

    def scores(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Sees query [B, H, T, dh] and key [B, Hkv, S, dh] before their product."""
        ...

    def mix(self, pattern: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Sees pattern [B, H, T, S] and value [B, Hkv, S, dv] before their product."""
        ...

    def mixed(self, heads: Tensor) -> Tensor:
        """Sees the product, [B, H, T, dv]."""
        ...

    def projected(self, output: Tensor) -> Tensor:
        """Sees the output projection [B, T, d] of modules that compute it themselves, as a contraction over heads."""
        ...


@dataclass(frozen=True)
class _View:
    """A reversible view of an operand as [B, H, rows, columns]."""

    order: tuple[int, ...] | None = None
    unflatten: bool = False
    transposed: bool = False

    def read(self, tensor: Tensor, batch: int) -> Tensor:
        if self.order is not None:
            tensor = tensor.permute(self.order)
        if self.unflatten:
            tensor = tensor.unflatten(0, (batch, -1))
        return tensor.transpose(-1, -2) if self.transposed else tensor

    def write(self, value: Tensor) -> Tensor:
        if self.transposed:
            value = value.transpose(-1, -2)
        if self.unflatten:
            value = value.flatten(0, 1)
        if self.order is not None:
            inverse = [self.order.index(axis) for axis in range(len(self.order))]
            value = value.permute(inverse)
        return value


@dataclass
class _Product:
    """A matrix product that is about to happen: its two operands and how to put others in their place."""

    left: Tensor
    right: Tensor
    views: tuple[_View, _View, _View]  # left, right, result
    call: Callable[[Tensor, Tensor], Tensor]

    def covers(self, batch: int) -> bool:
        """Whether both operands span the batch (positions, for one, are multiplied once for all sequences)."""

        def spans(tensor: Tensor, view: _View) -> bool:
            rows = tensor.shape[0 if view.order is None else view.order[0]]
            return rows % batch == 0 if view.unflatten else rows == batch

        return spans(self.left, self.views[0]) and spans(self.right, self.views[1])


def _product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, scores: bool) -> _Product | None:
    """The product a torch function stands for, if it is one over batches of heads."""
    if func in _PRODUCTS:
        left: Tensor = args[0]
        right: Tensor = args[1] if len(args) > 1 else kwargs["other" if "other" in kwargs else "mat2"]
        if left.dim() < 3 or right.dim() < 3:
            return None
        flat = left.dim() == 3
        views = (_View(unflatten=flat), _View(unflatten=flat, transposed=scores), _View(unflatten=flat))
        return _Product(left, right, views, lambda a, b: func(a, b))
    if func in _ADDED_PRODUCTS:
        added = args[0]
        left = args[1] if len(args) > 1 else kwargs["batch1"]
        right = args[2] if len(args) > 2 else kwargs["batch2"]
        rest = {name: kwargs[name] for name in ("beta", "alpha") if name in kwargs}
        views = (_View(unflatten=True), _View(unflatten=True, transposed=scores), _View(unflatten=True))
        return _Product(left, right, views, lambda a, b: func(added, a, b, **rest))
    if func is torch.einsum and len(args) == 3:
        return _einsum_product(args[0], args[1], args[2], scores=scores)
    return None


def _einsum_product(equation: str, left: Tensor, right: Tensor, *, scores: bool) -> _Product | None:
    """An einsum such as `ibnd,jbnd->bnij`, its axes named by where they stand in the pattern [b, n, i, j]."""
    sources, result = equation.replace(" ", "").split("->")
    first, second = sources.split(",")
    pattern = result if scores else first
    if len(pattern) != 4 or len(first) != 4 or len(second) != 4:
        return None
    batch, head, query, key = pattern
    inner = next((axis for axis in second if axis not in pattern), None)
    if inner is None:
        return None

    def view(axes: str, order: str) -> _View:
        return _View(order=tuple(axes.index(axis) for axis in order))

    rows, columns = batch + head + query, batch + head + key
    if scores:
        views = (view(first, rows + inner), view(second, columns + inner), view(result, rows + key))
    else:
        views = (view(first, rows + key), view(second, columns + inner), view(result, rows + inner))
    return _Product(left, right, views, lambda a, b: torch.einsum(equation, a, b))


class AttentionOps(TorchFunctionMode):
    """Hands the operations of the attention call now running to a handler.

    `scope()` names the running call (None outside attention); `handler(scope)` gives what sees its tensors.
    """

    def __init__(
        self,
        scope: Callable[[], Hashable | None],
        handler: Callable[[Hashable], AttentionHandler],
        batch: Callable[[], int],
    ) -> None:
        super().__init__()
        self._scope, self._handler, self._batch = scope, handler, batch
        self._stage: dict[Hashable, str] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        scope = self._scope()
        if scope is None:
            return func(*args, **kwargs)
        stage = self._stage.get(scope, "start")
        if func in _SOFTMAXES:
            if stage == "scored":
                self._stage[scope] = "soft"
            return func(*args, **kwargs)
        if stage == "done" and func is torch.einsum and _projects(args[0]):
            self._stage[scope] = "projected"
            return self._handler(scope).projected(func(*args, **kwargs).transpose(0, 1)).transpose(0, 1)
        if stage not in ("start", "soft"):
            return func(*args, **kwargs)
        product = _product(func, args, kwargs, scores=stage == "start")
        if product is None or not product.covers(self._batch()):
            return func(*args, **kwargs)
        self._stage[scope] = "scored" if stage == "start" else "done"
        return self._pass(product, self._handler(scope), scores=stage == "start")

    def _pass(self, product: _Product, handler: AttentionHandler, *, scores: bool) -> Tensor:
        """Runs the product on the operands that the handler gives back."""
        batch = self._batch()
        left_view, right_view, result_view = product.views
        left, right = left_view.read(product.left, batch), right_view.read(product.right, batch)
        new_left, new_right = handler.scores(left, right) if scores else handler.mix(left, right)
        result = product.call(left_view.write(new_left), right_view.write(new_right))
        return result if scores else result_view.write(handler.mixed(result_view.read(result, batch)))


def _projects(equation: str) -> bool:
    """Whether an einsum contracts heads [T, B, H, dh] with a weight to [T, B, d]."""
    return equation.replace(" ", "") == "ibnd,hnd->ibh"
