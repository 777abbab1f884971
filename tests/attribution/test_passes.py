"""Passes with gradients: batches of points that change no answer, memory that is kept to, and nothing left behind."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from pellucid.attribution import attribute, passes
from pellucid.attribution.targets import Target
from pellucid.errors import AttributionError, OutOfMemory
from pellucid.model import Model
from tests.attribution.engine_models import headed, ids, model, ragged, swept
from tests.tiny_models import error, hook_count, network, opened

WANTED = "integrated_gradients,conductance,saliency,smoothgrad"
SITES = "embed,resid.*,heads.1"


def counted(monkeypatch):
    """The points of every pass, as they come."""
    seen = []
    real = passes._one

    def note(net, batch, at, where, *rest):
        seen.append(where.stop - where.start)
        return real(net, batch, at, where, *rest)

    monkeypatch.setattr(passes, "_one", note)
    return seen


@pytest.mark.parametrize("most", [1, 3, 64])
def test_answers_do_not_depend_on_the_size_of_batches(most, monkeypatch):
    targets = [Target.label(0), Target.label(2)]
    first = swept(headed("classifier"), ragged(), targets, WANTED, SITES, steps=9)
    monkeypatch.setattr(passes, "MOST", most)
    again = swept(headed("classifier"), ragged(), targets, WANTED, SITES, steps=9)
    for key, part in first.parts.items():
        assert error(again.parts[key], part) < 1e-9, key
    assert torch.allclose(again.start, first.start)
    assert torch.allclose(again.end, first.end)


def test_the_memory_limit_is_kept(monkeypatch):
    """What graphs keep, counted from outside, stays below the limit; a larger limit makes larger batches."""
    kept, weights = [], {weight.untyped_storage().data_ptr() for weight in model("gpt2").hf.parameters()}
    real = passes._one

    def measure(*arguments):
        held = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                held[storage.data_ptr()] = storage.nbytes()
            return tensor.detach()

        if not kept:  # the first point, which the engine itself measures
            kept.append((1, 0))
            return real(*arguments)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            found = real(*arguments)
        kept.append((arguments[3].stop - arguments[3].start, sum(held.values())))
        return found

    monkeypatch.setattr(passes, "_one", measure)
    largest = {}
    for limit in (1_000_000, 4_000_000):
        kept.clear()
        swept(model("gpt2"), ids(), Target.token(9), "conductance", "resid.*", steps=30, memory_limit=limit)
        assert sum(count for count, _ in kept) == 31
        assert max(size for _, size in kept) <= limit
        largest[limit] = max(count for count, _ in kept)
        assert max(size for _, size in kept) > limit / 3, "the limit is made use of"
    assert largest[4_000_000] > 2 * largest[1_000_000] > 2


def test_out_of_memory_halves_the_batch_and_changes_nothing(monkeypatch):
    seen = counted(monkeypatch)
    first = swept(model("gpt2"), ids(), Target.token(9), "conductance", "resid.*", steps=30)
    assert seen == [1, 30]
    real, tried = Model.run, []

    def poor(self, batch, *rest, **options):
        if options.get("gradients"):
            tried.append(batch.size)
            if batch.size > 5:
                raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, batch, *rest, **options)

    monkeypatch.setattr(Model, "run", poor)
    again = swept(model("gpt2"), ids(), Target.token(9), "conductance", "resid.*", steps=30)
    assert tried[:5] == [1, 30, 15, 7, 3]
    assert max(tried[4:]) == 3
    for key, part in first.parts.items():
        assert error(again.parts[key], part) < 1e-9


def test_a_single_point_without_memory_is_a_sentence(monkeypatch):
    def none(self, batch, *rest, **options):
        raise OutOfMemory("cpu ran out of memory")

    given = model("gpt2").run(ids(), "embed")["embed"]
    monkeypatch.setattr(Model, "run", none)
    with pytest.raises(OutOfMemory, match=r"on a single point of the path \(1 × 7 tokens\); use a shorter text"):
        next(
            passes.passes(
                model("gpt2"), ids(), at=lambda _: {"embed": given[None]}, count=3, sites=(), targets=(), memory_limit=1
            )
        )


def test_other_errors_are_not_taken_for_memory(monkeypatch):
    def broken(*_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(passes, "_slopes", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        swept(model("gpt2"), ids(), Target.token(9), "saliency", "embed")


@pytest.mark.parametrize("fails", [False, True])
def test_weights_and_hooks_are_what_they_were(fails):
    net = Model.load(network("gpt2", "eager"))
    for number, weight in enumerate(net.hf.parameters()):
        weight.requires_grad_(number % 2 == 0)
    before, hooks = [weight.requires_grad for weight in net.hf.parameters()], hook_count(net.hf)

    def score(run):
        if fails:
            raise ValueError("not today")
        assert not run.logits.requires_grad or not any(weight.requires_grad for weight in net.hf.parameters())
        return run.logits[:, 0, 7]

    target = Target.of(score, "mine")
    if fails:
        with pytest.raises(ValueError, match="not today"):
            swept(net, ids(), target, "integrated_gradients", "embed,resid.2", steps=3)
    else:
        swept(net, ids(), target, "integrated_gradients", "embed,resid.2", steps=3)
    assert [weight.requires_grad for weight in net.hf.parameters()] == before
    assert hook_count(net.hf) == hooks
    assert not [name for name, part in net.hf.named_modules() if "forward" in vars(part)]
    assert all(weight.grad is None for weight in net.hf.parameters())


def test_results_keep_no_graph_alive():
    alive = []

    def score(run):
        alive.append(weakref.ref(run.logits))
        return run.logits[:, 0, 7]

    found = swept(model("gpt2"), ids(), Target.of(score, "mine"), WANTED, SITES, steps=4)
    assert all(not part.requires_grad and part.device.type == "cpu" for part in found.parts.values())
    assert not found.start.requires_grad
    gc.collect()
    assert alive
    assert all(each() is None for each in alive)


def test_gradients_are_had_where_the_caller_has_switched_them_off():
    first = swept(model("gpt2"), ids(), Target.token(9), "saliency", "resid.1")
    with torch.no_grad():
        again = swept(model("gpt2"), ids(), Target.token(9), "saliency", "resid.1")
    for key, part in first.parts.items():
        assert torch.equal(again.parts[key], part)


def test_several_targets_come_from_one_forward(monkeypatch):
    seen = counted(monkeypatch)
    targets = [Target.token(9, position=place) for place in range(5)] + [Target.token(30, position=2, log=True)]
    together = swept(model("gpt2"), ids(), targets, "integrated_gradients,saliency", "embed,resid.2", steps=6)
    assert sum(seen) == 2 * 7  # the path of the input, and that of resid.2
    for number, target in enumerate(targets):
        alone = swept(model("gpt2"), ids(), target, "integrated_gradients,saliency", "embed,resid.2", steps=6)
        for (method, _, site), part in alone.parts.items():
            assert error(together.parts[method, number, site], part) < 1e-9


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda run: run.logits[:, 0, 7].detach(), r"'mine' cannot be differentiated"),
        (lambda run: run.logits.argmax(dim=-1)[:, 0], r"'mine' cannot be differentiated"),
        (lambda run: run.logits[:, 0], r"one number per row \(\d+ here\); it gave \(\d+, 97\)"),
        (lambda run: run.logits.sum(), r"one number per row \(\d+ here\); it gave \(\)"),
        (lambda run: 3.0, r"one number per row \(\d+ here\); it gave float"),
        (lambda run: run.logits[:, 0, 7] / 0, r"'mine' is not a finite number"),
    ],
)
def test_a_function_that_cannot_be_explained_is_a_sentence(function, message):
    with pytest.raises(AttributionError, match=message):
        swept(model("gpt2"), ids(), Target.of(function, "mine"), "saliency", "embed")


def test_a_language_models_head_gives_the_same_gradients_where_few_scores_are_used():
    """The head is differentiated only where scores were used; the gradient of all of them is the plain one."""
    for function in (lambda run: run.logits[:, 2].logsumexp(-1), lambda run: run.logits.square().mean(dim=(1, 2))):
        for name in ("gpt2", "bert"):
            found = swept(model(name), ids(2), Target.of(function, "mine"), "gradient_x_activation", "resid.1")
            run = model(name).run(ids(2), "resid.1", gradients=True)
            (slope,) = torch.autograd.grad(function(run).sum(), run["resid.1"])
            (part,) = found.parts.values()
            assert error(part, slope * run["resid.1"]) < 1e-9


def test_half_precision_is_said_and_added_up_in_more():
    net = opened("gpt2", "eager", torch.float16)
    found = attribute(net, ids(), Target.token(9), "integrated_gradients,conductance", "embed,resid.2", steps=20)
    assert found.provenance.arguments["precision"] == "float16"
    exact = attribute(model("gpt2"), ids(), Target.token(9), "integrated_gradients", "embed", steps=20)
    assert found.values.dtype == exact.values.dtype
    scale = abs(exact.values[0, 0, 0]).max()
    assert abs(found.values[0, 0, 0] - exact.values[0, 0, 0]).max() < 0.1 * scale


def test_patterns_need_eager_attention():
    found = swept(model("gpt2"), ids(), Target.token(9), "conductance", "pattern.1", steps=4)
    (part,) = found.parts.values()
    assert part.shape == (1, 4, 7, 7)
    assert part.any()
    with pytest.raises(Exception, match=r"with respect to pattern.1 need eager attention; load the model with"):
        swept(opened("gpt2", "sdpa", torch.float64), ids(), Target.token(9), "conductance", "pattern.1", steps=4)
