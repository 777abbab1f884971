"""Baselines: what each name puts at the start of a path, in models that scale their embeddings too."""

from __future__ import annotations

import pytest
import torch

from pellucid.attribution.baselines import automatic, baseline, embedded
from pellucid.errors import AttributionError
from pellucid.model import Batch, Model
from pellucid.model.sites import Site
from tests.attribution.engine_models import headed, ids, model, ragged
from tests.tiny_models import error, network, opened, padded, word_tokenizer

EMBED = Site("embed")
SCALED = ("gemma", "gemma3_text", "granite", "t5", "marian", "pegasus")


def sites_of(found):
    return sorted(map(str, found))


@pytest.mark.parametrize("name", ["gpt2", *SCALED])
def test_embeddings_are_what_the_site_embed_holds(name):
    batch = padded(name)
    found = embedded(opened(name), batch)
    names = ["decoder.embed", "encoder.embed"] if batch.target_ids is not None else ["embed"]
    assert sites_of(found) == names
    run = opened(name).run(batch, list(found))
    for site, value in found.items():
        assert torch.equal(value, run[site])


@pytest.mark.parametrize("name", ["gpt2", *SCALED])
def test_zero_and_mean_stand_for_every_real_token(name):
    net, batch = opened(name), padded(name)
    ends = embedded(net, batch)
    table = net.hf.get_input_embeddings().weight.detach()
    for site, zero in baseline(net, batch, "zero", ends).items():
        mask = (batch.target_mask if site.stack == "decoder" else batch.mask).bool()
        tokens = batch.target_ids if site.stack == "decoder" else batch.ids
        assert not zero[mask].any()
        assert torch.equal(zero[~mask], ends[site][~mask])
        mean = baseline(net, batch, "mean", ends)[site]
        scale = float((ends[site][mask] / table[tokens][mask]).median())
        assert error(mean[mask], (scale * table.mean(dim=0)).expand_as(mean[mask])) < 1e-4
        assert torch.equal(mean[~mask], ends[site][~mask])


def test_pad_and_mask_leave_special_tokens():
    net = headed("classifier")
    batch = net.tokenize("the old dog")
    ends = embedded(net, batch)
    table = net.hf.get_input_embeddings().weight.detach()
    for name, number in (("pad", 0), ("mask", 4)):
        start = baseline(net, batch, name, ends)[EMBED]
        assert torch.equal(start[0, [0, -1]], ends[EMBED][0, [0, -1]])
        assert torch.equal(start[0, 1:-1], table[number].expand(3, -1))


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_decoder_keeps_its_first_token_and_padding(side):
    net = Model.load(network("marian"), tokenizer=word_tokenizer(closing=True))
    batch = padded("marian", side)
    ends = embedded(net, batch)
    start = baseline(net, batch, "mask", ends)
    site = Site("embed", None, "decoder")
    for row, mask in enumerate(batch.target_mask.bool()):
        first = int(mask.nonzero()[0])
        kept = ~mask
        kept[first] = True
        assert torch.equal(start[site][row, kept], ends[site][row, kept])
        others = start[site][row, ~kept]
        assert torch.equal(others, others[:1].expand_as(others))
        assert not torch.equal(others[0], ends[site][row, first])


def test_another_text_of_the_same_length():
    net = headed("classifier")
    batch, other = net.tokenize("the old dog"), net.tokenize("a red cat")
    ends = embedded(net, batch)
    assert torch.equal(baseline(net, batch, "text:a red cat", ends)[EMBED], embedded(net, other)[EMBED])
    with pytest.raises(AttributionError, match=r"has 4 tokens and the text 5; they must be of the same length"):
        baseline(net, batch, "text:a cat", ends)
    with pytest.raises(AttributionError, match=r"given for 2 texts; explain them one by one"):
        baseline(net, ragged(), "text:a cat", ends)


def test_numbers_of_ones_own():
    net, batch = model("gpt2"), ids(2)
    ends = embedded(net, batch)
    given = torch.randn(2, 7, 40)
    start = baseline(net, batch, given, ends)[EMBED]
    assert start.dtype == torch.float64
    assert torch.equal(start, given.double())
    assert torch.equal(baseline(net, batch, {EMBED: given}, ends)[EMBED], start)
    with pytest.raises(AttributionError, match=r"for embed has shape \(2, 6, 40\) and the text \(2, 7, 40\)"):
        baseline(net, batch, given[:, 1:], ends)
    both = embedded(opened("t5"), padded("t5"))
    with pytest.raises(AttributionError, match=r"each of encoder.embed, decoder.embed; give a dictionary"):
        baseline(opened("t5"), padded("t5"), given, both)
    with pytest.raises(AttributionError, match=r"nothing for decoder.embed; it has encoder.embed"):
        baseline(
            opened("t5"), padded("t5"), {Site("embed", None, "encoder"): both[Site("embed", None, "encoder")]}, both
        )


def test_unknown_names_and_absent_tokens_are_a_sentence():
    net, batch = model("gpt2"), ids()
    ends = embedded(net, batch)
    with pytest.raises(
        AttributionError, match=r"no baseline 'noise'; the baselines are auto, zero, pad, mask, mean, text"
    ):
        baseline(net, batch, "noise", ends)
    with pytest.raises(AttributionError, match=r"has no mask token for a baseline; use zero, pad, mean"):
        baseline(net, batch, "mask", ends)
    wrapped = Model.wrap(torch.nn.Sequential(torch.nn.Linear(3, 2)), sites={"out": "0"})
    with pytest.raises(AttributionError, match=r"has no site 'embed' that a path could start from"):
        embedded(wrapped, batch)


@pytest.mark.parametrize(("name", "chosen"), [("gpt2", "zero"), ("bert", "zero"), ("llama", "mean"), ("t5", "mean")])
def test_the_automatic_baseline_is_not_an_empty_stream(name, chosen):
    """Without positions in its stream, a model that starts from zeros has nothing there, and no usable gradients."""
    net, batch = opened(name), padded(name)
    ends = embedded(net, batch)
    found, why = automatic(net, batch, ends)
    assert found == chosen
    assert bool(why) == (chosen == "mean")
    for site, start in baseline(net, batch, "auto", ends).items():
        assert torch.equal(start, baseline(net, batch, chosen, ends)[site])


def test_mean_where_embeddings_come_from_no_table_is_refused():
    net, batch = model("gpt2"), ids()
    ends = {EMBED: embedded(net, batch)[EMBED] + 1}
    with pytest.raises(AttributionError, match=r"has no mean embedding; use zero, pad, mask"):
        baseline(net, batch, "mean", ends)


def test_half_precision_embeddings_have_a_mean():
    net = opened("gemma3_text", "eager", torch.float16)
    batch = Batch.of_ids(ids().ids)
    assert baseline(net, batch, "mean", embedded(net, batch))[EMBED].dtype == torch.float16


def test_another_text_for_a_pair_of_sentences_is_refused():
    """Six tokens each, but special ones elsewhere: as a baseline, words would stand where a separator does."""
    net = headed("classifier")
    pair, plain = net.tokenize("the old", "cat"), net.tokenize("the old red cat")
    assert pair.ids.shape == plain.ids.shape
    with pytest.raises(AttributionError, match="special tokens of the baseline text do not stand where"):
        baseline(net, pair, "text:the old red cat", embedded(net, pair))
