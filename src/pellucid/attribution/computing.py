"""Which passes the methods asked for need, and how many steps make their sums complete."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pellucid.attribution import completeness
from pellucid.attribution import nodes as rules
from pellucid.attribution.baselines import Given, baseline, check, embedded, settled
from pellucid.attribution.passes import not_finite
from pellucid.attribution.precision import check_gradients, precision
from pellucid.attribution.removal.perturbation import sweep_perturbed
from pellucid.attribution.site_paths import activations, sweep_site
from pellucid.attribution.smoothing import sweep_noise
from pellucid.attribution.sweep import AT_THE_END, AUTOMATIC, Asked, Swept, sweep_path
from pellucid.errors import AttributionError, listing

if TYPE_CHECKING:
    from pellucid.attribution.methods import Method
    from pellucid.attribution.removal.groups import Grouping
    from pellucid.attribution.targets import Resolved, Target
    from pellucid.model import Batch, Model
    from pellucid.model.sites import Site

BY = ("site", "head", "unit")
_OWN, _ALONG = "integrated_gradients", "input_path_gradients"


@dataclass(frozen=True)
class Settings:
    """How attributions are computed: the options, and their defaults, of every function that computes some.

    Without `steps`, those of a path are doubled until sums miss the target's change by at most `tolerance` of it.
    `rule` places them: `gauss`, or `captum` for the arithmetic of that library. `samples`, `noise` and `seed` are for
    methods that draw at random; `memory_limit` bounds the passes, in bytes. Tokens are taken away in `groups`, or by
    occlusion in a `window` that moves by `stride`; `by` is what ablation takes away at a site.
    """

    baseline: Given = "auto"
    rule: str = "gauss"
    steps: int | None = None
    tolerance: float = 0.01
    samples: int = 25
    noise: float = 0.1
    seed: int = 0
    memory_limit: int | None = None
    by: str = "site"
    groups: Grouping = "tokens"
    window: int = 3
    stride: int = 1

    def __post_init__(self) -> None:
        if self.by not in BY:
            raise AttributionError(f"Attributions are given by {listing(BY)}, not by {self.by!r}.")
        rules.check_rule(self.rule)

    def told(self, model: Model, methods: Sequence[Method], sites: Sequence[Site]) -> dict[str, Any]:
        """What a result's origin says of every computation."""
        return {
            "method": [one.name for one in methods],
            "sites": [str(site) for site in sites],
            "by": self.by,
            "rule": self.rule,
            "precision": precision(model),
        }

    def drawn(self, methods: Sequence[Method]) -> int | None:
        """The seed, where a method draws by it."""
        return self.seed if any(one.random for one in methods) else None


def compute(
    model: Model,
    batch: Batch,
    targets: Sequence[Target],
    methods: Sequence[Method],
    sites: Sequence[Site],
    settings: Settings,
) -> tuple[Swept, tuple[Resolved, ...]]:
    """The attributions of every text of a batch to every site; methods that share passes are computed together."""
    plain = model.run(batch) if any(target.predicted for target in targets) else None
    resolved = _once(targets, [target.resolve(model, batch, plain) for target in targets], texts=batch.size)
    asked, given, why = between(model, batch, resolved, methods, sites, settings)
    swept = compute_between(asked, methods, replace(settings, baseline=given))
    named = (given if isinstance(given, str) else "given as numbers") if asked.start else ""
    return replace(swept, baseline=named, note="; ".join(filter(None, (why, swept.note)))), resolved


def between(
    model: Model,
    batch: Batch,
    targets: tuple[Resolved, ...],
    methods: Sequence[Method],
    sites: Sequence[Site],
    settings: Settings,
) -> tuple[Asked, Given, str]:
    """What is asked between baseline and text, the baseline that it is, and why that one.

    Where no method looks at a baseline, there is none.
    """
    end, given, why, start = embedded(model, batch), settings.baseline, "", {}
    if isinstance(given, str):
        check(given)
    if any(method.baseline for method in methods):
        given, why = settled(model, batch, given, end)
        start = baseline(model, batch, given, end)
    return Asked(model, batch, targets, tuple(sites), start, end, settings.memory_limit), given, why


def _once(targets: Sequence[Target], resolved: Sequence[Resolved], *, texts: int) -> tuple[Resolved, ...]:
    """Targets that turn out to be the same, such as the predicted class and that class by name, once.

    Of several texts all are kept: there, a name does not tell what is meant in each.
    """
    if texts > 1:
        return tuple(resolved)
    found: dict[str, Resolved] = {}
    for target, one in zip(targets, resolved, strict=True):
        if one.name in found and target.kind == "function":
            raise AttributionError(f"Two targets are called {one.name!r}; give each function a name of its own.")
        found.setdefault(one.name, one)
    return tuple(found.values())


def compute_between(asked: Asked, methods: Sequence[Method], settings: Settings) -> Swept:
    """The attributions of every method for targets and two ends of the path that are settled already."""
    check_gradients(asked.model, methods)
    sites = asked.sites
    if any(site.kind == "logits" for site in sites):
        raise AttributionError("The site 'logits' is what is explained, not what explains it; leave it out.")
    own = any(method.passes == "site path" for method in methods)
    inner = tuple(site for site in sites if site.kind != "embed")
    moving = [method.name for method in methods if method.passes == "path"]
    parts: list[Swept] = []
    of_input = own and len(inner) < len(sites)
    if moving or of_input:
        judged = settings.steps is None and (of_input or any(name not in AT_THE_END for name in moving))
        along = partial(_along, asked, moving, own=of_input or judged, judged=judged, rule=settings.rule)
        parts.append(_enough(asked, along, settings))
    if own and inner:
        apart = replace(asked, sites=inner)
        read = activations(apart)
        sweeps = [partial(sweep_site, apart, site, read, rule=settings.rule) for site in inner]
        parts.extend(_enough(asked, sweep, settings) for sweep in sweeps)
    noisy = [method.name for method in methods if method.passes == "noise"]
    if noisy:
        parts.append(sweep_noise(asked, noisy, samples=settings.samples, noise=settings.noise, seed=settings.seed))
    changed = [method.name for method in methods if method.passes == "perturbation"]
    if changed:
        parts.append(_changed(asked, changed, settings))
    handed_back = [method.name for method in methods if method.passes == "lrp"]
    if handed_back:
        from pellucid.attribution.lrp.relevance import (
            sweep_lrp,  # optional, with a notice of its own: only where it is used
        )

        parts.append(sweep_lrp(asked, handed_back))
    swept = parts[0]
    for part in parts[1:]:
        swept = swept.joined(part)
    names = {method.name for method in methods}
    kept = {key: part for key, part in swept.parts.items() if key[0] in names and key[2] in sites}
    for (name, _, site), part in kept.items():
        if not bool(part.isfinite().all()):
            way = "on the way from the baseline; use another one, such as mean" if asked.start else "at this text"
            raise not_finite(f"{name} at {site}", f"gradients overflow {way}", asked.batch)
    return replace(swept, parts=kept)


def _changed(asked: Asked, methods: Sequence[str], settings: Settings) -> Swept:
    return sweep_perturbed(
        asked,
        methods,
        by=settings.by,
        groups=settings.groups,
        window=settings.window,
        stride=settings.stride,
        samples=settings.samples,
        seed=settings.seed,
        replacement=settings.baseline,
    )


def _along(asked: Asked, methods: Sequence[str], *, own: bool, judged: bool, rule: str, steps: int) -> Swept:
    """The one sweep along the input's path; there, integrated gradients of the input are what its own path gives.

    Where the steps are to be `judged`, those of the input are computed in any case: their sum tells.
    """
    if judged:
        asked = replace(asked, sites=tuple(dict.fromkeys([*asked.sites, *asked.end])))
    own = own and any(site.kind == "embed" for site in asked.sites)
    names = [*methods, _ALONG] if own and _ALONG not in methods else list(methods)
    swept = sweep_path(asked, names, rule=rule, steps=steps)
    added = {
        (_OWN, number, site): part
        for (method, number, site), part in swept.parts.items()
        if own and method == _ALONG and site.kind == "embed"
    }
    return replace(swept, parts={**swept.parts, **added})


def _enough(asked: Asked, sweep: Callable[..., Swept], settings: Settings) -> Swept:
    """The sweep with the steps asked for, or with as many as make its sums complete to the tolerance.

    Conductance by the trapezoid rule has an error ∝ steps⁻² (in captum's rule steps⁻¹): numbers of steps that cannot
    do are left out. In half precision, more steps are tried only while they help.
    """
    if settings.steps is not None:
        return sweep(steps=settings.steps)
    half = all(end.element_size() < 4 for end in asked.end.values())
    steps, before, points = AUTOMATIC[0], math.inf, 0
    while True:
        swept = sweep(steps=steps)
        points += swept.points
        sums = completeness.sums(swept)
        worst = max((float(one.error.max()) for one in sums), default=0.0)
        enough = worst <= settings.tolerance or steps == AUTOMATIC[-1] or (half and worst > 0.8 * before)
        if enough:
            break
        before = worst
        share = max((float(one.error.max()) for one in sums if one.method == "conductance"), default=0.0)
        order = 1.0 if settings.rule == "captum" else 0.5
        least = max(2 * steps, steps * (share / settings.tolerance) ** order / 2)
        steps = next((more for more in AUTOMATIC if more >= least), AUTOMATIC[-1])
    if worst > settings.tolerance:
        note = f"after {steps} steps sums still miss the target's change by {worst:.1%}"
        swept = replace(swept, note="; ".join(filter(None, (swept.note, note))))
    return replace(swept, points=points)
