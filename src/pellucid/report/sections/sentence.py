"""One sentence: every head and every token of it, to be looked at in the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.report.section import Section, Subject
from pellucid.report.sheet import Sheet

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus

SHORTEST, LONGEST = 8, 25
"""Words of a sentence that is looked at: enough to see something, and few enough to see all of it."""
_LOOKED = 500


def absent(subject: Subject) -> str | None:
    """Why there is nothing to look at."""
    if subject.model.tokenizer is None:
        return "this model has no tokenizer, so that it cannot be shown a sentence by itself."
    if not any(site.kind == "pattern" for site in subject.model.sites):
        return "this model shows no attention weights."
    return None


def chosen(corpus: Corpus) -> str | None:
    """The first sentence of a good length; the longest of the first ones that is not too long, where there is none."""
    best: str | None = None
    most = 0
    for place, sentence in enumerate(corpus):
        count = len(sentence.words)
        if SHORTEST <= count <= LONGEST:
            return sentence.text
        if most < count < SHORTEST:
            best, most = sentence.text, count
        if place >= _LOOKED:
            break
    return best


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """The heads of the sentence, and its tokens layer by layer."""
    from pellucid.views import neuron_view, text_view

    text = chosen(subject.corpus)
    if text is None:
        sheet.text(f"No sentence of this text has at most {LONGEST} words, so none is shown.")
        return
    heads = neuron_view(subject.model, text, state={"mode": "model"})
    sheet.view(
        heads,
        name="sentence-heads",
        caption="All attention heads on this sentence. Click one to see where it looks, and Neurons for how its "
        "queries and keys make it look there. Attention is where a head looks, not what the model uses.",
    )
    sheet.view(
        text_view(subject.model, text),
        name="sentence-tokens",
        caption="The same sentence token by token: how long the vectors are, and, for language models, how surprising "
        "each token was and what every layer would predict next.",
    )


SECTION = Section(
    title="One sentence",
    order=55,
    explanation="What the model does with one sentence of the text: every head, every token, every layer.",
    render=render,
    absent=absent,
)
