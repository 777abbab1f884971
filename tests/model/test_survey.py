"""The survey of a model: what it finds, what it refuses by name, and random models of the same build."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

from pellucid.errors import ModelError
from pellucid.model import Batch, Model
from pellucid.model.sites import KINDS
from tests.tiny_models import hook_count, network, opened

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
RECURRENT = {
    "mamba": {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "rwkv": {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32},
}
HYBRID = {
    "lfm2": {**SIZES, "num_hidden_layers": 4, "full_attn_idxs": [1, 3], "conv_L_cache": 3, "block_multiple_of": 8},
    "jamba": {
        **SIZES,
        "num_hidden_layers": 4,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "mamba_d_state": 4,
        "mamba_d_conv": 2,
    },
    "bamba": {
        **SIZES,
        "num_hidden_layers": 4,
        "attn_layer_indices": [1, 3],
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
        "mamba_chunk_size": 4,
    },
    "recurrent_gemma": {
        "vocab_size": 97,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "lru_width": 32,
        "attention_window_size": 8,
    },
}


def built(model_type: str, settings: dict) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **settings)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("model_type", RECURRENT)
def test_recurrent_models_are_refused_by_name(model_type):
    with pytest.raises(
        ModelError, match=rf"\({model_type}\).*Recurrent and state-space layers are not supported.*Model.wrap"
    ):
        Model.load(built(model_type, RECURRENT[model_type]))


@pytest.mark.parametrize("model_type", HYBRID)
def test_models_with_attention_in_only_some_layers_are_refused_by_name(model_type):
    """Numbering only the layers that attend would silently call layer 1 layer 0."""
    hf = built(model_type, HYBRID[model_type])
    hooks = hook_count(hf)
    kind = model_type.replace("_", "")
    with pytest.raises(ModelError, match=rf"(?i)model.layers.0, have no attention.*made of [^)]*{kind}"):
        Model.load(hf)
    assert hook_count(hf) == hooks


def test_a_vision_model_is_refused_in_a_sentence():
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32, image_size=16, patch_size=8
    )
    with pytest.raises(ModelError):
        Model.load(transformers.ViTModel(config).eval())


def test_sites_are_listed_in_the_order_of_computation():
    sites = [str(site) for site in opened("gpt2").sites]
    kinds = [kind for kind in KINDS if kind not in ("embed", "routing", "logits")]
    blocks = [f"{kind}.{layer}" for layer in range(3) for kind in kinds]
    assert sites == ["embed", *blocks, "resid.3", "logits"]


@pytest.mark.parametrize(
    ("name", "forms"),
    [
        ("gpt2", {None: "pre-norm"}),
        ("bert", {None: "post-norm"}),
        ("gptj", {None: "parallel"}),
        ("gemma2", {None: "sandwich"}),
        ("bart", {"encoder": "post-norm", "decoder": "post-norm"}),
    ],
)
def test_the_form_of_each_stack_is_found(name, forms):
    assert dict(opened(name).forms) == forms


def test_encoder_decoders_have_three_stacks_with_their_own_depths():
    sites = {str(site) for site in opened("t5").sites}
    assert {"encoder.resid.3", "decoder.resid.4", "cross.mid.3", "decoder.embed", "encoder.embed"} <= sites
    assert not {"encoder.resid.4", "decoder.resid.5", "cross.pattern.4", "cross.neurons.0", "embed"} & sites


def test_shared_blocks_are_told_apart_by_their_calls():
    """ALBERT runs one block three times."""
    model = opened("albert")
    run = model.run(Batch.of_ids([[9, 8, 7, 6]]), ["resid.*", "heads.*", "neurons.*", "pattern.*"])
    for kind in ("heads", "neurons", "pattern"):
        values = [run[f"{kind}.{layer}"] for layer in range(3)]
        assert not torch.equal(values[0], values[1])
        assert not torch.equal(values[1], values[2])
    assert len([site for site in model.sites if site.kind == "resid"]) == 4


def test_opening_leaves_the_network_as_it_was():
    hf = network("gpt2", "sdpa")
    state = {name: value.clone() for name, value in hf.state_dict().items()}
    hooks = hook_count(hf)
    Model.load(hf)
    assert hook_count(hf) == hooks
    assert hf.config._attn_implementation == "sdpa"
    assert all(torch.equal(value, state[name]) for name, value in hf.state_dict().items())


def test_opening_does_not_touch_the_random_generator():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    hf = network("gpt2")
    Model.random_like(Model.load(hf), seed=3)
    assert torch.equal(torch.get_rng_state(), state)


# -- random models of the same build ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "t5"])
def test_a_random_model_has_the_same_build_and_other_weights(name):
    """The trap: `init_weights` on a loaded model leaves every weight as it is."""
    model = opened(name, "sdpa")
    fresh = Model.random_like(model, seed=1)
    assert type(fresh.hf) is type(model.hf)
    assert fresh.sites == model.sites
    assert fresh.attention == model.attention
    old, new = model.hf.state_dict(), fresh.hf.state_dict()
    assert {key: value.shape for key, value in old.items()} == {key: value.shape for key, value in new.items()}
    same = [key for key, value in model.hf.named_parameters() if value.dim() > 1 and torch.equal(value, new[key])]
    assert not same


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not():
    model = opened("gpt2")
    one, again, other = (dict(Model.random_like(model, seed=seed).hf.state_dict()) for seed in (1, 1, 2))
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert not torch.equal(one["transformer.h.0.mlp.c_fc.weight"], other["transformer.h.0.mlp.c_fc.weight"])


def test_a_random_model_does_not_share_memory_with_the_first():
    model = opened("gpt2")
    mine = {parameter.data_ptr() for parameter in model.hf.parameters()}
    assert not mine & {parameter.data_ptr() for parameter in Model.random_like(model).hf.parameters()}


def test_a_random_model_of_a_saved_one_also_differs(gpt2_folder):
    model = Model.load(gpt2_folder)
    fresh = Model.random_like(model, seed=0)
    batch = model.tokenize("the old dog")
    assert not torch.equal(fresh.run(batch).logits, model.run(batch).logits)
    assert "random, seed 0" in fresh.name
