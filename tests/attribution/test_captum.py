"""Equality with captum, an independent implementation, on tiny random models in float64."""

from __future__ import annotations

import warnings

import pytest
import torch
from captum import attr

from pellucid.attribution.targets import Target
from pellucid.model.sites import Site
from tests.attribution.engine_models import ids, model, swept
from tests.tiny_models import error

STEPS = 12
CLASS = 1
NAMES = ("classifier", "gpt2", "llama", "qa")
TARGETS = {
    "classifier": Target.label(CLASS),
    "gpt2": Target.token(CLASS, position=-1),
    "llama": Target.token(CLASS, position=-1),
    "qa": Target.start(CLASS),
}
BLOCKS = {
    "classifier": "bert.encoder.layer",
    "qa": "bert.encoder.layer",
    "gpt2": "transformer.h",
    "llama": "model.layers",
}


def scores(name):
    """The network as a function of embeddings, [B, classes]."""
    network = model(name).hf

    def forward(embeddings):
        output = network(inputs_embeds=embeddings)
        if name == "qa":
            return output.start_logits
        return output.logits if name == "classifier" else output.logits[:, -1]

    return forward


def block(name, layer):
    return model(name).hf.get_submodule(f"{BLOCKS[name]}.{layer}")


def embeddings(name, batch):
    return model(name).hf.get_input_embeddings()(batch.ids).detach()


def close(ours, theirs, tolerance=1e-6):
    assert error(ours, theirs) < tolerance


@pytest.mark.parametrize("name", NAMES)
def test_saliency_and_gradient_times_input(name):
    batch = ids(2)
    found = swept(model(name), batch, TARGETS[name], "saliency,gradient_x_activation", "embed")
    given = embeddings(name, batch).requires_grad_()
    close(found.parts["saliency", 0, Site("embed")], attr.Saliency(scores(name)).attribute(given, target=CLASS))
    theirs = attr.InputXGradient(scores(name)).attribute(given, target=CLASS)
    close(found.parts["gradient_x_activation", 0, Site("embed")], theirs)


@pytest.mark.parametrize("name", NAMES)
def test_integrated_gradients(name):
    """In captum's own rule, from the same baseline; `gauss` with one more step has the same inner nodes."""
    batch = ids(2)
    given, start = embeddings(name, batch), embeddings(name, ids(2, seed=5))
    theirs = attr.IntegratedGradients(scores(name)).attribute(given, start, target=CLASS, n_steps=STEPS)
    for rule, steps in (("captum", STEPS), ("gauss", STEPS + 1)):
        found = swept(
            model(name), batch, TARGETS[name], "integrated_gradients", "embed", rule=rule, steps=steps, baseline=start
        )
        close(found.parts["integrated_gradients", 0, Site("embed")], theirs)


@pytest.mark.parametrize("name", NAMES)
def test_layer_methods_along_the_path_of_the_input(name):
    """Conductance and internal influence of every block's output, all from one sweep; captum runs once per layer."""
    batch = ids(2)
    given, start = embeddings(name, batch), embeddings(name, ids(2, seed=5))
    wanted = "conductance,internal_influence"
    found = swept(model(name), batch, TARGETS[name], wanted, "resid.1-3", rule="captum", steps=STEPS, baseline=start)
    options = {"target": CLASS, "n_steps": STEPS}
    for layer in range(2):  # the last output of Llama and GPT-2 is taken after the final norm by nobody
        site = Site("resid", layer + 1)
        theirs = attr.LayerConductance(scores(name), block(name, layer)).attribute(given, start, **options)
        close(found.parts["conductance", 0, site], first(theirs))
        theirs = attr.InternalInfluence(scores(name), block(name, layer)).attribute(given, start, **options)
        close(found.parts["internal_influence", 0, site], first(theirs))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_layer_integrated_gradients_along_the_path_of_the_layer(name, layer):
    """The layer's own activation moves; blocks below it are left out of our passes, and it shows in nothing."""
    batch = ids(2)
    given, start = embeddings(name, batch), embeddings(name, ids(2, seed=5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = attr.LayerIntegratedGradients(scores(name), block(name, layer))
        theirs = method.attribute(given, start, target=CLASS, n_steps=STEPS)
    site = f"resid.{layer + 1}"
    found = swept(
        model(name), batch, TARGETS[name], "integrated_gradients", site, rule="captum", steps=STEPS, baseline=start
    )
    close(found.parts["integrated_gradients", 0, Site("resid", layer + 1)], first(theirs))


@pytest.mark.parametrize(
    ("site", "path"),
    [
        ("neurons.1", "bert.encoder.layer.1.intermediate"),
        ("mid.1", "bert.encoder.layer.1.attention.output.LayerNorm"),
        ("attn.1", "bert.encoder.layer.1.attention.output.dense"),
        ("mlp.1", "bert.encoder.layer.1.output.dense"),
    ],
)
def test_sites_inside_a_block(site, path):
    batch = ids(2)
    given, start = embeddings("classifier", batch), torch.zeros_like(embeddings("classifier", batch))
    part, options = model("classifier").hf.get_submodule(path), {"target": CLASS, "n_steps": STEPS}
    wanted = "conductance,integrated_gradients,gradient_x_activation"
    found = swept(model("classifier"), batch, Target.label(CLASS), wanted, site, rule="captum", steps=STEPS)
    forward, (key,) = scores("classifier"), {key[2] for key in found.parts}
    close(found.parts["conductance", 0, key], attr.LayerConductance(forward, part).attribute(given, start, **options))
    theirs = attr.LayerGradientXActivation(forward, part).attribute(given, target=CLASS)
    close(found.parts["gradient_x_activation", 0, key], theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = attr.LayerIntegratedGradients(forward, part).attribute(given, start, **options)
    close(found.parts["integrated_gradients", 0, key], theirs)


@pytest.mark.parametrize("name", ["classifier", "gpt2"])
def test_noise(name, monkeypatch):
    """NoiseTunnel around the plain gradient, given the very noise that our seed draws."""
    batch, samples, seed, noise = ids(1), 6, 4, 0.05
    given = embeddings(name, batch)
    spread = noise * float(given.max() - given.min())
    drawn = [
        torch.randn(given.shape, generator=torch.Generator().manual_seed(seed * 1_000_003 + n)) for n in range(samples)
    ]
    noises = torch.cat(drawn).double() * spread
    monkeypatch.setattr(torch, "normal", lambda *_, **__: noises)
    tunnel = attr.NoiseTunnel(attr.Saliency(scores(name)))
    wanted = {"smoothgrad": "smoothgrad", "smoothgrad_squared": "smoothgrad_sq", "vargrad": "vargrad"}
    found = swept(model(name), batch, TARGETS[name], ",".join(wanted), "embed", samples=samples, noise=noise, seed=seed)
    for ours, theirs in wanted.items():
        told = tunnel.attribute(given, nt_type=theirs, nt_samples=samples, stdevs=spread, target=CLASS, abs=False)
        close(found.parts[ours, 0, Site("embed")], told.abs() if ours == "smoothgrad" else told)


def first(found):
    """Captum gives a tuple for a block whose output is one."""
    return found[0] if isinstance(found, tuple) else found
