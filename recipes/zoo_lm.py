"""Makes zoo:lm, a small GPT-2 trained on WikiText-2: `python -m recipes.zoo_lm --data FOLDER --out FOLDER`.

Text → tokenizer → training → float16 → scores of the saved files → card. The seed fixes everything; the same machine
and libraries give the same files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts: reproducible matrix products

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GPT2LMHeadModel

from pellucid.errors import PellucidError
from recipes import cards, lm_card, wikitext
from recipes.finished import finished
from recipes.lm_scores import Score, induction, repeated_tokens, score, unigram
from recipes.lm_training import Settings, network, train

START = "<|endoftext|>"
SUMMARY = "A small GPT-2 that has read WikiText-2: real enough to look into, small enough to come with the package."
EXCERPT = 1000  # characters of the first test article that the card keeps, so that its loss can be checked anywhere
CHECKED = 3  # test articles whose loss the card keeps


def train_tokenizer(articles: tuple[str, ...], size: int) -> Tokenizer:
    """A byte-level BPE vocabulary; every encoded text begins with the start token (id 0), and <unk> is id 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    unknown = AddedToken(wikitext.UNKNOWN, lstrip=True, special=True)  # the space before it is part of it
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[START, unknown],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((re.sub(f" ?{wikitext.UNKNOWN}", "", article) for article in articles), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", pair=f"{START} $A {START} $B", special_tokens=[(START, 0)]
    )
    return tokenizer


def encode(tokenizer: Tokenizer, articles: tuple[str, ...]) -> list[list[int]]:
    """Articles as [start, tokens…, start]."""
    return [[*encoded.ids, 0] for encoded in tokenizer.encode_batch(list(articles))]


def save(folder: Path, model: GPT2LMHeadModel, tokenizer: Tokenizer) -> None:
    """Weights in float16, the tokenizer, and the settings that transformers reads beside them."""
    model.config.name_or_path = ""
    model.generation_config.suppress_tokens = [1]  # <unk> is in the text, and no one wants to read it
    model.half().save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # it is written for its owner alone
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=False), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": START,
        "eos_token": START,
        "pad_token": START,
        "unk_token": wikitext.UNKNOWN,
        "model_max_length": model.config.n_positions,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def make(data: Path, folder: Path, settings: Settings, *, device: str, command: str, selection: str) -> None:
    """Everything from the text to the finished folder."""
    text = wikitext.read(data)
    tokenizer = train_tokenizer(text["train"].articles, settings.vocabulary)
    ids = {name: encode(tokenizer, split.articles) for name, split in text.items()}
    stream = torch.tensor([token for article in ids["train"] for token in article[:-1]])
    words = {name: split.words for name, split in text.items()}
    print(f"{len(stream):,} training tokens, {words['train']:,} words", flush=True)

    model: Any = network(settings, start=0)
    parameters = sum(weight.numel() for weight in model.parameters())
    print(f"{parameters:,} parameters", flush=True)
    model.to(device)
    tested = ("valid", "test")
    untrained = {name: _figures(score(model, ids[name]), words[name]) for name in tested}
    frequency = {name: _figures(unigram(stream, ids[name], settings.vocabulary), words[name]) for name in tested}
    train(model, stream, ids["valid"], settings, device)
    save(folder, model, tokenizer)

    stored: Any = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    stored.to(device)
    excerpt = text["test"].articles[0][:EXCERPT]
    half = min(64, (settings.context - 1) // 2)
    looked = induction(stored, repeated_tokens(settings.vocabulary, 0, length=half))
    scores: dict[str, Any] = {
        **{name: _figures(score(stored, ids[name]), words[name]) for name in tested},
        "unigram": frequency,
        "untrained": untrained,
        "induction": {**asdict(looked), "chance": float(torch.tensor(settings.vocabulary - 2).log())},
        "excerpt": {"text": excerpt, **_loss(score(stored, encode(tokenizer, (excerpt,))))},
        "first_test_articles": {"articles": CHECKED, **_loss(score(stored, ids["test"][:CHECKED]))},
    }
    facts = {"parameters": parameters, "recipe": command, "selection": selection, "scores": scores}
    tokens = {name: sum(len(article) - 1 for article in split) for name, split in ids.items()}
    card = {**describe(settings, words, tokens), **facts, "machine": cards.machine(device)}
    cards.write(folder, card, lm_card.readme)
    size = sum(item.stat().st_size for item in folder.iterdir())
    brief = {name: scores[name] for name in ("valid", "induction")}  # settings are compared by these: never by test
    print(json.dumps({"settings": asdict(settings), "parameters": parameters, "bytes": size, **brief}), flush=True)


def describe(settings: Settings, words: dict[str, int], tokens: dict[str, int]) -> dict[str, Any]:
    """What the card says of the model and its text, whatever the run gave."""
    return {
        "format": 1,
        "name": "lm",
        "kind": "causal language model",
        "summary": SUMMARY,
        "architecture": {
            "family": "GPT-2",
            "layers": settings.layers,
            "width": settings.width,
            "heads": settings.width // settings.head_width,
            "context": settings.context,
            "vocabulary": settings.vocabulary,
        },
        "data": {
            "name": "WikiText-2 (Merity et al. 2016), articles from English Wikipedia",
            "words": words,
            "tokens": tokens,
            "normalisation": wikitext.NORMALISATION,
            "counting": _counting(words, settings.context),
        },
        "licence": "CC BY-SA 3.0",
        "licence_reason": "the licence of the text it was trained on",
        "note": _note(settings),
        "seed": settings.seed,
        "settings": asdict(settings),
        "versions": cards.versions(),
    }


def _counting(words: dict[str, int], context: int) -> str:
    return (
        "A token is one of this model's own, the end of an article included. Words are what stands between spaces in "
        f"the files as they come ({words['valid']:,} in valid.txt, {words['test']:,} in test.txt; line ends are not "
        "counted); the nats of all tokens, line ends included, are divided by that number. Each token is predicted "
        f"with {context // 2} or more tokens before it where the article has them."
    )


def _note(settings: Settings) -> str:
    return (
        f"`{START}` begins every article and every text that the tokenizer encodes. `{wikitext.UNKNOWN}` is a token of "
        "its own, counted in the scores; the model is kept from writing it when it generates. Besides the articles, "
        f"{settings.repeats:.1%} of the training rows were random tokens said again and again (drawn by their "
        "frequency, scored from the second time on), so that heads which look back for a repetition can form."
    )


def _figures(found: Score, words: int) -> dict[str, float]:
    per_token, per_word = found.perplexity(), found.perplexity(words)
    return {"loss": found.per_token, "perplexity_per_token": per_token, "perplexity_per_word": per_word}


def _loss(found: Score) -> dict[str, float]:
    return {"loss": found.per_token, "tokens": found.tokens}


def main() -> None:
    """Reads the command line; a finished folder takes the place of an older one only when all is well."""
    parser = argparse.ArgumentParser(prog="python -m recipes.zoo_lm", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with train.txt, valid.txt and test.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; one made before is replaced")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--selection", default="", help="a sentence for the card: how the settings were chosen")
    for field in fields(Settings):
        flag = f"--{field.name.replace('_', '-')}"
        parser.add_argument(flag, type=type(field.default), default=field.default, help=f"default {field.default}")
    given = parser.parse_args()
    chosen = replace(Settings(), **{field.name: getattr(given, field.name) for field in fields(Settings)})
    flags = [
        f"--{name.replace('_', '-')} {value}"
        for name, value in asdict(chosen).items()
        if value != getattr(Settings(), name)
    ]
    command = " ".join(["python -m recipes.zoo_lm --data wikitext2 --out lm --device", given.device, *flags])
    try:
        with finished(given.out) as folder:
            make(given.data, folder, chosen, device=given.device, command=command, selection=given.selection)
    except PellucidError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
