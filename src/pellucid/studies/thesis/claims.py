"""What the thesis claims, and whether it stands: each claim by a stated rule, from the numbers alone.

A rule is asked twice where it can be: of scores in the thesis's layout, and of scores without bias in the right one.
Here are the claims about scores of both networks; those about layers and about learning are in a file of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pellucid.studies.thesis import published
from pellucid.studies.thesis.chance import google_null
from pellucid.studies.thesis.claims_layers import (
    clusters,
    correlations_within,
    falling,
    late_layers,
    overtaking,
    saturation,
)
from pellucid.studies.thesis.tables import Score, Study
from pellucid.studies.thesis.verdicts import Claim, range_of, signed, two_places
from pellucid.uncertainty import jackknife

MARGIN = 0.02
"""A published score says something where it lies farther than this from what noise gives; it is printed to .01."""
NEAR_ACCURACY, NEAR_PERPLEXITY = 0.01, 1.1
"""How near a training comes to the published one: accuracy less a point, perplexity and a tenth."""


def claims(study: Study) -> list[Claim]:
    """Every claim of the thesis that its numbers bear on, judged by this study's."""
    judges: list[Callable[[Study], Claim]] = [
        accuracy,
        perplexity,
        correlations_between,
        kernels_between,
        own_partners,
        spreads,
        clusters,
        correlations_within,
        late_layers,
        overtaking,
        saturation,
        falling,
    ]
    return [judge(study) for judge in judges]


def _whole(study: Study) -> bool:
    """Whether the networks were trained on the published text for as long."""
    return study.facts["scale"]["name"] == "full"


def accuracy(study: Study) -> Claim:
    """The tagger's score on the test text."""
    test = study.facts["training"]["tagger"]["test"]
    ours, chance = test["scores"]["accuracy"], test["chance"]["accuracy"]
    return Claim(
        f"The tagger reaches an accuracy of {published.ACCURACY.value:.1%}.",
        "4.1.1",
        f"Ours is at most {NEAR_ACCURACY:.0%} lower; asked of the whole text alone.",
        f"Ours is {ours:.1%}; always giving the commonest tag scores {chance:.1%}. The thesis trained and tested its "
        "tagger on raw text; where the text here has a mark in place of a rare word, ours cannot see that word.",
        None,
        ours >= published.ACCURACY.value - NEAR_ACCURACY if _whole(study) else None,
    )


def perplexity(study: Study) -> Claim:
    """The language model's score on the test text."""
    test = study.facts["training"]["lm"]["test"]
    ours, chance = test["scores"]["perplexity"], test["chance"]["perplexity"]
    return Claim(
        f"The language model reaches a perplexity of {published.PERPLEXITY.value:g}.",
        "4.1.2",
        f"Ours is at most {NEAR_PERPLEXITY - 1:.0%} higher; asked of the whole text alone.",
        f"Ours is {ours:,.1f}; word frequencies alone give {chance:,.0f}.",
        None,
        ours <= published.PERPLEXITY.value * NEAR_PERPLEXITY if _whole(study) else None,
    )


def _same(study: Study, layout: str, score: str, kind: str = "between") -> list[Score]:
    """Layers 1 and 2 of the tagger, each with the same layer of the language model."""
    return [study.one(kind, layout, score, f"tagger.{layer}", f"lm.{layer}") for layer in (1, 2)]


def _beyond(score: Score) -> bool:
    """Whether the whole interval lies above what random networks score, in place of one side or of both."""
    assert score.random is not None
    return (score.value if score.low is None else score.low) > score.random


def correlations_between(study: Study) -> Claim:
    """SVCCA of tagger and language model, beside noise of the array's shape."""
    noise = google_null(published.POINTS, published.ROWS, published.ROWS).mean
    printed = [value for row in published.TABLE_2["SVCCA"] for value in row]
    ours, shifted = _same(study, "thesis", "thesis-svcca"), _same(study, "thesis", "thesis-svcca", "shifted")
    words = _same(study, "words", "svcca")
    return Claim(
        "SVCCA finds a similarity of .44 to .46 between tagger and language model.",
        "4.3, table 2",
        f"In the thesis's layout: a published score lies more than {MARGIN} above noise of the same shape. In the "
        "right one: the interval of SVCCA lies above random networks, for layers 1 and 2.",
        f"Published {range_of(printed)}, noise {noise:.3f}. Ours in that layout {range_of([s.value for s in ours])}, "
        "with the columns of the thesis, where other words stand at the same places, "
        f"{range_of([s.value for s in shifted])}. Word by word {range_of([s.value for s in words])}, "
        f"random networks {range_of(_randoms(words))}.",
        max(printed) > noise + MARGIN,
        all(_beyond(each) for each in words),
    )


def _randoms(scores: Sequence[Score]) -> list[float]:
    return [score.random for score in scores if score.random is not None]


def kernels_between(study: Study) -> Claim:
    """CKA of tagger and language model, beside random networks."""
    names = [name for name in published.SCORES if name != "SVCCA"]
    ours = [each for name in names for each in _same(study, "thesis", published.SCORES[name][0])]
    words = [each for name in names for each in _same(study, "words", published.SCORES[name][1])]
    return Claim(
        "CKA shows that the first two layers of tagger and language model carry similar information.",
        "4.3, table 1; section 5",
        "Under all three kernels, layers 1 and 2 score higher than random networks in place of one side or of both; in "
        "the right layout the whole interval does.",
        f"In the thesis's layout {range_of([s.value for s in ours])}, random networks {range_of(_randoms(ours))}, rows "
        f"dealt out at random {range_of([s.shuffled for s in ours if s.shuffled is not None])}. Word by word "
        f"{range_of([s.value for s in words])}, random networks {range_of(_randoms(words))}.",
        all(_beyond(each) for each in ours),
        all(_beyond(each) for each in words),
    )


def _difference(study: Study, layout: str, score: str, layer: int) -> tuple[float, float]:
    """How much more alike a tagger's layer is with its own than with the other layer: the value, and its low end."""
    own, other = (study.one("between", layout, score, f"tagger.{layer}", f"lm.{at}") for at in (layer, 3 - layer))
    value = own.value - other.value
    if not own.without:
        return value, value
    without = [np.array(one - two) for one, two in zip(own.without, other.without, strict=True)]
    sizes = study.facts["groups"]["sampled" if "rbf" in score else "words"]
    low = jackknife(np.array(value), without, sizes).low
    return value, value if low is None else float(low)


def _partnered(study: Study, layout: str, score: str) -> bool:
    """Whether both layers are most alike with the same layer, beyond the interval where there is one."""
    return all(_difference(study, layout, score, layer)[1] > 0 for layer in (1, 2))


def own_partners(study: Study) -> Claim:
    """Which layer of the language model each layer of the tagger is most alike with."""
    held: dict[str, list[bool]] = {}
    told: list[str] = []
    for name, scores in published.SCORES.items():
        held[name] = [
            _partnered(study, layout, score) for layout, score in zip(("thesis", "words"), scores, strict=True)
        ]
        gaps = [_difference(study, "words", scores[1], layer)[0] for layer in (1, 2)]
        told.append(f"{name} {' and '.join(signed(gap) for gap in gaps)}")
    rules = [
        all(held[name][at] for name in ("CKA RBF", "CKA RBF .5"))
        and not any(held[name][at] for name in ("SVCCA", "CKA linear"))
        for at in (0, 1)
    ]
    yes = [", ".join(name for name, both in held.items() if both[at]) or "none" for at in (0, 1)]
    return Claim(
        "Only CKA with Gaussian kernels finds each layer most alike with the same layer of the other network.",
        "4.3, table 2",
        "Of layers 1 and 2 of the language model, both layers of the tagger score higher with their own, under both "
        "Gaussian kernels and under neither of the other scores; in the right layout the interval of the difference "
        "lies above 0.",
        f"Scores that find it: in the thesis's layout {yes[0]}; word by word {yes[1]}. Own less other layer, word by "
        f"word: {'; '.join(told)}.",
        rules[0],
        rules[1],
    )


def spreads(study: Study) -> Claim:
    """How far the four numbers of table 2 lie apart under each score."""
    found: dict[str, list[float]] = {}
    for name, scores in published.SCORES.items():
        found[name] = []
        for layout, score in zip(("thesis", "words"), scores, strict=True):
            values = [
                study.one("between", layout, score, f"tagger.{one}", f"lm.{other}").value
                for one in (1, 2)
                for other in (1, 2)
            ]
            found[name].append(max(values) - min(values))
    rules = [all(found[name][at] > found["SVCCA"][at] for name in found if name != "SVCCA") for at in (0, 1)]
    told = [", ".join(f"{name} {two_places(both[at])}" for name, both in found.items()) for at in (0, 1)]
    return Claim(
        "CKA tells layers apart better than SVCCA, whose scores differ by .01 only.",
        "4.3",
        "The four scores of table 2 lie farther apart under every kernel than under SVCCA.",
        f"Largest less smallest: in the thesis's layout {told[0]}; word by word {told[1]}.",
        rules[0],
        rules[1],
    )
