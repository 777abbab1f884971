"""Information flow of one text: a network whose flow is known, padding, stacks, joining, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from pellucid.errors import AttributionError, ModelError, SiteError, TextError
from pellucid.heads import information_flow
from pellucid.heads.flow.following import METHODS, SHORT
from pellucid.identifiability import hidden_flow, reactions
from pellucid.model import Batch, Model
from pellucid.results import Result, ResultError
from tests.heads.flow.copying import SEEN, copying
from tests.tiny_models import network, opened, padded, word_tokenizer

WEIGHTS = [name for name in METHODS if name != "attribution"]
TEXT = "the old red dog runs to"


def tiny(name: str) -> Model:
    return Model.load(network(name), tokenizer=word_tokenizer())


def test_a_network_that_copies_one_token_into_another():
    """Each method finds exactly the tokens that can reach a state, and nothing else."""
    model = copying()
    found = information_flow(model, TEXT, WEIGHTS).joined(hidden_flow(model, TEXT))
    one, two = (np.eye(6)[list(seen)] for seen in SEEN)
    both = [(one + np.eye(6)) / 2, (two + np.eye(6)) @ (one + np.eye(6)) / 4]
    np.testing.assert_allclose(found.measure("attention"), [one, two], atol=1e-6)
    np.testing.assert_allclose(found.measure("rollout"), both, atol=1e-6)
    for name in ("flow", "hidden"):
        np.testing.assert_array_equal(found.measure(name) > 1e-6, np.array(both) > 0)
    np.testing.assert_array_equal(found.measure("norms") > 1e-6, np.array([one, two]) > 0)
    for name in ("norms_residual", "norms_layernorm"):
        np.testing.assert_array_equal(found.measure(name) > 1e-6, np.array([one, two]) + np.eye(6) > 0)


def test_tokens_layers_and_checks_are_named(tmp_path):
    model = tiny("gpt2")
    found = information_flow(model, TEXT, [*WEIGHTS, "attribution"], steps=3, heads=True)
    assert found.axes["measure"] == (*WEIGHTS, "attribution")
    assert found.axes["layer"] == (0, 1, 2)
    assert found.axes["token"] == found.axes["source"]
    assert found.axes["source"][2] == "2 red"
    assert not np.triu(found.values, 1).any()  # a causal model looks at nothing behind a token
    np.testing.assert_allclose(found.measure("rollout").sum(-1), 1)
    heads = found.table("heads")
    np.testing.assert_allclose(heads.columns["attention"].mean(1), found.measure("attention"), atol=1e-12)
    np.testing.assert_allclose(heads.columns["attribution"].sum(1), found.measure("attribution"), atol=1e-12)
    assert set(found.table("checks").columns["measure"]) == {*WEIGHTS, "attribution"} - {"attention", "rollout"}
    assert found.provenance.arguments["target"]
    found.save(tmp_path / "kept")
    assert Result.load(tmp_path / "kept").same(found)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_padding_changes_nothing(name, side):
    """The last of three rows has 4 tokens of 11; alone it gives the same numbers."""
    model, batch = opened(name), padded(name, side=side)
    row = Batch.of_ids(batch.ids[2:], batch.mask[2:])
    alone = Batch.of_ids(batch.ids[2:][:, batch.mask[2].bool()])
    one, other = (information_flow(model, each, WEIGHTS) for each in (row, alone))
    assert len(one.axes["token"]) == 4
    np.testing.assert_array_equal(one.values, other.values)
    assert one.provenance.corpus["fingerprint"] == other.provenance.corpus["fingerprint"]


def test_chosen_positions_are_rows_of_the_whole():
    model = tiny("bert")
    whole = information_flow(model, TEXT, WEIGHTS).joined(hidden_flow(model, TEXT))
    some = information_flow(model, TEXT, WEIGHTS, positions=[-1, 2]).joined(hidden_flow(model, TEXT, positions=[-1, 2]))
    assert some.axes["token"] == (whole.axes["token"][-1], whole.axes["token"][2])
    np.testing.assert_allclose(some.values, whole.values[:, :, [-1, 2]], atol=1e-12)


def test_long_texts_show_the_flow_of_one_token():
    text = " ".join(["the old red dog runs to a cat and"] * 4)
    length = len(text.split())
    assert 3 * length**2 > SHORT
    causal, other = (information_flow(tiny(name), text, "flow") for name in ("gpt2", "bert"))
    assert causal.axes["token"] == (f"{length - 1} and",)
    assert other.axes["token"] == ("0 the",)
    assert len(information_flow(tiny("gpt2"), text, "rollout").axes["token"]) == length


def test_each_stack_of_an_encoder_decoder():
    given = padded("bart")
    batch = Batch.of_ids(given.ids[:1], target_ids=given.target_ids[:1], target_mask=given.target_mask[:1])
    model = opened("bart")
    encoder, decoder = (information_flow(model, batch, WEIGHTS, stack=stack) for stack in ("encoder", "decoder"))
    assert (len(encoder.axes["layer"]), len(encoder.axes["token"])) == (3, 11)
    assert (len(decoder.axes["layer"]), len(decoder.axes["token"])) == (4, 5)
    assert np.triu(encoder.values, 1).any()
    assert not np.triu(decoder.values, 1).any()
    np.testing.assert_array_equal(information_flow(model, batch, WEIGHTS).values, encoder.values)
    run = model.run(batch, ["decoder.pattern.3"])
    wanted = run["decoder.pattern.3"][0].double().mean(0)[:5, :5]  # the rest is padding
    np.testing.assert_allclose(decoder.measure("attention")[3], wanted, atol=1e-6)
    with pytest.raises(SiteError, match=r"no stack 'cross' to follow; .* has encoder, decoder"):
        information_flow(model, batch, stack="cross")


def test_hidden_states_are_the_shares_of_their_reactions():
    model = tiny("gpt2")
    told = hidden_flow(model, TEXT)
    shares = reactions(model, model.tokenize(TEXT)).shares[1:]
    np.testing.assert_allclose(told.measure("hidden"), shares, atol=1e-12)
    assert told.table("checks").columns["error"].max() == 0
    drawn = hidden_flow(model, TEXT, probes=8, seed=3)
    assert drawn.table("checks").columns["error"].min() > 0
    assert drawn.provenance.seed == 3
    np.testing.assert_allclose(drawn.values, told.values, atol=0.35)


def test_results_of_different_things_are_not_joined():
    model = tiny("gpt2")
    found = information_flow(model, TEXT, "attention")
    with pytest.raises(ResultError, match="both have attention"):
        found.joined(found)
    for other in (hidden_flow(model, "the old dog"), hidden_flow(tiny("bert"), TEXT)):
        with pytest.raises(ResultError, match="models, texts or positions differ"):
            found.joined(other)
    joined = found.joined(hidden_flow(model, TEXT))
    assert joined.provenance.arguments["methods"] == ["attention", "hidden"]
    assert joined.table("checks").columns["layer"].tolist() == [0, 1, 2]


def test_names_and_texts_that_do_not_exist():
    model = tiny("gpt2")
    with pytest.raises(ResultError, match="no method 'rolout' to follow information by; there are attention, rollout"):
        information_flow(model, TEXT, "attention,rolout")
    with pytest.raises(ResultError, match=r"Hidden token attribution is identifiability\.hidden_flow"):
        information_flow(model, TEXT, ["hidden"])
    with pytest.raises(ResultError, match="No method was named"):
        information_flow(model, TEXT, "")
    with pytest.raises(TextError, match="has one token, so nothing can flow"):
        information_flow(model, "dog")
    with pytest.raises(TextError, match="through one text, and 2 were given"):
        information_flow(model, model.tokenize([TEXT, TEXT]))
    with pytest.raises(AttributionError, match="Position 6 was asked for, and the text has 6 tokens"):
        information_flow(model, TEXT, positions=[6])
    with pytest.raises(SiteError, match="No position was given"):
        information_flow(model, TEXT, positions=[])
    with pytest.raises(SiteError, match=r"no stack 'encoder' to follow; .* has one alone"):
        information_flow(model, TEXT, stack="encoder")
    with pytest.raises(TextError, match="at most 70"):
        information_flow(model, "dog " * 80)


def test_a_model_without_softmax_attention():
    wrapped = Model.wrap(nn.GRU(4, 4), sites={"out": ":0"}, tokenize=lambda _: torch.zeros(1, 3, 4))
    with pytest.raises(ModelError, match="'GRU' has no layers of softmax attention whose weights can be read"):
        information_flow(wrapped, "a b")


def test_a_layer_that_is_not_a_number_is_named():
    hf = network("bert")
    model = Model.load(hf, tokenizer=word_tokenizer())
    with torch.no_grad():
        hf.bert.encoder.layer[1].attention.self.query.weight[0, 0] = torch.nan
    for name in ("rollout", "norms"):
        with pytest.raises(ModelError, match=r"weights of pattern\.1 are not numbers on this text"):
            information_flow(model, TEXT, name)
