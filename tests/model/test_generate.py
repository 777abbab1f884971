"""Generation: transformers' own words without edits, and under edits what re-running the whole text gives."""

from __future__ import annotations

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from pellucid.errors import EditError, ModelError, TextError
from pellucid.model import Batch, Edit, Model
from tests.tiny_models import hook_count, network, opened, padded, plain_output, word_tokenizer

PROMPT = [[11, 12, 13, 14, 15]]
CAUSAL = ["gpt2", "llama", "bloom", "falcon", "gptj", "mixtral", "opt"]


def prompt() -> Batch:
    return Batch.of_ids(PROMPT)


def seq2seq() -> Model:
    """A T5 with as many layers in the decoder as in the encoder (transformers' cache needs that)."""
    torch.manual_seed(3)
    config = T5Config(
        vocab_size=97,
        d_model=40,
        d_kv=12,
        d_ff=56,
        num_layers=2,
        num_heads=4,
        eos_token_id=None,
        decoder_start_token_id=0,
    )
    return Model.load(T5ForConditionalGeneration(config).eval())


def rerun(model: Model, ids: torch.Tensor, start: int, edits) -> list[torch.Tensor]:
    """The scores of each next token, from a fresh run on everything before it."""
    return [model.run(Batch.of_ids(ids[:, :end]), (), edits).logits[:, -1] for end in range(start, ids.shape[1])]


@pytest.mark.parametrize("setting", ["eager", "sdpa"])
@pytest.mark.parametrize("name", CAUSAL)
def test_greedy_equals_transformers_own_generation(name, setting):
    model = opened(name, "eager" if name == "falcon" else setting)  # Falcon's fused attention cannot be read
    own = model.hf.generate(
        input_ids=torch.tensor(PROMPT), attention_mask=torch.ones(1, 5).long(), max_new_tokens=6, do_sample=False
    )
    made = model.generate(prompt(), max_new_tokens=6, sites=["heads.1", "resid.0"])
    assert torch.equal(made.ids, own)
    assert torch.equal(made.new_ids, own[:, 5:])
    assert made.prompt_length == 5


EDITS = [
    Edit.zero("heads.1", heads=[0, 2]),
    Edit.scale("neurons.1", -2.0, neurons=[1, 5, 9]),
    Edit.add("resid.1", torch.linspace(-3, 3, 40), positions=[1]),
    Edit.set("neurons.2", 4.0, neurons=[3], positions=[4, 0]),
    Edit.set("query.1", 1.0, positions=[4]),
    Edit.zero("value.1", heads=[0]),
    Edit.set("value.1", 3.0, positions=[1]),
    Edit.set("key.1", 2.0, positions=[2]),
    Edit.set("logits", 30.0, neurons=[40]),
    Edit.set("logits", 30.0, neurons=[40], positions=[4]),
    Edit.zero("mlp.0"),
    Edit.add("mid.1", 0.5),
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: str(edit) if edit.action != "add" else f"{edit.site}=add")
@pytest.mark.parametrize("name", ["gpt2", "llama", "bloom", "opt"])
def test_every_step_equals_a_run_on_the_whole_text_with_the_same_edits(name, edit):
    model = opened(name)
    made = model.generate(prompt(), max_new_tokens=5, edits=edit, sites="logits")
    scores = rerun(model, made.ids, 5, edit)
    for step, wanted in zip(made.steps, scores, strict=True):
        assert torch.allclose(step["logits"][:, -1], wanted, atol=2e-5)
    assert torch.equal(made.new_ids[0], torch.cat([score.argmax(-1) for score in scores]))


@pytest.mark.parametrize("site", ["value.1", "key.1", "logits"])
def test_a_patch_that_generation_could_not_keep_is_refused(site):
    """Later steps read keys and values again from the cache, and generation computes few of the prompt's logits."""
    run = opened("gpt2").run(prompt(), site)
    with pytest.raises(EditError, match="patch"):
        opened("gpt2").generate(prompt(), max_new_tokens=3, edits=Edit.patch(site, run))


@pytest.mark.parametrize("site", ["resid.1", "heads.1", "neurons.1", "query.1", "mid.1"])
@pytest.mark.parametrize("position", [1, 4])
def test_a_patch_into_the_prompt_equals_setting_the_same_values_there(site, position):
    model = opened("gpt2")
    source = torch.randn_like(model.run(prompt(), site)[site]) * 2
    same = source[0, :, position] if source.dim() == 4 else source[0, position]
    patch, put = Edit.patch(site, source, positions=[position]), Edit.set(site, same, positions=[position])
    one, other = (model.generate(prompt(), max_new_tokens=4, edits=edit, sites="logits") for edit in (patch, put))
    assert torch.equal(one.ids, other.ids)
    for mine, theirs in zip(one.steps, other.steps, strict=True):
        assert torch.allclose(mine["logits"], theirs["logits"], atol=1e-5)


def test_several_edits_act_together_at_every_step():
    model = opened("gpt2")
    edits = [
        Edit.zero("heads.0", heads=1),
        Edit.add("resid.2", 1.5, positions=[3]),
        Edit.zero("neurons.1", neurons=[0, 1]),
    ]
    made = model.generate(prompt(), max_new_tokens=4, edits=edits, sites="logits")
    for step, wanted in zip(made.steps, rerun(model, made.ids, 5, edits), strict=True):
        assert torch.allclose(step["logits"][:, -1], wanted, atol=2e-5)
    assert not torch.equal(
        made.steps[0]["logits"], model.generate(prompt(), max_new_tokens=4, sites="logits").steps[0]["logits"]
    )


@pytest.mark.parametrize("name", ["gpt2", "bloom"])
def test_a_position_among_the_new_tokens_can_be_edited(name):
    """Positions are those of the whole text: 6 is the second new token."""
    model = opened(name)
    edit = Edit.set("resid.1", 2.0, positions=[6])
    made = model.generate(prompt(), max_new_tokens=4, edits=edit, sites=["resid.1", "logits"])
    touched = [bool((step["resid.1"] == 2.0).all(-1).any()) for step in made.steps]
    assert touched == [False, False, True, False]
    wanted = model.run(Batch.of_ids(made.ids[:, :8]), (), edit).logits[:, -1]
    assert torch.allclose(made.steps[3]["logits"][:, -1], wanted, atol=2e-5)


def test_the_model_is_restored_after_generation():
    model, batch = opened("gpt2", "sdpa"), padded("gpt2")
    before, hooks = plain_output(model, batch), hook_count(model.hf)
    model.generate(prompt(), max_new_tokens=3, edits=Edit.zero("heads.1"), sites="pattern.*")
    with pytest.raises(EditError, match=r"heads.1"):
        model.generate(prompt(), max_new_tokens=3, edits=Edit.set("heads.1", torch.ones(3, 5, 7)))
    assert hook_count(model.hf) == hooks
    assert model.hf.config._attn_implementation == "sdpa"
    assert torch.equal(plain_output(model, batch), before)


@pytest.mark.parametrize("setting", ["eager", "sdpa"])
def test_the_first_step_covers_the_prompt_and_every_later_one_a_token(setting):
    model = opened("llama", setting)
    made = model.generate(
        prompt(), max_new_tokens=4, sites=["resid.0", "query.0", "key.0", "pattern.0", "heads.2", "embed"]
    )
    shapes = [{str(site): tuple(value.shape) for site, value in step.items()} for step in made.steps]
    assert len(shapes) == 4
    for place, shape in enumerate(shapes):
        new, seen = (5, 5) if place == 0 else (1, 5 + place)
        assert shape["resid.0"] == shape["embed"] == (1, new, 40)
        assert shape["query.0"] == shape["heads.2"] == (1, 4, new, 12)
        assert shape["key.0"] == (1, 2, seen, 12)
        assert shape["pattern.0"] == (1, 4, new, seen)


def test_what_each_step_recorded_equals_one_run_over_the_whole_text():
    model = opened("gpt2")
    sites = ["resid.1", "heads.1", "neurons.2", "pattern.1"]
    made = model.generate(prompt(), max_new_tokens=4, sites=sites)
    whole = model.run(Batch.of_ids(made.ids[:, :-1]), sites)
    for kind in ("resid.1", "neurons.2"):
        assert torch.allclose(torch.cat([step[kind] for step in made.steps], 1), whole[kind], atol=1e-5)
    assert torch.allclose(torch.cat([step["heads.1"] for step in made.steps], 2), whole["heads.1"], atol=1e-5)
    assert torch.allclose(made.steps[3]["pattern.1"][0, :, 0], whole["pattern.1"][0, :, 7, :8], atol=1e-5)


@pytest.mark.parametrize("setting", ["eager", "sdpa"])
def test_a_batch_padded_on_the_left_continues_like_each_row_alone(setting):
    model, batch = opened("gpt2", setting), padded("gpt2", "left")
    edit = Edit.zero("heads.1", heads=1)
    together = model.generate(batch, max_new_tokens=4, edits=edit, sites="pattern.0")
    for row in range(batch.size):
        alone = batch.ids[row][batch.mask[row].bool()][None]
        assert torch.equal(
            together.new_ids[row], model.generate(Batch.of_ids(alone), max_new_tokens=4, edits=edit).new_ids[0]
        )
    assert not together.steps[0]["pattern.0"].isnan().any()


def test_a_batch_padded_on_the_right_is_refused():
    """New tokens would follow padding, and be silently wrong."""
    with pytest.raises(TextError, match="left"):
        opened("gpt2").generate(padded("gpt2", "right"), max_new_tokens=2)


def test_sampling_is_seeded_and_leaves_the_global_generator_alone():
    model = opened("gpt2")
    torch.manual_seed(11)
    state = torch.get_rng_state()
    options = {"max_new_tokens": 12, "temperature": 3.0}
    one, again, other = (model.generate(prompt(), seed=seed, **options).ids for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_top_k_of_one_is_greedy():
    model = opened("gpt2")
    greedy = model.generate(prompt(), max_new_tokens=6).ids
    assert torch.equal(model.generate(prompt(), max_new_tokens=6, temperature=2.0, top_k=1).ids, greedy)
    assert torch.equal(model.generate(prompt(), max_new_tokens=6, temperature=2.0, top_p=1e-6).ids, greedy)


def test_sequence_to_sequence_equals_transformers_and_records_the_encoder_once():
    model = seq2seq()
    source, start = torch.tensor([[10, 11, 12, 13, 14, 15]]), torch.tensor([[0]])
    own = model.hf.generate(input_ids=source, max_new_tokens=5, do_sample=False)
    sites = ["encoder.resid.1", "decoder.resid.1", "cross.pattern.0", "cross.key.1"]
    made = model.generate(Batch.of_ids(source, target_ids=start), max_new_tokens=5, sites=sites)
    assert torch.equal(made.ids, own)
    assert ["encoder.resid.1" in step for step in made.steps] == [True] + [False] * 4
    for step in made.steps:
        assert step["decoder.resid.1"].shape == (1, 1, 40)
        assert step["cross.pattern.0"].shape == (1, 4, 1, 6)
        assert step["cross.key.1"].shape == (1, 4, 6, 12)


@pytest.mark.parametrize(
    "edit",
    [
        Edit.zero("encoder.heads.1", heads=0),
        Edit.add("encoder.resid.1", 2.0, positions=[2]),
        Edit.set("cross.value.1", 3.0, positions=[1]),
        Edit.set("cross.key.0", 3.0, positions=[4]),
        Edit.zero("cross.heads.1", heads=2),
        Edit.add("decoder.resid.1", 2.0, positions=[0]),
        Edit.set("decoder.value.1", 2.0, positions=[0]),
    ],
    ids=str,
)
def test_sequence_to_sequence_steps_equal_whole_runs_with_the_same_edits(edit):
    model = seq2seq()
    source = torch.tensor([[10, 11, 12, 13, 14, 15]])
    made = model.generate(
        Batch.of_ids(source, target_ids=torch.tensor([[0]])), max_new_tokens=4, edits=edit, sites="logits"
    )
    for place, step in enumerate(made.steps):
        batch = Batch.of_ids(source, target_ids=made.ids[:, : 1 + place])
        assert torch.allclose(step["logits"][:, -1], model.run(batch, (), edit).logits[:, -1], atol=2e-5), place


def test_a_target_that_does_not_begin_with_the_start_token_is_counted_as_transformers_counts_it():
    """transformers puts the start token before it; the prompt and every position are then one longer."""
    model = seq2seq()
    made = model.generate(Batch.of_ids([[10, 11, 12]], target_ids=torch.tensor([[33, 44]])), max_new_tokens=3)
    assert made.ids[0, : made.prompt_length].tolist() in ([0, 33, 44], [33, 44])
    assert made.new_ids.shape == (1, 3)


def test_a_mean_over_the_batch_is_refused_in_generation():
    """Later steps hold one token each: its mean is itself, and the edit would silently do nothing."""
    model = opened("gpt2")
    with pytest.raises(EditError, match="mean"):
        model.generate(prompt(), max_new_tokens=3, edits=Edit.mean("neurons.1"))
    given = torch.zeros(model.size("neurons.1"))
    made = model.generate(prompt(), max_new_tokens=3, edits=Edit.mean("neurons.1", given), sites="neurons.1")
    assert not any(step["neurons.1"].any() for step in made.steps)


def test_texts_are_the_continuation_alone():
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    made = model.generate("the old dog", max_new_tokens=3)
    assert made.texts == tuple(model.tokenizer.batch_decode(made.new_ids, skip_special_tokens=True))
    assert made.prompt_length == 3


def test_models_without_a_language_head_and_bad_lengths_are_refused():
    with pytest.raises(ModelError, match="cannot generate text"):
        opened("bert").generate(Batch.of_ids(PROMPT))
    with pytest.raises(TextError, match="max_new_tokens is 0"):
        opened("gpt2").generate(prompt(), max_new_tokens=0)
    with pytest.raises(TextError, match=r"prompt has 5 tokens and 66 more are asked for; this model takes at most 70"):
        opened("gpt2").generate(prompt(), max_new_tokens=66)
