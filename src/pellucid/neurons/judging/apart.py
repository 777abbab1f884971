"""Whether a ranking was made of other documents than it is judged on."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from pellucid.corpus.identity import fingerprint_of
from pellucid.neurons.caution import NeuronWarning

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.neurons.probing.material import Material
    from pellucid.neurons.ranking import Ranking


def warn_of_same_text(ranking: Ranking, found: Material) -> None:
    """Warns where a ranking was made of the text of the documents that it is tested on.

    A ranking of the same text is fine where it left out the same documents for testing, as a probe with the same seed
    does, and every ranking of the store's `training_part`. Texts are known by their fingerprints, so a ranking of a
    part of the text, or of a text that holds it, is not found out.
    """
    origin, text = ranking.provenance, found.store.about["corpus"]["fingerprint"]
    left_out = origin.arguments.get("held out"), origin.corpus.get("held out")
    if _made_of(ranking, text, {found.data.concept.rule}) and found.split.mark not in left_out:
        warnings.warn(
            "The ranking was made of the documents that it is tested on, so it may look better than it is: rank "
            "neurons.training_part(store, concept=…), or other text.",
            NeuronWarning,
            stacklevel=4,
        )


def warn_of_same_corpus(ranking: Ranking, corpus: Corpus) -> None:
    """Warns where a ranking was made of the corpus that it is tested on, all of which judges."""
    if _made_of(ranking, corpus.fingerprint, set()):
        warnings.warn(
            "The ranking was made of the text that it is tested on, so it may look better than it is: rank other "
            "documents, such as corpus.shard(0, 2), and judge corpus.shard(1, 2).",
            NeuronWarning,
            stacklevel=3,
        )


def _made_of(ranking: Ranking, text: str | None, rules: set[str]) -> bool:
    """Whether a ranking comes from a text, or from it with a label more, by one of the rules or by the ranking's."""
    if not text:
        return False
    origin = ranking.provenance
    known = {*rules, str(origin.arguments.get("rule", ""))}
    same = {text, *(fingerprint_of(text, f"label {rule}") for rule in known)}
    return not same.isdisjoint({str(origin.corpus.get("fingerprint")), str(origin.corpus.get("of"))})
