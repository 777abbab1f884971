"""An attribution on the screen: tokens with bars, the strongest places, and how it was computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.cli._print import console, print_table

if TYPE_CHECKING:
    from pellucid.attribution import Attribution
    from pellucid.results import Array, Coordinate

_HALF = 14
_PARTS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_MOST_TOKENS, _MOST_PLACES, _MOST_TABLES, _MOST_TARGETS = 40, 8, 6, 4


def print_attribution(result: Attribution) -> None:
    """Tokens with bars for every method and target, the strongest places, and how it was computed."""
    from pellucid.views.attribution_parts import origin

    pairs = [(measure, target) for measure in result.axes["measure"] for target in result.axes["target"]]
    if len(result.axes["target"]) > _MOST_TARGETS:
        for measure in result.axes["measure"]:
            _print_targets(result, measure)
        pairs = []
    for measure, target in pairs[:_MOST_TABLES]:
        _print_tokens(result, measure, target)
        if len(result.axes["place"]) > 1:
            _print_places(result, measure, target)
    screen = console()
    if len(pairs) > _MOST_TABLES:
        screen.print(f"The first {_MOST_TABLES} of {len(pairs)} tables; --json prints all, -o writes all.")
    screen.print(origin(result))


def _print_tokens(result: Attribution, measure: Coordinate, target: Coordinate) -> None:
    """A row for every token, at the only or the strongest place."""
    import numpy as np

    from pellucid.views.attribution_parts import shown_tokens, signed, strongest

    values = result.values[result.place("measure", measure), result.place("target", target)]  # [place, token]
    place = int(np.abs(values).sum(axis=1).argmax())
    row = result.place("target", target)
    columns = result.targets.columns
    scores = f"score {columns['score'][row]:.4g}"
    if "baseline" in columns:
        scores += f", at the baseline {columns['baseline'][row]:.4g}"
    where = result.axes["place"][place]
    told = f"{str(measure).replace('_', ' ')} of {target} ({scores}) at {where}"
    kept = strongest(values[place], _MOST_TOKENS)
    if len(kept) < values.shape[1]:
        told += f", the {len(kept)} strongest of {values.shape[1]} tokens"
    texts = shown_tokens(result)["text"]
    sign, head = ("+", f"{'against ':>{_HALF}}│ for") if signed(result, measure) else ("", "size")
    drawn = bars(values[place, kept], both=bool(sign))
    widths = _widths(result, measure, target, place)
    rows = [
        (at, texts[at], f"{values[place, at]:{sign}.4f}", *([f"± {widths[at]:.4f}"] if widths is not None else []), bar)
        for at, bar in zip(kept, drawn, strict=True)
    ]
    heads = ["", "token", "attribution", *(["95%"] if widths is not None else []), head]
    print_table(heads, rows, title=told, right=["", "attribution", "95%"])


def _widths(result: Attribution, measure: Coordinate, target: Coordinate, place: int) -> Array | None:
    """Half the width of each token's interval; None where the method draws nothing at random."""
    if result.low is None or result.high is None:
        return None
    where = result.place("measure", measure), result.place("target", target), place
    widths = (result.high[where] - result.low[where]) / 2
    return widths if widths.any() else None


def _print_targets(result: Attribution, measure: Coordinate) -> None:
    """A row for every target of many: its score, and the tokens that did most for and against it."""
    from pellucid.report.attribution import largest, strongest_places

    columns = result.targets.columns
    shown = {"score": "score", "baseline": "at the baseline"}
    known = [name for name in shown if name in columns]
    rows: list[tuple[str, ...]] = []
    for at, target in enumerate(result.axes["target"]):
        place = strongest_places(result, measure, target, 1)[0][0]
        scores = [f"{columns[name][at]:.4g}" for name in known]
        rows.append((str(target), *scores, place, largest(result, measure, place, 4, target=at)))
    named = [shown[name] for name in known]
    heads = ["target", *named, "place", "strongest tokens"]
    print_table(heads, rows, title=str(measure).replace("_", " "), right=named)


def _print_places(result: Attribution, measure: Coordinate, target: Coordinate) -> None:
    from pellucid.report.attribution import strongest_places

    found = strongest_places(result, measure, target, _MOST_PLACES)
    rows = [(place, f"{total:+.4f}", f"{size:.4f}", token) for place, total, size, token in found]
    more = f" (the strongest of {len(result.axes['place']):,})" if len(found) < len(result.axes["place"]) else ""
    print_table(
        ["place", "sum", "sum of sizes", "strongest token"],
        rows,
        title=f"places{more}",
        right=["sum", "sum of sizes"],
    )


def bars(values: Array, *, both: bool = True) -> list[str]:
    """Numbers as bars of characters from a common zero: to the left where negative, to the right where positive.

    Without `both` there is no room to the left.
    """
    import numpy as np

    most = float(np.abs(values).max(initial=0.0)) or 1.0
    drawn: list[str] = []
    for value in values.tolist():
        length = _HALF * abs(value) / most
        if value < 0:
            halves = round(2 * length)
            left = f"{'▐' * (halves % 2)}{'█' * (halves // 2)}" or "▕"
            drawn.append(f"{left:>{_HALF}}│")
        else:
            eighths = round(8 * length)
            right = f"{'█' * (eighths // 8)}{_PARTS[eighths % 8]}" or ("▏" if value else "")
            drawn.append(f"{'':>{_HALF}}│{right}" if both else right)
    return drawn
