"""Information flow through one text: which tokens every token draws on, layer by layer, by several methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.attribution.attribution import one_text
from pellucid.errors import listing
from pellucid.heads.flow.attributing import RULE, STEPS
from pellucid.heads.flow.following import HIDDEN, METHODS, SHOWN, Settings, chosen, default_positions, followed
from pellucid.heads.flow.graph import RESIDUAL
from pellucid.heads.flow.reading import read
from pellucid.results import Provenance, Result, ResultError, Table

if TYPE_CHECKING:
    from pellucid.attribution.targets import Target
    from pellucid.heads.flow.following import Maps
    from pellucid.heads.flow.reading import Reading
    from pellucid.model import Batch, Model

_PHRASES = {**METHODS, HIDDEN: "share of an input token in what a state reacts to (hidden token attribution)"}


@dataclass(frozen=True, eq=False)
class InformationFlow(Result):
    """How much tokens draw on others, [measure, layer, token, source]; a measure is a method.

    `attention`, the norms and `attribution` are of one layer alone; `rollout`, `flow` and `hidden` tell what the state
    after a layer draws from the input. Tables: `tokens`, `checks` (how far sums are from what they should be, by
    method and layer), and `heads` (the same by head), where asked for.
    """

    kind: ClassVar[str] = "heads.information_flow"
    title: ClassVar[str] = "What tokens draw on"
    phrases: ClassVar[Mapping[str, str]] = _PHRASES

    @property
    def measures(self) -> Mapping[str, str]:
        """One phrase for each method."""
        return {str(name): _PHRASES[str(name)] for name in self.axes["measure"]}

    def joined(self, other: InformationFlow) -> InformationFlow:
        """This and another one of the same model, text and positions as one, such as that of hidden states."""
        ours, theirs = ({name: each.axes[name] for name in ("layer", "token", "source")} for each in (self, other))
        models = [each.provenance.models[0]["fingerprint"] for each in (self, other)]
        twice = set(self.axes["measure"]) & set(other.axes["measure"])
        if ours != theirs or models[0] != models[1] or twice:
            what = f"both have {listing(sorted(map(str, twice)))}" if twice else "models, texts or positions differ"
            raise ResultError(f"These two results cannot be joined: {what}.")
        told = [each.table("checks") for each in (self, other) if each.table("checks").axes["row"]]
        columns = (
            {name: np.concatenate([each.columns[name] for each in told]) for name in told[0].columns} if told else {}
        )
        checks = Table.of_rows(columns) if told else self.table("checks")
        measures = (*self.axes["measure"], *other.axes["measure"])
        arguments = {**other.provenance.arguments, **self.provenance.arguments, "methods": list(measures)}
        return replace(
            self,
            axes={"measure": measures, **ours},
            values=np.concatenate([self.values, other.values]),
            provenance=replace(self.provenance, arguments=arguments),
            tables={**other.tables, **self.tables, "checks": checks},
        )


def information_flow(
    model: Model,
    text: str | Batch,
    methods: str | Iterable[str] = SHOWN,
    *,
    positions: Sequence[int] | None = None,
    target: str | Target | None = None,
    residual: float = RESIDUAL,
    steps: int = STEPS,
    rule: str = RULE,
    heads: bool = False,
    pair: str | None = None,
    decoder: str | None = None,
    stack: str | None = None,
) -> InformationFlow:
    """Which tokens every token of a text draws on, by the methods named (`METHODS`), layer by layer.

    `positions` are the tokens looked at, all by default; with `flow` in a text that is not short, the last one of a
    causal model and the first one of others. `target` is what attribution explains, `residual` the residual stream's
    share in rollout and flow, `heads` keeps the heads apart, too. In an encoder–decoder `stack` is followed, and what
    the decoder takes from the encoder is not part of it.
    """
    names, settings = chosen(methods), Settings(residual, target, steps, rule, heads)
    reading = read(model, text, pair=pair, decoder=decoder, stack=stack)
    reading = reading.at(default_positions(reading, names) if positions is None else positions)
    found = followed(reading, names, settings)
    facts: dict[str, Any] = {"methods": names, "positions": list(reading.positions), "residual": residual}
    facts |= {"target": found.target, "steps": steps, "rule": rule} if found.target is not None else {}
    facts |= {"stack": reading.stack} if reading.stack is not None else {}
    given = {"text": text if isinstance(text, str) else None, "pair": pair, "decoder": decoder}
    return assembled(reading, found, function="heads.information_flow", arguments=facts, given=given)


def assembled(
    reading: Reading,
    found: Maps,
    *,
    function: str,
    arguments: dict[str, Any],
    given: Mapping[str, str | None],
    seed: int | None = None,
) -> InformationFlow:
    """Maps as a result, with the text's tokens and the checks."""
    labels, layers = reading.labels, tuple(range(len(reading.sites)))
    tokens = tuple(labels[position] for position in reading.positions)
    columns = ("measure", "layer", "what", "error")
    checks = {name: np.array([getattr(check, name) for check in found.checks]) for name in columns}
    tables = {"tokens": Table.of_rows(reading.tokens), "checks": Table.of_rows(checks)}
    if found.heads:
        count = next(iter(found.heads.values())).shape[1]
        axes = {"layer": layers, "head": tuple(range(count)), "token": tokens, "source": labels}
        tables["heads"] = Table(axes, found.heads)
    model = reading.model
    return InformationFlow(
        axes={"measure": tuple(found.maps), "layer": layers, "token": tokens, "source": labels},
        values=np.stack(list(found.maps.values())),
        null=None,
        low=None,
        high=None,
        resampled="no interval: the numbers are of one text",
        provenance=Provenance(
            function,
            arguments,
            ({"name": model.name, "fingerprint": model.fingerprint},),
            one_text(reading.batch, **given),
            seed,
        ),
        tables=tables,
    )
