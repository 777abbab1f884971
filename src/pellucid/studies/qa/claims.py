"""What the question-answering study finds, as claims in plain words, each judged by a stated rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pellucid.studies.claims import Claim
from pellucid.studies.qa.measures import Array, Mean
from pellucid.studies.qa.tables import ENDS, PARTS, Measured, Question, Study

FEWEST = 5
"""Questions of a kind, right or wrong, below which the two kinds are not compared."""


def claims(study: Study) -> list[Claim]:
    """Every claim of the study."""
    return [_reading(study), _deeper(study), _apart(study), _question(study), _gathered(study), _wrong(study)]


def judged(mean: Mean | None, wanted: int) -> bool | None:
    """True where every interval lies on the wanted side of zero, False where one lies on the other side."""
    if mean is None:
        return None
    signs = mean.sign()
    if bool((signs == wanted).all()):
        return True
    return False if bool((signs == -wanted).any()) else None


def told(mean: Mean | None, names: Sequence[str] = ENDS) -> list[str]:
    """Means with their intervals, one for each name."""
    if mean is None:
        return ["no questions" for _ in names]
    parts: list[str] = []
    for place in range(len(names)):
        shown = _short(np.atleast_1d(mean.value)[place])
        if mean.low is not None and mean.high is not None:
            low, high = (_short(np.atleast_1d(end)[place]) for end in (mean.low, mean.high))
            shown += f" ({low} to {high})"
        parts.append(shown)
    return parts


def _short(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _plainly(mean: Mean | None, place: int) -> str:
    return "no questions" if mean is None else _short(np.atleast_1d(mean.value)[place])


Read = Callable[[Question], Array]
Chosen = Callable[[Question], bool]


def _beside(study: Study, claim: str, rule: str, first: Read, second: Read, word: str) -> Claim:
    """A claim that one number lies above another, at both ends."""
    means = [study.mean(first), study.mean(second)]
    mean = study.mean(lambda one: first(one) - second(one))
    found = [
        f"{end} {_plainly(means[0], place)}, {word} {_plainly(means[1], place)}: difference {shown}"
        for place, (end, shown) in enumerate(zip(ENDS, told(mean), strict=True))
    ]
    return Claim(claim, rule, "; ".join(found), judged(mean, 1))


def _with_depth(
    study: Study,
    claim: str,
    what: str,
    read: Callable[[Measured], Array],
    wanted: int,
    *,
    names: Sequence[str] = ENDS,
    chosen: Chosen = lambda _: True,
) -> Claim:
    """A claim that something [names, places] grows (1) or shrinks (−1) with depth, and more so than without learning.

    What a random network shows too comes from the architecture: the higher a layer, the less is left to be mixed.
    """
    last = max(1, len(study.places) - 2)

    def change(one: Measured) -> Array:
        return read(one)[:, last] - read(one)[:, 0]

    ends = [study.mean(lambda one, at=at: read(one.trained)[:, at], chosen) for at in (0, last)]
    own = study.mean(lambda one: change(one.trained), chosen)
    random = study.mean(lambda one: change(one.random), chosen)
    learned = study.mean(lambda one: change(one.trained) - change(one.random), chosen)
    found = [
        f"{name} {_plainly(ends[0], place)} → {_plainly(ends[1], place)}, change {shown}; random network "
        f"{_plainly(random, place)}, beyond it {beyond}"
        for place, (name, shown, beyond) in enumerate(zip(names, told(own, names), told(learned, names), strict=True))
    ]
    rule = (
        f"Change of {what} from the input to {study.places[last]}, the last layer but one: its interval lies "
        f"{'above' if wanted > 0 else 'below'} zero, and still does with a random network's change taken off."
    )
    both = {judged(own, wanted), judged(learned, wanted)}
    return Claim(claim, rule, "; ".join(found), False if False in both else None if None in both else True)


def _reading(study: Study) -> Claim:
    return _beside(
        study,
        "The answer is found by reading other tokens than its own.",
        "Spread over tokens at the input, less that in a network with random weights, where a place rests mostly on "
        "its own token: the intervals of both ends lie above zero.",
        lambda one: np.array(one.trained.spread)[:, 0],
        lambda one: np.array(one.random.spread)[:, 0],
        "random network",
    )


def _deeper(study: Study) -> Claim:
    claim, what = "Attribution gathers on fewer tokens with depth.", "the spread over tokens"
    return _with_depth(study, claim, what, lambda one: np.array(one.spread), -1)


def _apart(study: Study) -> Claim:
    return _with_depth(
        study,
        "Start and end of an answer rest less and less on the same tokens with depth.",
        "what the shares of both ends have in common, in answers of several tokens,",
        lambda one: np.array(one.overlap)[None],
        -1,
        names=("overlap",),
        chosen=lambda one: len(set(one.ends)) > 1,
    )


def _question(study: Study) -> Claim:
    part = PARTS.index("question")
    return _beside(
        study,
        "The question's words hold more of the attribution than their number gives them.",
        "Share of the question's tokens at the input, less their share of all tokens: both intervals lie above zero.",
        lambda one: np.array(one.trained.parts)[:, 0, part],
        lambda one: np.repeat(one.frequency[part], len(ENDS)),
        "share of tokens",
    )


def _gathered(study: Study) -> Claim:
    part = PARTS.index("answer")
    return _with_depth(
        study,
        "With depth, attribution moves to the answer's own tokens.",
        "the share of the answer's tokens",
        lambda one: np.array(one.parts)[:, :, part],
        1,
        chosen=lambda one: bool(one.answered),
    )


def _wrong(study: Study) -> Claim:
    """Right and wrong answers are different questions, so that their intervals are compared, not their differences."""
    right, wrong = (
        study.mean(lambda one: np.array(one.trained.spread)[:, 0], lambda one, kind=kind: one.right is kind)
        for kind in (True, False)
    )
    count = sum(one.right for one in study.questions)
    claim, rule = (
        "Wrong answers rest on more tokens than right ones.",
        "Spread over tokens at the input: the interval of wrong answers lies above that of right ones, at both ends.",
    )
    if right is None or wrong is None or min(count, len(study.questions) - count) < FEWEST:
        few = f"{count} right and {len(study.questions) - count} wrong answers: too few of one kind"
        return Claim(claim, rule, few, None)
    kinds = [zip(ENDS, told(each), strict=True) for each in (right, wrong)]
    shown = ["; ".join(f"{end} {mean}" for end, mean in kind) for kind in kinds]
    found = f"right: {shown[0]}; wrong: {shown[1]}"
    if right.low is None or right.high is None or wrong.low is None or wrong.high is None:
        return Claim(claim, rule, found, None)
    above, below = wrong.low > right.high, wrong.high < right.low
    return Claim(claim, rule, found, True if bool(above.all()) else False if bool(below.any()) else None)
