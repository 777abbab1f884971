"""Texts of studies."""

from __future__ import annotations

from pellucid.corpus import Corpus


def sampled(corpus: Corpus, count: int) -> Corpus:
    """At most so many sentences, spread evenly over a corpus; documents stay what they are."""
    sentences = list(corpus)
    if len(sentences) <= count:
        return corpus
    chosen = [sentences[place * len(sentences) // count] for place in range(count)]
    return Corpus.of(chosen, name=f"{corpus.name} ({count:,} of {len(sentences):,} sentences)")
