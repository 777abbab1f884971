"""Whether a ranking was made of other documents than it is judged on, for the same classes, and of the same model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pellucid.corpus.identity import fingerprint_of
from pellucid.errors import listing
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.concepts import scored
from pellucid.neurons.directions import CLASS
from pellucid.neurons.judging.ablating import EVERY

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.neurons.probing.labels import Labelled
    from pellucid.neurons.probing.material import Material
    from pellucid.neurons.ranking import Ranking

OTHER_CLASSES = "The ranking and the text that judges it do not have the same classes"
"""How the warning of classes that one of the two lacks begins."""


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


def warn_of_other_classes(ranking: Ranking, data: Labelled, cls: str | None) -> None:
    """Warns where a ranking was made for classes that the text that judges it lacks, or it has others.

    Of a class whose order is judged, that class alone counts. Classes that either left out as rare are no surprise, and
    rankings that tell no classes apart have none to compare.
    """
    one = cls or ranking.provenance.arguments.get("class")
    told = ""
    if one is not None:
        if one not in data.classes:
            few = f"{data.left_out[one]} words of it, too few to learn" if one in data.left_out else "no word of it"
            told = (
                f"The order of {one!r} is judged on text that has {few}, so this tells nothing of {one!r}: judge text "
                f"with more of it, or the order of another class ({listing(scored(data.classes), most=30)})."
            )
    elif ranking.classes not in ((EVERY,), (CLASS,)):
        table = ranking.tables.get("left out")
        ranked = {*ranking.classes, *(() if table is None else map(str, table.axes["class"]))}
        sides = {
            "only the ranking has": [name for name in ranking.classes if name not in {*data.classes, *data.left_out}],
            "only the text has": [name for name in scored(data.classes) if name not in ranked],
        }
        apart = [f"{side} {listing(names, most=10)}" for side, names in sides.items() if names]
        if apart:
            told = (
                f"{OTHER_CLASSES} of {data.concept.name!r} ({'; '.join(apart)}), so it is judged on others than it was "
                "made for: rank and judge texts that have the same, or name the classes to tell apart."
            )
    if told:
        warnings.warn(told, NeuronWarning, stacklevel=4)


def warn_of_other_model(ranking: Ranking, name: str, fingerprint: str) -> None:
    """Warns where a ranking is of another model than the one that it is judged in."""
    own = _model_of(ranking)
    if own is not None and own["fingerprint"] != fingerprint:
        warnings.warn(
            f"The ranking is of {own['name']!r} and is judged in {name!r}: neurons of two models have nothing in "
            "common but their places, unless one was trained from the other.",
            NeuronWarning,
            stacklevel=4,
        )


def warn_of_several_models(rankings: Mapping[str, Ranking]) -> None:
    """Warns where rankings that are compared neuron by neuron are of several models."""
    known = [own for each in rankings.values() if (own := _model_of(each)) is not None]
    models = {own["fingerprint"]: own["name"] for own in known}
    if len(models) > 1:
        warnings.warn(
            f"These rankings are of several models ({listing(models.values())}), and neurons are compared by their "
            "places: that means something only where one model was trained from the other.",
            NeuronWarning,
            stacklevel=4,
        )


def _model_of(ranking: Ranking) -> Mapping[str, Any] | None:
    """The model whose neurons are ranked; arrays have none: their fingerprint is that of the numbers themselves."""
    origin = ranking.provenance
    known = origin.models[0] if origin.models else None
    arrays = known is not None and known["fingerprint"] in (origin.corpus.get("fingerprint"), origin.corpus.get("of"))
    return None if arrays else known


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
