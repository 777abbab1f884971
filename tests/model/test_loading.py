"""Opening models: folders as transformers saves them, heads, and every way in which a folder can be wrong."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from pellucid.errors import ModelError, TextError
from pellucid.model import Batch, Model
from tests.tiny_models import network, save


def one_sentence(caught) -> str:
    """The message, which must be one line that a person can read."""
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def copy_of(tmp_path):
    """Copies a saved model, to be damaged."""

    def make(folder):
        return shutil.copytree(folder, tmp_path / "copy")

    return make


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# -- what opens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["fused", "eager"])
def test_a_saved_folder_computes_what_the_saved_network_computed(gpt2_folder, attention):
    model = Model.load(gpt2_folder, attention=attention)
    hf = network("gpt2", {"fused": "sdpa", "eager": "eager"}[attention])
    ids = torch.tensor([[9, 8, 7, 6]])
    with torch.no_grad():
        assert torch.equal(model.run(Batch.of_ids(ids)).logits, hf(input_ids=ids).logits)
    assert model.attention == attention
    assert not model.hf.training
    assert model.tokenizer is not None
    assert model.name == str(gpt2_folder)


def test_a_folder_may_be_given_as_text_or_path(bert_folder):
    assert type(Model.load(str(bert_folder)).hf) is type(Model.load(bert_folder).hf)


def test_the_head_is_the_one_that_was_saved(gpt2_folder, bert_folder, t5_folder):
    names = [type(Model.load(folder).hf).__name__ for folder in (gpt2_folder, bert_folder, t5_folder)]
    assert names == ["GPT2LMHeadModel", "BertForMaskedLM", "T5ForConditionalGeneration"]


def test_head_none_gives_the_body_with_the_same_streams(bert_folder):
    batch = Batch.of_ids([[9, 8, 7]])
    with_head, without = Model.load(bert_folder), Model.load(bert_folder, head="none")
    assert type(without.hf).__name__ == "BertModel"
    assert torch.equal(with_head.run(batch, "resid.3")["resid.3"], without.run(batch, "resid.3")["resid.3"])
    assert "logits" not in {str(site) for site in without.sites}


@pytest.mark.parametrize(("head", "shape"), [("classifier", (1, 2)), ("tagger", (1, 3, 2)), ("qa", (1, 3, 2))])
def test_a_new_head_is_untrained_and_says_so(bert_folder, head, shape):
    model = Model.load(bert_folder, head=head, new_head=True)
    assert "start untrained" in model.notes[0]
    assert tuple(model.run(Batch.of_ids([[9, 8, 7]]), "logits")["logits"].shape) == shape


def test_families_without_a_readable_fused_kernel_are_opened_eager_with_a_note(tmp_path):
    model = Model.load(save(tmp_path / "bloom", "bloom", tokenizer=False))
    assert model.attention == "eager"
    assert "runs with eager attention" in model.notes[0]


def test_weights_default_to_float32_on_a_cpu_and_dtype_is_obeyed(tmp_path):
    network("gpt2").half().save_pretrained(tmp_path / "half")
    assert Model.load(tmp_path / "half", device="cpu").hf.dtype == torch.float32
    assert Model.load(tmp_path / "half", device="cpu", dtype=torch.float64).hf.dtype == torch.float64


def test_sharded_weights_open(tmp_path):
    folder = save(tmp_path / "shards", "gpt2", max_shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    ids = Batch.of_ids([[9, 8, 7]])
    assert torch.equal(Model.load(folder).run(ids).logits, Model.load(network("gpt2", "sdpa")).run(ids).logits)


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "bart", "llama"])
def test_a_folder_without_a_tokenizer_has_none(tmp_path, name):
    """transformers makes up an empty tokenizer, which would read every word as unknown."""
    model = Model.load(save(tmp_path / "model", name, tokenizer=False))
    with pytest.raises(TextError, match="no tokenizer beside it"):
        model.tokenize("the old dog")


def test_a_given_tokenizer_is_used(gpt2_folder):
    marker = object()
    assert Model.load(gpt2_folder, tokenizer=marker).tokenizer is marker


# -- what does not ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["./nowhere", "/tmp/nowhere/at/all", "~/no-such-model", "a/b/c"])
def test_a_folder_that_is_not_there(name):
    with pytest.raises(ModelError, match=rf"There is no folder '{name}'"):
        Model.load(name)


def test_a_hub_name_that_cannot_be_fetched():
    with pytest.raises(ModelError, match=r"'nobody/nothing' is not a folder here, and could not be fetched") as caught:
        Model.load("nobody/nothing")
    one_sentence(caught)


def test_a_folder_without_config(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ModelError, match=r"has no config.json.*it contains notes.txt") as caught:
        Model.load(tmp_path)
    one_sentence(caught)


def test_a_folder_of_a_training_names_its_last_checkpoint(tmp_path):
    for epoch in (2, 10):
        (tmp_path / "checkpoints" / f"epoch-{epoch}").mkdir(parents=True)
        (tmp_path / "checkpoints" / f"epoch-{epoch}" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"has no config.json.*Did you mean .*epoch-10'"):
        Model.load(tmp_path)


def test_a_file_instead_of_a_folder(gpt2_folder):
    with pytest.raises(ModelError, match="is a file; give the folder"):
        Model.load(gpt2_folder / "config.json")


def test_a_config_without_weights(gpt2_folder, copy_of):
    folder = copy_of(gpt2_folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has a config.json but no weights"):
        Model.load(folder)


def test_a_half_copied_folder_names_the_missing_files(tmp_path):
    folder = save(tmp_path / "shards", "gpt2", max_shard_size="40KB")
    gone = sorted(folder.glob("*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(ModelError, match=rf"half copied: {gone.name} of \d+ weight files are missing") as caught:
        Model.load(folder)
    one_sentence(caught)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_weight_file(gpt2_folder, copy_of, share):
    path = copy_of(gpt2_folder) / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelError, match="damaged or half copied") as caught:
        Model.load(path.parent)
    one_sentence(caught)


@pytest.mark.parametrize("text", ["{", "{}", '{"weight_map": 3}', "[]"])
def test_a_broken_index(tmp_path, text):
    folder = save(tmp_path / "shards", "gpt2", max_shard_size="40KB")
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelError) as caught:
        Model.load(folder)
    assert "index" in one_sentence(caught)


@pytest.mark.parametrize("text", ["{", "{}", '{"model_type": "no-such-type"}', "[]", ""])
def test_a_broken_config(gpt2_folder, copy_of, text):
    folder = copy_of(gpt2_folder)
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError) as caught:
        Model.load(folder)
    assert str(folder) in one_sentence(caught)


def test_weights_of_another_size_than_the_config_says(gpt2_folder, copy_of):
    folder = copy_of(gpt2_folder)
    change_config(folder, n_embd=48)
    with pytest.raises(ModelError) as caught:
        Model.load(folder)
    assert str(folder) in one_sentence(caught)


def test_a_checkpoint_with_a_hole_is_not_blamed_on_the_head(gpt2_folder, copy_of):
    folder = copy_of(gpt2_folder)
    weights = load_file(folder / "model.safetensors")
    weights.pop("transformer.h.1.mlp.c_fc.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"transformer.h.1.mlp.c_fc.weight") as caught:
        Model.load(folder, new_head=True)
    assert "head" not in one_sentence(caught).partition("transformer.h.1")[0]


@pytest.mark.parametrize(
    ("name", "known"), [("qa", "qa_outputs"), ("classifier", "classifier"), ("tagger", "classifier")]
)
def test_a_head_that_the_checkpoint_lacks(bert_folder, name, known):
    with pytest.raises(
        ModelError, match=rf"no weights for the head '{name}' \({known}.*Open it with head='none'"
    ) as caught:
        Model.load(bert_folder, head=name)
    one_sentence(caught)


def test_a_head_that_the_family_lacks(bert_folder, t5_folder):
    with pytest.raises(
        ModelError, match=r"is a bert model, which has no 'seq2seq' head; it can be opened with none, lm, mlm"
    ):
        Model.load(bert_folder, head="seq2seq")
    with pytest.raises(ModelError, match=r"t5 model, which has no 'lm' head"):
        Model.load(t5_folder, head="lm")


def test_a_head_or_setting_that_does_not_exist(bert_folder):
    with pytest.raises(ModelError, match=r"no head called 'causal'; the heads are auto, none, lm"):
        Model.load(bert_folder, head="causal")
    with pytest.raises(ModelError, match=r"no attention setting 'flash'; use 'fused' or 'eager'"):
        Model.load(bert_folder, attention="flash")


def pickled(folder, gpt2_folder):
    folder.mkdir()
    shutil.copy(gpt2_folder / "config.json", folder)
    torch.save(network("gpt2").state_dict(), folder / "pytorch_model.bin")
    return folder


def test_pickled_weights_are_refused_and_open_only_behind_the_flag(tmp_path, gpt2_folder):
    folder = pickled(tmp_path / "old", gpt2_folder)
    with pytest.raises(
        ModelError, match=r"only as pickle \(pytorch_model.bin\), which can run code.*allow_pickle=True"
    ) as caught:
        Model.load(folder)
    one_sentence(caught)
    ids = Batch.of_ids([[9, 8, 7]])
    opened = Model.load(folder, allow_pickle=True)
    assert torch.equal(opened.run(ids).logits, Model.load(gpt2_folder).run(ids).logits)


def test_safetensors_beside_a_pickle_are_used_and_the_pickle_is_never_touched(tmp_path, gpt2_folder):
    folder = shutil.copytree(gpt2_folder, tmp_path / "both")
    (folder / "pytorch_model.bin").write_bytes(b"this would not even load")
    assert Model.load(folder).sites == Model.load(folder, allow_pickle=True).sites


def test_code_from_the_repository_is_never_run(tmp_path, gpt2_folder):
    folder = shutil.copytree(gpt2_folder, tmp_path / "remote")
    ran = tmp_path / "ran"
    (folder / "configuration_mine.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    change_config(
        folder, model_type="mine", auto_map={"AutoConfig": "configuration_mine.C", "AutoModel": "modeling_mine.M"}
    )
    with pytest.raises(
        ModelError, match="needs code from its own repository to run, and Pellucid never runs such code"
    ) as caught:
        Model.load(folder)
    one_sentence(caught)
    assert not ran.exists()


@pytest.mark.parametrize(
    "options", [{"device": "nowhere"}, {"device": "cuda:99"}, {"dtype": torch.int8}, {"dtype": "float99"}]
)
def test_devices_and_dtypes_that_cannot_be(gpt2_folder, options):
    with pytest.raises(ModelError) as caught:
        Model.load(gpt2_folder, **options)
    one_sentence(caught)


def test_gguf_files_that_are_missing_or_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ModelError, match=r"There is no file 'nowhere.gguf'"):
        Model.load("nowhere.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF, but not really")
    with pytest.raises(ModelError) as caught:
        Model.load(tmp_path / "broken.gguf")
    assert "broken.gguf" in one_sentence(caught)
    assert not list((tmp_path / "cache").rglob("config.json"))


# -- model objects ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("setting", "attention"), [("sdpa", "fused"), ("eager", "eager")])
def test_a_model_object_keeps_its_attention_setting(setting, attention):
    hf = network("llama", setting)
    model = Model.load(hf)
    assert model.hf is hf
    assert model.attention == attention
    assert hf.config._attn_implementation == setting


def test_objects_with_other_attention_are_refused_by_name():
    hf = network("gpt2", "sdpa")
    hf.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(ModelError, match=r"uses 'flash_attention_2' attention.*set_attn_implementation\('sdpa'\)"):
        Model.load(hf)


def test_objects_whose_fused_kernel_shows_nothing_are_refused():
    with pytest.raises(
        ModelError, match=r"FalconForCausalLM.*computes attention by itself.*attn_implementation='eager'"
    ):
        Model.load(network("falcon", "sdpa"))


def test_a_module_that_is_no_transformer_is_sent_to_wrap():
    with pytest.raises(ModelError, match=r"Linear is not a transformers model; open it with Model.wrap"):
        Model.load(nn.Linear(2, 2))


@pytest.mark.parametrize("asked", [{"dtype": torch.float64}, {"attention": "eager"}, {"device": "meta"}])
def test_a_model_object_is_opened_as_it_is_or_refused(asked):
    """Options that would have to change the user's object are not silently ignored."""
    hf = network("gpt2", "sdpa")
    with pytest.raises(ModelError, match=f"this one has {next(iter(asked))} .*change the object before you pass it"):
        Model.load(hf, **asked)
    same = Model.load(hf, dtype=torch.float32, attention="fused", device="cpu")
    assert same.attention == "fused"
