"""Heads removed for good: same outputs as with closed gates, fewer weights and operations, saved and opened again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from pellucid import HeadCounts, sweep
from pellucid.corpus import Corpus
from pellucid.errors import ModelError, PellucidError, SiteError
from pellucid.heads import statistics
from pellucid.heads.naming import all_heads, find_heads, head_name
from pellucid.heads.pruning.feeding import feeding, probed
from pellucid.heads.pruning.smaller import cost, kept_heads, save_smaller, smaller
from pellucid.model import Edit, Model
from pellucid.model.fewer_heads import FILE, RepeatedLinear
from pellucid.model.sites import HEAD_KINDS, Site
from tests.tiny_models import error, network, opened, padded, word_tokenizer

FAMILIES = ["bert", "gpt2", "llama", "bart", "modernbert", "gpt_neox", "gpt_oss"]


def gated(model: Model, names: list[str], batch):
    """The outputs of the whole model with the gates of some heads closed."""
    edits = [Edit.gate(site, torch.zeros(1), heads=[head]) for site, head in find_heads(model, names)]
    return model.run(batch, edits=edits).logits


def some(model: Model, every: int = 3) -> list[str]:
    return [head_name(*head) for head in all_heads(model)][1::every]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_same_outputs_as_the_gated_model(family, attention):
    model, batch = opened(family, attention), padded(family)
    names = some(model)
    found = smaller(model, names)
    wanted, whole = gated(model, names, batch), model.run(batch).logits
    real = batch.mask.bool() if wanted.shape[:2] == batch.mask.shape else batch.target_mask.bool()
    assert error(found.run(batch).logits[real], wanted[real]) < 1e-5
    assert error(whole[real], wanted[real]) > 1e-3, "the heads must matter"
    less, more = cost(found), cost(model)
    assert less.parameters < more.parameters
    assert less.flops < more.flops


@pytest.mark.parametrize("family", FAMILIES)
def test_sites_sizes_and_patterns_are_those_of_the_heads_that_are_left(family):
    model, batch = opened(family), padded(family)
    names = some(model)
    found = smaller(model, names)
    sites = [site for site in model.sites if site.kind == "heads"]
    gone = {site: [head for place, head in find_heads(model, names) if place == site] for site in sites}
    patterns, before = (each.run(batch, "*.pattern.*") for each in (found, model))
    for site in sites:
        heads, width = model.size(site)
        assert found.size(site) == (heads - len(gone[site]), width)
        left = [head for head in range(heads) if head not in gone[site]]
        assert kept_heads(found)[str(site)] == tuple(left)
        assert patterns[site.beside("pattern")].shape[1] == len(left)
    first = next(site for site in sites if site.stack != "cross" and site.layer == 0)
    left = list(kept_heads(found)[str(first)])
    now, then = patterns[first.beside("pattern")], before[first.beside("pattern")][:, left]
    assert torch.allclose(now, then, atol=1e-6)
    assert {str(site) for site in found.sites} == {str(site) for site in model.sites}


def test_the_weights_that_go_are_exactly_those_of_the_heads():
    """BERT: a head of width d holds d rows of query, key and value with their biases, and d columns of the output."""
    model = opened("bert")
    width, stream = model.size("heads.1")[1], model.size("resid.0")[0]
    found = smaller(model, ["1.0", "1.2"])
    assert cost(model).parameters - cost(found).parameters == 2 * (3 * width * (stream + 1) + width * stream)
    whole, left = (dict(each.hf.named_parameters()) for each in (model, found))
    rows = [*range(width, 2 * width), *range(3 * width, 4 * width)]
    name = next(name for name in whole if name.endswith("layer.1.attention.self.query.weight"))
    assert torch.equal(left[name], whole[name][rows])
    name = next(name for name in whole if name.endswith("layer.1.attention.output.dense.weight"))
    assert torch.equal(left[name], whole[name][:, rows])


def test_operations_fall_by_what_the_heads_took():
    """Projections of T tokens, and two products of T × T with width d, for every head that is gone; 2 per addition."""
    model, batch = opened("bert", "eager"), padded("bert")
    width, stream, (rows, length) = model.size("heads.0")[1], model.size("resid.0")[0], batch.ids.shape
    fewer = cost(model, batch).flops - cost(smaller(model, ["0.3"]), batch).flops
    assert fewer == 2 * rows * (4 * length * stream * width + 2 * length * length * width)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "bart"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_all_heads_of_a_layer_and_of_the_whole_model_may_go(family, attention, tmp_path, monkeypatch):
    fused = torch.nn.functional.scaled_dot_product_attention

    def attend(query, *others, **options):
        assert query.shape[1], "torch 2.11 ends the process where there is no head"
        return fused(query, *others, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    model, batch = opened(family, attention), padded(family)
    every = [head_name(*head) for head in all_heads(model)]
    for names in ([name for name in every if name.split(".")[-2] == "1"], every):
        found = smaller(model, names)
        wanted = gated(model, names, batch)
        real = batch.mask.bool() if wanted.shape[:2] == batch.mask.shape else batch.target_mask.bool()
        assert error(found.run(batch).logits[real], wanted[real]) < 1e-5
        empty = {site.beside(kind) for site, _ in find_heads(model, names) for kind in HEAD_KINDS}
        assert empty.isdisjoint(found.sites)
        assert {found.missing[str(site)] for site in empty} == {"all heads of this layer were removed"}
        assert set(found.sites) == set(model.sites) - empty
        assert found.causal == model.causal
        assert all(kept_heads(found)[str(site)] == () for site in empty if site.kind == "heads")
        save_smaller(found, tmp_path / f"{len(names)}")
        again = Model.load(tmp_path / f"{len(names)}", attention=found.attention)
        assert torch.equal(again.run(batch).logits, found.run(batch).logits)
        assert set(Model.random_like(again).sites) == set(found.sites)  # biases of 0: attention adds nothing at all


def grouped(head_dim: int = 8) -> Model:
    """A Llama of two layers with six query heads in two groups of three."""
    torch.manual_seed(5)
    config = LlamaConfig(
        hidden_size=48,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=head_dim,
        vocab_size=100,
        attn_implementation="eager",
    )
    return Model.load(LlamaForCausalLM(config).eval(), tokenizer=word_tokenizer())


@pytest.mark.parametrize(
    ("names", "heads", "groups", "repeated"),
    [
        (["0.0", "0.1", "0.2"], 3, 1, False),  # a whole group goes
        (["0.0", "0.4"], 4, 2, False),  # one of each group
        (["0.1"], 5, 2, True),  # unequal groups
        (["0.0", "0.1", "0.5"], 3, 2, True),
    ],
)
def test_a_group_goes_with_the_last_of_its_query_heads(names, heads, groups, repeated, tmp_path):
    model, batch = grouped(), padded("llama")
    found = smaller(model, names)
    attention = found.hf.model.layers[0].self_attn
    assert attention.q_proj.out_features == 8 * heads
    assert attention.k_proj.out_features == attention.v_proj.out_features == 8 * groups
    assert attention.o_proj.in_features == 8 * heads
    assert isinstance(attention.k_proj, RepeatedLinear) == repeated
    wanted = gated(model, names, batch)
    real = batch.mask.bool()
    assert error(found.run(batch).logits[real], wanted[real]) < 1e-5
    save_smaller(found, tmp_path / "saved")
    again = Model.load(tmp_path / "saved", attention="eager")
    assert again.fingerprint == found.fingerprint
    assert torch.equal(again.run(batch).logits, found.run(batch).logits)


def test_generation_with_a_cache_is_that_of_the_gated_model():
    model, names = grouped(), ["0.1", "1.0", "1.1", "1.2"]
    batch = padded("llama", side="left")
    edits = [Edit.zero(site, heads=head) for site, head in find_heads(model, names)]
    wanted = model.generate(batch, max_new_tokens=6, edits=edits).ids
    assert torch.equal(smaller(model, names).generate(batch, max_new_tokens=6).ids, wanted)


def test_equally_many_heads_in_every_layer_make_an_ordinary_folder(tmp_path):
    model, batch = grouped(), padded("llama")
    names = ["0.0", "0.5", "1.1", "1.3"]
    found = smaller(model, names)
    saved = save_smaller(found, tmp_path / "saved")
    assert saved.hugging_face
    assert saved.reason == ""
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", attn_implementation="eager").eval()
    with torch.no_grad():
        logits = plain(input_ids=batch.ids, attention_mask=batch.mask).logits
    real = batch.mask.bool()
    assert error(logits[real], gated(model, names, batch)[real]) < 1e-5
    again = Model.load(tmp_path / "saved", attention="eager")
    assert kept_heads(again) == {"heads.0": (1, 2, 3, 4), "heads.1": (0, 2, 4, 5)}
    assert again.fingerprint == found.fingerprint


@pytest.mark.parametrize(
    ("family", "names", "why"),
    [
        ("bert", ["0.0"], "layers have 3 to 4 heads"),
        ("gpt2", ["0.0", "1.1", "2.3"], "ties the width of a head"),
        ("bart", ["cross.0.1"], "layers have 1 to 4 heads"),
    ],
)
def test_other_folders_say_why_transformers_cannot_open_them(family, names, why, tmp_path):
    saved = save_smaller(smaller(opened(family), names), tmp_path / "saved")
    assert not saved.hugging_face
    assert why in saved.reason
    told = json.loads((tmp_path / "saved" / FILE).read_text())
    assert told["reason"] == saved.reason
    listed = {head_name(_site(site), head) for site, heads in told["removed"].items() for head in heads}
    assert listed == set(names)
    with pytest.raises((RuntimeError, ValueError)):
        AutoModel.from_pretrained(tmp_path / "saved")


def _site(name: str) -> Site:
    kind, layer = name.split(".")[-2:]
    return Site(kind, int(layer), name.split(".")[0] if name.count(".") == 2 else None)


def test_a_sweep_goes_over_layers_that_have_lost_all_heads():
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    less = smaller(model, [f"0.{head}" for head in range(4)])
    corpus = Corpus.of([["the", "old", "dog", "sleeps"], ["a", "red", "cat", "runs"]])
    found = statistics(sweep(less, corpus, [HeadCounts()], progress=False))
    assert found.axes["layer"] == (1, 2)


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart", "albert"])
def test_saved_opened_and_named_the_same(family, tmp_path):
    model = opened(family)
    names = [f"{layer}.1" for layer in range(3)] if family == "albert" else some(model, 2)
    found = smaller(model, names)
    found.tokenizer = word_tokenizer()
    found = Model.load(found.hf, tokenizer=word_tokenizer())
    save_smaller(found, tmp_path / "saved")
    again = Model.load(tmp_path / "saved", attention="eager")
    assert again.fingerprint == found.fingerprint != model.fingerprint
    assert [again.size(site) for site in again.sites] == [found.size(site) for site in found.sites]
    assert torch.equal(again.run(padded(family)).logits, found.run(padded(family)).logits)
    assert again.recipe().fingerprint == found.fingerprint
    random = Model.random_like(again)
    assert [random.size(site) for site in random.sites] == [again.size(site) for site in again.sites]
    assert again.tokenizer("the keys")["input_ids"] == found.tokenizer("the keys")["input_ids"]


def test_heads_can_be_removed_again_and_keep_their_first_numbers(tmp_path):
    model, batch = opened("gpt2"), padded("gpt2")
    once = smaller(model, ["0.0", "0.2"])
    save_smaller(once, tmp_path / "once")
    twice = smaller(Model.load(tmp_path / "once", attention="eager"), ["0.1", "2.3"])  # what was 0.3
    assert kept_heads(twice) == {"heads.0": (1,), "heads.1": (0, 1, 2, 3), "heads.2": (0, 1, 2)}
    wanted = gated(model, ["0.0", "0.2", "0.3", "2.3"], batch)[batch.mask.bool()]
    assert error(twice.run(batch).logits[batch.mask.bool()], wanted) < 1e-5


@pytest.mark.parametrize("family", ["gpt2", "bart", "albert"])
def test_gates_of_the_heads_that_stay_become_weights(family):
    model, batch = opened(family), padded(family)
    layers = range(3) if family == "albert" else [0]
    stack = "cross." if family == "bart" else ""
    gates = {f"{stack}{layer}.1": 0.37 for layer in layers}
    gone = [f"{stack}{layer}.0" for layer in layers]
    found = smaller(model, gone, gates=gates)
    sites = {site for site, _ in find_heads(model, gone)}
    edits = [Edit.gate(site, torch.tensor([0.0, 0.37]), heads=[0, 1]) for site in sites]
    wanted = model.run(batch, edits=edits).logits
    real = batch.mask.bool() if wanted.shape[:2] == batch.mask.shape else batch.target_mask.bool()
    assert error(found.run(batch).logits[real], wanted[real]) < 1e-5
    assert error(smaller(model, gone).run(batch).logits[real], wanted[real]) > 1e-4
    if family == "albert":
        with pytest.raises(ModelError, match="shares its weights"):
            smaller(model, gone, gates={"0.1": 0.5, "1.1": 0.4, "2.1": 0.5})


def test_the_model_itself_stays_as_it_is():
    model, batch = Model.load(network("gpt2")), padded("gpt2")
    before, name = model.run(batch).logits, model.fingerprint
    smaller(model, some(model))
    assert torch.equal(model.run(batch).logits, before)
    assert Model.load(model.hf).fingerprint == name


def test_shared_layers_lose_a_head_together_or_not_at_all():
    model, batch = opened("albert"), padded("albert")
    with pytest.raises(ModelError, match=r"heads\.0, heads\.1, heads\.2 share their weights"):
        smaller(model, ["0.1"])
    with pytest.raises(ModelError, match="share their weights"):
        smaller(model, ["0.1", "1.1", "2.2"])
    names = ["0.1", "1.1", "2.1"]
    found = smaller(model, names)
    assert [found.size(f"heads.{layer}")[0] for layer in range(3)] == [3, 3, 3]
    real = batch.mask.bool()
    assert error(found.run(batch).logits[real], gated(model, names, batch)[real]) < 1e-5


def test_fused_weights_part_into_heads_by_their_gradients():
    """GPT-2 lays queries, keys and values of all heads side by side in one matrix."""
    model = opened("gpt2")
    heads, width = model.size("heads.1")
    site, path = Site("heads", 1), "transformer.h.1.attn"
    parts = feeding(model, probed(model, [site]), site, path, frozenset({f"{path}.c_proj"}))
    part = parts["transformer.h.1.attn.c_attn.weight"]
    assert part.axis == 1
    for place, kind in enumerate(("query", "key", "value")):
        for head in range(heads):
            first = (place * heads + head) * width
            assert part.rows[kind][head].nonzero().flatten().tolist() == list(range(first, first + width))


@pytest.mark.parametrize("family", ["t5", "xlnet", "longformer"])
def test_what_cannot_be_cut_is_refused_in_a_sentence(family):
    model = opened(family)
    name = head_name(*all_heads(model)[0])
    with pytest.raises(ModelError, match=r"cannot be removed: .*Gates .* work all the same"):
        smaller(model, [name])


def test_bad_requests(tmp_path):
    model = opened("gpt2")
    with pytest.raises(SiteError, match=r"no head '7\.0'.*0\.0 to 0\.3"):
        smaller(model, ["7.0"])
    with pytest.raises(ModelError, match="has all its heads"):
        save_smaller(model, tmp_path / "whole")
    assert not (tmp_path / "whole").exists()
    found = smaller(model, ["0.0"])
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "note.txt").write_text("mine")
    with pytest.raises(PellucidError, match="exists and is not empty"):
        save_smaller(found, tmp_path / "there")
    assert [item.name for item in (tmp_path / "there").iterdir()] == ["note.txt"]
    save_smaller(found, tmp_path / "good")
    with pytest.raises(ModelError, match="opens as that alone"):
        Model.load(tmp_path / "good", head="none")
    _spoil(tmp_path / "good" / FILE, {"format": 99})
    with pytest.raises(ModelError, match=r"another Pellucid \(format 99"):
        Model.load(tmp_path / "good")
    (tmp_path / "good" / FILE).write_text("{")
    with pytest.raises(ModelError, match="damaged"):
        Model.load(tmp_path / "good")


def _spoil(path: Path, changes: dict[str, object]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
