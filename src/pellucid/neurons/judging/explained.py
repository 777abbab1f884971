"""Explained neurons: is the model right more often where a neuron fires that a concept explains well?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.attribution.trials.measures import rank_correlation
from pellucid.heads.weighing.measuring import Measured, measured
from pellucid.neurons.judging.ablating import site_width
from pellucid.neurons.judging.ablation import named_sites, provenance
from pellucid.neurons.judging.group_means import over_kept_groups
from pellucid.neurons.ranking import Ranking
from pellucid.results import Array, Result, ResultError, Table
from pellucid.train.tasks import IGNORED

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.model.sites import Site

QUANTILE = 0.95
MEASURES = {"correlation": "rank correlation of a neuron's best score with the accuracy where it fires (Spearman's ρ)"}


@dataclass(frozen=True, eq=False)
class Explained(Result):
    """The rank correlation of explainability and accuracy over neurons, [measure].

    Table `neurons` has for each its best score, its best class, the end at which it fires for that, the share of
    answers that are right where it fires, and how many answers these are.
    """

    kind: ClassVar[str] = "neurons.explained"
    title: ClassVar[str] = "Explained neurons, and how often the model is right where they fire"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "0: scores that know nothing of the answers"


def explained_accuracy(
    ranking: Ranking,
    model: Model,
    corpus: Corpus,
    task: str | None = None,
    *,
    quantile: float = QUANTILE,
    label: str | None = None,
    batch: int = 32,
    length: int | None = None,
    seed: int = 0,
) -> Explained:
    """Explainability (a neuron's best |score|, meant for IoU) against accuracy where it fires (Mu & Andreas 2020).

    A neuron fires at an answer where its activation (for answers about whole texts, the largest at any real token) lies
    strictly above its `quantile`; one whose best score is negative, so that it is low for the class, where its negation
    does. The answers are those of the model's own task, which must tell classes.
    """
    if not 0 < quantile < 1:
        raise ResultError(f"quantile={quantile} must lie between 0 and 1, such as 0.95.")
    found = measured(model, corpus, task, label=label, batch=batch, length=length, seed=seed)
    sites = list(named_sites(model, ranking.neurons))
    names = [f"{site}:{unit}" for site in sites for unit in range(site_width(model, site))]
    place = {name: at for at, name in enumerate(names)}
    own = [place[name] for name in ranking.neurons]
    class_of = np.abs(ranking.values).argmax(0)
    low = ranking.values[class_of, np.arange(len(own))] < 0
    side = np.ones(len(names))
    side[own] = np.where(low, -1.0, 1.0)
    values, right, groups = _answers(found, sites, side)
    values = values[:, own]
    fires = values > np.quantile(values, quantile, axis=0, method="lower")
    alive = fires.any(0)
    if alive.sum() < 3:
        raise ResultError(f"{int(alive.sum())} neurons ever fire above their {quantile} quantile; give more text.")
    scores = np.abs(ranking.values).max(0)

    def correlation(kept: Array) -> Array:
        mine = np.isin(groups, kept)
        times = fires[mine].sum(0)
        share = (fires[mine] & right[mine, None]).sum(0) / np.maximum(1, times)
        some = times > 0
        return np.array([rank_correlation(scores[some], share[some])])

    value, interval = over_kept_groups(correlation, np.bincount(groups))
    accuracy = (fires & right[:, None]).sum(0) / np.maximum(1, fires.sum(0))
    best = {"class": np.array(ranking.classes)[class_of], "end": np.where(low, "lower", "upper")}
    columns = {"score": scores, **best, "accuracy": accuracy, "answers": fires.sum(0)}
    told = {"method": ranking.method, "concept": ranking.concept, "quantile": quantile, "right": float(right.mean())}
    return Explained(
        axes={"measure": tuple(MEASURES)},
        values=value,
        null=np.zeros(1),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=provenance(found, "neurons.explained", told),
        tables={"neurons": Table({"neuron": ranking.axes["neuron"]}, columns)},
    )


def _answers(found: Measured, sites: list[Site], side: Array) -> tuple[Array, Array, Array]:
    """Activations [answers, neurons], whether each answer is right, and its document group.

    Activations are multiplied by `side` [neurons], 1 or −1, before the largest of a text is taken.
    """
    values: list[Array] = []
    right: list[Array] = []
    groups: list[Array] = []
    for step in range(found.steps()):
        batch = found.batch(step)
        through = found.passing(sites=sites)
        logits = found.task.logits(through, batch)
        assert through.last is not None
        goals = batch["goals"]
        real = (goals != IGNORED).cpu().numpy()
        mask = through.last.batch.mask.bool() if through.last.batch is not None else batch["attention_mask"].bool()
        parts: list[Array] = []
        start = 0
        for site in sites:
            tensor = through.last[site].float()
            tensor = tensor.transpose(1, 2).flatten(2) if tensor.dim() == 4 else tensor  # [B, T, neurons]
            turned = side[start : start + tensor.shape[2]].tolist()
            start += tensor.shape[2]
            tensor = tensor * tensor.new_tensor(turned)
            if goals.dim() == 1:  # an answer for the whole text: padding must not win
                tensor = tensor.masked_fill(~mask[:, :, None].to(tensor.device), -np.inf).amax(1)
            parts.append(tensor.cpu().numpy()[real])
        values.append(np.concatenate(parts, axis=1))
        right.append((logits.argmax(-1) == goals).cpu().numpy()[real])
        owners = found.groups[found.owners(step).numpy()]
        groups.append((owners if goals.dim() == 1 else np.repeat(owners[:, None], goals.shape[1], axis=1))[real])
    return np.concatenate(values), np.concatenate(right), np.concatenate(groups)
