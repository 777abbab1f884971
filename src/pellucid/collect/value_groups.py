"""Values of a label with their document groups: how states that keep both apart are split up and put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pellucid.collect.state import Array, State


def grouped_value(group: int, value: str) -> str:
    """A value in one document group, as a state that keeps groups apart writes it."""
    return f"{group}\t{value}"


def by_group(state: State, common: Sequence[str]) -> dict[int, State]:
    """The document groups of a state whose values are `grouped_value`s; all groups get the same values.

    Arrays called `common` hold for all groups; the others have one entry per value, 0 where a group lacks it.
    """
    told = [value.partition("\t") for value in state.facts["values"]]
    values = sorted({value for _, _, value in told})
    place = {value: number for number, value in enumerate(values)}
    found: dict[int, State] = {}
    for group in sorted({int(number) for number, _, _ in told}):
        rows = [row for row, (number, _, _) in enumerate(told) if int(number) == group]
        arrays: dict[str, Array] = {name: state.arrays[name] for name in common}
        for name, array in state.arrays.items():
            if name not in arrays:
                arrays[name] = np.zeros((len(values), *array.shape[1:]), array.dtype)
                arrays[name][[place[told[row][2]] for row in rows]] = array[rows]
        found[group] = State(arrays, {**state.facts, "values": values})
    return found


def of_groups(parts: Sequence[State], state: State, common: Sequence[str]) -> State:
    """The sums of several groups together; `state` says what holds for all of them."""
    if not parts:
        return state
    arrays: dict[str, Array] = {name: state.arrays[name] for name in common}
    for name, first in parts[0].arrays.items():
        if name not in arrays:
            arrays[name] = first.copy()
            for part in parts[1:]:
                arrays[name] += part.arrays[name]
    return State(arrays, parts[0].facts)


def united(values: Sequence[str], *parts: tuple[Sequence[str], Array]) -> Array:
    """The sum of arrays with one entry per value, as one with an entry for each of `values`, 0 where none has it.

    A single array of these very values is given back as it is.
    """
    _, array = parts[0]
    if all(list(own) == list(values) for own, _ in parts):
        return sum((other for _, other in parts[1:]), array)
    number = {value: place for place, value in enumerate(values)}
    total = np.zeros((len(values), *array.shape[1:]), array.dtype)
    for own, other in parts:
        total[[number[value] for value in own]] += other
    return total
