"""Which figure a result gets: the one made for its kind, else the one that fits its axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pellucid.results import WIDTH, Result, ResultError
from pellucid.views.ablations import ablation_figure
from pellucid.views.attribution import attribution_figure
from pellucid.views.bars import bars
from pellucid.views.convergence import convergence_curves
from pellucid.views.corpus_shares import corpus_shares
from pellucid.views.curves import curves
from pellucid.views.explained import explained_figure
from pellucid.views.flow_agreement import agreement_figure
from pellucid.views.head_map import alignment_map, changed_map, cluster_plane, function_map
from pellucid.views.heat_map import heat_map
from pellucid.views.importance_maps import importance_maps
from pellucid.views.information_flow import information_flow_figure
from pellucid.views.learning import learning_curves
from pellucid.views.matches import match_curves
from pellucid.views.position import surprise_curve
from pellucid.views.probe_bars import probe_bars
from pellucid.views.pruning import pruning_figure
from pellucid.views.ranking_curves import ranking_curves
from pellucid.views.rankings import ranking_figure
from pellucid.views.readings import reading_figure
from pellucid.views.second_attention import second_attention_figure
from pellucid.views.similarity_map import similarity_map
from pellucid.views.survey import survey_figure
from pellucid.views.trajectories import trajectory_figure
from pellucid.views.trust import trust_figure
from pellucid.views.units import unit_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MADE_FOR: dict[str, Callable[..., Figure]] = {
    "attribution": attribution_figure,
    "attribution.ablations": ablation_figure,
    "attribution.generation": attribution_figure,
    "attribution.over_corpus": corpus_shares,
    "attribution.trust": trust_figure,
    "heads.alignment": alignment_map,
    "heads.clusters": cluster_plane,
    "heads.functions": function_map,
    "heads.information_flow": information_flow_figure,
    "heads.pruning": pruning_figure,
    "heads.ablation": importance_maps,
    "heads.importance": importance_maps,
    "identifiability.flow_agreement": agreement_figure,
    "identifiability.functions_changed": changed_map,
    "identifiability.second_attention": second_attention_figure,
    "neurons.evaluation": ranking_curves,
    "neurons.explained": explained_figure,
    "neurons.ranking": ranking_figure,
    "neurons.reading": reading_figure,
    "neurons.per_layer": probe_bars,
    "neurons.probe": probe_bars,
    "neurons.selective": unit_bars,
    "neurons.spread": probe_bars,
    "neurons.survey": survey_figure,
    "neurons.trajectories": trajectory_figure,
    "overview.surprise": surprise_curve,
    "similarity.convergence": convergence_curves,
    "similarity.epoch_by_epoch": convergence_curves,
    "similarity.grid": similarity_map,
    "similarity.neurons": match_curves,
    "train.curves": learning_curves,
}
_MOST_BARS = 60


def draw(result: Result, *, width: float = WIDTH) -> Figure:
    """The figure of a result: two axes beside the measures give a heat map, one curves or bars."""
    if result.kind in _MADE_FOR:
        return _MADE_FOR[result.kind](result, width=width)
    others = [name for name in result.axes if name != "measure"]
    if len(others) == 2:
        return heat_map(result, width=width)
    if len(others) == 1 and not any(isinstance(item, str) for item in result.axes[others[0]]):
        return curves(result, width=width)
    if len(others) == 1 and "measure" not in result.axes and len(result.axes[others[0]]) <= _MOST_BARS:
        names = [str(item) for item in result.axes[others[0]]]
        return bars(
            names,
            result.values,
            null=result.null,
            low=result.low,
            high=result.high,
            title=result.title,
            label="",
            chance=result.chance,
            width=width,
        )
    raise ResultError(
        f"There is no figure for a {result.kind!r} result with the axes {list(result.axes)}; draw its to_frame()."
    )
