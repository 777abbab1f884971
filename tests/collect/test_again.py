"""The same pass again: what it gives is what a sweep gives, encoded once, whatever the weights are by then."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from pellucid.collect.again import Again, at_rest, text_fingerprint
from pellucid.collect.encode import Encoder
from pellucid.collect.moments import Moments
from pellucid.collect.sample import TokenSample
from pellucid.collect.sweep import sweep
from pellucid.collect.topk import TopContexts
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import OutOfMemory
from pellucid.model import Model
from tests.collect.sweeping import Rows, stories, subword_tokenizer
from tests.tiny_models import network

COLLECTORS = [Moments("resid.*"), TokenSample("resid.*", size=50, dtype="float16"), Rows(("mlp.1",))]
OPTIONS = {"token_budget": 64, "shard_tokens": 200}


def learner(name: str = "gpt2", *, limit: int | None = None, seed: int = 0) -> Model:
    """A tiny model of its own, whose weights a test may change."""
    tokenizer = subword_tokenizer(closing=name != "gpt2", limit=limit)
    return Model.load(network(name, "sdpa", seed=seed), tokenizer=tokenizer)


def nudged(model: Model, seed: int) -> None:
    """Changes every weight in place, as a step of training does."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.hf.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))


def same(one, other) -> bool:
    return one.states.keys() == other.states.keys() and all(
        state.same(other.states[name]) for name, state in one.states.items()
    )


@pytest.mark.parametrize(("name", "limit"), [("gpt2", None), ("gpt2", 12), ("bert", None), ("marian", None)])
def test_every_pass_is_a_sweep_of_that_moment(name, limit):
    model = learner(name, limit=limit)
    sites = "encoder.resid.*" if name == "marian" else "resid.*"
    collectors = [Moments(sites), TokenSample(sites, size=50)]
    again = Again(model, stories(), collectors, **OPTIONS)
    for step in range(2):
        found = again.run()
        fresh = Model.load(model.hf, tokenizer=model.tokenizer)
        swept = sweep(fresh, stories(), collectors, long="window", progress=False, **OPTIONS)
        assert same(found, swept)
        assert len(again.plan.shards) > 3
        assert all(state.same(swept.pilots[each]) for each, state in found.pilots.items())
        assert found.models == swept.models
        assert found.counts == swept.counts
        assert found.corpus_words == swept.corpus_words
        assert found.sentences.to_bytes() == swept.sentences.to_bytes()
        assert json.dumps(found.about, sort_keys=True) == json.dumps(swept.about, sort_keys=True)
        nudged(model, step)


def test_nothing_is_encoded_twice(monkeypatch):
    model, calls = learner(), []
    again = Again(model, stories(), COLLECTORS, **OPTIONS)
    first = again.run()
    encode, batch = Encoder.encode, Encoder.batch
    monkeypatch.setattr(Encoder, "encode", lambda self, given: calls.append("encode") or encode(self, given))
    monkeypatch.setattr(Encoder, "batch", lambda self, *given: calls.append("batch") or batch(self, *given))
    monkeypatch.setattr(Corpus, "__iter__", lambda self: calls.append("read") or iter(()))
    assert same(again.run(), first)
    assert not calls


def test_the_network_is_left_as_it_was():
    model = learner()
    model.hf.train()
    model.hf.transformer.h[0].eval()  # a frozen block, as some trainings have it
    before = [part.training for part in model.hf.modules()]
    state = torch.random.get_rng_state()
    again = Again(model, stories(), COLLECTORS, **OPTIONS)
    one = again.run()
    assert same(one, again.run()), "dropout was on"
    assert [part.training for part in model.hf.modules()] == before
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(weight.grad is None for weight in model.hf.parameters())


def test_modes_come_back_when_a_pass_fails():
    model = learner()
    model.hf.train()
    seen: list[bool] = []

    def failing() -> None:
        with at_rest([model.hf]):
            seen.extend(part.training for part in model.hf.modules())
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        failing()
    assert seen
    assert not any(seen)
    assert all(part.training for part in model.hf.modules())


def test_lower_precision_around_it_changes_nothing():
    model = learner()
    again = Again(model, stories(), COLLECTORS, **OPTIONS)
    plain = again.run()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same(again.run(), plain)


def test_a_pass_that_runs_out_of_memory_goes_on_with_half_the_batch(monkeypatch):
    model = learner()
    again = Again(model, stories(), COLLECTORS, token_budget=200, shard_tokens=200)
    whole = again.run()
    run, most = Model.run, 110

    def small(self, batch, *given, **options):
        if batch.ids.numel() > most:
            raise OutOfMemory("too large")
        return run(self, batch, *given, **options)

    monkeypatch.setattr(Model, "run", small)
    halved = again.run()
    assert halved.record["halved"]
    for name in ("0-moments", "1-token-sample"):
        for part, array in whole.states[name].arrays.items():
            least = 2e-3 * np.abs(array).max() if array.dtype.kind == "f" else 0
            np.testing.assert_allclose(halved.states[name].arrays[part], array, rtol=1e-5, atol=least, err_msg=part)
    rows = [np.sort(each.states["2-test-rows"].arrays["ordinal"]) for each in (whole, halved)]
    assert np.array_equal(*rows)


def test_sentences_that_tables_point_to_follow_the_weights():
    model = learner()
    top = TopContexts("neurons.1", k=1)
    again = Again(model, stories(), top, **OPTIONS)
    for step in range(3):
        found = again.run()
        assert set(found.sentences) == top.sentences(found.states["0-top-contexts"])
        nudged(model, step)


def test_several_models_stand_side_by_side():
    models = [learner(seed=0), learner("bert", seed=1)]
    again = Again(models, stories(), Moments("resid.*"), **OPTIONS)
    nudged(models[1], 5)
    fresh = [Model.load(model.hf, tokenizer=model.tokenizer) for model in models]
    swept = sweep(fresh, stories(), Moments("resid.*"), long="window", progress=False, **OPTIONS)
    assert same(again.run(), swept)


def test_the_text_is_named_by_its_words():
    one = [Sentence.of_text("the dog sleeps", id="1"), Sentence.of_text("a cat runs", id="2")]
    spaced = [Sentence.of_text("the  dog sleeps ", id="1"), Sentence.of_text("a cat runs", id="2")]
    labelled = [Sentence("1", "1", "the dog sleeps", ((0, 3), (4, 7), (8, 14)), {"tag": ("a", "b", "c")}), one[1]]
    assert text_fingerprint(one) == text_fingerprint(spaced) == text_fingerprint(labelled)
    others = [
        [Sentence.of_text("the dog slept", id="1"), one[1]],
        [Sentence.of_text("the dog sleeps", id="3"), one[1]],
        [Sentence.of_text("the dog sleeps", id="1", document="story"), one[1]],
        [one[1], one[0]],
        one[:1],
    ]
    assert len({text_fingerprint(each) for each in [one, *others]}) == len(others) + 1
    again = Again(learner(), Corpus.of(one), Moments("resid.*"))
    assert again.text == text_fingerprint(one)
    assert again.words == 6
