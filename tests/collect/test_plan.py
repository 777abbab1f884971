"""The plan: shards at documents, groups of whole documents, batches within the budget, and nothing left to chance."""

from __future__ import annotations

import gc
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.collect import plan as plans
from pellucid.collect.encode import Encoder, Reading
from pellucid.collect.job import make_job, state_bytes
from pellucid.collect.moments import Moments
from pellucid.collect.plan import GROUPS, Ahead, Plan, notes, read_shards
from pellucid.collect.sweep import default_shard, sweep
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import SweepError
from tests.collect.sweeping import plan_of, reader, stories


def documents_of(sizes: list[int], *, words: int = 3) -> Corpus:
    """A corpus with so many sentences in each document."""
    made = [
        Sentence.of_words(["the", "old", "dog"][:words], id=f"{number}.{place}", document=f"d{number}")
        for number, count in enumerate(sizes)
        for place in range(count)
    ]
    return Corpus.of(made)


def shard_of(plan: Plan) -> list[int]:
    return [shard.index for shard in plan.shards for _ in range(shard.sentences)]


def group_of(plan: Plan) -> list[int]:
    found: dict[int, int] = {}
    for shard in plan.shards:
        found |= {shard.first + member: batch.group for batch in shard.batches for member in batch.members}
    return [found[place] for place in sorted(found)]


def test_the_same_corpus_gives_the_same_plan():
    first, again = (plan_of([reader("bert")], stories(40)) for _ in range(2))
    assert first.to_json() == again.to_json()


def test_a_plan_is_read_back_as_it_was():
    plan = plan_of([reader("bert"), reader("gpt2")], stories(40))
    assert len(plan.shards) > 2
    assert Plan.from_json(plan.to_json()) == plan


def test_shards_follow_each_other_and_cover_the_corpus():
    corpus, model = stories(40), reader("bert")
    plan = plan_of([model], corpus)
    assert [shard.index for shard in plan.shards] == list(range(len(plan.shards)))
    for one, other in pairwise(plan.shards):
        assert other.first == one.first + one.sentences
        assert other.start == one.start + one.rows
    sentences = list(corpus)
    assert sum(shard.sentences for shard in plan.shards) == len(sentences)
    encoded = Encoder(model, Reading()).encode(sentences)
    for shard in plan.shards:
        own = slice(shard.first, shard.first + shard.sentences)
        assert shard.rows == sum(len(each.spans) for each in sentences[own])
        assert shard.tokens == sum(each.tokens for each in encoded[own])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(20, 200))
def test_shards_and_groups_end_at_documents(sizes, tokens):
    corpus = documents_of(sizes)
    plan = plan_of([reader("gpt2")], corpus, tokens=tokens)
    each = sum(shard.tokens for shard in plan.shards) // sum(sizes)
    document = [sentence.document for sentence in corpus]
    shards, groups = shard_of(plan), group_of(plan)
    for place in range(1, len(document)):
        if groups[place] != groups[place - 1]:
            assert document[place] != document[place - 1]
            assert groups[place] == groups[place - 1] + 1
            assert shards[place] != shards[place - 1]
        if shards[place] != shards[place - 1] and document[place] == document[place - 1]:
            assert plan.shards[shards[place - 1]].tokens >= 2 * tokens  # only what is much too large is cut inside
    assert groups[0] == 0
    assert plan.groups == groups[-1] + 1 <= min(GROUPS, len(sizes))
    assert all(shard.tokens < 2 * tokens + each for shard in plan.shards)
    assert plan.counts.documents == len(sizes)


def test_groups_are_ten_of_about_equal_size():
    plan = plan_of([reader("gpt2")], documents_of([3] * 100))
    assert plan.groups == 10
    sizes = [group_of(plan).count(group) for group in range(10)]
    assert max(sizes) - min(sizes) <= 3


def test_a_giant_document_is_split_within_its_group():
    plan = plan_of([reader("gpt2")], documents_of([2, 200, 2]), tokens=100)
    middle = [shard for shard in plan.shards if shard.first < 202 and shard.first + shard.sentences > 2]
    assert len(middle) > 4
    giant = {batch.group for shard in middle if shard.first >= 2 for batch in shard.batches}
    assert len(giant) == 1


def test_mixed_shards_hold_several_groups_and_batches_only_one():
    corpus = documents_of([3] * 40)
    apart = plan_of([reader("gpt2")], corpus, tokens=10**6)
    mixed = plan_of([reader("gpt2")], corpus, tokens=10**6, mixed=True)
    assert len(apart.shards) == GROUPS
    assert len(mixed.shards) == 1
    assert group_of(mixed) == group_of(apart)
    (shard,) = mixed.shards
    assert [batch.group for batch in shard.batches] == sorted(batch.group for batch in shard.batches)
    assert Plan.from_json(mixed.to_json()) == mixed


@pytest.mark.parametrize("names", [("bert",), ("bert", "gpt2")])
@pytest.mark.parametrize("budget", [40, 120, 1000])
def test_batches_hold_every_sentence_once_and_keep_the_budget(budget, names):
    models, corpus = [reader(name) for name in names], stories(40)
    plan = plan_of(models, corpus, budget=budget)
    sentences = list(corpus)
    for shard in plan.shards:
        members = [member for batch in shard.batches for member in batch.members]
        assert sorted(members) == list(range(shard.sentences))
        for batch in shard.batches:
            for number, model in enumerate(models):
                own = [sentences[shard.first + member] for member in batch.members]
                longest = max(each.longest for each in Encoder(model, Reading()).encode(own))
                assert batch.lengths[number] == longest
                assert len(batch.members) == 1 or len(batch.members) * longest <= budget


def test_sentences_of_like_length_are_together():
    """Padding stays small: batches are cut from sentences in the order of their lengths; the largest comes first."""
    words = ["the", "old", "dog", "and", "a", "red", "cat"]
    made = [Sentence.of_words(words[: 1 + number % 7], id=str(number), document="d") for number in range(40, 0, -1)]
    plan = plan_of([reader("bert")], Corpus.of(made), tokens=10_000, budget=50)
    encoded = Encoder(reader("bert"), Reading()).encode(made)
    for shard in plan.shards:
        own = sorted(
            sorted(encoded[shard.first + member].longest for member in batch.members) for batch in shard.batches
        )
        assert all(one[-1] <= other[0] for one, other in pairwise(own))
        padded = [len(batch.members) * batch.lengths[0] for batch in shard.batches]
        assert padded == sorted(padded, reverse=True)
    assert len(plan.shards[0].batches) > 2


def test_the_pilot_is_the_batch_of_middle_length(monkeypatch):
    seen: list[int] = []
    real = Moments.pilot
    monkeypatch.setattr(
        Moments, "pilot", lambda self, rows, setting: (seen.append(rows.size), real(self, rows, setting))[1]
    )
    made = [Sentence.of_words(["dog"] * count, id=f"{count}.{place}", document="d")
            for count, copies in ((1, 40), (5, 3), (9, 20)) for place in range(copies)]  # fmt: skip
    sweep(reader("bert"), Corpus.of(made), Moments("resid.*", groups=False), token_budget=600, shard_tokens=10_000)
    assert seen == [15], "three sentences of five words"


def test_a_changed_corpus_is_noticed():
    sentences = list(stories(40))
    plan = plan_of([reader("gpt2")], Corpus.of(sentences))
    whole = range(len(plan.shards))
    read = list(read_shards(plan, Corpus.of(sentences), whole))
    assert [each.id for _, part in read for each in part] == [each.id for each in sentences]
    shard = plan.shards[2]
    for change in ({"text": sentences[shard.first].text.upper()}, {"labels": {}}, {"id": "other"}):
        changed = [*sentences]
        changed[shard.first] = replace(sentences[shard.first], **change)
        assert len(list(read_shards(plan, Corpus.of(changed), [0, 1]))) == 2
        with pytest.raises(
            SweepError, match=f"has changed since the sweep was planned: sentences {shard.first + 1} to"
        ):
            list(read_shards(plan, Corpus.of(changed), whole))
    with pytest.raises(SweepError, match="has changed since"):
        list(read_shards(plan, Corpus.of(sentences[:-1]), whole))


def test_only_the_wanted_shards_are_read():
    corpus = stories(40)
    plan = plan_of([reader("gpt2")], corpus)
    read = list(read_shards(plan, corpus, [1, 3]))
    assert [shard.index for shard, _ in read] == [1, 3]
    everything = list(corpus)
    for shard, sentences in read:
        assert sentences == everything[shard.first : shard.first + shard.sentences]


def test_a_corpus_without_sentences_is_refused():
    with pytest.raises(SweepError, match=r"^The corpus 'nothing' is empty; there is nothing to sweep\.$"):
        plan_of([reader("bert")], Corpus("nothing", "unit", lambda: iter([])))


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_a_corpus_that_the_tokenizer_reads_nothing_of_is_refused(name):
    """Special tokens are no words: BERT's would make a sweep over nothing look like one over something."""
    corpus = Corpus.of([Sentence.of_words(["~~", "~"], id=str(number)) for number in range(3)])
    with pytest.raises(SweepError, match=r"has 3 sentences and no word that the tokenizer reads"):
        plan_of([reader(name)], corpus)
    with pytest.raises(SweepError, match=r"no word that the tokenizer reads"):
        plan_of([reader(name)], corpus, pooling="all")


def test_counts_and_notes_say_what_the_corpus_is():
    made = [Sentence.of_words(["the", "Dog", "~"], id=f"{n}", document=f"d{n % 2}") for n in range(4)]
    plan = plan_of([reader("bert"), reader("gpt2")], Corpus.of(made))
    counts = plan.counts
    assert (counts.sentences, counts.documents, counts.words, counts.scattered) == (4, 2, 12, 2)
    assert counts.missing_words == 8  # of both models together
    assert counts.tokens[0] == counts.tokens[1] + 4 * 2
    assert plan.frequent == {"the": 4, "dog": 4, "~": 4}
    assert any("stand apart" in note for note in notes(plan))
    assert any("8 words have no token" in note for note in notes(plan))


def test_words_of_a_pair_are_counted_together():
    pair = Sentence.of_words(["a", "dog"], second=Sentence.of_words(["a", "cat"]), joint=True)
    plan = plan_of([reader("bert")], Corpus.of([pair]))
    assert plan.frequent == {"a": 2, "dog": 1, "cat": 1}
    assert plan.counts.words == 4


@pytest.mark.parametrize("kept", [100, 1 << 18])
def test_garbage_is_collected_again_after_planning_even_where_it_fails(monkeypatch, kept):
    """While sentences are kept for the pass nothing looks through them for garbage; beyond, and afterwards, it does."""
    monkeypatch.setattr(plans, "KEPT_TOKENS", kept)
    seen: list[bool] = []
    real = plans._note
    monkeypatch.setattr(plans, "_note", lambda *given: (seen.append(gc.isenabled()), real(*given))[1])
    plan_of([reader("bert")], stories(20), ahead=Ahead())
    assert gc.isenabled()
    assert seen[0] is False
    assert seen[-1] is (kept == 100)
    monkeypatch.setattr(plans, "_note", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plan_of([reader("bert")], stories(20), ahead=Ahead())
    assert gc.isenabled()


def test_shards_go_by_the_weights_that_work():
    """Rows of embeddings are looked up; a table that also writes the answers works there."""
    model = reader("bert")
    looked_up = ("position_embeddings.weight", "token_type_embeddings.weight")
    work = sum(weight.numel() for name, weight in model.hf.named_parameters() if not name.endswith(looked_up))
    assert work < 0.95 * sum(weight.numel() for weight in model.hf.parameters())
    job = make_job([model], {"moments": Moments("resid.*")}, Reading(), token_budget=1)
    size = int(100 * 3e-9 * state_bytes(job) * 2e11 / (2 * work))
    assert default_shard(job, [model]) == pytest.approx(size, rel=0.01)
