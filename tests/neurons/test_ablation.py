"""Ablation of neurons: the batched sweep is one edit at a time, planted neurons matter, and greedy order is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid import Corpus, neurons
from pellucid.errors import SiteError
from pellucid.heads import measured
from pellucid.model import Edit, Model
from pellucid.model.sites import Site
from pellucid.neurons.judging.ablating import site_means, sweep_neurons
from pellucid.neurons.judging.ablation import by_ablation, by_greedy_ablation
from pellucid.results import ResultError
from pellucid.uncertainty import jackknife
from tests.heads.measuring_models import CORPORA, model_for
from tests.neurons import planted
from tests.tiny_models import network, word_tokenizer


@pytest.fixture(scope="module")
def tagger():
    return measured(planted.model(), planted.corpus().take(40), label="upos", batch=16)


@pytest.fixture(scope="module")
def reader():
    """A random encoder for masked words, whose layers all matter."""
    text = ["the keys near the cabinet are old", "a red dog runs", "the cat sleeps in the cabinet and the dog is old"]
    model = Model.load(network("bert"), tokenizer=word_tokenizer(closing=True))
    return measured(model, Corpus.of(text * 4), batch=5)


def one_at_a_time(found, edit):
    """Mean normalised confidence change, change of loss and flipped answers, by whole passes with one edit."""
    drops, losses, flips, count = 0.0, 0.0, 0.0, 0
    for step in range(found.steps()):
        batch = found.batch(step)
        real = batch["goals"].flatten() != -100
        plain, edited = (
            torch.log_softmax(found.task.logits(found.passing(edits), batch).flatten(0, -2).double(), -1)[real]
            for edits in ([], [edit] if isinstance(edit, Edit) else edit)
        )
        goals, rows = batch["goals"].flatten()[real], torch.arange(int(real.sum()))
        answer = plain.argmax(-1)
        p, q = plain[rows, answer].exp(), edited[rows, answer].exp()
        drops += float(((p - q) / p).sum())
        losses += float((plain[rows, goals] - edited[rows, goals]).sum())
        flips += float((edited.argmax(-1) != answer).sum())
        count += len(rows)
    return drops / count, losses / count, flips / count


def swept(lost, unit):
    return [part[unit].sum() / lost.counts.sum() for part in (lost.drops, lost.losses, lost.flips)]


@pytest.mark.parametrize("name", ["neurons.1", "resid.1", "heads.1", "neurons.0"])
def test_the_batched_sweep_is_one_edit_at_a_time(reader, name):
    site = Site(*((part := name.split("."))[0], int(part[1])))
    units = [0, 5, 9]
    means = site_means(reader, [site])
    size = reader.model.size(site)
    for replacement in ("zero", "mean"):
        lost = sweep_neurons(reader, site, units, replacement, tokens=150)
        for place, unit in enumerate(units):
            gate = torch.ones(int(np.prod(size)))
            gate[unit] = 0.0
            instead = (1 - gate) * means[site].float() * (replacement == "mean")
            if len(size) == 2:
                gate, instead = gate.view(1, size[0], 1, size[1]), instead.view(1, size[0], 1, size[1])
            else:
                gate, instead = gate.view(1, 1, -1), instead.view(1, 1, -1)
            expected = one_at_a_time(reader, [Edit.gate(site, gate), Edit.add(site, instead)])
            assert swept(lost, place) == pytest.approx(expected, abs=1e-6)
    assert lost.drops.shape == (3, 1, reader.group_count)


def test_starting_at_a_layer_changes_nothing(reader):
    site = Site("neurons", 1)
    late, whole = (sweep_neurons(reader, site, [1, 2, 3], whole=each) for each in (False, True))
    assert late.drops == pytest.approx(whole.drops, abs=1e-5)
    assert np.abs(whole.drops).max() > 1e-4


def test_neurons_that_are_gone_are_gone_in_every_pass(reader):
    for gone in ({Site("neurons", 0): [3, 4]}, {Site("neurons", 1): [7]}):
        lost = sweep_neurons(reader, Site("neurons", 1), [2], gone=gone)
        edits = [Edit.zero(site, neurons=units) for site, units in gone.items()]
        expected = one_at_a_time(reader, [*edits, Edit.zero("neurons.1", neurons=[2])])
        assert swept(lost, 0) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["embed", "resid.0", "resid.1", "heads.0", "neurons.0"])
def test_what_is_gone_below_stays_gone_when_passes_start_higher(reader, name):
    """The embedding has no layer, and stands below all of them."""
    kind, _, layer = name.partition(".")
    gone = {Site(kind, int(layer) if layer else None): [0, 1, 2, 3]}
    late, whole = (sweep_neurons(reader, Site("neurons", 1), [2], gone=gone, whole=each) for each in (False, True))
    without = sweep_neurons(reader, Site("neurons", 1), [2])
    assert late.drops == pytest.approx(whole.drops, abs=1e-5)
    assert np.abs(late.drops - without.drops).max() > 1e-3


@pytest.mark.parametrize("stack", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("layer", [0, 2])
def test_layers_of_a_decoder_are_not_below_those_of_an_encoder(stack, layer):
    """A pass that starts in the encoder's third layer runs the whole decoder."""
    text, _ = CORPORA["translate"]
    found = measured(model_for("translate", layers=3), text.take(8), "translate")
    gone = {Site("heads" if stack == "cross" else "neurons", layer, stack): list(range(20))}
    site = Site("neurons", 2, "encoder")
    late, whole = (sweep_neurons(found, site, [1, 2], gone=gone, whole=each) for each in (False, True))
    assert late.drops == pytest.approx(whole.drops, abs=1e-4)
    assert np.abs(late.drops - sweep_neurons(found, site, [1, 2]).drops).max() > 1e-3


def test_means_leave_padding_out(tagger):
    site = Site("neurons", 0)
    rows = [planted.model().run(sentence.text, [site])[site][0] for sentence in tagger.corpus]
    assert site_means(tagger, [site])[site].numpy() == pytest.approx(torch.cat(rows).mean(0).numpy(), abs=1e-5)


@pytest.fixture(scope="module")
def ranked():
    return neurons.ablation(planted.model(), planted.corpus().take(60), label="upos", sites="neurons.*", progress=False)


def test_only_planted_neurons_matter_each_for_its_class(ranked):
    names = set(planted.names().values())
    there = {name for name, score in zip(ranked.neurons, ranked.scores(), strict=True) if score > 1e-6}
    assert there <= names
    for tag, name in planted.names().items():
        if tag in ranked.classes and tag != planted.FLIPPED:
            assert ranked.top(1, tag) == [name]
            assert ranked.values[ranked.place("class", tag), ranked.place("neuron", name)] > 0.5
    assert ranked.method == "ablation"
    assert ranked.concept == "upos"
    assert "document groups" in ranked.resampled
    assert (ranked.low <= ranked.values).all()
    table = ranked.table("changes").columns
    assert table["loss"][ranked.place("neuron", planted.names()["NOUN"])] > 0


def test_a_concept_is_one_of_the_models_labels(ranked):
    text = planted.corpus().take(60)
    noun = by_ablation(planted.model(), text, concept="upos=NOUN", sites="neurons.0")
    assert noun.classes == ("NOUN",)
    assert noun.top(1) == [planted.names()["NOUN"]]
    assert noun.values[0, 0] == pytest.approx(ranked.values[ranked.place("class", "NOUN"), 0], abs=1e-6)
    greedy = by_greedy_ablation(planted.model(), text.take(20), concept="upos", sites="neurons.0", within=4, count=2)
    assert len(greedy.neurons) == planted.INNER
    assert set(greedy.top(2)) <= set(planted.names().values())
    assert greedy.scores()[greedy.place("neuron", greedy.top(2)[1])] == 0.5
    with pytest.raises(ResultError, match="give a model and a corpus"):
        by_ablation(planted.model(), concept="upos")
    with pytest.raises(ResultError, match="'upos=DOG' is not among it: name one of these"):
        by_ablation(planted.model(), text, concept="upos=DOG", sites="neurons.0")


@pytest.mark.parametrize("rank", [by_ablation, by_greedy_ablation])
def test_neurons_at_their_mean_are_ranked_for_a_concept(rank, tagger):
    """The first that goes loses what one edit by hand loses for the same goals."""
    text, few = planted.corpus().take(40), {} if rank is by_ablation else {"count": 1, "within": 3}
    ways = {"concept": "upos=NOUN,VERB", "sites": "neurons.0", **few}
    found = rank(planted.model(), text, **ways, replacement="mean")
    assert found.provenance.arguments["replacement"] == "mean"
    measuring = measured(planted.model(), text, label="upos")
    places = [measuring.labels.index(tag) for tag in ("NOUN", "VERB")]
    best = found.top(1)[0]
    lost = sweep_neurons(measuring, Site("neurons", 0), [int(best.split(":")[1])], "mean")
    expected = lost.drops[0, places].sum() / lost.counts[places].sum()
    at_zero = rank(planted.model(), text, **ways)
    if rank is by_ablation:
        told = [each.scores()[each.place("neuron", best)] for each in (found, at_zero)]
    else:
        told = [each.table("steps").columns["lost"][0] for each in (found, at_zero)]
    assert told[0] == pytest.approx(expected, abs=1e-6)
    assert abs(told[0] - told[1]) > 0.01
    with pytest.raises(SiteError, match="replaced by 'noise'; choose zero, mean"):
        rank(planted.model(), text, concept="upos", replacement="noise")


def test_how_many_neurons_go_and_out_of_how_many():
    model, text, ways = planted.model(), planted.corpus().take(6), {"concept": "upos", "sites": "neurons.0"}
    for asked, count in (({}, 10), ({"within": 3}, 3), ({"count": 4}, 4), ({"within": 3, "count": 2}, 2)):
        found = by_greedy_ablation(model, text, **ways, **asked)
        assert len(found.table("steps").columns["neuron"]) == count == found.provenance.arguments["count"]
        few = by_ablation(model, text, **ways).top(asked.get("within", 30), by="signed")
        assert set(found.table("steps").columns["neuron"]) <= set(few)
    with pytest.raises(ResultError, match="Not 9 neurons can go out of the first 3"):
        by_greedy_ablation(model, text, **ways, within=3, count=9)


def test_several_named_classes_are_ranked_by_their_own_answers(ranked):
    """What answers to other words lose does not count: else the neurons of NOUN and DET come first."""
    text, own = planted.corpus().take(60), {planted.names()[tag] for tag in ("ADP", "VERB")}
    both = by_ablation(planted.model(), text, concept="upos=ADP,VERB", sites="neurons.0")
    assert both.classes == ("ADP", "VERB")
    assert set(both.top(2)) == own
    found = measured(planted.model(), text, label="upos")
    places = [found.labels.index(tag) for tag in both.classes]
    lost = sweep_neurons(found, Site("neurons", 0), range(planted.INNER))
    goals = lost.counts[places]
    expected = lost.drops[:, places].sum((1, 2)) / goals.sum()
    assert both.overall.columns["score"] == pytest.approx(expected, abs=1e-6)
    changes = both.table("changes").columns
    assert changes["loss"] == pytest.approx(lost.losses[:, places].sum((1, 2)) / goals.sum(), abs=1e-6)
    assert changes["flipped"] == pytest.approx(lost.flips[:, places].sum((1, 2)) / goals.sum(), abs=1e-6)
    assert both.values[1] == pytest.approx(ranked.values[ranked.place("class", "VERB"), : planted.INNER], abs=1e-6)
    single = by_ablation(planted.model(), text, concept="upos=VERB", sites="neurons.0")
    assert single.overall.columns["score"] == pytest.approx(single.values[0])
    assert single.overall.columns["high"] == pytest.approx(single.high[0])
    greedy = by_greedy_ablation(planted.model(), text, concept="upos=ADP,VERB", sites="neurons.0", within=2, count=2)
    assert set(greedy.table("steps").columns["neuron"]) == own
    assert greedy.table("steps").columns["lost"][1] == pytest.approx(expected.sum(), rel=1e-3)


def test_greedy_removal_goes_by_what_is_lost_together():
    text = planted.corpus().take(30)
    names = [planted.names()[tag] for tag in ("NOUN", "VERB", "DET")] + ["neurons.0:0", "neurons.1:2"]
    found = neurons.greedy_ablation(planted.model(), text, label="upos", neurons=names, count=3, progress=False)
    steps = found.table("steps").columns
    assert set(steps["neuron"]) == set(names[:3])
    assert found.order()[:3] == steps["neuron"].tolist()
    assert (np.diff(steps["lost"]) > 0).all()
    single = neurons.ablation(planted.model(), text, label="upos", neurons=names, progress=False)
    assert steps["neuron"][0] == single.top(1, by="signed")[0]
    assert steps["lost"][0] == pytest.approx(single.scores(by="signed").max(), abs=1e-6)
    measuring = measured(planted.model(), text, label="upos")
    gone = [int(name.split(":")[1]) for name in steps["neuron"]]
    assert steps["lost"][2] == pytest.approx(
        one_at_a_time(measuring, Edit.zero("neurons.0", neurons=gone))[0], abs=1e-6
    )
    with pytest.raises(ResultError, match="6 cannot go"):
        neurons.greedy_ablation(planted.model(), text, label="upos", neurons=names, count=6)


def test_greedy_removal_for_a_class_goes_by_that_class_alone():
    text = planted.corpus().take(30)
    noun = by_greedy_ablation(planted.model(), text, concept="upos=DET", sites="neurons.0", within=5, count=2)
    assert noun.classes == ("DET",)
    assert noun.top(1, "DET") == noun.top(1) == [planted.names()["DET"]]
    measuring = measured(planted.model(), text, label="upos")
    place = measuring.labels.index("DET")
    gone = [int(name.split(":")[1]) for name in noun.table("steps").columns["neuron"]]
    lost = sweep_neurons(measuring, Site("neurons", 0), gone[1:], gone={Site("neurons", 0): gone[:1]})
    expected = lost.drops[0, place].sum() / lost.counts[place].sum()
    assert noun.table("steps").columns["lost"][1] == pytest.approx(expected, abs=1e-6)
    assert noun.low is None
    assert noun.resampled.startswith("no interval: ")
    assert f"over {np.count_nonzero(lost.counts[place])} document groups" in noun.resampled
    both = by_greedy_ablation(planted.model(), text, concept="upos=DET,VERB", sites="neurons.0", within=5, count=2)
    assert both.classes == ("DET", "VERB")
    assert both.top(1, "VERB") == [planted.names()["VERB"]]
    assert both.top(1, "DET") == [planted.names()["DET"]]
    assert set(both.top(2)) == {planted.names()["DET"], planted.names()["VERB"]}


def test_what_greedy_removal_loses_has_an_interval_over_document_groups():
    text, names = planted.corpus().take(30), ("DET", "NOUN", "VERB")  # groups differ in how many they have of each
    concept = "upos=" + ",".join(names)
    steps = by_greedy_ablation(planted.model(), text, concept=concept, sites="neurons.0", within=5, count=2)
    measuring, told = measured(planted.model(), text, label="upos"), steps.table("steps").columns
    places = [measuring.labels.index(name) for name in names]
    gone = [int(name.split(":")[1]) for name in told["neuron"]]
    for step in (0, 1):  # the neurons that went before are held fixed
        lost = sweep_neurons(measuring, Site("neurons", 0), gone[step:], gone={Site("neurons", 0): gone[:step]})
        drops, counts = lost.drops[0, places].sum(0), lost.counts[places].sum(0)
        there = np.flatnonzero(counts)
        without = [np.array((drops.sum() - drops[at]) / (counts.sum() - counts[at])) for at in there]
        ends = jackknife(np.array(drops.sum() / counts.sum()), without, counts[there].tolist())
        assert [told["low"][step], told["high"][step]] == pytest.approx([ends.low, ends.high], abs=1e-6)
        assert told["high"][step] - told["low"][step] > 0.01


def test_neurons_that_do_harm_are_not_removed_first():
    """One more neuron works against verbs: without it answers gain several times what they can lose."""
    network, own = planted.network(), planted.neurons()["VERB"]
    first = network.transformer.h[0].mlp
    with torch.no_grad():
        first.c_fc.weight[:, 0], first.c_fc.bias[0] = first.c_fc.weight[:, own], first.c_fc.bias[own]
        first.c_proj.weight[0] = -0.97 * first.c_proj.weight[own]
    model, text = Model.load(network, tokenizer=planted.tokenizer()), planted.corpus().take(30)
    ways = {"concept": "upos=VERB", "sites": "neurons.0"}
    single = by_ablation(model, text, **ways)
    assert single.top(1) == ["neurons.0:0"]
    assert single.scores(by="signed").min() < -1
    greedy = by_greedy_ablation(model, text, **ways, within=1, count=1)
    assert greedy.table("steps").columns["neuron"].tolist() == [planted.names()["VERB"]]
    assert greedy.table("steps").columns["lost"][0] > 0.1


def test_bad_input_is_one_sentence(tagger):
    site = Site("neurons", 0)
    with pytest.raises(SiteError, match="replaced by 'noise'"):
        sweep_neurons(tagger, site, [0], "noise")
    with pytest.raises(SiteError, match=r"neurons\.0 has neurons 0 to 63; neuron 64"):
        sweep_neurons(tagger, site, [64])
    with pytest.raises(SiteError, match="no neuron was asked"):
        sweep_neurons(tagger, site, [])
    model, text = planted.model(), planted.corpus().take(5)
    for wrong, message in (("neurons.9:0", "no site 'neurons.9'"), ("neurons.0:99", "no neuron 99")):
        with pytest.raises(SiteError, match=message):
            neurons.ablation(model, text, label="upos", neurons=[wrong])
    with pytest.raises(SiteError, match="not both"):
        neurons.ablation(model, text, label="upos", neurons=["neurons.0:1"], sites="neurons.0")
