"""Translation: what the decoder reads and writes, greedy translations, and BLEU."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest
import torch

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import TrainError
from pellucid.train.architectures import build
from pellucid.train.settings import settings_for
from pellucid.train.tasks import IGNORED, TASKS, translation
from pellucid.train.tasks.translation import spread, translated
from tests.corpus.real_data import real
from tests.train.tasks.making import END, PAD, all_batches, settings, words

TRANSLATE = TASKS["translate"]


def parallel(*pairs, name="parallel"):
    return Corpus.of(
        [
            Sentence.of_text(first, id=str(number), second=Sentence.of_text(second))
            for number, (first, second) in enumerate(pairs)
        ],
        name=name,
    )


PAIRS = [("a dog", "ein Hund"), ("the cats run", "die Katzen rennen weg"), ("no", "nein"), ("a cat", "eine Katze")]
CORPUS = parallel(*PAIRS)


def prepared(corpus=CORPUS, *, frame="end", shuffled=False, **changes):
    chosen = settings("translate", **{"length": 8, **changes})
    tokenizer = words(TRANSLATE.texts(CORPUS, chosen), task="translate", frame=frame)
    return TRANSLATE.examples(corpus, tokenizer, chosen, None, shuffled=shuffled), tokenizer, chosen


def network_for(tokenizer, **changes):
    chosen = settings_for(
        "translate", layers=1, width=16, heads=2, feed_forward=16, length=8, vocabulary="word", batch=2, **changes
    )
    return build(chosen, tokenizer, None)


def test_both_sides_share_a_vocabulary():
    assert list(TRANSLATE.texts(CORPUS, settings("translate"))) == [text for pair in PAIRS for text in pair]


def test_goals_are_the_translation_of_the_same_row():
    examples, tokenizer, _ = prepared(shuffled=True)
    found = set()
    for batch in all_batches(examples, 1):
        for ids, goals in zip(batch["input_ids"], batch["goals"], strict=True):
            wanted = goals[goals != IGNORED]
            assert wanted[-1] == END
            assert (wanted == END).sum() == 1
            found.add((tokenizer.decode(ids, skip_special_tokens=True), tokenizer.decode(wanted[:-1])))
    assert found == set(PAIRS)
    assert examples.tokens == sum(len(one.split()) + len(other.split()) + 2 for one, other in PAIRS)


def test_a_translation_ends_even_where_the_frame_or_the_length_leaves_no_end():
    for frame in ("end", "start", "both"):
        examples, _, _ = prepared(frame=frame, length=4)
        for batch in all_batches(examples):
            assert batch["goals"].shape[1] <= 4
            for goals in batch["goals"]:
                assert goals[goals != IGNORED][-1] == END


def test_the_decoder_reads_what_stands_before_each_goal():
    examples, tokenizer, chosen = prepared()
    network = network_for(tokenizer)
    network.config.use_cache = True
    batch = examples.batch(0, 1)
    seen = {}
    network.register_forward_pre_hook(lambda module, given, named: seen.update(named), with_kwargs=True)
    TRANSLATE.loss(network, batch, chosen)
    start = network.config.decoder_start_token_id
    for read, goals in zip(seen["decoder_input_ids"].tolist(), batch["goals"].tolist(), strict=True):
        assert read == [start, *(PAD if goal == IGNORED else goal for goal in goals[:-1])]
    assert seen["use_cache"] is False
    assert "goals" not in seen


def test_padding_on_either_side_does_not_count():
    examples, tokenizer, chosen = prepared(batch=4)
    network = network_for(tokenizer).eval()
    total, count = 0.0, 0
    for source, target in PAIRS:
        ids, goals = (torch.tensor([tokenizer(text)["input_ids"]]) for text in (source, target))
        read = torch.cat([torch.tensor([[network.config.decoder_start_token_id]]), goals[:, :-1]], dim=1)
        with torch.no_grad():
            chances = network(input_ids=ids, decoder_input_ids=read).logits[0].double().log_softmax(-1)
        total -= float(chances.gather(1, goals[0, :, None]).sum())
        count += goals.numel()
    scores = TRANSLATE.evaluate(network, examples, "cpu", chosen)
    assert scores["loss"] == pytest.approx(total / count, rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)
    assert TRANSLATE.loss(network, examples.batch(0, 0), chosen).item() == pytest.approx(total / count, rel=1e-5)


def greedy(network, tokenizer, text, most):
    """Word by word, without anything kept from one to the next."""
    ids, written = torch.tensor([tokenizer(text)["input_ids"]]), [network.config.decoder_start_token_id]
    while len(written) <= most:
        with torch.no_grad():
            logits = network(input_ids=ids, decoder_input_ids=torch.tensor([written])).logits
        written.append(int(logits[0, -1].argmax()))
        if written[-1] == END:
            break
    return tokenizer.decode([token for token in written[1:] if token not in (END, PAD, 2)]).strip()


def test_a_network_learns_to_translate_word_by_word():
    examples, tokenizer, chosen = prepared(shuffled=True, batch=4)
    network = network_for(tokenizer, dropout=0.0, embedding_dropout=0.0).train()
    optimiser = torch.optim.AdamW(network.parameters(), 1e-2)
    for epoch in range(150):
        optimiser.zero_grad()
        TRANSLATE.loss(network, examples.batch(epoch, 0), chosen).backward()
        optimiser.step()
    held_out, _, _ = prepared(parallel(*PAIRS, ("cat dog run", "?")))
    found = translated(network, held_out, torch.tensor([2, 4, 0, 1]), "cpu", chosen)
    assert network.training
    network.eval()
    assert [found[0], *found[2:]] == [PAIRS[row][1] for row in (2, 0, 1)]
    assert found[1] == greedy(network, tokenizer, "cat dog run", 8)
    assert TRANSLATE.evaluate(network, examples, "cpu", chosen)["perplexity"] < 1.2


def test_bleu_is_that_of_the_translations_beside_their_references(monkeypatch):
    examples, tokenizer, chosen = prepared()
    asked = []

    def corpus_bleu(found, right):
        asked.append((found, right))
        return SimpleNamespace(score=31.0)

    monkeypatch.setitem(sys.modules, "sacrebleu", SimpleNamespace(corpus_bleu=corpus_bleu))
    monkeypatch.setattr(translation, "translated", lambda network, examples, rows, *_: [f"t{row}" for row in rows])
    scores = TRANSLATE.evaluate(network_for(tokenizer), examples, "cpu", chosen)
    assert scores["bleu"] == 31.0
    assert asked[-1] == (["t0", "t1", "t2", "t3"], [[target for _, target in PAIRS]])
    assert TRANSLATE.chance(examples, examples, chosen)["bleu"] == 31.0
    assert asked[-1] == ([source for source, _ in PAIRS], [[target for _, target in PAIRS]])
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    assert set(TRANSLATE.evaluate(network_for(tokenizer), examples, "cpu", chosen)) == {"loss", "perplexity"}
    assert set(TRANSLATE.chance(examples, examples, chosen)) == {"loss", "perplexity"}


def test_sentences_to_be_translated_are_spread_evenly():
    assert spread(3, 5).tolist() == [0, 1, 2]
    assert spread(10, 5).tolist() == [0, 2, 4, 6, 8]
    many = spread(1014, 500).tolist()
    assert len(set(many)) == 500
    assert many[-1] > 1000


def test_refusals():
    with pytest.raises(TrainError, match="Sentence '1' of given sentences has no translation"):
        prepared(Corpus.of(["a dog"]))
    with pytest.raises(TrainError, match="parallel has 4 rows of use, and one batch takes 5"):
        prepared(shuffled=True, batch=5)


def test_real_translations():
    corpus = Corpus.parallel(*real("multi30k/val.en", "multi30k/val.de"))
    chosen = settings("translate", length=64, batch=32)
    tokenizer = words(TRANSLATE.texts(corpus, chosen), task="translate")
    examples = TRANSLATE.examples(corpus, tokenizer, chosen, None, shuffled=False)
    assert examples.sentences == 1014
    batch = examples.batch(0, 20)
    assert (batch["goals"] == END).sum() == 32
