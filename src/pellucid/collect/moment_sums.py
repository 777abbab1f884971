"""Moment sums: first to fourth moments of rows about a shift, closed under addition and change of shift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pellucid.collect.state import Array, Deferred
from pellucid.collect.sums import Columns, total_of
from pellucid.errors import SweepError, listing

Sums = Mapping[str, Array]
Pairs = tuple[tuple[int, int], ...]
"""Numbers (l, m) of two keys, l ≤ m."""


@dataclass(frozen=True, eq=False)
class MomentsView:
    """Moments of rows and of pairs of keys, from sums about a shift c (x below stands for x − c, a for ‖x‖²).

    `n` [1]; `sum` [total] Σx; `lengths` and `squares` [keys] Σ‖x+c‖ and Σ‖x+c‖²; `norms` [keys] Σa. With pairs:
    `product.l` [d_l, …] Σx_l x_mᵀ for the partners m ≥ l of l side by side, `third` [keys, total] Σa_l x_m, `fourth`
    [keys, keys] Σa_l a_m. Without (`pairs="units"`): `square` [total] Σx². `parts` are the document groups, if kept.
    """

    columns: Columns
    pairs: Pairs | None
    shift: Array
    sums: Sums
    parts: Mapping[str, Sums]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that were read."""
        return self.columns.keys

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.sums["n"][0])

    @property
    def on_disk(self) -> bool:
        """Whether the sums of document groups lie on disk, and are read when they are asked for."""
        return any(isinstance(part, Deferred) for part in self.parts.values())

    @property
    def groups(self) -> tuple[int, ...]:
        """Numbers of the document groups that have rows; none unless they were kept apart."""
        return tuple(int(group) for group in self.parts if group != "all")

    def group(self, number: int) -> MomentsView:
        """The moments of one document group alone."""
        return MomentsView(self.columns, self.pairs, self.shift, self._part(number), {})

    def without(self, number: int) -> MomentsView:
        """The moments of all rows but those of one document group, for the jackknife."""
        return MomentsView(self.columns, self.pairs, self.shift, _Rest(self.sums, self._part(number)), {})

    def shifted(self, shift: Array) -> MomentsView:
        """The same moments about another shift [total], exactly the same up to float64 rounding."""
        change = shift.astype(np.float64) - self.shift
        parts = {group: moved(sums, self.columns, self.pairs, change) for group, sums in self.parts.items()}
        return MomentsView(self.columns, self.pairs, shift, moved(self.sums, self.columns, self.pairs, change), parts)

    def has(self, left: str, right: str) -> bool:
        """Whether the products of two keys were gathered."""
        if left not in self.keys or right not in self.keys:
            return False
        one, other = self._number(left), self._number(right)
        return (min(one, other), max(one, other)) in self._asked

    def mean(self, key: str) -> Array:
        """The mean row μ, [width]."""
        return self.shift[self._place(key)] + self._offset(key)

    def mean_length(self, key: str) -> float:
        """The mean of ‖x‖ over rows, about nothing."""
        return float(self.sums["lengths"][self._number(key)] / self._some())

    def length_variance(self, key: str) -> float:
        """The variance of ‖x‖ over rows."""
        second = float(self.sums["squares"][self._number(key)] / self._some())
        return max(0.0, second - self.mean_length(key) ** 2)

    def variance(self, key: str) -> Array:
        """The variance of every unit, Σ(x−μ)²/n, [width]."""
        if self.pairs is None:
            second = self.sums["square"][self._place(key)]
        else:
            number = self._number(key)
            second = np.diagonal(self._product(number, number))
        return np.maximum(0.0, second / self._some() - self._offset(key) ** 2)

    def scatter(self, left: str, right: str) -> Array:
        """The centred products C = Σ(x−μ_x)(y−μ_y)ᵀ of two keys, [width of left, width of right]."""
        product = self._product(*self._pair(left, right))
        return product - self._some() * np.outer(self._offset(left), self._offset(right))

    def norm_sum(self, key: str) -> float:
        """Σk_i with k_i = ‖x_i − μ‖²: the trace of the key's scatter."""
        offset = self._offset(key)
        return float(self.sums["norms"][self._number(key)] - self._some() * (offset @ offset))

    def norm_products(self, left: str, right: str) -> float:
        """Σk_i·l_i over rows, k_i = ‖x_i − μ_x‖² and l_i = ‖y_i − μ_y‖² (for debiased CKA)."""
        one, other = self._pair(left, right)
        changes = np.zeros(self.columns.total)
        for key in (left, right):
            changes[self._place(key)] = self._offset(key)
        self._some()
        return float(_fourth(self.sums, self.columns, self.pairs or (), changes, one, other))

    def _product(self, left: int, right: int) -> Array:
        if left > right:
            return self._product(right, left).T
        return product_of(self.sums, self.columns, self.pairs or (), left, right)

    def _offset(self, key: str) -> Array:
        """The mean about the shift, [width]."""
        return self.sums["sum"][self._place(key)] / self._some()

    def _some(self) -> int:
        if self.n < 1:
            raise SweepError("These moments hold no rows, so there is no mean; give the sweep a corpus with words.")
        return self.n

    def _number(self, key: str) -> int:
        if key not in self.keys:
            raise SweepError(f"No moments of {key!r} were gathered; there are those of {listing(self.keys, most=40)}.")
        return self.keys.index(key)

    def _place(self, key: str) -> slice:
        return self.columns.slices[self._number(key)]

    def _pair(self, left: str, right: str) -> tuple[int, int]:
        one, other = self._number(left), self._number(right)
        if (min(one, other), max(one, other)) not in self._asked:
            if self.pairs is None:
                raise SweepError(
                    f"The products of {left!r} and {right!r} were not gathered, only single units; sweep again with "
                    "pairs='all'."
                )
            raise SweepError(
                f"The products of {left!r} and {right!r} were not gathered. Sweep again with pairs='all', or with "
                f"pairs=(({left!r}, {right!r}),)."
            )
        return one, other

    @cached_property
    def _asked(self) -> frozenset[tuple[int, int]]:
        return frozenset(self.pairs or ())

    def _part(self, number: int) -> Sums:
        if str(number) not in self.parts:
            raise SweepError(
                f"There is no document group {number}; there are {listing(self.groups)} (groups=True keeps them)."
            )
        return self.parts[str(number)]


def partners(pairs: Pairs, left: int) -> list[int]:
    """The keys m ≥ left whose products with `left` are kept, in order."""
    return [right for one, right in pairs if one == left]


def product_of(sums: Sums, columns: Columns, pairs: Pairs, left: int, right: int) -> Array:
    """The block Σx_l x_mᵀ, l ≤ m, inside its block row."""
    before = sum(columns.widths[m] for m in partners(pairs, left) if m < right)
    name, place = f"product.{left}", slice(before, before + columns.widths[right])
    return sums.block(name, place) if isinstance(sums, _Rest) else sums[name][:, place]


class _Rest(Mapping[str, Array]):
    """Sums over all rows without those of one group; of products, no more is worked out than is asked for."""

    def __init__(self, total: Sums, part: Sums) -> None:
        self._total, self._part = total, part
        self._small = {name: total[name] - part[name] for name in total if not name.startswith("product.")}

    def __getitem__(self, name: str) -> Array:
        return self._small[name] if name in self._small else self._total[name] - self._part[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._total)

    def __len__(self) -> int:
        return len(self._total)

    def block(self, name: str, columns: slice) -> Array:
        """Some columns of an array."""
        return self._total[name][:, columns] - self._part[name][:, columns]


def moved(sums: Sums, columns: Columns, pairs: Pairs | None, change: Array) -> dict[str, Array]:
    """Sums about c as sums about c + e, for e = `change` [total]: every x becomes x − e."""
    n, first, total = int(sums["n"][0]), sums["sum"], columns.slices
    result = {name: array.copy() for name, array in sums.items()}
    result["sum"] = first - n * change
    dots = np.array([change[place] @ first[place] for place in total])
    sizes = np.array([change[place] @ change[place] for place in total])
    result["norms"] = sums["norms"] - 2 * dots + n * sizes
    if pairs is None:
        result["square"] = sums["square"] - 2 * change * first + n * change**2
        return result
    for left in range(len(columns.keys)):
        names = partners(pairs, left)
        other = np.concatenate([change[total[m]] for m in names])
        later = np.concatenate([first[total[m]] for m in names])
        mine, own = change[total[left]], first[total[left]]
        result[f"product.{left}"] += n * np.outer(mine, other) - np.outer(own, other) - np.outer(mine, later)
    for left, right in pairs:
        result["fourth"][left, right] = _fourth(sums, columns, pairs, change, left, right)
        result["fourth"][right, left] = result["fourth"][left, right]
        block = product_of(sums, columns, pairs, left, right)
        for one, other, crossed in ((left, right, block.T), (right, left, block)):
            e, place = change[total[one]], total[other]
            result["third"][one, place] = (
                sums["third"][one, place]
                - 2 * (crossed @ e)
                + sizes[one] * first[place]
                - (sums["norms"][one] - 2 * dots[one] + n * sizes[one]) * change[place]
            )
    return result


def _fourth(sums: Sums, columns: Columns, pairs: Pairs, change: Array, left: int, right: int) -> float:
    """Σa_l a_m after the change of shift: Σ(a_l − 2e_l·x_l + e_l²)(a_m − 2e_m·x_m + e_m²), multiplied out."""
    one, other = columns.slices[left], columns.slices[right]
    e, f = change[one], change[other]
    low, high = min(left, right), max(left, right)
    block = product_of(sums, columns, pairs, low, high)
    # einsum, since a product with NumPy's BLAS would leave its threads spinning beside those that score other pairs
    cross = np.einsum("i,ij->j", change[columns.slices[low]], block) @ change[columns.slices[high]]
    n, e2, f2 = int(sums["n"][0]), e @ e, f @ f
    by_left = sums["norms"][left] - 2 * (e @ sums["sum"][one])  # Σ(a_l − 2e·x_l)
    by_right = sums["norms"][right] - 2 * (f @ sums["sum"][other])
    return (
        sums["fourth"][left, right]
        - 2 * (f @ sums["third"][left, other])
        - 2 * (e @ sums["third"][right, one])
        + 4 * cross
        + f2 * by_left
        + e2 * by_right
        + n * e2 * f2
    )


def view_of(columns: Columns, pairs: Pairs | None, shift: Array, parts: Mapping[str, Sums]) -> MomentsView:
    """The view of several groups' sums (or of the one set called `all`)."""
    return MomentsView(columns, pairs, shift, total_of(parts) or empty_sums(columns, pairs), parts)


def empty_sums(columns: Columns, pairs: Pairs | None) -> dict[str, Array]:
    """The sums over no rows."""
    count = len(columns.keys)
    sums: dict[str, Array] = {"n": np.zeros(1, np.int64), "sum": np.zeros(columns.total)}
    sums |= {name: np.zeros(count) for name in ("lengths", "squares", "norms")}
    if pairs is None:
        return sums | {"square": np.zeros(columns.total)}
    for left in range(count):
        width = sum(columns.widths[m] for m in partners(pairs, left))
        sums[f"product.{left}"] = np.zeros((columns.widths[left], width))
    return sums | {"third": np.zeros((count, columns.total)), "fourth": np.zeros((count, count))}
