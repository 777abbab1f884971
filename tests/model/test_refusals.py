"""What cannot be done faithfully is refused by name, in one sentence; and what was recorded is freed."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import weakref

import pytest
import torch
from transformers import (
    AutoConfig,
    BartForQuestionAnswering,
    GPT2Config,
    GPT2ForSequenceClassification,
    LongformerForSequenceClassification,
    T5Config,
    T5EncoderModel,
)

from pellucid.errors import EditError, ModelError, SiteError, TextError
from pellucid.families.configs import FAMILIES
from pellucid.model import Batch, Edit, Model, Site
from tests.tiny_models import opened, padded


@pytest.mark.parametrize("name", ["xlnet", "flaubert"])
def test_models_that_read_their_text_anew_cannot_be_followed_in_generation(name):
    model = opened(name)
    with pytest.raises(ModelError, match="reads its text anew"):
        model.generate(Batch.of_ids([[11, 12, 13]]), max_new_tokens=2, sites="heads.0")


def test_a_position_that_never_passes_is_refused_in_generation():
    """Three prompt tokens and two new ones: the last new one is not read again."""
    model, prompt = opened("gpt2"), Batch.of_ids([[11, 12, 13]])
    model.generate(prompt, max_new_tokens=2, edits=Edit.zero("resid.1", positions=3))
    with pytest.raises(SiteError, match="Positions 0 to 3 pass"):
        model.generate(prompt, max_new_tokens=2, edits=Edit.zero("resid.1", positions=4))


@pytest.mark.parametrize("options", [{"top_k": 5}, {"top_p": 0.5}, {"temperature": -1.0}])
def test_sampling_options_are_never_ignored(options):
    with pytest.raises(TextError, match="temperature above 0"):
        opened("gpt2").generate(Batch.of_ids([[11, 12]]), max_new_tokens=2, **options)


def test_padded_targets_are_not_continued():
    model = opened("bart")
    with pytest.raises(TextError, match="same number of tokens"):
        model.generate(padded("bart"), max_new_tokens=2)


def test_weights_of_experts_that_were_not_chosen_cannot_be_set():
    model, batch = opened("mixtral"), padded("mixtral")
    with pytest.raises(EditError, match="not chosen"):
        model.run(batch, (), Edit.set("routing.1", 1.0))
    before = model.run(batch).logits
    assert not torch.equal(model.run(batch, (), Edit.scale("routing.1", 0.5)).logits, before)


def test_routing_alone_is_the_same_as_with_neurons():
    model, batch = opened("mixtral"), padded("mixtral")
    assert torch.equal(model.run(batch, "routing.1")["routing.1"], model.run(batch, "routing.1,neurons.1")["routing.1"])


def test_heads_for_whole_texts_on_encoder_decoders_are_refused():
    config = AutoConfig.for_model("bart", **FAMILIES["bart"].settings)
    with pytest.raises(ModelError, match="BartForQuestionAnswering puts a head for whole texts"):
        Model.load(BartForQuestionAnswering(config).eval())


def test_a_model_that_cannot_run_at_all_says_why():
    config = GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16, pad_token_id=None)
    with pytest.raises(ModelError, match=r"cannot run on a small batch of random tokens .*padding"):
        Model.load(GPT2ForSequenceClassification(config).eval())


def test_global_attention_leaves_out_the_patterns_alone():
    config = AutoConfig.for_model("longformer", **FAMILIES["longformer"].settings, num_labels=2)
    torch.manual_seed(0)
    model = Model.load(LongformerForSequenceClassification._from_config(config, attn_implementation="eager").eval())
    assert "global attention" in model.missing["pattern.0"]
    kinds = {site.kind for site in model.sites}
    assert "pattern" not in kinds
    assert {"resid", "heads", "neurons", "query", "logits"} <= kinds


def test_an_encoder_alone_opens_as_it_was_saved(tmp_path):
    config = T5Config(vocab_size=50, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4)
    T5EncoderModel(config).save_pretrained(tmp_path / "encoder")
    model = Model.load(tmp_path / "encoder")
    assert type(model.hf).__name__ == "T5EncoderModel"


def test_a_model_object_keeps_its_head():
    with pytest.raises(ModelError, match="keeps the head it has"):
        Model.load(opened("bert").hf, head="classifier")


def test_sites_can_be_looked_up_after_pickling_into_another_process():
    kept = pickle.dumps({Site("heads", 3): 1}).hex()
    script = f"import pickle, pellucid as pl; print(pickle.loads(bytes.fromhex({kept!r}))[pl.Site('heads', 3)])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={"PYTHONHASHSEED": "7"})
    assert done.stdout.strip() == "1", done.stderr


@pytest.mark.parametrize("name", ["gpt2", "bloom", "mixtral", "t5", "longformer"])
@pytest.mark.parametrize("options", [{}, {"gradients": True}], ids=["plain", "gradients"])
def test_dropping_a_run_frees_its_tensors_at_once(name, options):
    """Without waiting for the garbage collector: a sweep over a corpus would fill the memory."""
    model, batch = opened(name), padded(name)
    fixed = ("pattern",) if name == "longformer" else ()
    sites = [site for site in model.sites if site.kind not in fixed]
    gc.collect()
    gc.disable()
    try:
        run = model.run(batch, sites, **options)
        held = [weakref.ref(run[site]) for site in run]
        assert all(reference() is not None for reference in held)
        del run
        assert not any(reference() is not None for reference in held)
    finally:
        gc.enable()


def test_a_patch_may_come_from_a_dictionary_of_names():
    model, batch = opened("gpt2"), padded("gpt2")
    source = {"resid.1": model.run(batch, "resid.1")["resid.1"] * 2}
    assert torch.equal(model.run(batch, "resid.1", Edit.patch("resid.1", source))["resid.1"], source["resid.1"])
