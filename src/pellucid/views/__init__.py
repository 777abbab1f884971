"""Figures of results, in one house style (`Result.plot()` draws through `draw`), and interactive views of models."""

from pellucid.views.attribution import attribution_figure
from pellucid.views.bars import bars
from pellucid.views.convergence import convergence_curves
from pellucid.views.corpus_shares import corpus_shares
from pellucid.views.curves import curves
from pellucid.views.drawing import draw
from pellucid.views.head_map import alignment_map, changed_map, cluster_plane, function_map
from pellucid.views.heat_map import heat_map
from pellucid.views.interactive import (
    View,
    attribution_view,
    compare_view,
    head_view,
    model_view,
    neuron_view,
    text_view,
)
from pellucid.views.learning import learning_curves
from pellucid.views.offsets import offset_histogram
from pellucid.views.position import surprise_curve
from pellucid.views.scatter import scatter
from pellucid.views.second_attention import second_attention_figure
from pellucid.views.similarity_map import similarity_map
from pellucid.views.style import figure_bytes, figure_svg
from pellucid.views.trust import trust_figure
from pellucid.views.units import unit_bars

__all__ = [
    "View",
    "alignment_map",
    "attribution_figure",
    "attribution_view",
    "bars",
    "changed_map",
    "cluster_plane",
    "compare_view",
    "convergence_curves",
    "corpus_shares",
    "curves",
    "draw",
    "figure_bytes",
    "figure_svg",
    "function_map",
    "head_view",
    "heat_map",
    "learning_curves",
    "model_view",
    "neuron_view",
    "offset_histogram",
    "scatter",
    "second_attention_figure",
    "similarity_map",
    "surprise_curve",
    "text_view",
    "trust_figure",
    "unit_bars",
]
