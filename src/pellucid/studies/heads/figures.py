"""Figures of the study of heads, from its numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.studies import names
from pellucid.studies.heads.claims_layers import all_links, link_shares
from pellucid.studies.heads.running import KEEP
from pellucid.studies.heads.tables import SPECIALISED, WAYS, Case, Links, Profile
from pellucid.studies.heads.verdicts import (
    all_heads,
    functions_of,
    lasting,
)
from pellucid.uncertainty import jackknife
from pellucid.views import heads_compared as views
from pellucid.views.heads_compared import Band

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]
NAMED = {"gates": "learned gates", "importance": "least important first", "random": "random order (mean)"}


def title_of(case: Case) -> str:
    """A case in a few words: its task and its model."""
    return f"{case.facts['task']}: {short_name(case)}"


def short_name(case: Case) -> str:
    """The name of the model, without the folders that it lies in."""
    return names.short_name(str(case.facts["model"]["name"]))


def kept(cases: Sequence[Case]) -> Figure:
    """What is kept with ever fewer heads."""
    panels = {
        title_of(case): (
            case.curve.counts,
            {
                NAMED[way]: Band(case.curve.kept[at], case.curve.low[at], case.curve.high[at])
                for at, way in enumerate(WAYS)
            },
            case.pruning.chosen,
        )
        for case in cases
    }
    return views.kept_curves(
        panels, level=KEEP, title="What is kept with fewer heads, on text that nothing was chosen by"
    )


def lasting_heads(cases: Sequence[Case]) -> Figure:
    """When each head goes, beside its function."""
    panels: dict[str, dict[str, tuple[float, str]]] = {}
    for case in cases:
        own, names = functions_of(case), all_heads(case)
        panels[title_of(case)] = {
            name: (float(share), next((each for each in SPECIALISED if each in own.get(name, ())), ""))
            for name, share in zip(names, lasting(case, names), strict=True)
        }
    return views.lasting_maps(panels, title="Which heads stay open, and which have a function")


def pronoun_maps(cases: Sequence[Case]) -> Figure:
    """Antecedent less rival, of every head."""
    panels: dict[str, tuple[Sequence[str], Sequence[str], Array]] = {}
    for case in cases:
        links = all_links(case)
        shares = link_shares(links)
        panels[title_of(case)] = (links.layers, [str(head) for head in range(shares.shape[2])], shares[0] - shares[1])
    return views.signed_maps(
        panels,
        title="Pronouns whose largest weight is on the antecedent, less those on the rival",
        label="difference of shares",
        across="head",
        note="orange: more often on whom the pronoun means; blue: more often on the other person",
    )


def pronoun_lines(cases: Sequence[Case]) -> Figure:
    """Antecedent and rival by layer."""
    panels: dict[str, tuple[Sequence[str], dict[str, Band], dict[str, Array]]] = {}
    for case in cases:
        links = all_links(case)
        even = links.expected.sum(0)[0] / links.pronouns.sum()
        lines = {name: _link_band(links, at) for at, name in enumerate(("antecedent", "rival"))}
        panels[title_of(case)] = (links.layers, lines, {"random word in sight": np.full(len(links.layers), even)})
    title = "Where the largest weight of pronouns stands, mean over the heads of a layer"
    return views.depth_lines(panels, title=title, label="share of pronouns")


def _link_band(links: Links, at: int) -> Band:
    def read(hits: Array, pronouns: Array) -> Array:
        return hits[:, at].sum(0).mean(axis=1) / pronouns.sum()

    whole = read(links.hits, links.pronouns)
    groups = np.flatnonzero(links.pronouns > 0)
    if len(groups) < 2:
        return Band(whole)
    without = [read(np.delete(links.hits, g, axis=0), np.delete(links.pronouns, g)) for g in groups]
    found = jackknife(whole, without, links.pronouns[groups].tolist())
    return Band(whole, found.low, found.high)


def profile_lines(cases: Sequence[Case], name: str, *, title: str, label: str) -> Figure:
    """A measure by layer beside uniform attention and a random network."""
    panels = {
        title_of(case): (
            (profile := case.profiles[name]).layers,
            {"measured": profile_band(profile)},
            {"random network": profile.random[0], "uniform attention": profile.chance[0]},
        )
        for case in cases
        if name in case.profiles
    }
    return views.depth_lines(panels, title=title, label=label)


def profile_band(profile: Profile) -> Band:
    """The one row of a profile with its interval over documents."""
    if len(profile.without) < 2:
        return Band(profile.values[0])
    found = jackknife(profile.values[0], [each[0] for each in profile.without], profile.sizes.tolist())
    return Band(profile.values[0], found.low, found.high)


def tag_maps(cases: Sequence[Case]) -> Figure:
    """Attention on every tag above uniform attention, by layer."""
    panels = {
        title_of(case): (profile.rows, profile.layers, profile.values - profile.chance)
        for case in cases
        if (profile := case.profiles.get("tags")) is not None
    }
    return views.signed_maps(
        panels,
        title="Attention on parts of speech, by layer",
        label="share above uniform attention",
        across="layer",
        note="mean over the heads of a layer; orange: more than uniform attention gives, blue: less",
    )
