"""Watching attention that is written inline: every way of multiplying is seen, shown as [B, H, ·, ·] and
replaceable."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from pellucid.model.watch import AttentionOps

B, H, T, DH = 2, 3, 4, 5


class Handler:
    """Keeps what passes and changes it where told to."""

    def __init__(self, **changes):
        self.seen, self.changes = {}, changes

    def _pass(self, name, tensor):
        self.seen[name] = tensor.clone()
        return self.changes.get(name, lambda x: x)(tensor)

    def scores(self, query, key):
        return self._pass("query", query), self._pass("key", key)

    def mix(self, pattern, value):
        return self._pass("pattern", pattern), self._pass("value", value)

    def mixed(self, heads):
        return self._pass("heads", heads)

    def projected(self, output):
        return self._pass("attn", output)


def four_dimensional(q, k, v):
    return torch.matmul((q @ k.transpose(-1, -2)).softmax(-1), v)


def flattened_bmm(q, k, v):
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    weights = functional.softmax(torch.bmm(q, k.transpose(1, 2)), dim=-1)
    return weights.bmm(v).unflatten(0, (B, H))


def added_product(q, k, v):
    """Bloom's: the scores are added to a bias inside the product."""
    bias = torch.zeros(B * H, 1, T)
    scores = bias.baddbmm(batch1=q.flatten(0, 1), batch2=k.flatten(0, 1).transpose(1, 2), beta=1.0, alpha=1.0)
    weights = torch.softmax(scores, dim=-1)
    return torch.bmm(weights, v.flatten(0, 1)).unflatten(0, (B, H))


def einsums(q, k, v):
    """XLNet's: time first, and patterns as b n i j."""
    q, k, v = (x.permute(2, 0, 1, 3) for x in (q, k, v))
    weights = torch.softmax(torch.einsum("ibnd,jbnd->bnij", q, k), dim=3)
    return torch.einsum("bnij,jbnd->ibnd", weights, v).permute(1, 2, 0, 3)


FORMS = [four_dimensional, flattened_bmm, added_product, einsums]


def operands():
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(B, H, T, DH, generator=generator) for _ in range(3)]


def watched(form, handler, tensors):
    with AttentionOps(lambda: "here", lambda scope: handler, lambda: B):
        return form(*tensors)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_shows_the_same_tensors_and_computes_the_same(form):
    q, k, v = operands()
    handler = Handler()
    got = watched(form, handler, (q, k, v))
    assert torch.equal(got, form(q, k, v))
    assert torch.equal(handler.seen["query"], q)
    assert torch.equal(handler.seen["key"], k)
    assert torch.equal(handler.seen["value"], v)
    pattern = torch.softmax(q.double() @ k.double().transpose(-1, -2), -1)
    assert torch.allclose(handler.seen["pattern"].double(), pattern, atol=1e-6)
    assert torch.allclose(handler.seen["heads"].double(), pattern @ v.double(), atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["query", "key", "value", "pattern", "heads"])
def test_what_the_handler_gives_back_is_what_the_model_goes_on_with(form, name):
    q, k, v = operands()

    def swap_heads(tensor):
        return tensor[:, [1, 0, 2]]

    got = watched(form, Handler(**{name: swap_heads}), (q, k, v))
    parts = {"query": q, "key": k, "value": v}
    if name in parts:
        parts[name] = swap_heads(parts[name])
    pattern = torch.softmax(parts["query"] @ parts["key"].transpose(-1, -2), -1)
    pattern = swap_heads(pattern) if name == "pattern" else pattern
    heads = pattern @ parts["value"]
    assert torch.allclose(got, swap_heads(heads) if name == "heads" else heads, atol=1e-5)


def test_nothing_is_shown_outside_attention():
    q, k, v = operands()
    handler = Handler()
    with AttentionOps(lambda: None, lambda scope: handler, lambda: B):
        four_dimensional(q, k, v)
    assert not handler.seen


def test_products_after_the_mix_are_left_alone():
    """An output projection inside the module is not a second attention."""
    q, k, v = operands()
    handler = Handler()

    def with_projection(q, k, v):
        return four_dimensional(q, k, v) @ torch.ones(B, H, DH, DH)

    watched(with_projection, handler, (q, k, v))
    assert torch.equal(handler.seen["query"], q)
    assert handler.seen["heads"].shape == (B, H, T, DH)


def test_only_the_softmax_of_scores_counts():
    """A softmax before the scores (a gate, say) does not make the next product the mix."""
    q, k, v = operands()
    handler = Handler()

    def gated(q, k, v):
        return four_dimensional(q * torch.softmax(torch.ones(3), 0).sum(), k, v)

    watched(gated, handler, (q, k, v))
    assert torch.allclose(handler.seen["value"], v)
    assert set(handler.seen) == {"query", "key", "pattern", "value", "heads"}


def test_each_call_has_its_own_stage():
    """Two attention calls in one pass are both seen from their beginning."""
    q, k, v = operands()
    handlers, place = {0: Handler(), 1: Handler()}, [0]
    with AttentionOps(lambda: place[0], lambda scope: handlers[scope], lambda: B):
        first = four_dimensional(q, k, v)
        place[0] = 1
        four_dimensional(first, k, v)
    assert torch.equal(handlers[1].seen["query"], first)
    assert math.isclose(float(handlers[1].seen["pattern"].sum()), B * H * T, rel_tol=1e-5)


def test_an_inline_output_projection_is_shown_batch_first():
    heads, weight = torch.randn(T, B, H, DH), torch.randn(7, H, DH)
    q, k, v = operands()
    handler = Handler(attn=lambda x: x * 2)
    with AttentionOps(lambda: 0, lambda scope: handler, lambda: B):
        einsums(q, k, v)
        got = torch.einsum("ibnd,hnd->ibh", heads, weight)
    plain = torch.einsum("ibnd,hnd->ibh", heads, weight)
    assert torch.equal(handler.seen["attn"], plain.transpose(0, 1))
    assert torch.equal(got, plain * 2)
