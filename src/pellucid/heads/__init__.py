"""Attention heads: what each of them looks at."""

from pellucid.heads.flow.graph import attention_flow, rollout
from pellucid.heads.flow.information_flow import InformationFlow, information_flow
from pellucid.heads.pruning.gate_training import GateSettings
from pellucid.heads.pruning.gates import HardConcrete, HeadGates
from pellucid.heads.pruning.pruning import Pruning, prune, pruned
from pellucid.heads.pruning.smaller import cost, kept_heads, save_smaller, smaller
from pellucid.heads.roles.alignment import HeadAlignment, alignment
from pellucid.heads.roles.clusters import HeadClusters, clusters
from pellucid.heads.roles.functions import HeadFunctions, functions
from pellucid.heads.roles.shapes import HeadShapes, shapes
from pellucid.heads.roles.statistics import HeadStatistics, statistics
from pellucid.heads.roles.sweeping import head_collectors
from pellucid.heads.weighing.ablation import HeadAblation, ablation
from pellucid.heads.weighing.importance import HeadImportance, importance
from pellucid.heads.weighing.measuring import Measured, Score, measured

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
    "InformationFlow",
    "Measured",
    "Pruning",
    "Score",
    "ablation",
    "alignment",
    "attention_flow",
    "clusters",
    "cost",
    "functions",
    "head_collectors",
    "importance",
    "information_flow",
    "kept_heads",
    "measured",
    "prune",
    "pruned",
    "rollout",
    "save_smaller",
    "shapes",
    "smaller",
    "statistics",
]
