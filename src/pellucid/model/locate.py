"""Finding a model's sites from the trace of one probe pass: no per-family adapters, every claim checked by numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.model.experts import is_experts
from pellucid.model.probe import Attention, Call, Trace
from pellucid.model.sites import Site
from pellucid.model.spans import Span, find_spans
from pellucid.model.taps import Layout, Located, Tap, Window


@dataclass
class _Findings:
    """What has been found so far; becomes a `Located`."""

    taps: dict[Site, Tap] = field(default_factory=dict[Site, Tap])
    attention: dict[tuple[str, int], Site] = field(default_factory=dict[tuple[str, int], Site])
    experts: dict[tuple[str, int], Site] = field(default_factory=dict[tuple[str, int], Site])
    shared: dict[Site, Tap] = field(default_factory=dict[Site, Tap])
    sums: dict[Site, tuple[Site, Site]] = field(default_factory=dict[Site, tuple[Site, Site]])
    edit_taps: dict[Site, Tap] = field(default_factory=dict[Site, Tap])
    forms: dict[str | None, str] = field(default_factory=dict[str | None, str])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    windows: dict[Site, Window] = field(default_factory=dict[Site, Window])
    inline: set[Site] = field(default_factory=set[Site])
    read_only: dict[Site, str] = field(default_factory=dict[Site, str])


def locate(trace: Trace, *, encoder_decoder: bool, interface: bool) -> Located:
    """Where every site is, from one traced pass; what cannot be found is in `missing`, with the reason."""
    found = _Findings()
    for span in find_spans(trace, encoder_decoder=encoder_decoder):
        _locate_block(trace, span, found)
    _locate_embeddings(trace, found, encoder_decoder=encoder_decoder)
    _locate_logits(trace, found)
    return Located(
        found.taps,
        found.attention,
        experts=found.experts,
        shared=found.shared,
        sums=found.sums,
        edit_taps=found.edit_taps,
        forms=found.forms,
        missing=found.missing,
        windows=found.windows,
        inline=frozenset(found.inline),
        repeated=frozenset(call.name for call in trace.calls if call.number > 0),
        read_only=found.read_only,
        interface=interface,
    )


@dataclass(frozen=True)
class _Branch:
    """A sub-layer's contribution to the stream: the tap where it passes and its value [B, T, d]."""

    tap: Tap | None
    value: Tensor
    normed: bool = False


def _locate_block(trace: Trace, span: Span, found: _Findings) -> None:
    """All sites of one block."""
    at = Site("resid", span.layer, span.stack)
    found.taps[at] = span.entry_tap
    if span.last:
        found.taps[at.beside("resid", span.layer + 1)] = span.exit_tap
    branches: list[tuple[Site, _Branch]] = []
    for attention in span.attention:
        site = Site("attn", span.layer, "cross" if attention.crossed else span.stack)
        branch = _locate_attention(trace, span, attention, site, found)
        if branch is not None:
            branches.append((site, branch))
    mlp = _locate_mlp(trace, span, found)
    _settle_form(span, branches, mlp, found)
    if span.loose:
        _settle_loose(span, found)


def _settle_loose(span: Span, found: _Findings) -> None:
    """Where the stream of a block without a module of its own can be changed: at the norm ending the block before."""
    ends = [(span.layer, span.entry_edit), *([(span.layer + 1, span.exit_edit)] if span.last else [])]
    for layer, tap in ends:
        site = Site("resid", layer, span.stack)
        if found.forms.get(span.stack) == "post-norm" and tap is not None:
            found.edit_taps[site] = tap
        else:
            found.read_only[site] = "this model has no module through which the whole stream passes here"


def _locate_attention(trace: Trace, span: Span, attention: Attention, site: Site, found: _Findings) -> _Branch | None:
    """The attention call itself, its output projection, and what it adds to the stream."""
    owner = trace.calls[attention.owner]
    assert attention.heads is not None
    heads = attention.heads
    layout = Layout(heads=heads.shape[1], crop=span.layout.crop)
    if attention.windowed:
        _locate_window(owner, site, layout, found)
    else:
        found.attention[(owner.name, attention.number)] = site
    flat = heads.transpose(1, 2).flatten(2)  # [B, T, H·dh]
    for call in span.calls:
        if call.start > attention.order and _linear(call.module) and _same(_tokens(call.input, trace.batch), flat):
            slot = call.input_slot
            assert slot is not None
            found.taps[site.beside("heads")] = Tap(call.name, "input", slot, call.number, layout)
            return _follow(span, call, trace.batch)
    if attention.projected is not None:
        found.inline.update((site.beside("heads"), site))
        return _Branch(None, attention.projected)
    found.missing[str(site.beside("heads"))] = "no linear layer takes the attention output as its input"
    return None


def _locate_window(owner: Call, site: Site, layout: Layout, found: _Findings) -> None:
    """Query, key and value of chunked attention, from its three projections (which put time first)."""
    module: Any = owner.module
    layout = Layout(time_first=True, heads=layout.heads, crop=True)
    for kind in ("query", "key", "value"):
        scale = module.head_dim**-0.5 if kind == "query" else 1.0
        found.taps[site.beside(kind)] = Tap(f"{owner.name}.{kind}", "output", (), owner.number, layout, scale=scale)
    pattern = site.beside("pattern")
    if owner.inputs["kwargs"].get("is_global_attn"):
        found.missing[str(pattern)] = "this model uses global attention, whose pattern is not one T × T matrix"
        return
    found.windows[pattern] = Window(owner.name, module.one_sided_attn_window_size)
    found.read_only[pattern] = "this model computes attention in chunks of a window and never forms the whole pattern"


def _locate_mlp(trace: Trace, span: Span, found: _Findings) -> _Branch | None:
    """The MLP's hidden units and what it adds to the stream."""
    site = Site("mlp", span.layer, span.stack)
    experts = [call for call in span.calls if is_experts(call.module)]
    if experts:
        call = experts[-1]
        found.experts[(call.name, call.number)] = site
        outer = next(other for other in span.calls if other.start <= call.start and other.end >= call.end)
        shared = [
            other
            for other in span.calls
            if outer.start < other.start and call.end < other.start and other.end < outer.end
        ]
        down = [other for other in shared if _linear(other.module) and _fits(other.result, span)]
        if down:
            slot = down[-1].input_slot
            assert slot is not None
            found.shared[site.beside("neurons")] = Tap(down[-1].name, "input", slot, down[-1].number, span.layout)
        early = [other for other in span.calls if outer.start < other.start and other.end < call.start]
        if any(_linear(other.module) and _fits(other.result, span) for other in early):
            found.missing[f"shared units of {site.beside('neurons')}"] = "the shared expert runs before the routed ones"
        return _follow(span, outer, trace.batch)
    taken = {(tap.module, tap.call) for tap in found.taps.values()}
    outside = [
        call
        for call in span.calls
        if _linear(call.module)
        and _fits(call.result, span)
        and (call.name, call.number) not in taken
        and not any(_within(call, trace.calls[attention.owner]) for attention in span.attention)
    ]
    if not outside:
        found.missing[str(site.beside("neurons"))] = (
            "no linear layer outside attention writes to the stream in this block"
        )
        return None
    call = outside[-1]
    slot = call.input_slot
    assert slot is not None
    found.taps[site.beside("neurons")] = Tap(call.name, "input", slot, call.number, span.layout)
    return _follow(span, call, trace.batch)


def _follow(span: Span, call: Call, batch: int) -> _Branch:
    """The contribution that starts at `call`, followed through modules that take exactly it (dropout, output norms)."""
    normed = False
    for later in span.calls:
        takes_it = later.start > call.end and not _linear(later.module) and _same(later.input, call.result)
        if takes_it and _fits(later.result, span):
            normed = normed or not _same(later.result, call.result)
            call = later
    slot = call.output_slot
    assert slot is not None and call.result is not None
    scale = float(getattr(span.module, "residual_multiplier", 1.0))
    tap = Tap(call.name, "output", slot, call.number, span.layout, scale=scale)
    return _Branch(tap, span.layout.read(call.result, batch, None) * scale, normed)


def _settle_form(span: Span, branches: Sequence[tuple[Site, _Branch]], mlp: _Branch | None, found: _Findings) -> None:
    """Checks by numbers how the block recomposes its stream, and names the sites that follow from it."""
    mlp_site = Site("mlp", span.layer, span.stack)
    parts = [*branches, *([(mlp_site, mlp)] if mlp is not None else [])]
    total = span.entry + sum(branch.value for _, branch in parts) if parts else span.entry
    if len(parts) == len(span.attention) + 1 and _close(total, span.exit):
        base = mlp_site.beside("resid")
        stream = span.entry
        for site, branch in branches:
            found.sums[site.beside("mid")] = (base, site)
            base, stream = site.beside("mid"), stream + branch.value
        form = "sandwich" if any(branch.normed for _, branch in parts) else "pre-norm"
        mlp_reads_mid = any(_close(_tokens(call.input, span.entry.shape[0]), stream) for call in span.calls)
        found.forms.setdefault(span.stack, form if mlp_reads_mid else "parallel")
    elif not _settle_post_norm(span, branches, mlp, found):
        reason = "the block's stream could not be recomposed from its attention and MLP outputs"
        for kind in ("attn", "mlp", "mid", "neurons"):
            found.missing[str(mlp_site.beside(kind))] = reason
        found.taps.pop(mlp_site.beside("neurons"), None)
        for place in [place for place, site in found.experts.items() if site == mlp_site]:
            del found.experts[place]
        return
    for site, branch in parts:
        if branch.tap is not None:
            found.taps[site] = branch.tap


def _settle_post_norm(
    span: Span, branches: Sequence[tuple[Site, _Branch]], mlp: _Branch | None, found: _Findings
) -> bool:
    """LN(resid + attn) = mid for each attention, then LN(mid + mlp) = resid: the modules that do it, if they exist."""
    if mlp is None or len(branches) != len(span.attention):
        return False
    stream, mids = span.entry, dict[Site, Tap]()
    for site, branch in branches:
        norm = _norm_of(span, stream + branch.value)
        if norm is None:
            return False
        mids[site.beside("mid")] = Tap(norm.name, "output", (), norm.number, span.layout)
        stream = span.layout.read(norm.output, span.entry.shape[0], None)
    last = _norm_of(span, stream + mlp.value)
    if last is None or not _close(span.layout.read(last.output, span.entry.shape[0], None), span.exit):
        return False
    found.taps.update(mids)
    found.forms.setdefault(span.stack, "post-norm")
    return True


def _norm_of(span: Span, value: Tensor) -> Call | None:
    """The module that takes exactly `value` and gives a tensor of the stream's width."""
    errors: list[tuple[float, int, Call]] = []
    for place, call in enumerate(span.calls):
        if (
            call.input is not None
            and call.input.dim() == 3
            and isinstance(call.output, Tensor)
            and _fits(call.output, span)
            and not list(call.module.children())
        ):
            entering = span.layout.read(call.input, value.shape[0], None)
            if _close(entering, value):
                errors.append((float((entering - value).abs().max()), place, call))
    return min(errors)[2] if errors else None


def _locate_embeddings(trace: Trace, found: _Findings, *, encoder_decoder: bool) -> None:
    """The token embedding of each stack: the embedding module that is called with the token ids."""
    sources: list[tuple[str | None, str]] = (
        [("encoder", "input_ids"), ("decoder", "decoder_input_ids")] if encoder_decoder else [(None, "input_ids")]
    )
    for stack, name in sources:
        ids = trace.inputs[name]
        for call in trace.calls:
            given = call.inputs["args"][0] if call.inputs["args"] else next(iter(call.inputs["kwargs"].values()), None)
            if not isinstance(call.module, nn.Embedding) or not isinstance(given, Tensor):
                continue
            time_first = _starts_with(given.T, ids) and not _starts_with(given, ids)
            if _starts_with(given, ids) or time_first:
                layout = Layout(time_first=time_first, crop=given.shape[1] > ids.shape[1] and not time_first)
                found.taps[Site("embed", None, stack)] = Tap(call.name, "output", (), call.number, layout)
                break
        else:
            found.missing[str(Site("embed", None, stack))] = "no embedding module is called with the token ids"


def _locate_logits(trace: Trace, found: _Findings) -> None:
    """The model's scores, where it has a head."""
    if "logits" in trace.output:
        found.taps[Site("logits")] = Tap("", "output", ("logits",), layout=Layout(native=True))
    elif "start_logits" in trace.output:
        call = next(call for call in trace.calls if call.name.rpartition(".")[2] == "qa_outputs")
        found.taps[Site("logits")] = Tap(call.name, "output", (), call.number, Layout(native=True))
    else:
        found.missing["logits"] = "the model was loaded without a head"


def _starts_with(given: Tensor, ids: Tensor) -> bool:
    """Whether a matrix of ids begins with the batch's ids (models that pad to their window add some)."""
    return given.dim() == 2 and given.shape[0] == ids.shape[0] and torch.equal(given[:, : ids.shape[1]], ids)


def _linear(module: nn.Module) -> bool:
    """Whether a module multiplies by a matrix: a linear layer, transformers' Conv1D or a quantised relative."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 2 and not isinstance(module, nn.Embedding)


def _within(call: Call, owner: Call) -> bool:
    return owner.start <= call.start and call.end <= owner.end


def _tokens(value: Tensor | None, batch: int) -> Tensor | None:
    """A tensor over tokens with its batch axis apart, where it had been flattened away."""
    return (
        value.unflatten(0, (batch, -1))
        if value is not None and value.dim() == 2 and value.shape[0] % batch == 0
        else value
    )


def _fits(value: Tensor | None, span: Span) -> bool:
    """Whether a tensor has the stream's width for every token (an expert's output has it for some only)."""
    return value is not None and value.shape[-1] == span.width and value.numel() == span.entry.numel()


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape and torch.equal(one, other)


def _close(one: Tensor | None, other: Tensor) -> bool:
    """Equal up to the rounding of a few additions in the tensors' own precision."""
    if one is None or one.shape != other.shape:
        return False
    tolerance = 8 * torch.finfo(other.dtype).eps * float(other.abs().max())
    return bool((one - other).abs().max() <= tolerance)
