"""What is measured on one model of the study of neurons, with the analyses of `pellucid.neurons`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pellucid import neurons
from pellucid.collect.store import Store
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import TrainError
from pellucid.heads.weighing.measuring import measured
from pellucid.neurons import Probe, Ranking, RankingCurves
from pellucid.neurons.probing.material import Reading, kept
from pellucid.neurons.probing.training import device_beside
from pellucid.neurons.ranking import overall_table
from pellucid.studies.neurons.cases import Setup
from pellucid.studies.neurons.dealing import depth_between, depth_of, hidden_units, several_classes
from pellucid.studies.neurons.tables import BARS, STREAMED, Grid
from pellucid.studies.rules import Number
from pellucid.studies.texts import sampled

Array = np.ndarray[Any, Any]
SHARES = (0.01, 0.04, 0.1, 0.15, 0.5)
"""Shares of the neurons that probes are trained on alone: the tutorial has 4, 10 and 15 per cent."""
SMALL = 0.04
"""The share of them that is said to be enough for parts of speech."""
KEPT = (0.01, 0.02)
"""Smaller shares of the neurons that a probe reads alone, beside `FIRST`."""
FIRST = 0.05
"""The share of all neurons that counts as the first ones."""
OF_CLASS = 0.02
"""The same for every class, where classes are compared."""
CLASSES = ("NOUN", "DET")
"""An open and a closed class whose own first neurons are removed in the model."""


class Measuring:
    """The stores of a model's rows, and what is measured on them; grids and numbers gather under their names."""

    def __init__(self, opened: Setup, folder: Path, seed: int) -> None:
        self.opened, self.size, self.seed = opened, opened.size, seed
        self.grids: dict[str, Grid] = {}
        self.numbers: dict[str, Number] = {}
        sites = [*opened.stream, *opened.inner]
        self.ranked = kept(opened.model, opened.ranked, folder / "ranked", Reading(sites, seed=seed), True)
        self.judged = kept(
            opened.model, opened.judged, folder / "judged", Reading(list(opened.stream), seed=seed), True
        )
        self.device = device_beside(opened.model)

    def layers(self, concept: str) -> None:
        """A probe of a concept on every site of the stream, with its controls."""
        found = [
            neurons.per_layer(
                self.ranked, concept=self.opened.concepts[concept], sites=site, seeds=self.size.seeds,
                epochs=self.size.epochs, fewest=self.size.fewest, seed=self.seed, device=self.device,
            )
            for site in self.opened.stream
        ]  # fmt: skip
        self.grids[f"layers {concept}"] = Grid.beside([Grid.of(each) for each in found])

    def sets(self, concept: str) -> Ranking:
        """The neurons of the whole stream by a probe: where the first stand, and what few of them are worth."""
        ranking = self._probe(self.ranked, concept, self.opened.stream)
        total = len(ranking.neurons)
        counts = sorted({max(1, round(share * total)) for share in SHARES})
        anew = neurons.trained_anew(
            self.judged, ranking, concept=self.opened.concepts[concept], sites=list(self.opened.stream), counts=counts,
            draws=self.size.draws, seeds=self.size.curves, epochs=self.size.epochs, fewest=self.size.fewest,
            seed=self.seed, device=self.device,
        )  # fmt: skip
        self.grids[f"anew {concept}"] = Grid.of(anew)
        self.grids[f"beside {concept}"] = beside(anew)
        self.grids[f"smallest {concept}"] = smallest(anew)
        self.numbers[f"whole {concept}"] = _whole(anew)
        first = first_of(total)
        self.grids[f"where {concept}"] = Grid.of(neurons.distribution(ranking, first, seed=self.seed))
        self.numbers[f"depth {concept}"] = depth_of(ranking, first, self.opened.stream)
        return ranking

    def depths(self, one: Ranking, other: Ranking) -> None:
        """How much deeper the first neurons for the syntactic relation stand than those for the part of speech."""
        first = first_of(len(one.neurons))
        self.numbers["depth relation less pos"] = depth_between(one, other, first, self.opened.stream)

    def random_sets(self, ranking: Ranking) -> None:
        """Probes of the part of speech trained on as few neurons at random, set by set.

        The first, the last and one draw of a shuffled order are three sets of random neurons.
        """
        dice, found = np.random.default_rng([self.seed, 23]), list[float]()
        names, count = ranking.neurons, small_of(len(ranking.neurons))
        for _ in range(self.size.shuffles):
            score = dice.permutation(len(names)) + 1.0
            shuffled = replace(ranking, tables={**ranking.tables, "overall": overall_table(names, score, null=None)})
            anew = neurons.trained_anew(
                self.judged, shuffled, concept=self.opened.concepts["pos"], sites=list(self.opened.stream),
                counts=(count,), within=None, draws=1, seeds=self.size.curves, epochs=self.size.epochs,
                fewest=self.size.fewest, seed=self.seed, device=self.device,
            )  # fmt: skip
            found += anew.values[:, 0].tolist()
        self.grids["draws pos"] = Grid((str(count),), tuple(range(len(found))), np.array([found]))

    def shapes(self, ranking: Ranking) -> None:
        """How many neurons each class takes, and how many classes a neuron serves."""
        self.grids["spread"] = Grid.of(neurons.spread(ranking))
        first = max(2, round(OF_CLASS * len(ranking.neurons)))
        self.grids["polysemy"] = Grid.of(neurons.polysemy(ranking, first))
        self.numbers["several classes"] = several_classes(ranking, first, self.opened.stream)

    def sub_layers(self) -> None:
        """Where the first neurons stand inside blocks: what attention adds, or hidden units of the MLP."""
        made = neurons.rank(
            self.ranked, concept=self.opened.concepts["pos"], methods="selectivity", sites=list(self.opened.inner)
        )
        ranking = made["selectivity"]
        first = first_of(len(ranking.neurons))
        self.grids["sub-layers"] = Grid.of(neurons.distribution(ranking, first, seed=self.seed))
        self.numbers["hidden units"] = hidden_units(ranking, first)

    def rankings(self) -> dict[str, Ranking]:
        """All rankings of the neurons at the sites that are compared.

        Forests need scikit-learn. Ablation removes every neuron by itself, so it reads few sentences, and needs a task.
        """
        concept, sites = self.opened.concepts["pos"], list(self.opened.compared)
        found = neurons.rank(self.ranked, concept=concept, methods=STREAMED, sites=sites, seed=self.seed)
        found["probe"] = self._probe(self.ranked, "pos", self.opened.compared, keep=False)
        count = first_of(len(found["probe"].neurons))
        chosen = neurons.gaussian(
            self.ranked, concept=concept, sites=sites, count=count, held=self.size.held, seeds=self.size.curves,
            fewest=self.size.fewest, seed=self.seed,
        )  # fmt: skip
        found["gaussian"] = chosen.ranking()
        if find_spec("sklearn") is not None:
            found["forest"] = neurons.forest(
                self.ranked, concept=concept, sites=sites, seeds=self.size.curves, rows=self.size.grown,
                fewest=self.size.fewest, seed=self.seed,
            )  # fmt: skip
        voted = neurons.vote(found)
        if self.opened.task is not None and self.size.ablated:
            found["ablation"] = neurons.ablation(
                self.opened.model, self._answered(self.opened.ranked, self.size.ablated), self.opened.task, sites=sites,
                replacement="mean", seed=self.seed, progress=False,
            )  # fmt: skip
        self.grids["experts"] = experts(found["precision"])
        self.grids["agreement"] = Grid.of(neurons.agreement(found, k=count))
        return {**found, "vote": voted}

    def kept_in_probe(self, rankings: dict[str, Ranking]) -> None:
        """A probe's accuracy with the first, last and random neurons of every ranking alone, all others at their
        mean; and with every draw of random ones, at the largest number."""
        drawn: list[Array] = []
        for method, ranking in rankings.items():
            found = neurons.ablated_in_probe(
                self.judged, ranking, concept=self.opened.concepts["pos"], sites=list(self.opened.compared),
                counts=_kept(len(ranking.neurons)), keep=True, draws=self.size.draws, seeds=self.size.curves,
                epochs=self.size.epochs, fewest=self.size.fewest, seed=self.seed, device=self.device,
            )  # fmt: skip
            self.grids[f"in probe {method}"] = Grid.of(found)
            self.grids["beside in probe"] = beside(found)
            self.numbers["whole in probe"] = _whole(found)
            drawn.append(found.table("draws").columns["accuracy"][:, -1])
        self.grids["draws in probe"] = Grid(tuple(rankings), tuple(range(self.size.draws)), np.stack(drawn))

    def removed_in_model(self, rankings: dict[str, Ranking]) -> None:
        """The model's own task without the first neurons of every ranking, and without those of two classes.

        Each group of documents is measured on its own, so that all can be compared group by group.
        """
        count = first_of(len(rankings["probe"].neurons))
        for method, ranking in rankings.items():
            self._lost(method, ranking, None, count)
        few = max(1, round(count / 5))
        for cls in CLASSES:
            if cls in rankings["selectivity"].classes:
                self._lost(f"class {cls}", rankings["selectivity"], cls, few)

    def _lost(self, name: str, ranking: Ranking, cls: str | None, removed: int) -> None:
        """Loss and accuracy of the model as it is, and without first, last and random neurons, by document group."""
        part, groups = self.modelled, range(self.size.groups)
        found = [
            neurons.ablated_in_model(
                self.opened.model, part.shard(group, len(groups)), ranking, self.opened.task, cls=cls,
                counts=(removed,), replacement="mean", draws=1, batch=16, seed=self.seed, progress=False,
            )
            for group in groups
        ]  # fmt: skip
        rows = ("whole", *map(str, found[0].axes["measure"]))
        losses = [[_whole(each).value, *each.values[:, 0]] for each in found]
        right = [[each.table("whole").columns["value"][1], *each.table("scores").columns["accuracy"][:, 0]]
                 for each in found]  # fmt: skip
        self.grids[f"loss {name}"] = Grid(rows, tuple(groups), np.array(losses).T)
        self.grids[f"accuracy {name}"] = Grid(rows, tuple(groups), np.array(right).T)

    @cached_property
    def modelled(self) -> Corpus:
        """The sentences that the model itself runs on without neurons."""
        return self._answered(self.opened.judged, self.size.modelled)

    def _answered(self, corpus: Corpus, count: int) -> Corpus:
        """So many sentences, spread over a corpus; for a tagger, of those alone that its task takes by themselves.

        A vocabulary may have no token of its own for a word: too many such words in a small part are refused.
        """
        if self.opened.task != "tagger":
            return sampled(corpus, count)
        pool = sampled(corpus, 2 * count)
        kept: list[Sentence] = []
        for sentence in pool:
            with suppress(TrainError):
                measured(self.opened.model, Corpus.of([sentence]), self.opened.task)
                kept.append(sentence)
        return sampled(Corpus.of(kept, name=pool.name) if 0 < len(kept) < len(list(pool)) else pool, count)

    def stable(self) -> None:
        """How far rankings of disjoint parts of the documents agree."""
        again: dict[str, list[Ranking]] = {method: [] for method in STREAMED}
        for part in range(self.size.parts):
            made = neurons.rank(
                self.opened.model, self.opened.ranked.shard(part, self.size.parts),
                concept=self.opened.concepts["pos"], methods=STREAMED, sites=list(self.opened.compared), control=False,
                seed=self.seed, progress=False, long="window",
            )  # fmt: skip
            for method, ranking in made.items():
                again[method].append(ranking)
        for method, rankings in again.items():
            count = first_of(len(rankings[0].neurons))
            self.grids[f"stability {method}"] = Grid.of(neurons.stability(rankings, counts=(count,), seed=self.seed))

    def _probe(self, store: Store, concept: str, sites: Sequence[str], *, keep: bool = True) -> Ranking:
        found = neurons.probe(
            store, concept=self.opened.concepts[concept], sites=list(sites), seeds=self.size.seeds,
            epochs=self.size.epochs, fewest=self.size.fewest, seed=self.seed, device=self.device, progress=False,
        )  # fmt: skip
        if keep:
            self.grids[f"probe {concept}"] = Grid.of(found)
            self.grids[f"margins {concept}"] = margins(found)
        return found.ranking()


def first_of(total: int) -> int:
    """How many of so many neurons are the first ones."""
    return max(4, round(FIRST * total))


def small_of(total: int) -> int:
    """How many of so many neurons are said to be enough for parts of speech."""
    return max(1, round(SMALL * total))


def _kept(total: int) -> tuple[int, ...]:
    return tuple(sorted({*(max(1, round(share * total)) for share in KEPT), first_of(total)}))


def _whole(found: Any) -> Number:
    """The score of all neurons."""
    return Number(float(found.table("whole").columns["value"][0]), float("nan"))


def beside(found: RankingCurves) -> Grid:
    """The controls of the probes of a ranking's first neurons, [control, neurons], and of all neurons, the last
    column."""
    part, whole = found.table("controls"), found.table("whole")
    last = whole.columns["value"][1:, None]
    values = np.concatenate([part.columns["value"], last], axis=1)
    return Grid(tuple(map(str, part.axes["measure"])), (*part.axes["neurons"], "all"), values)


def margins(found: Probe) -> Grid:
    """A probe's accuracy less each of its controls, with the interval of the difference over documents."""
    table = found.table("margins")
    value, low, high = (None if name not in table.columns else table.columns[name][None]
                        for name in ("value", "low", "high"))  # fmt: skip
    assert value is not None
    return Grid(("value",), table.axes["control"], value, np.zeros_like(value), low, high)


def smallest(found: RankingCurves) -> Grid:
    """The smallest sets that are enough, [column, within]: chosen on documents to learn from, accuracies on others."""
    table = found.table("smallest")
    return Grid(tuple(table.columns), table.axes["within"], np.stack([*map(np.float64, table.columns.values())]))


def experts(ranking: Ranking) -> Grid:
    """The share of neurons whose average precision for any class reaches each bar, of the model and of its random
    twin; chance is the twin's.

    The ends of the model's interval are the shares with every score at the lower, or upper, end of its own, over
    document groups; the twin has none.
    """
    own, ends = np.abs(ranking.values), ranking.size_ends()
    twin = np.abs(ranking.table("random model").columns["value"])

    def shares(sizes: Array) -> Array:
        return np.array([(sizes.max(axis=0) >= bar).mean() for bar in BARS])

    values = np.stack([shares(own), shares(twin)])
    bounds = [np.stack([shares(end), np.full(len(BARS), np.nan)]) for end in ends or ()]
    return Grid(("model", "random model"), BARS, values, np.stack([values[1]] * 2), *bounds)
