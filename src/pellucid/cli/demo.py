"""`pellucid demo`: a small model made on the spot, its sites, and what one of its heads is for."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import typer

from pellucid.cli._predictions import compared, predictions
from pellucid.cli._print import console
from pellucid.cli.sites import show_sites

if TYPE_CHECKING:
    from pellucid.model import Model

NOUNS = {
    "key": "keys",
    "dog": "dogs",
    "farmer": "farmers",
    "child": "children",
    "cabinet": "cabinets",
    "book": "books",
}
VERBS = {"is": "are", "was": "were", "sleeps": "sleep", "falls": "fall"}
PREPOSITIONS = ["near", "beside", "behind", "above"]
STEPS = 150


def register(app: typer.Typer) -> None:
    app.command(name="demo", epilog="Example: pellucid demo")(demo)


def demo() -> None:
    """Train a small model in a few seconds, show what is inside it, and switch off one of its heads."""
    from pellucid.model import Edit

    screen = console()
    model = _trained()
    show_sites(model)
    text = "the keys near the cabinet"
    plain = model.run(text)
    best, edited = None, None
    layers, heads = len([site for site in model.sites if site.kind == "heads"]), model.size("heads.0")[0]
    wanted = _verb_margin(model, plain)
    for layer in range(layers):
        for head in range(heads):
            edit = Edit.zero(f"heads.{layer}", heads=head)
            run = model.run(text, (), edit)
            margin = _verb_margin(model, run)
            if best is None or margin < best[0]:
                best, edited = (margin, edit), run
    assert best is not None and edited is not None
    screen.print(f"'{text} …' must go on with a plural verb: the noun that counts is 'keys', not 'cabinet'.")
    screen.print(
        f"Of {layers * heads} heads, this is the one the choice rests on (log odds {wanted:.1f} with it, "
        f"{best[0]:.1f} without):"
    )
    compared(predictions(model, plain, 5), predictions(model, edited, 5), [best[1]])
    restored = bool((model.run(text).logits == plain.logits).all())
    screen.print(
        "Edits last for one run: afterwards the model's output is "
        f"{'the same as before, bit for bit' if restored else 'CHANGED'}."
    )


def _verb_margin(model: Model, run: Any) -> float:
    """Log odds of plural against singular verbs as the next word."""
    import torch

    scores = run.logits[0, -1]
    ids = {word: model.tokenizer.convert_tokens_to_ids(word) for pair in VERBS.items() for word in pair}
    plural, singular = ([ids[word] for word in words] for words in (VERBS.values(), VERBS.keys()))
    return float(torch.logsumexp(scores[plural], 0) - torch.logsumexp(scores[singular], 0))


def _sentence(source: random.Random) -> str:
    """A noun phrase, often with a second noun of either number between it and its verb."""
    plural = source.random() < 0.5
    noun = source.choice(list(NOUNS.items()))[plural]
    middle = (
        f" {source.choice(PREPOSITIONS)} the {source.choice(source.choice(list(NOUNS.items())))}"
        if source.random() < 0.8
        else ""
    )
    return f"the {noun}{middle} {source.choice(list(VERBS.items()))[plural]} ."


def _trained(seed: int = 0) -> Model:
    """A two-layer language model of number agreement, trained here and now."""
    import torch
    from rich.progress import track
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    from pellucid.model import Model

    source = random.Random(seed)
    words = [
        "<pad>",
        "<unk>",
        ".",
        "the",
        *PREPOSITIONS,
        *(word for pair in (*NOUNS.items(), *VERBS.items()) for word in pair),
    ]
    core = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", unk_token="<unk>")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # faster than two for so small a model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = GPT2Config(
            vocab_size=len(words),
            n_positions=16,
            n_embd=64,
            n_layer=2,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
        config.name_or_path = "demo model"
        network = GPT2LMHeadModel(config)
        optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3)
        network.train()
        for _ in track(
            range(STEPS),
            "Training a small model of English number agreement",
            console=console(stderr=True),
            transient=True,
        ):
            batch = tokenizer(
                [_sentence(source) for _ in range(32)],
                return_tensors="pt",
                padding=True,
                return_token_type_ids=False,
            )
            labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
            loss = network(**batch, labels=labels).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    torch.set_num_threads(threads)
    return Model.load(network, tokenizer=tokenizer)
