"""Attention heads: what each of them looks at."""

from pellucid.heads.ablation import HeadAblation, ablation
from pellucid.heads.alignment import HeadAlignment, alignment
from pellucid.heads.clusters import HeadClusters, clusters
from pellucid.heads.functions import HeadFunctions, functions
from pellucid.heads.gate_training import GateSettings
from pellucid.heads.gates import HardConcrete, HeadGates
from pellucid.heads.importance import HeadImportance, importance
from pellucid.heads.measuring import Measured, Score, measured
from pellucid.heads.pruning import Pruning, prune, pruned
from pellucid.heads.shapes import HeadShapes, shapes
from pellucid.heads.smaller import cost, kept_heads, save_smaller, smaller
from pellucid.heads.statistics import HeadStatistics, statistics
from pellucid.heads.sweeping import head_collectors

__all__ = [
    "GateSettings",
    "HardConcrete",
    "HeadAblation",
    "HeadAlignment",
    "HeadClusters",
    "HeadFunctions",
    "HeadGates",
    "HeadImportance",
    "HeadShapes",
    "HeadStatistics",
    "Measured",
    "Pruning",
    "Score",
    "ablation",
    "alignment",
    "clusters",
    "cost",
    "functions",
    "head_collectors",
    "importance",
    "kept_heads",
    "measured",
    "prune",
    "pruned",
    "save_smaller",
    "shapes",
    "smaller",
    "statistics",
]
