"""Edits inside a model: what the output becomes, and that nothing of them stays."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional

from pellucid.errors import EditError, PellucidError, SiteError
from pellucid.model import Batch, Edit, Model
from tests.tiny_models import error, hook_count, network, opened, padded, plain_output

ALL_KINDS = [
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
    "logits",
]


def without_columns(name: str, parameter: str, chosen, *, rows: bool) -> torch.nn.Module:
    """A network whose matrix ignores some of its inputs."""
    hf = network(name)
    with torch.no_grad():
        matrix = hf.get_parameter(parameter)
        (matrix if rows else matrix.T)[chosen] = 0
    return hf


def test_zeroing_a_head_equals_cutting_its_part_of_the_output_projection():
    batch = padded("gpt2")
    cut = without_columns(
        "gpt2", "transformer.h.1.attn.c_proj.weight", slice(20, 30), rows=True
    )  # Conv1D: rows are inputs
    edited = opened("gpt2").run(batch, (), Edit.zero("heads.1", heads=2)).logits
    assert error(edited, Model.load(cut).run(batch).logits) < 1e-6
    assert error(edited, opened("gpt2").run(batch).logits) > 1e-2


def test_zeroing_neurons_equals_cutting_their_part_of_the_down_projection():
    batch = padded("llama")
    cut = without_columns("llama", "model.layers.2.mlp.down_proj.weight", [3, 50], rows=False)
    edited = opened("llama").run(batch, (), Edit.zero("neurons.2", neurons=[3, 50])).logits
    assert error(edited, Model.load(cut).run(batch).logits) < 1e-6


def test_setting_the_embedding_equals_another_row_of_the_table():
    model = opened("llama")
    row = model.hf.get_input_embeddings().weight[42].detach()
    batch, other = Batch.of_ids([[9, 10, 11]]), Batch.of_ids([[9, 42, 11]])
    assert torch.equal(model.run(batch, (), Edit.set("embed", row, positions=1)).logits, model.run(other).logits)


def test_setting_the_last_stream_gives_the_head_applied_to_it():
    model = opened("gpt2")
    vector = torch.randn(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    got = model.run(padded("gpt2"), (), Edit.set("resid.3", vector)).logits
    norm = model.hf.transformer.ln_f
    normed = functional.layer_norm(vector, (40,), norm.weight.double(), norm.bias.double(), norm.eps)
    assert error(got, (normed @ model.hf.lm_head.weight.double().T).expand(got.shape)) < 1e-5


def test_editing_attn_and_mid_moves_the_stream_by_exactly_that():
    model, batch = opened("gpt2"), padded("gpt2")
    step = torch.linspace(-1, 1, 40)
    plain = model.run(batch, ["mid.1", "attn.1"])
    by_attn = model.run(batch, ["mid.1", "resid.2"], Edit.add("attn.1", step))
    by_mid = model.run(batch, ["mid.1", "resid.2"], Edit.add("mid.1", step))
    assert error(by_attn["mid.1"], plain["mid.1"] + step) < 1e-6
    assert error(by_mid["mid.1"], plain["mid.1"] + step) < 1e-6
    assert error(by_mid["resid.2"], by_attn["resid.2"]) < 1e-5


@pytest.mark.parametrize("name", ["granite", "gemma2", "bert", "albert", "falcon"])
@pytest.mark.parametrize("kind", ["attn", "mid", "mlp", "resid"])
def test_an_edit_that_puts_back_what_was_there_changes_nothing(name, kind):
    """Multipliers, output norms and post-norms: reading and writing a site are inverse."""
    model, batch = opened(name), padded(name)
    run = model.run(batch, f"{kind}.1")
    real = batch.mask.bool()
    assert error(model.run(batch, (), Edit.patch(f"{kind}.1", run)).logits[real], run.logits[real]) < 2e-6


@pytest.mark.parametrize("name", ["gpt2", "bert", "bloom", "falcon", "flaubert", "xlnet"])
def test_patching_the_first_stream_everywhere_gives_the_other_runs_output(name):
    model, one, other = opened(name), padded(name), padded(name, seed=5)
    run = model.run(one, "resid.0")
    patched = model.run(other, (), Edit.patch("resid.0", run)).logits
    real = one.mask.bool()
    assert error(patched[real], run.logits[real]) < 1e-6
    assert error(model.run(other).logits[real], run.logits[real]) > 1e-2


def test_patching_one_position_and_head_takes_only_that():
    model = opened("gpt2")
    one, other = padded("gpt2"), padded("gpt2", seed=5)
    source, plain = model.run(one, "heads.1"), model.run(other, "heads.1")["heads.1"]
    got = model.run(other, "heads.1", Edit.patch("heads.1", source, heads=3, positions=[2]))["heads.1"]
    assert torch.equal(got[:, 3, 2], source["heads.1"][:, 3, 2])
    untouched = torch.ones_like(got, dtype=torch.bool)
    untouched[:, 3, 2] = False
    assert torch.equal(got[untouched], plain[untouched])


def test_several_edits_at_one_site_are_made_in_the_order_given():
    model, batch = opened("gpt2"), padded("gpt2")
    first, second = Edit.set("neurons.0", 2.0, neurons=[1]), Edit.scale("neurons.0", 3.0, neurons=[1, 2])
    plain = model.run(batch, "neurons.0")["neurons.0"]
    one = model.run(batch, "neurons.0", [first, second])["neurons.0"]
    other = model.run(batch, "neurons.0", [second, first])["neurons.0"]
    assert torch.equal(one[..., 1], torch.full_like(one[..., 1], 6.0))
    assert torch.equal(other[..., 1], torch.full_like(one[..., 1], 2.0))
    assert torch.equal(one[..., 2], plain[..., 2] * 3)


def test_edits_at_several_sites_act_together():
    model, batch = opened("gpt2"), padded("gpt2")
    edits = [
        Edit.zero("attn.0"),
        Edit.zero("mlp.0"),
        Edit.zero("attn.1"),
        Edit.zero("mlp.1"),
        Edit.zero("attn.2"),
        Edit.zero("mlp.2"),
    ]
    run = model.run(batch, ["resid.0", "resid.3"], edits)
    assert torch.equal(run["resid.0"], run["resid.3"])


def test_sites_read_under_an_edit_show_the_edited_values():
    model, batch = opened("llama"), padded("llama")
    run = model.run(batch, ["heads.1", "attn.1"], Edit.set("heads.1", 0.0))
    assert not run["heads.1"].any()
    assert not run["attn.1"].any()  # Llama's output projection has no bias


@pytest.mark.parametrize("name", ["gpt2", "bloom"])
@pytest.mark.parametrize("site", ALL_KINDS)
def test_edits_are_undone_exactly(name, site):
    model, batch = opened(name), padded(name)
    before, hooks = plain_output(model, batch), hook_count(model.hf)
    edited = model.run(batch, (), Edit.add(site, 1.0, positions=[2])).logits
    if site != "key.1":  # a shift of one key moves only the queries after it
        assert not torch.equal(edited, before)
    assert torch.equal(plain_output(model, batch), before)
    assert torch.equal(model.run(batch).logits, before)
    assert hook_count(model.hf) == hooks


@pytest.mark.parametrize("site", ALL_KINDS)
@pytest.mark.parametrize("setting", ["eager", "sdpa"])
def test_an_edit_of_the_wrong_shape_is_refused_and_leaves_nothing(site, setting):
    model, batch = opened("gpt2", setting), padded("gpt2")
    before, hooks = plain_output(model, batch), hook_count(model.hf)
    with pytest.raises(EditError):
        model.run(batch, model.sites, [Edit.zero("embed"), Edit.set(site, torch.ones(3, 5, 2))])
    assert hook_count(model.hf) == hooks
    assert model.hf.config._attn_implementation == setting
    assert torch.equal(plain_output(model, batch), before)


def test_weights_and_buffers_are_never_changed():
    model, batch = Model.load(network("gpt2")), padded("gpt2")
    before = copy.deepcopy(model.hf.state_dict())
    model.run(
        batch,
        model.sites,
        [Edit.zero("embed"), Edit.add("heads.1", 3.0), Edit.scale("neurons.0", 0.0), Edit.zero("logits")],
    )
    after = model.hf.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (Edit.zero("heads.7"), "No site matches 'heads.7'"),
        (Edit.zero("heads.*"), "means 3 sites"),
        (Edit.zero("heads.1", heads=4), "heads.1 has 4 heads, numbered 0 to 3; head 4 does not exist"),
        (Edit.zero("neurons.1", neurons=[0, 56]), "neurons.1 has 56 units, numbered 0 to 55; unit 56 does not exist"),
        (Edit.zero("resid.1", positions=11), "resid.1 has 11 positions, 0 to 10; position 11 does not exist"),
        (Edit.gate("heads.1", torch.ones(3)), "gate at heads.1 got 3 values for 4 heads"),
        (
            Edit.set("neurons.1", torch.ones(7)),
            r"has shape (7,), which does not fit the chosen part, of shape (3, 11, 56)",
        ),
        (Edit("heads.1", "blur"), "no edit called 'blur'"),
    ],
)
def test_edits_that_do_not_fit_say_what_exists(edit, complaint):
    model = opened("gpt2")
    with pytest.raises(PellucidError) as caught:
        model.run(padded("gpt2"), (), edit)
    assert complaint in str(caught.value)


def test_patching_from_a_run_that_did_not_record_the_site_is_refused():
    model, batch = opened("gpt2"), padded("gpt2")
    with pytest.raises(EditError, match=r"did not record heads.1; ask for it with sites=\['heads.1'\]"):
        model.run(batch, (), Edit.patch("heads.1", model.run(batch, "heads.0")))


def test_patching_between_runs_of_unlike_length_is_refused():
    model = opened("gpt2")
    run = model.run(Batch.of_ids([[9, 8]]), "heads.1")
    with pytest.raises(EditError, match=r"patch between runs of equal batch and length"):
        model.run(Batch.of_ids([[9, 8, 7]]), (), Edit.patch("heads.1", run))


@pytest.mark.parametrize("side", ["right", "left"])
def test_mean_ablation_counts_real_tokens_only(side):
    model, batch = opened("gpt2"), padded("gpt2", side)
    real = batch.mask.bool()
    plain = model.run(batch, "neurons.1")["neurons.1"]
    got = model.run(batch, "neurons.1", Edit.mean("neurons.1"))["neurons.1"]
    by_hand = plain[real].double().mean(0)
    assert error(got[real], by_hand.expand(int(real.sum()), -1)) < 1e-6
    assert error(plain.double().mean((0, 1)), by_hand) > 1e-3  # padding would have shown


def test_mean_ablation_of_cross_values_counts_real_source_tokens_only():
    """Keys and values of cross attention stand at the encoder's tokens, not at the decoder's."""
    model, batch = opened("bart"), padded("bart")
    real = batch.mask.bool()
    plain = model.run(batch, "cross.value.1")["cross.value.1"]
    got = model.run(batch, "cross.value.1", Edit.mean("cross.value.1"))["cross.value.1"]
    by_hand = plain.transpose(1, 2)[real].double().mean(0)  # [H, dh]
    assert error(got[0, :, 0], by_hand) < 1e-6


def test_mean_of_scores_per_text():
    from transformers import BertForSequenceClassification

    torch.manual_seed(0)
    config = network("bert").config
    model = Model.load(BertForSequenceClassification(config).eval())
    batch = padded("bert")
    plain = model.run(batch).logits
    got = model.run(batch, (), Edit.mean("logits")).logits
    assert torch.allclose(got, plain.mean(0).expand_as(plain), atol=1e-6)


def test_an_unsound_position_on_one_token_is_refused():
    with pytest.raises(SiteError, match="position 5"):
        opened("gpt2").run(Batch.of_ids([[9]]), (), Edit.zero("heads.1", positions=[5]))


def test_encoder_edits_reach_the_decoder():
    model, batch = opened("t5"), padded("t5")
    plain = model.run(batch, ["cross.key.0"])
    edited = model.run(batch, ["cross.key.0"], Edit.zero("encoder.heads.1", heads=0))
    assert not torch.equal(plain["cross.key.0"], edited["cross.key.0"])
    assert not torch.equal(plain.logits, edited.logits)
