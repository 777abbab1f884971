"""Hidden token attribution of one text, in the form of the maps of attention that it is held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pellucid.heads.flow.following import HIDDEN, Check, Maps
from pellucid.heads.flow.information_flow import InformationFlow, assembled
from pellucid.heads.flow.reading import read
from pellucid.identifiability.jacobians import reactions, stream
from pellucid.identifiability.token_mixing import EXACT, PROBES

if TYPE_CHECKING:
    from pellucid.heads.flow.reading import Reading
    from pellucid.model import Batch, Model


def hidden_flow(
    model: Model,
    text: str | Batch,
    *,
    positions: Sequence[int] | None = None,
    probes: int | None = None,
    seed: int = 0,
    pair: str | None = None,
    decoder: str | None = None,
) -> InformationFlow:
    """What the states of a text's tokens react to, ‖∂e_j/∂x_i‖_F over its sum over i (Brunner et al. 2020), by layer.

    Norms are exact where tokens × width are few, and else estimated from random directions, 16 per token; `probes` asks
    for another number. It looks at no attention, and `joined` puts it beside maps that do.
    """
    reading = read(model, text, pair=pair, decoder=decoder)
    reading = reading if positions is None else reading.at(positions)
    asked = probes_for(reading, probes)
    facts = {"methods": [HIDDEN], "positions": list(reading.positions), "probes": asked}
    given = {"text": text if isinstance(text, str) else None, "pair": pair, "decoder": decoder}
    found = hidden_maps(reading, probes=asked, seed=seed)
    drawn = None if asked is None else seed
    return assembled(reading, found, function="identifiability.hidden_flow", arguments=facts, given=given, seed=drawn)


def probes_for(reading: Reading, probes: int | None) -> int | None:
    """Random directions per token: as many as asked for, none (exact norms) for small texts, else `PROBES`."""
    width = reading.model.size(stream(reading.model)[0])[-1]
    return PROBES if probes is None and reading.length * width > EXACT else probes


def hidden_maps(reading: Reading, *, probes: int | None, seed: int) -> Maps:
    """Shares [layer, position, source], and the standard error of the norms as a share of them."""
    told = reactions(reading.model, reading.batch, probes=probes, seed=seed)
    at = list(reading.positions)
    shares = told.shares[1:, at]
    errors = (told.error[1:, at] * shares).sum((1, 2)) / shares.sum((1, 2)).clamp(min=1e-300)
    what = "norms are exact: errors of" if probes is None else "norms have a standard error of at most"
    checks = [Check(HIDDEN, layer, what, float(error)) for layer, error in enumerate(errors)]
    return Maps({HIDDEN: shares.numpy()}, checks=tuple(checks))
