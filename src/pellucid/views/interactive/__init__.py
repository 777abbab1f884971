"""Interactive views of a model on one text: `head_view(model, text).show()`, `.save("x.html")`, `.serve()`."""

from pellucid.views.interactive.attention import head_view, model_view, neuron_view
from pellucid.views.interactive.attribution import attribution_view
from pellucid.views.interactive.comparison import compare_view
from pellucid.views.interactive.text_scene import text_view
from pellucid.views.interactive.view import View

__all__ = ["View", "attribution_view", "compare_view", "head_view", "model_view", "neuron_view", "text_view"]
