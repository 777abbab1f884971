"""The methods of attribution by name: what each says, and by which passes it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pellucid.errors import AttributionError, listing


@dataclass(frozen=True)
class Method:
    """One method. `passes` names the engine that computes it; a `complete` one adds up to the change of the target.

    `signed` tells whether its numbers say for and against, or only how much; a `random` one draws by a seed; `baseline`
    whether it compares the text with a baseline.
    """

    name: str
    phrase: str
    passes: str
    complete: bool = False
    signed: bool = True
    random: bool = False
    baseline: bool = True


_ALL = (
    Method("saliency", "size of the target's gradient at the text", "path", signed=False, baseline=False),
    Method(
        "gradient_x_activation",
        "gradient times activation at the text (at embed: input × gradient)",
        "path",
        baseline=False,
    ),
    Method(
        "integrated_gradients",
        "the gradient's mean on the way from the baseline, times the change; the site's own activation is what moves",
        "site path",
        complete=True,
    ),
    Method(
        "input_path_gradients",
        "the gradient's mean while the input moves from the baseline, times the site's change; not complete",
        "path",
    ),
    Method("conductance", "the part of the target's change that flows through the site", "path", complete=True),
    Method("internal_influence", "the target's mean gradient while the input moves from the baseline", "path"),
    Method(
        "smoothgrad",
        "size of the mean gradient under noise on the input",
        "noise",
        signed=False,
        random=True,
        baseline=False,
    ),
    Method(
        "smoothgrad_squared",
        "mean squared gradient under noise on the input",
        "noise",
        signed=False,
        random=True,
        baseline=False,
    ),
    Method(
        "vargrad",
        "variance of the gradient under noise on the input",
        "noise",
        signed=False,
        random=True,
        baseline=False,
    ),
    Method(
        "ablation",
        "the target's change when a token, or a place of a site at that token, is taken away",
        "perturbation",
    ),
    Method(
        "occlusion",
        "the change when a window of tokens is hidden, its mean over windows that hold the token",
        "perturbation",
    ),
    Method(
        "shapley",
        "the change when a token comes in, its mean over all orders of coming",
        "perturbation",
        complete=True,
        random=True,
    ),
    Method(
        "lime",
        "the token's weight in a linear fit to copies of the text without some tokens",
        "perturbation",
        random=True,
    ),
    Method(
        "lrp_voita", "relevance handed back to what pushed scores up (Voita et al. 2019, 2021)", "lrp", baseline=False
    ),
    Method("lrp_attn", "relevance handed back through values and attention weights (AttnLRP)", "lrp", baseline=False),
    Method("lrp_cp", "relevance handed back with attention weights held constant (CP-LRP)", "lrp", baseline=False),
)
METHODS = {method.name: method for method in _ALL}
ALIASES = {"ig": "integrated_gradients", "input_x_gradient": "gradient_x_activation", "gradient": "saliency"}


def chosen(names: str | Sequence[str]) -> tuple[Method, ...]:
    """Methods by name, each once; an unknown name raises and lists what exists."""
    items = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
    if not items:
        raise AttributionError(f"No method was given; the methods are {listing(METHODS, most=30)}.")
    found: dict[str, Method] = {}
    for item in items:
        name = ALIASES.get(item, item)
        if name not in METHODS:
            raise AttributionError(
                f"There is no method of attribution {item!r}; the methods are {listing(METHODS, most=30)}."
            )
        found[name] = METHODS[name]
    return tuple(found.values())
