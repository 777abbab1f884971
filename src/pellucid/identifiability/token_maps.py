"""Maps from hidden states to another layer: by least squares from moments, and perceptrons trained on a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from pellucid.results import Array, ResultError

if TYPE_CHECKING:
    from pellucid.collect.moment_sums import MomentsView
    from pellucid.collect.sample import TokenSampleView

RIDGE = 1e-4
"""Added to the covariance's diagonal, as a share of its mean."""
HIDDEN = 2
"""Hidden units of a perceptron, in times of the width."""
STEPS, BATCH, RATE = 600, 256, 2e-3
ENOUGH = 5
"""Tokens that a map should be fitted on, in times of the width of the states."""
FEWEST = 10
"""Tokens without which no perceptron is trained."""
PATIENCE = 5
"""Looks at the held-out part without a better one after which training ends."""


def fit_linear(moments: MomentsView, keys: Sequence[str], target: str) -> dict[str, Array]:
    """W = (C_xx + λI)⁻¹·C_xy for every key, with λ = `RIDGE` times the mean variance; names as in `Maps`."""
    arrays: dict[str, Array] = {}
    for key in keys:
        own = np.array(moments.scatter(key, key))
        own[np.diag_indices_from(own)] += RIDGE * np.trace(own) / len(own)
        arrays[f"{key}/mean"] = moments.mean(key)
        arrays[f"{key}/scale"] = np.sqrt(np.maximum(moments.variance(key), 1e-12))
        arrays[f"{key}/linear/weight"] = np.linalg.solve(own, moments.scatter(key, target))
        arrays[f"{key}/linear/bias"] = moments.mean(target)
    return arrays


def few_tokens(what: str, n: int, width: int, *, most: int | None = None) -> str | None:
    """What to say where a map of states `width` wide is fitted on `n` tokens, and that is few; None where it is not.

    `most` is how many it takes at most.
    """
    if n >= ENOUGH * width:
        return None
    advice = "it takes no more" if most is not None and n >= most else "give more text"
    return (
        f"{what} was fitted on {n:,} tokens for states {width:,} wide, where {ENOUGH} times as many tokens as that are "
        f"wanted ({ENOUGH * width:,}): what it finds is rather too low; {advice}."
    )


def fit_mlp(
    sample: TokenSampleView, keys: Sequence[str], target: str, arrays: Mapping[str, Array], *, seed: int
) -> dict[str, Array]:
    """Perceptrons from standardised states to the target, by least squares with AdamW; names as in `Maps`.

    Sentences with one in ten tokens of the sample are held out, and training ends when these get no better.
    """
    made: dict[str, Array] = {}
    goal = torch.from_numpy(np.asarray(sample.rows(target), dtype=np.float32))
    held = held_out(sample.sentence, seed)
    for number, key in enumerate(keys):
        states = torch.from_numpy(np.asarray(sample.rows(key), dtype=np.float32))
        mean, scale = (
            torch.from_numpy(np.asarray(arrays[f"{key}/{name}"], dtype=np.float32)) for name in ("mean", "scale")
        )
        network = _trained((states - mean) / scale, goal, held, seed + number)
        first, second = network[0], network[2]
        made |= {
            f"{key}/mlp/first": first.weight.detach().T.numpy(),
            f"{key}/mlp/first bias": first.bias.detach().numpy(),
            f"{key}/mlp/second": second.weight.detach().T.numpy(),
            f"{key}/mlp/second bias": second.bias.detach().numpy(),
        }
    return made


def held_out(sentence: Array, seed: int) -> Array:
    """Which tokens of a sample are held out, [tokens], from the sentence of each: whole sentences, drawn until they
    have one token in ten."""
    order = np.random.default_rng(seed).permutation(np.unique(sentence))
    if len(sentence) < FEWEST or len(order) < 2:
        raise ResultError(
            f"The text to fit a perceptron on has {len(sentence)} tokens in {len(order)} sentences, too few to hold "
            f"some out; give one with {FEWEST} or more in two sentences or more, or leave out the map 'mlp'."
        )
    sizes = np.array([(sentence == number).sum() for number in order])
    enough = int(np.searchsorted(sizes.cumsum(), len(sentence) / 10)) + 1
    return np.isin(sentence, order[: min(enough, len(order) - 1)])


def _trained(states: torch.Tensor, goal: torch.Tensor, out: Array, seed: int) -> Any:
    dice = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(states.shape[1], HIDDEN * states.shape[1]),
            nn.GELU(),
            nn.Linear(HIDDEN * states.shape[1], goal.shape[1]),
        )
    held, kept = (torch.from_numpy(np.flatnonzero(each)) for each in (out, ~out))
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    best, since, weights = float("inf"), 0, {name: value.clone() for name, value in network.state_dict().items()}
    for step in range(STEPS):
        rows = kept[torch.randint(len(kept), (BATCH,), generator=dice)]
        loss = nn.functional.mse_loss(network(states[rows]), goal[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 25 == 24:
            with torch.no_grad():
                error = float(nn.functional.mse_loss(network(states[held]), goal[held]))
            if error < best:
                best, since = error, 0
                weights = {name: value.clone() for name, value in network.state_dict().items()}
            else:
                since += 1
            if since >= PATIENCE:
                break
    network.load_state_dict(weights)
    return network
