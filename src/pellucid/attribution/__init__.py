"""Attribution: what tokens, layers, heads and neurons did for a prediction, and whether to believe it."""

from pellucid.attribution.attribution import Attribution, attribute
from pellucid.attribution.generation import Generated, generation
from pellucid.attribution.over_corpus import CorpusAttribution, over_corpus
from pellucid.attribution.removal.ablations import Ablations, ablations
from pellucid.attribution.targets import Target
from pellucid.attribution.trials.trust import Trust, trust

__all__ = [
    "Ablations",
    "Attribution",
    "CorpusAttribution",
    "Generated",
    "Target",
    "Trust",
    "ablations",
    "attribute",
    "generation",
    "over_corpus",
    "trust",
]
