"""Language models: goals one token on, perplexity by hand, and which tokens are hidden."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch

from pellucid.corpus import Corpus
from pellucid.errors import TrainError
from pellucid.train.tasks import IGNORED, TASKS
from tests.train.tasks.making import END, MASK, PAD, UNK, Known, all_batches, random_table, settings, words

LM, MLM = TASKS["lm"], TASKS["mlm"]
TEXTS = ["a b c d e", "b", "c a b d d a b c e e a", "e d", "a b a b a b a"]


def prepared(task, *, shuffled, texts=TEXTS, frame="end", **changes):
    tokenizer = words(TEXTS, task=task.name, frame=frame)
    chosen = settings(task.name, **changes)
    return task.examples(Corpus.of(texts), tokenizer, chosen, None, shuffled=shuffled), tokenizer, chosen


def running(tokenizer, texts=TEXTS):
    """The ids of all texts one behind the other, by the tokenizer's own call."""
    return [token for text in texts for token in tokenizer(text)["input_ids"]]


# Goals


def test_the_goal_of_a_stream_is_the_token_behind_it():
    examples, tokenizer, _ = prepared(LM, shuffled=True, rows="stream")
    ids = running(tokenizer)
    assert ids[5] == END
    column = examples.steps() * 4
    assert examples.steps() == (len(ids) - 1) // 8
    for step, batch in enumerate(all_batches(examples)):
        for row in range(2):
            first = row * column + step * 4
            assert batch["input_ids"][row].tolist() == ids[first : first + 4]
            assert batch["goals"][row].tolist() == ids[first + 1 : first + 5]


def test_evaluation_asks_for_every_token_but_the_first_once():
    examples, tokenizer, _ = prepared(LM, shuffled=False, rows="stream", batch=3, length=5)
    goals = torch.cat([batch["goals"].flatten() for batch in all_batches(examples)])
    assert goals[goals != IGNORED].tolist() == running(tokenizer)[1:]
    assert examples.tokens == len(running(tokenizer)) - 1


def test_sentences_are_asked_for_their_own_tokens_alone():
    examples, tokenizer, _ = prepared(LM, shuffled=False, frame="both", batch=1)
    found = Counter()
    for batch in all_batches(examples):
        assert batch["input_ids"].shape[1] <= 4
        for given, goals in zip(batch["input_ids"].tolist(), batch["goals"].tolist(), strict=True):
            found.update(zip(given, goals, strict=True))
    wanted = Counter()
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        wanted.update(itertools.pairwise(ids))
    assert found == wanted


def test_the_tokenizer_is_read_without_its_own_cutting_and_padding_and_stays_as_it_is():
    tokenizer = words(TEXTS)
    tokenizer.backend_tokenizer.enable_truncation(3)
    tokenizer.backend_tokenizer.enable_padding(length=20)
    before = tokenizer.backend_tokenizer.to_str()
    examples = LM.examples(Corpus.of(TEXTS), tokenizer, settings("lm", rows="stream"), None, shuffled=False)
    assert examples.tokens == len(running(words(TEXTS))) - 1
    assert tokenizer.backend_tokenizer.to_str() == before


def test_unknown_words_are_unknown():
    tokenizer = words(["a b"])
    corpus = Corpus.of(["a zebra b <unk> b"])
    examples = LM.examples(corpus, tokenizer, settings("lm", rows="stream"), None, shuffled=False)
    ids = examples.batch(0, 0)["input_ids"].flatten()[:5].tolist()
    a, b = tokenizer.convert_tokens_to_ids(["a", "b"])
    assert ids == [a, UNK, b, UNK, b]


# Loss and perplexity


def by_hand(tokenizer, table, pairs):
    """The mean loss of a table of logits over pairs of tokens, in plain arithmetic."""
    losses = []
    for given, goal in pairs:
        row = table[given].tolist()
        losses.append(math.log(sum(math.exp(value) for value in row)) - row[goal])
    return sum(losses) / len(losses)


@pytest.mark.parametrize(("batch", "length"), [(1, 4), (2, 4), (3, 5), (5, 64)])
@pytest.mark.parametrize("rows", ["stream", "sentences"])
def test_perplexity_of_a_known_network(rows, batch, length):
    """However the text is cut and padded, the loss is that of all pairs of tokens."""
    examples, tokenizer, chosen = prepared(LM, shuffled=False, rows=rows, batch=batch, length=length)
    table = random_table(len(tokenizer), len(tokenizer))
    pairs = []
    for ids in [running(tokenizer)] if rows == "stream" else [tokenizer(text)["input_ids"] for text in TEXTS]:
        pairs += itertools.pairwise(ids)
    loss = by_hand(tokenizer, table, pairs)
    scores = LM.evaluate(Known(table), examples, "cpu", chosen)
    assert scores == pytest.approx({"loss": loss, "perplexity": math.exp(loss)}, rel=1e-5)


def test_the_loss_of_a_batch_is_the_mean_over_its_goals():
    examples, tokenizer, chosen = prepared(LM, shuffled=False, label_smoothing=0.1, batch=5, length=64)
    table = random_table(len(tokenizer), len(tokenizer))
    (batch,) = all_batches(examples)
    chances = table.log_softmax(dim=-1).double()
    plain, smooth = [], []
    for given, goal in zip(batch["input_ids"].flatten().tolist(), batch["goals"].flatten().tolist(), strict=True):
        if goal != IGNORED:
            plain.append(-float(chances[given, goal]))
            smooth.append(-float(chances[given].mean()))
    mean = sum(plain) / len(plain)
    smoothed = 0.9 * mean + 0.1 * sum(smooth) / len(smooth)
    assert LM.loss(Known(table), batch, chosen).item() == pytest.approx(smoothed, rel=1e-5)
    assert LM.evaluate(Known(table), examples, "cpu", chosen)["loss"] == pytest.approx(mean, rel=1e-5)


def test_evaluation_leaves_the_network_as_it_was():
    examples, tokenizer, chosen = prepared(LM, shuffled=False)
    network = Known(random_table(len(tokenizer), len(tokenizer)), cached=True).train()
    LM.evaluate(network, examples, "cpu", chosen)
    assert network.training
    assert network.table.grad is None
    assert all(not call["training"] and call["use_cache"] is False for call in network.seen)
    assert "goals" not in network.seen[0]
    network = Known(network.table.detach()).eval()
    LM.evaluate(network, examples, "cpu", chosen)
    assert not network.training
    assert "use_cache" not in network.seen[0]


def test_chance_is_a_unigram_model():
    training, tokenizer, chosen = prepared(LM, shuffled=True, rows="stream")
    held_out, _, _ = prepared(LM, shuffled=False, rows="stream", texts=["a b a", "e zebra"])
    counts = Counter(training.goals.flatten().tolist())
    total = sum(counts.values()) + len(tokenizer)
    goals = running(tokenizer, ["a b a", "e zebra"])[1:]
    loss = -sum(math.log((counts[goal] + 1) / total) for goal in goals) / len(goals)
    assert UNK in goals
    assert counts[UNK] == 0
    scores = LM.chance(held_out, training, chosen)
    assert scores == pytest.approx({"loss": loss, "perplexity": math.exp(loss)})


def test_too_little_text_is_refused():
    with pytest.raises(
        TrainError, match=r"given sentences has 3 tokens to read, and one batch takes 128 \(4 rows of 32"
    ):
        prepared(LM, shuffled=True, texts=["a b c"], rows="stream", batch=4, length=32)
    with pytest.raises(TrainError, match="has 1 rows of use, and one batch takes 4"):
        prepared(LM, shuffled=True, texts=["a b c"], batch=4)


def test_a_vocabulary_learns_from_every_text_and_there_are_no_labels():
    assert list(LM.texts(Corpus.of(TEXTS), settings("lm"))) == TEXTS
    assert LM.labels(Corpus.of(TEXTS), settings("lm")) is None


# Hidden tokens


LETTERS = [*"abcdefghijklmnop"]


def hidden(rows="stream", batch=64, length=32, epoch=1, **changes):
    """Many batches of hidden letters: what was written, what is read and what is asked for."""
    texts = [" ".join(LETTERS[(place * step) % 16] for place in range(1, 41)) for step in range(1, 301)]
    tokenizer = words(texts, task="mlm")
    chosen = settings("mlm", rows=rows, batch=batch, length=length, **changes)
    examples = MLM.examples(Corpus.of(texts), tokenizer, chosen, None, shuffled=True)
    whole = [examples.held.batch(epoch, step)["input_ids"] for step in range(examples.steps())]
    return whole, all_batches(examples, epoch), examples, tokenizer


def test_tokens_are_hidden_in_the_published_shares():
    written, read, _, tokenizer = hidden()
    ids = torch.cat([part.flatten() for part in written])
    seen = torch.cat([batch["input_ids"].flatten() for batch in read])
    goals = torch.cat([batch["goals"].flatten() for batch in read])
    asked = goals != IGNORED
    assert torch.equal(goals[asked], ids[asked])
    assert torch.equal(seen[~asked], ids[~asked])
    letters = ids != END
    assert not bool(asked[~letters].any())
    count = int(asked.sum())
    assert abs(count / int(letters.sum()) - 0.15) < 4 * math.sqrt(0.15 * 0.85 / int(letters.sum()))
    masked = float((seen[asked] == MASK).double().mean())
    kept = float((seen[asked] == ids[asked]).double().mean())
    error = 4 * math.sqrt(0.8 * 0.2 / count)
    assert abs(masked - 0.8) < error
    assert abs(kept - (0.1 + 0.1 / 16)) < error  # a random letter is the same one at times
    others = seen[asked & (seen != MASK) & (seen != ids)]
    assert set(others.tolist()) == set(tokenizer.convert_tokens_to_ids(LETTERS))  # all of them, and no special token


def test_what_is_hidden_depends_on_seed_epoch_and_step():
    _, first, examples, _ = hidden()
    for step in reversed(range(examples.steps())):  # in another order, they are the same
        again = examples.batch(1, step)
        assert all(torch.equal(again[name], first[step][name]) for name in again)
    one, other = examples.batch(1, 0)["goals"], examples.batch(2, 0)["goals"]
    assert not torch.equal(one, other)
    assert not torch.equal(one != IGNORED, first[1]["goals"] != IGNORED)
    _, seeded, _, _ = hidden(seed=1)
    assert not torch.equal(one, seeded[0]["goals"])


def test_a_batch_always_asks_for_something_but_never_for_padding_or_special_tokens():
    _, read, _, _ = hidden(rows="sentences", batch=4, length=12, masked=1e-9)
    for batch in read:
        assert int((batch["goals"] != IGNORED).sum()) == 1
    _, read, _, _ = hidden(rows="sentences", batch=4, length=12, masked=0.999)
    for batch in read:
        asked = batch["goals"][batch["goals"] != IGNORED]
        assert not set(asked.tolist()) & {PAD, END}
        assert bool((batch["goals"][batch["attention_mask"] == 0] == IGNORED).all())


def test_hidden_tokens_change_nothing_else_of_the_examples():
    """A stream has batches of one shape, which a step may be recorded for; sentences have not."""
    tokenizer = words(TEXTS, task="mlm")
    for rows, fixed in (("stream", True), ("sentences", False)):
        chosen = settings("mlm", rows=rows, batch=2, length=40)
        examples = MLM.examples(Corpus.of(TEXTS), tokenizer, chosen, None, shuffled=False)
        assert (examples.fixed, examples.sentences, examples.classes) == (fixed, len(TEXTS), len(tokenizer))
        assert examples.tokens == sum(len(tokenizer(text)["input_ids"]) for text in TEXTS)


def test_unknown_words_are_asked_for():
    tokenizer = words(["a b"], task="mlm")
    chosen = settings("mlm", rows="stream", masked=0.999)
    examples = MLM.examples(Corpus.of(["a zebra b a"] * 8), tokenizer, chosen, None, shuffled=True)
    assert UNK in examples.batch(1, 0)["goals"]


def test_long_sentences_are_cut_between_their_special_tokens():
    tokenizer = words(TEXTS, task="mlm", frame="both")
    examples = MLM.examples(Corpus.of(TEXTS), tokenizer, settings("mlm", length=6), None, shuffled=False)
    found = Counter()
    for step in range(examples.steps()):
        batch = examples.held.batch(0, step)
        for row, real in zip(batch["input_ids"].tolist(), batch["attention_mask"].tolist(), strict=True):
            ids = row[: sum(real)]
            assert len(ids) <= 6
            assert ids[0] == tokenizer.bos_token_id
            assert ids[-1] == END
            found.update(ids[1:-1])
    assert found == Counter(token for text in TEXTS for token in tokenizer(text)["input_ids"] if token not in (2, END))


def test_masked_scores_of_a_known_network():
    examples, tokenizer, chosen = prepared(MLM, shuffled=False, rows="stream", masked=0.5)
    table = random_table(len(tokenizer), len(tokenizer), seed=3)
    pairs = []
    for batch in all_batches(examples):
        for given, goal in zip(batch["input_ids"].flatten().tolist(), batch["goals"].flatten().tolist(), strict=True):
            if goal != IGNORED:
                pairs.append((given, goal))
    loss = by_hand(tokenizer, table, pairs)
    hits = sum(int(table[given].argmax()) == goal for given, goal in pairs) / len(pairs)
    scores = MLM.evaluate(Known(table), examples, "cpu", chosen)
    assert scores == pytest.approx({"loss": loss, "perplexity": math.exp(loss), "accuracy": hits}, rel=1e-5)
    assert scores == MLM.evaluate(Known(table), examples, "cpu", chosen)


def test_masked_chance_takes_everything_for_the_most_frequent_word():
    training, tokenizer, chosen = prepared(MLM, shuffled=True, rows="stream")
    held_out, _, _ = prepared(MLM, shuffled=False, rows="stream", texts=["a b a", "e d d d"])
    most = Counter(token for token in training.goals.flatten().tolist() if token != IGNORED).most_common(1)[0][0]
    goals = [token for token in running(tokenizer, ["a b a", "e d d d"]) if token != END]
    assert MLM.chance(held_out, training, chosen)["accuracy"] == pytest.approx(goals.count(most) / len(goals))


def test_masked_refusals():
    with pytest.raises(TrainError, match="masked=0 hides no token"):
        prepared(MLM, shuffled=True, rows="stream", masked=0)
    tokenizer = words(TEXTS)
    tokenizer.mask_token = None
    with pytest.raises(TrainError, match="has no mask token"):
        MLM.examples(Corpus.of(TEXTS), tokenizer, settings("mlm"), None, shuffled=True)
