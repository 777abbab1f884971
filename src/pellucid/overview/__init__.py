"""Overview: the first things to know of a model and a text, how large its vectors are and how well it predicts."""

from pellucid.overview.norms import Norms, norms
from pellucid.overview.surprise import SurpriseByPosition, surprise

__all__ = ["Norms", "SurpriseByPosition", "norms", "surprise"]
