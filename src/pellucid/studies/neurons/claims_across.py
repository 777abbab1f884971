"""Claims of the tutorial on neurons that compare models, judged by stated rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from pellucid.heads.weighing.agreement import ranks
from pellucid.studies import rules
from pellucid.studies.claims import CaseClaim, told
from pellucid.studies.neurons.tables import BARS, Array, Case
from pellucid.studies.neurons.verdicts import apart, paired, slide
from pellucid.studies.rules import Number

ALL = "all models"


def across_claims(cases: Sequence[Case]) -> list[CaseClaim]:
    """Claims about all models together; none of a single one."""
    pairs = [(one, other) for one in cases for other in cases if one.causal and not other.causal]
    found = [_consistent(cases)] if len(cases) > 1 else []
    return [*found, _more_experts(pairs), _fewer_neurons(pairs)] if pairs else found


def _consistent(cases: Sequence[Case]) -> CaseClaim:
    common = [name for name in cases[0].grids["spread"].columns
              if all(name in case.grids["spread"].columns for case in cases)]  # fmt: skip
    sizes = [_centred(case, common) for case in cases]
    number = _agreement(sizes)
    return CaseClaim(
        "The same classes are localised in all models.",
        "Spearman's ρ of the effective numbers of neurons that classes take, mean over all pairs of models: beyond 95% "
        "of random orders of the classes in each.",
        f"{told(number)}; {len(common)} classes, {len(cases)} models",
        number.above(),
        ALL,
        slide("Localized vs. Distributed Concepts"),
        "consistent across various architectures",
        number,
    )


def _centred(case: Case, common: Sequence[str]) -> Array:
    """Ranks of the effective numbers of some classes, of mean 0 and length 1."""
    grid = case.grids["spread"]
    row = grid.row("effective")[[grid.columns.index(name) for name in common]]
    away = ranks(row) - (len(row) + 1) / 2
    return away / max(1e-12, float(np.sqrt((away**2).sum())))


def _agreement(sizes: Sequence[Array], *, seed: int = 0) -> Number:
    """The mean ρ over pairs, beside where it lies if every model's classes are dealt out at random."""
    if len(sizes[0]) < 2 * rules.FEWEST:
        return rules.UNKNOWN
    dice = np.random.default_rng(seed)

    def mean(parts: Sequence[Array]) -> float:
        return float(np.mean([one @ other for one, other in combinations(parts, 2)]))

    drawn = [mean([dice.permutation(each) for each in sizes]) for _ in range(rules.DRAWS)]
    low, high = np.quantile(drawn, [(1 - rules.LEVEL) / 2, (1 + rules.LEVEL) / 2])
    return Number(mean(sizes), 0.0, band=(float(low), float(high)))


def _together(verdicts: Sequence[bool | None]) -> bool | None:
    """What all pairs say; None where they do not say the same."""
    return verdicts[0] if len(set(verdicts)) == 1 else None


def _more_experts(pairs: Sequence[tuple[Case, Case]]) -> CaseClaim:
    numbers = {
        f"{one.model} less {other.model}": apart(*(case.grids["experts"].at("model", BARS[0]) for case in (one, other)))
        for one, other in pairs
    }
    return CaseClaim(
        "Models that read from left to right have more experts than those that read both ways.",
        f"Share of neurons whose average precision for any part of speech is {BARS[0]} or more, less that of the other "
        "(their intervals over document groups, as if independent): above 0 for every pair; below 0 for every pair: it "
        "does not stand.",
        "; ".join(f"{name} {told(number, per_cent=True)}" for name, number in numbers.items()),
        _together([number.above() for number in numbers.values()]),
        ALL,
        slide("Comparing Architectures"),
        "GPT2-L 12.92% and RoBERTa-L 15.36%; BERT-L 7.19% and DistilBERT 4.02%",
        next(iter(numbers.values())),
    )


def _fewer_neurons(pairs: Sequence[tuple[Case, Case]]) -> CaseClaim:
    numbers = {f"{one.model} less {other.model}": _doublings(one, other) for one, other in pairs}
    return CaseClaim(
        "Models that read from left to right need fewer neurons for a class.",
        "Effective number of neurons that a class takes as a share of all, log2, less that of the same class in the "
        "other model, mean over the classes of both: beyond 95% of the ways to change the signs of these differences, "
        "and below 0, for every pair; above 0 for every pair: it does not stand.",
        "; ".join(f"{name} {told(number)}" for name, number in numbers.items()),
        _together([number.below() for number in numbers.values()]),
        ALL,
        slide("Comparing Architectures"),
        "XLNet learns linguistic concepts in fewer neurons than BERT",
        next(iter(numbers.values())),
    )


def _doublings(one: Case, other: Case) -> Number:
    """How many doublings a class takes more in one model than in the other, class by class."""
    grids = [case.grids["spread"] for case in (one, other)]
    common = [name for name in grids[0].columns if name in grids[1].columns]
    mine, theirs = (
        np.log2([max(1.0, grid.at("effective", name).value) / case.neurons for name in common])
        for grid, case in zip(grids, (one, other), strict=True)
    )
    return paired(mine - theirs)
