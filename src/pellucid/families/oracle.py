"""An oracle for captured tensors: it knows each family's own modules and recomposes the run from its parts.

It shares nothing with the code that captures; what it knows of the families stands in `blocks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.families.attention import Place, check_attention, places
from pellucid.families.blocks import ROWS, Experts, Stack
from pellucid.families.case import Case, Finding, at, difference
from pellucid.families.configs import Family

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Finding", "form", "recompose"]


def form(family: Family) -> str:
    """The form of the family's blocks that is checked: "pre", "post", "sandwich" or "parallel"."""
    return next(iter(ROWS[family.name].stacks.values())).form


@torch.no_grad()
def recompose(
    family: Family,
    hf_model: PreTrainedModel,
    captured: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    *,
    eager_model: PreTrainedModel | None = None,
    tolerance: float = 2e-5,
) -> list[Finding]:
    """Check captured tensors, keyed by site, against the model's parts and its own outputs.

    `eager_model` is a copy with the same weights under eager attention (default: `hf_model`, which must be
    eager then). Positions that are padding enter only where padding is checked. The tolerance is relative
    to the largest value of each reference: 2e-5 fits float32; 3e-2 fits bfloat16 under eager attention,
    while fused bfloat16 runs drift from eager ones and may even choose other experts.
    """
    outputs = dict(hf_model(**inputs, output_hidden_states=True))
    weights = (eager_model or hf_model)(**inputs, output_attentions=True)
    outputs.update((name, value) for name, value in weights.items() if name.endswith("attentions"))
    case = Case(family.name, hf_model, ROWS[family.name], captured, inputs, outputs, tolerance)
    found: list[Finding] = []
    for place in places(case):
        found.extend(check_attention(case, place))
        found.append(_attn(case, place))
    for prefix, stack in case.row.stacks.items():
        found.append(_embed(case, prefix, stack))
        for layer in range(case.depth(stack)):
            found.extend(_mlp(case, prefix, stack, layer))
            found.extend(_stream(case, prefix, stack, layer))
        found.extend(_hidden_states(case, prefix, stack))
    found.append(_logits(case))
    return found


def _embed(case: Case, prefix: str, stack: Stack) -> Finding:
    """The rows of the embedding table, times the scale that the embedding module itself applies."""
    module: Any = case.module(stack.embedding)
    scale = float(module.embed_scale) if stack.scaled_embedding else 1.0
    rows = case.parameter(f"{stack.embedding}.weight", 0)[case.ids(prefix)] * scale
    return case.compare("embed", f"{prefix}embed", (), lambda: rows, case.real(prefix))


def _attn(case: Case, place: Place) -> Finding:
    """The output projection of the heads, then the block's output norm and multiplier."""
    stack, layer = place.stack, place.layer
    path = stack.cross_out if place.is_cross else stack.attn_out

    def reference(heads: Tensor) -> Tensor:
        if stack.orientation == "einsum":
            out = torch.einsum("bhtd,mhd->btm", heads, case.parameter(f"{path}.o", layer))
        else:
            joined = heads.transpose(1, 2).flatten(2)  # [B, T, H·dh]
            out = case.linear(path, joined, layer, transposed=stack.orientation == "conv1d")
        return _added(case, stack, out, stack.attn_norm, layer)

    return case.compare("attn", place.site("attn"), (place.site("heads"),), reference, place.queries)


def _added(case: Case, stack: Stack, out: Tensor, norm: str, layer: int) -> Tensor:
    """What a sub-layer adds to the stream, given the output of its last projection."""
    if stack.form == "sandwich":
        out = case.norm(norm, out, layer)
    return out * case.setting(stack.multiplier) if stack.multiplier else out


def _mlp(case: Case, prefix: str, stack: Stack, layer: int) -> Iterator[Finding]:
    """The down-projection of the neurons, or of every expert's neurons weighted by the routing."""
    neurons, mlp, real = f"{prefix}neurons.{layer}", f"{prefix}mlp.{layer}", case.real(prefix)
    experts = stack.experts
    if experts is not None and layer >= _first_sparse(case, experts):
        routing = f"{prefix}routing.{layer}"
        needs = (neurons, routing)
        yield case.compare("mlp", mlp, needs, lambda n, r: _expert_sum(case, experts, layer, n, r), real)
        yield _routing(case, experts, prefix, layer)
        return

    def reference(hidden: Tensor) -> Tensor:
        out = case.linear(stack.mlp_down, hidden, layer, transposed=stack.orientation == "conv1d")
        return _added(case, stack, out, stack.mlp_norm, layer)

    yield case.compare("mlp", mlp, (neurons,), reference, real)


def _first_sparse(case: Case, experts: Experts) -> int:
    return int(case.setting(experts.first_attribute)) if experts.first_attribute else 0


def _expert_sum(case: Case, experts: Experts, layer: int, neurons: Tensor, routing: Tensor) -> Tensor:
    """Σ over experts of routing [B, T, E] times down_e(neurons_e), and the shared expert: [B, T, d]."""
    module = case.module(experts.experts, layer)
    down = module.get_parameter("down_proj").float()
    down = down if experts.transposed else down.transpose(1, 2)  # [E, n, d]
    count, width, _ = down.shape
    routed = neurons[..., : count * width].unflatten(-1, (count, width))
    total = torch.einsum("bte,bten,end->btd", routing, routed, down)
    if experts.transposed:
        total = total + routing @ module.get_parameter("down_proj_bias").float()
    if experts.shared:
        total = total + case.linear(experts.shared, neurons[..., count * width :], layer)
    return total


def _routing(case: Case, experts: Experts, prefix: str, layer: int) -> Finding:
    """The router's weights for the normed stream; neurons of experts that were not chosen are zero."""
    routing, neurons, mid = (f"{prefix}{kind}.{layer}" for kind in ("routing", "neurons", "mid"))
    real = case.real(prefix)

    def error(found: Tensor, units: Tensor, stream: Tensor) -> float:
        x = case.norm(experts.norm, stream, layer).to(case.model.dtype)
        _, weights, chosen = case.module(experts.router, layer).forward(x.flatten(0, 1))
        wanted = torch.zeros(len(weights), found.shape[-1]).scatter_(1, chosen, weights.float())
        width = case.module(experts.experts, layer).get_parameter("down_proj").numel()
        width //= found.shape[-1] * stream.shape[-1]
        routed = units[..., : found.shape[-1] * width].unflatten(-1, (-1, width))
        idle = at((routed * (found == 0)[..., None]).flatten(2), real).abs().max()
        return max(difference(found, wanted.view_as(found), real), float(idle))

    return case.judge("routing", routing, (routing, neurons, mid), error)


def _stream(case: Case, prefix: str, stack: Stack, layer: int) -> Iterator[Finding]:
    """From `resid.l` over `mid` (and the cross attention) to `resid.(l+1)`, by the form of the block."""
    real = case.real(prefix)
    post = stack.form == "post"
    steps = [(f"{prefix}resid.{layer}", f"{prefix}attn.{layer}", f"{prefix}mid.{layer}", stack.attn_norm)]
    if stack.cross_out:
        steps.append((f"{prefix}mid.{layer}", f"cross.attn.{layer}", f"cross.mid.{layer}", stack.cross_norm))
    last = steps[-1][2]
    steps.append((last, f"{prefix}mlp.{layer}", f"{prefix}resid.{layer + 1}", stack.mlp_norm))
    for before, addition, after, norm in steps:

        def reference(x: Tensor, y: Tensor, norm: str = norm) -> Tensor:
            return case.norm(norm, x + y, layer) if post else x + y

        yield case.compare("stream", after, (before, addition), reference, real, note=stack.form)


def _hidden_states(case: Case, prefix: str, stack: Stack) -> Iterator[Finding]:
    """The streams are the model's own hidden states; the last of those comes after the final norm."""
    own = case.outputs["hidden_states" if not prefix else f"{prefix[:-1]}_hidden_states"]
    real, depth = case.real(prefix), case.depth(stack)
    for layer in range(depth):
        state = own[layer].float()
        yield case.compare("hidden_states", f"{prefix}resid.{layer}", (), lambda s=state: s, real)
    last = f"{prefix}resid.{depth}"

    def error(stream: Tensor) -> float:
        return difference(_finished(case, stack, stream), own[depth].float(), real)

    yield case.judge("hidden_states", last, (last,), error, note="after the final norm" if stack.final_norm else "")


def _finished(case: Case, stack: Stack, stream: Tensor) -> Tensor:
    return case.norm(stack.final_norm, stream) if stack.final_norm else stream


def _logits(case: Case) -> Finding:
    """The head applied to the last stream of the only stack, or of the decoder."""
    prefix, stack = list(case.row.stacks.items())[-1]
    head = case.row.head
    if "logits" not in case.outputs:
        return Finding("logits", "logits", 0.0, True, "not applicable: the model has no head")

    def reference(stream: Tensor) -> Tensor:
        x = _finished(case, stack, stream)
        if head.dense:
            by_tanh = head.activation == "config" and case.model.config.hidden_act == "gelu_new"
            approximation = "tanh" if by_tanh else "none"
            x = torch.nn.functional.gelu(case.linear(head.dense, x), approximate=approximation)
            x = case.norm(head.norm, x)
        logits = case.linear(head.out, x * stream.shape[-1] ** -0.5 if head.by_width else x)
        if head.multiply:
            logits = logits * case.setting(head.multiply)
        if head.divide:
            logits = logits / case.setting(head.divide)
        if head.softcap:
            cap = case.setting(head.softcap)
            logits = cap * torch.tanh(logits / cap)
        return logits + case.model.get_buffer(head.bias).float() if head.bias else logits

    return case.compare("logits", "logits", (f"{prefix}resid.{case.depth(stack)}",), reference, case.real(prefix))
