"""A passage of the text with its words shaded by how much they surprise a language model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pellucid.report.html import Html, element, escaped, joined, number

if TYPE_CHECKING:
    from pellucid.corpus import Sentence
    from pellucid.model import Model

WORDS, SENTENCES = 110, 12
"""About how many words a passage has, and the most sentences."""
_DARKEST = 0.75


def opening(sentences: Iterable[Sentence]) -> list[Sentence]:
    """The beginning of a corpus: its first sentences, to the end of a document where one ends in time."""
    found: list[Sentence] = []
    words = 0
    for sentence in sentences:
        complete = found and sentence.document != found[-1].document and words >= WORDS // 2
        if complete or words >= WORDS or len(found) == SENTENCES:
            break
        found.append(sentence)
        words += len(sentence.spans)
    return found


def word_surprise(model: Model, sentence: Sentence) -> list[float | None]:
    """The surprise −log p of every word of a sentence in nats, the sum over its tokens, given what stands before it.

    None for a word that no token stands for, or whose first token opens the text with nothing before it.
    """
    import numpy as np

    from pellucid.collect.encode import Encoder, Reading
    from pellucid.collect.surprise import word_nats
    from pellucid.collect.words import Words

    reading, nothing = Reading(long="window"), np.zeros(1, dtype=np.int64)
    encoder = Encoder(model, reading)
    found: list[float | None] = [None] * len(sentence.spans)
    for row in encoder.encode([sentence])[0].rows:
        batch = encoder.batch([row], [None], len(row.ids)).to(model.device)
        words = Words(batch, reading.pooling, (sentence,), nothing, nothing, 0, reading.side)
        nats, counts = word_nats(model.run(batch).logits, words)
        for word in counts[0].nonzero()[:, 0].tolist():
            place = word + int(words.base[0])
            if place < len(found):  # not of a second sentence
                found[place] = float(nats[0, word])
    return found


def shaded(passage: Sequence[tuple[Sentence, Sequence[float | None]]], *, scale: float) -> Html:
    """A paragraph of sentences with shaded words; a word of `scale` nats or more is darkest."""
    parts = [_sentence(sentence, values, scale) for sentence, values in passage]
    ramp = element("span", class_="ramp", role="img", aria_label="from no shade to full shade")
    legend = element("p", "0 nats", ramp, f"{number(scale)} nats or more, which is chance", class_="scale")
    return joined([element("p", joined(parts, " "), class_="passage", dir="auto"), legend])


def _sentence(sentence: Sentence, values: Sequence[float | None], scale: float) -> Html:
    parts: list[Html] = []
    end = 0
    for (start, stop), nats in zip(sentence.spans, values, strict=True):
        parts.append(escaped(sentence.text[end:start]))
        text = sentence.text[max(start, end) : stop]
        if nats is None:
            parts.append(element("span", text, class_="unread", title="not predicted"))
        else:
            shade = _DARKEST * min(1.0, max(0.0, nats) / scale)
            parts.append(element("span", text, class_="w", style=f"--s:{shade:.2f}", title=f"{number(nats)} nats"))
        end = max(stop, end)
    return joined([*parts, escaped(sentence.text[end:])])
