"""Similarity of representations: scores of every pair of sites, within a model, between models and while they learn."""

from pellucid.similarity.grid import SimilarityGrid, grid
from pellucid.similarity.metrics import Metric, metrics, register
from pellucid.similarity.nulls import Null
from pellucid.similarity.pair import Pair, SimilarityError, pair_of_rows
from pellucid.similarity.permutations import SimilaritySignificance, significance
from pellucid.similarity.sampled import Samples, SampleSet

__all__ = [
    "Metric",
    "Null",
    "Pair",
    "SampleSet",
    "Samples",
    "SimilarityError",
    "SimilarityGrid",
    "SimilaritySignificance",
    "grid",
    "metrics",
    "pair_of_rows",
    "register",
    "significance",
]
