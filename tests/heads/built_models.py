"""A small GPT-2 whose weights are set by hand, so that what some of its heads look at is known; and text for it.

Every token's vector is built of named slots (`_SLOTS`), each there twice, once negated, and filled up to one length:
so LayerNorm only scales it. Layer 0 has a previous-token head, a subject head and a rare-word head, layer 1 an
induction head that reads what the previous-token head wrote; what it finds is copied to the logits. All other heads are
random, and write next to nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from pellucid.corpus import Corpus
from pellucid.model import Model

LAYERS, HEADS, SIZE = 2, 4, 64
WIDTH = HEADS * SIZE
PLANTED = {"previous": (0, 0), "subject": (0, 1), "rare": (0, 2), "induction": (1, 0)}
"""Layer and head of every planted head; they are named `0.0`, `0.1`, `0.2` and `1.0`."""
REST = [(layer, head) for layer in range(LAYERS) for head in range(HEADS) if (layer, head) not in PLANTED.values()]
"""Layer and head of those that are random."""
SPECIAL = ["<pad>", "<unk>"]
LONGEST = 64
_CODE, _ANGLES = 32, 12
_SLOTS = {
    "word": slice(0, 32),  # a code of the word
    "before": slice(32, 64),  # that of the word before, written by the previous-token head
    "found": slice(64, 96),  # what the induction head found, read by the logits
    "place": slice(96, 120),  # sines and cosines of the position
    "verb": slice(120, 121),
    "nominal": slice(121, 122),
    "rarity": slice(122, 123),
    "one": slice(123, 124),
    "fill": slice(124, 125),  # makes all vectors equally long
}
_RATES = torch.tensor([math.pi / 1.6 ** (step + 1) for step in range(_ANGLES)], dtype=torch.float64)


@cache
def grammar_corpus(count: int = 400) -> Corpus:
    """Generated English with gold arcs and tags."""
    return Corpus.grammar(count, seed=3)


@cache
def repeated_corpus(count: int = 40, *, length: int = 10) -> Corpus:
    """Sentences of different words, each said twice: what comes next is known in the second half."""
    words, dice = sorted(_vocabulary()), np.random.default_rng(5)
    drawn = [list(dice.choice(words, length, replace=False)) for _ in range(count)]
    return Corpus.of([[*row, *row] for row in drawn], name="repeated words")


@cache
def _vocabulary() -> Counter[str]:
    """Every word of the grammar corpus in small letters, with its count."""
    return Counter(word.lower() for sentence in grammar_corpus() for word in sentence.words)


def tokenizer() -> PreTrainedTokenizerFast:
    """One id per word, in small letters."""
    ids = {word: place for place, word in enumerate([*SPECIAL, *sorted(_vocabulary())])}
    core = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", unk_token="<unk>")


def network() -> GPT2LMHeadModel:
    """The network alone, fresh: tests may change it."""
    words = sorted(_vocabulary())
    torch.manual_seed(11)
    config = GPT2Config(
        vocab_size=len(SPECIAL) + len(words),
        n_positions=LONGEST,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="eager",
    )
    made = GPT2LMHeadModel(config).eval()
    codes = torch.nn.functional.normalize(torch.randn(config.vocab_size, _CODE), dim=1)
    with torch.no_grad():
        for part in made.modules():
            for name, weight in part.named_parameters(recurse=False):
                if not isinstance(part, torch.nn.LayerNorm):
                    weight.normal_(0, 0.02) if name == "weight" else weight.zero_()
        _embed(made, words, codes)
        for block in made.transformer.h:
            for linear in (block.attn.c_proj, block.mlp.c_proj):
                linear.weight.mul_(0.01)
        _previous(made)
        _subject(made)
        _rare(made)
        _induction(made)
        made.lm_head.weight.copy_(_mirrored({"found": 8 * codes}, config.vocab_size))
    return made


@cache
def planted() -> Model:
    """The network with its tokenizer, opened; shared by all tests, so never changed."""
    return Model.load(network(), tokenizer=tokenizer())


def random_model(seed: int, *, causal: bool = True, scale: float = 0.5) -> Model:
    """A network of the same size, or an encoder, whose weights are all random and large enough for sharp attention."""
    torch.manual_seed(seed)
    size = len(SPECIAL) + len(_vocabulary())
    if causal:
        config = GPT2Config(
            vocab_size=size,
            n_positions=LONGEST,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            initializer_range=scale,
            bos_token_id=None,
            eos_token_id=None,
        )
        return Model.load(GPT2LMHeadModel(config).eval(), tokenizer=tokenizer())
    config = BertConfig(
        vocab_size=size,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=WIDTH,
        max_position_embeddings=LONGEST,
        initializer_range=scale,
    )
    return Model.load(BertForMaskedLM(config).eval(), tokenizer=tokenizer())


def _mirrored(parts: dict[str, Tensor], rows: int) -> Tensor:
    """Vectors [rows, WIDTH] with the given slots filled, and the same negated in the second half."""
    half = torch.zeros(rows, WIDTH // 2)
    for name, value in parts.items():
        half[:, _SLOTS[name]] = value.float()
    return torch.cat([half, -half], dim=1)


def _embed(made: GPT2LMHeadModel, words: list[str], codes: Tensor) -> None:
    """Word vectors of one length, with what kind of word each is; positions as angles."""
    counts = _vocabulary()
    verbs, nominals = _kinds(grammar_corpus())
    names = [*SPECIAL, *words]
    rarity = torch.tensor([[1 / (1 + math.log(counts[word])) if word in counts else 0.0] for word in names])
    parts = {
        "word": codes,
        "verb": torch.tensor([[float(word in verbs)] for word in names]),
        "nominal": torch.tensor([[float(word in nominals)] for word in names]),
        "rarity": rarity,
        "one": torch.ones(len(names), 1),
    }
    length = sum((value**2).sum(1, keepdim=True) for value in parts.values())
    parts["fill"] = torch.sqrt(6 - length)
    made.transformer.wte.weight.copy_(_mirrored(parts, len(names)))
    angles = torch.arange(LONGEST, dtype=torch.float64)[:, None] * _RATES
    places = torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(1) / math.sqrt(_ANGLES)
    made.transformer.wpe.weight.copy_(_mirrored({"place": places}, LONGEST))


def _kinds(corpus: Corpus) -> tuple[set[str], set[str]]:
    """Words that mostly have a subject, and those that mostly are one, in small letters."""
    having, being = Counter[str](), Counter[str]()
    for sentence in corpus:
        for arc in sentence.arcs:
            if arc.relation == "nsubj":
                having[sentence.words[arc.head].lower()] += 1
                being[sentence.words[arc.dependent].lower()] += 1
    counts = _vocabulary()
    return (
        {word for word, n in having.items() if 2 * n > counts[word]},
        {word for word, n in being.items() if 4 * n > counts[word]},
    )


def _set(made: GPT2LMHeadModel, where: str, query: Tensor, key: Tensor, value: Tensor | None = None) -> None:
    """Sets a planted head's query, key and value maps, [WIDTH/2, up to SIZE] of the first half of the vectors."""
    layer, head = PLANTED[where]
    attention = made.transformer.h[layer].attn
    for number, given in enumerate((query, key, torch.zeros(WIDTH // 2, 1) if value is None else value)):
        start = number * WIDTH + head * SIZE
        attention.c_attn.weight[:, start : start + SIZE] = 0
        attention.c_attn.weight[: WIDTH // 2, start : start + given.shape[1]] = given.float()
    attention.c_proj.weight[head * SIZE : (head + 1) * SIZE] = 0


def _write(made: GPT2LMHeadModel, where: str, slot: str, strength: float) -> None:
    """Lets a planted head write its value, a word's code, into a slot."""
    layer, head = PLANTED[where]
    rows = slice(head * SIZE, head * SIZE + _CODE)
    place = _SLOTS[slot]
    weight = made.transformer.h[layer].attn.c_proj.weight
    weight[rows, place] = strength * torch.eye(_CODE)
    weight[rows, place.start + WIDTH // 2 : place.stop + WIDTH // 2] = -strength * torch.eye(_CODE)


def _read(slot: str, strength: float = 1.0) -> Tensor:
    """A map [WIDTH/2, size] that reads a slot."""
    place = _SLOTS[slot]
    size = place.stop - place.start
    result = torch.zeros(WIDTH // 2, size)
    result[place] = strength * torch.eye(size)
    return result


def _turned() -> Tensor:
    """A map [WIDTH/2, 2·angles] that reads the place, one position earlier."""
    result = torch.zeros(WIDTH // 2, 2 * _ANGLES)
    start = _SLOTS["place"].start
    for number, rate in enumerate(_RATES.tolist()):
        cosine, sine = math.cos(rate), math.sin(rate)
        rows, columns = start + 2 * number, 2 * number
        result[rows, columns], result[rows + 1, columns] = cosine, sine
        result[rows, columns + 1], result[rows + 1, columns + 1] = -sine, cosine
    return result


def _previous(made: GPT2LMHeadModel) -> None:
    _set(made, "previous", 40 * _turned(), _read("place"), _read("word"))
    _write(made, "previous", "before", 1.0)


def _subject(made: GPT2LMHeadModel) -> None:
    """Verbs look for the last word that mostly is a subject; all other words everywhere."""
    keys = torch.zeros(WIDTH // 2, 1)
    keys[_SLOTS["nominal"]] = 1.0
    keys[_SLOTS["place"].stop - 1] = 1.0  # the sine of the slowest angle, which grows with the position
    _set(made, "subject", _read("verb", 40.0), keys)


def _rare(made: GPT2LMHeadModel) -> None:
    _set(made, "rare", _read("one", 120.0), _read("rarity"))


def _induction(made: GPT2LMHeadModel) -> None:
    _set(made, "induction", _read("word", 100.0), _read("before"), _read("word"))
    _write(made, "induction", "found", 1.0)
