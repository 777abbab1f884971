"""Concepts: the hidden units that tell parts of speech apart, beside those of the control model."""

from __future__ import annotations

import warnings
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.scores import FEW
from pellucid.report.html import share
from pellucid.report.neurons import show_ranking
from pellucid.report.section import Section, Subject
from pellucid.report.sections.neurons import patterns

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.report.sheet import Sheet

LABEL = "upos"
LOOKED_AT, MOST = 200, 60_000
"""Sentences in which the label is looked for, and units whose statistics by class are kept in memory."""
STRONG = 1.0
"""Standard deviations between a class and the rest from which on a unit is said to tell it."""


def absent(subject: Subject) -> str | None:
    """Why there is nothing to say about concepts."""
    sites = patterns(subject)
    if sites is None:
        return "this model shows no hidden units of its MLPs."
    if not any(LABEL in sentence.labels for sentence in islice(subject.corpus, LOOKED_AT)):
        return f"the text has no parts of speech (the label {LABEL!r}); give a treebank (.conllu)."
    count = units(subject)
    if count > MOST:
        return f"{count:,} hidden units are many for a report; rank some with pellucid neurons rank --sites."
    return None


def units(subject: Subject) -> int:
    """How many hidden units the stack that reads the text has."""
    sites = patterns(subject) or ""
    stack = None if sites.startswith("neurons") else "encoder"
    chosen = [site for site in subject.model.sites if site.kind == "neurons" and site.stack == stack]
    return sum(int(np.prod(subject.model.size(site))) for site in chosen)


def collectors(subject: Subject) -> tuple[Collector, ...]:
    """Means and variances of every unit by part of speech."""
    from pellucid.collect.classes import ClassMoments

    sites = patterns(subject)
    assert sites is not None
    return (ClassMoments(sites, label=LABEL, covariance="diagonal", groups=True),)


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """The ranking, and how many units tell a class apart."""
    from pellucid.neurons import rank

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NeuronWarning)
        made = rank(found, concept=LABEL, methods="selectivity", sites=patterns(subject), least=FEW, seed=subject.seed)
    result = made["selectivity"]
    show_ranking(sheet, result, name="concepts")
    for text in dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, NeuronWarning)):
        sheet.note(f"Careful: {text}")
    own = float((result.scores() >= STRONG).mean())
    control = result.tables.get("random model")
    assert "null" in result.overall.columns
    by_chance = float((result.overall.columns["null"] >= STRONG).mean())
    told = f"chance: {share(by_chance)}"
    if control is not None:
        other = float((np.abs(control.columns["value"]).max(0) >= STRONG).mean())
        told += f", control: {share(other)}"
        sheet.text(
            f"{share(own)} of the units lie a standard deviation or more from the rest for some part of speech, and "
            f"{share(other)} in the control model, which tells words apart without having learned anything about them."
        )
    sheet.highlight("Units that tell a part of speech", share(own), chance=told)


SECTION = Section(
    title="Neurons and parts of speech",
    order=61,
    explanation="Which hidden units tell parts of speech apart, and how many do so without any training.",
    render=render,
    collectors=collectors,
    absent=absent,
)
