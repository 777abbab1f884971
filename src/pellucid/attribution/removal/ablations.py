"""Ablation of heads, units or whole sites in a text: how much of the target goes when one is taken away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.attribution.attribution import one_text
from pellucid.attribution.baselines import baseline as begun
from pellucid.attribution.baselines import embedded
from pellucid.attribution.computing import BY
from pellucid.attribution.removal.groups import of_tokens
from pellucid.attribution.removal.perturbation import scored
from pellucid.attribution.removal.units import Removals, beginning, divisions, removing, replaced
from pellucid.attribution.targets import Target, asked
from pellucid.errors import AttributionError, listing
from pellucid.model.batch import Batch
from pellucid.model.edits import Edit
from pellucid.model.sites import Site, expand
from pellucid.results import Array, Provenance, Result, Table

if TYPE_CHECKING:
    from pellucid.attribution.baselines import Given
    from pellucid.attribution.targets import Resolved
    from pellucid.model import Model


@dataclass(frozen=True, eq=False)
class Ablations(Result):
    """By how much targets fall when a place is taken away from the whole text, [target, place].

    A place is a head (`heads.3:2`), a unit (`neurons.3:17`) or a site (`mlp.3`). A positive number: it spoke for the
    target.
    """

    kind: ClassVar[str] = "attribution.ablations"
    title: ClassVar[str] = "What goes when a part is taken away"

    @property
    def places(self) -> Table:
        """The site, layer and unit of every place, in order; unit −1 is the whole site."""
        return self.table("places")

    @property
    def targets(self) -> Table:
        """Each target with its score at the text."""
        return self.table("targets")


def ablations(
    model: Model,
    text: str | Batch,
    target: str | Target | Sequence[str | Target] | None = None,
    sites: str | Site | Sequence[str | Site] = "*.heads.*",
    *,
    by: str = "head",
    units: Sequence[int] | None = None,
    span: tuple[int, int] | None = None,
    pair: str | None = None,
    decoder: str | None = None,
    baseline: Given = "zero",
    memory_limit: int | None = None,
) -> Ablations:
    """Every head, unit or site taken away in turn, at all tokens (or those of `span`): F(text) − F(text without it).

    `units` chooses heads or units of each site. `baseline` tells what comes instead: `zero`, the place's `mean` over
    the text, or what stands there when the input is a baseline such as `mask` or `text:…`. All are run together, many
    to a pass. It is the exact effect on this text; parts that stand in for one another each get little of it.
    """
    if by not in BY:
        raise AttributionError(f"Places are taken away by {listing(BY)}, not by {by!r}.")
    batch = text if isinstance(text, Batch) else model.tokenize(text, pair, target=decoder)
    if batch.size != 1:
        raise AttributionError(f"ablations takes one text, not {batch.size}; explain them one by one.")
    chosen = expand(sites, model.sites)
    targets = asked(model, target)
    plain = model.run(batch) if any(one.predicted for one in targets) else None
    resolved = [one.resolve(model, batch, plain) for one in targets]
    removals = planned(model, batch, chosen, by=by, units=units, span=span, baseline=baseline)
    effects, score = taken_away(model, batch, removals, resolved, memory_limit=memory_limit)
    rows = [(each.site, unit) for each in removals for unit in ([-1] if each.units is None else each.units.tolist())]
    names = [str(site) if unit < 0 else f"{site}:{unit}" for site, unit in rows]
    arguments: dict[str, Any] = {
        "sites": [str(site) for site in chosen],
        "by": by,
        "units": None if units is None else [int(unit) for unit in units],
        "span": None if span is None else list(span),
        "baseline": baseline if isinstance(baseline, str) else "given as numbers",
        "points": len(names) + 1,
        "precision": str(next(model.hf.parameters()).dtype).removeprefix("torch."),
    }
    return Ablations(
        axes={"target": tuple(one.name for one in resolved), "place": tuple(names)},
        values=effects[:, :, 0].T,
        null=None,
        low=None,
        high=None,
        resampled="no interval: the numbers are of one text",
        provenance=Provenance(
            "attribution.ablations",
            arguments,
            ({"name": model.name, "fingerprint": model.fingerprint},),
            one_text(batch, text=text if isinstance(text, str) else None, pair=pair, decoder=decoder),
        ),
        tables={
            "targets": Table.of_rows({"target": [one.name for one in resolved], "score": score[:, 0]}),
            "places": _place_rows(rows),
        },
    )


def planned(
    model: Model,
    batch: Batch,
    sites: Sequence[Site],
    *,
    by: str,
    units: Sequence[int] | None = None,
    span: tuple[int, int] | None = None,
    baseline: Given = "zero",
) -> list[Removals]:
    """What is taken away, site by site: each place at every token of the texts, or at the tokens of a span."""
    tokens = of_tokens(batch)
    count = min(tokens.count(row) for row in range(batch.size))
    if span is not None and not 0 <= span[0] < span[1] <= count:
        raise AttributionError(
            f"The span {tuple(span)} does not lie within the text's {count} tokens: a span (start, stop) holds tokens "
            f"start to stop − 1, and stop is at most {count}."
        )
    edits: list[Edit] = []
    if not isinstance(baseline, str) or baseline not in ("zero", "mean"):
        end = embedded(model, batch)
        edits = [Edit.patch(site, start) for site, start in begun(model, batch, baseline, end).items()]
    found: list[Removals] = []
    for site in sites:
        if by == "head" and not site.per_head:
            raise AttributionError(f"{site} has no heads; take it away with by='unit' or by='site' (--by unit).")
        mine = tokens.side(site)
        there = np.ones((1, batch.size, 1), dtype=bool)
        if span is not None:
            there = ((mine >= span[0]) & (mine < span[1]))[None]
            if not there.any():
                raise AttributionError(f"No token of the span {tuple(span)} passes {site}; the other stack reads them.")
        parts = _chosen(site, divisions(model, site, by), units)
        at = np.zeros(1 if parts is None else len(parts), dtype=np.int64)
        found.append(Removals(site, parts, there, at, replaced(model, batch, site, baseline, edits)))
    return found


def taken_away(
    model: Model,
    batch: Batch,
    removals: Sequence[Removals],
    targets: Sequence[Resolved],
    *,
    memory_limit: int | None = None,
) -> tuple[Array, Array]:
    """The effects [places, targets, B] of all removals, and the targets' scores [targets, B] at the texts."""
    count = sum(len(each.at) for each in removals) + 1  # the last copy is the text as it is
    values = scored(
        model,
        batch,
        change=removing(model, removals),
        count=count,
        targets=targets,
        memory_limit=memory_limit,
        begin=beginning(model, batch, removals, targets),
    )
    return (values[-1:] - values[:-1]).numpy(), values[-1].numpy()


def _chosen(site: Site, divided: Array | None, units: Sequence[int] | None) -> Array | None:
    if units is None:
        return divided
    noun = "head" if site.per_head else "unit"
    if divided is None:
        raise AttributionError(
            f"{noun.capitalize()}s of {site} were chosen, and it is taken away whole; use by={noun!r}."
        )
    if not len(units):
        raise AttributionError(
            f"An empty list of {noun}s was given; leave it out to take all {len(divided)} of {site}."
        )
    absent = [unit for unit in units if unit not in divided]
    if absent:
        raise AttributionError(
            f"{site} has {len(divided)} {noun}s, numbered 0 to {len(divided) - 1}; {noun} {absent[0]} does not exist."
        )
    return np.array(list(dict.fromkeys(units)))


def _place_rows(rows: Sequence[tuple[Site, int]]) -> Table:
    return Table.of_rows(
        {
            "site": [str(site) for site, _ in rows],
            "layer": [site.layer if isinstance(site.layer, int) else -1 for site, _ in rows],
            "unit": [unit for _, unit in rows],
        }
    )
