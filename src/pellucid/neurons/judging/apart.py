"""Whether a ranking was made of other documents than it is judged on."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

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
    text, rule, mark = found.store.about["corpus"]["fingerprint"], found.data.concept.rule, found.split.mark
    if any(_same(each, text, {rule}) and mark not in each["held out"] for each in texts_of(ranking)):
        warnings.warn(
            "The ranking was made of the documents that it is tested on, so it may look better than it is: rank "
            "neurons.training_part(store, concept=…), or other text.",
            NeuronWarning,
            stacklevel=4,
        )


def warn_of_same_corpus(ranking: Ranking, corpus: Corpus) -> None:
    """Warns where a ranking was made of the corpus that it is tested on, all of which judges."""
    if any(_same(each, corpus.fingerprint, set()) for each in texts_of(ranking)):
        warnings.warn(
            "The ranking was made of the text that it is tested on, so it may look better than it is: rank other "
            "documents, such as corpus.shard(0, 2), and judge corpus.shard(1, 2).",
            NeuronWarning,
            stacklevel=3,
        )


def texts_of(ranking: Ranking) -> list[dict[str, Any]]:
    """The texts that a ranking was made of, by fingerprint, the rule that made its label, and what was held out.

    A vote has those of all its rankings.
    """
    origin = ranking.provenance
    if "made of" in origin.arguments:
        return list(origin.arguments["made of"])
    marks = (origin.arguments.get("held out"), origin.corpus.get("held out"))
    return [
        {
            "fingerprints": [str(origin.corpus.get(name)) for name in ("fingerprint", "of")],
            "rule": str(origin.arguments.get("rule", "")),
            "held out": [mark for mark in marks if mark is not None],
        }
    ]


def _same(made_of: dict[str, Any], text: str | None, rules: set[str]) -> bool:
    """Whether what a ranking was made of is a text, or it with a label more, by one of the rules or by its own."""
    if not text:
        return False
    same = {text, *(fingerprint_of(text, f"label {rule}") for rule in {*rules, made_of["rule"]})}
    return not same.isdisjoint(made_of["fingerprints"])
