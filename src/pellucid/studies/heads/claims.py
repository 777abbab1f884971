"""Claims of "Specialized heads do the heavy lifting, the rest can be pruned", judged on a case by stated rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pellucid.studies import rules
from pellucid.studies.claims import CaseClaim, told
from pellucid.studies.heads.claims_layers import across_claims, layer_claims
from pellucid.studies.heads.tables import SPECIALISED, WAYS, Case
from pellucid.studies.heads.verdicts import (
    VOITA,
    all_heads,
    better_than_guessing,
    functions_of,
    lasting,
    layer_of,
    point_at,
    reading_heads,
    specialised,
    stack_of,
    values_of,
)
from pellucid.studies.rules import Number

HALF, THIRD, LITTLE, SEVERAL = 0.5, 1 / 3, 0.95, 0.1
"""Most heads are gone at half of them; survivors are judged at a third; little is lost where 95% is kept; and several
heads are a tenth of them."""


def claims(cases: Sequence[Case]) -> list[CaseClaim]:
    """Every claim on every case, claim by claim, and those that compare cases."""
    makers = (_kinds, _three, _important, _confident, _removable, _matter, _survivors, _last, _stacks)
    found = [claim for make in makers for case in cases if (claim := make(case)) is not None]
    return [*found, *layer_claims(cases), *across_claims(cases)]


def _kinds(case: Case) -> CaseClaim:
    special = specialised(case)
    random = max(drawn.specialised for drawn in case.random.values()) / len(special)
    number = rules.share(int(special.sum()), len(special), max(random, SEVERAL))
    return CaseClaim(
        "Heads have recognisable functions: positional, syntactic, rare words.",
        "Share of the heads that read text with one of the three functions, on any of the texts (Wilson's interval): "
        f"above {SEVERAL:.0%}, and above that of a network with random weights on the text where it has most. Where "
        "heads of another random network have a function, too, a head must do it 10 points better than the best of "
        "them.",
        f"{int(special.sum())} of {len(special)}: {told(number, per_cent=True, against='limit')}; random network "
        f"{random:.0%}",
        number.above(),
        case.name,
        VOITA,
        "named for most of the important heads",
        number,
    )


def _three(case: Case) -> CaseClaim:
    own = functions_of(case)
    counts = {name: sum(name in labels for labels in own.values()) for name in SPECIALISED}
    tried = {str(name) for found in case.functions.values() for name in found.axes["measure"]}
    found = sum(count > 0 for count in counts.values())
    whole = all(name in tried for name in SPECIALISED)
    random = {name: max(drawn.counts.get(name, 0) for drawn in case.random.values()) for name in SPECIALISED}
    drawn = sum(count > 0 for count in random.values())
    return CaseClaim(
        "All three kinds of heads are there.",
        "At least one head of each of the three kinds, beyond what heads of a random network do; a kind that the texts "
        "cannot show leaves it open.",
        "; ".join(f"{name} {counts[name]} (random network {random[name]})" for name in SPECIALISED),
        (found == len(SPECIALISED)) if whole else None,
        case.name,
        VOITA,
        "all three, in every language pair",
        Number(found, drawn),
    )


def _important(case: Case) -> CaseClaim:
    names, special = reading_heads(case), specialised(case)
    measures = [str(name) for name in case.importance.axes["measure"]]
    found = {name: rules.precedence(values_of(case, name, names), special) for name in measures}
    number = found["zero"]
    rest = "; ".join(f"{name} {told(each)}" for name, each in found.items() if name != "zero")
    return CaseClaim(
        "Important heads are the specialised ones.",
        "How likely a specialised head is worth more than another: rise of the loss without it. Beyond 95% of the ways "
        "to deal out at random which heads are specialised.",
        f"zero ablation {told(number)}; {rest}" if np.isfinite(number.value) else told(number),
        number.above(),
        case.name,
        VOITA,
        "important heads tend to be positional, syntactic or to look at rare words",
        number,
    )


def _confident(case: Case) -> CaseClaim:
    names = reading_heads(case)
    other = "lrp" if "lrp" in case.importance.axes["measure"] else "gradient"
    first = layer_of(names[0])
    later = [name for name in names if layer_of(name) != first]

    def agree(chosen: list[str], measure: str) -> Number:
        return rules.agreement(values_of(case, "confidence", chosen), values_of(case, measure, chosen))

    number = agree(later, other)
    return CaseClaim(
        "Confidence tells which heads are relevant, but for the first layer.",
        f"Spearman's ρ of confidence and relevance ({'LRP' if other == 'lrp' else 'gradient'}) over the heads that "
        "read text, without the first layer: beyond 95% of random orders.",
        f"ρ {told(number)}; with the first layer {told(agree(names, other))}; with zero ablation "
        f"{told(agree(names, 'zero'))}",
        number.above(),
        case.name,
        VOITA,
        "agree to a reasonable extent, but for the first layer's most relevant head",
        number,
    )


def _kept_at(case: Case, way: str, count: int) -> Number:
    at, row = case.curve.counts.index(count), WAYS.index(way)
    low, high = float(case.curve.low[row, at]), float(case.curve.high[row, at])
    return Number(float(case.curve.kept[row, at]), LITTLE, low, high)


def _halved(case: Case) -> tuple[int | None, str]:
    """The first point with at most half of the heads, or why nothing can be said there."""
    if not better_than_guessing(case):
        return None, "the model is no better than guessing, so that it has nothing to lose"
    return point_at(case, HALF), "gates did not close half of the heads"


def _removable(case: Case) -> CaseClaim:
    total, count, why = len(all_heads(case)), *_halved(case)
    number = rules.UNKNOWN if count is None else _kept_at(case, "gates", count)
    claim = "Most heads can be removed with little loss."
    rule = (
        "What is kept, at the first point with at most half of the heads, of what the model is better than guessing: "
        f"its interval lies above {LITTLE:.0%}. Learned gates choose the heads; no weight is trained afterwards."
    )
    found = why
    if count is not None:
        drawn = _kept_at(case, "random", count)
        found = (
            f"{count} of {total} heads keep {_interval(number)}, random ones {_interval(drawn)}; chosen: "
            f"{case.pruning.chosen} of {total}"
        )
    published = "38 of 48 encoder heads removed, −0.15 BLEU"
    return CaseClaim(claim, rule, found, number.above(), case.name, VOITA, published, number)


def _interval(number: Number) -> str:
    assert number.low is not None and number.high is not None
    return f"{number.value:.0%} ({number.low:.0%} to {number.high:.0%})".replace("-", "−")


def _matter(case: Case) -> CaseClaim:
    count, why = _halved(case)
    claim = "It matters which heads are left."
    rule = (
        "What is kept with the heads that gates left, at the first point with at most half of them, beside the best "
        "of several draws of as many at random: the interval lies above it. It does not stand if it lies below their "
        "mean."
    )
    found, number, holds = why, rules.UNKNOWN, None
    if count is not None:
        gates, drawn = _kept_at(case, "gates", count), _kept_at(case, "random", count)
        assert drawn.high is not None
        number = Number(gates.value, drawn.high, gates.low, gates.high)
        mean = replace(number, chance=drawn.value)
        holds = True if number.above() else False if mean.above() is False else None
        found = f"{count} heads: gates {_interval(gates)}, random {_interval(drawn)}"
    return CaseClaim(claim, rule, found, holds, case.name, VOITA, "the rest can be pruned", number)


def _survivors(case: Case) -> CaseClaim:
    names, special, count = reading_heads(case), specialised(case), point_at(case, THIRD)
    claim = "Most heads that survive pruning have one of the functions."
    rule = (
        "At the first point with at most a third of all heads, more than half of those left that read text are "
        "specialised, and more than 97.5% of draws of as many would leave. It does not stand if fewer than a draw "
        "leaves, or if the interval of their share lies below a half."
    )
    left = set() if count is None else set(case.pruning.survivors(count)) & set(names)
    found = int(sum(name in left for name, own in zip(names, special, strict=True) if own))
    number = rules.survivors(len(names), int(special.sum()), len(left), found)
    shares = rules.share(found, len(left), 0.5) if left else rules.UNKNOWN
    most = bool(left) and found > len(left) / 2
    holds = number.above()
    if holds is True and not most:
        holds = None
    if holds is None and shares.above() is False:
        holds = False
    shown = "gates did not close two thirds of the heads" if count is None else (
        f"{found} of the {len(left)} that read text are specialised, of {len(names)} in all {int(special.sum())}; "
        f"{told(number)}"
    )  # fmt: skip
    return CaseClaim(claim, rule, shown, holds, case.name, VOITA, "most survivors have a known function", number)


def _last(case: Case) -> CaseClaim:
    names = reading_heads(case)
    number = rules.precedence(lasting(case, names), specialised(case))
    return CaseClaim(
        "The last heads to go are specialised ones.",
        "How likely a specialised head is open at more points of the curve than another: beyond 95% of the ways to "
        "deal out at random which heads are specialised.",
        told(number),
        number.above(),
        case.name,
        VOITA,
        "the last heads to be pruned are specialised ones",
        number,
    )


def _stacks(case: Case) -> CaseClaim | None:
    names = all_heads(case)
    stacks = np.array([stack_of(name) for name in names])
    if "cross" not in stacks:
        return None
    open_ = lasting(case, names)
    number = rules.difference(open_, stacks == "cross", stacks == "encoder")
    means = ", ".join(f"{stack} {open_[stacks == stack].mean():.2f}" for stack in ("encoder", "decoder", "cross"))
    return CaseClaim(
        "Heads of the encoder go first, those that look from decoder to encoder last.",
        "Share of the curve's points at which a head is open, mean over cross attention less that over the encoder: "
        "beyond 95% of the ways to deal out the two stacks.",
        f"{means}; cross less encoder {told(number)}",
        number.above(),
        case.name,
        VOITA,
        "encoder heads are pruned first, decoder–encoder heads matter most",
        number,
    )
