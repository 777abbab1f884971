"""Head targets beside an oracle in plain loops; merging, padding, windows, pairs, and what is refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch

import pellucid as pl
from pellucid.collect import word_weights
from pellucid.collect.collector import Setting, collector_of
from pellucid.collect.head_frames import ROWS
from pellucid.collect.head_targets import HeadTargets
from pellucid.collect.state import State
from pellucid.collect.words import Words
from pellucid.corpus import Corpus, Sentence
from pellucid.corpus.sentence import Arc
from pellucid.errors import SweepError
from pellucid.model.batch import Batch
from pellucid.model.sites import Site
from tests.found_by_hand import facts, setting
from tests.heads.built_models import grammar_corpus, planted

HEADS = 3
TREE = Sentence.of_words(
    ["the", "dog", "sees", "the", "old", "dog"],
    labels={"upos": ["DET", "NOUN", "VERB", "DET", "ADJ", "NOUN"]},
    arcs=[
        Arc(0, 1, "det"),
        Arc(1, 2, "nsubj"),
        Arc(2, -1, "root"),
        Arc(3, 5, "det"),
        Arc(4, 5, "amod"),
        Arc(5, 2, "obj"),
    ],
)
SHORT = Sentence.of_words(
    ["cats", "sleep"], id="2", labels={"upos": ["NOUN", None]}, arcs=[Arc(0, 1, "nsubj"), Arc(1, -1, "root")]
)
FREQUENT = {"the": 9, "dog": 4, "old": 2, "sees": 2, "sleep": 1, "cats": 1}
PIECES = {"sees": 2, "old": 3}
"""Words of several tokens."""


def words_of(sentences, *, length=None, group=0):
    """Rows of tokens: one special, then the pieces of the words, then padding; and their words."""
    rows = []
    for sentence in sentences:
        index = [-1] + [at for at, word in enumerate(sentence.words) for _ in range(PIECES.get(word, 1))]
        rows.append(index)
    length = length or max(map(len, rows))
    index = torch.tensor([row + [-1] * (length - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    batch = Batch(torch.zeros_like(index), mask, (index < 0), word_index=index, counted=index >= 0)
    return Words(batch, "mean", tuple(sentences), np.arange(len(rows)), np.zeros(len(rows), np.int64), group)


def weights_of(words, *, causal, seed=0):
    """Random attention over what each token may see."""
    mask = words.mask.bool()
    size, length = mask.shape
    dice = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(size, HEADS, 40, 40, generator=dice)[:, :, :length, :length]
    seen = mask[:, None, None, :].expand(-1, -1, length, -1)
    if causal:
        seen = seen & torch.ones(length, length, dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)


def gathered(sentences, *, causal, seed=0, length=None, collector=None, frequent=FREQUENT, group=0):
    collector = collector or HeadTargets()
    model = facts({Site("pattern", 0): (HEADS, 9)}, causal=causal)
    told = None if frequent is None else State({}, {"frequent": frequent})
    accumulator = collector.open(replace(setting([model]), pilot=told))
    words = words_of(sentences, length=length, group=group)
    accumulator.see("pattern.0", weights_of(words, causal=causal, seed=seed), words)
    return collector, accumulator.state(), setting([model])


def viewed(*given, **options):
    collector, state, where = gathered(*given, **options)
    return collector.view(state, where)


def by_hand(sentences, *, causal, seed=0):
    """Hits, attention, cases, chance, variance and squared deviations of every kind of link, in plain loops."""
    weights = weights_of(words_of(sentences), causal=causal, seed=seed).numpy()
    sums = defaultdict(lambda: np.zeros((2, HEADS)))
    cases, spread, offsets = (
        defaultdict(lambda: np.zeros(3)),
        defaultdict(lambda: np.zeros(HEADS)),
        defaultdict(Counter),
    )
    for row, sentence in enumerate(sentences):
        words = sentence.words
        tokens = [[] for _ in words]
        at = 1
        for number, word in enumerate(words):
            tokens[number] = list(range(at, at + PIECES.get(word, 1)))
            at = tokens[number][-1] + 1
        between = np.array(
            [
                [weights[row][:, tokens[i]][:, :, tokens[j]].sum(2).mean(1) for j in range(len(words))]
                for i in range(len(words))
            ]
        )  # [query, key, head]
        deviation = defaultdict(lambda: np.zeros(HEADS))
        for i in range(len(words)):
            visible = [j for j in range(len(words)) if j <= i or not causal]
            if len(visible) < 2:
                continue
            targets = defaultdict(set)
            for arc in sentence.arcs:
                if arc.head >= 0 and arc.dependent == i:
                    targets[f"{arc.relation} to head"].add(arc.head)
                if arc.head == i:
                    targets[f"{arc.relation} to dependent"].add(arc.dependent)
            least = min(FREQUENT[words[j]] for j in visible)
            targets["rare"] = {j for j in visible if FREQUENT[words[j]] == least}
            targets["same word"] = {j for j in visible if j != i and words[j] == words[i]}
            targets["followed before"] = {j + 1 for j in range(i) if words[j] == words[i] and j + 1 != i}
            for kind, wanted in targets.items():
                wanted = wanted & set(visible)
                if not wanted:
                    continue
                chance = len(wanted) / len(visible)
                hit = np.array([float(int(between[i, :, head].argmax()) in wanted) for head in range(HEADS)])
                sums[kind] += [hit, sum(between[i, j] for j in wanted)]
                cases[kind] += [1, chance, chance * (1 - chance)]
                deviation[kind] += hit - chance
                offsets[kind].update(j - i for j in wanted)
        for kind, each in deviation.items():
            spread[kind] += each**2
    return sums, cases, spread, offsets


@pytest.mark.parametrize("causal", [False, True])
def test_every_link_as_counted_by_hand(causal):
    view = viewed([TREE, SHORT], causal=causal)
    sums, cases, spread, offsets = by_hand([TREE, SHORT], causal=causal)
    assert {name for name, n in zip(view.kinds, view.cases("pattern.0")[:, 0], strict=True) if n} == set(sums)
    assert {"nsubj to dependent", "rare", "same word"} <= set(sums)
    for kind in sums:
        at = view.kinds.index(kind)
        assert view.links("pattern.0")[at] == pytest.approx(sums[kind], rel=1e-5, abs=1e-6), kind
        assert view.cases("pattern.0")[at, :3] == pytest.approx(cases[kind]), kind
        assert view.spread("pattern.0")[at] == pytest.approx(spread[kind], rel=1e-6, abs=1e-9), kind
        told = view.distances("pattern.0")[at]
        assert {offset: count for offset, count in enumerate(told, start=-20) if count} == dict(offsets[kind]), kind


def test_texts_with_rare_words_by_hand():
    """Uniform weights but for one head's: most words of a text must look at its rarest word, ties counting."""
    third = Sentence.of_words(["dog", "sees", "the", "dog"], id="3")
    sentences = [TREE, SHORT, third]
    words = words_of(sentences)
    weights = weights_of(words, causal=False, seed=0) * 0 + 0.01
    rare = {0: 2, 2: 1}  # `sees`, the first of the rarest two of TREE, and the rarest of the third text
    for row, target in rare.items():
        token = words.index[row].tolist().index(target)
        queries = [place for place, word in enumerate(words.index[row].tolist()) if word >= 0]
        weights[row, 0, queries, token] = 0.5  # head 0: every word
        few = [place for place in queries if int(words.index[row, place]) < len(sentences[row].words) // 2]
        weights[row, 1, few, token] = 0.5  # head 1: half of the words of each text, which are not most
        more = [place for place in queries if int(words.index[row, place]) <= len(sentences[row].words) // 2]
        weights[row, 2, more, token] = 0.5  # head 2: one word more than half
        for head, looking in enumerate((queries, few, more)):
            rest = [place for place in queries if place not in looking]
            weights[row, head, rest, words.index[row].tolist().index(0)] = 0.5  # all others at the first word
    collector = HeadTargets()
    model = facts({Site("pattern", 0): (HEADS, 9)}, causal=False)
    accumulator = collector.open(replace(setting([model]), pilot=State({}, {"frequent": FREQUENT})))
    accumulator.see("pattern.0", weights, words)
    found, cases = collector.view(accumulator.state(), setting([model])).texts("pattern.0")
    chance = np.array([2 / 6, 2 / 2, 1 / 4])  # in SHORT both words are the rarest, so looking at any is a hit
    assert cases == pytest.approx([3, chance.sum(), (chance * (1 - chance)).sum()])
    assert found[0].tolist() == [3, 1, 3]
    missed = np.array([0, 1, 0]) - chance
    assert found[1] == pytest.approx([((1 - chance) ** 2).sum(), (missed**2).sum(), ((1 - chance) ** 2).sum()])


def test_where_queries_look_back_the_chance_of_a_text_is_that_of_its_middle_query():
    words = Sentence.of_words(["the", "dog", "sees", "the", "dog"])
    view = viewed([words], causal=True)
    # rarest in sight: dog of 2 words, sees of 3, of 4, of 5; most of four queries are three, by chance as the third
    assert view.texts("pattern.0")[1] == pytest.approx([1, 1 / 4, 3 / 16])
    hits = view.links("pattern.0")[view.kinds.index("rare"), 0]
    assert view.texts("pattern.0")[0][0].tolist() == (hits >= 3).astype(float).tolist()


def test_the_attention_of_uniform_heads_is_the_chance_of_links():
    view = viewed([TREE, SHORT], causal=False)
    at = view.kinds.index("nsubj to dependent")
    told = view.cases("pattern.0")[at, 3]  # `sees` looks at `dog` among ten tokens, `sleep` at `cats` among three
    assert told == pytest.approx(1 / 10 + 1 / 3)


@pytest.mark.parametrize("causal", [False, True])
def test_offsets_tags_and_shapes_by_hand(causal):
    view = viewed([TREE], causal=causal)
    words = words_of([TREE])
    between = words.patterns(weights_of(words, causal=causal))[0].numpy()  # [head, query, key]
    hits, cases = view.at_offsets("pattern.0")
    start = 1 if causal else 0  # the first word sees itself alone
    for at, offset in enumerate(view.offsets):
        queries = [i for i in range(start, 6) if 0 <= i + offset < 6 and (offset <= 0 or not causal)]
        found = [sum(between[head, i].argmax() == i + offset for i in queries) for head in range(HEADS)]
        seen = [1 / (i + 1 if causal else 6) for i in queries]
        assert hits[at, 0].tolist() == found, offset
        assert hits[at, 1] == pytest.approx((np.array(found) - sum(seen)) ** 2)
        assert cases[at] == pytest.approx([len(queries), sum(seen), sum(p * (1 - p) for p in seen)])
    mass, chance = view.on_tags("pattern.0")
    assert view.tags == ("ADJ", "DET", "NOUN", "VERB")
    assert mass[2] == pytest.approx(between[:, :, [1, 5]].sum((1, 2)), rel=1e-5)
    assert mass.sum(0) == pytest.approx(view.rows("words", "pattern.0")[0], rel=1e-6)
    if not causal:
        assert chance / 6 == pytest.approx([3 / 10, 2 / 10, 2 / 10, 2 / 10])
    special = weights_of(words, causal=causal)[0, :, :, 0]
    averaged = torch.stack([special[:, words.index[0] == i].mean(1) for i in range(6)]).sum(0).numpy()
    assert view.rows("sink", "pattern.0")[0] == pytest.approx(averaged, rel=1e-5)
    vertical = np.maximum(between.sum(1).max(1), averaged)
    assert view.rows("vertical", "pattern.0")[0] == pytest.approx(vertical, rel=1e-5)
    near = sum(np.trace(between, offset, 1, 2) for offset in (-1, 0, 1))
    assert view.rows("near", "pattern.0")[0] == pytest.approx(near, rel=1e-5)
    assert view.n("pattern.0") == 6


def test_padding_changes_nothing():
    plain, wide = (viewed([TREE, SHORT], causal=False, length=length) for length in (None, 25))
    for name, array in plain.sums.items():
        assert array == pytest.approx(wide.sums[name], rel=1e-5, abs=1e-6), name


def test_long_texts_are_summed_another_way_to_the_same(monkeypatch):
    plain = viewed([TREE, SHORT], causal=True)
    monkeypatch.setattr(word_weights, "_LONG", 3)
    other = viewed([TREE, SHORT], causal=True)
    for name, array in plain.sums.items():
        assert array == pytest.approx(other.sums[name], rel=1e-5, abs=1e-6), name


def test_merging_aligns_relations_and_tags_by_name():
    collector, left, where = gathered([SHORT], causal=False, seed=1)
    _, right, _ = gathered([TREE], causal=False, seed=2)
    assert left.facts["kinds"] != right.facts["kinds"]
    merged = collector.view(collector.merge(left, right), where)
    parts = [collector.view(state, where) for state in (left, right)]
    for kind in merged.kinds:
        expected = sum(part.links("pattern.0")[part.kinds.index(kind)] for part in parts if kind in part.kinds)
        assert merged.links("pattern.0")[merged.kinds.index(kind)] == pytest.approx(expected), kind
    tag = merged.tags.index("NOUN")
    whole = sum(part.on_tags("pattern.0")[0][part.tags.index("NOUN")] for part in parts)
    assert merged.on_tags("pattern.0")[0][tag] == pytest.approx(whole)
    turned = collector.view(collector.merge(right, left), where)
    assert turned.kinds == merged.kinds
    assert turned.links("pattern.0") == pytest.approx(merged.links("pattern.0"))


def test_a_sweep_in_many_shards_is_the_sweep_in_one():
    model, corpus = planted(), grammar_corpus().take(60)
    options = {"progress": False, "token_budget": 300}
    one, many = (
        pl.sweep(model, corpus, HeadTargets(), shard_tokens=size, **options)[HeadTargets] for size in (10**6, 301)
    )
    assert one.kinds == many.kinds
    assert many.groups == one.groups
    assert len(one.groups) > 3
    for name, array in one.sums.items():
        assert array == pytest.approx(many.sums[name], rel=1e-6, abs=1e-6), name
    rest, part = one.without(3), one.group(3)
    assert rest.links("pattern.0") + part.links("pattern.0") == pytest.approx(one.links("pattern.0"))


def test_pairs_keep_their_own_sentence_apart():
    second = Sentence.of_words(["cats", "sleep"], id="b", arcs=[Arc(0, 1, "nsubj")])
    pair = Sentence.of_words(["the", "dog"], second=second, joint=True, arcs=[Arc(0, 1, "det")])
    words = words_of([pair])
    index = torch.tensor([[-1, 0, 1, -1, 2, 3]])
    batch = Batch(torch.zeros_like(index), torch.ones_like(index), index < 0, word_index=index, counted=index >= 0)
    words = replace(words, batch=batch)
    collector = HeadTargets()
    model = facts({Site("pattern", 0): (HEADS, 6)}, causal=False)
    accumulator = collector.open(setting([model]))
    weights = weights_of(words, causal=False)
    accumulator.see("pattern.0", weights, words)
    view = collector.view(accumulator.state(), setting([model]))
    chosen = weights[0].numpy()
    own = sum(chosen[:, i, j] for part in ((1, 2), (4, 5)) for i in part for j in part)
    other = sum(chosen[:, i, j] for i, j in [(1, 4), (1, 5), (2, 4), (2, 5), (4, 1), (4, 2), (5, 1), (5, 2)])
    assert view.rows("own", "pattern.0")[0] == pytest.approx(own, rel=1e-5)
    assert view.rows("other", "pattern.0")[0] == pytest.approx(other, rel=1e-5)
    assert view.rows("own", "pattern.0")[1] == pytest.approx(8 / 6)
    assert view.cases("pattern.0")[view.kinds.index("nsubj to head"), 0] == 1  # of the second sentence


def test_a_single_word_shows_nothing_and_breaks_nothing():
    view = viewed([Sentence.of_words(["dog"])], causal=True)
    assert view.n("pattern.0") == 1
    assert view.cases("pattern.0")[:, 0].sum() == 0
    assert view.at_offsets("pattern.0")[1].sum() == 0


def test_without_counts_no_word_is_rare():
    view = viewed([TREE], causal=False, frequent=None)
    assert not view.facts["counted"]
    assert view.cases("pattern.0")[view.kinds.index("rare"), 0] == 0
    assert view.texts("pattern.0")[1].tolist() == [0, 0, 0]


def test_a_sweep_kept_before_texts_were_counted_is_told_so():
    view = viewed([TREE], causal=False)
    old = replace(view, sums={name: array for name, array in view.sums.items() if not name.startswith("texts/")})
    with pytest.raises(SweepError, match="make it again"):
        old.texts("pattern.0")


def test_nan_in_padding_is_not_read_and_elsewhere_is_refused():
    words = words_of([TREE, SHORT])
    collector = HeadTargets()
    model = facts({Site("pattern", 0): (HEADS, 9)}, causal=False)
    weights = weights_of(words, causal=False)
    broken = weights.clone()
    broken[1, :, -2:] = torch.nan  # queries of padding
    view = {}
    for name, given in (("whole", weights), ("broken", broken)):
        accumulator = collector.open(setting([model]))
        accumulator.see("pattern.0", given, words)
        view[name] = collector.view(accumulator.state(), setting([model]))
    for name, array in view["whole"].sums.items():
        assert array == pytest.approx(view["broken"].sums[name], rel=1e-6, abs=1e-7), name
    worse = broken.clone()
    worse[0, 1, 2] = torch.nan
    with pytest.raises(SweepError, match=r"'pattern.0' is NaN or infinite in head 1"):
        collector.open(setting([model])).see("pattern.0", worse, words)


def test_what_cannot_be_read_is_refused():
    model = facts({Site("pattern", 0): (HEADS, 9)})
    with pytest.raises(SweepError, match="pooling='all' keeps sub-words"):
        HeadTargets().open(Setting((model,), "all", torch.device("cpu")))
    with pytest.raises(SweepError, match="must both be 1 or more"):
        HeadTargets(offsets=0)
    collector, left, _ = gathered([SHORT], causal=False)
    _, right, _ = gathered([SHORT], causal=True)
    with pytest.raises(SweepError, match="cannot be merged"):
        collector.merge(left, right)
    view = viewed([TREE], causal=False)
    with pytest.raises(SweepError, match=r"No heads of 'pattern.7'"):
        view.links("pattern.7")
    with pytest.raises(SweepError, match="they have sink"):
        view.rows("sinks", "pattern.0")
    with pytest.raises(SweepError, match="no document group 5"):
        view.group(5)


def test_described_and_made_again():
    collector = HeadTargets(("pattern.1",), label="xpos", reach=5)
    assert collector_of(collector.describe()) == collector
    assert len(ROWS) == len(set(ROWS))


def test_a_corpus_without_arcs_or_labels_is_read_all_the_same():
    model = planted()
    found = pl.sweep(model, Corpus.of(["the old dog", "she arrived"]), HeadTargets(), progress=False)[HeadTargets]
    assert found.tags == ()
    assert found.kinds == ("rare", "same word", "followed before")
