"""A small GPT-2 tagger whose weights are set by hand: layer 0 has one neuron per part of speech, and no other way.

Every word's vector holds its most frequent tag as one of several slots, and a random code; each is there twice, once
negated, so that LayerNorm only scales it. Neuron `NEURONS[tag]` of layer 0 reads the tag's slot and writes what the
tagger's logit for the tag reads. That of `FLIPPED` fires for all words but those of its tag. All other neurons read the
random code, and write nothing; attention writes nothing.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import GPT2Config, GPT2ForTokenClassification, PreTrainedTokenizerFast

from pellucid.corpus import Corpus
from pellucid.model import Model

LAYERS, HEADS, INNER, CODE = 2, 2, 64, 16
LABEL = "upos"
FLIPPED = "ADJ"
SPECIAL = ["<pad>", "<unk>"]


@cache
def corpus(count: int = 300) -> Corpus:
    """Generated English with gold tags."""
    return Corpus.grammar(count, seed=3)


@cache
def tags_of_words() -> dict[str, str]:
    """The most frequent tag of every word of the corpus, in small letters."""
    seen: dict[str, Counter[str]] = {}
    for sentence in corpus():
        for word, tag in zip(sentence.words, sentence.label(LABEL), strict=True):
            if tag is not None:
                seen.setdefault(word.lower(), Counter())[tag] += 1
    return {word: min(counts, key=lambda tag, counts=counts: (-counts[tag], tag)) for word, counts in seen.items()}


@cache
def tags() -> tuple[str, ...]:
    """All tags, sorted."""
    return tuple(sorted(set(tags_of_words().values())))


def neurons() -> dict[str, int]:
    """The planted neuron of layer 0 for every tag."""
    return {tag: 3 + 4 * place for place, tag in enumerate(tags())}


def names() -> dict[str, str]:
    """The same, as rankings write them."""
    return {tag: f"neurons.0:{index}" for tag, index in neurons().items()}


def tokenizer() -> PreTrainedTokenizerFast:
    """One id per word, in small letters."""
    ids = {word: place for place, word in enumerate([*SPECIAL, *sorted(tags_of_words())])}
    core = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", unk_token="<unk>")


def network() -> GPT2ForTokenClassification:
    """The network alone, fresh: tests may change it."""
    words, kinds = sorted(tags_of_words()), tags()
    half = 2 * len(kinds) + CODE  # the tag's slots, what neurons write, the code; all of it again, negated
    width = 2 * half + (2 * half) % HEADS
    config = GPT2Config(
        vocab_size=len(SPECIAL) + len(words),
        n_positions=64,
        n_embd=width,
        n_layer=LAYERS,
        n_head=HEADS,
        n_inner=INNER,
        activation_function="gelu",
        num_labels=len(kinds),
        id2label=dict(enumerate(kinds)),
        label2id={kind: place for place, kind in enumerate(kinds)},
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation="eager",
    )
    torch.manual_seed(5)
    made = GPT2ForTokenClassification(config).eval()
    codes = torch.nn.functional.normalize(torch.randn(config.vocab_size, CODE), dim=1)
    with torch.no_grad():
        vectors = torch.zeros(config.vocab_size, half)
        vectors[:, 2 * len(kinds) :] = codes
        for place, word in enumerate(words):
            vectors[len(SPECIAL) + place, kinds.index(tags_of_words()[word])] = 1.0
        made.transformer.wte.weight.zero_()
        made.transformer.wte.weight[:, : 2 * half] = torch.cat([vectors, -vectors], dim=1)
        made.transformer.wpe.weight.zero_()
        scale = (4 / width) ** -0.5  # what LayerNorm multiplies a word's vector by: 1 + 1 in each half
        for block in made.transformer.h:
            for part in (block.attn.c_proj, block.mlp.c_proj):
                part.weight.zero_()
                part.bias.zero_()
            block.mlp.c_fc.weight.zero_()
            block.mlp.c_fc.weight[2 * len(kinds) : half] = 0.2 * torch.randn(CODE, INNER)
            block.mlp.c_fc.bias.zero_()
        first = made.transformer.h[0].mlp
        for place, tag in enumerate(kinds):
            index, sign = neurons()[tag], -1.0 if tag == FLIPPED else 1.0
            first.c_fc.weight[:, index] = 0.0
            first.c_fc.weight[place, index] = sign * 6 / scale
            first.c_fc.bias[index] = -sign * 3.0
            first.c_proj.weight[index, len(kinds) + place] = 1.0
            first.c_proj.weight[index, half + len(kinds) + place] = -1.0
        made.classifier.weight.zero_()
        for place, tag in enumerate(kinds):
            made.classifier.weight[place, len(kinds) + place] = -8.0 if tag == FLIPPED else 8.0
        made.classifier.bias.zero_()
    return made


@cache
def model() -> Model:
    """The network with its tokenizer, opened; shared by all tests, so never changed."""
    return Model.load(network(), tokenizer=tokenizer())
