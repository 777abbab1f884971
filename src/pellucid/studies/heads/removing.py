"""A model with ever fewer heads, for the study of heads: what is left of its task on text that it was not chosen by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.heads import Measured, Pruning
from pellucid.model import Edit
from pellucid.studies.heads.tables import WAYS, Curve
from pellucid.uncertainty import jackknife

if TYPE_CHECKING:
    from pellucid.heads import HeadImportance

Array = np.ndarray[Any, Any]
LEAST = 1e-3
"""What a model must be better than guessing, in accuracy or nats, for a share of it to mean something."""


def order_of(importance: HeadImportance) -> tuple[str, ...]:
    """All heads, the most important first: by zero ablation."""
    return importance.ranking("zero")


def left_at(pruning: Pruning) -> dict[int, list[str]]:
    """The heads that learned gates left open, for every number of heads on the way, from all down."""
    return {int(count): pruning.survivors(int(count)) for count in pruning.axes["heads"]}


def removing(gone: Iterable[str]) -> list[Edit]:
    """Edits that take away heads of some names, LAYER.HEAD or STACK.LAYER.HEAD."""
    by_site: dict[str, list[int]] = {}
    for name in gone:
        layer, _, head = name.rpartition(".")
        stack, _, number = layer.rpartition(".")
        by_site.setdefault(f"{stack}.heads.{number}" if stack else f"heads.{number}", []).append(int(head))
    return [Edit.zero(site, heads=heads) for site, heads in by_site.items()]


def curve(found: Measured, pruning: Pruning, order: Sequence[str], *, draws: int, seed: int) -> Curve:
    """The model measured with as many heads as gates left at each point, chosen by them, by an order and at random.

    What is kept is (s − c)/(s₀ − c), s the accuracy or minus the loss, s₀ that of the model as it is and c guessing;
    its interval leaves out groups of documents from both s and s₀.
    """
    names = [str(name) for name in pruning.table("gates").axes["head"]]
    left = left_at(pruning)
    counts = tuple(sorted(left, reverse=True))
    dice = np.random.default_rng(seed)
    orders = [list(order), *([names[at] for at in dice.permutation(len(names))] for _ in range(draws))]
    chosen = [*(left[count] for count in counts), *(each[:count] for each in orders for count in counts)]
    gone = [[name for name in names if name not in set(kept)] for kept in chosen]
    losses, hits, goals = group_sums(found, [removing(heads) for heads in gone])
    score = "accuracy" if found.task.best == "accuracy" else "perplexity"
    chance = found.chance()["accuracy" if score == "accuracy" else "loss"]
    worth, level = (hits, chance) if score == "accuracy" else (-losses, -chance)
    shape = (2 + draws, len(counts))

    def kept(groups: Array) -> Array:
        reached = (worth[:, groups].sum(1) / goals[groups].sum()).reshape(shape)
        if reached[0, 0] - level < LEAST:  # no better than guessing: there is nothing to lose
            return np.ones(shape)
        return (reached - level) / (reached[0, 0] - level)

    every = np.arange(len(goals))
    whole = kept(every)
    several = [number for number in every if goals[number] > 0]
    without = [kept(every[every != number]) for number in several] if len(several) > 1 else []
    interval = jackknife(whole, without, [float(goals[number]) for number in several] if without else [])
    low, high = (whole if end is None else end for end in (interval.low, interval.high))
    reached = (hits if score == "accuracy" else losses).sum(1).reshape(shape) / goals.sum()
    scores = reached if score == "accuracy" else np.exp(np.minimum(reached, 700.0))

    def ways(first: Array, last: Array) -> Array:
        return np.stack([first[0], first[1], last])

    made = Curve(
        score,
        float(chance if score == "accuracy" else np.exp(chance)),
        counts,
        ways(scores, scores[2:].mean(0)),
        ways(whole, whole[2:].mean(0)),
        ways(low, whole[2:].min(0)),
        ways(high, whole[2:].max(0)),
    )
    assert made.kept.shape == (len(WAYS), len(counts))
    return made


def group_sums(found: Measured, settings: Sequence[Sequence[Edit]]) -> tuple[Array, Array, Array]:
    """Losses in nats and goals that were found [settings, groups], and goals [groups], of a model under edits."""
    losses, hits = (np.zeros((len(settings), found.group_count)) for _ in range(2))
    goals = np.zeros(found.group_count)
    for step in range(found.steps()):
        batch, owners = found.batch(step), found.groups[found.owners(step).numpy()]
        for place, edits in enumerate(settings):
            rows = found.rows(batch, edits)
            np.add.at(losses[place], owners, rows.losses.cpu().numpy())
            np.add.at(hits[place], owners, rows.hits.cpu().numpy())
            if place == 0:
                np.add.at(goals, owners, rows.goals.cpu().numpy())
    return losses, hits, goals


def translations(found: Measured, networks: dict[str, list[str]], sentences: int) -> dict[str, list[Any]]:
    """What the model writes without some heads, {name: heads that are gone}, for sentences spread over the corpus."""
    from pellucid.train.tasks.translation import Translations, spread, translated

    examples = found.examples
    assert isinstance(examples, Translations)
    chosen = spread(examples.sentences, sentences)
    told: dict[str, list[Any]] = {
        "source": [examples.texts[row][0] for row in chosen.tolist()],
        "right": [examples.texts[row][1] for row in chosen.tolist()],
        "groups": found.groups[chosen.numpy()].tolist(),
    }
    for name, gone in networks.items():
        told[name] = translated(found.passing(removing(gone)), examples, chosen, found.model.device, found.settings)
    return told
