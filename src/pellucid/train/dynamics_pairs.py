"""Two epochs side by side: their sampled words as if both networks had been swept together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pellucid.collect.collector import Collector, Setting
from pellucid.collect.found import Found, KeptSentences, facts_to_json, found_of
from pellucid.collect.moments import Moments
from pellucid.collect.runner import RECORD
from pellucid.collect.sample import PLACES, TokenSample, TokenSampleView
from pellucid.collect.state import Array, State
from pellucid.collect.words import WordBatch
from pellucid.errors import TrainError
from pellucid.similarity.metrics import Metric
from pellucid.similarity.pair import LEAST
from pellucid.train.dynamics_looks import Look, Looks

_PILOT = 512
"""Words whose mean is taken away before products are summed."""


@dataclass(frozen=True, eq=False)
class Seen:
    """The sampled words of one epoch of one run."""

    looks: Looks
    look: Look
    view: TokenSampleView

    @staticmethod
    def of(looks: Looks, epoch: int) -> Seen:
        """Reads one epoch's sample."""
        return Seen(looks, *looks.sample(epoch))

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that were looked at."""
        return self.view.keys


def check_same_text(one: Looks, other: Looks) -> None:
    """Refuses two runs that were watched on different texts, or whose words were drawn otherwise."""
    if one.about["text"] != other.about["text"]:
        names = [each.about["corpus"]["name"] for each in (one, other)]
        raise TrainError(
            f"The runs in {str(one.folder.parent)!r} and {str(other.folder.parent)!r} were watched on different "
            f"validation texts ({names[0]!r} and {names[1]!r}; their fingerprints differ); train both with the same."
        )


def beside(one: Seen, other: Seen, wanted: Sequence[Metric], *, every: bool = False) -> Found:
    """A sweep over [one epoch, another epoch] made from the words that both samples hold, for some scores.

    Each layer stands beside its own alone, or with `every` beside all layers of the other. Products are float64.
    """
    check_same_text(one.looks, other.looks)
    ordinal, here, there = np.intersect1d(one.view.ordinal, other.view.ordinal, assume_unique=True, return_indices=True)
    if not np.array_equal(one.view.arrays["hash"][here], other.view.arrays["hash"][there]):
        raise TrainError("The two runs drew their words by different seeds; look at both with the same.")
    if len(ordinal) < LEAST:
        raise TrainError(f"The two samples have {len(ordinal)} words in common, and a comparison needs {LEAST}.")
    rows = {f"0:{key}": one.view.rows(key)[here] for key in one.sites}
    rows |= {f"1:{key}": other.view.rows(key)[there] for key in other.sites}
    places = {name: one.view.arrays[name][here] for name in PLACES}
    models = (one.look.model, other.look.model)
    states: dict[str, State] = {RECORD: State({}, {"unmatched": 0, "halved": []})}
    pilots: dict[str, State] = {}
    named: dict[str, Collector] = {}
    if any(metric.needs == "moments" for metric in wanted):
        shared = [key for key in one.sites if key in other.sites]
        pairs = tuple((f"0:{left}", f"1:{right}") for left in one.sites for right in other.sites)
        pairs = pairs if every else tuple((f"0:{key}", f"1:{key}") for key in shared)
        named["0-moments"] = moments = Moments(tuple(rows), pairs=pairs, groups=True, precision="float64")
        setting = Setting(models, one.looks.about["reading"]["pooling"], torch.device("cpu"))
        pilots["0-moments"], states["0-moments"] = _moments(moments, setting, rows, places)
    sample = TokenSample(tuple(rows), size=max(1, len(ordinal)))
    named["1-token-sample"] = sample
    kept = {f"rows/{number}": array for number, array in enumerate(rows.values())}
    states["1-token-sample"] = State({**places, **kept}, {"keys": list(rows), "seed": sample.seed})
    about: dict[str, Any] = {
        **one.looks.about,
        "models": [facts_to_json(each) for each in models],
        "collectors": {name: each.describe() for name, each in named.items()},
        "counts": {**one.looks.about["counts"], "words": len(ordinal)},
    }
    return found_of(about, states, pilots, KeptSentences({}))


def _moments(
    collector: Moments, setting: Setting, rows: Mapping[str, Array], places: Mapping[str, Array]
) -> tuple[State, State]:
    """The pilot's shift and the moments of sampled rows, their document groups apart."""

    def batch(chosen: Array, group: int) -> WordBatch:
        held = {key: torch.from_numpy(array[chosen]) for key, array in rows.items()}
        sentence, position, ordinal = (places[name][chosen] for name in ("sentence", "position", "ordinal"))
        return WordBatch(held, sentence, position, ordinal, group, {})

    groups = places["group"]
    pilot = collector.pilot(batch(np.arange(min(len(groups), _PILOT)), 0), setting)
    sums = collector.open(replace(setting, pilot=pilot))
    for group in np.unique(groups):
        sums.add(batch(np.flatnonzero(groups == group), int(group)))
    return pilot, sums.state()
