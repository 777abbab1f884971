"""Rankings judged in the model: beyond random neurons, in the right model, with a replacement that is there."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

from pellucid import neurons
from pellucid.errors import PellucidError
from pellucid.model import Model
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.judging.evaluation import _beyond
from tests.neurons import planted


def test_what_first_neurons_cost_beyond_random_ones_is_paired_by_documents():
    """Losses of groups differ widely, and the first neurons cost about a tenth more in each: by hand."""
    losses, goals = np.array([20.0, 50.0, 80.0, 40.0]), np.full(4, 100.0)
    more = np.array([11.0, 9.0, 10.0, 10.0])
    parts = np.stack([losses + more, losses - 5, losses])[:, None]  # top, bottom, random
    found = _beyond(parts, goals, (8,)).columns
    assert found["value"][:, 0] == pytest.approx([0.10, -0.05])
    ends = stats.t.interval(0.95, 3, loc=0.1, scale=stats.sem(more / 100))
    assert (found["low"][0, 0], found["high"][0, 0]) == pytest.approx(ends)
    assert found["high"][1, 0] - found["low"][1, 0] == pytest.approx(0, abs=1e-12)


def test_a_replacement_that_is_not_there_is_refused():
    ranking = neurons.probeless(
        planted.model(), planted.corpus().take(40), concept="upos", sites="neurons.0", control=False
    )
    with pytest.raises(PellucidError, match="cannot be replaced by 'foo'; choose zero, mean"):
        neurons.ablated_in_model(planted.model(), planted.corpus().take(10), ranking, replacement="foo", progress=False)


def test_a_ranking_of_another_model_is_warned_of():
    corpus, other = planted.corpus(), Model.random_like(planted.model(), 5)
    ranking = neurons.probeless(other, corpus.shard(0, 2), concept="upos", sites="neurons.0", control=False)
    with pytest.warns(NeuronWarning, match="The ranking is of .* and is judged in .*: neurons of two models have"):
        neurons.ablated_in_model(planted.model(), corpus.shard(1, 2), ranking, counts=(2,), draws=1, progress=False)
    own = neurons.probeless(planted.model(), corpus.shard(0, 2), concept="upos", sites="neurons.0", control=False)
    with pytest.warns(NeuronWarning, match="of several models"):
        neurons.agreement({"own": own, "other": ranking}, k=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeuronWarning)
        neurons.agreement({"own": own, "again": own}, k=5)
    with pytest.raises(PellucidError, match="is ranked by probeless: rank by 'precision'"):
        neurons.expert_share({"own": own})
