"""The card of zoo:lm as a page: perplexities beside those of chance, and how it takes repetitions."""

from __future__ import annotations

from typing import Any

from recipes import cards


def readme(card: cards.Facts) -> str:
    """The card as a page to read."""
    scores = card["scores"]
    rows = [
        ("this model", scores["valid"], scores["test"]),
        ("guessing by frequency (unigram)", scores["unigram"]["valid"], scores["unigram"]["test"]),
        ("the same network, untrained", scores["untrained"]["valid"], scores["untrained"]["test"]),
    ]
    table = "\n".join(
        f"| {name} | " + " | ".join(_figures(split) for split in (valid, test)) + " |" for name, valid, test in rows
    )
    again, data = scores["induction"], card["data"]
    return cards.page(
        card,
        facts={
            "architecture": _shape(card["architecture"]),
            "parameters": cards.parameters(card),
            "text": f"{data['name']}: {data['words']['train']:,} words for training",
            "licence of the weights": cards.licence(card),
        },
        scores=f"""Perplexity, per token and per word (lower is better).

| | valid: per token | valid: per word | test: per token | test: per word |
|---|---|---|---|---|
{table}

{data["counting"]}

Random tokens said twice: {again["first"]:.2f} nats per token the first time, {again["second"]:.2f} the second (chance:
{again["chance"]:.2f}). Head {again["head"]} of layer {again["layer"]} then puts {again["attention"]:.0%} of its
attention on the token that came next the first time (both counted from 0).""",
        text=f"{data['normalisation']}\n\n{card['note']}",
        made=card["selection"],
    )


def _shape(shape: dict[str, Any]) -> str:
    return (
        f"{shape['family']}: {shape['layers']} layers × {shape['width']} wide × {shape['heads']} heads, context "
        f"{shape['context']}, {shape['vocabulary']:,} byte-level BPE tokens, tied embeddings"
    )


def _figures(score: dict[str, float]) -> str:
    return f"{_number(score['perplexity_per_token'])} | {_number(score['perplexity_per_word'])}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"
