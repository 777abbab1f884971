"""Tables of what survives a pruning: the heads that are left, by layer and by function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pellucid.errors import ModelError, listing
from pellucid.heads.naming import all_heads, head_name
from pellucid.results import Table
from pellucid.uncertainty import range_of_draws

if TYPE_CHECKING:
    from pellucid.heads.roles.functions import HeadFunctions
    from pellucid.model import Model

NONE = "none"
"""What a head without a known function has."""
NOT_READ = "not read"
"""What a head has whose stack the functions do not tell about, as those of a decoder where an encoder was read."""


def survivor_tables(
    model: Model, gates: Mapping[str, float], ranking: Iterable[str], functions: HeadFunctions | None
) -> dict[str, Table]:
    """`survivors`: every head that is left, with its gate, its rank by the order compared with, and its functions;
    `layers`: heads and survivors of every layer; `functions`, where they are known: the same of every function."""
    ranks = {name: place for place, name in enumerate(ranking, start=1)}
    labels = _labels(gates, functions)
    left = [name for name, gate in gates.items() if gate > 0]
    columns: dict[str, list[object]] = {
        "head": list(left),
        "gate": [gates[name] for name in left],
        "rank": [ranks[name] for name in left],
    }
    if functions is not None:
        columns["functions"] = ["; ".join(labels[name]) or NONE for name in left]
    tables = {"survivors": Table.of_rows(columns), "layers": _layers(model, gates)}
    if functions is not None:
        tables["functions"] = by_function(gates, labels)
    return tables


def check_functions(model: Model, functions: HeadFunctions | None) -> None:
    """Refuses functions of another model's heads."""
    if functions is None:
        return
    known = {told["fingerprint"]: told["name"] for told in functions.provenance.models}
    if model.fingerprint not in known:
        raise ModelError(
            f"The functions are of the heads of {listing(known.values())}, and {model.name!r} is another model; find "
            "its own with heads.functions."
        )


def _labels(gates: Mapping[str, float], functions: HeadFunctions | None) -> dict[str, tuple[str, ...]]:
    """The functions of every head; an encoder–decoder's were found in the stack that read the text."""
    if functions is None:
        return dict.fromkeys(gates, ())
    side = functions.provenance.arguments["sweep"]["reading"]["side"]
    stack = "decoder." if side == "target" else "encoder."
    prefix = stack if any(name.startswith(stack) for name in gates) else ""
    read = {
        f"{prefix}{layer}.{head}": functions.labels.get(f"{layer}.{head}", ())
        for layer in functions.axes["layer"]
        for head in functions.axes["head"]
    }
    return {name: read.get(name, (NOT_READ,)) for name in gates}


def _layers(model: Model, gates: Mapping[str, float]) -> Table:
    """Heads and survivors of every layer."""
    places: dict[str, list[float]] = {}
    for site, head in all_heads(model):
        layer = str(site.layer) if site.stack is None else f"{site.stack}.{site.layer}"
        places.setdefault(layer, []).append(gates[head_name(site, head)])
    return Table.of_rows(
        {
            "layer": list(places),
            "heads": [len(found) for found in places.values()],
            "left": [sum(gate > 0 for gate in found) for found in places.values()],
        }
    )


def by_function(gates: Mapping[str, float], labels: Mapping[str, tuple[str, ...]]) -> Table:
    """For every function, how many heads have it, how many of these are left, and how many would be by chance.

    By chance, that is if survivors were drawn from all heads whose functions were read (what was not read: from all
    heads): their mean, and the range that holds 95% of draws, `low` to `high`. A head with several functions counts in
    each.
    """
    names = list(dict.fromkeys(label for found in labels.values() for label in found))
    groups = {label: [name for name, found in labels.items() if label in found] for label in names}
    groups[NONE] = [name for name, found in labels.items() if not found]
    read = [name for name in gates if NOT_READ not in labels[name]]
    rows: list[tuple[str, int, int, float, int, int]] = []
    for label, found in groups.items():
        pool = list(gates) if label == NOT_READ else read
        left = sum(gates[name] > 0 for name in pool)
        expected = left * len(found) / max(1, len(pool))
        kept = sum(gates[name] > 0 for name in found)
        rows.append((label, len(found), kept, expected, *range_of_draws(len(pool), len(found), left)))
    columns = ("function", "heads", "left", "by chance", "low", "high")
    return Table.of_rows(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))
