"""Targets: what each kind means, how it is written, and what is said where there is none."""

from __future__ import annotations

import pytest
import torch

from pellucid.attribution.targets import Target, asked, default_targets
from pellucid.errors import AttributionError, SiteError
from pellucid.model import Batch, Model
from tests.attribution.engine_models import headed, ids, model, one, ragged
from tests.tiny_models import network, opened, padded, word_tokenizer


def score(net, batch, target, *, copies=1):
    """What a target reads in a pass that holds the texts several times."""
    plain = net.run(batch) if target.predicted else None
    found = target.resolve(net, batch, plain)
    return found.name, found.score(net.run(batch.repeated(copies), found.sites))


def lm():
    return Model.load(network("gpt2"), tokenizer=word_tokenizer())


def test_a_class_by_name_number_or_as_predicted():
    net, batch = headed("classifier"), ragged()
    logits = net.run(batch).logits
    for target in (Target.label("good"), Target.label("GOOD"), Target.label(2), Target.label("2")):
        name, found = score(net, batch, target, copies=3)
        assert name == "good"
        assert torch.allclose(found, logits[:, 2].repeat(3))
    name, found = score(net, batch, Target.label())
    assert torch.allclose(found, logits.max(dim=1).values)
    name, found = score(net, batch, Target.contrast("good", "bad"))
    assert name == "good rather than bad"
    assert torch.allclose(found, logits[:, 2] - logits[:, 0])


def test_a_taggers_class_at_a_position():
    net, batch = headed("tagger"), ragged()
    name, found = score(net, batch, Target.label("fair", position=-1))
    assert name == "fair at places of their own"
    logits = net.run(batch).logits
    assert torch.allclose(found, torch.stack([logits[0, 6, 1], logits[1, 3, 1]]))
    with pytest.raises(AttributionError, match=r"gives every word a class, so say which word .*class@3"):
        default_targets(net)


def test_the_ends_of_an_answer():
    net, batch = headed("qa"), ragged()
    output = net.run(batch).output
    for target, key in ((Target.start(3), "start_logits"), (Target.end(3), "end_logits")):
        name, found = score(net, batch, target, copies=2)
        assert name == f"{target.kind} at token 3"
        assert torch.allclose(found, output[key][:, 3].repeat(2))
    _, found = score(net, batch, Target.end())
    real = output["end_logits"].masked_fill(batch.mask == 0, -torch.inf)
    assert torch.allclose(found, real.max(dim=1).values), "never at padding"
    assert [target.kind for target in default_targets(net)] == ["start", "end"]


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_token_at_a_position_of_a_padded_text(side):
    """Positions count real tokens, from either end; each text gets what it gets alone."""
    net, batch = model("gpt2"), ragged(side)
    for position in (0, 2, -1, -4):
        for log in (False, True):
            name, found = score(net, batch, Target.token(9, position=position, log=log), copies=2)
            for row in range(2):
                logits = net.run(one(batch, row)).logits[0, position]
                want = logits.log_softmax(-1)[9] if log else logits[9]
                assert float(found[row]) == pytest.approx(float(want), rel=1e-5)
                assert float(found[row + 2]) == pytest.approx(float(want), rel=1e-5)
            same = position >= 0
            where = f"after token {position}" if same else "after places of their own"
            assert name == f"{'log p of ' if log else ''}token 9 {where}"
    _, found = score(net, batch, Target.token())
    last = net.run(one(batch, 1)).logits[0, -1]
    assert float(found[1]) == pytest.approx(float(last.max()), rel=1e-5)


def test_log_probabilities_keep_the_models_precision():
    _, found = score(model("gpt2"), ids(), Target.token(9, log=True))
    assert found.dtype == torch.float64


def test_tokens_by_text_and_contrasts():
    net = lm()
    batch = net.tokenize("the old dog")
    logits = net.run(batch).logits[0]
    number = net.tokenizer.convert_tokens_to_ids("runs")
    name, found = score(net, batch, Target.token("runs"))
    assert name == "'runs' after token 2"
    assert float(found) == pytest.approx(float(logits[-1, number]))
    name, found = score(net, batch, Target.contrast("runs", "sleeps", position=1))
    other = net.tokenizer.convert_tokens_to_ids("sleeps")
    assert name == "'runs' rather than 'sleeps' after token 1"
    assert float(found) == pytest.approx(float(logits[1, number] - logits[1, other]), abs=1e-5)


def test_a_hidden_token_is_where_the_mask_stands():
    net = Model.load(network("bert"), tokenizer=word_tokenizer(closing=True))
    batch = net.tokenize("the <mask> dog")
    place = int((batch.ids[0] == 4).nonzero())
    name, found = score(net, batch, Target.token("old"))
    assert name == f"'old' at token {place}"
    logits = net.run(batch).logits[0, place]
    assert float(found) == pytest.approx(float(logits[net.tokenizer.convert_tokens_to_ids("old")]))
    with pytest.raises(AttributionError, match=r"holds no hidden token '<mask>' to guess; put one in, or name a pos"):
        score(net, net.tokenize("the old dog"), Target.token("old"))


def test_units_heads_and_lengths_of_vectors():
    net, batch = model("gpt2"), ragged("left")
    run = net.run(batch, ["neurons.1", "heads.2", "resid.3"])
    rows, places = torch.arange(2), torch.tensor([1, 4])  # token 1 of each, behind the padding
    name, found = score(net, batch, Target.unit("neurons.1", 17, position=1), copies=2)
    assert name == "neurons.1:17@1"
    assert torch.allclose(found, run["neurons.1"][rows, places, 17].repeat(2))
    name, found = score(net, batch, Target.unit("heads.2", 3, position=1))
    assert name == "heads.2:3@1"
    assert torch.allclose(found, run["heads.2"][rows, 3, places].norm(dim=-1))
    _, found = score(net, batch, Target.unit("heads.2", position=1))
    assert torch.allclose(found, run["heads.2"][rows, :, places].flatten(1).norm(dim=-1))
    _, found = score(net, batch, Target.unit("resid.3", position=-1))
    assert torch.allclose(found, run["resid.3"][rows, torch.tensor([6, 6])].norm(dim=-1))


def test_positions_in_an_encoder_decoder_are_those_of_the_sites_own_text():
    """Cross attention's keys are the source's tokens, its heads the target's."""
    net, batch = opened("marian"), padded("marian")
    run = net.run(batch, ["cross.key.1", "cross.heads.1", "encoder.resid.1"])
    source, target = batch.mask.sum(1) - 1, batch.target_mask.sum(1) - 1
    rows = torch.arange(3)
    _, found = score(net, batch, Target.unit("cross.key.1", 1, position=-1))
    assert torch.allclose(found, run["cross.key.1"][rows, 1, source].norm(dim=-1))
    _, found = score(net, batch, Target.unit("cross.heads.1", 1, position=-1))
    assert torch.allclose(found, run["cross.heads.1"][rows, 1, target].norm(dim=-1))
    _, found = score(net, batch, Target.unit("encoder.resid.1", 5, position=-1))
    assert torch.allclose(found, run["encoder.resid.1"][rows, source, 5])
    name, found = score(net, batch, Target.token(9, position=2))
    assert name == "token 9 after token 2"
    assert torch.allclose(found, run.logits[:, 2, 9])


def test_a_function_of_ones_own_reads_the_sites_it_names():
    target = Target.of(lambda run: run["heads.1"].sum(dim=(1, 2, 3)) + run.logits[:, 0, 1], "mine", sites=["heads.1"])
    name, found = score(model("gpt2"), ids(2), target, copies=2)
    run = model("gpt2").run(ids(2), "heads.1")
    assert name == "mine"
    assert torch.allclose(found, (run["heads.1"].sum(dim=(1, 2, 3)) + run.logits[:, 0, 1]).repeat(2))
    with pytest.raises(SiteError, match=r"No site matches 'head.1'"):
        Target.of(len, "mine", sites=["head.1"]).resolve(model("gpt2"), ids())


@pytest.mark.parametrize(
    ("text", "kind", "choices", "position"),
    [
        ("class", "class", (None,), None),
        ("class:good", "class", ("good",), None),
        ("class@3", "class", (None,), 3),
        ("class:very good@-2", "class", ("very good",), -2),
        ("start", "start", (None,), None),
        ("start:4", "start", (None,), 4),
        ("end@-1", "end", (None,), -1),
        ("token: Paris@-1", "token", (" Paris",), -1),
        ("token:a:b", "token", ("a:b",), None),
        ("token:@", "token", ("@",), None),
        ("token:me@home", "token", ("me@home",), None),
        ("token:7@2", "token", ("7",), 2),
        ("log:\n@0", "log", ("\n",), 0),
        ("contrast:is|are@1", "contrast", ("is", "are"), 1),
        ("unit:encoder.resid.2:5@-1", "unit", (5,), -1),
        ("unit:heads.3@4", "unit", (None,), 4),
    ],
)
def test_targets_as_they_are_written(text, kind, choices, position):
    found = Target.parse(text)
    assert (found.kind, found.choices, found.position) == (kind, choices, position)
    if kind == "unit":
        assert found.site == text.removeprefix("unit:").partition("@")[0].partition(":")[0]


UNREADABLE = (
    *("", ":good", "klass:good", "class@3:good", "start:x", "start:3@4", "end:-"),
    *("contrast:is", "contrast:a|b|c", "contrast:|b", "unit:heads.3", "unit:@3", "unit:heads.3:x@2"),
)


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_cannot_be_read_is_a_sentence(text):
    with pytest.raises(AttributionError, match=r"cannot be read; write predicted, class"):
        Target.parse(text)


def test_what_a_caller_may_name():
    net = headed("classifier")
    assert [each.kind for each in asked(net, None)] == ["class"]
    assert [each.choices for each in asked(net, ["predicted", "class:bad", Target.label(1)])] == [
        (None,),
        ("bad",),
        (1,),
    ]
    assert [each.kind for each in asked(headed("qa"), "predicted")] == ["start", "end"]
    assert [each.kind for each in asked(model("gpt2"), None)] == ["token"]
    with pytest.raises(AttributionError, match=r"No target was given; write"):
        asked(net, [])
    headless = Model.load(network("bert").bert)
    with pytest.raises(AttributionError, match=r"BertModel has no head, so it predicts nothing to explain; name a tar"):
        asked(headless, None)


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("classifier", Target.label("great"), r"no class 'great'; .* has bad, fair, good"),
        ("classifier", Target.label(3), r"no number 3 among 3 classes, numbered 0 to 2"),
        ("classifier", Target.token("the"), r"'token' needs a language model; .* ask for class:LABEL"),
        ("classifier", Target.start(), r"'start' needs a model that marks answers \(head 'qa'\); .* BertForSequence"),
        ("qa", Target.token(3), r"'token' needs a language model"),
        ("qa", Target.start(7), r"Position 7 was asked for, and the text has 7 tokens: 0 to 6"),
        ("tagger", Target.label(0, position=-8), r"Position -8 was asked for"),
        ("gpt2", Target.label(0), r"is a language model and has no classes; ask for token:TOKEN"),
        ("gpt2", Target.token(97), r"no number 97 among 97 tokens, numbered 0 to 96"),
        ("gpt2", Target.token("dog"), r"The token 'dog' needs a tokenizer to find its number"),
        ("gpt2", Target.unit("neurons.1", 56, position=0), r"neurons.1 has 56 units, numbered 0 to 55; unit 56"),
        ("gpt2", Target.unit("heads.1", 4, position=0), r"heads.1 has 4 heads, numbered 0 to 3; head 4"),
        ("gpt2", Target.unit("pattern.1", 0, position=0), r"pattern.1 holds no vector per token"),
        ("gpt2", Target.unit("neurons.1", 0, position=7), r"Position 7 was asked for"),
    ],
)
def test_what_does_not_exist_is_a_sentence(name, target, message):
    net, batch = model(name), ids()
    with pytest.raises(AttributionError, match=message):
        target.resolve(net, batch, net.run(batch))


def test_a_text_of_several_tokens_is_not_a_target():
    net = lm()
    with pytest.raises(AttributionError, match=r"'old dog' is not one token of this model but 2 \('old', 'dog'\)"):
        Target.token("old dog").resolve(net, net.tokenize("the"))


def test_a_batch_of_ids_keeps_its_rows_apart():
    batch = Batch.of_ids([[7, 8, 9], [10, 11, 12]])
    again = batch.repeated(2)
    assert again.ids.tolist() == [[7, 8, 9], [10, 11, 12], [7, 8, 9], [10, 11, 12]]
