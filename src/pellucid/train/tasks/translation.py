"""Translation: the second sentence from the first, by an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.errors import TrainError
from pellucid.model.tokens import pad_id
from pellucid.train.tasks.base import Examples, Task, evaluating, moved, output
from pellucid.train.tasks.encode import alone, encoded, own
from pellucid.train.tasks.rows import IGNORED, Batch, Order, Ragged, Split, enough
from pellucid.train.tasks.scores import Tally, bleu, counted, guessing_loss, perplexity

if TYPE_CHECKING:
    from pellucid.corpus import Corpus, Sentence
    from pellucid.train.settings import Settings

TRANSLATED = 500
"""The most sentences, spread evenly over a split, that are translated to measure BLEU."""
TOGETHER = 128
"""Sentences that are translated at once."""


@dataclass(frozen=True, eq=False)
class Translations:
    """Sentences with their translations: what the encoder reads, and what the decoder is to write."""

    sources: Ragged
    targets: Ragged
    texts: tuple[tuple[str, str], ...]
    order: Order
    split: Split
    tokenizer: Any
    fixed: bool = False

    @property
    def sentences(self) -> int:
        """Pairs of sentences."""
        return len(self.texts)

    @property
    def tokens(self) -> int:
        """Tokens of both sides."""
        return self.sources.values.numel() + self.targets.values.numel()

    @property
    def classes(self) -> int:
        """The size of the vocabulary."""
        return self.split.classes

    @property
    def goals(self) -> Tensor:
        """The tokens of all translations."""
        return self.targets.values

    def steps(self) -> int:
        """Batches in one epoch."""
        return self.order.steps()

    def batch(self, epoch: int, step: int) -> Batch:
        """Some pairs, padded on the right; what the decoder reads is made from the goals by the network's own rule."""
        rows = self.order.rows(epoch, step)
        ids, real = self.sources.padded(rows, self.split.fill)
        goals, _ = self.targets.padded(rows, IGNORED)
        return {"input_ids": ids, "attention_mask": real.long(), "goals": goals}

    def owners(self, epoch: int, step: int) -> Tensor:
        """The pair [B] of each row of a batch."""
        return self.order.rows(epoch, step)


class Translating(Task):
    """The second sentence of each pair from the first; texts that are too long lose their end."""

    name, best, larger_is_better = "translate", "perplexity", False

    def texts(self, corpus: Corpus, settings: Settings) -> Iterator[str]:
        """Sentences and translations: both sides share one vocabulary."""
        for sentence in corpus:
            yield sentence.text
            yield _translation(sentence, corpus).text

    def labels(self, corpus: Corpus, settings: Settings) -> None:
        """None: the goals are tokens."""

    def examples(
        self, corpus: Corpus, tokenizer: Any, settings: Settings, labels: tuple[str, ...] | None, *, shuffled: bool
    ) -> Examples:
        """One row for each pair; every translation ends with the token that tells the decoder to stop."""
        engine, end = own(tokenizer, limit=settings.length), tokenizer.eos_token_id
        if end is None:
            raise TrainError("The vocabulary has no token that ends a text, which translation needs.")
        texts: list[tuple[str, str]] = []
        sources: list[list[int]] = []
        targets: list[list[int]] = []
        for sentence, encoding in encoded(engine, corpus, alone, placed=False):
            sources.append(encoding.ids)
            texts.append((sentence.text, _translation(sentence, corpus).text))
        for _, encoding in encoded(
            engine, (_translation(sentence, corpus) for sentence in corpus), alone, placed=False
        ):
            ids = encoding.ids
            targets.append(ids if ids[-1:] == [end] else [*ids[: settings.length - 1], end])
        split = Split(corpus.name, len(texts), len(tokenizer), pad_id(tokenizer), shuffled)
        enough(len(texts), split, settings)
        first, second = Ragged.of(sources), Ragged.of(targets)
        order = Order(first.lengths + second.lengths, batch=settings.batch, seed=settings.seed, shuffled=split.shuffled)
        return Translations(first, second, tuple(texts), order, split, tokenizer)

    def logits(self, network: Any, batch: Mapping[str, Tensor]) -> Tensor:
        """How likely each token [B, T, V] is at each place of the translations, those before it given."""
        return output(network, _with_decoder(network, batch)).logits

    def evaluate(self, network: Any, examples: Examples, device: Any, settings: Settings) -> dict[str, float]:
        """Loss and perplexity per token; BLEU of at most TRANSLATED sentences, where sacrebleu is installed."""
        assert isinstance(examples, Translations)
        tally = Tally(device)
        with evaluating(network):
            for step in range(examples.steps()):
                batch = moved(examples.batch(0, step), device)
                tally.add(self.logits(network, batch), batch["goals"])
        found = {"loss": tally.loss(), "perplexity": perplexity(tally.loss())}
        if bleu(["a"], ["a"]) is not None:
            chosen = spread(examples.sentences)
            right = [examples.texts[row][1] for row in chosen.tolist()]
            measured = bleu(translated(network, examples, chosen, device, settings), right)
            assert measured is not None
            found["bleu"] = measured
        return found

    def chance(self, examples: Examples, training: Examples, settings: Settings) -> dict[str, float]:
        """The perplexity of a unigram model, and the BLEU of the sentences themselves, left untranslated."""
        assert isinstance(examples, Translations)
        loss = guessing_loss(counted(examples), counted(training))
        chosen = [examples.texts[row] for row in spread(examples.sentences).tolist()]
        measured = bleu([source for source, _ in chosen], [target for _, target in chosen])
        found = {"loss": loss, "perplexity": perplexity(loss)}
        return found if measured is None else {**found, "bleu": measured}


def spread(sentences: int, most: int = TRANSLATED) -> Tensor:
    """The numbers of at most so many sentences, spread evenly over all."""
    return torch.arange(min(sentences, most)) * sentences // min(sentences, most)


def translated(network: Any, examples: Examples, rows: Tensor, device: Any, settings: Settings) -> list[str]:
    """The translations of some sentences, each token the likeliest after those before it, at most `length` of them."""
    from transformers import GenerationConfig

    assert isinstance(examples, Translations)
    tokenizer, config = examples.tokenizer, network.config
    how = GenerationConfig(
        max_new_tokens=settings.length,
        do_sample=False,
        num_beams=1,
        use_cache=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=examples.split.fill,
        decoder_start_token_id=config.decoder_start_token_id,
    )
    left_out = {examples.split.fill, tokenizer.eos_token_id, tokenizer.bos_token_id, config.decoder_start_token_id}
    found: list[str] = []
    with evaluating(network):
        for part in rows.split(TOGETHER):
            ids, real = examples.sources.padded(part, examples.split.fill)
            written = network.generate(
                input_ids=ids.to(device), attention_mask=real.long().to(device), generation_config=how
            )
            kept = [[token for token in row if token not in left_out] for row in written.tolist()]
            found.extend([tokenizer.decode(row).strip() for row in kept])
    return found


def _with_decoder(network: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The batch with what the decoder reads: its start token, then the goals without the last one."""
    return {**batch, "decoder_input_ids": network.prepare_decoder_input_ids_from_labels(labels=batch["goals"])}


def _translation(sentence: Sentence, corpus: Corpus) -> Sentence:
    if sentence.second is None:
        raise TrainError(
            f"Sentence {sentence.id!r} of {corpus.name} has no translation as its second sentence: open the corpus as "
            "parallel text."
        )
    return sentence.second
