"""How a model answers the claims about identifiability: the number of each, with its interval, beside its limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pellucid.studies.claims import told
from pellucid.studies.identifiability.measures import QUERIES, first_of, last_of
from pellucid.studies.identifiability.tables import Array, Case, Curve
from pellucid.studies.rules import UNKNOWN, Number, resampled, rise

NEARLY, MOST, SEVERAL = 0.95, 0.5, 0.1
"""Nearly all are 95%, most are a half, several are a tenth."""
PUBLISHED, REACH = 0.3, 0.1
"""The share of tokens that are not their own largest contributor in the last layers of BERT, and how near is near."""
LAST = 1 / 6
"""The last layers are the last sixth: two of BERT's twelve."""
DIGITS = 9
"""Decimals that count: what is less comes from rounding."""


@dataclass(frozen=True)
class Answer:
    """The number that a claim is judged by, how it is told, and what the rule says."""

    number: Number
    found: str
    holds: bool | None


def number_of(curve: Curve, read: Callable[[Array], float], chance: float) -> Number:
    """Something read off a curve's values [rows, places], with its interval over documents."""

    def rounded(values: Array) -> float:
        return round(read(values), DIGITS) + 0.0

    return resampled(rounded(curve.values), [rounded(each) for each in curve.without], curve.sizes, chance)


def share_of(curve: Curve, read: Callable[[Array], float], chance: float) -> Number:
    """The same for a share: its interval ends at 0 and 1."""
    found = number_of(curve, read, chance)
    low, high = (None if end is None else min(max(end, 0.0), 1.0) for end in (found.low, found.high))
    return replace(found, low=low, high=high)


def last_layers(count: int) -> int:
    """How many of so many layers are the last ones."""
    return max(1, round(LAST * count))


# -- attention ---------------------------------------------------------------------------------------------------------


def _over_lengths(curve: Curve, row: str, chosen: Sequence[int]) -> Callable[[Array], float]:
    """The mean of a measure over the queries of some lengths."""
    at, queries = curve.rows.index(row), curve.rows.index(QUERIES)

    def read(values: Array) -> float:
        weights = values[queries, chosen]
        return float(values[at, chosen] @ weights / weights.sum())

    return read


def beyond(case: Case) -> list[int]:
    """The lengths of text with more keys in sight than heads are wide."""
    return [at for at, length in enumerate(case.curves["lengths"].places) if first_of(length) > case.width]


def _within(case: Case) -> list[int]:
    """The lengths of text with at most as many keys in sight as heads are wide."""
    return [at for at, length in enumerate(case.curves["lengths"].places) if last_of(length) <= case.width]


def _no_text(case: Case) -> Answer:
    return Answer(UNKNOWN, f"no text is long enough for heads {case.width} wide", None)


def open_beyond(case: Case) -> Answer:
    """Other weights are possible where more keys are in sight than a head is wide."""
    chosen, curve = beyond(case), case.curves["lengths"]
    if not chosen:
        return _no_text(case)
    unique = _over_lengths(curve, "unique", chosen)
    number = share_of(curve, lambda values: 1 - unique(values), NEARLY)
    free = _over_lengths(curve, "free", chosen)(curve.values)
    sees = _over_lengths(curve, "sees", chosen)(curve.values)
    found = (
        f"{told(number, per_cent=True, against='limit')}; {free:.1f} of {sees:.1f} dimensions are free, heads are "
        f"{case.width} wide"
    )
    return Answer(number, found, number.above())


def unique_within(case: Case) -> Answer:
    """No other weights are possible where fewer keys are in sight."""
    chosen, curve = _within(case), case.curves["lengths"]
    if not chosen:
        return Answer(UNKNOWN, f"no text is as short as heads are wide ({case.width})", None)
    number = share_of(curve, _over_lengths(curve, "unique", chosen), NEARLY)
    return Answer(number, told(number, per_cent=True, against="limit"), number.above())


def open_sentences(case: Case) -> Answer:
    """Other weights are possible over single sentences."""
    curve = case.curves["sentences"]
    at = curve.rows.index("unique")
    number = share_of(curve, lambda values: 1 - float(values[at].mean()), MOST)
    sees = float(curve.row("sees").mean())
    found = f"{told(number, per_cent=True, against='limit')}; a query sees {sees:.1f} tokens, heads are {case.width}"
    return Answer(number, f"{found} wide", number.above())


def another_story(case: Case) -> Answer:
    """The largest weight stands elsewhere in effective attention."""
    chosen, curve = beyond(case), case.curves["lengths"]
    if not chosen:
        return _no_text(case)
    number = share_of(curve, _over_lengths(curve, "argmax", chosen), SEVERAL)
    moved = number_of(curve, _over_lengths(curve, "moved", chosen), _over_lengths(curve, "moved", chosen)(curve.chance))
    found = (
        f"{told(number, per_cent=True, against='limit')}; length of the part without effect "
        f"{told(moved, against='a random direction')}"
    )
    return Answer(number, found, number.above())


def longer(case: Case) -> Answer:
    """Effective attention lies elsewhere more in the longest texts than in shorter ones."""
    chosen, curve = beyond(case), case.curves["lengths"]
    if len(chosen) < 2:
        return _no_text(case)
    at, first, last = curve.rows.index("shifted"), chosen[0], chosen[-1]
    number = number_of(curve, lambda values: float(values[at, last] - values[at, first]), 0.0)
    ends = ", ".join(f"{curve.values[at, place]:.0%} with {curve.places[place]} keys" for place in (first, last))
    return Answer(number, f"{told(number, per_cent=True)}; {ends}", number.above())


# -- tokens ------------------------------------------------------------------------------------------------------------


def _random(curve: Curve, read: Callable[[Array], float]) -> str:
    """The same number of a random network, where there is one."""
    if curve.random is None:
        return ""
    return f"; random network {round(read(curve.random), 2) + 0.0:.0%}".replace("-", "−")


def mostly(case: Case) -> Answer:
    """Tokens are found again, where fewest are."""
    curve = case.curves["tokens"]
    at = curve.rows.index("linear cosine")

    def read(values: Array) -> float:
        return float(values[at].min())

    number = share_of(curve, read, MOST)
    lowest = curve.places[int(curve.values[at].argmin())]
    found = (
        f"{told(number, per_cent=True, against='limit')}; after layer {lowest} of {curve.places[-1]}; chance "
        f"{float(curve.chance[at].mean()):.1%}{_random(curve, read)}"
    )
    return Answer(number, found, number.above())


def fades(case: Case) -> Answer:
    """The share of tokens found again falls over the layers."""
    curve = case.curves["tokens"]
    at = curve.rows.index("linear cosine")

    def read(values: Array) -> float:
        return rise(values[at])

    number = number_of(curve, read, 0.0)
    ends = f"{curve.values[at, 0]:.0%} after the first layer, {curve.values[at, -1]:.0%} after the last"
    return Answer(number, f"{told(number, per_cent=True)}; {ends}{_random(curve, read)}", number.below())


def difference(case: Case, more: str, less: str) -> Answer:
    """One measure less another, mean over the layers: above 0."""
    curve = case.curves["tokens"]
    one, other = curve.rows.index(more), curve.rows.index(less)

    def read(values: Array) -> float:
        return float((values[one] - values[other]).mean())

    number = number_of(curve, read, 0.0)
    means = f"{more} {curve.values[one].mean():.0%}, {less} {curve.values[other].mean():.0%}"
    return Answer(number, f"{told(number, per_cent=True)}; {means}{_random(curve, read)}", number.above())


# -- mixing ------------------------------------------------------------------------------------------------------------


def _mixed(case: Case, row: str, read: Callable[[Array], float]) -> tuple[Curve, Callable[[Array], float]]:
    """The curve of mixing, and what reads a number off one of its measures over the layers without the input."""
    curve = case.curves["mixing"]
    at = curve.rows.index(row)
    return curve, lambda values: read(values[at, 1:])


def _final(values: Array) -> float:
    return float(values[-1])


def _mean(values: Array) -> float:
    return float(values.mean())


def strongly(case: Case) -> Answer:
    """A token's own share in its last state is small."""
    curve, read = _mixed(case, "own", _final)
    number = share_of(curve, read, MOST)
    return Answer(number, f"{told(number, per_cent=True, against='limit')}{_random(curve, read)}", number.below())


def still_own(case: Case) -> Answer:
    """It is larger than that of other tokens."""
    curve, read = _mixed(case, "own", _final)
    number = share_of(curve, read, read(curve.chance))
    return Answer(number, told(number, per_cent=True, against="equal shares"), number.above())


def not_largest(case: Case) -> Answer:
    """Other tokens contribute more than a token itself."""
    count = last_layers(len(case.curves["mixing"].places) - 1)
    curve, read = _mixed(case, "not largest", lambda values: float(values[-count:].mean()))
    number = share_of(curve, read, read(curve.chance))
    layers = "the last layer" if count == 1 else f"the last {count} layers"
    found = f"{told(number, per_cent=True, against='equal shares')}; in {layers}{_random(curve, read)}"
    return Answer(number, found, near_published(number))


def near_published(number: Number) -> bool | None:
    """Whether an interval lies within `REACH` of what was published, outside of that, or neither."""
    if number.low is None or number.high is None:
        return None
    low, high = PUBLISHED - REACH, PUBLISHED + REACH
    if low <= number.low and number.high <= high:
        return True
    return False if number.high < low or number.low > high else None


def ever_more(case: Case) -> Answer:
    """A token's own share falls over the layers."""
    curve, read = _mixed(case, "own", rise)
    number, own = number_of(curve, read, 0.0), curve.row("own")
    ends = f"{own[1]:.0%} after the first layer, {own[-1]:.0%} after the last"
    return Answer(number, f"{told(number, per_cent=True)}; {ends}{_random(curve, read)}", number.below())


def neighbours(case: Case) -> Answer:
    """What is not a token's own comes from near."""
    curve, read = _mixed(case, "near", _mean)
    number = share_of(curve, read, read(curve.chance))
    found = f"{told(number, per_cent=True, against='equal shares')}{_random(curve, read)}"
    return Answer(number, found, number.above())


def followed_down(case: Case) -> Answer:
    """Rollout agrees better than attention with what states react to, after the last layer."""
    if "flow" not in case.curves:
        return Answer(UNKNOWN, "not measured in this run", None)
    curve = case.curves["flow"]
    one, other = curve.rows.index("rollout"), curve.rows.index("attention")

    def read(values: Array) -> float:
        return float(values[one, -1] - values[other, -1])

    number = number_of(curve, read, 0.0)
    near = f"nearness alone {curve.row('nearness')[-1]:.2f}".replace("-", "−")
    means = f"rollout {curve.values[one, -1]:.2f}, attention {curve.values[other, -1]:.2f}".replace("-", "−")
    return Answer(number, f"{told(number)}; {means}, {near}", number.above())


def farther(case: Case) -> Answer:
    """The neighbours' share falls over the layers."""
    curve, read = _mixed(case, "near", rise)
    number, near = number_of(curve, read, 0.0), curve.row("near")
    ends = f"{near[1]:.0%} from neighbours after the first layer, {near[-1]:.0%} after the last"
    return Answer(number, f"{told(number, per_cent=True)}; {ends}{_random(curve, read)}", number.below())
