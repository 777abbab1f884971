"""The oracle's attention: masks, scores and patterns recomputed from the family's own parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pellucid.families.blocks import Stack
from pellucid.families.case import Case, Finding, at, difference

_OUTPUTS = {"": "attentions", "encoder.": "encoder_attentions", "decoder.": "decoder_attentions"}


@dataclass(frozen=True)
class Place:
    """One attention of one block: `prefix` names its sites, `home` the stack whose stream it reads."""

    prefix: str
    home: str
    layer: int
    stack: Stack
    queries: Tensor  # [B, T], which queries are real
    keys: Tensor  # [B, S], which keys are real

    @property
    def is_cross(self) -> bool:
        """Whether it attends from the decoder to the encoder."""
        return self.prefix == "cross."

    def site(self, kind: str) -> str:
        """The name of one of its sites."""
        return f"{self.prefix}{kind}.{self.layer}"


def places(case: Case) -> Iterator[Place]:
    """Every attention of the model, block by block."""
    for prefix, stack in case.row.stacks.items():
        real = case.real(prefix)
        for layer in range(case.depth(stack)):
            yield Place(prefix, prefix, layer, stack, real, real)
            if stack.cross_out:
                yield Place("cross.", prefix, layer, stack, real, case.real("encoder."))


def check_attention(case: Case, place: Place) -> Iterator[Finding]:
    """Check the pattern of one attention, and what the heads make of it."""
    pattern, value, heads = place.site("pattern"), place.site("value"), place.site("heads")
    yield _rows(case, place)
    yield case.compare("pattern_eager", pattern, (), lambda: _own_pattern(case, place), place.queries)
    yield case.compare("heads", heads, (pattern, value), lambda p, v: _mix(place, p, v), place.queries)
    yield from _scores_checks(case, place)


def _mix(place: Place, pattern: Tensor, value: Tensor) -> Tensor:
    """pattern [B, H, T, S] times value [B, Hkv, S, dh], each value head shared by H/Hkv heads in a row."""
    value = value.masked_fill(~place.keys[:, None, :, None], 0.0)  # what padded keys hold is nobody's business
    return pattern @ value.repeat_interleave(pattern.shape[1] // value.shape[1], dim=1)


def _rows(case: Case, place: Place) -> Finding:
    """Rows of real queries hold all mass but the sink's, on keys that may be seen; other rows are zero."""
    site = place.site("pattern")
    needs = (site, place.site("query"), place.site("key")) if place.stack.sinks else (site,)
    wrong: list[str] = []

    def error(pattern: Tensor, *query_key: Tensor) -> float:
        seen = allowed(case, place)
        expected = _pattern(case, place, *query_key).sum(-1) if query_key else torch.ones(pattern.shape[:-1])
        parts = {
            "row sums": difference(pattern.sum(-1)[..., None], expected[..., None], place.queries),
            "mass in padded rows": float(at(pattern, ~place.queries).abs().sum()),
            "mass on keys that cannot be seen": float(
                at(pattern * ~seen, place.queries).abs().sum(),
            ),
        }
        bounds = {"row sums": case.tolerance}
        wrong.extend(name for name, size in parts.items() if not size <= bounds.get(name, 0.0))
        return max(parts.values()) if wrong else parts["row sums"]

    finding = case.judge("pattern_rows", site, needs, error)
    if not wrong:
        return finding
    return Finding("pattern_rows", site, finding.error, False, "wrong " + ", ".join(wrong))


def allowed(case: Case, place: Place) -> Tensor:
    """Which keys each query may see: [B, 1, T, S], from the masks, the direction and the window."""
    t, s = place.queries.shape[1], place.keys.shape[1]
    seen = place.keys[:, None, None, :].expand(-1, 1, t, s)
    if place.is_cross:
        return seen
    ahead = torch.arange(s)[None, :] - torch.arange(t)[:, None]  # key minus query
    if place.stack.causal:
        seen = seen & (ahead <= 0)
    width = _window(case, place)
    return seen if width is None else seen & (ahead.abs() <= width)


def _window(case: Case, place: Place) -> int | None:
    """How far away a key may be, None for any distance."""
    config, layer = case.model.config, place.layer
    match place.stack.window:
        case "every":
            return config.sliding_window - 1
        case "typed":
            return config.sliding_window - 1 if config.layer_types[layer] == "sliding_attention" else None
        case "local":
            return config.window_size - 1 if config.attention_layers[layer] == "local" else None
        case "centred":
            return config.local_attention // 2 if config.layer_types[layer] == "sliding_attention" else None
        case "longformer":
            return config.attention_window[layer] // 2
        case _:
            return None


def _own_pattern(case: Case, place: Place) -> Tensor:
    """The model's own attention weights [B, H, T, S]; windowed ones are laid out over all keys."""
    name = "cross_attentions" if place.is_cross else _OUTPUTS[place.prefix]
    weights = case.outputs.get(name)
    if not weights:
        raise RuntimeError("the model gave no attention weights of its own; pass an eager model")
    own = weights[place.layer].float()
    if place.stack.window != "longformer":
        return own
    batch, heads, t, span = own.shape
    wide = own.new_zeros(batch, heads, t, t + span - 1)  # column j + span//2 is key j
    columns = torch.arange(t)[:, None] + torch.arange(span)[None, :]
    wide.scatter_(-1, columns.expand(batch, heads, t, span), own)
    return wide[..., span // 2 : span // 2 + t]


def _scores_checks(case: Case, place: Place) -> Iterator[Finding]:
    """Recompute the pattern from query and key, or these from the stream where scores hold more."""
    pattern, query, key = place.site("pattern"), place.site("query"), place.site("key")
    if not place.stack.content:
        recomputed = case.compare("qk", pattern, (query, key), lambda q, k: _pattern(case, place, q, k), place.queries)
        yield recomputed
        return
    stream = f"{place.home}resid.{place.layer}"
    for site, which in ((query, 0), (key, 1)):
        yield case.judge("qk", site, (site, stream), _content_error(case, place, which), note="from the stream")


def _content_error(case: Case, place: Place, which: int) -> Callable[[Tensor, Tensor], float]:
    """How far a captured query (0) or key (1) is from its projection of the stream, scaled or not."""

    def error(found: Tensor, stream: Tensor) -> float:
        wanted = _project(case, place, stream, which)
        scales = (1.0,) if case.name == "xlnet" else (1.0, (3 * found.shape[-1]) ** -0.5)
        return min(difference(found, wanted * scale, place.queries) for scale in scales)

    return error


def _project(case: Case, place: Place, stream: Tensor, which: int) -> Tensor:
    """The content query (0) or key (1) of XLNet and DeBERTa: [B, T, d] to [B, H, T, dh]."""
    path = place.stack.content
    if case.name == "xlnet":
        weight = case.parameter(f"{path}.{'qk'[which]}", place.layer)  # [d, H, dh]
        bias = case.parameter(f"{path}.r_w_bias", place.layer)[:, None] if which == 0 else 0.0
        return torch.einsum("btm,mhd->bhtd", stream, weight) + bias
    heads = case.model.config.num_attention_heads
    if case.name == "deberta-v2":
        flat = case.linear(f"{path}.{('query_proj', 'key_proj')[which]}", stream, place.layer)
        return flat.unflatten(-1, (heads, -1)).transpose(1, 2)
    each = case.linear(f"{path}.in_proj", stream, place.layer).unflatten(-1, (heads, -1))  # q, k, v of each head
    split = each.chunk(3, dim=-1)[which].transpose(1, 2)
    if which == 1:
        return split
    return split + case.parameter(f"{path}.q_bias", place.layer).view(1, heads, 1, -1)


def _pattern(case: Case, place: Place, query: Tensor, key: Tensor) -> Tensor:
    """softmax(cap(scale · query · keyᵀ) + bias) over the keys that may be seen, less the sink."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = query @ key.transpose(-1, -2) * _scale(case, place, query.shape[-1])
    if place.stack.softcap:
        cap = case.setting(place.stack.softcap)
        scores = cap * torch.tanh(scores / cap)
    scores = (scores + _bias(case, place, scores)).masked_fill(~allowed(case, place), -torch.inf)
    if not place.stack.sinks:
        return scores.softmax(-1)
    sink = case.parameter(place.stack.sinks, place.layer).view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat((scores, sink), dim=-1).softmax(-1)[..., :-1]


def _scale(case: Case, place: Place, width: int) -> float:
    match place.stack.scale:
        case "one":
            return 1.0
        case "granite":
            return case.setting("attention_multiplier")
        case "gemma":
            return case.setting("query_pre_attn_scalar") ** -0.5
        case _:
            return width**-0.5


def _bias(case: Case, place: Place, scores: Tensor) -> Tensor:
    """What is added to the scores for position: a table of relative positions, ALiBi or nothing."""
    heads, t, s = scores.shape[1:]
    if place.is_cross or not (place.stack.bias or place.stack.alibi):
        return scores.new_zeros(1)
    if place.stack.alibi:
        slopes = torch.tensor([2.0 ** (-8 * (head + 1) / heads) for head in range(heads)])
        return slopes.view(1, heads, 1, 1) * torch.arange(s)
    table = case.parameter(f"{place.stack.bias}.weight", 0)  # [buckets, H]
    ahead = torch.arange(s)[None, :] - torch.arange(t)[:, None]
    distance = place.stack.bias_distance or int(case.setting("relative_attention_max_distance"))
    return table[_bucket(ahead, len(table), distance, both_ways=not place.stack.causal)].permute(2, 0, 1)


def _bucket(ahead: Tensor, buckets: int, furthest: int, *, both_ways: bool) -> Tensor:
    """T5's buckets of relative position: exact up to half of them, then logarithmic up to `furthest`."""
    chosen = torch.zeros_like(ahead)
    if both_ways:
        buckets //= 2
        chosen += buckets * (ahead > 0)
        distance = ahead.abs()
    else:
        distance = (-ahead).clamp_min(0)
    exact = buckets // 2
    log = (distance.clamp_min(1).float() / exact).log() / math.log(furthest / exact)
    far = (exact + (log * (buckets - exact)).long()).clamp_max(buckets - 1)
    return chosen + torch.where(distance < exact, distance, far)
