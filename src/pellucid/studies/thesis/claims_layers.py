"""The claims of the thesis about the language model's own layers, and about when layers become what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pellucid.studies.thesis import published
from pellucid.studies.thesis.tables import Score, Study
from pellucid.studies.thesis.verdicts import Claim, corrected, signed, two_places

STEADY = 0.02
"""A curve has settled where it stays this near to its end."""
FALL = 0.01
"""A curve falls where it ends by more than this below its highest point."""


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
    beyond = [True, True]
    for name in ("CKA linear", "CKA RBF"):
        for at, (layout, score) in enumerate(zip(("thesis", "words"), published.SCORES[name], strict=True)):
            below, gap = cut_of(_within(study, layout, score, lambda each: each.value))
            _, chance = cut_of(_within(study, layout, score, lambda each: each.random_both or 0.0))
            cuts[at].append(below)
            told[at].append(
                f"{name} {below} + {study.depth['lm'] - below} ({two_places(gap)} apart, random {two_places(chance)})"
            )
            beyond[at] &= gap > chance
    rules = [
        all(below == published.LOWER for below in each) and larger for each, larger in zip(cuts, beyond, strict=True)
    ]
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


def correlations_within(study: Study) -> Claim:
    """Whether SVCCA finds less than CKA among the language model's layers, once chance is taken out."""
    means: dict[str, list[float]] = {}
    for name in ("SVCCA", "CKA linear"):
        means[name] = []
        for layout, score in zip(("thesis", "words"), published.SCORES[name], strict=True):
            pairs = [each for each in study.of("within", layout, score) if each.left != each.right]
            means[name].append(float(np.mean([corrected(each) for each in pairs])))
    rules = [means["SVCCA"][at] < means["CKA linear"][at] for at in (0, 1)]
    told = [" and ".join(f"{two_places(both[at])} ({name})" for name, both in means.items()) for at in (0, 1)]
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
        told.append(", ".join(two_places(mean) for mean in means))
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
        by_epoch = [{each.left_epoch: corrected(each) for each in curve} for curve in curves]
        shared = sorted(by_epoch[0].keys() & by_epoch[1].keys())[1:-1]  # between the start and the end
        gaps = [by_epoch[0][epoch] - by_epoch[1][epoch] for epoch in shared]
        rules.append(gaps[0] > 0 > min(gaps[1:]) if len(gaps) > 1 else None)
        named = ", ".join(f"epoch {epoch} {signed(gap)}" for epoch, gap in zip(shared, gaps, strict=True))
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
        f"Layers 1 and 2 end below their highest points by {' and '.join(map(two_places, falls[0]))} in the thesis's "
        f"layout, {' and '.join(map(two_places, falls[1]))} word by word.",
        rules[0],
        rules[1],
    )
