"""Whether a ranking was made of other documents than it is judged on."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from pellucid.corpus.identity import fingerprint_of
from pellucid.neurons.caution import NeuronWarning

if TYPE_CHECKING:
    from pellucid.neurons.probing.material import Material
    from pellucid.neurons.ranking import Ranking


def warn_of_same_text(ranking: Ranking, found: Material) -> None:
    """Warns where a ranking has seen the documents that it is tested on.

    A ranking of the same text is fine where it left out the same documents for testing, as a probe with the same seed
    does, and every ranking of the store's `training_part`.
    """
    origin, text = ranking.provenance, found.store.about["corpus"]["fingerprint"]
    rules = {found.data.concept.rule, str(origin.arguments.get("rule", ""))}
    same = {text, *(fingerprint_of(text, f"label {rule}") for rule in rules)} if text else set[str]()
    seen = str(origin.corpus.get("fingerprint")), str(origin.corpus.get("of"))
    left_out = origin.arguments.get("held out"), origin.corpus.get("held out")
    if same.isdisjoint(seen) or found.split.mark in left_out:
        return
    warnings.warn(
        "The ranking was made of the documents that it is tested on, so it may look better than it is: rank "
        "neurons.training_part(store, concept=…), or other text.",
        NeuronWarning,
        stacklevel=4,
    )
