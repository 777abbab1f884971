"""Capture: outputs untouched, every site once, nothing left behind, nothing silent."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

from pellucid.errors import EditError, ModelError, OutOfMemory, SiteError, TextError
from pellucid.model import Batch, Edit, Model
from pellucid.model.attention import _listener
from tests.tiny_models import error, hook_count, network, opened, padded, plain_output

NAMES = ["gpt2", "bert", "llama", "falcon", "bloom", "t5", "mixtral", "gpt_oss", "xlnet", "longformer"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_capturing_everything_leaves_the_output_bit_equal_and_no_hook(name, side):
    model, batch = opened(name), padded(name, side)
    before, hooks = plain_output(model, batch), hook_count(model.hf)
    run = model.run(batch, model.sites)
    assert set(run) == set(model.sites)
    assert torch.equal(run.logits.nan_to_num(), before.nan_to_num())
    assert hook_count(model.hf) == hooks
    assert torch.equal(plain_output(model, batch).nan_to_num(), before.nan_to_num())


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "deepseek_v3", "albert"])
def test_one_site_alone_reads_the_same_as_all_sites_together(name):
    """Sums, shared experts and windows depend on other sites: asking for one alone must not change it."""
    model, batch = opened(name), padded(name)
    together = model.run(batch, model.sites)
    for site in model.sites:
        alone = model.run(batch, site)
        assert list(alone) == [site]
        assert torch.equal(alone[site].nan_to_num(), together[site].nan_to_num()), site


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_streams_are_the_models_own_hidden_states(name):
    model, batch = opened(name), padded(name)
    arguments, _ = model._arguments(batch)
    with torch.no_grad():
        own = model.hf(**arguments, output_hidden_states=True)
    for prefix, states in (("", own.get("hidden_states")), ("encoder.", own.get("encoder_hidden_states"))):
        for layer, state in enumerate((states or ())[:-1]):
            site = f"{prefix}resid.{layer}"
            assert torch.equal(model.run(batch, site)[site], state), site


def test_shapes_are_those_of_the_contract():
    model, batch = opened("llama"), padded("llama")
    shapes = {str(site): tuple(value.shape) for site, value in model.run(batch, model.sites).items()}
    b, t = batch.ids.shape
    for layer in range(3):
        assert {shapes[f"{kind}.{layer}"] for kind in ("resid", "attn", "mlp", "mid")} == {(b, t, 40)}
        assert shapes[f"neurons.{layer}"] == (b, t, 56)
        assert {shapes[f"{kind}.{layer}"] for kind in ("query", "heads")} == {(b, 4, t, 12)}
        assert {shapes[f"{kind}.{layer}"] for kind in ("key", "value")} == {(b, 2, t, 12)}
        assert shapes[f"pattern.{layer}"] == (b, 4, t, t)
    assert shapes["resid.3"] == shapes["embed"] == (b, t, 40)
    assert shapes["logits"] == (b, t, 97)
    assert "resid.4" not in shapes


def test_cross_attention_shapes_join_both_lengths():
    model, batch = opened("bart"), padded("bart")
    run = model.run(batch, "cross.*.0")
    s, t = batch.ids.shape[1], batch.target_ids.shape[1]
    assert s != t
    assert run["cross.pattern.0"].shape == (3, 2, t, s)
    assert run["cross.key.0"].shape == run["cross.value.0"].shape == (3, 2, s, 20)
    assert run["cross.heads.0"].shape == run["cross.query.0"].shape == (3, 2, t, 20)
    assert run["cross.mid.0"].shape == (3, t, 40)


@pytest.mark.parametrize("name", ["gpt2", "t5", "mixtral", "deepseek_v3", "xlnet"])
def test_reduce_sees_every_site_asked_for_exactly_once_and_its_answer_is_kept(name):
    model, batch = opened(name), padded(name)
    seen = []

    def reduce(site, tensor):
        seen.append(site)
        return float(tensor.double().nan_to_num().sum())

    run = model.run(batch, model.sites, reduce=reduce)
    assert sorted(map(str, seen)) == sorted(map(str, model.sites))
    whole = model.run(batch, model.sites)
    assert {site: run[site] for site in run} == {site: float(whole[site].double().nan_to_num().sum()) for site in whole}


def test_names_that_were_not_recorded_raise():
    model, batch = opened("gpt2"), padded("gpt2")
    run = model.run(batch, ["heads.1", "resid.0"])
    assert "heads.1" in run
    assert "heads.2" not in run
    assert len(run) == 2
    with pytest.raises(SiteError, match=r"'heads.2' was not recorded in this run, which has resid.0, heads.1"):
        run["heads.2"]
    with pytest.raises(SiteError, match=r"not asked for any site"):
        model.run(batch)["heads.2"]
    with pytest.raises(SiteError, match=r"No site matches 'heads.9'"):
        model.run(batch, "heads.9")


def test_a_model_without_a_head_says_so_when_asked_for_logits():
    hf = network("bert").bert
    run = Model.load(hf).run(padded("bert"))
    with pytest.raises(SiteError, match="gives no logits"):
        run.logits  # noqa: B018
    assert "logits" in Model.load(hf).missing


class Breaks(nn.Module):
    """Raises in the middle of a forward pass."""

    def __init__(self, inner: nn.Module, what: Exception) -> None:
        super().__init__()
        self.inner, self.what = inner, what

    def forward(self, *args, **kwargs):
        raise self.what


@pytest.mark.parametrize("setting", ["eager", "sdpa"])
def test_no_listener_is_left_that_would_keep_a_pass_alive(setting):
    model, batch = opened("gpt2", setting), padded("gpt2")
    model.run(batch, "pattern.*")
    assert _listener.get() is None
    with pytest.raises(EditError):
        model.run(batch, "pattern.*", Edit.set("heads.1", torch.ones(3, 5)))
    assert _listener.get() is None


@pytest.mark.parametrize("name", ["gpt2", "bert", "mixtral", "bloom"])
def test_what_a_reducer_holds_goes_when_the_pass_is_over(name):
    class Large:
        """Stands for statistics of a whole corpus."""

    model, large = opened(name), Large()
    held = weakref.ref(large)

    def reduce(site, tensor, large=large):
        return tensor.sum()

    gc.collect()
    gc.disable()  # a cycle would be found some time later, with much memory in it
    try:
        run = model.run(padded(name), model.sites, reduce=reduce)
        del reduce, large
        assert held() is None
        assert len(run) == len(model.sites)
    finally:
        gc.enable()


def test_nothing_is_left_when_the_forward_raises_midway():
    model, batch = Model.load(network("gpt2", "sdpa")), padded("gpt2")
    before, hooks = model.run(batch).logits, hook_count(model.hf)
    block = model.hf.transformer.h[1]
    sound, block.mlp = block.mlp, Breaks(block.mlp, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        model.run(batch, ["embed", "heads.0", "pattern.0"], Edit.zero("heads.0"))
    block.mlp = sound
    assert hook_count(model.hf) == hooks
    assert model.hf.config._attn_implementation == "sdpa"
    assert torch.equal(model.run(batch).logits, before)
    assert torch.equal(plain_output(model, batch), before)


@pytest.mark.parametrize(
    "what", [MemoryError(), torch.OutOfMemoryError("x"), RuntimeError("DefaultCPUAllocator: not enough memory")]
)
def test_running_out_of_memory_is_one_sentence_that_names_the_batch(what):
    model, batch = Model.load(network("gpt2")), padded("gpt2")
    model.hf.transformer.h[1].mlp = Breaks(nn.Identity(), what)
    with pytest.raises(OutOfMemory, match=r"out of memory on a batch of 3 × 11 tokens; use a smaller batch"):
        model.run(batch)


def test_other_errors_of_the_network_are_not_called_memory():
    model = Model.load(network("gpt2"))
    model.hf.transformer.h[1].mlp = Breaks(nn.Identity(), RuntimeError("a shape is wrong"))
    with pytest.raises(RuntimeError, match="a shape is wrong"):
        model.run(padded("gpt2"))


def test_falcon_changes_a_recorded_tensor_in_place_and_the_guard_matters():
    batch, model, careless = padded("falcon"), opened("falcon"), Model.load(network("falcon"))
    located = careless._survey.located
    guarded = [site for site, tap in located.taps.items() if tap.clone]
    assert guarded, "falcon adds attention to the MLP's output in place"
    bare = {site: replace(tap, clone=False) for site, tap in located.taps.items()}
    careless._survey = replace(careless._survey, located=replace(located, taps=bare))
    with pytest.raises(ModelError, match="in place"):
        careless.run(batch, guarded)
    run = model.run(batch, guarded)
    spoilt = careless.run(batch, guarded, reduce=lambda site, tensor: tensor)
    for site in guarded:
        assert error(spoilt[site], run[site]) > 1e-2, site


def test_an_in_place_change_that_the_survey_did_not_see_raises():
    model, batch = Model.load(network("gpt2")), padded("gpt2")

    def spoil(module, args):
        args[0].add_(1.0)

    handle = model.hf.transformer.h[1].ln_1.register_forward_pre_hook(spoil)
    with pytest.raises(ModelError, match=r"changed resid.1 in place after it was recorded"):
        model.run(batch, model.sites)
    handle.remove()


def test_results_of_an_earlier_run_never_change():
    model, batch = opened("gpt2"), padded("gpt2")
    first = model.run(batch, model.sites)
    kept = {site: value.clone() for site, value in first.items()}
    logits = first.logits.clone()
    model.run(batch, model.sites, [Edit.zero("resid.1"), Edit.add("heads.0", 5.0), Edit.zero("embed")])
    model.run(padded("gpt2", seed=3), model.sites)
    assert all(torch.equal(first[site], kept[site]) for site in kept)
    assert torch.equal(first.logits, logits)


def test_recorded_tensors_have_no_graph_unless_asked_for():
    model, batch = opened("gpt2"), padded("gpt2")
    with torch.enable_grad():
        assert not any(value.requires_grad for value in model.run(batch, model.sites).values())


def test_ready_input_that_is_no_batch_is_refused():
    with pytest.raises(TextError, match="takes text or a Batch"):
        opened("gpt2").run(torch.ones(1, 3, dtype=torch.long))


def test_two_threads_do_not_see_each_others_records():
    model = opened("gpt2", "sdpa")
    batches = [padded("gpt2", seed=seed) for seed in range(4)]
    alone = [model.run(batch, "pattern.*")["pattern.1"] for batch in batches]
    found = {}

    def work(place):
        for _ in range(5):
            found[place] = model.run(batches[place], "pattern.*")["pattern.1"]

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all(torch.equal(found[place], alone[place]) for place in range(4))


def test_a_causal_model_padded_on_the_left_keeps_the_positions_of_its_tokens():
    model = opened("gpt2")
    row = torch.tensor([[9, 8, 7, 6]])
    left = Batch.of_ids(torch.tensor([[0, 0, 9, 8, 7, 6]]), torch.tensor([[0, 0, 1, 1, 1, 1]]))
    assert error(model.run(left).logits[:, 2:], model.run(Batch.of_ids(row)).logits) < 1e-5
