"""Figures of results, in one house style; `Result.plot()` draws through `draw`."""

from pellucid.views.bars import bars
from pellucid.views.convergence import convergence_curves
from pellucid.views.curves import curves
from pellucid.views.drawing import draw
from pellucid.views.heat_map import heat_map
from pellucid.views.offsets import offset_histogram
from pellucid.views.position import surprise_curve
from pellucid.views.similarity_map import similarity_map
from pellucid.views.style import figure_bytes, figure_svg
from pellucid.views.units import unit_bars

__all__ = [
    "bars",
    "convergence_curves",
    "curves",
    "draw",
    "figure_bytes",
    "figure_svg",
    "heat_map",
    "offset_histogram",
    "similarity_map",
    "surprise_curve",
    "unit_bars",
]
