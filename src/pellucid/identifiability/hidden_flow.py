"""Hidden token attribution of one text, in the form of the maps of attention that it is held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pellucid.heads.flow.following import HIDDEN, Check, Maps
from pellucid.heads.flow.information_flow import InformationFlow, assembled
from pellucid.heads.flow.reading import read
from pellucid.identifiability.jacobians import EXACT, check_probes, probes_for, reactions, shares_of

if TYPE_CHECKING:
    from pellucid.heads.flow.reading import Reading
    from pellucid.identifiability.jacobians import Probes
    from pellucid.model import Batch, Model
    from pellucid.results import Array


def hidden_flow(
    model: Model,
    text: str | Batch,
    *,
    positions: Sequence[int] | None = None,
    probes: Probes = None,
    seed: int = 0,
    pair: str | None = None,
    decoder: str | None = None,
) -> InformationFlow:
    """What the states of a text's tokens react to, ‖∂e_j/∂x_i‖_F over its sum over i (Brunner et al. 2020), by layer.

    Norms are exact where that takes a few seconds, and else estimated from 16 random directions per token; `probes`
    asks for another number, or for "exact". It looks at no attention, and `joined` puts it beside maps that do.
    """
    check_probes(probes)
    reading = read(model, text, pair=pair, decoder=decoder)
    reading = reading if positions is None else reading.at(positions)
    asked = probes_for(model, reading.length, probes)
    facts = {"methods": [HIDDEN], "positions": list(reading.positions), "probes": asked or EXACT}
    given = {"text": text if isinstance(text, str) else None, "pair": pair, "decoder": decoder}
    found, _ = hidden_maps(reading, probes=asked or EXACT, seed=seed)
    drawn = None if asked is None else seed
    return assembled(reading, found, function="identifiability.hidden_flow", arguments=facts, given=given, seed=drawn)


def hidden_maps(reading: Reading, *, probes: Probes, seed: int) -> tuple[Maps, Array]:
    """Shares [layer, position, source] with the standard error of the norms as a share of them, and the same shares by
    each half of the directions, [2, layer, position, source]."""
    told = reactions(reading.model, reading.batch, probes=probes, seed=seed)
    at = list(reading.positions)
    shares = told.shares[1:, at]
    errors = (told.error[1:, at] * shares).sum((1, 2)) / shares.sum((1, 2)).clamp(min=1e-300)
    exact = not bool(told.error.any())
    what = "norms are exact: errors of" if exact else "norms have a standard error of at most"
    checks = [Check(HIDDEN, layer, what, float(error)) for layer, error in enumerate(errors)]
    return Maps({HIDDEN: shares.numpy()}, checks=tuple(checks)), shares_of(told.halves)[:, 1:, at].numpy()
