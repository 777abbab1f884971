"""How networks learned: any epoch, run and pair of layers compared, from what was kept while they were trained."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.errors import TrainError, listing
from pellucid.similarity import grid as grid_of
from pellucid.similarity.following import follow, follow_runs
from pellucid.similarity.metrics import chosen
from pellucid.similarity.training import Convergence, EpochByEpoch, convergence, epoch_by_epoch
from pellucid.train.dynamics_looks import Look, Looks
from pellucid.train.dynamics_pairs import Seen, beside, check_same_text
from pellucid.train.dynamics_watching import Watcher, attention_on
from pellucid.train.folder import Run

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.state import Array
    from pellucid.corpus import Corpus
    from pellucid.similarity import SimilarityGrid

__all__ = ["Dynamics", "Look", "Watcher"]

Scores = str | Iterable[str]


class Dynamics:
    """What was kept of a run while it was trained; every comparison reads it from disk, an epoch or two at a time."""

    def __init__(self, looks: Looks) -> None:
        self.looks = looks

    @staticmethod
    def open(folder: str | Path) -> Dynamics:
        """The dynamics of the run in a folder (or of its folder `dynamics`)."""
        looks = Looks.open(folder)
        if not looks.epochs:
            raise TrainError(f"{str(looks.folder)!r} holds no look at any epoch yet.")
        return Dynamics(looks)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.looks.folder.parent

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.folder.absolute().name

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that were looked at, rising; 0 is the network before training."""
        return self.looks.epochs

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that were looked at."""
        return Seen.of(self.looks, self.epochs[0]).sites

    @property
    def words(self) -> int:
        """Words of the validation text whose rows were kept."""
        return int(self.looks.about["sample"]["words"])

    def found(self, epoch: int) -> Found:
        """One epoch's moments (over the whole validation text) and sampled words, as a sweep gives them."""
        return self.looks.found(epoch)

    def grid(
        self, epoch: int, scores: Scores = "cka", *, sites: str | None = None, interval: bool | None = None
    ) -> SimilarityGrid:
        """Every layer of one epoch with every other, over the whole validation text: `similarity.grid` of it."""
        method = "moments" if any(name.endswith("moments") for name in self.looks.about["collectors"]) else "gram"
        return grid_of(self.found(epoch), scores, left=sites, right=sites, interval=interval, method=method)

    def compare(
        self,
        epoch: int,
        other_epoch: int,
        scores: Scores = "cka",
        *,
        other: Dynamics | None = None,
        left: str | None = None,
        right: str | None = None,
        interval: bool | None = None,
    ) -> SimilarityGrid:
        """Every layer of one epoch with every layer of another, of this run or of another one, over the sampled words.

        `left` and `right` choose sites, as `"resid.2"`.
        """
        looks = self.looks if other is None else other.looks
        pair = beside(Seen.of(self.looks, epoch), Seen.of(looks, other_epoch), chosen(scores), every=True)
        found = grid_of(pair, scores, left=_keyed(0, left), right=_keyed(1, right), interval=interval)
        sampled = f"the {pair.words:,} sampled words"  # all that this comparison has, yet not all of the text
        return replace(found, resampled=re.sub(r"\ball words(?: \(moments in memory\))?", sampled, found.resampled))

    def alike(
        self, epoch: int, other_epoch: int, score: str = "cka", *, other: Dynamics | None = None
    ) -> dict[str, float]:
        """The score of every layer of one epoch with the same layer of another, by site, over the sampled words."""
        looks = self.looks if other is None else other.looks
        one, two = Seen.of(self.looks, epoch), Seen.of(looks, other_epoch)
        result = epoch_by_epoch([beside(one, two, chosen(score))], score, sites=_shared(one, two), interval=False)
        return dict(zip(map(str, result.axes["layer"]), result.values[0, :, 0].tolist(), strict=True))

    def convergence(
        self,
        scores: Scores = "cka",
        *,
        epochs: Sequence[int] | None = None,
        sites: str | None = None,
        interval: bool | None = None,
    ) -> Convergence:
        """Every layer of each epoch with the same layer of the last, over the sampled words, with chance and interval.

        Where the network began with random weights, epoch 0 is the randomly initialised model that stands beside it.
        """
        wanted = chosen(scores)
        steps = self._chosen(epochs)
        random = 0 in steps and bool(self.looks.about["fresh"])
        earlier = [epoch for epoch in steps[:-1] if epoch or not random]
        last = Seen.of(self.looks, steps[-1])
        if not earlier:
            raise TrainError(
                f"The run in {str(self.folder)!r} was looked at after epoch {listing(steps)} alone; how layers come to "
                "be needs at least two epochs after training began: go on with it, or train for longer."
            )

        def pairs() -> Iterator[Found]:
            for epoch in earlier:
                yield beside(Seen.of(self.looks, epoch), last, wanted)

        start = beside(Seen.of(self.looks, 0), last, wanted) if random else None
        names = [metric.name for metric in wanted]
        return convergence(pairs(), names, steps=(*earlier, steps[-1]), sites=sites, interval=interval, random=start)

    def between(
        self,
        other: Dynamics,
        scores: Scores = "cka",
        *,
        against: int | None = None,
        sites: str | None = None,
        interval: bool | None = None,
    ) -> EpochByEpoch:
        """Every layer of each epoch with the same layer of another run: at the same epoch, or always at `against`."""
        check_same_text(self.looks, other.looks)
        wanted = chosen(scores)
        steps = [epoch for epoch in self.epochs if against is not None or epoch in other.epochs]
        if not steps:
            raise TrainError(
                f"The runs have no epoch in common: {listing(self.epochs)} and {listing(other.epochs)}; give against=."
            )
        first = Seen.of(self.looks, steps[0]), Seen.of(other.looks, steps[0] if against is None else against)
        shared = sites or _shared(*first)

        def pairs() -> Iterator[Found]:
            fixed = None if against is None else first[1]
            for epoch in steps:
                yield beside(Seen.of(self.looks, epoch), fixed or Seen.of(other.looks, epoch), wanted)

        names = [metric.name for metric in wanted]
        return epoch_by_epoch(pairs(), names, steps=steps, sites=shared, interval=interval)

    def exact(
        self,
        corpus: Corpus,
        scores: Scores = "cka",
        *,
        epochs: Sequence[int] | None = None,
        interval: bool | None = None,
        folder: str | Path | None = None,
        using: Any = None,
    ) -> Convergence:
        """`convergence` over the whole validation text: saved checkpoints are swept again beside the last of them.

        `folder` and `using` are those of `similarity.follow`.
        """
        kept = self._checkpoints(corpus, epochs)
        if len(kept) < 2:
            raise TrainError(
                f"The run in {str(self.folder)!r} saved the checkpoint of epoch {listing(kept)} alone, and this "
                "comparison needs two; train with checkpoints='all' (--checkpoints all), or name epochs to keep."
            )
        random = 0 not in kept and bool(self.looks.about["fresh"])
        return follow(kept, corpus, scores, random=random, interval=interval, folder=folder, using=using)

    def exact_between(
        self,
        other: Dynamics,
        corpus: Corpus,
        scores: Scores = "cka",
        *,
        epochs: Sequence[int] | None = None,
        interval: bool | None = None,
        folder: str | Path | None = None,
        using: Any = None,
    ) -> EpochByEpoch:
        """`between` over the whole validation text: checkpoints that both runs saved are swept again together."""
        one, two = self._checkpoints(corpus, epochs), other._checkpoints(corpus, epochs)
        both = [epoch for epoch in one if epoch in two]
        if not both:
            raise TrainError(f"The runs saved no epoch in common: {listing(one)} and {listing(two)}.")
        mine, theirs = ({epoch: each[epoch] for epoch in both} for each in (one, two))
        return follow_runs(mine, theirs, corpus, scores, interval=interval, folder=folder, using=using)

    def patterns(self, epoch: int) -> dict[str, Array]:
        """Attention weights [heads, tokens, tokens] of one epoch on the sentence of the pictures, by site."""
        return self.looks.look(epoch).patterns()

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of the sentence of the pictures."""
        return tuple(self.looks.about["sentence"]["tokens"])

    def patterns_on(self, text: str, epoch: int) -> tuple[tuple[str, ...], dict[str, Array]]:
        """The tokens of a text, and the attention weights on it of an epoch whose checkpoint was saved, by site."""
        model = Run.open(self.folder).model(epoch)
        sites = tuple(str(site) for site in model.sites if site.kind == "pattern" and site.stack in (None, "encoder"))
        tokens, found = attention_on(model, text, sites)
        return tuple(tokens), found

    def _chosen(self, epochs: Sequence[int] | None) -> list[int]:
        """The epochs asked for, rising; one that was not looked at is refused."""
        steps = sorted(set(self.epochs if epochs is None else epochs))
        for epoch in steps:
            self.looks.look(epoch)
        return steps

    def _checkpoints(self, corpus: Corpus, epochs: Sequence[int] | None) -> dict[int | str | float, Any]:
        """The saved checkpoints of some epochs, for a text that must be the one that was watched."""
        from pellucid.collect.again import text_fingerprint

        if text_fingerprint(corpus) != self.looks.about["text"]:
            raise TrainError(
                f"{corpus.name!r} is not the text on which the run in {str(self.folder)!r} was watched "
                f"({self.looks.about['corpus']['name']!r}; their fingerprints differ); give that one."
            )
        kept: Mapping[int, Path] = Run.open(self.folder).checkpoints()
        absent = [epoch for epoch in epochs or () if epoch not in kept]
        if absent or not kept:
            raise TrainError(
                f"The run in {str(self.folder)!r} saved no checkpoint of epoch {listing(absent or ['0'])}; it saved "
                f"{listing(kept, most=60)}."
            )
        return {epoch: place for epoch, place in kept.items() if epochs is None or epoch in epochs}


def _keyed(number: int, sites: str | None) -> str | None:
    """Sites of one of two models, as a sweep over both names them."""
    return None if sites is None else ",".join(f"{number}:{part.strip()}" for part in sites.split(","))


def _shared(one: Seen, other: Seen) -> str:
    """The sites that both have, as a pattern."""
    both = [site for site in one.sites if site in other.sites]
    if not both:
        raise TrainError(
            f"The two runs have no layer of the same name: {listing(one.sites)} and {listing(other.sites)}; compare "
            "them with compare(), which takes every pair."
        )
    return ",".join(both)
