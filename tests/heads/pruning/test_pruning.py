"""Pruning: gates learn which heads matter, curves are what they say, and a killed training ends in the same bytes."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.collect.progress import Progress
from pellucid.corpus import Corpus
from pellucid.errors import ModelError, PellucidError, SiteError, TrainError
from pellucid.heads import GateSettings, HeadGates, Pruning, kept_heads, prune, pruned
from pellucid.heads.naming import all_heads, find_heads, head_name
from pellucid.heads.pruning.curves import Curves, removing, sums_under
from pellucid.heads.pruning.gate_training import GateTraining
from pellucid.heads.weighing.measuring import measured
from pellucid.model import Edit, Model
from pellucid.report.pruning import sentences
from pellucid.results import Table
from pellucid.train.tasks import TASKS
from tests.heads.built_models import planted, repeated_corpus
from tests.heads.measuring_models import CORPORA, model_for
from tests.tiny_models import network

QUICK = GateSettings(strength=0.3, epochs=6, batch=8, points=6, rate=0.25)


def quick(model: Model, corpus: Corpus, **options) -> Pruning:
    given = {"settings": QUICK, "draws": 2, "progress": False, "valid": corpus, **options}
    return prune(model, corpus, **given)


@pytest.fixture(scope="module")
def found() -> Pruning:
    """The planted model on words said twice: only the previous-token head 0.0 and the induction head 1.0 help."""
    settings = GateSettings(strength=0.3, epochs=10, batch=8, points=10)
    return prune(planted(), repeated_corpus(80), settings=settings, draws=3, heads=2, progress=False)


def test_the_heads_that_matter_stay_open(found):
    assert found.survivors() == ["0.0", "1.0"]
    assert found.chosen == 2
    assert not found.biased, "the number of heads was asked for"
    assert set(found.axes["method"]) == {"gates", "importance", "random"}
    assert found.axes["heads"][0] == 8
    at = found.place("heads", 2)
    assert found.values[0, at] < found.values[2, at], "two heads that were chosen beat two drawn at random"


def test_all_heads_are_the_model_as_it_is(found):
    assert set(found.gates_at(8).values()) == {1.0}
    assert set(found.table("gates").columns["gate"][0].tolist()) == {1.0}
    assert found.values[0, 0] == pytest.approx(found.table("path").columns["perplexity"][0])
    assert np.allclose(found.values[:, 0], found.values[0, 0])
    assert len(found.survivors(8)) == 8


def test_the_pruned_model_is_the_gated_one(found):
    model = planted()
    less = pruned(model, found)
    gates = found.gates_at()
    edits = [
        Edit.gate(site, torch.tensor([gates[head_name(site, head)] for head in range(model.size(site)[0])]))
        for site in model.sites
        if site.kind == "heads"
    ]
    batch = model.tokenize([sentence.text for sentence in repeated_corpus(80).take(3)])
    wanted = model.run(batch, edits=edits).logits
    assert torch.allclose(less.run(batch).logits, wanted, atol=1e-4 * float(wanted.abs().max()))
    assert kept_heads(less) == {"heads.0": (0,), "heads.1": (0,)}
    with pytest.raises(ModelError, match="is another model"):
        pruned(model_for("lm"), found)


def test_gates_between_become_part_of_the_weights(found):
    """A point of the curve with half-open gates, as a training of the weights leaves them."""
    model, table = planted(), found.table("gates")
    used = np.where(np.arange(8) % 3 == 0, 0.0, np.linspace(0.2, 1.0, 8))
    columns = {"gate": table.columns["gate"], "used": np.stack([used] * len(found.axes["heads"]))}
    other = replace(found, tables={**found.tables, "gates": Table(table.axes, columns)})
    edits = [Edit.gate(f"heads.{layer}", torch.tensor(used[4 * layer : 4 * layer + 4])) for layer in range(2)]
    wanted = model.run("the dog the dog", edits=edits).logits
    less = pruned(model, other)
    assert torch.allclose(less.run("the dog the dog").logits, wanted, atol=1e-4 * float(wanted.abs().max()))
    assert kept_heads(less) == {"heads.0": (1, 2), "heads.1": (0, 1, 3)}


def test_the_tables_tell_what_is_left(found):
    layers = found.table("layers").columns
    assert layers["layer"].tolist() == ["0", "1"]
    assert layers["heads"].tolist() == [4, 4]
    assert layers["left"].tolist() == [1, 1]
    survivors = found.table("survivors").columns
    assert survivors["head"].tolist() == ["0.0", "1.0"]
    path = found.table("path").columns
    assert path["strength"].tolist() == pytest.approx([0.03 * step for step in range(11)])
    assert path["open"][0] == 8
    assert path["open"][-1] == min(found.axes["heads"])


def test_saved_and_loaded(found, tmp_path):
    found.save(tmp_path / "result")
    again = Pruning.load(tmp_path / "result")
    assert again.same(found)
    assert again.survivors() == found.survivors()
    assert again.score == "perplexity"
    assert not again.larger_is_better


@pytest.mark.parametrize(("task", "score"), [("translate", "bleu"), ("qa", "f1")])
def test_the_main_score_is_told_with_all_heads_and_at_the_chosen_point(task, score):
    """BLEU and F1 as the task itself measures them with the same heads taken out one by one."""
    model, (corpus, _) = model_for(task), CORPORA[task]
    order = [head_name(*head) for head in all_heads(model)]
    corpus = corpus.take(16)
    fast = replace(QUICK, rate=1.0)
    result = quick(model, corpus, order=order, heads=len(order) // 2, draws=5, settings=fast)
    assert result.chosen < len(order)
    columns = result.table("scores").columns
    assert columns["method"].tolist() == ["the model as it is", "gates", "importance", "random"]
    assert columns["heads"].tolist() == [len(order), *[result.chosen] * 3]
    assert set(columns["of"].tolist()) == {score}
    plain = measured(model, corpus, task, batch=QUICK.batch, seed=QUICK.seed)
    closed = [name for name, gate in result.gates_at().items() if gate == 0]
    dice = np.random.default_rng(QUICK.seed)
    drawn = [[order[at] for at in dice.permutation(len(order))][result.chosen :] for _ in range(3)]
    scores = [
        plain.scores([Edit.zero(site, heads=[head]) for site, head in find_heads(model, gone)])[score]
        for gone in ([], closed, order[result.chosen :], *drawn)
    ]
    assert columns["score"][:3] == pytest.approx(scores[:3])
    assert columns["score"][3] == pytest.approx(np.mean(scores[3:]))
    assert (columns["lowest"][3], columns["highest"][3]) == pytest.approx((min(scores[3:]), max(scores[3:])))
    assert columns["chance"] == pytest.approx(plain.chance()[score])
    assert len(set(scores)) > 1  # the heads must matter
    assert {"bleu": "BLEU there:", "f1": "F1 there:"}[score] in " ".join(sentences(result))


@pytest.mark.parametrize("task", ["lm", "classify", "translate", "tagger"])
def test_every_task_has_a_curve(task):
    model, (corpus, changes) = model_for(task), CORPORA[task]
    result = quick(model, corpus, label=changes.get("label"))
    total = len(all_heads(model))
    assert result.axes["heads"][0] == total
    assert len(result.axes["heads"]) > 1
    assert result.score == ("accuracy" if task in ("classify", "tagger") else "perplexity")
    assert ("scores" in result.tables) == (task == "translate")
    if task == "translate":
        stacks = {str(name).partition(".")[0] for name in result.table("gates").axes["head"]}
        assert stacks == {"encoder", "decoder", "cross"}


def test_a_curve_by_an_order_is_the_model_without_its_last_heads():
    """The task's own evaluation of the network, its heads silenced by zeroing the rows that take their output."""
    model, corpus = planted(), repeated_corpus(30)
    order = [head_name(*head) for head in all_heads(model)]
    result = quick(model, corpus, order=order, settings=replace(QUICK, epochs=10))
    assert len(result.axes["heads"]) > 1
    task, width = measured(model, corpus, batch=8), model.size("heads.0")[1]
    for at, count in enumerate(result.axes["heads"]):
        copy = deepcopy(model.hf)
        for name in order[count:]:
            layer, head = map(int, name.split("."))
            copy.transformer.h[layer].attn.c_proj.weight.data[head * width : (head + 1) * width] = 0
        scores = TASKS["lm"].evaluate(copy, task.examples, "cpu", task.settings)
        assert result.values[1, at] == pytest.approx(scores["perplexity"], rel=1e-3)
    assert result.null[0, 0] == pytest.approx(task.chance()["perplexity"])
    assert result.provenance.arguments["order"] == "given"


def test_random_orders_lie_between_their_ends(found):
    assert (found.low[2] <= found.values[2]).all()
    assert (found.values[2] <= found.high[2]).all()
    assert (found.low[2, 1:] < found.high[2, 1:]).all()
    assert "3 draws" in found.resampled
    assert "document" in found.resampled


def test_a_killed_training_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
    model, corpus = model_for("lm"), CORPORA["lm"][0]
    whole = quick(model, corpus)
    step = GateTraining._step

    def killed(self: GateTraining) -> None:
        if self.step == 13:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(GateTraining, "_step", killed)
    with pytest.raises(KeyboardInterrupt):
        quick(model, corpus, folder=tmp_path / "out", save_every=0.0)
    monkeypatch.setattr(GateTraining, "_step", step)
    taken: list[int] = []

    def counted(self: GateTraining) -> None:
        taken.append(self.step)
        step(self)

    monkeypatch.setattr(GateTraining, "_step", counted)
    again = quick(model, corpus, folder=tmp_path / "out")
    assert taken[0] == 13
    assert again.same(whole)
    assert Pruning.load(tmp_path / "out" / "result").same(whole)
    taken.clear()
    assert quick(model, corpus, folder=tmp_path / "out").same(whole)
    assert not taken, "a finished pruning is given back as it is"


def test_the_smaller_model_is_written_and_scores_what_the_curve_says(tmp_path):
    model, (corpus, changes) = model_for("classify"), CORPORA["classify"]
    result = quick(model, corpus, label=changes["label"], folder=tmp_path / "out", heads=4)
    assert result.chosen <= 4
    less = Model.load(tmp_path / "out" / "model")
    assert sum(less.size(site)[0] for site in less.sites if site.kind == "heads") == result.chosen
    sums = sums_under(measured(less, corpus, label=changes["label"], batch=8), [()])
    at = result.place("heads", result.chosen)
    assert float(sums.score("accuracy")[0]) == pytest.approx(result.values[0, at], abs=1e-9)


def test_tuned_weights_are_in_the_written_model_alone(tmp_path):
    model, corpus = model_for("lm"), CORPORA["lm"][0]
    before = model.fingerprint
    tuned = replace(QUICK, tune=True, tune_rate=1e-2)
    result = quick(model, corpus, folder=tmp_path / "out", settings=tuned)
    assert not result.biased
    frozen = quick(model, corpus)
    assert Model.load(model.hf, tokenizer=model.tokenizer).fingerprint == before
    assert result.chosen == result.table("path").columns["open"][-1]
    at = result.place("heads", result.chosen)
    assert result.values[0, at] < frozen.values[0].min(), "training the weights helps a random network"
    less = Model.load(tmp_path / "out" / "model")
    found = float(sums_under(measured(less, corpus, batch=8), [()]).score("perplexity")[0])
    assert found == pytest.approx(result.values[0, at], rel=1e-3)
    with pytest.raises(ModelError, match="trained the weights"):
        pruned(model, result)


def test_the_price_follows_its_schedule():
    def strengths(schedule: str) -> list[float]:
        settings = GateSettings(strength=0.8, schedule=schedule, points=4)
        return [settings.strength_at(step, 8) for step in range(1, 9)]

    assert strengths("linear") == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    assert strengths("constant") == [0.8] * 8
    assert strengths("steps") == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.4, 0.4, 0.8, 0.8])


def test_a_step_follows_the_slope_of_both_terms():
    """One step of Adam moves every gate by its rate, against the sign of the slope of loss + λ·ΣP(open)."""
    model, corpus = model_for("lm"), CORPORA["lm"][0]
    settings = GateSettings(strength=0.4, schedule="constant", batch=8, start=0.3, rate=0.5, epochs=20)
    task = measured(model, corpus, "lm", batch=8, shuffled=True)
    training = GateTraining(task, settings, lambda gates: {}, Progress(False), None, 60.0)
    gates = HeadGates.of(model, start=0.3)
    edits = gates.training_edits(torch.Generator().manual_seed(0))
    loss = task.loss(task.batch(0, 1), edits) + 0.4 * gates.penalty()
    slopes = torch.autograd.grad(loss, gates.parameters)
    training._step()
    for slope, place in zip(slopes, training.gates.parameters, strict=True):
        assert torch.allclose(place.detach(), 0.3 - 0.5 * slope.sign(), atol=1e-4)
        assert torch.allclose(training.optimiser.state[place]["exp_avg"], 0.1 * slope, rtol=1e-4)


def test_numbers_that_are_none_end_the_training(tmp_path, monkeypatch):
    model, corpus = model_for("lm"), CORPORA["lm"][0]
    loss = type(measured(model, corpus)).loss
    steps: list[int] = []

    def spoilt(self, batch, edits=(), **options):
        steps.append(1)
        return loss(self, batch, edits, **options) * (math.nan if len(steps) == 9 else 1.0)

    monkeypatch.setattr(type(measured(model, corpus)), "loss", spoilt)
    with pytest.raises(TrainError, match=r"no number at step 9.*state after step 8 is kept in"):
        quick(model, corpus, folder=tmp_path / "out", save_every=0.0)
    assert not (tmp_path / "out" / "model").exists()


def curve(scores: list[float], chance: float, score: str) -> Curves:
    counts = tuple(range(len(scores), 0, -1))
    values = np.array([scores] * 3)
    path = Table.of_rows({"step": [0]})
    return Curves(
        score, counts, values, np.full_like(values, chance), None, None, "none", values, values, ("0.0",), path, 1
    )


def test_the_chosen_point_keeps_the_wanted_share_of_what_is_above_chance():
    good = curve([0.9, 0.88, 0.86, 0.7], 0.5, "accuracy")
    assert good.shares() == pytest.approx([1, 0.95, 0.9, 0.5])
    assert good.chosen(keep=0.9, most=None) == 2
    assert good.chosen(keep=0.91, most=None) == 3
    assert good.chosen(keep=0.9, most=3) == 3
    nats = curve([math.e, math.exp(1.5), math.exp(4)], math.exp(5), "perplexity")
    assert nats.shares() == pytest.approx([1, 3.5 / 4, 0.25])
    hopeless = curve([0.4, 0.9], 0.5, "accuracy")
    assert hopeless.chosen(keep=0.5, most=None) == 2
    with pytest.raises(TrainError, match="no fewer than 1 of 4 heads"):
        good.chosen(keep=0.9, most=0)


def test_edits_that_remove_heads_name_each_site_once():
    task = measured(model_for("translate"), CORPORA["translate"][0])
    edits = removing(task, ["encoder.0.1", "encoder.0.2", "cross.1.0"])
    assert {(str(edit.site), edit.units) for edit in edits} == {("encoder.heads.0", (1, 2)), ("cross.heads.1", (0,))}


def test_bad_requests(tmp_path):
    model, corpus = model_for("lm"), CORPORA["lm"][0]
    with pytest.raises(SiteError, match=r"no head '9\.0'"):
        quick(model, corpus, order=["9.0"])
    with pytest.raises(ModelError, match="names every head once"):
        quick(model, corpus, order=["0.0", "0.1"])
    with pytest.raises(TrainError, match="kept in a folder"):
        quick(model, corpus, settings=replace(QUICK, tune=True))
    with pytest.raises(TrainError, match=r"move a gate by 0\.9 at most, and closing takes 5\.4"):
        quick(model, corpus, settings=replace(QUICK, epochs=1, rate=0.1))
    with pytest.raises(ModelError, match="no head with a loss"):
        quick(Model.load(network("bert").bert, tokenizer=model.tokenizer), corpus)
    for options, words in (
        ({"draws": 0}, "random order"),
        ({"keep": 0.0}, "no share"),
        ({"heads": -1}, "cannot be kept"),
        ({"heads": 3, "keep": 0.9}, "give one of them"),
        ({"test": corpus}, "also the text that the point is chosen by"),
        ({"settings": replace(QUICK, tune=True), "folder": tmp_path / "new", "heads": 3}, "heads=3 has no other point"),
        ({"settings": replace(QUICK, tune=True), "folder": tmp_path / "new", "keep": 0.9}, "keep=0.9 has no other"),
    ):
        with pytest.raises(TrainError, match=words):
            quick(model, corpus, **options)
    for wrong in ({"schedule": "up"}, {"strength": 0.0}, {"epochs": 0}, {"rate": math.nan}):
        with pytest.raises(TrainError):
            replace(QUICK, **wrong)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note.txt").write_text("mine")
    with pytest.raises(TrainError, match="exists and is not the folder of a pruning"):
        quick(model, corpus, folder=tmp_path / "mine")
    assert [item.name for item in (tmp_path / "mine").iterdir()] == ["note.txt"]
    with pytest.raises(PellucidError, match="cannot be made"):
        quick(model, corpus, folder=tmp_path / "no" / "such")


def test_another_pruning_is_not_gone_on_with(tmp_path):
    model, (corpus, changes) = model_for("classify"), CORPORA["classify"]
    quick(model, corpus, label=changes["label"], folder=tmp_path / "out")
    with pytest.raises(TrainError, match="begun with another settings"):
        quick(model, corpus, label=changes["label"], folder=tmp_path / "out", settings=replace(QUICK, seed=1))
    with pytest.raises(TrainError, match="begun with another model"):
        quick(model_for("classify", layers=1), corpus, label=changes["label"], folder=tmp_path / "out")
