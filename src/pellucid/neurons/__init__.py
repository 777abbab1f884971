"""Neurons: what moves single units, and which of them carry a concept."""

from pellucid.neurons.arrays import array_store
from pellucid.neurons.bitmasks import iou_table
from pellucid.neurons.concepts import Concept
from pellucid.neurons.contexts import SelectiveUnits, selective
from pellucid.neurons.judging.ablation import ablation, greedy_ablation
from pellucid.neurons.judging.agreement import Agreement, Stability, agreement, stability, vote
from pellucid.neurons.judging.effects import effects
from pellucid.neurons.judging.evaluation import RankingCurves, ablated_in_model, ablated_in_probe, trained_anew
from pellucid.neurons.judging.explained import Explained, explained_accuracy
from pellucid.neurons.judging.findings import (
    Distribution,
    ExpertShare,
    Polysemy,
    Spread,
    distribution,
    expert_share,
    polysemy,
    spread,
)
from pellucid.neurons.judging.resampled import resampled_stability
from pellucid.neurons.judging.trajectories import Trajectories, trajectories
from pellucid.neurons.methods import RANKINGS
from pellucid.neurons.neurox import neurox_store
from pellucid.neurons.overlap import iou
from pellucid.neurons.precision import average_precision, precision
from pellucid.neurons.probeless import probeless
from pellucid.neurons.probing.forest import forest
from pellucid.neurons.probing.gaussian import GaussianProbe, gaussian
from pellucid.neurons.probing.per_layer import LayerProbes, per_layer
from pellucid.neurons.probing.probes import Probe, probe
from pellucid.neurons.ranked import rank
from pellucid.neurons.ranking import Ranking
from pellucid.neurons.reading import NeuronReading, read
from pellucid.neurons.search import search
from pellucid.neurons.selectivity import selectivity
from pellucid.neurons.survey import NeuronSurvey, survey, survey_collectors
from pellucid.neurons.training_part import training_part

__all__ = [
    "RANKINGS",
    "Agreement",
    "Concept",
    "Distribution",
    "ExpertShare",
    "Explained",
    "GaussianProbe",
    "LayerProbes",
    "NeuronReading",
    "NeuronSurvey",
    "Polysemy",
    "Probe",
    "Ranking",
    "RankingCurves",
    "SelectiveUnits",
    "Spread",
    "Stability",
    "Trajectories",
    "ablated_in_model",
    "ablated_in_probe",
    "ablation",
    "agreement",
    "array_store",
    "average_precision",
    "distribution",
    "effects",
    "expert_share",
    "explained_accuracy",
    "forest",
    "gaussian",
    "greedy_ablation",
    "iou",
    "iou_table",
    "neurox_store",
    "per_layer",
    "polysemy",
    "precision",
    "probe",
    "probeless",
    "rank",
    "read",
    "resampled_stability",
    "search",
    "selective",
    "selectivity",
    "spread",
    "stability",
    "survey",
    "survey_collectors",
    "trained_anew",
    "training_part",
    "trajectories",
    "vote",
]
