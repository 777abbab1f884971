"""Small results of probes and of what is built on them, for the contract of results; each is made once."""

from __future__ import annotations

from functools import cache

from pellucid import Corpus, neurons
from pellucid.neurons import Ranking
from pellucid.results import Result
from tests.neurons import planted


def text() -> Corpus:
    return planted.corpus().take(150)


def probe_by_hand() -> Result:
    return neurons.probe(
        planted.model(),
        planted.corpus().take(150),
        concept="upos=NOUN",
        sites="neurons.0",
        seeds=2,
        epochs=4,
        progress=False,
    )


def gaussian_by_hand() -> Result:
    return neurons.gaussian(
        planted.model(), planted.corpus().take(150), concept="upos=NOUN", sites="neurons.0", count=5
    )


@cache
def ranked(tag: str = "NOUN") -> Ranking:
    """A ranking by a small probe."""
    return neurons.probe(
        planted.model(), text(), concept=f"upos={tag},DET", sites="neurons.0", seeds=3, epochs=4, progress=False
    ).ranking()


def curves_by_hand() -> Result:
    return neurons.trained_anew(
        planted.model(),
        ranked(),
        text(),
        concept="upos=NOUN,DET",
        sites="neurons.0",
        counts=(2, 8),
        draws=2,
        epochs=4,
        seeds=1,
    )


def layers_by_hand() -> Result:
    return neurons.per_layer(planted.model(), text(), concept="upos=NOUN", sites="neurons.*", epochs=4, seeds=2)


def agreement_by_hand() -> Result:
    return neurons.agreement({"nouns": ranked(), "verbs": ranked("VERB")}, k=10)


def stability_by_hand() -> Result:
    return neurons.stability([ranked(), ranked("VERB"), ranked("PRON")], counts=(5, 10))


def distribution_by_hand() -> Result:
    return neurons.distribution(ranked(), 10)


def spread_by_hand() -> Result:
    return neurons.spread(ranked())


def polysemy_by_hand() -> Result:
    return neurons.polysemy(ranked(), 10)


def experts_by_hand() -> Result:
    found = {tag: neurons.precision(planted.model(), text(), concept=f"upos={tag}", sites="neurons.0")
             for tag in ("NOUN", "NOUN,DET")}  # fmt: skip
    return neurons.expert_share({"one": found["NOUN"], "other": found["NOUN,DET"]}, bar=0.5)


def trajectories_by_hand() -> Result:
    kinds = {"nouns": ("the keys are old", "the dogs are old"), "verbs": ("the boy sleeps now", "the cat runs now")}
    stimuli = {kind: [each.split() for each in texts] for kind, texts in kinds.items()}
    return neurons.trajectories(planted.model(), ["neurons.0:3", "neurons.1:2"], stimuli)


def explained_by_hand() -> Result:
    ranking = neurons.iou(planted.model(), planted.corpus().take(60), concept="upos", sites="neurons.0", control=False)
    return neurons.explained_accuracy(ranking, planted.model(), planted.corpus().take(60))
