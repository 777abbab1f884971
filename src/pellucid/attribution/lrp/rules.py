"""Rules of layer-wise relevance propagation, as changes of the gradient of one network's operations during a pass.

Relevance is activation × changed gradient. While a `Rules` mode is entered, the operations that need a rule (softmax,
normalisations, products, non-linearities) are seen as they are called, give the very values of the network, and get
the gradient of their rule; all others are linear and keep their own. Nothing in the network is touched.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from pellucid.attribution.lrp.alpha_beta import shared_norm, shared_product, shared_softmax, shared_sum
from pellucid.attribution.lrp.ledger import BIASES, CONSTANTS, SOFTMAX, STABILISER, Ledger, times
from pellucid.errors import AttributionError
from pellucid.model.gradient import exactly

EPSILON = 1e-8
"""The stabiliser of the epsilon rule: R_i = Σ_j x_i·w_ij/(z_j + ε·sign z_j)·R_j."""

VOITA, ATTENTION, CONSTANT_PATTERN = "lrp_voita", "lrp_attn", "lrp_cp"
"""The sets of rules: Voita et al. (2019, 2021), Achtibat et al. (2024), Ali et al. (2022)."""

_CURVED = (
    *("gelu", "silu", "tanh", "mish", "hardswish", "elu", "selu", "celu", "softsign", "hardtanh", "relu6", "square"),
    *("erf", "rms_norm", "normalize"),
)
"""Functions of one tensor that are 0 at 0 and pass relevance on unchanged; piecewise linear ones need no rule."""
_FACTORS = (
    *("rsqrt", "sqrt", "exp", "sigmoid", "hardsigmoid", "softplus", "reciprocal", "__rdiv__", "__rtruediv__"),
    *("norm", "vector_norm", "var", "std"),
)
"""Functions whose results scale something else; they are constant factors."""
_PRODUCTS = ("matmul", "__matmul__", "bmm", "mm")
_SUMS = ("add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "subtract", "__sub__", "__isub__")
_REVERSED = ("rsub", "__rsub__")

Rule = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Rules(TorchFunctionMode):
    """The operations of the block run under a set of rules; `ledger` learns what they keep in the backward pass.

    `attentions` counts the softmaxes over tokens that were seen.
    """

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__()
        self.name, self.ledger, self.attentions = name, ledger, 0
        self._thread = threading.get_ident()
        self._rules: dict[str, Rule] = {
            "linear": self._linear,
            "addmm": self._added_product,
            "baddbmm": self._added_product,
            "einsum": self._einsum,
            "softmax": self._softmax,
            "scaled_dot_product_attention": self._attention,
            "layer_norm": self._layer_norm,
            "pow": self._power,
            "__pow__": self._power,
            "glu": self._glu,
            "clamp": self._clamped,
            "clamp_": self._clamped,
            "cat": self._joined,
            "multi_head_attention_forward": _refused,
            **dict.fromkeys(_PRODUCTS, self._product),
            **dict.fromkeys(("mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply"), self._multiply),
            **dict.fromkeys(("div", "div_", "divide", "true_divide", "__truediv__"), self._divide),
            **dict.fromkeys((*_SUMS, *_REVERSED), self._sum),
            **dict.fromkeys(_CURVED, self._curved),
            **dict.fromkeys(_FACTORS, _factor),
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        rule = self._rules.get(getattr(func, "__name__", ""))
        if rule is None or not torch.is_grad_enabled():
            return func(*args, **(kwargs or {}))
        return rule(func, args, kwargs or {})

    def straight(self, given: Tensor, made: Tensor) -> Tensor:
        """An output of a non-linearity that passes relevance on unchanged: its gradient is output / input."""
        if not given.requires_grad or given.shape != made.shape or threading.get_ident() != self._thread:
            return made
        value, at = made.detach(), given.detach()
        ratio = torch.where(at == 0, torch.zeros_like(value), value / at)
        return exactly(value, gradient_of=given * ratio)

    # -- products ----------------------------------------------------------------------------------------------------

    def _linear(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        given, weight, bias = _named(args, kwargs, "input", "weight", "bias")
        return self._weighed(func(*args, **kwargs), F.linear, given, weight, bias, BIASES)

    def _product(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        left, right = args[0], args[1] if len(args) > 1 else next(iter(kwargs.values()))
        return self._weighed(func(*args, **kwargs), torch.matmul, left, right)

    def _added_product(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        added, left, right = [*args, *(kwargs[name] for name in ("batch1", "batch2", "mat1", "mat2") if name in kwargs)]
        alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)

        def product(one: Tensor, other: Tensor) -> Tensor:
            return alpha * torch.matmul(one, other)

        constant = beta * added if beta else None
        keeper = BIASES if added.dim() == 1 else CONSTANTS
        return self._weighed(func(*args, **kwargs), product, left, right, constant, keeper)

    def _einsum(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        equation, *given = args
        operands: list[Tensor] = list(given[0]) if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
        made = func(*args, **kwargs)
        if len(operands) != 2:
            return made
        return self._weighed(made, lambda one, other: torch.einsum(equation, one, other), operands[0], operands[1])

    def _weighed(
        self,
        made: Tensor,
        function: Callable[[Tensor, Tensor], Tensor],
        left: Tensor,
        right: Tensor,
        constant: Tensor | None = None,
        keeper: str = BIASES,
    ) -> Tensor:
        """A product of activations with weights, or of two activations (each then gets half), plus a constant."""
        if not (left.requires_grad or right.requires_grad):
            return made
        if self.name == VOITA:
            return shared_product(function, left, right, made, self.ledger)
        both = left.requires_grad and right.requires_grad and self.name != CONSTANT_PATTERN
        return self._stable(made, 0.5 if both else 1.0, constant, keeper)

    def _multiply(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        made = func(*args, **kwargs)
        return self._stable(made, 0.5) if len(args) > 1 and all(map(_live, args[:2])) else made

    def _stable(self, made: Tensor, share: float, constant: Tensor | None = None, keeper: str = BIASES) -> Tensor:
        """An output under the epsilon rule, whose gradient goes on to each input times `share`."""
        value, ledger = made.detach(), self.ledger
        constant = None if constant is None else constant.detach()

        def back(slope: Tensor) -> Tensor:
            size = value.abs()
            passed = slope * (size / (size + EPSILON))
            ledger.keep(STABILISER, (slope - passed) * value)
            if constant is not None:
                ledger.keep(keeper, passed * constant)
            return passed * share

        made.register_hook(back)  # pyright: ignore[reportUnknownMemberType]
        return made.clone()  # of its own: a site there has the gradient before the rule, and changes in place spare it

    def _divide(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        if len(args) > 1 and _live(args[1]):
            args = (args[0], args[1].detach(), *args[2:])
        return func(*args, **kwargs)

    # -- sums --------------------------------------------------------------------------------------------------------

    def _sum(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        first, second = args[0], args[1] if len(args) > 1 else kwargs["other"]
        if not (_live(first) or _live(second)):
            return func(*args, **kwargs)
        if func.__name__ in _REVERSED:
            first, second = second, first
        factor = kwargs.get("alpha", 1) * (-1 if "sub" in func.__name__ else 1)
        summands = (first, second if factor == 1 else factor * second)
        live = [one for one in summands if _live(one)]
        fixed = [one for one in summands if not _live(one)]
        if self.name == VOITA:
            return self._shared_sum(lambda: func(*args, **kwargs), live, fixed)
        made = func(*args, **kwargs)
        if fixed:
            constant, ledger = fixed[0], self.ledger
            keeper = _keeper(constant)
            made.register_hook(lambda slope: ledger.keep(keeper, times(slope, constant)))
        return made

    def _shared_sum(self, call: Callable[[], Tensor], live: list[Tensor], fixed: list[Any]) -> Tensor:
        """A sum under the alpha-beta rule; its shares are made first, since the sum may be made in place."""
        first = live[0].clone()
        if fixed and _keeper(fixed[0]) == BIASES:
            return self.straight(first, call())  # as in linear layers, a bias leaves its share to what it is added to
        second = live[1].clone() if len(live) == 2 else torch.as_tensor(fixed[0], dtype=first.dtype).to(first.device)
        return shared_sum(first, second, call(), self.ledger, constant=CONSTANTS if fixed else None)

    def _joined(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Pieces beside one another, some of which may be constant."""
        made, pieces = func(*args, **kwargs), list[Any](args[0] if args else kwargs["tensors"])
        if _live(made) and made.dim() > 1 and not all(map(_live, pieces)):
            kept = [torch.zeros_like(piece) if _live(piece) else piece for piece in pieces]
            constant, ledger = func(kept, *args[1:], **kwargs), self.ledger
            made.register_hook(lambda slope: ledger.keep(CONSTANTS, times(slope, constant)))
        return made

    # -- attention ---------------------------------------------------------------------------------------------------

    def _softmax(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        scores, dim = _named(args, kwargs, "input", "dim")
        return self._weights(scores, func(*args, **kwargs), -1 if dim is None else dim)

    def _weights(self, scores: Tensor, weights: Tensor, dim: int) -> Tensor:
        self.attentions += scores.dim() > 2
        if not weights.requires_grad:
            return weights
        if self.name == CONSTANT_PATTERN:
            return weights.detach()
        if self.name == VOITA:
            return shared_softmax(scores, weights, dim, self.ledger)
        part, at, ledger = weights.detach(), scores.detach().to(weights.dtype), self.ledger

        def back(slope: Tensor) -> None:  # R_i = x_i·(R_i − s_i·ΣR): the softmax's own gradient; the rest is kept
            relevance = part * slope
            passed = relevance - part * relevance.sum(dim=dim, keepdim=True)
            ledger.keep(SOFTMAX, relevance - times(passed, at))

        weights.register_hook(back)
        return weights

    def _attention(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Fused attention: its own value, with the gradient of the same steps taken one by one under their rules."""
        query, key, value, mask, _, causal = _named(
            args, kwargs, "query", "key", "value", "attn_mask", "dropout_p", "is_causal"
        )
        made = func(*args, **kwargs)
        groups = query.shape[-3] // key.shape[-3] if kwargs.get("enable_gqa") else 1
        if groups > 1:
            key, value = key.repeat_interleave(groups, dim=-3), value.repeat_interleave(groups, dim=-3)
        scale = kwargs.get("scale")
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        least = torch.finfo(query.dtype).min  # not −∞: padded rows may see nothing, and must not become NaN
        with self:
            scores = torch.matmul(query, key.transpose(-1, -2)) * scale
            if causal:
                mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            if mask is not None:
                hidden = mask.dtype == torch.bool
                scores = scores.masked_fill(~mask, least) if hidden else scores + mask.clamp(min=least)
            mixed = torch.matmul(F.softmax(scores, dim=-1), value)
        return exactly(made, gradient_of=mixed) if mixed.requires_grad else made

    # -- functions of one tensor -------------------------------------------------------------------------------------

    def _layer_norm(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        given, shape, weight, bias, eps = _named(args, kwargs, "input", "normalized_shape", "weight", "bias", "eps")
        made = func(*args, **kwargs)
        if not _live(given):
            return made
        eps = 1e-5 if eps is None else eps
        if self.name == VOITA:
            return shared_norm(given, made, weight, eps, math.prod(shape), self.ledger)
        axes = tuple(range(-len(shape), 0))
        centred = given - given.mean(dim=axes, keepdim=True)
        factor = torch.rsqrt(centred.square().mean(dim=axes, keepdim=True) + eps).detach()
        scaled = centred * factor if weight is None else centred * factor * weight
        out = exactly(made, gradient_of=scaled.to(made.dtype))
        if bias is not None:
            ledger, constant = self.ledger, bias.detach()
            out.register_hook(lambda slope: ledger.keep(BIASES, slope * constant))
        return out

    def _curved(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        given = args[0] if args else kwargs["input"]
        if not _live(given) or kwargs.get("inplace"):
            return func(*args, **kwargs)
        return self.straight(given, func(*args, **kwargs))

    def _clamped(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        given, *limits = args
        if not _live(given):
            return func(*args, **kwargs)
        made = self.straight(given.clone(), torch.clamp(given, *limits, **kwargs))
        return given.copy_(made) if func.__name__ == "clamp_" else made

    def _power(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        given, exponent = _named(args, kwargs, "input", "exponent")
        if _live(given) and isinstance(exponent, (int, float)) and exponent >= 1:
            return self.straight(given, func(*args, **kwargs))
        return _factor(func, args, kwargs)

    def _glu(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        given, dim = _named(args, kwargs, "input", "dim")
        made = func(*args, **kwargs)
        if not _live(given):
            return made
        passed, gate = given.chunk(2, dim=-1 if dim is None else dim)
        return exactly(made, gradient_of=passed * torch.sigmoid(gate).detach())


def nonlinearities(network: nn.Module) -> Iterable[nn.Module]:
    """The parts of a network that compute a non-linearity from several operations, to be taken as one."""
    for part in network.modules():
        kind = type(part)
        name = kind.__name__.lower()
        written_out = not kind.__module__.startswith("torch.") and not list(part.children())
        named = any(word in name for word in ("gelu", "silu", "swish", "mish", "relu"))
        if written_out and (kind.__module__ == "transformers.activations" or named):
            yield part


def _named(args: tuple[Any, ...], kwargs: dict[str, Any], *names: str) -> list[Any]:
    """Arguments by name, wherever they stand; None where they are left out."""
    return [args[place] if place < len(args) else kwargs.get(name) for place, name in enumerate(names)]


def _live(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _keeper(constant: Any) -> str:
    """A vector added to every token is a bias; what differs from token to token is not."""
    alike = isinstance(constant, Tensor) and constant.dim() > 0 and constant.numel() == constant.shape[-1]
    return BIASES if alike and constant.dim() < 3 else CONSTANTS


def _factor(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A result that scales other tensors and gets no relevance itself."""
    made = func(*args, **kwargs)
    return made.detach() if _live(made) else made


def _refused(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise AttributionError(
        "This network computes attention inside torch's own MultiheadAttention, in one step that relevance propagation "
        "cannot look into; use integrated_gradients or conductance."
    )
