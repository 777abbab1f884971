"""Attribution of one text: what every token, layer, head or neuron did for a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from pellucid.attribution import completeness
from pellucid.attribution.computing import Settings, compute
from pellucid.attribution.methods import METHODS, chosen
from pellucid.attribution.removal.groups import reads, told, with_words
from pellucid.attribution.targets import Target, asked
from pellucid.attribution.text_tokens import text_tokens, unpadded
from pellucid.errors import AttributionError
from pellucid.model.batch import Batch
from pellucid.model.sites import Site, expand
from pellucid.results import Provenance, Result, Table

if TYPE_CHECKING:
    from pellucid.attribution.baselines import Given
    from pellucid.attribution.methods import Method
    from pellucid.attribution.removal.groups import Grouping
    from pellucid.attribution.sweep import Key, Swept
    from pellucid.attribution.targets import Resolved
    from pellucid.model import Model

RANDOM = "what a method draws at random for this text (95%); a method that draws nothing has no width"


@dataclass(frozen=True, eq=False)
class Attribution(Result):
    """What places did for targets, [measure, target, place, token]; a measure is a method.

    A place is a site (`resid.3`), a head (`heads.3:2`) or a unit (`neurons.3:17`). Tokens are numbered; for
    encoder–decoders those of the source come first, then those of the target.
    """

    kind: ClassVar[str] = "attribution"
    title: ClassVar[str] = "What made the prediction"
    phrases: ClassVar[Mapping[str, str]] = {name: method.phrase for name, method in METHODS.items()}

    @property
    def measures(self) -> Mapping[str, str]:
        """One phrase for each method."""
        return {str(name): METHODS[str(name)].phrase for name in self.axes["measure"]}

    @property
    def tokens(self) -> Table:
        """Every token's text, whether it is special, whether a space stands before it, and which stack reads it."""
        return self.table("tokens")

    @property
    def targets(self) -> Table:
        """Each target with its score at the text and, where a method looks at one, at the baseline."""
        return self.table("targets")

    @property
    def completeness(self) -> Table:
        """For every complete method and place: the sum of the attributions, what it should be, and the error."""
        return self.table("completeness")

    @property
    def conservation(self) -> Table:
        """For relevance: how much of the target's score reached the input, and what kept the rest on the way."""
        return self.table("conservation")


def attribute(
    model: Model,
    text: str | Batch,
    target: str | Target | Sequence[str | Target] | None = None,
    method: str | Sequence[str] = "integrated_gradients",
    sites: str | Site | Sequence[str | Site] = "*.embed",
    *,
    by: str = Settings.by,
    pair: str | None = None,
    decoder: str | None = None,
    baseline: Given = Settings.baseline,
    rule: str = Settings.rule,
    steps: int | None = Settings.steps,
    tolerance: float = Settings.tolerance,
    samples: int = Settings.samples,
    noise: float = Settings.noise,
    seed: int = Settings.seed,
    groups: Grouping = Settings.groups,
    window: int = Settings.window,
    stride: int = Settings.stride,
    memory_limit: int | None = Settings.memory_limit,
) -> Attribution:
    """What every token did for a prediction, at the input (`embed`) or at any sites, all from the same passes.

    `by` tells what a place is: a whole `site`, a `head` or a `unit`. Several targets and methods may be named;
    `decoder` is what an encoder–decoder has written so far. The other options are those of `Settings`. The numbers are
    for this text alone; how far a method can be trusted is what `trust` measures.
    """
    settings = Settings(
        baseline, rule, steps, tolerance, samples, noise, seed, memory_limit, by, groups, window, stride
    )
    batch = unpadded(text) if isinstance(text, Batch) else model.tokenize(text, pair, target=decoder)
    if batch.size != 1:
        raise AttributionError(f"attribute takes one text, not {batch.size}; use over_corpus for many.")
    methods, places = chosen(method), expand(sites, model.sites)
    if isinstance(text, str) and isinstance(groups, str) and groups == "words":
        batch = with_words(model, batch, text, pair)
    found, targets = compute(model, batch, asked(model, target), methods, places, settings)
    arguments = {**settings.told(model, methods, places), **found.told(), "groups": told(groups)}
    provenance = Provenance(
        "attribution.attribute",
        arguments,
        ({"name": model.name, "fingerprint": model.fingerprint},),
        one_text(batch, text=text if isinstance(text, str) else None, pair=pair, decoder=decoder),
        settings.drawn(methods),
    )
    return gathered(model, batch, found, targets, methods, places, by=by, provenance=provenance)


def gathered(
    model: Model,
    batch: Batch,
    found: Swept,
    targets: Sequence[Resolved],
    methods: Sequence[Method],
    sites: Sequence[Site],
    *,
    by: str,
    provenance: Provenance,
) -> Attribution:
    """Raw attributions of one text as a result: features are summed, places and tokens named."""
    tokens, spans = text_tokens(model, batch)
    names: list[str] = [name for site in sites for name in places(model, site, by)]

    def laid_out(parts: Mapping[Key, Tensor]) -> Tensor:
        """Parts as [measure, target, place, token]; a method that draws nothing has no reach, which is zero."""
        values = torch.zeros(len(methods), len(targets), len(names), len(tokens["token"]), dtype=torch.float64)
        for which, method in enumerate(methods):
            for number in range(len(targets)):
                first = 0
                for site in sites:
                    key, count = (method.name, number, site), len(places(model, site, by))
                    if key in parts or parts is found.parts:
                        span = spans[reads(site)]
                        part = per_token(parts[key][0], site, by)  # [places, T]
                        values[which, number, first : first + count, span] = part
                    first += count
        return values

    values, reach = laid_out(found.parts), laid_out(found.reach)
    labels = [f"{number} {token}" for number, token in enumerate(tokens["token"])]
    return Attribution(
        axes={
            "measure": tuple(method.name for method in methods),
            "target": tuple(target.name for target in targets),
            "place": tuple(names),
            "token": tuple(labels),
        },
        values=values.numpy(),
        null=None,
        low=(values - reach).numpy() if found.reach else None,
        high=(values + reach).numpy() if found.reach else None,
        resampled=RANDOM if found.reach else "no interval: the numbers are of one text",
        provenance=provenance,
        tables={
            "tokens": Table.of_rows(tokens),
            "targets": _target_rows(targets, found),
            "completeness": _completeness_rows(targets, found),
            "conservation": _conservation_rows(targets, found),
        },
    )


def one_text(batch: Batch, **given: str | None) -> dict[str, Any]:
    """What was read, as a corpus of one text."""
    from pellucid.corpus.identity import fingerprint_of

    rows = [batch.ids, *([batch.target_ids] if batch.target_ids is not None else [])]
    return {
        "name": "one text",
        "fingerprint": fingerprint_of("tokens", *(str(row[0].tolist()) for row in rows)),
        "sentences": 1,
        "tokens": sum(row.shape[1] for row in rows),
        **{name: each for name, each in given.items() if each is not None},
    }


def places(model: Model, site: Site, by: str) -> list[str]:
    """The names of the places that a site is divided into."""
    if by == "site" or (by == "head" and not site.per_head):
        return [str(site)]
    size = model.size(site)
    return [f"{site}:{unit}" for unit in range(size[0] if site.per_head else size[-1])]


def per_token(part: Tensor, site: Site, by: str) -> Tensor:
    """An attribution [T, width] or [heads, T, width] with its features summed, [places, T].

    Of a pattern [heads, queries, keys] the queries are summed: what is left belongs to the token that is looked at.
    """
    if site.per_head:
        heads = part.sum(dim=1 if site.kind == "pattern" else 2)
        return heads.sum(dim=0, keepdim=True) if by == "site" else heads
    return part.T if by == "unit" else part.sum(dim=1)[None]


def _target_rows(targets: Sequence[Resolved], found: Swept) -> Table:
    end = found.end[:, 0].numpy()
    columns: dict[str, Any] = {"target": [target.name for target in targets], "score": end}
    if found.start is not None:
        start = found.start[:, 0].numpy()
        columns |= {"baseline": start, "change": end - start}
    return Table.of_rows(columns)


def _completeness_rows(targets: Sequence[Resolved], found: Swept) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for one in completeness.sums(found):
        for number, target in enumerate(targets):
            told = (one.total[number, 0], one.wanted[number, 0], one.error[number, 0])
            rows.append((one.method, target.name, one.place, *(float(value) for value in told)))
    names = ("measure", "target", "place", "sum", "change", "relative error")
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return Table.of_rows(dict(zip(names, columns, strict=True)))


def _conservation_rows(targets: Sequence[Resolved], found: Swept) -> Table:
    rows = [
        (method, targets[number].name, part, float(relevance[0]), _share(relevance[0], found.end[number, 0]))
        for (method, number), shares in found.shares.items()
        for part, relevance in shares.items()
    ]
    names = ("measure", "target", "part", "relevance", "share of the score")
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return Table.of_rows(dict(zip(names, columns, strict=True)))


def _share(part: Tensor, whole: Tensor) -> float:
    return float(part / whole) if whole != 0 else 0.0
