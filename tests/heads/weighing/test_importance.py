"""Importance of heads: closed forms, autograd on gates of ones, a planted head, ranks and their agreement, refusals."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import ModelError
from pellucid.heads.weighing.ablating import attention_heads, sweep_heads
from pellucid.heads.weighing.ablation import ablation
from pellucid.heads.weighing.agreement import kendall, ranks, spearman
from pellucid.heads.weighing.confidence import confidence_sums
from pellucid.heads.weighing.gradients import gradient_sums, normalised, relevance
from pellucid.heads.weighing.importance import importance
from pellucid.heads.weighing.measuring import measured
from pellucid.model import Edit, Model
from pellucid.results import Result, ResultError
from pellucid.train.tasks.translation import translated
from tests.heads.built_models import network, repeated_corpus, tokenizer
from tests.heads.measuring_models import CORPORA, GRAMMAR, model_for


def on(task, **options):
    corpus, changes = CORPORA[task]
    return measured(model_for(task), corpus, **{"batch": 7, **changes, **options})


class TestRelevance:
    def test_by_hand(self):
        outputs = torch.tensor([[[[1.0, 2.0], [3.0, 0.0], [5.0, 5.0]]]])  # [1, 1, 3, 2]
        slopes = torch.tensor([[[[1.0, -1.0], [2.0, 7.0], [9.0, 9.0]]]])
        real = torch.tensor([[True, True, False]])
        assert relevance(outputs, slopes, real).tolist() == [[abs(1 - 2) + 6]]

    def test_the_absolute_value_comes_before_the_sum(self):
        outputs = torch.ones(1, 1, 2, 1)
        slopes = torch.tensor([1.0, -1.0]).view(1, 1, 2, 1)
        assert relevance(outputs, slopes, torch.ones(1, 2, dtype=torch.bool)).tolist() == [[2.0]]

    def test_of_layers_is_divided_by_their_own_norm(self):
        found = normalised(np.array([3.0, 4.0, 0.0, 2.0]), [0, 0, 1, 1], power=2)
        assert found.tolist() == pytest.approx([0.6, 0.8, 0.0, 1.0])
        assert normalised(np.array([1.0, 3.0]), [0, 0], power=1).tolist() == [0.25, 0.75]
        assert normalised(np.zeros(2), [0, 0], power=2).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("task", ["lm", "classify", "qa", "translate"])
def test_gradients_are_those_of_a_gate_of_ones_at_every_token(task):
    """The derivative by a gate g on head h at token t, at g = 1, is ⟨∂L/∂z, z⟩ there."""
    found = on(task)
    sites = attention_heads(found.model)
    sums = gradient_sums(found, sites)
    expected = np.zeros(sums.shape)
    for step in range(found.steps()):
        batch = found.batch(step)
        at = 0
        for site in sites:
            heads = found.model.size(site)[0]
            decoding = site.stack in ("decoder", "cross")
            real = (batch["goals"] != -100) if decoding else batch["attention_mask"].bool()
            gate = torch.ones(len(real), heads, real.shape[1], 1, requires_grad=True)
            mean = found.loss(batch, Edit.gate(site, gate))
            (slope,) = torch.autograd.grad(mean * (batch["goals"] != -100).sum(), gate)
            one = (slope[..., 0].abs() * real[:, None]).sum(dim=2).double().numpy()
            for row, owner in enumerate(found.owners(step).tolist()):
                expected[at : at + heads, found.groups[owner]] += one[row]
            at += heads
    assert np.abs(sums - expected).max() <= 1e-4 * expected.max()
    assert (sums >= 0).all()


def test_padding_adds_nothing():
    one, many = on("classify", batch=1), on("classify", batch=40)
    sites = attention_heads(one.model)
    assert np.abs(gradient_sums(one, sites) - gradient_sums(many, sites)).max() < 1e-5


class TestPlanted:
    """A language model whose induction head alone writes to the logits, through the previous-token head below it."""

    @pytest.fixture(scope="class")
    @classmethod
    def found(cls):
        made = network()
        with torch.no_grad():
            made.lm_head.weight.div_(12)  # less sure of itself: where nothing is repeated yet, it knows nothing
        model = Model.load(made, tokenizer=tokenizer())
        return importance(model, repeated_corpus(), batch=16, random=False)

    @pytest.mark.parametrize("measure", ["gradient", "zero", "mean"])
    def test_the_planted_heads_come_first(self, found, measure):
        two = set(found.ranking(measure)[:2])
        assert two == {"0.0", "1.0"}

    @pytest.mark.parametrize("measure", ["zero", "mean"])
    def test_without_them_the_loss_rises_beyond_its_interval(self, found, measure):
        place = found.place("measure", measure)
        low = dict(zip(found.axes["head"], found.low[place], strict=True))
        assert low["1.0"] > 0.5
        rest = [head for head in found.axes["head"] if head not in ("0.0", "1.0")]
        assert all(abs(found.values[place][found.place("head", head)]) < 0.05 for head in rest)

    def test_each_layer_has_length_one(self, found):
        gradient = found.measure("gradient")
        assert (gradient[:4] ** 2).sum() == pytest.approx(1)
        assert (gradient[4:] ** 2).sum() == pytest.approx(1)

    def test_ablations_agree(self, found):
        pairs = found.agreement.columns
        at = next(
            i for i, pair in enumerate(zip(pairs["first"], pairs["second"], strict=True)) if pair == ("zero", "mean")
        )
        assert pairs["spearman"][at] > 0.5
        assert -1 <= pairs["spearman low"][at] <= pairs["spearman"][at] <= pairs["spearman high"][at] <= 1


class TestAgreement:
    def test_ranks_share_ties(self):
        assert ranks(np.array([0.5, 2.0, 0.5, -1.0])).tolist() == [2.5, 1.0, 2.5, 4.0]

    def test_known_values(self):
        one, other = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])
        assert spearman(one, other) == pytest.approx(1 - 6 * 2 / (4 * 15))
        assert kendall(one, other) == pytest.approx((5 - 1) / 6)
        assert spearman(one, -one) == kendall(one, -one) == -1
        assert spearman(one, np.ones(4)) == kendall(one, np.ones(4)) == 0

    def test_those_of_scipy(self):
        stats = pytest.importorskip("scipy.stats")
        dice = np.random.default_rng(3)
        one, other = dice.integers(0, 6, 40).astype(float), dice.normal(size=40)
        assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
        assert kendall(one, other) == pytest.approx(stats.kendalltau(one, other).statistic)


class TestConfidence:
    def test_is_that_of_head_counts(self):
        from pellucid.collect.counts import HeadCounts
        from pellucid.collect.sweep import sweep
        from pellucid.heads.roles.statistics import statistics

        found = on("lm")
        plain = statistics(sweep(found.model, GRAMMAR, HeadCounts(), long="window", progress=False))
        mine = confidence_sums(found, attention_heads(found.model))
        assert mine.mean() == pytest.approx(plain.measure("confidence").ravel(), rel=1e-6)
        assert mine.uniform() == pytest.approx(plain.null[plain.place("measure", "confidence")].ravel(), rel=1e-6)

    def test_of_cross_attention_is_the_largest_weight_on_a_token_that_is_not_special(self):
        found = on("translate", batch=40)
        sites = [site for site in attention_heads(found.model) if site.stack == "cross"]
        mine = confidence_sums(found, sites)
        batch = found.batch(0)
        through = found.passing(sites=[site.beside("pattern") for site in sites])
        found.task.logits(through, batch)
        pattern = through.last[sites[0].beside("pattern")]  # [B, H, queries, keys]
        special = set(found.model.tokenizer.all_special_ids)
        largest = []
        for row in range(len(pattern)):
            keys = [at for at, token in enumerate(batch["input_ids"][row].tolist()) if token not in special]
            queries = list(range(1, int((batch["goals"][row] != -100).sum())))
            largest += [pattern[row][:, query][:, keys].max(dim=1).values for query in queries]
        assert mine.mean()[:3] == pytest.approx(torch.stack(largest).double().mean(dim=0).numpy(), rel=1e-5)


class TestResult:
    @pytest.fixture(scope="class")
    @classmethod
    def found(cls):
        corpus, changes = CORPORA["classify"]
        methods = ["confidence", "gradient", "lrp", "zero", "mean"]
        return importance(
            model_for("classify"), corpus, methods=methods, batch=16, lrp_sentences=10, progress=False, **changes
        )

    def test_values_are_those_of_the_parts(self, found):
        part = on("classify", batch=16)
        sweep = sweep_heads(part)
        rise = sweep.ablated.loss() - sweep.plain.loss()
        assert found.measure("zero") == pytest.approx(rise[0], abs=1e-6)
        assert found.measure("mean") == pytest.approx(rise[1], abs=1e-6)
        changes = found.table("changes")
        assert changes.columns["loss"] == pytest.approx(rise, abs=1e-6)
        assert changes.columns["accuracy"].shape == rise.shape
        assert found.table("task").columns["value"][1] == pytest.approx(part.scores()["accuracy"])

    def test_shares_of_lrp_add_up_to_one_in_each_layer(self, found):
        lrp = found.measure("lrp")
        assert (lrp >= 0).all()
        assert lrp[:3].sum() == pytest.approx(1)
        assert lrp[3:].sum() == pytest.approx(1)
        assert "patents" in found.provenance.arguments["notice"]
        assert found.provenance.arguments["lrp sentences"] == 10

    def test_chance_is_a_random_model_of_the_same_shape(self, found):
        twin = replace(on("classify", batch=16), model=Model.random_like(model_for("classify"), 0))
        sums = gradient_sums(twin, attention_heads(twin.model)).sum(axis=1)
        drawn = normalised(sums, [0, 0, 0, 1, 1, 1], power=2)
        assert found.table("random model").columns["value"][0] == pytest.approx(drawn, rel=1e-5)
        null = found.null[found.place("measure", "gradient")]
        assert null[:3] == pytest.approx([drawn[:3].mean()] * 3)
        assert not found.null[found.place("measure", "zero")].any()

    def test_ranks_begin_with_the_largest(self, found):
        rank = found.table("ranks").columns["rank"]
        for place, measure in enumerate(found.axes["measure"]):
            best = found.ranking(measure)[0]
            assert rank[place][found.place("head", best)] == 1
            assert found.measure(measure)[found.place("head", best)] == found.measure(measure).max()

    def test_intervals_hold_their_estimates_and_name_their_unit(self, found):
        assert (found.low <= found.values).all()
        assert (found.values <= found.high).all()
        assert "document groups" in found.resampled

    def test_the_same_call_gives_the_same_bytes_and_is_read_back(self, found, tmp_path):
        corpus, changes = CORPORA["classify"]
        methods = ["confidence", "gradient", "lrp", "zero", "mean"]
        again = importance(
            model_for("classify"), corpus, methods=methods, batch=16, lrp_sentences=10, progress=False, **changes
        )
        assert again.same(found)
        assert Result.load(found.save(tmp_path / "found")).same(found)

    def test_without_a_random_model_chance_is_heads_that_are_all_alike(self):
        one = importance(model_for("lm"), GRAMMAR, methods=["gradient"], random=False)
        assert one.null == pytest.approx(np.full((1, 6), 1 / np.sqrt(3)))
        with pytest.raises(ResultError, match="two methods"):
            _ = one.agreement


def test_ablation_alone_with_bleu():
    pytest.importorskip("sacrebleu")
    corpus, _ = CORPORA["translate"]
    found = ablation(model_for("translate"), corpus.take(12), replacements=["zero"], bleu=3, batch=8)
    assert found.axes["measure"] == ("loss", "perplexity", "bleu")
    assert found.axes["head"][0] == "encoder.0.0"
    assert {str(head).split(".")[0] for head in found.axes["head"]} == {"encoder", "decoder", "cross"}
    assert found.low is not None
    assert not found.null.any()
    assert found.table("task").columns["value"][1] == pytest.approx(np.exp(found.table("task").columns["value"][0]))


def test_bleu_is_a_method_beside_the_others():
    """What BLEU falls by without each head is what the ablation says, with its interval; ranks and agreement too.

    The right translations are what the model writes, so that there is something to lose.
    """
    pytest.importorskip("sacrebleu")
    model, corpus = model_for("translate"), CORPORA["translate"][0].take(16)
    task = measured(model, corpus, "translate", batch=8)
    own = translated(task.passing(), task.examples, torch.arange(16), model.device, task.settings)
    pairs = zip(corpus, own, strict=True)
    corpus = Corpus.of([replace(each, second=Sentence.of_text(text)) for each, text in pairs])
    found = importance(model, corpus, methods=["zero", "bleu"], random=False, bleu_sentences=8, batch=8)
    wanted = ablation(model, corpus, replacements=["zero"], bleu=8, batch=8)
    assert found.measure("bleu") == pytest.approx(-wanted.measure("bleu")[0])
    assert np.ptp(found.measure("bleu")) > 0
    at = found.place("measure", "bleu")
    assert (found.low[at] <= found.values[at]).all()
    assert found.agreement.columns["second"].tolist() == ["bleu"]
    assert found.provenance.arguments["bleu sentences"] == 8
    with pytest.raises(ModelError, match="BLEU is a score of translations"):
        importance(model_for("lm"), GRAMMAR.take(3), methods=["bleu"])
    with pytest.raises(ModelError, match="bleu_sentences=1 is too few"):
        importance(model, corpus, methods=["bleu"], bleu_sentences=1)


class TestRelevanceThatIsNoNumber:
    """The rules divide by sums that may come to 0: what is no number is left out and told, never taken for nothing."""

    def weighed(self, monkeypatch, broken: slice, model: Model | None = None):
        from pellucid.heads.weighing import lrp_relevance

        plain = lrp_relevance.sweep_lrp

        def damaged(asked, methods):
            swept = plain(asked, methods)
            for part in swept.parts.values():
                part[broken] = float("nan")
            return swept

        monkeypatch.setattr(lrp_relevance, "sweep_lrp", damaged)
        corpus, changes = CORPORA["classify"]
        model = model or model_for("classify")
        return importance(model, corpus, methods=["lrp"], random=False, batch=16, lrp_sentences=10, **changes)

    def test_texts_without_one_are_left_out_and_counted(self, monkeypatch):
        found = self.weighed(monkeypatch, slice(0, 3))
        assert found.provenance.arguments["lrp note"].startswith("lrp leaves out 3 texts")
        assert found.values.max() > 0
        monkeypatch.undo()
        whole = self.weighed(monkeypatch, slice(0, 0))
        assert "lrp note" not in whole.provenance.arguments

    def test_half_precision_is_told_as_the_likely_reason(self, monkeypatch):
        plain = model_for("classify")
        half = Model.load(copy.deepcopy(plain.hf).half(), tokenizer=plain.tokenizer)
        assert "float32" in self.weighed(monkeypatch, slice(0, 3), half).provenance.arguments["lrp note"]
        monkeypatch.undo()
        assert "float32" not in self.weighed(monkeypatch, slice(0, 3)).provenance.arguments["lrp note"]

    def test_none_with_one_is_refused(self, monkeypatch):
        with pytest.raises(ModelError, match="No text has a relevance that is a number"):
            self.weighed(monkeypatch, slice(None))


def test_a_layer_with_no_number_is_not_taken_for_zero():
    with pytest.raises(ModelError, match="not a number"):
        normalised(np.array([1.0, np.nan]), [0, 0], power=2)


def test_no_module_of_lrp_is_loaded_before_it_is_asked_for():
    code = "import sys, pellucid.heads; print(any('attribution.lrp.' in name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


class TestRefusals:
    def test_unknown_methods_are_listed(self):
        with pytest.raises(ModelError, match=r"no method 'magic'.*confidence, gradient, lrp, zero, mean"):
            importance(model_for("lm"), GRAMMAR, methods=["magic"])

    def test_bleu_of_what_is_no_translation(self):
        with pytest.raises(ModelError, match="BLEU is a score of translations"):
            ablation(model_for("lm"), GRAMMAR.take(3), bleu=3)

    def test_one_document_gives_no_interval_and_says_why(self):
        one = importance(model_for("lm"), Corpus.of([next(iter(GRAMMAR))]), methods=["zero", "gradient"])
        assert one.low is None
        assert "one document group" in one.resampled
