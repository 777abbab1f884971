"""SmoothGrad and its kin: sums over noisy inputs, drawn the same whatever the batches."""

from __future__ import annotations

import pytest
import torch

from pellucid.attribution.targets import Target
from pellucid.errors import AttributionError
from pellucid.model import Edit
from pellucid.model.sites import Site
from tests.attribution.engine_models import ids, model, ragged, swept
from tests.tiny_models import error

WANTED = "smoothgrad,smoothgrad_squared,vargrad"


def found(batch, **options):
    return swept(model("gpt2"), batch, Target.token(9, position=1), WANTED, "embed,resid.2", **options)


def test_moments_of_the_gradient_made_one_by_one():
    """Noise of each text's own size: the second text's embeddings are not the first's."""
    net, batch, samples, noise, seed = model("gpt2"), ragged(), 5, 0.2, 3
    text, real = net.run(batch, "embed")["embed"], batch.mask.bool()
    ranges = torch.stack([text[row][real[row]].max() - text[row][real[row]].min() for row in range(2)])
    slopes = {"embed": [], "resid.2": []}
    for sample in range(samples):
        drawn = torch.randn(text.shape, generator=torch.Generator().manual_seed(seed * 1_000_003 + sample)).double()
        noisy = text + drawn * noise * ranges[:, None, None]
        run = net.run(batch, list(slopes), Edit.patch("embed", noisy), gradients=True)
        for name, slope in zip(
            slopes, torch.autograd.grad(run.logits[:, 1, 9].sum(), [run[s] for s in slopes]), strict=True
        ):
            slopes[name].append(slope)
    told = found(batch, samples=samples, noise=noise, seed=seed)
    for name, site in (("embed", Site("embed")), ("resid.2", Site("resid", 2))):
        stack = torch.stack(slopes[name])
        assert error(told.parts["smoothgrad", 0, site], stack.mean(0).abs()) < 1e-9
        assert error(told.parts["smoothgrad_squared", 0, site], stack.square().mean(0)) < 1e-9
        assert error(told.parts["vargrad", 0, site], stack.var(0, correction=0)) < 1e-9
    assert told.points == samples
    assert told.note == "5 noisy inputs of size 0.2, seed 3"


def test_seeds_give_the_same_bytes_and_others_other_ones():
    first, again, other = (found(ids(), samples=4, seed=seed) for seed in (0, 0, 1))
    for key, part in first.parts.items():
        assert torch.equal(again.parts[key], part)
        assert error(other.parts[key], part) > 1e-3


@pytest.mark.parametrize("options", [{"samples": 1}, {"noise": 0.0}, {"noise": -1.0}])
def test_noise_that_is_none_is_a_sentence(options):
    with pytest.raises(AttributionError, match=r"at least two samples and a size above 0; got"):
        found(ids(), **options)
