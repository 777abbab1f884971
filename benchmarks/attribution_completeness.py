"""How far conductance misses the target's change at 50 steps: the trapezoid with both ends beside captum's rule."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.attribution_inputs import QUICK, bert, gpt2, text
from benchmarks.report import Measure
from benchmarks.sweep_measures import unmeasured

if TYPE_CHECKING:
    from pellucid import Batch, Model
    from pellucid.attribution import Target

STEPS, TIMES = 50, 10.0
TEXTS = (
    "a wonderful and moving film",
    "the plot is dull and the acting worse",
    "it is neither good nor bad , only long",
)


def completeness(*, quick: bool) -> Iterator[Measure]:
    """Random models and trained ones; each is judged by the median over texts and layers."""
    for name in ("random BERT", "random GPT-2", "zoo:sentiment", "zoo:lm", "MiniLM classifier"):
        what = f"completeness: {name}"
        try:
            model, batches, targets = _case(name)
        except (ImportError, AssertionError, OSError) as reason:
            yield unmeasured(what, f"{type(reason).__name__}: {reason}", target=TIMES)
            continue
        errors = {
            rule: [error for batch in batches[: 1 if quick else None] for error in _errors(model, batch, targets, rule)]
            for rule in ("gauss", "captum")
        }
        ours, theirs = (statistics.median(errors[rule]) for rule in ("gauss", "captum"))
        note = (
            f"error in captum's rule over ours at {STEPS} steps, at least the target; medians over texts and layers: "
            f"{theirs:.2%} and {ours:.4%}, largest {max(errors['captum']):.2%} and {max(errors['gauss']):.4%}"
        )
        yield Measure(what, None, None, None, theirs / ours, TIMES, theirs / ours >= TIMES, note=note)


def _case(name: str) -> tuple[Model, list[Batch], list[Target]]:
    from pellucid import Batch, Model
    from pellucid.attribution import Target

    if name == "random BERT":
        return Model.load(bert(QUICK, "classifier")), [Batch.of_ids(text(QUICK.tokens))], [Target.label(1)]
    if name == "random GPT-2":
        return Model.load(gpt2(QUICK)), [Batch.of_ids(text(QUICK.tokens))], [Target.token(7)]
    if name == "MiniLM classifier":
        from tests.real.packaged import defender

        model = defender()
        target: Any = Target.unit(f"resid.{_top(model)}", 0, position=0)
        return model, [model.tokenize(each) for each in TEXTS], [target]
    model = Model.load(name)
    return model, [model.tokenize(each) for each in TEXTS], [Target.label(1) if "sentiment" in name else Target.token()]


def _top(model: Model) -> int:
    return max(int(site.layer or 0) for site in model.sites if site.kind == "resid")


def _errors(model: Model, batch: Batch, targets: list[Target], rule: str) -> list[float]:
    """|Σ − change|/|change| at every layer but the target's own."""
    from pellucid.attribution import completeness
    from pellucid.attribution.computing import Settings, compute
    from pellucid.attribution.methods import chosen
    from pellucid.model.sites import expand

    sites = expand(f"resid.0-{_top(model) - 1}", model.sites)
    settings = Settings(rule=rule, steps=STEPS)
    found, _ = compute(model, batch, targets, chosen("conductance"), sites, settings)
    return [float((each.total - each.wanted).abs() / each.wanted.abs()) for each in completeness.sums(found)]
