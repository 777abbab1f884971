"""Passes that start at a layer: the same answers, less work, and blocks that are themselves again afterwards."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pellucid.errors import EditError, SiteError
from pellucid.model import Edit
from tests.tiny_models import error, hook_count, opened, padded

WHOLE = {"albert": "called several times", "flaubert": "no modules of their own"}
"""Families whose blocks cannot be left out, and why."""
SEVERAL = ("bart", "marian", "led")
FORMS = (
    *("bert", "albert", "deberta-v2", "flaubert", "xlnet", "longformer", "modernbert", "gpt2", "gpt_neo", "gptj"),
    *("bloom", "mpt", "llama", "gemma2", "mixtral", "deepseek_v3", "t5", *SEVERAL),
)
"""Families whose blocks differ in what they take and give."""


def streams(model):
    """The last but one stream of every stack, as strings."""
    top = {}
    for site in model.sites:
        if site.kind == "resid":
            top[site.stack] = site.beside("resid", int(site.layer) - 1)
    return list(top.values())


def own_forwards(model):
    return [name for name, part in model.hf.named_modules() if "forward" in vars(part)]


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_block_gives_the_answer_of_a_whole_pass(name):
    model, batch = opened(name), padded(name)
    for site in streams(model):
        whole = model.run(batch, [site])
        stream = whole[site] + 0.1 * torch.randn(whole[site].shape, generator=torch.Generator().manual_seed(0))
        moved = model.run(batch, (), Edit.patch(site, stream))
        late = model.run(batch, (), start={site: stream})
        assert not torch.equal(moved.logits, whole.logits)
        assert error(late.logits, moved.logits) < 1e-6
        if name in WHOLE:
            assert WHOLE[name] in late.note
    assert own_forwards(model) == []


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "mixtral", "bloom", *SEVERAL])
def test_blocks_below_do_no_work(name):
    """Each stack started at its top: no matrix product is left but those around the blocks."""
    model, batch = opened(name), padded(name)
    tops = [site.beside("resid", int(site.layer) + 1) for site in streams(model)]
    run = model.run(batch, tops)
    assert model.cannot_start(tops) == ""
    with FlopCounterMode(display=False) as whole:
        model.run(batch)
    with FlopCounterMode(display=False) as late:
        again = model.run(batch, (), start={site: run[site] for site in tops})
    assert error(again.logits, run.logits) < 1e-6
    vocabulary = model.size("logits")[-1]
    length = batch.target_ids.shape[1] if batch.target_ids is not None else batch.ids.shape[1]
    head = 2 * 3 * length * 40 * vocabulary
    extra = 2 * 3 * length * 40 * 40 if name == "bert" else 0  # the transform in front of BERT's decoder
    assert late.get_total_flops() == head + extra < whole.get_total_flops() / 3


def test_a_model_that_hands_more_from_block_to_block_runs_whole_and_says_so():
    """T5 computes its position bias in the first block; behind the last one nothing needs it any more."""
    model, batch = opened("t5"), padded("t5")
    run = model.run(batch, "encoder.resid.1")
    late = model.run(batch, (), start={"encoder.resid.1": run["encoder.resid.1"]})
    assert "more of those below" in late.note
    assert model.cannot_start("encoder.resid.1") in late.note
    assert torch.equal(late.logits, run.logits)
    assert model.cannot_start("encoder.resid.3") == ""


def test_gradients_reach_the_start_and_edits_above_work():
    model, batch = opened("gpt2", "eager", torch.float64), padded("gpt2")
    stream = model.run(batch, "resid.2")["resid.2"].clone()
    slopes = []
    for options in ({"start": {"resid.2": stream}}, {"edits": [Edit.patch("resid.2", stream)]}):
        edits = [*options.pop("edits", []), Edit.zero("heads.2", heads=[1])]
        run = model.run(batch, ["resid.2", "neurons.2"], edits, gradients=True, **options)
        slopes.append(torch.autograd.grad(run.logits[batch.mask.bool()].sum(), [run["resid.2"], run["neurons.2"]]))
    for late, whole in zip(*slopes, strict=True):
        assert late.any()
        assert error(late, whole) < 1e-12


def test_what_lies_below_the_start_can_be_neither_read_nor_changed():
    model, batch = opened("gpt2"), padded("gpt2")
    start = {"resid.2": model.run(batch, "resid.2")["resid.2"]}
    with pytest.raises(SiteError, match=r"heads.1 lies below resid.2, where the pass starts"):
        model.run(batch, "heads.1", start=start)
    with pytest.raises(SiteError, match=r"resid.1 lies below resid.2"):
        model.run(batch, (), Edit.zero("resid.1"), start=start)
    with pytest.raises(SiteError, match=r"such as 'resid.3', not with 'mid.1'"):
        model.run(batch, (), start={"mid.1": start["resid.2"]})
    marian, texts = opened("marian"), padded("marian")
    decoder = {"decoder.resid.2": marian.run(texts, "decoder.resid.2")["decoder.resid.2"]}
    with pytest.raises(SiteError, match=r"cross.heads.1 lies below decoder.resid.2"):
        marian.run(texts, "cross.heads.1", start=decoder)
    assert marian.run(texts, ["encoder.heads.0", "cross.heads.2"], start=decoder).note == ""


def test_a_pass_that_fails_leaves_the_blocks_as_they_were():
    model, batch = opened("gpt2"), padded("gpt2")
    hooks, plain = hook_count(model.hf), model.run(batch, "resid.2")
    with pytest.raises(EditError, match=r"has shape \(1, 2, 3\)"):
        model.run(batch, (), start={"resid.2": torch.zeros(1, 2, 3)})
    assert own_forwards(model) == []
    assert hook_count(model.hf) == hooks
    assert torch.equal(model.run(batch).logits, plain.logits)


def test_a_forward_that_a_block_already_had_of_its_own_is_put_back():
    model, batch = opened("gpt2"), padded("gpt2")
    block = model.hf.transformer.h[0]
    stream, own = model.run(batch, "resid.1")["resid.1"], block.forward
    block.forward = own
    try:
        model.run(batch, (), start={"resid.1": stream})
        assert vars(block)["forward"] is own
    finally:
        del block.forward
