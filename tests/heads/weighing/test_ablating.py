"""The all-heads sweep: equal to one plain pass per head, for every task, stack and replacement; and cheaper."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pellucid.corpus import Corpus
from pellucid.errors import ModelError, SiteError
from pellucid.heads.naming import all_heads, head_name
from pellucid.heads.weighing.ablating import attention_heads, corpus_means, sweep_heads
from pellucid.heads.weighing.measuring import measured
from pellucid.heads.weighing.scoring import Sums, leaving_out
from pellucid.model import Edit, Model
from pellucid.train.tasks import TASKS
from tests.heads.measuring_models import CORPORA, GRAMMAR, model_for
from tests.tiny_models import opened


def on(task, **options):
    corpus, changes = CORPORA[task]
    return measured(model_for(task), corpus, **{"batch": 7, **changes, **options})


def means_by_hand(found, site):
    """The mean of a site's heads over real tokens, text by text, without padding."""
    rows = []
    for step in range(found.steps()):
        batch = found.batch(step)
        through = found.passing(sites=[site])
        found.task.logits(through, batch)
        real = batch["goals"] != -100 if site.stack in ("decoder", "cross") else batch["attention_mask"] == 1
        heads = through.last[site]  # [B, H, T, d]
        rows += [heads[row][:, real[row]] for row in range(len(heads))]
    return torch.cat(rows, dim=1).double().mean(dim=1)


@pytest.mark.parametrize("task", TASKS)
def test_every_head_gives_what_one_whole_pass_with_it_replaced_gives(task):
    found = on(task)
    done = sweep_heads(found)
    heads = all_heads(found.model)
    assert done.heads == tuple(head_name(*head) for head in heads)
    assert done.ablated.losses.shape == (2, len(heads), found.groups.max() + 1)
    main = "perplexity" if task == "translate" else found.best
    plain = found.scores()
    assert float(done.plain.loss()) == pytest.approx(plain["loss"], rel=1e-5)
    assert float(done.plain.score(main)) == pytest.approx(plain[main], rel=1e-5)
    chosen = [0, len(heads) // 2, len(heads) - 1]
    for number in chosen:
        site, head = heads[number]
        mean = means_by_hand(found, site)[head].float()
        for place, edit in enumerate((Edit.zero(site, heads=[head]), Edit.mean(site, mean[None], heads=[head]))):
            one = found.scores(edit)
            assert abs(done.ablated.loss()[place, number] - one["loss"]) <= 1e-5 * max(1, one["loss"])
            assert done.ablated.score(main)[place, number] == pytest.approx(one[main], rel=1e-4)
    assert len(np.unique(done.ablated.loss().round(9))) > len(heads)  # heads and replacements differ


@pytest.mark.parametrize("task", ["classify", "translate"])
def test_starting_late_changes_nothing_and_costs_less(task):
    found = on(task)
    counts, done = [], []
    for whole in (True, False):
        with FlopCounterMode(display=False) as counter:
            done.append(sweep_heads(found, ["zero"], whole=whole))
        counts.append(counter.get_total_flops())
    assert np.abs(done[0].ablated.loss() - done[1].ablated.loss()).max() < 1e-5
    assert counts[1] < 0.85 * counts[0]
    assert done[1].notes == ()


def test_six_layers_of_twelve_heads_cost_at_most_six_tenths_of_a_full_pass_per_head():
    model = model_for("classify", layers=6, heads=12)
    found = measured(model, GRAMMAR.take(8), batch=8, label="tense")
    sweep_heads(found, ["zero"])  # whether passes can start late is tried once
    with FlopCounterMode(display=False) as counter:
        sweep_heads(found, ["zero"])
    ours = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        found.rows(found.batch(0))
    assert found.steps() == 1
    assert ours <= 0.6 * 72 * counter.get_total_flops()


def test_the_number_of_heads_in_a_pass_changes_nothing():
    found = on("lm")
    one, many = sweep_heads(found, tokens=1), sweep_heads(found, tokens=100_000)
    assert one.passes > many.passes
    assert np.abs(one.ablated.losses - many.ablated.losses).max() < 1e-4


def test_a_model_that_cannot_start_late_runs_whole_and_says_so(monkeypatch):
    found = on("classify")
    started = sweep_heads(found)
    monkeypatch.setattr(Model, "cannot_start", lambda self, sites: "its blocks are shared")
    whole = sweep_heads(found)
    assert whole.notes == ("passes for heads.1 and others run whole: its blocks are shared",)
    assert np.abs(whole.ablated.losses - started.ablated.losses).max() < 1e-4


def test_means_are_over_all_real_tokens_of_the_corpus_not_of_a_batch():
    found = on("translate")
    sites = attention_heads(found.model)
    assert {site.stack for site in sites} == {"encoder", "decoder", "cross"}
    means = corpus_means(found, sites)
    for site in sites:
        assert torch.allclose(means[site], means_by_hand(found, site), atol=1e-6)


def test_grouped_queries_have_a_head_for_each_query():
    model = opened("llama")
    heads = all_heads(model)
    assert len(heads) == sum(model.size(site)[0] for site in attention_heads(model))
    assert model.size("heads.0")[0] > model.size("key.0")[0]


def test_sums_by_hand():
    sums = Sums(np.array([[2.0, 4.0], [6.0, 0.0]]), np.array([2.0, 4.0]), np.array([[1, 1], [2, 4]]), np.array([2, 4]))
    assert sums.loss().tolist() == [1.0, 1.0]
    assert sums.loss(without=0).tolist() == [1.0, 0.0]
    assert sums.score("accuracy").tolist() == [pytest.approx(2 / 6), 1.0]
    assert sums.score("accuracy", without=1).tolist() == [0.5, 1.0]
    assert sums.score("perplexity", without=1).tolist() == pytest.approx([np.e, np.e**3])


def test_an_interval_needs_two_groups_and_leaves_empty_ones_out():
    values = np.array([1.0, 2.0, 4.0])

    def estimate(without):
        kept = [value for number, value in enumerate(values) if number != without]
        return np.array(sum(kept) / 3)

    one = leaving_out(np.array([3.0, 0.0, 0.0]), estimate)
    assert one.low is None
    both = leaving_out(np.array([3.0, 0.0, 2.0]), estimate)
    assert both.resampled.startswith("2 document groups")


class TestRefusals:
    def test_an_unknown_replacement(self):
        with pytest.raises(SiteError, match=r"'noise'; choose zero, mean"):
            sweep_heads(on("lm"), ["noise"])
        with pytest.raises(SiteError, match="by nothing"):
            sweep_heads(on("lm"), [])

    def test_a_model_whose_heads_are_all_gone(self, monkeypatch):
        monkeypatch.setattr(Model, "size", lambda self, site: (0, 8))
        with pytest.raises(ModelError, match="no attention heads left"):
            attention_heads(model_for("lm"))

    def test_a_model_without_attention(self):
        model = Model.wrap(torch.nn.Linear(2, 2), sites={"out": ""})
        with pytest.raises(ModelError, match="no attention heads"):
            attention_heads(model)


def test_every_goal_of_the_corpus_is_counted_once():
    corpus = Corpus.of(list(GRAMMAR.take(6)))
    found = measured(model_for("lm"), corpus, batch=4)
    assert sweep_heads(found, ["zero"]).plain.goals.sum() == sum(
        len(found.model.tokenizer(sentence.text)["input_ids"]) - 1 for sentence in corpus
    )
