"""A tiny classifier, its sub-words and seven tagged texts, and shares of attribution worked out by a plain loop."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from pellucid.attribution import attribute
from pellucid.corpus import Corpus, Sentence
from pellucid.model import Model

PIECES = [
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    "the",
    "dog",
    "cab",
    "##in",
    "##et",
    "red",
    "runs",
    "a",
    "old",
    "key",
    "##s",
]
TAGS = {"the": "DET", "a": "DET", "dog": "NOUN", "cabinet": "NOUN", "keys": "NOUN", "red": "ADJ", "old": "ADJ"}
TEXTS = (
    ("the red dog runs", "one"),
    ("a cabinet", "one"),
    ("the old keys runs the red cabinet", "two"),
    ("red keys", "three"),
    ("the dog", "three"),
    ("a old red cabinet runs", "four"),
    ("keys", "five"),
)


def pieces() -> PreTrainedTokenizerFast:
    """Sub-words: `cabinet` is three tokens, `keys` two; every text stands between [CLS] and [SEP]."""
    core = Tokenizer(models.WordPiece({piece: place for place, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    named = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, **named)


def classifier(seed: int = 0) -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
        initializer_range=0.5,
        num_labels=3,
    )
    torch.manual_seed(seed)
    return BertForSequenceClassification(config).eval()


def tagged() -> Corpus:
    """The texts with a tag for most words."""
    return Corpus.of(
        [
            Sentence.of_words(
                text.split(),
                id=str(number),
                document=document,
                labels={"upos": [TAGS.get(word) for word in text.split()]},
                facts={"length": "short" if len(text.split()) < 3 else "long"},
            )
            for number, (text, document) in enumerate(TEXTS)
        ]
    )


def words_of(text: str) -> list[int]:
    """The word of each token between [CLS] and [SEP], written out."""
    sizes = {"cabinet": 3, "keys": 2}
    return [number for number, word in enumerate(text.split()) for _ in range(sizes.get(word, 1))]


def by_hand(model: Model, texts, method: str, site: str, group) -> dict[str, tuple[float, float, float]]:
    """Share, signed share and chance of every group, by a loop over single texts; `group(text, token)` names it."""
    found: dict[str, list[float]] = {}
    for text, _ in texts:
        values = attribute(model, text, method=method, sites=site, steps=10).values[0, 0, 0, 1:-1]
        total = sum(abs(value) for value in values)
        for token, value in enumerate(values):
            held = found.setdefault(group(text, token), [0.0, 0.0, 0.0])
            held[0] += abs(value) / total
            held[1] += value / total
            held[2] += 1 / len(values)
    return {
        name: (share / len(texts), signed / len(texts), by / len(texts)) for name, (share, signed, by) in found.items()
    }


def tag(text: str, token: int) -> str:
    return TAGS.get(text.split()[words_of(text)[token]], "(none)")
