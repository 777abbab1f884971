"""What every picture of an attribution is made of: its tokens, its strongest places, and what is said beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import Array

if TYPE_CHECKING:
    from pellucid.attribution import Attribution
    from pellucid.results import Coordinate

_SPACE = {" ": "␣", "\n": "⏎", "\r": "⏎", "\t": "⇥"}


def signed(result: Attribution, measure: Coordinate) -> bool:
    """Whether a method's numbers say for and against, or only how much."""
    from pellucid.attribution.methods import METHODS

    known = METHODS.get(str(measure))
    return bool((result.measure(str(measure)) < 0).any()) if known is None else known.signed


def signs(result: Attribution) -> list[str]:
    """What the two colours mean, where any method has a sign."""
    kinds = {signed(result, measure) for measure in result.axes["measure"]}
    if True not in kinds:
        return []
    told = "Orange speaks for the target, blue against it"
    return [f"{told}; methods without a sign show size alone." if len(kinds) > 1 else f"{told}."]


def strongest(values: Array, most: int) -> list[int]:
    """Rows of an array [rows, …] whose sizes sum to most, at most so many, in the order of the array."""
    if len(values) <= most:
        return list(range(len(values)))
    sizes = np.abs(values).reshape(len(values), -1).sum(axis=1)
    return sorted(np.argsort(-sizes, kind="stable")[:most].tolist())


def shown_tokens(result: Attribution) -> dict[str, Any]:
    """The tokens as views hold them: readable text, spaces between, words and special places."""
    columns = result.tokens.columns
    special, sides = columns["special"].tolist(), columns["side"].tolist()
    texts = [_readable(text) for text in columns["token"].tolist()]
    space: list[bool] = []
    for place, apart in enumerate(columns["space"].tolist()):
        alone = place > 0 and (special[place] or special[place - 1] or sides[place] != sides[place - 1])
        space.append(bool(apart or alone))
    words = np.cumsum([place == 0 or apart for place, apart in enumerate(space)]) - 1
    segments = list(dict.fromkeys(sides))
    return {
        "text": texts,
        "space": "".join("1" if apart else "0" for apart in space),
        "word": [-1 if flag else int(word) for flag, word in zip(special, words, strict=True)],
        "special": [place for place, flag in enumerate(special) if flag],
        "sinks": [],
        "segment": [segments.index(side) for side in sides],
        "segments": segments,
        "rtl": _right_to_left("".join(texts)),
    }


def named(result: Attribution, **chosen: Coordinate) -> str:
    """A name for a part of a result: only what tells it from the others, the method where there is nothing to tell."""
    parts = [str(item) for axis, item in chosen.items() if len(result.axes[axis]) > 1]
    return " · ".join(parts) or str(next(iter(chosen.values())))


def told(result: Attribution, measure: Coordinate, target: Coordinate) -> str:
    """What a method's numbers for a target are, in a sentence or two."""
    row = result.place("target", target)
    columns = result.targets.columns
    scores = f"its score is {_short(columns['score'][row])}"
    if "baseline" in columns:
        scores += f", at the baseline {_short(columns['baseline'][row])}"
    return f"{titled(result.measures[str(measure)])}. The target is {target}: {scores}."


def origin(result: Attribution) -> str:
    """How the numbers came about, in a sentence or two: baseline, steps, completeness and precision."""
    given = result.provenance.arguments
    parts = [f"Baseline: {given['baseline']}" if "baseline" in given else ""]
    parts.append(f"{given['steps']} steps ({given['rule']})" if given.get("steps") else "")
    parts.append(completeness(result))
    parts.append(f"precision: {given['precision']}" if "precision" in given else "")
    parts.append("scores are log-probabilities" if given.get("log") else "")
    noted = f" {titled(str(given['note']))}." if given.get("note") else ""
    return titled("; ".join(part for part in parts if part)) + "." + noted


def completeness(result: Attribution) -> str:
    """The largest completeness error, as a phrase."""
    errors = result.completeness.columns["relative error"]
    if not errors.size:
        return "no completeness error, because no sum here must equal the target's change"
    return f"completeness error {percent(float(errors.max()), largest=True)}"


def percent(value: float, *, largest: bool = False) -> str:
    """A relative error as per cent, with two digits that say something; `largest` says that it is the largest."""
    if value < 1e-4:
        return "below 0.01%"
    told = f"{100 * value:.2g}%" if value < 0.995 else f"{100 * value:,.0f}%"
    return f"at most {told}" if largest else told


def layers_and_heads(places: Sequence[Coordinate]) -> tuple[list[str], list[int], Array] | None:
    """Places that are heads of at least two sites: site names, head numbers and the place of each, −1 for none."""
    split = [str(place).rpartition(":") for place in places]
    if not all(site and head.isdigit() for site, _, head in split):
        return None
    sites = list(dict.fromkeys(site for site, _, _ in split))
    heads = sorted({int(head) for _, _, head in split})
    if len(sites) < 2:
        return None
    where = np.full((len(sites), len(heads)), -1)
    for at, (site, _, head) in enumerate(split):
        where[sites.index(site), heads.index(int(head))] = at
    return sites, heads, where


def titled(text: str) -> str:
    """A text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def _readable(text: str) -> str:
    return text.strip() or "".join(_SPACE.get(sign, "␣") for sign in text) or "∅"


def _right_to_left(text: str) -> bool:
    from pellucid.views.interactive.tokens import right_to_left

    return right_to_left(text)


def _short(value: float) -> str:
    from pellucid.views.interactive.sheet import short

    return short(float(value))
