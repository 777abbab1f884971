"""Rankings: how strongly every neuron carries every class of a concept, whichever method found it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pellucid.errors import listing
from pellucid.results import Array, Result, ResultError, Table

BY = ("absolute", "signed")
_EQUAL = 1e-9
"""Sizes of scores that differ by less than this share are equal: two classes mirror each other but for rounding."""
TOGETHER = ("gaussian",)
"""Methods that tell all classes apart at once: a neuron's score has one size in all of them, and only signs differ."""
OVERALL = ("score", "null", "low", "high")
"""Columns of the table `overall`; `low` and `high` are there where the result has an interval."""


@dataclass(frozen=True, eq=False)
class Ranking(Result):
    """Scores of every neuron for every class, [class, neuron]; a positive score means that it fires *for* the class.

    A neuron is written SITE:INDEX, `resid.3:17`; at sites with heads the slices of all heads stand side by side, so
    that unit u of head h is INDEX h·width + u. The table `overall` holds the method's own score across classes.
    `title`, `score` and `chance` are those of the method in `pellucid.neurons.methods.RANKINGS`.
    """

    kind: ClassVar[str] = "neurons.ranking"

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.axes) != ["class", "neuron"]:
            raise ResultError(f"A ranking has the axes class and neuron, and {listing(self.axes)} were given.")
        overall = self.tables.get("overall")
        if overall is None or overall.axes.get("neuron") != self.axes["neuron"] or "score" not in overall.columns:
            raise ResultError("A ranking needs a table 'overall' with the column 'score' for each of its neurons.")

    @property
    def method(self) -> str:
        """The name of the method that ranked."""
        return str(self.provenance.arguments.get("method", ""))

    @property
    def concept(self) -> str:
        """The name of the concept that the neurons were ranked for."""
        return str(self.provenance.arguments.get("concept", ""))

    @property
    def title(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # one class for all methods
        """What was ranked, and how."""
        from pellucid.neurons.methods import described

        wanted = f" for {self.concept}," if self.concept else ""
        return f"Neurons{wanted} by {described(self.method).title}"

    @property
    def score(self) -> str:
        """What a score is, in a few words."""
        from pellucid.neurons.methods import described

        return described(self.method).score

    @property
    def chance(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What `null` is, in a few words."""
        from pellucid.neurons.methods import described

        return described(self.method).chance

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that have scores."""
        return tuple(str(name) for name in self.axes["class"])

    @property
    def classes_apart(self) -> tuple[str, ...]:
        """The classes that have an order of their own; none where the method tells more than two apart at once."""
        return () if self.method in TOGETHER and len(self.classes) > 2 else self.classes

    @property
    def neurons(self) -> tuple[str, ...]:
        """The names of all neurons, site by site."""
        return tuple(str(name) for name in self.axes["neuron"])

    @property
    def overall(self) -> Table:
        """The score of every neuron across classes, by the method's own rule, and what chance gives."""
        return self.table("overall")

    @property
    def random_model(self) -> Array | None:
        """What the neurons of the randomly initialised model score across classes, [neuron]; None where none was read.

        Of Probeless it is the sum over all pairs of classes, of all others the largest size.
        """
        table = self.tables.get("random model")
        if table is None:
            return None
        sizes = np.abs(table.columns["value"])
        return sizes.sum(axis=0) / 2 if self.method == "probeless" and len(sizes) > 1 else sizes.max(axis=0)

    @property
    def accuracies(self) -> dict[str, float]:
        """How well what ranked tells the classes of documents that it did not learn from, and its controls, by name.

        From the table `accuracy`, which rankings of probes, forests and Gaussians have; others have none. Of forests it
        is the mean over seeds.
        """
        table = self.tables.get("accuracy")
        if table is None:
            return {}
        if "seed" in table.axes:
            return {"accuracy" if name == "forest" else name: float(part.mean())
                    for name, part in table.columns.items()}  # fmt: skip
        first = {name: float(part[0]) for name, part in table.columns.items() if name != "value"}
        return {**dict(zip(map(str, table.axes["measure"]), table.columns["value"].tolist(), strict=True)), **first}

    def scores(self, cls: str | None = None, *, by: str = "absolute") -> Array:
        """The numbers that an order goes by, [neuron]: of one class, or overall; their size, or `signed` as they are.

        With a sign, a neuron that is low for the class stands at the end. A class of a method that tells several
        apart at once has no order of its own, and is refused.
        """
        if by not in BY:
            raise ResultError(f"Neurons are ordered by {listing(BY)}, not by {by!r}.")
        if cls is not None and self.place("class", cls) >= 0 and cls not in self.classes_apart:
            raise ResultError(
                f"{self.method!r} tells all {len(self.classes)} classes apart at once, so {cls!r} has no order of its "
                "own: leave the class out, or rank a concept of that class alone, such as 'upos=NOUN'."
            )
        chosen = self.overall.columns["score"] if cls is None else self.values[self.place("class", cls)]
        return np.abs(chosen) if by == "absolute" else np.array(chosen)

    def size_ends(self) -> tuple[Array, Array] | None:
        """Both ends of the sizes of scores, [class, neuron] each; None without an interval."""
        if self.low is None or self.high is None:
            return None
        down = self.values < 0
        return np.where(down, -self.high, self.low), np.where(down, -self.low, self.high)

    def order(self, cls: str | None = None, *, by: str = "absolute", seed: int | None = None) -> list[str]:
        """The names of all neurons, the most important first; of equals, the one that stands first in the model.

        With a `seed`, equals come in random order: those that a method has not chosen are no layer's alone.
        """
        names = self.neurons
        places = np.arange(len(names)) if seed is None else np.random.default_rng([seed, 6]).permutation(len(names))
        return [names[place] for place in np.lexsort((places, -self.scores(cls, by=by))).tolist()]

    def in_order(self, neurons: Sequence[str]) -> Ranking:
        """The same ranking, its neurons written in another order."""
        if tuple(neurons) == self.neurons:
            return self
        place = {name: at for at, name in enumerate(self.neurons)}
        chosen = [place[name] for name in neurons]

        def moved(array: Array, axes: Iterable[str]) -> Array:
            return array.take(chosen, axis=list(axes).index("neuron"))

        cells = {name: None if array is None else moved(array, self.axes)
                 for name, array in (("null", self.null), ("low", self.low), ("high", self.high))}  # fmt: skip
        tables = {name: table if "neuron" not in table.axes else Table(
                      {**table.axes, "neuron": tuple(neurons)},
                      {column: moved(values, table.axes) for column, values in table.columns.items()})
                  for name, table in self.tables.items()}  # fmt: skip
        values, axes = moved(self.values, self.axes), {**self.axes, "neuron": tuple(neurons)}
        return replace(self, axes=axes, values=values, tables=tables, **cells)

    def best_class(self, neuron: str) -> tuple[str, float]:
        """The class that a neuron tells best, by the size of its score, and that; of equals, one it is high for."""
        own = self.values[:, self.place("neuron", neuron)]
        equal = np.abs(own) >= (1 - _EQUAL) * np.abs(own).max()
        best = int(np.where(equal, own, -np.inf).argmax())
        return self.classes[best], float(own[best])

    def with_side(self, neuron: str, cls: str) -> str:
        """A neuron's name, with a minus sign where it is low for the class."""
        low = self.values[self.place("class", cls), self.place("neuron", neuron)] < 0
        return f"{'−' if low else ''}{neuron}"

    def top(self, k: int, cls: str | None = None, *, by: str = "absolute") -> list[str]:
        """The names of the `k` most important neurons."""
        if not 1 <= k <= len(self.neurons):
            raise ResultError(f"There are {len(self.neurons)} neurons, so there is no top {k}.")
        return self.order(cls, by=by)[:k]


def neuron_names(site: str, width: int) -> tuple[str, ...]:
    """The names of all neurons of a site."""
    return tuple(f"{site}:{index}" for index in range(width))


def split_name(name: str) -> tuple[str, int]:
    """The site and index of a neuron's name."""
    site, colon, index = name.rpartition(":")
    if not colon or not site or not index.isdecimal():
        raise ResultError(f"{name!r} names no neuron; write its site and its number, as in 'neurons.3:17'.")
    return site, int(index)


def by_site(names: Sequence[str]) -> dict[str, list[int]]:
    """Neurons by their site: the numbers of each site, in the order given."""
    found: dict[str, list[int]] = {}
    for name in names:
        site, index = split_name(name)
        found.setdefault(site, []).append(index)
    return found


def accuracy_table(
    names: Sequence[str], values: Array, *, majority: Array, low: Array | None = None, high: Array | None = None
) -> Table:
    """The table `accuracy` of a ranking; every array is [measure], the first of which is the accuracy itself."""
    parts = {"value": values, "majority": majority, "low": low, "high": high}
    columns = {name: np.asarray(part, np.float64) for name, part in parts.items() if part is not None}
    return Table({"measure": tuple(names)}, columns)


def accuracy_told(ranking: Ranking) -> str:
    """The accuracy of what ranked beside its controls, in a line; empty where nothing was tested."""
    told = ranking.accuracies
    if not told:
        return ""
    reach = f" ({told['low']:.1%} to {told['high']:.1%})" if "low" in told else ""
    beside = ", ".join(f"{name} {value:.1%}" for name, value in told.items() if name not in ("accuracy", "low", "high"))
    return f"{told['accuracy']:.1%}{reach}; {beside}"


def overall_table(
    neurons: Sequence[str], score: Array, *, null: Array | None, low: Array | None = None, high: Array | None = None
) -> Table:
    """The table `overall` of a ranking; every array is [neuron]."""
    parts = dict(zip(OVERALL, (score, null, low, high), strict=True))
    columns = {name: np.asarray(part, np.float64) for name, part in parts.items() if part is not None}
    return Table({"neuron": tuple(neurons)}, columns)
