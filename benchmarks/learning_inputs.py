"""What the benchmark `learning` trains: a small language model on generated English, or the thesis's on WikiText-2."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pellucid import Corpus
    from pellucid.train import Run, Settings

WIKITEXT = {"train": 2_051_910, "valid": 213_886}
"""Tokens of the two texts, which made-up ones take where they are absent."""
WORDS = 28_865
"""Words of the thesis's vocabulary."""


@dataclass(frozen=True)
class Inputs:
    """Texts to train on and to validate with, the settings, and what to call them."""

    training: Corpus
    valid: Corpus
    settings: Settings
    name: str


def small(*, quick: bool, epochs: int) -> Inputs:
    """The small preset's language model on generated English; the validation text is a tenth as long, as usual."""
    from pellucid import Corpus
    from pellucid.train import settings_for

    sizes: dict[str, Any] = {"vocabulary_size": 2048}
    if quick:
        sizes = {"layers": 3, "width": 64, "heads": 4, "feed_forward": 256, "length": 32, "batch": 16}
        sizes["vocabulary_size"] = 512
    settings = settings_for("lm", epochs=epochs, **sizes)
    sentences = 1500 if quick else 15_000
    training, valid = Corpus.grammar(sentences), Corpus.grammar(sentences // 10, seed=1)
    name = f"GPT-2 of {settings.layers} layers, {settings.width} wide, on generated English"
    return Inputs(training, valid, settings, name)


def thesis_lm(*, quick: bool, epochs: int) -> Inputs:
    """The thesis's language model on WikiText-2, or on as many made-up words where it is absent."""
    from pellucid import Corpus
    from pellucid.train import settings_for

    data = Path(os.environ.get("PELLUCID_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    files = [data / "wikitext2" / f"{part}.txt" for part in WIKITEXT]
    if all(path.is_file() for path in files):
        (training, valid), name = (Corpus.text(path) for path in files), "WikiText-2"
    else:
        training, valid = (made_up(count, seed) for seed, count in enumerate(WIKITEXT.values()))
        name = "made-up words, as many as in WikiText-2"
    if quick:
        training, valid, name = training.take(2500), valid.take(250), f"the beginning of {name}"
    return Inputs(training, valid, settings_for("lm", "thesis", epochs=epochs), f"thesis LM on {name}")


def made_up(tokens: int, seed: int) -> Corpus:
    """Lines of words drawn by Zipf's law: what a step takes does not depend on what the words say."""
    from pellucid import Corpus

    weights = 1 / (np.arange(WORDS) + 2.7)
    drawn = np.random.default_rng(seed).choice(WORDS, size=tokens, p=weights / weights.sum())
    names = np.array([f"w{number}" for number in range(WORDS)])[drawn]
    lines = [" ".join(names[first : first + 80].tolist()) for first in range(0, tokens, 80)]
    return Corpus.of(lines, name=f"{tokens} made-up words")


def trained(inputs: Inputs, folder: Path, *, device: str, **options: Any) -> Run:
    """A training in a folder, without a line printed."""
    from pellucid.train import train

    return train(inputs.training, inputs.settings, folder, valid=inputs.valid, device=device, progress=False, **options)
