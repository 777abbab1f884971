"""The recipe's parts, on answers worked out by hand: text, rows, losses and repetition."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from pellucid.errors import PellucidError
from recipes import wikitext
from recipes.lm_scores import IGNORED, Score, induction, repeated_tokens, score, unigram, windows
from recipes.lm_training import Settings, _Rows, _schedule

WORDS = """= a the game role playing @-@ @,@ @.@ 1 000 5 , . ( ) : ' s 's " said it Title Plot %"""
KNOWN = frozenset(WORDS.split())


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("role @-@ playing game", "role-playing game"),
        ("1 @,@ 000 ( 5 @.@ 1 % ) .", "1,000 (5.1%)."),
        ('said " it " , the " game " .', 'said "it", the "game".'),
        ("the game 's role", "the game's role"),
        ("= = Plot = =", "== Plot =="),
        ("the wizard said", "the <unk> said"),
    ],
)
def test_lines_read_like_english_and_rare_words_are_unknown(raw, wanted):
    assert wikitext.articles([raw], KNOWN) == [f"{wanted}\n"]


def test_articles_begin_at_titles_alone():
    lines = ["", " = Title = ", "", " a game . ", " = = Plot = = ", " it = 1 = ", " = 1 = ", "", " = game = ", " the "]
    assert wikitext.articles(lines, KNOWN) == [
        "= Title =\na game.\n== Plot ==\nit = 1 =\n= 1 =\n",
        "= game =\nthe\n",
    ]


def test_one_rule_of_rare_words_for_all_three_files(tmp_path):
    (tmp_path / "train.txt").write_text(" a a a b b \n a b c \n")
    (tmp_path / "valid.txt").write_text(" a b c d \n")
    (tmp_path / "test.txt").write_text(" d a <unk> \n")
    found = wikitext.read(tmp_path)
    assert {name: split.articles for name, split in found.items()} == {
        "train": ("a a a b b\na b <unk>\n",),
        "valid": ("a b <unk> <unk>\n",),
        "test": ("<unk> a <unk>\n",),
    }
    assert {name: split.words for name, split in found.items()} == {"train": 8, "valid": 4, "test": 3}
    (tmp_path / "valid.txt").unlink()
    with pytest.raises(PellucidError, match=r"lacks valid\.txt"):
        wikitext.read(tmp_path)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 12, 13, 40])
def test_every_token_is_predicted_once_from_what_stands_before_it(length):
    article = [0, *range(100, 100 + length), 0]
    ids, targets = windows([article, article], 8)
    assert ids.shape == targets.shape
    assert ids.shape[1] == 8
    scored = targets[targets != IGNORED].tolist()
    assert scored == 2 * article[1:]
    for row, goals in zip(ids.tolist(), targets.tolist(), strict=True):
        assert row[0] == 0
        for place, goal in enumerate(goals):
            if goal not in (IGNORED, 0, 100):
                assert row[place] == goal - 1
            if goal > 104:  # half a row or more stands before it
                assert place >= 4


class Table(torch.nn.Module):
    """A model whose next token depends on the present one alone, by a table of logits [V, V]."""

    def __init__(self, logits, context):
        super().__init__()
        self.logits, self.config, self.device = logits, SimpleNamespace(n_positions=context), torch.device("cpu")

    def forward(self, input_ids, **_):
        return SimpleNamespace(logits=self.logits[input_ids])


def test_the_loss_of_a_known_model_and_that_it_does_not_depend_on_batches():
    random = torch.Generator().manual_seed(0)
    table = torch.randn(30, 30, generator=random)
    articles = [[0, *torch.randint(1, 30, (n,), generator=random).tolist(), 0] for n in (3, 11, 25)]
    surprise = -table.log_softmax(-1)
    wanted = sum(float(surprise[a, b]) for text in articles for a, b in pairwise(text))
    for rows in (1, 2, 50):
        found = score(Table(table, 8), articles, rows=rows)
        assert found.tokens == sum(len(text) - 1 for text in articles)
        assert found.nats == pytest.approx(wanted, rel=1e-5)


def test_perplexities_per_token_and_per_word():
    found = Score(nats=12 * math.log(2), tokens=12)
    assert found.perplexity() == pytest.approx(2)
    assert found.perplexity(6) == pytest.approx(4)


def test_unigram_is_the_cross_entropy_of_counts_with_one_added():
    found = unigram(torch.tensor([1, 1, 1, 2]), [[0, 1, 2, 0]], vocabulary=3)
    assert found == Score(pytest.approx(-math.log(4 / 7) - math.log(2 / 7) - math.log(1 / 7)), 3)


def test_induction_is_read_from_the_right_places():
    """A made-up model whose head (1, 2) looks exactly where an induction head would, and which then copies."""
    length, rows, vocabulary = 6, 3, 50
    ids = repeated_tokens(vocabulary, 0, length=length, rows=rows)
    assert ids.shape == (rows, 13)
    assert int(ids[:, 1:].min()) >= 2
    places = 2 * length + 1
    patterns = [torch.full((rows, 4, places, places), 1 / places) for _ in range(2)]
    logits = torch.zeros(rows, places, vocabulary)
    for t in range(length + 1, 2 * length):
        patterns[1][:, 2, t] = 0
        patterns[1][:, 2, t, t - length + 1] = 0.75
        logits[torch.arange(rows), t, ids[:, t + 1]] = 20.0
    model = SimpleNamespace(eval=lambda: None, device="cpu")
    called = type("Fixed", (), {"__call__": lambda self, **_: SimpleNamespace(logits=logits, attentions=patterns)})()
    called.eval, called.device = model.eval, model.device
    found = induction(called, ids)
    assert (found.layer, found.head) == (1, 2)
    assert found.attention == pytest.approx(0.75)
    assert found.first == pytest.approx(math.log(vocabulary))
    assert found.second == pytest.approx(0, abs=1e-4)


def test_an_epoch_reads_the_stream_once_and_repeated_rows_repeat():
    stream = torch.arange(2, 1002)
    rows = _Rows(stream, 0, Settings(context=32, rows=8, repeats=0.25))
    seen: list[int] = []
    for _ in range(5):
        ids, goals = rows.next()
        assert ids.shape == goals.shape == (8, 32)
        assert torch.equal(ids[:, 0], torch.zeros(8, dtype=torch.long))
        assert torch.equal(ids[:6, 1:], goals[:6, :-1])
        assert torch.equal(goals[:6, 1:] - goals[:6, :-1], torch.ones(6, 31, dtype=torch.long))
        seen += goals[:6].flatten().tolist()
        for row, goal in zip(ids[6:].tolist(), goals[6:].tolist(), strict=True):
            first = next(place for place in range(32) if goal[place] != IGNORED)
            period = first - 1  # the first token of the repetition is not announced
            assert 8 <= period <= 8
            assert all(goal[t] == row[t + 1 - period] for t in range(first, 31))
    assert len(seen) == len(set(seen))


def test_the_learning_rate_rises_and_falls():
    rates = [_schedule(step, 100) for step in range(1, 101)]
    assert rates[0] == pytest.approx(0.2)
    assert max(rates) == rates[4] == pytest.approx(1)
    assert rates[-1] == pytest.approx(0)
    assert rates[4:] == sorted(rates[4:], reverse=True)
