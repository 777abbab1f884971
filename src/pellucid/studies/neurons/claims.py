"""Claims of the tutorial on neurons about one model: probes, small sets, layers, classes; judged by stated rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from pellucid.studies import rules
from pellucid.studies.claims import CaseClaim, told
from pellucid.studies.neurons.claims_across import across_claims
from pellucid.studies.neurons.claims_methods import method_claims
from pellucid.studies.neurons.measuring import FIRST, SMALL, first_of
from pellucid.studies.neurons.tables import BARS, CONCEPTS, Case
from pellucid.studies.neurons.verdicts import (
    CLOSED,
    apart,
    beyond_draws,
    count_near,
    draws_in,
    relative,
    slide,
    told_draws,
    total_of,
)
from pellucid.studies.rules import UNKNOWN, Number

REDUNDANT, NEAR = 0.15, 0.99
"""The share of neurons that is said to suffice for transfer, and that of the accuracy of all that is the same."""


def claims(cases: Sequence[Case]) -> list[CaseClaim]:
    """Every claim on every model, claim by claim, and those that compare models."""
    makers: list[Callable[[Case], CaseClaim | None]] = [
        *(lambda case, name=name: _controls(case, name) for name in CONCEPTS),
        _small,
        _better_than_random,
        _redundant,
        _complex_takes_more,
        _lower,
        _complex_higher,
        _hidden,
        _closed_classes,
        _exclusive,
        _experts,
    ]
    found = [claim for make in makers for case in cases if (claim := make(case)) is not None]
    return [*found, *method_claims(cases), *across_claims(cases)]


def _controls(case: Case, concept: str) -> CaseClaim:
    grid = case.grids[f"probe {concept}"]
    every = str(grid.columns[0])
    accuracy, margins = grid.at("accuracy", every), _margins(case, concept)

    def shown(name: str) -> str:
        number, called = margins[name], "most frequent class" if name == "majority" else name
        return f"{called} {accuracy.value - number.value:.0%}, difference {told(number, per_cent=True)}"

    worst, *rest = sorted(margins, key=lambda name: margins[name].value)
    verdicts = {each.above() for each in margins.values()}
    return CaseClaim(
        f"A probe tells the {CONCEPTS[concept]} of words better than all of its controls.",
        "Accuracy of a probe on all neurons of the stream that were read, in documents that it did not learn from, "
        "less that of most frequent class, random model and control task in the same documents: the interval of each "
        "difference lies above 0; it does not stand if one lies below.",
        f"{accuracy.value:.0%}, {'; '.join(map(shown, (worst, *rest)))}",
        True if verdicts == {True} else False if False in verdicts else None,
        case.name,
        slide("Overall Performance"),
        "the probe should be substantially higher than majority class, random representations and control tasks",
        margins[worst],
    )


def _margins(case: Case, concept: str) -> dict[str, Number]:
    """The accuracy of a probe less each of its controls; older numbers have no intervals of these differences."""
    grid, found = case.grids[f"probe {concept}"], case.grids.get(f"margins {concept}")
    if found is not None:
        return {str(name): found.at("value", name) for name in found.columns}
    every = str(grid.columns[0])
    accuracy = grid.at("accuracy", every)
    beside = {
        "majority": accuracy.chance,
        **{name: grid.at(name, every).value for name in ("random model", "control task")},
    }
    return {name: Number(accuracy.value - value, 0.0) for name, value in beside.items()}


def _set(case: Case, concept: str, share: float) -> tuple[int, int, Number]:
    """A share of the neurons: how many, of how many, and what they keep of the accuracy of all."""
    grid, total = case.grids[f"anew {concept}"], case.neurons
    count = count_near(grid, share, total)
    return count, total, relative(grid, "top", count, case.numbers[f"whole {concept}"], NEAR)


def _few(case: Case, share: float, claim: str, title: str, published: str) -> CaseClaim:
    count, total, number = _set(case, "pos", share)
    return CaseClaim(
        claim,
        f"A probe of the part of speech trained on the first {share:.0%} of the neurons alone, ranked on other "
        f"documents, over the accuracy of one trained on all: the interval (of the few) lies above {NEAR:.0%}.",
        f"{count} of {total} neurons keep {told(number, per_cent=True, against='limit')}; accuracy of all "
        f"{case.numbers['whole pos'].value:.1%}",
        number.above(),
        case.name,
        slide(title),
        published,
        number,
    )


def _small(case: Case) -> CaseClaim:
    return _few(
        case,
        SMALL,
        "A twenty-fifth of the neurons is enough for parts of speech.",
        "Minimum set of neurons",
        "BERT: 4% (399 of 9,984) match the accuracy of all",
    )


def _redundant(case: Case) -> CaseClaim:
    return _few(
        case,
        REDUNDANT,
        "85% of the neurons are redundant as features.",
        "Redundancy Analysis",
        "85% (BERT) and 92% (XLNet) are redundant; Dalvi et al. 2020",
    )


def _better_than_random(case: Case) -> CaseClaim:
    grid = case.grids["anew pos"]
    count = count_near(grid, SMALL, case.neurons)
    found = grid.at("top", count)
    last = grid.at("bottom", count)
    draws = draws_in(case, "draws pos")
    return CaseClaim(
        "The selected neurons tell more than as many at random.",
        f"Accuracy of a probe trained on the first {SMALL:.0%} of the neurons alone: its interval lies above the mean "
        "of as many neurons drawn at random, and the accuracy above that of every draw; it does not stand if both lie "
        "below.",
        f"{count} neurons: {told(found, per_cent=True, against='random')}, {told_draws(draws)}; last {last.value:.0%}",
        beyond_draws(found, found.value, draws),
        case.name,
        slide("Classification Performance"),
        "the difference reflects whether the selected neurons represent the concept",
        found,
    )


def _complex_takes_more(case: Case) -> CaseClaim:
    (count, _, pos), (_, _, relation) = _set(case, "pos", SMALL), _set(case, "relation", SMALL)
    number = apart(pos, relation)
    return CaseClaim(
        "A more complex task takes more neurons.",
        f"What the first {SMALL:.0%} of the neurons keep for the part of speech less what as many keep for the "
        "syntactic relation: the interval (both intervals, as if independent) lies above 0.",
        f"{count} neurons keep {pos.value:.1%} for the part of speech and {relation.value:.1%} for the relation; "
        f"difference {told(number, per_cent=True)}",
        number.above(),
        case.name,
        slide("Minimum set of neurons"),
        "BERT: part of speech 4%, chunking 10%, CCG 15%",
        number,
    )


def _depths(case: Case, concept: str) -> np.ndarray:
    """The depth (0 to 1) of each of the first neurons of a concept."""
    grid = case.grids[f"where {concept}"]
    counts = total_of(grid, first_of(case.neurons))
    depth = np.linspace(0, 1, len(counts)) if len(counts) > 1 else np.zeros(1)
    return np.repeat(depth, list(counts.values()))


def _lower(case: Case) -> CaseClaim:
    number = case.numbers["depth pos"]
    best = case.grids["layers pos"]
    row = best.row("accuracy")
    return CaseClaim(
        "Neurons for parts of speech stand in lower layers.",
        f"Mean depth (0 the embeddings, 1 the last site) of the first {FIRST:.0%} of the neurons less that of the "
        "others: below 97.5% of what it is if the sites of some units of the stream, drawn at random, are turned "
        "round; it does not stand if it is above 97.5%.",
        f"{told(number)}; a probe on one site is best at {best.columns[int(row.argmax())]} ({row.max():.1%}; first "
        f"{row[0]:.1%}, last {row[-1]:.1%})",
        number.below(),
        case.name,
        slide("Distribution of neurons across layers"),
        "basic linguistic information is found at the lower layers",
        number,
    )


def _complex_higher(case: Case) -> CaseClaim:
    relation, pos, plural = (_depths(case, concept).mean() for concept in ("relation", "pos", "number"))
    number = case.numbers.get("depth relation less pos", UNKNOWN)
    return CaseClaim(
        "Neurons for syntax stand in higher layers than those for parts of speech.",
        f"Mean depth of the first {FIRST:.0%} of the neurons for the syntactic relation less that for the part of "
        "speech: beyond 95% of what it is if units of the stream, drawn at random and each with all its sites, change "
        "from the one to the other.",
        f"relation {relation:.2f}, part of speech {pos:.2f}, number {plural:.2f}; difference {told(number)}",
        number.above(),
        case.name,
        slide("Distribution of neurons across layers"),
        "complex syntactic phenomena are found at the higher layers",
        number,
    )


def _hidden(case: Case) -> CaseClaim:
    number, grid = case.numbers["hidden units"], case.grids["sub-layers"]
    assert grid.null is not None
    where = [str(site).startswith("neurons.") for site in grid.columns]
    own, even = (float(part[0][where].sum()) for part in (grid.values, grid.null))
    low, high = number.band or (math.nan, math.nan)
    return CaseClaim(
        "Inside a block, the deeper sub-layer has more of the neurons.",
        f"Of the first {FIRST:.0%} of what attention adds and of the MLP's hidden units (by d′ for parts of speech), "
        "more are hidden units than in 97.5% of the ways to deal out which units are hidden ones, each with all its "
        "blocks; it does not stand if fewer are than in 97.5%.",
        f"{own:.0%} are hidden units ({number.value:.0f}, chance {number.chance:.0f}, {low:.0f} to {high:.0f}), of all "
        f"neurons {even:.0%}",
        number.above(),
        case.name,
        slide("Distribution of neurons within layer block"),
        "deeper layers of a block (B) encode more sense concepts than earlier ones (A)",
        number,
    )


def _closed_classes(case: Case) -> CaseClaim:
    grid = case.grids["spread"]
    sizes, closed = grid.row("effective"), np.array([str(name) in CLOSED for name in grid.columns])
    number = rules.difference(np.log2(np.maximum(sizes, 1)), ~closed, closed)
    order = [str(grid.columns[at]) for at in np.argsort(sizes, kind="stable")]
    return CaseClaim(
        "Some classes are localised: function words take fewer neurons than open classes.",
        "Effective number of neurons that each class takes (exp of the entropy of its weights), mean of log2 over open "
        "classes less that over closed ones: beyond 95% of the ways to deal out which classes are open.",
        f"doublings {told(number)}; fewest {order[0]} ({sizes.min():.0f}), most {order[-1]} ({sizes.max():.0f})",
        number.above(),
        case.name,
        slide("Localized vs. Distributed Concepts"),
        "some concepts are localised to fewer neurons, others distributed",
        number,
    )


def _exclusive(case: Case) -> CaseClaim:
    grid, total = case.grids["polysemy"], case.neurons
    counts = np.round(grid.values[0] * total).astype(int)
    serving, single = int(counts[1:].sum()), int(counts[1])
    number = case.numbers.get("several classes", UNKNOWN)
    return CaseClaim(
        "More neurons serve several classes than a random deal gives; the others are exclusive to one.",
        "Of the neurons that are among the first 2% of any class, the share of those of several classes: above 97.5% "
        "of what it is if every class has other units of the stream at random, each with all its sites; it does not "
        "stand if it lies below 97.5%, where neurons are exclusive more often than by chance.",
        f"of {serving} neurons {told(number, per_cent=True, against='random deal')} serve several classes, "
        f"{single / serving:.0%} one alone",
        number.above(),
        case.name,
        slide("Redundancy Analysis"),
        "some neurons are exclusive to a single label and some are polysemous (LSTM for names)",
        number,
    )


def _experts(case: Case) -> CaseClaim:
    grid = case.grids["experts"]
    number = grid.at("model", BARS[0])
    rest = "; ".join(f"from {bar:.1f} {grid.at('model', bar).value:.1%}" for bar in BARS[1:])
    return CaseClaim(
        "Some single neurons are experts of a class.",
        f"Share of neurons whose average precision for any part of speech is {BARS[0]} or more: its interval (from the "
        "share with all precisions at the lower ends of their own, over document groups, to that at the upper ends) "
        "lies above the share in a network with random weights.",
        f"{told(number, per_cent=True, against='random network')}; {rest}",
        number.above(),
        case.name,
        slide("Comparing Architectures"),
        "χ_γ: BERT-L 7.19%, DistilBERT 4.02%, GPT2-L 12.92%, RoBERTa-L 15.36% (word senses, γ of their own)",
        number,
    )
