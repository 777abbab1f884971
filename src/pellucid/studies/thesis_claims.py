"""What the thesis claims, and whether it stands: each claim by a stated rule, from the numbers alone.

A rule is asked twice where it can be: of scores in the thesis's layout, and of scores without bias in the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.studies import thesis_published as published
from pellucid.studies.thesis_chance import google_null
from pellucid.studies.thesis_tables import Score, Study
from pellucid.uncertainty import jackknife

MARGIN = 0.02
"""A published score says something where it lies farther than this from what noise gives; it is printed to .01."""
STEADY = 0.02
"""A curve has settled where it stays this near to its end."""
FALL = 0.01
"""A curve falls where it ends by more than this below its highest point."""
NEAR_ACCURACY, NEAR_PERPLEXITY = 0.01, 1.1
"""How near a training comes to the published one: accuracy less a point, perplexity and a tenth."""

VERDICTS: dict[tuple[bool | None, bool | None], str] = {
    (True, True): "stands",
    (None, True): "stands",
    (False, True): "stands, though the thesis's layout does not show it",
    (True, False): "only in the thesis's layout",
    (False, False): "does not stand",
    (None, False): "does not stand",
    (False, None): "does not stand",
    (True, None): "only in the thesis's layout",
    (None, None): "cannot be told from this run",
}


@dataclass(frozen=True)
class Claim:
    """A claim, where it is made, the rule that it is judged by, the numbers, and what the rule says in each layout.

    `thesis` and `right` are True, False, or None where the rule cannot be asked.
    """

    claim: str
    where: str
    rule: str
    found: str
    thesis: bool | None
    right: bool | None

    @property
    def verdict(self) -> str:
        """Whether the claim stands, in a few words."""
        return VERDICTS[self.thesis, self.right]


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


def _two(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def _range(values: Sequence[float]) -> str:
    low, high = _two(min(values)), _two(max(values))
    return low if low == high else f"{low} to {high}"


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
        f"Ours is {ours:.1%}; always giving the commonest tag scores {chance:.1%}.",
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
        f"Published {_range(printed)}, noise {noise:.3f}. Ours in that layout {_range([s.value for s in ours])}, with "
        f"the columns of the thesis, where other words stand at the same places, {_range([s.value for s in shifted])}. "
        f"Word by word {_range([s.value for s in words])}, random networks {_range(_randoms(words))}.",
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
        f"In the thesis's layout {_range([s.value for s in ours])}, random networks {_range(_randoms(ours))}, rows "
        f"dealt out at random {_range([s.shuffled for s in ours if s.shuffled is not None])}. Word by word "
        f"{_range([s.value for s in words])}, random networks {_range(_randoms(words))}.",
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
        told.append(f"{name} {' and '.join(_signed(gap) for gap in gaps)}")
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
    told = [", ".join(f"{name} {_two(both[at])}" for name, both in found.items()) for at in (0, 1)]
    return Claim(
        "CKA tells layers apart better than SVCCA, whose scores differ by .01 only.",
        "4.3",
        "The four scores of table 2 lie farther apart under every kernel than under SVCCA.",
        f"Largest less smallest: in the thesis's layout {told[0]}; word by word {told[1]}.",
        rules[0],
        rules[1],
    )


def _within(study: Study, layout: str, score: str, of: Callable[[Score], float]) -> np.ndarray:
    """The grid of the language model's layers, [layer, layer]."""
    depth = study.depth["lm"]
    grid = np.eye(depth)
    for each in study.of("within", layout, score):
        one, other = (int(name.partition(".")[2]) - 1 for name in (each.left, each.right))
        grid[one, other] = grid[other, one] = of(each)
    return grid


def cut_of(grid: np.ndarray) -> tuple[int, float]:
    """Where layers fall into a lower and an upper group: how many are below, and how much more alike groups are within.

    The best cut has the largest mean score of pairs within a group less the mean of pairs between the groups.
    """
    depth = len(grid)
    upper = np.triu(np.ones_like(grid, dtype=bool), 1)
    gaps: list[float] = []
    for below in range(1, depth):
        low = np.arange(depth) < below
        same = low[:, None] == low
        gaps.append(float(grid[upper & same].mean() - grid[upper & ~same].mean()))
    best = int(np.argmax(gaps))
    return best + 1, gaps[best]


def clusters(study: Study) -> Claim:
    """Whether the language model's layers fall into the first four and the rest."""
    cuts: list[list[int]] = [[], []]
    told: list[list[str]] = [[], []]
    beyond = True
    for name in ("CKA linear", "CKA RBF"):
        for at, (layout, score) in enumerate(zip(("thesis", "words"), published.SCORES[name], strict=True)):
            below, gap = cut_of(_within(study, layout, score, lambda each: each.value))
            _, chance = cut_of(_within(study, layout, score, lambda each: each.random_both or 0.0))
            cuts[at].append(below)
            told[at].append(f"{name} {below} + {study.depth['lm'] - below} ({_two(gap)} apart, random {_two(chance)})")
            beyond &= gap > chance
    rules = [all(below == published.LOWER for below in each) and beyond for each in cuts]
    return Claim(
        "Within the language model, the first four layers are alike, and the last two.",
        "4.2, figures 6 and 7",
        "Under linear CKA and with Gaussian kernels, the cut with the largest difference between the mean of pairs "
        "within a group and of pairs between the groups is 4 + 2, and that difference is larger than in a random "
        "network.",
        f"In the thesis's layout {', '.join(told[0])}; word by word {', '.join(told[1])}.",
        rules[0],
        rules[1],
    )


def _corrected(score: Score) -> float:
    """A score as a share of the way from chance to 1."""
    return (score.value - score.chance) / (1 - score.chance)


def correlations_within(study: Study) -> Claim:
    """Whether SVCCA finds less than CKA among the language model's layers, once chance is taken out."""
    means: dict[str, list[float]] = {}
    for name in ("SVCCA", "CKA linear"):
        means[name] = []
        for layout, score in zip(("thesis", "words"), published.SCORES[name], strict=True):
            pairs = [each for each in study.of("within", layout, score) if each.left != each.right]
            means[name].append(float(np.mean([_corrected(each) for each in pairs])))
    rules = [means["SVCCA"][at] < means["CKA linear"][at] for at in (0, 1)]
    told = [" and ".join(f"{_two(both[at])} ({name})" for name, both in means.items()) for at in (0, 1)]
    return Claim(
        "SVCCA does not pick up the similarity of different layers of the language model, and CKA does.",
        "4.2, figure 10",
        "The mean over pairs of different layers, as a share of the way from chance to 1, is lower for SVCCA than for "
        "linear CKA.",
        f"In the thesis's layout {told[0]}; word by word {told[1]}.",
        rules[0],
        rules[1],
    )


def late_layers(study: Study) -> Claim:
    """Whether the last two layers come later to what they will be."""
    rules: list[bool] = []
    told: list[str] = []
    for layout, score in zip(("thesis", "words"), published.SCORES["CKA RBF"], strict=True):
        means = [
            float(np.mean([each.value for each in study.curve("final", layout, score, f"lm.{layer}")[:-1]]))
            for layer in range(1, study.depth["lm"] + 1)
        ]
        rules.append(max(means[published.LOWER :]) < min(means[: published.LOWER]))
        told.append(", ".join(_two(mean) for mean in means))
    return Claim(
        "The last two layers of the language model become what they will be later than the first four.",
        "4.2, figure 8",
        "The mean score (CKA RBF) of a layer with itself at the end, over all epochs before the last, is lower for "
        "each of the last two layers than for each of the first four.",
        f"From layer 1 on: in the thesis's layout {told[0]}; word by word {told[1]}.",
        rules[0],
        rules[1],
    )


def overtaking(study: Study) -> Claim:
    """Whether CKA rises before SVCCA and falls behind it later, once chance is taken out."""
    rules: list[bool | None] = []
    told: list[str] = []
    for at, layout in enumerate(("thesis", "words")):
        curves = [study.curve("final", layout, published.SCORES[name][at], "lm.1") for name in ("CKA linear", "SVCCA")]
        by_epoch = [{each.left_epoch: _corrected(each) for each in curve} for curve in curves]
        shared = sorted(by_epoch[0].keys() & by_epoch[1].keys())[1:-1]  # between the start and the end
        gaps = [by_epoch[0][epoch] - by_epoch[1][epoch] for epoch in shared]
        rules.append(gaps[0] > 0 > min(gaps[1:]) if len(gaps) > 1 else None)
        named = ", ".join(f"epoch {epoch} {_signed(gap)}" for epoch, gap in zip(shared, gaps, strict=True))
        told.append(named or "no epoch between start and end")
    return Claim(
        "CKA sees a layer settle earlier than SVCCA, which overtakes it later.",
        "4.2, figures 9 and 12",
        "For layer 1 of the language model with itself at the end, each score as a share of the way from its chance to "
        "1: linear CKA is higher at the first epoch after the start, and lower at some later one.",
        f"CKA less SVCCA: in the thesis's layout {told[0]}; word by word {told[1]}.",
        rules[0],
        rules[1],
    )


def settled(curve: Sequence[Score]) -> int:
    """The first epoch from which on a curve stays near its end."""
    far = [place for place, each in enumerate(curve) if abs(each.value - curve[-1].value) > STEADY]
    return curve[far[-1] + 1 if far else 0].left_epoch


def saturation(study: Study) -> Claim:
    """From which epoch on tagger and language model are as alike as they will be."""
    enough = study.last > published.SATURATED
    epochs = [
        [settled(study.curve("target", layout, score, f"tagger.{layer}")) for layer in (1, 2)]
        for layout, score in zip(("thesis", "words"), published.SCORES["CKA linear"], strict=True)
    ]
    rules = [max(each) < published.SATURATED if enough else None for each in epochs]
    return Claim(
        f"Tagger and trained language model are as alike as they will be before epoch {published.SATURATED}.",
        "4.3, figures 13 and 14",
        f"Linear CKA of layers 1 and 2 stays within {STEADY} of its end from an epoch below {published.SATURATED} on; "
        f"the training must be longer than that.",
        f"Layers 1 and 2 have settled at epochs {epochs[0][0]} and {epochs[0][1]} in the thesis's layout, "
        f"{epochs[1][0]} and {epochs[1][1]} word by word, of {study.last}.",
        rules[0],
        rules[1],
    )


def falling(study: Study) -> Claim:
    """Whether layer 2 of the tagger comes nearest to the language model's early on, and layer 1 at the end."""
    falls = [
        [
            max(each.value for each in curve) - curve[-1].value
            for curve in (study.curve("target", layout, score, f"tagger.{layer}") for layer in (1, 2))
        ]
        for layout, score in zip(("thesis", "words"), published.SCORES["CKA linear"], strict=True)
    ]
    rules = [one <= FALL < two for one, two in falls]
    return Claim(
        "Layer 1 of the tagger grows more and more like the language model's; layer 2 falls a little after a peak.",
        "4.3, figures 13 and 14",
        f"Linear CKA with the trained language model ends at most {FALL} below its highest point for layer 1, and more "
        "than that for layer 2.",
        f"Layers 1 and 2 end below their highest points by {_two(falls[0][0])} and {_two(falls[0][1])} in the thesis's "
        f"layout, {_two(falls[1][0])} and {_two(falls[1][1])} word by word.",
        rules[0],
        rules[1],
    )
