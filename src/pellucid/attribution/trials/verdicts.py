"""What the numbers of trust say of each method, in words, by comparing intervals with chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.attribution.trials.trust import Trust

UNCHANGED = 0.7
"""A rank correlation with the attributions of random weights from which on a method counts as one that ignores them."""
ADDS_UP = 0.05
"""The error of sums, as a share of the target's change, up to which attributions count as adding up."""
_HIGHER = {"insertion"}
BETTER, CHANCE, WORSE, KEPT, PARTLY = "better", "chance", "worse", "unchanged", "partly unchanged"


@dataclass(frozen=True)
class Verdict:
    """What the measures say of one method: a word for each, and one sentence."""

    method: str
    words: dict[str, str]
    sentence: str

    @property
    def doubtful(self) -> bool:
        """Whether the method fails: its order is no better than a random one, or it does not look at the weights."""
        orders = [self.words[name] for name in ("insertion", "deletion") if name in self.words]
        return self.words.get("randomisation") == KEPT or (bool(orders) and BETTER not in orders)


def verdicts(result: Trust, *, unchanged: float = UNCHANGED, adds_up: float = ADDS_UP) -> list[Verdict]:
    """One verdict for each method; the sentence tells what speaks for it and what against.

    A method ignores the weights from a rank correlation of `unchanged` with random ones on; it adds up where the
    interval of its error ends by `adds_up`.
    """
    found: list[Verdict] = []
    for at, method in enumerate(result.axes["method"]):
        words = {
            str(name): _word(result, place, at, unchanged, adds_up) for place, name in enumerate(result.axes["measure"])
        }
        found.append(Verdict(str(method), words, _sentence(words)))
    return found


def _word(result: Trust, place: int, at: int, unchanged: float, adds_up: float) -> str:
    """Where the interval of a cell lies: beyond the range of chance on the good side, on the bad one, or neither."""
    name, value = str(result.axes["measure"][place]), float(result.values[place, at])
    bounds = result.table("chance").columns
    least, most = float(bounds["low"][place, at]), float(bounds["high"][place, at])
    low = value if result.low is None else float(result.low[place, at])
    high = value if result.high is None else float(result.high[place, at])
    if name == "randomisation":
        return KEPT if value >= unchanged else PARTLY if low > most else BETTER
    if name == "completeness":
        return BETTER if high <= adds_up else CHANCE if value <= most else WORSE
    above, below = low > most, high < least
    good, bad = (above, below) if name in _HIGHER else (below, above)
    return BETTER if good else WORSE if bad else CHANCE


def _sentence(words: dict[str, str]) -> str:
    told: list[str] = []
    orders = [words[name] for name in ("insertion", "deletion") if name in words]
    if orders:
        better = orders.count(BETTER)
        told.append(
            "its order of tokens is better than a random one"
            if better == len(orders)
            else "its order of tokens is no better than a random one"
            if not better
            else "its order of tokens is better than a random one by one of the two curves"
        )
    if "unexplained" in words:
        says = {BETTER: "", CHANCE: " no better than when shuffled", WORSE: " worse than when shuffled"}
        told.append(f"its numbers foretell what removing tokens does{says[words['unexplained']]}")
    if "completeness" in words:
        told.append("they add up" if words["completeness"] == BETTER else "they do not add up")
    if "randomisation" in words:
        says = {
            KEPT: "it hardly changes when all weights are random, so it does not show what was learned",
            PARTLY: "a part of it stays when all weights are random",
            BETTER: "it changes when weights are random",
        }
        told.append(says[words["randomisation"]])
    return "; ".join(told) + "."
