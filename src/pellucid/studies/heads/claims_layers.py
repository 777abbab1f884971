"""Claims about layers and pronouns of "A multiscale visualization of attention", judged on a case by stated rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from pellucid.studies import rules
from pellucid.studies.claims import CaseClaim, told
from pellucid.studies.heads.tables import LINKS, Case, Links, Profile
from pellucid.studies.heads.verdicts import VIG, Array
from pellucid.studies.rules import Number

TIMES, POINTS, MANY = 3.0, 0.1, 0.1
"""A head has a tag of its own from 3 times uniform attention and 10 points above it; many heads are a tenth."""
NEAR = 1 / 6
"""Depths that differ by less are the same place of two networks."""


def layer_claims(cases: Sequence[Case]) -> list[CaseClaim]:
    """Every claim on every case, claim by claim."""
    makers = (_pronouns, _pronouns_middle, _tags, _tag_depths, _distance, _syntax, _nearest)
    return [make(case) for make in makers for case in cases]


def across_claims(cases: Sequence[Case]) -> list[CaseClaim]:
    """Claims that compare two models: a language model and an encoder."""
    held = {case.name: case for case in cases}
    if "lm" not in held or "classify" not in held:
        return []
    depths = [_over_groups(all_links(held[name]), rules.centre) for name in ("lm", "classify")]
    apart = abs(depths[0].value - depths[1].value)
    reach = 0.0
    for each in depths:
        reach += math.nan if each.low is None or each.high is None else ((each.high - each.low) / 2) ** 2
    known = math.isfinite(reach)
    low, high = (apart - math.sqrt(reach), apart + math.sqrt(reach)) if known else (None, None)
    number = Number(apart, NEAR, low, high)
    linked = all(held_out_head(all_links(held[name]))[0].above() is True for name in ("lm", "classify"))
    shown = "; ".join(
        f"{held[name].facts['model']['name']} {told(each)}"
        for name, each in zip(("lm", "classify"), depths, strict=True)
    )
    return [
        CaseClaim(
            "Language model and encoder link pronouns in the same layers.",
            "Difference of the mean depth (0 first layer, 1 last) of the links, weighted by how much more often the "
            f"antecedent is found than the rival: its interval lies below {NEAR:.2f}. Nothing is said unless "
            "both have a head that makes the link.",
            f"depths {shown}; apart {apart:.2f}",
            number.below() if linked else None,
            "lm and classify",
            VIG,
            "layer 5 of both BERT and GPT-2",
            number,
        )
    ]


def all_links(case: Case) -> Links:
    """Pronouns of all forms together; groups of documents are put together by their number."""
    parts = list(case.pronouns.values())
    groups = max(len(part.pronouns) for part in parts)

    def wide(array: Array) -> Array:
        return np.concatenate([array, np.zeros((groups - len(array), *array.shape[1:]))])

    hits, expected, pronouns = (
        np.sum([wide(getattr(part, name)) for part in parts], axis=0) for name in ("hits", "expected", "pronouns")
    )
    return Links(parts[0].layers, hits, expected, pronouns)


def link_shares(links: Links) -> Array:
    """How often the largest weight is on the antecedent and on the rival, [links, layers, heads]."""
    return links.hits.sum(0) / links.pronouns.sum()


def held_out_head(links: Links) -> tuple[Number, Number, Number, str]:
    """The head that finds antecedents rather than rivals, chosen without each group of sentences and counted on it.

    Gives antecedent less rival, the antecedent and the rival alone, and the head that most groups chose, LAYER.HEAD.
    """
    groups = np.flatnonzero(links.pronouns > 0)
    chosen: list[tuple[int, int]] = []
    found = np.zeros((len(LINKS), len(groups)))
    for at, group in enumerate(groups):
        others = links.hits.sum(0) - links.hits[group]
        better = others[0] - others[1]
        place = np.unravel_index(int(better.argmax()), better.shape)
        chosen.append((int(place[0]), int(place[1])))
        found[:, at] = links.hits[group][:, place[0], place[1]]
    sizes = links.pronouns[groups]
    layer, head = max(set(chosen), key=chosen.count)
    even = links.expected.sum(0) / links.pronouns.sum()
    apart = _mean_of_groups(found[0] - found[1], sizes, 0.0)
    one, other = (_mean_of_groups(found[at], sizes, float(even[at])) for at in range(len(LINKS)))
    return apart, one, other, f"{links.layers[layer]}.{head}"


def _mean_of_groups(hits: Array, sizes: Array, chance: float) -> Number:
    """Hits over cases, with a jackknife interval over the groups."""
    whole = float(hits.sum() / sizes.sum())
    several = len(sizes) > 1
    without = (hits.sum() - hits) / (sizes.sum() - sizes) if several else []
    return rules.resampled(whole, without, sizes if several else [], chance)


def _pronouns(case: Case) -> CaseClaim:
    number, one, other, head = held_out_head(all_links(case))
    return CaseClaim(
        "A head links pronouns to whom they mean.",
        "Share of pronouns whose largest weight is on the antecedent less the share on the rival, for the head that is "
        "best on the other sentences (10 parts): the interval lies above 0.",
        f"head {head}: antecedent {told(one, per_cent=True)}; rival {told(other, per_cent=True)}; difference "
        f"{told(number, per_cent=True)}",
        number.above(),
        case.name,
        VIG,
        "seen in single sentences",
        number,
    )


def pronoun_layers(links: Links) -> Array:
    """Antecedent less rival, mean over the heads of each layer [layers]."""
    shares = link_shares(links).mean(axis=2)
    return shares[0] - shares[1]


def _over_groups(links: Links, read: Callable[[Array], float]) -> Number:
    """A number read off `pronoun_layers`, with its interval over groups; chance is that of layers all alike."""
    groups = np.flatnonzero(links.pronouns > 0)
    without = [
        read(pronoun_layers(Links(links.layers, *(np.delete(each, group, axis=0) for each in parts))))
        for group in groups
        if (parts := (links.hits, links.expected, links.pronouns)) and len(groups) > 1
    ]
    flat = read(np.ones(len(links.layers)))
    return rules.resampled(read(pronoun_layers(links)), without, links.pronouns[groups] if without else [], flat)


_MIDDLE = (
    "its middle third of the layers less the first and less the last third: both intervals lie {0} 0{1}, and the layer "
    "with the {2} lies in the middle. It does not stand where the middle lies on the other side of one of them."
)


def _pronouns_middle(case: Case) -> CaseClaim:
    links = all_links(case)
    beside = [_over_groups(links, partial(rules.middle_less, outer=outer)) for outer in rules.OUTER]
    linked = held_out_head(links)[0].above() is True
    by_layer = pronoun_layers(links)
    return CaseClaim(
        "The link is made in the middle layers.",
        f"Antecedent less rival, mean over the heads of a layer; {_MIDDLE.format('above', '', 'largest')} Nothing is "
        "said where no head makes the link.",
        f"{_told_beside(beside, per_cent=True)}; largest in layer {links.layers[int(by_layer.argmax())]} of "
        f"{len(by_layer)}",
        rules.in_the_middle(beside, by_layer) if linked else None,
        case.name,
        VIG,
        "layer 5 of 12",
        min(beside, key=lambda each: each.value),
    )


def _told_beside(beside: Sequence[Number], *, per_cent: bool = False) -> str:
    return "; ".join(
        f"less the {outer} third {told(each, per_cent=per_cent)}"
        for outer, each in zip(rules.OUTER, beside, strict=True)
    )


def tag_special(case: Case, of: str = "shares") -> dict[str, str]:
    """Heads with a tag of their own, by their place in the order of layers, and the tag; `of` is shares or random."""
    held = case.facts["tags"]
    shares, even = np.array(held[of]), np.array(held["uniform"])[:, None]
    own = (shares >= TIMES * even) & (shares >= even + POINTS)
    found = np.where(own, shares - even, -np.inf).argmax(axis=0) if len(shares) else np.empty(0, int)
    return {str(head): held["tags"][found[head]] for head in range(own.shape[1]) if own[:, head].any()}


def _tags(case: Case) -> CaseClaim:
    special = tag_special(case)
    total = int(np.array(case.facts["tags"]["shares"]).shape[1])
    number = rules.share(len(special), total, MANY)
    kinds = sorted(set(special.values()))
    return CaseClaim(
        "Many heads specialise in a part of speech.",
        f"Share of heads with a tag that gets {TIMES:g} times what uniform attention gives it and 10 points more "
        f"(Wilson's interval): above {MANY:.0%}.",
        f"{len(special)} of {total} heads: {told(number, per_cent=True, against='limit')}; random network "
        f"{len(tag_special(case, 'random'))} of {total}; tags: {', '.join(kinds) or 'none'}",
        number.above(),
        case.name,
        VIG,
        "many heads",
        number,
    )


def tag_depths(profile: Profile, values: Array) -> Array:
    """The depth at which each tag gets most above uniform attention [tags]: 0 the first layer, 1 the last."""
    return np.array([rules.centre(row) for row in values - profile.chance])


def _tag_depths(case: Case) -> CaseClaim:
    claim = "Different parts of speech are targeted at different depths."
    rule = (
        "The mean depth of the attention on each tag above uniform attention, worked out from two halves of the text: "
        "Spearman's ρ of both, beyond 95% of random orders."
    )
    profile = case.profiles.get("tags")
    number, shown = rules.UNKNOWN, "the text has no tags"
    if profile is not None and len(profile.without) > 3:
        halves = _halves(profile)
        number = rules.agreement(*(tag_depths(profile, half) for half in halves))
        depths = tag_depths(profile, profile.values)
        order = np.argsort(depths)
        ends = [f"{profile.rows[at]} {depths[at]:.2f}" for at in (order[0], order[-1])]
        shown = f"ρ {told(number)}; depths from {ends[0]} to {ends[1]}"
    return CaseClaim(claim, rule, shown, number.above(), case.name, VIG, "different tags at different depths", number)


def _halves(profile: Profile) -> tuple[Array, Array]:
    """Values of the even and of the odd document groups alone, from those without each group."""
    weights = profile.sizes / profile.sizes.sum()
    shape = (-1, *[1] * profile.values.ndim)
    own = (profile.values - (1 - weights.reshape(shape)) * profile.without) / weights.reshape(shape)

    def mean(part: slice) -> Array:
        return np.average(own[part], axis=0, weights=weights[part])

    return mean(slice(0, None, 2)), mean(slice(1, None, 2))


def of_profile(profile: Profile | None, read: Callable[[Array], float], *, wanted: int = 1) -> Number:
    """A number read off a profile with one row, with its interval over groups of documents.

    Beside it stands the random network's, or 0 where that lies on the other side than is `wanted` (1 above, −1 below).
    """
    if profile is None:
        return rules.UNKNOWN
    without = [read(each[0]) for each in profile.without]
    chance = wanted * max(0.0, wanted * read(profile.random[0]))
    return rules.resampled(read(profile.values[0]), without, profile.sizes, chance)


_SAME = " and above the same in a random network"
_BEYOND = f"its interval lies above 0{_SAME}."


def _distance(case: Case) -> CaseClaim:
    number = of_profile(case.profiles["distance"], rules.rise)
    row = case.profiles["distance"].values[0]
    return CaseClaim(
        "Deeper layers look farther.",
        "How much the mean distance of attention, in words, rises from the first layer to the last, along the line "
        f"that fits best: {_BEYOND}",
        f"{told(number)}; {row[0]:.1f} words in the first layer, {row[-1]:.1f} in the last",
        number.above(),
        case.name,
        VIG,
        "deeper layers capture more distant relationships",
        number,
    )


def _syntax(case: Case) -> CaseClaim:
    profile = case.profiles.get("neighbours")
    beside = _beside(profile)
    shown, holds = "the text has no dependency arcs", None
    if profile is not None:
        row = profile.values[0]
        shown = (
            f"{_told_beside(beside, per_cent=True)}; largest in layer {profile.layers[int(row.argmax())]} of {len(row)}"
        )
        holds = rules.in_the_middle(beside, row)
    return CaseClaim(
        "Attention follows dependencies most in the middle layers.",
        "Attention on syntactic neighbours (all relations, both ways), mean over the heads of a layer; "
        f"{_MIDDLE.format('above', _SAME, 'largest')}",
        shown,
        holds,
        case.name,
        VIG,
        "strongest in the middle layers",
        min(beside, key=lambda each: each.value),
    )


def _nearest(case: Case) -> CaseClaim:
    profile = case.profiles["distance"]
    beside, row = _beside(profile, wanted=-1), profile.values[0]
    return CaseClaim(
        "Attention looks least far in the middle layers.",
        f"Mean distance of attention in words; {_MIDDLE.format('below', _SAME.replace('above', 'below'), 'smallest')}",
        f"{_told_beside(beside)}; smallest in layer {profile.layers[int(row.argmin())]} of {len(row)}",
        rules.in_the_middle(beside, row, wanted=-1),
        case.name,
        VIG,
        "distance is smallest there",
        max(beside, key=lambda each: each.value),
    )


def _beside(profile: Profile | None, *, wanted: int = 1) -> list[Number]:
    """The middle third of the layers less each outer third."""
    return [of_profile(profile, partial(rules.middle_less, outer=outer), wanted=wanted) for outer in rules.OUTER]
