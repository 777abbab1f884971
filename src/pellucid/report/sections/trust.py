"""Trust: whether the quick methods of attribution can be believed for this model, on a few sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.errors import PellucidError
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import Sheet
from pellucid.report.trust import EXPLANATION, show_trust

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.model import Model

SENTENCES = 6
METHODS = ("saliency", "gradient_x_activation", "integrated_gradients", "ablation")
MEASURES = ("completeness", "unexplained", "insertion", "deletion", "randomisation")
"""All that do not explain every text several times over."""


def absent(subject: Subject) -> str | None:
    """Why nothing can be attributed."""
    model = subject.model
    if model.tokenizer is None:
        return "this model has no tokenizer, so that it cannot be shown a sentence by itself."
    if not any(site.kind == "embed" for site in model.sites):
        return "this model shows no embeddings that tokens could be removed from."
    try:
        _target(model)
    except PellucidError:
        return "this model has no head, so that it predicts nothing that could be attributed."
    return None


def _target(model: Model) -> tuple[str | None, str]:
    """What is explained where nothing is asked for, and how to say it; a model of words is asked about the second."""
    from pellucid.attribution.targets import default_targets

    name = type(model.hf).__name__
    if "MaskedLM" in name:
        return "token@1", "the likeliest word in the place of token 1"
    if "TokenClassification" in name:
        return "class@1", "the class of token 1"
    default_targets(model)  # raises where there is no head
    return None, "what the model predicts"


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """A small trial, and how to ask for a larger one."""
    from pellucid.attribution import trust

    target, told = _target(subject.model)
    try:
        result = trust(
            subject.model,
            subject.corpus,
            METHODS,
            target,
            measures=MEASURES,
            sentences=SENTENCES,
            steps=12,
            points=6,
            draws=8,
            cascade=1,
            seed=subject.seed,
        )
    except PellucidError as error:
        sheet.text(f"Attributions could not be tried on this text: {error}")
        return
    show_trust(sheet, result)
    sheet.note(
        f"This is a small trial of at most {SENTENCES} sentences and {len(METHODS)} methods, explaining "
        f"{told}; pellucid trust MODEL --corpus FILE tries more of both."
    )


SECTION = Section(
    title="Can attributions be believed?", order=75, explanation=EXPLANATION, render=render, absent=absent
)
