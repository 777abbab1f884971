"""One sweep for all methods, sites and targets: every kind of site, encoder–decoders, and what a sum over a path is."""

from __future__ import annotations

import pytest
import torch

from pellucid.attribution import completeness
from pellucid.attribution.sweep import Sums
from pellucid.attribution.targets import Target
from pellucid.model import Edit
from pellucid.model.sites import Site
from tests.attribution.engine_models import ids, model, swept
from tests.tiny_models import error, opened, padded

KINDS = (
    "embed",
    "resid.1",
    "query.1",
    "key.1",
    "value.1",
    "pattern.1",
    "heads.1",
    "attn.1",
    "mid.1",
    "neurons.1",
    "mlp.1",
)
STEPS = 6


def by_hand(net, batch, name, score, steps):
    """Conductance, mean gradient and change at one site, point by point, with nothing shared between points."""
    from numpy.polynomial.legendre import leggauss

    inner, weights = leggauss(steps - 1)
    alphas = [0.0, *((inner + 1) / 2), 1.0]
    text = net.run(batch, "embed")["embed"]
    values, slopes = [], []
    for alpha in alphas:
        run = net.run(batch, name, Edit.patch("embed", alpha * text), gradients=True)
        values.append(run[name].detach())
        slopes.append(torch.autograd.grad(score(run).sum(), run[name])[0])
    pairs = range(len(alphas) - 1)
    conductance = sum((slopes[k] + slopes[k + 1]) / 2 * (values[k + 1] - values[k]) for k in pairs)
    integral = sum(weight / 2 * slope for weight, slope in zip(weights, slopes[1:-1], strict=True))
    return {
        "conductance": conductance,
        "internal_influence": integral,
        "input_path_gradients": (values[-1] - values[0]) * integral,
        "saliency": slopes[-1].abs(),
        "gradient_x_activation": slopes[-1] * values[-1],
    }


@pytest.mark.parametrize("family", ["gpt2", "bert", "mixtral"])
def test_every_kind_of_site_equals_passes_made_one_by_one(family):
    net, batch = model(family), ids(2)
    target = Target.token(9, position=2)
    wanted = "conductance,internal_influence,input_path_gradients,saliency,gradient_x_activation"
    options = {"baseline": 0.0 * net.run(batch, "embed")["embed"]}
    if family == "mixtral":  # from zeros, its gradients overflow
        wanted = "saliency,gradient_x_activation"
    found = swept(net, batch, target, wanted, list(KINDS), steps=STEPS, **options)
    for name in KINDS:
        site = Site("embed") if name == "embed" else Site(name[:-2], 1)
        told = by_hand(net, batch, name, lambda run: run.logits[:, 2, 9], STEPS)
        for method in wanted.split(","):
            part = found.parts[method, 0, site]
            assert part.dtype == torch.float64
            assert error(part, told[method]) < 1e-6, (name, method)
    assert found.points == (STEPS + 1 if family != "mixtral" else 1)


@pytest.mark.parametrize("name", ["mt5", "marian"])
def test_an_encoder_decoder_moves_both_texts_together(name):
    net, batch = opened(name, "eager", torch.float64), padded(name)
    wanted = "integrated_gradients,conductance,saliency"
    sites = ["*.embed", "encoder.resid.2", "decoder.heads.1", "cross.pattern.1", "cross.value.0"]
    baseline = "mean" if name == "mt5" else "zero"
    found = swept(net, batch, Target.token(9, position=-1), wanted, sites, steps=40, baseline=baseline)
    assert [str(site) for site in found.inputs] == ["encoder.embed", "decoder.embed"]
    source, target = batch.ids.shape[1], batch.target_ids.shape[1]
    shapes = {
        "encoder.embed": (3, source, 40),
        "decoder.embed": (3, target, 40),
        "cross.pattern.1": (3, net.size("cross.pattern.1")[0], target, source),
    }
    for method in wanted.split(","):
        for site, part in ((key[2], part) for key, part in found.parts.items() if key[0] == method):
            assert part.any(), (method, site)
            assert tuple(part.shape) == shapes.get(str(site), tuple(part.shape))
    sums = {(each.method, each.place): each for each in completeness.sums(found)}
    for method in ("integrated_gradients", "conductance"):
        both = sums[method, "encoder.embed + decoder.embed"]
        assert float(both.error.max()) < 0.03
        assert ("encoder.resid.2" in {place for name, place in sums if name == method}) == (method[0] == "i")
    for site, mask in (("encoder", batch.mask), ("decoder", batch.target_mask)):
        part = found.parts["integrated_gradients", 0, Site("embed", None, site)]
        assert not part[~mask.bool()].any()


@pytest.mark.parametrize("split", [1, 2, 3, 7])
def test_sums_do_not_depend_on_how_points_are_cut(split):
    generator = torch.Generator().manual_seed(0)
    values, slopes = (torch.randn(7, 2, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    weights = torch.rand(7, generator=generator, dtype=torch.float64)
    for trapezoid in (True, False):
        sums = Sums(frozenset({"conductance", "input_path_gradients"}), trapezoid)
        for first in range(0, 7, split):
            part = slice(first, first + split)
            sums.add(values[part], slopes[part], weights[part])
        heights = (slopes[1:] + slopes[:-1]) / 2 if trapezoid else slopes[:-1]
        assert torch.allclose(sums.take("conductance"), (heights * values.diff(dim=0)).sum(0))
        integral = (weights[:, None, None] * slopes).sum(0)
        assert torch.allclose(sums.take("input_path_gradients"), (values[-1] - values[0]) * integral)


def test_a_gradient_that_overflows_at_an_end_spoils_no_integral():
    sums = Sums(frozenset({"internal_influence"}), True)
    slopes = torch.tensor([[torch.inf], [2.0], [4.0]])
    sums.add(torch.zeros(3, 1), slopes, torch.tensor([0.0, 0.5, 0.5]))
    assert sums.take("internal_influence").tolist() == [3.0]


def test_sums_of_half_precision_are_made_in_single():
    values = torch.arange(1, 1025).half()[:, None] / 1024
    sums = Sums(frozenset({"conductance", "internal_influence"}), True)
    sums.add(values, torch.ones_like(values), torch.full((1024,), 1 / 1024))
    assert float(sums.take("conductance")) == pytest.approx(1023 / 1024, rel=1e-6)
    assert float(sums.take("internal_influence")) == pytest.approx(1.0, rel=1e-6)
