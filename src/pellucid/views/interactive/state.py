"""The state of a view: all that its picture depends on beside the data, checked against what the view holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pellucid.errors import PellucidError, listing

_CHOICES: dict[str, tuple[str, ...]] = {
    "average": ("none", "heads", "layers"),
    "unit": ("tokens", "words"),
    "theme": ("auto", "light", "dark"),
}
NAMES = (
    "mode",
    "block",
    "weighting",
    "layer",
    "heads",
    "average",
    "unit",
    "hideSpecial",
    "hideSinks",
    "mass",
    "from",
    "to",
    "left",
    "right",
    "sort",
    "colour",
    "head",
    "track",
    "map",
    "theme",
)
"""Every name of the state, as the page knows it."""


def merged(header: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The header's state with changes made; unknown names, and values that the view does not have, raise."""
    unknown = [name for name in changes if name not in NAMES]
    if unknown:
        raise PellucidError(f"There is no {listing(unknown)} in a view's state; it has {listing(NAMES, most=30)}.")
    state = {**header["state"], **{name: _plain(value) for name, value in changes.items()}}
    for name, value in state.items():
        _CHECKS[name](_Facts(header, state), name, value)
    return state


def _plain(value: Any) -> Any:
    """Tuples, ranges and sets as the lists that JSON has."""
    return sorted(value) if isinstance(value, (set, frozenset)) else (
        list(value) if isinstance(value, (tuple, range)) else value
    )  # fmt: skip


class _Facts:
    """What a view holds, for a state that may name one of its blocks."""

    def __init__(self, header: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        self.kind, self.panel = header["kind"], header["panels"][0]
        self.blocks = {block["name"]: block for block in self.panel["blocks"]}
        self.state = state

    @property
    def block(self) -> Mapping[str, Any] | None:
        """The block that the state speaks of."""
        return self.blocks.get(self.state.get("block", next(iter(self.blocks), None)))

    def heads(self) -> int:
        """Heads of the layer that the state speaks of; the most of any layer where it names none."""
        block = self.block
        if block is None:
            return 0
        layer = self.state.get("layer")
        return block["heads"][block["layers"].index(layer)] if layer in block["layers"] else max(block["heads"])

    def modes(self) -> list[str]:
        found = ["text"] if self.panel.get("text") else []
        if self.blocks:
            found = ["model", "heads", *found]
        if any(block["vectors"] for block in self.blocks.values()):
            found.append("neurons")
        return found

    def tokens(self, side: str) -> Mapping[str, Any]:
        """The token list of the block's queries or keys, or the only one."""
        lists = self.panel["tokens"]
        return lists[self.block[side]] if self.block is not None else next(iter(lists.values()))


_Check = Callable[[_Facts, str, Any], None]


def _refuse(name: str, value: Any, known: str) -> PellucidError:
    return PellucidError(f"{name}={value!r} is not in this view; {known}.")


def _one_of(known: Callable[[_Facts], Sequence[Any]], *, none: bool = False) -> _Check:
    """A check that a value is one of some; `none` allows None too."""

    def check(facts: _Facts, name: str, value: Any) -> None:
        options = known(facts)
        if (none and value is None) or (value in options and not isinstance(value, bool)):
            return
        raise _refuse(name, value, f"it has {listing(options)}" if options else "it has none")

    return check


def _places(count: Callable[[_Facts], int], noun: str) -> _Check:
    """A check that a value is a list of numbers below a count."""

    def check(facts: _Facts, name: str, value: Any) -> None:
        total = count(facts)
        if not isinstance(value, list) or any(not _is_place(each, total) for each in value):  # pyright: ignore[reportUnknownVariableType]
            raise _refuse(name, value, f"give a list of numbers of {noun}, from 0 to {total - 1}")

    return check


def _is_place(value: Any, total: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < total


def _truth(_: _Facts, name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise _refuse(name, value, "use True or False")


def _mass(_: _Facts, name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise _refuse(name, value, "use a share above 0 and at most 1")


def _choice(name: str) -> _Check:
    return _one_of(lambda _: _CHOICES[name])


def _segments(facts: _Facts, side: str) -> range:
    return range(len(facts.tokens(side)["segments"]))


def _of_block(name: str) -> Callable[[_Facts], list[Any]]:
    return lambda facts: list(facts.block[name]) if facts.block is not None else []


def _of_text(name: str) -> Callable[[_Facts], list[str]]:
    return lambda facts: list((facts.panel.get("text") or {}).get(name, ()))


_CHECKS: dict[str, _Check] = {
    "mode": _one_of(_Facts.modes),
    "block": _one_of(lambda facts: list(facts.blocks)),
    "weighting": _one_of(_of_block("weightings")),
    "layer": _one_of(_of_block("layers")),
    "heads": _places(_Facts.heads, "heads"),
    "average": _choice("average"),
    "unit": _choice("unit"),
    "hideSpecial": _truth,
    "hideSinks": _truth,
    "mass": _mass,
    "from": _one_of(lambda facts: _segments(facts, "queries"), none=True),
    "to": _one_of(lambda facts: _segments(facts, "keys"), none=True),
    "left": _places(lambda facts: len(facts.tokens("queries")["text"]), "queries"),
    "right": _places(lambda facts: len(facts.tokens("keys")["text"]), "keys"),
    "sort": _one_of(_of_block("statistics"), none=True),
    "colour": _one_of(_of_block("statistics"), none=True),
    "head": _one_of(lambda facts: range(facts.heads())),
    "track": _one_of(_of_text("tracks"), none=True),
    "map": _one_of(lambda facts: [*_of_text("maps")(facts), *_lens(facts)], none=True),
    "theme": _choice("theme"),
}


def _lens(facts: _Facts) -> list[str]:
    return ["lens"] if (facts.panel.get("text") or {}).get("lens") else []
