"""Similarity of representations: scores of every pair of sites, within a model, between models and while they learn."""

from pellucid.similarity.caution import SimilarityWarning
from pellucid.similarity.comparing import Comparison, compare
from pellucid.similarity.following import follow, follow_runs
from pellucid.similarity.grid import SimilarityGrid, grid
from pellucid.similarity.heads import HeadSimilarity, head_outputs, head_patterns
from pellucid.similarity.metrics import Metric, metrics, register
from pellucid.similarity.minibatch import minibatch_cka
from pellucid.similarity.neurons import NeuronMatches, neuron_matches
from pellucid.similarity.nulls import Null
from pellucid.similarity.pair import Pair, SimilarityError, pair_of_rows
from pellucid.similarity.permutations import SimilaritySignificance, significance
from pellucid.similarity.presets import preset
from pellucid.similarity.sampled import Samples, SampleSet
from pellucid.similarity.training import Convergence, EpochByEpoch, convergence, epoch_by_epoch

__all__ = [
    "Comparison",
    "Convergence",
    "EpochByEpoch",
    "HeadSimilarity",
    "Metric",
    "NeuronMatches",
    "Null",
    "Pair",
    "SampleSet",
    "Samples",
    "SimilarityError",
    "SimilarityGrid",
    "SimilaritySignificance",
    "SimilarityWarning",
    "compare",
    "convergence",
    "epoch_by_epoch",
    "follow",
    "follow_runs",
    "grid",
    "head_outputs",
    "head_patterns",
    "metrics",
    "minibatch_cka",
    "neuron_matches",
    "pair_of_rows",
    "preset",
    "register",
    "significance",
]
