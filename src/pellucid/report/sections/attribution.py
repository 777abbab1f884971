"""What made the prediction: the tokens and layers that one prediction came from, beside a random model's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pellucid.report.attribution import alt_text, caption, largest, show_completeness
from pellucid.report.html import number
from pellucid.report.section import Section, Subject
from pellucid.report.sections.sentence import LONGEST, chosen
from pellucid.report.sheet import WIDTH, Sheet

if TYPE_CHECKING:
    from pellucid.attribution import Attribution, Target
    from pellucid.collect.found import Found
    from pellucid.model import Batch, Model
    from pellucid.results import Array

STEPS = 50
"""Steps of every path: enough for short sentences; the error is told."""


def absent(subject: Subject) -> str | None:
    """Why there is no prediction to explain."""
    model = subject.model
    if model.tokenizer is None:
        return "this model has no tokenizer, so that it cannot be shown a sentence by itself."
    kinds = {site.kind for site in model.sites}
    if "embed" not in kinds:
        return "the embeddings of this model were not found, so that no path can start from them."
    name = type(model.hf).__name__
    if "logits" not in kinds and not any(head in name for head in ("QuestionAnswering", "Classification")):
        return "this model has no head, so that it predicts nothing to explain (--head opens one)."
    if "MaskedLM" in name and model.tokenizer.mask_token_id is None:
        return "this model guesses hidden tokens, and its tokenizer has none to hide one behind."
    return None


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """Integrated gradients at the input and conductance by layer, of the model and of its random twin."""
    text = chosen(subject.corpus)
    if text is None:
        sheet.text(f"No sentence of this text has at most {LONGEST} words, so none is explained.")
        return
    read = begun(text) if _continues(subject.model) else text
    batch, targets = asked(subject.model, read)
    tokens = _both(subject, batch, targets, "integrated_gradients", "*.embed")
    layers = _both(subject, batch, targets, "conductance", "*.resid.*")
    sheet.text("What the model reads: ", read)
    for place, row in enumerate(_rows(tokens)):
        sheet.text(row, _control(tokens, place))
    for result, name in ((tokens, "attribution"), (layers, "attribution-layers")):
        sheet.result(result, name=name)
        sheet.figure(result.plot(width=WIDTH), name=name, caption=caption(result), alt=alt_text(result))
    show_completeness(sheet, tokens)
    _view(sheet, layers, read)


def begun(text: str) -> str:
    """A sentence without its last word, which a model that continues text is to foretell."""
    words = text.split()
    return " ".join(words[:-1]) if len(words) > 2 else text


def _continues(model: Model) -> bool:
    """Whether a model foretells the token after the text."""
    name = type(model.hf).__name__
    other = any(head in name for head in ("Classification", "QuestionAnswering", "ConditionalGeneration"))
    return model.causal and not other


def asked(model: Model, text: str) -> tuple[Batch, tuple[Target, ...]]:
    """The sentence as it is read, with a hidden token where the model guesses those, and what the model predicts."""
    from pellucid.attribution import Target

    batch, kind = model.tokenize(text, truncate=True), type(model.hf).__name__
    middle = _middle(batch)
    if "MaskedLM" in kind:
        ids = batch.ids.clone()
        ids[0, middle] = model.tokenizer.mask_token_id
        batch = replace(batch, ids=ids)
    run = model.run(batch)
    if "QuestionAnswering" in kind:
        ends = [int(run.output[f"{end}_logits"][0].argmax()) for end in ("start", "end")]
        return batch, (Target.start(ends[0]), Target.end(ends[1]))
    if "SequenceClassification" in kind:
        return batch, (Target.label(int(run.logits[0].argmax())),)
    if "TokenClassification" in kind:
        return batch, (Target.label(int(run.logits[0, middle].argmax()), position=middle),)
    place = middle if "MaskedLM" in kind else run.logits.shape[1] - 1
    return batch, (Target.token(int(run.logits[0, place].argmax()), position=place),)


def _middle(batch: Batch) -> int:
    """The place of an ordinary token in the middle."""
    ordinary = (batch.mask[0].bool() & ~batch.special[0]).nonzero()[:, 0].tolist()
    return ordinary[len(ordinary) // 2] if ordinary else 0


def _both(subject: Subject, batch: Batch, targets: tuple[Target, ...], method: str, sites: str) -> Attribution:
    """The model's attributions with those of the random model as a table."""
    from pellucid.attribution import attribute
    from pellucid.results import Table
    from pellucid.views.attribution import CONTROL

    result = attribute(subject.model, batch, targets, method, sites, steps=STEPS)
    if subject.twin is None:
        return result
    control = attribute(subject.twin, batch.to(subject.twin.device), targets, method, sites, steps=STEPS)
    return replace(result, tables={**result.tables, CONTROL: Table(result.axes, {"value": control.values})})


def _rows(result: Attribution) -> list[str]:
    """A sentence for every target: what was predicted, and what spoke for and against it."""
    columns = result.targets.columns
    method, place = result.axes["measure"][0], result.axes["place"][0]
    return [
        f"The model predicts {target} (score {number(float(columns['score'][at]))}; with nothing to read, "
        f"{number(float(columns['baseline'][at]))}). Of the change, the largest parts come from "
        f"{largest(result, method, place, 4, target=at)}."
        for at, target in enumerate(result.axes["target"])
    ]


def _control(result: Attribution, target: int) -> str:
    """How like the random model's attributions are."""
    from pellucid.views.attribution import CONTROL

    if CONTROL not in result.tables:
        return ""
    ours, theirs = (part[0, target].ravel() for part in (result.values, result.table(CONTROL).columns["value"]))
    return (
        f" Over the tokens, these correlate with the control model's at r = {_correlation(ours, theirs)}: near 1, they "
        "would say nothing of what was learned."
    )


def _correlation(one: Array, other: Array) -> str:
    import numpy as np

    if min(one.std(), other.std()) == 0:
        return "not defined"
    return number(float(np.corrcoef(one, other)[0, 1]), digits=2)


def _view(sheet: Sheet, result: Attribution, text: str) -> None:
    from pellucid.views import attribution_view
    from pellucid.views.interactive.view import shown_text

    sheet.view(
        attribution_view(result, title=shown_text(text)),
        name="sentence-attribution",
        caption="What flows through each token at each layer (conductance). Choose a layer to colour the text by it.",
    )


SECTION = Section(
    title="What made the prediction",
    order=57,
    explanation="Which tokens of one sentence the model's prediction came from, and through which layers.",
    render=render,
    absent=absent,
)
