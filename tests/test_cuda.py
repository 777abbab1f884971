"""Analyses on a CUDA device: the numbers that a processor gives, and the same bits each time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid import Corpus, heads, neurons, overview, similarity
from pellucid.collect.counts import HeadCounts
from pellucid.collect.moments import Moments
from pellucid.collect.surprise import Surprise
from pellucid.collect.sweep import sweep
from pellucid.model import Model
from tests.heads import built_models, measuring_models
from tests.neurons import planted, probe_results, recall
from tests.test_contract import FACTORIES

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
]
KEPT = (built_models.planted, measuring_models.model_for, planted.model, probe_results.ranked, recall.measured)
"""What tests have opened or made before, and keep."""
BY_HAND = {"heads.statistics", "neurons.selective", "overview.norms", "overview.surprise", "train.curves"} | {
    kind for kind in FACTORIES if kind.startswith("similarity.")
}
"""Kinds that the tests make from statistics written by hand, without a model."""
TIES = {"heads.functions": 0.01, "neurons.explained": 0.01}
"""Kinds that count which number is the largest: where two are nearly equal, rounding decides."""


@pytest.fixture
def on_cuda(monkeypatch):
    """A function that puts all models opened from then on onto the device."""
    load = Model.load

    def loaded(source, **options):
        return load(source.to("cuda") if isinstance(source, torch.nn.Module) else source, **options)

    def begin():
        _forget()
        monkeypatch.setattr(Model, "load", loaded)

    _forget()
    yield begin
    _forget()


def _forget() -> None:
    for kept in KEPT:
        kept.cache_clear()


def used(work):
    """What some work gives, which must take memory of the device."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = work()
    assert torch.cuda.max_memory_allocated() > before
    return found


def near(found, meant, *, share: float = 1e-3) -> None:
    """Whether two results have the same numbers, up to a share of the largest."""
    assert found.axes == meant.axes
    np.testing.assert_allclose(found.values, meant.values, rtol=0, atol=share * np.abs(meant.values).max() + 1e-12)


@pytest.mark.parametrize("kind", sorted(FACTORIES.keys() - BY_HAND))
def test_the_numbers_are_those_of_a_processor(kind, on_cuda):
    meant = FACTORIES[kind]()
    on_cuda()
    found = used(FACTORIES[kind])
    if kind in TIES:
        np.testing.assert_allclose(found.values, meant.values, atol=TIES[kind])
    else:
        near(found, meant)
    _forget()
    again = FACTORIES[kind]()
    np.testing.assert_array_equal(again.values, found.values)


def test_statistics_of_a_sweep_are_those_of_a_processor():
    def told(device: str):
        model = Model.load("zoo:lm", device=device)
        wanted = [Moments("resid.*", groups=True), HeadCounts(), Surprise()]
        found = sweep([model, Model.random_like(model, 0)], Corpus.grammar(60), wanted, progress=False)
        return heads.statistics(found), overview.norms(found), overview.surprise(found), similarity.grid(found)

    found = used(lambda: told("cuda"))
    for mine, meant, again in zip(found, told("cpu"), told("cuda"), strict=True):
        near(mine, meant)
        np.testing.assert_array_equal(again.values, mine.values)


def test_every_ranking_finds_the_planted_neurons(on_cuda):
    meant = recall.measured()
    on_cuda()
    assert used(recall.measured) == meant


def test_a_probe_is_as_accurate_as_on_a_processor(on_cuda):
    def told():
        text = planted.corpus().take(120)
        return neurons.probe(planted.model(), text, concept="upos", sites="neurons.*", seeds=2, progress=False)

    meant = told()
    on_cuda()
    found = used(told)
    near(found, meant, share=0.02)
    np.testing.assert_array_equal(told().values, found.values)
