"""The sweep: one pass for many collectors and models, what it refuses, and what it does when memory or disk run out."""

from __future__ import annotations

import errno
import io
import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch

from pellucid.collect.class_histograms import ClassHistograms
from pellucid.collect.collector import Collector
from pellucid.collect.encode import Encoder, Reading
from pellucid.collect.found import ABOUT, STATES, Found
from pellucid.collect.job import make_job
from pellucid.collect.lock import locked
from pellucid.collect.moments import Moments
from pellucid.collect.plan import Plan, make_plan
from pellucid.collect.runner import Runner
from pellucid.collect.sweep import default_shard, sweep
from pellucid.collect.topk import TopContexts
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import OutOfMemory, PellucidError, SiteError, SweepError
from pellucid.model import Model
from tests.collect.sweeping import Patterned, Rows, by_hand, files_of, in_order, reader, stories
from tests.collect.test_words import TRANSLATED

SMALL = {"token_budget": 150, "shard_tokens": 200, "threads": 1}
WANTED = (Moments("resid.*", groups=True), TopContexts("neurons.1", k=3))


def test_one_pass_answers_as_each_collector_alone_would():
    model, corpus = reader("gpt2"), stories(25)
    together = sweep(
        model, corpus, [Moments("resid.*", groups=True), Rows(("mlp.1",)), Patterned("pattern.0")], **SMALL
    )
    for number, each in enumerate(together.collectors.values()):
        name = f"{number}-{each.kind}"
        only = sweep(model, corpus, each, **SMALL)
        assert only.states[f"0-{each.kind}"].same(together.states[name])


def test_the_means_are_those_of_the_words():
    model, corpus = reader("bert"), stories(25)
    found = sweep(model, corpus, Moments("resid.*"), **SMALL)
    rows = by_hand(model, corpus, "resid.2")
    np.testing.assert_allclose(found[Moments].mean("resid.2"), rows.mean(0), atol=1e-6)
    assert found.words == len(rows)


def test_groups_are_those_of_the_documents():
    corpus = stories(40)
    found = in_order(sweep(reader("gpt2"), corpus, Rows(("resid.0",)), **SMALL))
    documents = [sentence.document for sentence in corpus]
    by_document: dict[str, set[int]] = {}
    for sentence, group in zip(found["sentence"].tolist(), found["group"].tolist(), strict=True):
        by_document.setdefault(documents[sentence], set()).add(group)
    assert all(len(groups) == 1 for groups in by_document.values())
    assert sorted(set(found["group"].tolist())) == list(range(max(found["group"]) + 1))
    assert (np.diff(found["group"]) >= 0).all()
    assert max(found["group"]) > 3


def test_groups_are_kept_apart_only_where_a_collector_asks_for_them():
    corpus = stories(40)
    assert sweep(reader("gpt2"), corpus, Moments("resid.0"), **SMALL).groups == 1
    several = sweep(reader("gpt2"), corpus, [Moments("resid.0"), Moments("resid.0", groups=True)], **SMALL)
    assert several.groups == len(several["1-moments"].groups) > 3


def test_shards_with_several_groups_give_every_group_its_own(monkeypatch):
    model, corpus = reader("gpt2"), stories(40)
    settings = {**SMALL, "shard_tokens": 10**6}
    collectors = [Moments("resid.*", groups=True, precision="float64"), Rows(("resid.0",))]
    apart = sweep(model, corpus, collectors, **settings)
    monkeypatch.setattr("pellucid.collect.sweep.LARGE", 0)
    plans: list[Plan] = []
    monkeypatch.setattr(
        "pellucid.collect.sweep.make_plan",
        lambda *arguments, **options: plans.append(make_plan(*arguments, **options)) or plans[-1],
    )
    mixed = sweep(model, corpus, collectors, **settings)
    assert len(plans[0].shards) == 1
    one, other = in_order(apart), in_order(mixed)
    np.testing.assert_array_equal(one["group"], other["group"])
    assert mixed.groups == apart.groups > 3
    for group in apart[Moments].groups:
        mine, theirs = (found[Moments].group(group) for found in (apart, mixed))
        assert mine.n == theirs.n
        np.testing.assert_allclose(mine.scatter("resid.1", "resid.2"), theirs.scatter("resid.1", "resid.2"), atol=1e-5)


def test_a_finished_folder_is_read_and_not_run_again(tmp_path, monkeypatch):
    model, corpus = reader("gpt2"), stories(20)
    first = sweep(model, corpus, WANTED, folder=tmp_path / "s", **SMALL)
    before = files_of(tmp_path / "s")
    assert set(before) == {ABOUT, STATES, "pilots.safetensors", "sentences.jsonl"}
    monkeypatch.setattr(Model, "run", lambda *_, **__: pytest.fail("the model ran"))
    again = sweep(model, corpus, WANTED, folder=tmp_path / "s", **SMALL)
    loaded = Found.load(tmp_path / "s")
    for other in (again, loaded):
        assert other.states.keys() == first.states.keys()
        assert all(other.states[name].same(first.states[name]) for name in first.states)
        assert other.about == first.about
        assert other.counts == first.counts
        assert dict(other.sentences) == dict(first.sentences) != {}
        assert dict(other.corpus_words) == dict(first.corpus_words)
        assert other.collectors == first.collectors
    assert files_of(tmp_path / "s") == before
    monkeypatch.undo()
    plain = sweep(model, corpus, WANTED, **SMALL)
    assert all(plain.states[name].same(first.states[name]) for name in first.states)


def test_what_a_kill_left_in_a_finished_folder_is_tidied(tmp_path):
    model, corpus = reader("gpt2"), stories(20)
    sweep(model, corpus, WANTED, folder=tmp_path / "s", **SMALL)
    before = files_of(tmp_path / "s")
    (tmp_path / "s" / "nodes").mkdir()
    (tmp_path / "s" / "nodes" / "0-1.safetensors").write_bytes(b"x")
    (tmp_path / "s" / "plan.json").write_text("{}")
    (tmp_path / "s" / ".states.safetensors.12.part").write_bytes(b"x")
    sweep(model, corpus, WANTED, folder=tmp_path / "s", **SMALL)
    assert files_of(tmp_path / "s") == before


def test_another_sweep_in_the_folder_is_refused_by_what_differs(tmp_path, monkeypatch):
    model, corpus = reader("gpt2"), stories(20)
    place = tmp_path / "s"
    sweep(model, corpus, WANTED, folder=place, **SMALL)
    before = files_of(place)

    def refused(what: str, *, models=model, text=corpus, wanted=WANTED, **options):
        with pytest.raises(SweepError, match=rf"holds a sweep with {what}; give another folder, or delete that one\.$"):
            sweep(models, text, wanted, folder=place, **{**SMALL, **options})

    refused("another model \\(or the same with other weights\\)", models=reader("gpt2", seed=1))
    refused("another model \\(or the same with other weights\\)", models=reader("gpt2", size=70))
    refused("another corpus", text=stories(19))
    refused("other collectors", wanted=WANTED[:1])
    refused("other collectors", wanted=(Moments("resid.*"), WANTED[1]))
    refused("another pooling, side or treatment of long sentences", pooling="first")
    refused("another pooling, side or treatment of long sentences", long="window")
    refused("another token budget", token_budget=151)
    refused("another shard size", shard_tokens=201)
    refused("another number of threads", threads=2)
    refused("another token budget, another shard size", token_budget=100, shard_tokens=100)
    from pellucid import results

    found = {**results.versions(), "torch": "1.0"}
    monkeypatch.setattr(results, "versions", lambda: found)
    refused("other versions of Pellucid, torch, transformers or numpy")
    monkeypatch.undo()
    assert files_of(place) == before


def test_renaming_the_corpus_or_the_model_changes_nothing(tmp_path):
    model, corpus = reader("gpt2"), stories(10)
    sweep(model, corpus, WANTED, folder=tmp_path / "s", **SMALL)
    other = Corpus.of(list(corpus), name="the same under another name")
    assert sweep(model, other, WANTED, folder=tmp_path / "s", **SMALL).about["corpus"]["name"] == "stories"


def test_a_newer_format_and_damaged_files_are_refused(tmp_path):
    model, corpus = reader("gpt2"), stories(10)
    place = tmp_path / "s"
    sweep(model, corpus, WANTED, folder=place, **SMALL)
    about = (place / ABOUT).read_text()
    (place / ABOUT).write_text(json.dumps({**json.loads(about), "format": 99}))
    for attempt in (lambda: Found.load(place), lambda: sweep(model, corpus, WANTED, folder=place, **SMALL)):
        with pytest.raises(SweepError, match=r"has format 99; this Pellucid reads 1: update it\.$"):
            attempt()
    (place / ABOUT).write_text(about[:-20])
    with pytest.raises(SweepError, match=r"sweep\.json' is damaged"):
        Found.load(place)
    (place / ABOUT).write_text(about)
    (place / STATES).write_bytes((place / STATES).read_bytes()[:-4])
    with pytest.raises(SweepError, match=r"states\.safetensors' is damaged or missing"):
        Found.load(place)
    (place / STATES).unlink()
    with pytest.raises(SweepError, match="is not finished; run the same command again"):
        Found.load(place)
    with pytest.raises(SweepError, match=r"There is no sweep in .*: it has no sweep\.json"):
        Found.load(tmp_path)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "plan.json").write_text("mine")
    with pytest.raises(SweepError, match="is not empty and holds no sweep; choose another folder"):
        sweep(reader("gpt2"), stories(5), WANTED, folder=tmp_path / "s", **SMALL)
    assert (tmp_path / "s" / "plan.json").read_text() == "mine"
    with pytest.raises(SweepError, match="cannot be made: its parent is not a folder"):
        sweep(reader("gpt2"), stories(5), WANTED, folder=tmp_path / "no" / "s", **SMALL)
    (tmp_path / "file").write_text("")
    with pytest.raises(SweepError, match="is a file; give the name of a folder"):
        sweep(reader("gpt2"), stories(5), WANTED, folder=tmp_path / "file", **SMALL)


def test_two_sweeps_at_once_in_a_folder_are_refused(tmp_path):
    with locked(tmp_path / "s"), pytest.raises(SweepError, match=r"^Another run is writing to .* right now; wait"):
        sweep(reader("gpt2"), stories(5), WANTED, folder=tmp_path / "s", **SMALL)
    sweep(reader("gpt2"), stories(5), WANTED, folder=tmp_path / "s", **SMALL)  # the lock is free again


def test_a_corpus_without_a_fingerprint_is_swept_once(tmp_path, capsys):
    model = reader("gpt2")
    stream = stories(10).filter(lambda _: True)
    assert stream.fingerprint is None
    done = sweep(model, stream, WANTED, folder=tmp_path / "s", progress=True, **SMALL)
    assert "cannot be resumed" in " ".join(capsys.readouterr().err.split())
    assert done.words == sum(len(each.spans) for each in stream)
    with pytest.raises(SweepError, match="has no fingerprint"):
        sweep(model, stream, WANTED, folder=tmp_path / "s", **SMALL)


# -- memory ----------------------------------------------------------------------------------------------------------


def short_of_memory(monkeypatch, tokens: int) -> list[tuple[int, int]]:
    """Model.run raises over so many padded tokens; the shapes of what ran."""
    real, shapes = Model.run, list[tuple[int, int]]()

    def run(self, batch, *arguments, **options):
        if batch.ids.numel() > tokens:
            raise OutOfMemory("cpu ran out of memory")
        shapes.append(tuple(batch.ids.shape))
        return real(self, batch, *arguments, **options)

    monkeypatch.setattr(Model, "run", run)
    return shapes


def test_batches_are_halved_where_memory_runs_out(monkeypatch):
    model, corpus = reader("bert"), stories(30)
    options = {"token_budget": 400, "shard_tokens": 400}
    collectors = [Moments("resid.*"), Rows(("resid.3",)), Patterned("pattern.1")]
    whole = sweep(model, corpus, collectors, **options)
    assert whole.record["halved"] == []
    shapes = short_of_memory(monkeypatch, 60)
    halved = sweep(model, corpus, collectors, **options)
    monkeypatch.undo()
    assert max(rows * length for rows, length in shapes) <= 60
    one, other = in_order(whole), in_order(halved)
    assert one["ordinal"].tolist() == other["ordinal"].tolist()
    np.testing.assert_allclose(one["resid.3"], other["resid.3"], atol=2e-5)
    for site in ("resid.0", "resid.3"):
        np.testing.assert_allclose(halved[Moments].mean(site), whole[Moments].mean(site), atol=1e-6)
    assert halved[Moments].n == whole[Moments].n == whole.words
    for name, array in whole.states["2-test-patterns"].arrays.items():
        np.testing.assert_allclose(halved.states["2-test-patterns"].arrays[name], array, atol=1e-5)
    shards = [shard for shard, _ in halved.record["halved"]]
    assert shards[0] == 0
    assert shards == list(range(len(shards)))  # the smaller budget stays, and every shard that ran with it says so
    assert all(count == 3 for _, count in halved.record["halved"])


def test_a_sentence_that_is_too_large_alone_is_named(monkeypatch):
    sentences = [Sentence.of_words(["dog"], id="small"), Sentence.of_words(["dog"] * 20, id="huge")]
    short_of_memory(monkeypatch, 30)
    with pytest.raises(OutOfMemory, match=r"sentence 'huge', alone in its batch"):
        sweep(reader("bert"), Corpus.of(sentences), Rows(("resid.1",)), token_budget=120)


# -- disk ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(0, 9, 2))
def test_a_full_disk_leaves_a_folder_that_goes_on(tmp_path, monkeypatch, at):
    model, corpus = reader("gpt2"), stories(12)
    sweep(model, corpus, WANTED, folder=tmp_path / "whole", **SMALL)
    left = [at]

    class Full(io.FileIO):
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    real = Path.open

    def opened(path, mode="r", *arguments, **options):
        if mode == "wb":
            left[0] -= 1
            if left[0] < 0:
                return Full(str(path), "w")
        return real(path, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(PellucidError, match=r"could not be written \(No space .*\); make room .* is kept\.$"):
        sweep(model, corpus, WANTED, folder=tmp_path / "s", **SMALL)
    monkeypatch.undo()
    assert not list((tmp_path / "s").rglob("*.part"))
    sweep(model, corpus, WANTED, folder=tmp_path / "s", **SMALL)
    assert files_of(tmp_path / "s") == files_of(tmp_path / "whole")


# -- several models, own collectors, odds and ends -------------------------------------------------------------------


def test_two_models_in_one_sweep_are_each_alone():
    models, corpus = [reader("gpt2"), reader("bert", size=70)], stories(20)
    both = sweep(models, corpus, [Moments("resid.*"), Moments(("0:resid.1", "1:resid.2"))], **SMALL)
    assert both.record["unmatched"] == 0
    for number, model in enumerate(models):
        rows = by_hand(model, corpus, "resid.2")
        np.testing.assert_allclose(both["0-moments"].mean(f"{number}:resid.2"), rows.mean(0), atol=1e-6)
    one, other = by_hand(models[0], corpus, "resid.1"), by_hand(models[1], corpus, "resid.2")
    expected = (one - one.mean(0)).T @ (other - other.mean(0))
    np.testing.assert_allclose(both["1-moments"].scatter("0:resid.1", "1:resid.2"), expected, rtol=1e-4, atol=1e-4)


def test_the_sentences_of_a_target_side_are_the_translations():
    done = sweep(reader("t5"), Corpus.of(TRANSLATED), TopContexts("decoder.resid.1", k=2), side="target")
    assert done.sentences
    for number, sentence in done.sentences.items():
        assert sentence.words == TRANSLATED[number].second.words
        assert sentence.id == TRANSLATED[number].id


def test_collectors_are_found_by_type_name_or_themselves():
    found = sweep(reader("gpt2"), stories(6), [Moments("resid.0"), Moments("resid.1")], **SMALL)
    assert found[Moments("resid.1")].mean("resid.1").shape == (40,)
    assert found["0-moments"].mean("resid.0").shape == (40,)
    assert Moments in found
    assert Rows not in found
    with pytest.raises(SweepError, match="This sweep has 2 of Moments: 0-moments, 1-moments; ask for one of them"):
        found[Moments]
    with pytest.raises(SweepError, match="This sweep collected no Rows; it has Moments"):
        found[Rows]


def test_sentences_that_were_not_kept_are_not_made_up():
    found = sweep(reader("gpt2"), stories(6), Moments("resid.0"), **SMALL)
    with pytest.raises(SweepError, match="Sentence 3 was not kept with this sweep"):
        found.sentence(3)


@dataclass(frozen=True)
class Unread(Collector):
    kind: ClassVar[str] = "test-unread"

    def open(self, setting):
        raise AssertionError

    def merge(self, left, right):
        raise AssertionError


@pytest.mark.parametrize(
    ("models", "collectors", "options", "error", "message"),
    [
        ([], [Moments("resid.0")], {}, SweepError, "at least one model and one collector"),
        (None, [], {}, SweepError, "at least one model and one collector"),
        (None, [Rows(("pattern.1",))], {}, SweepError, "pattern.1 holds attention weights, which are a matrix"),
        (None, [Rows(("resid.9",))], {}, SiteError, "resid.9"),
        (None, [Rows(("1:resid.0",))], {}, SiteError, "asks for model 1, and there are 1"),
        (None, [Rows(("resid.0",))], {"engine": "threads"}, SweepError, "There is no engine 'threads'; use inline"),
        (None, [Rows(("resid.0",))], {"workers": 3}, SweepError, "The inline engine is one worker, not 3"),
        (None, [Rows(("resid.0",))], {"engine": "processes", "workers": 0}, SweepError, "at least one worker, not 0"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(tmp_path, models, collectors, options, error, message):
    with pytest.raises(error, match=message):
        sweep(reader("gpt2") if models is None else models, stories(5), collectors, folder=tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_sub_words_of_two_models_do_not_meet():
    with pytest.raises(SweepError, match="Several models meet at words"):
        sweep([reader("gpt2"), reader("bert")], stories(5), Rows(("resid.0",)), pooling="all")


def test_progress_off_prints_nothing_and_on_tells_the_plan(capsys, tmp_path):
    sweep(reader("gpt2"), stories(10), WANTED, progress=False, folder=tmp_path / "s", **SMALL)
    sweep(reader("gpt2"), stories(10), WANTED, **SMALL)  # nobody looks: standard error is no terminal here
    assert capsys.readouterr() == ("", "")
    sweep(reader("gpt2"), stories(10), WANTED, progress=True, **SMALL)
    out, told = capsys.readouterr()
    assert out == ""
    told = " ".join(told.split())
    assert "10 sentences in" in told
    assert "one pass of 1 model (inline, 1 worker, 1 thread each)" in told
    sweep(reader("gpt2"), stories(10), WANTED, progress=True, folder=tmp_path / "s", **SMALL)
    assert "this sweep is finished" in " ".join(capsys.readouterr().err.split())


def test_threads_are_set_back():
    before = torch.get_num_threads()
    sweep(reader("gpt2"), stories(5), Moments("resid.0"), threads=before + 1)
    assert torch.get_num_threads() == before


def test_inputs_are_not_changed():
    sentences = list(stories(8))
    copies = [replace(sentence) for sentence in sentences]
    wanted = [Moments("resid.0")]
    sweep(reader("gpt2"), Corpus.of(sentences), wanted, **SMALL)
    assert sentences == copies
    assert wanted == [Moments("resid.0")]


@pytest.mark.parametrize("share", [0, 0.4, 1])
def test_what_planning_has_read_is_neither_read_nor_encoded_again(share, monkeypatch):
    models, corpus = [reader("gpt2"), reader("bert")], stories(25)
    whole = sweep(models, corpus, WANTED, **SMALL)
    tokens = sum(whole.counts.tokens)
    monkeypatch.setattr("pellucid.collect.plan.KEPT_TOKENS", int(share * tokens))
    times = Counter[str]()
    encode = Encoder.encode

    def counted(self, sentences):
        times.update(sentence.id for sentence in sentences)
        return encode(self, sentences)

    monkeypatch.setattr(Encoder, "encode", counted)
    again = sweep(models, corpus, WANTED, **SMALL)
    assert all(again.states[name].same(state) for name, state in whole.states.items())
    once = [name for name, count in times.items() if count == len(models)]
    assert len(once) == (len(times) if share == 1 else 0)  # a part of a corpus is not worth its memory


def test_sentences_that_planning_has_read_are_let_go_with_their_shards(monkeypatch):
    corpus, run = stories(25), Runner.shard
    kept: list[tuple[int, int, int]] = []

    def seen(self, shard, sentences, **settings):
        kept.append((shard.first, len(self._ahead.sentences), len(self._ahead.encoded)))
        return run(self, shard, sentences, **settings)

    monkeypatch.setattr(Runner, "shard", seen)
    found = sweep(reader("gpt2"), corpus, WANTED, **SMALL)
    count = found.counts.sentences
    assert len(kept) > 1
    assert kept == [(first, count - first, count - first) for first, _, _ in kept]


def test_shards_grow_with_what_is_merged_and_shrink_with_what_is_run():
    model = reader("gpt2")

    def tokens(models: int, collector: Collector) -> int:
        job = make_job([model], {"one": collector}, Reading(), token_budget=128)
        return default_shard(job, [model] * models)

    small, large = Moments("resid.0"), ClassHistograms("neurons.0", label="upos", bins=4)
    assert tokens(1, small) < tokens(1, large) < 1 << 20
    assert tokens(2, large) == pytest.approx(tokens(1, large) / 2, abs=1)
    assert tokens(1000, small) == 4 * 128
    bare = SimpleNamespace(device=torch.device("cpu"), hf=torch.nn.Identity())  # nothing learned, nothing to run
    assert default_shard(make_job([model], {"one": small}, Reading(), token_budget=128), [bare]) == 1 << 20
