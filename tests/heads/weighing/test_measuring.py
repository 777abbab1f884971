"""Measuring by a task: the same numbers as the network itself gives, edits that reach it, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import CorpusError, ModelError, TrainError
from pellucid.heads.weighing.measuring import document_groups, head_tasks, measured, rows_of
from pellucid.model import Edit, Model
from pellucid.train.tasks import IGNORED, TASKS
from tests.heads.measuring_models import CORPORA, GRAMMAR, model_for
from tests.tiny_models import opened


def on(task, **options):
    corpus, changes = CORPORA[task]
    return measured(model_for(task), corpus, batch=8, **changes, **options)


def heads_site(model: Model, place: int = 0):
    return [site for site in model.sites if site.kind == "heads"][place]


@pytest.mark.parametrize("task", TASKS)
def test_the_task_is_found_from_the_head_and_scores_are_those_of_the_plain_network(task):
    found = on(task)
    assert found.task.name == task
    network = model_for(task).hf
    plain = TASKS[task].evaluate(network, found.examples, "cpu", found.settings)
    scores = found.scores()
    assert scores.keys() == plain.keys()
    assert all(scores[name] == pytest.approx(plain[name], rel=1e-5) for name in plain)
    main = found.score()
    assert (main.name, main.value) == (found.best, pytest.approx(plain[found.best], rel=1e-5))
    assert main.chance == found.chance()[main.name]
    assert main.larger_is_better == (main.name != "perplexity")


@pytest.mark.parametrize("task", TASKS)
def test_losses_of_rows_add_up_to_the_mean_per_goal(task):
    found = on(task)
    rows = [found.rows(found.batch(step)) for step in range(found.steps())]
    total = sum(float(part.losses.sum()) for part in rows)
    goals = sum(int(part.goals.sum()) for part in rows)
    assert total / goals == pytest.approx(found.scores()["loss"], rel=1e-5)
    batch = found.batch(0)
    assert found.loss(batch).item() == pytest.approx(float(rows[0].losses.sum() / rows[0].goals.sum()), rel=1e-5)
    assert float(TASKS[task].loss(model_for(task).hf, batch, found.settings)) == pytest.approx(
        found.loss(batch).item(), rel=1e-5
    )


@pytest.mark.parametrize("task", TASKS)
def test_a_zeroed_head_is_that_of_a_network_whose_output_weights_are_zero(task):
    found, model = on(task), model_for(task)
    site = heads_site(model, -1)
    loss = float(found.loss(found.batch(0), Edit.zero(site, heads=[1])))
    assert abs(loss - float(found.loss(found.batch(0)))) > 1e-6
    gate = torch.ones(3, requires_grad=True)
    gated = found.loss(found.batch(0), Edit.gate(site, gate))
    gated.backward()
    assert gate.grad is not None
    assert bool((gate.grad != 0).all())
    closed = torch.tensor([1.0, 0.0, 1.0])
    assert float(found.loss(found.batch(0), Edit.gate(site, closed))) == pytest.approx(loss, rel=1e-6)


def test_bleu_is_that_of_translations_written_under_the_edits():
    found, model = on("translate"), model_for("translate")
    edit = Edit.zero(heads_site(model, -1))
    pytest.importorskip("sacrebleu")
    changed = found.passing(edit)
    batch = found.batch(0)
    from transformers import GenerationConfig

    how = GenerationConfig(max_new_tokens=4, decoder_start_token_id=model.hf.config.decoder_start_token_id)
    written = changed.generate(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], generation_config=how
    )
    plain = found.passing().generate(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], generation_config=how
    )
    assert written.shape == plain.shape
    assert not torch.equal(written, plain)
    assert found.best == "bleu"
    assert found.larger_is_better


def test_decoders_read_what_the_goals_say_and_their_padding_is_known():
    found = on("translate")
    passing = found.passing()
    found.task.logits(passing, found.batch(0))
    assert passing.last is not None
    assert passing.last.batch is not None
    mask, goals = passing.last.batch.target_mask, found.batch(0)["goals"]
    assert mask is not None
    assert torch.equal(mask.bool(), goals != IGNORED)


def test_rows_by_hand():
    logits = torch.log(torch.tensor([[[0.5, 0.5], [0.25, 0.75]], [[0.9, 0.1], [0.5, 0.5]]]))
    goals = torch.tensor([[0, 1], [1, IGNORED]])
    found = rows_of(logits, goals)
    assert found.losses.tolist() == pytest.approx([math.log(2) - math.log(0.75), -math.log(0.1)], rel=1e-6)
    assert found.goals.tolist() == [2, 1]
    assert found.hits.tolist() == [2, 0]
    one = rows_of(logits[:, 1], goals[:, 0])
    assert one.losses.tolist() == pytest.approx([-math.log(0.25), math.log(2)], rel=1e-6)


def test_rows_know_their_sentences():
    corpus = Corpus.of(list(GRAMMAR))
    found = measured(model_for("lm"), corpus, batch=5, length=6)  # long sentences are cut in several rows
    ids = [model_for("lm").tokenizer(sentence.text)["input_ids"] for sentence in corpus]
    seen = np.zeros(len(ids), dtype=int)
    for step in range(found.steps()):
        batch, owners = found.batch(step), found.owners(step)
        for row, owner in enumerate(owners.tolist()):
            read = batch["input_ids"][row][batch["attention_mask"][row] == 1].tolist()
            whole = ids[owner]
            assert any(whole[at : at + len(read)] == read for at in range(len(whole)))
            seen[owner] += len(read)
    assert seen.tolist() == [len(row) - 1 for row in ids]


def test_streams_know_the_sentence_that_a_window_begins_in():
    found = measured(model_for("lm"), GRAMMAR, batch=2, length=8, rows="stream")
    ids = [model_for("lm").tokenizer(sentence.text)["input_ids"] for sentence in GRAMMAR]
    of_token = np.repeat(np.arange(len(ids)), [len(row) for row in ids])
    owners = torch.cat([found.owners(step) for step in range(found.steps())]).tolist()
    assert owners[:10] == of_token[: 8 * 10 : 8].tolist()


def test_groups_are_runs_of_whole_documents():
    documents = [f"d{number // 3}" for number in range(60)]
    groups = document_groups(documents, 10)
    assert groups.max() == 9
    assert bool((np.diff(groups) >= 0).all())
    assert all(len({groups[at] for at in range(60) if documents[at] == name}) == 1 for name in set(documents))
    assert document_groups(["one"] * 5).tolist() == [0] * 5


def test_labels_may_be_the_numbers_of_the_classes():
    model = model_for("classify")
    names = [model.hf.config.id2label[place] for place in range(model.hf.config.num_labels)]
    renamed = Corpus.of(
        [
            Sentence.of_text(sentence.text, id=sentence.id, facts={"tense": str(names.index(sentence.facts["tense"]))})
            for sentence in GRAMMAR
        ]
    )
    plain = measured(model, GRAMMAR, batch=8, label="tense").scores()
    assert measured(model, renamed, batch=8, label="tense").scores() == plain
    same = renamed.filter(lambda sentence: sentence.facts["tense"] == "0")
    assert measured(model, same, batch=8).scores()["loss"] > 0  # one class alone can be measured


def test_of_several_labels_the_one_with_the_models_classes_is_taken():
    assert len(GRAMMAR.labels()) > 1
    assert measured(model_for("tagger"), GRAMMAR).settings.label == "upos"
    assert measured(model_for("classify"), GRAMMAR).settings.label == "tense"


def test_the_same_seed_hides_the_same_tokens():
    one, other = on("mlm"), on("mlm", seed=1)
    assert one.scores() == on("mlm").scores() != other.scores()


class TestRefusals:
    def test_a_model_without_a_head(self):
        model = opened("bert")
        if head_tasks(model, GRAMMAR) is not None:
            from transformers import BertConfig, BertModel

            config = BertConfig(
                vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
            )
            model = Model.load(BertModel(config).eval())
        with pytest.raises(ModelError, match=r"no head with a loss.*pellucid train"):
            measured(model, GRAMMAR)

    def test_a_task_that_the_head_is_not_for(self):
        with pytest.raises(ModelError, match="head for lm, which cannot be measured by 'qa'"):
            measured(model_for("lm"), GRAMMAR, "qa")

    def test_an_unknown_task_lists_those_there_are(self):
        with pytest.raises(ModelError, match=r"no task 'chess'; the tasks are lm, mlm"):
            measured(model_for("lm"), GRAMMAR, "chess")

    def test_a_corpus_without_labels(self):
        with pytest.raises(CorpusError, match="have no labels"):
            measured(model_for("tagger"), Corpus.of(["a b"]))
        with pytest.raises(CorpusError, match="have no labels"):
            measured(model_for("classify"), Corpus.of(["a b"]))

    def test_other_classes(self):
        corpus = Corpus.of([Sentence.of_text("a b", facts={"tense": "future perfect"})])
        with pytest.raises(CorpusError, match=r"tells apart \(.*past.*tense: future perfect"):
            measured(model_for("classify"), corpus)

    def test_labels_that_do_not_exist(self):
        with pytest.raises(CorpusError, match=r"no label 'mood'; they have .*tense"):
            measured(model_for("classify"), GRAMMAR, label="mood")

    def test_texts_of_one_token(self):
        class OneToken:
            def __call__(self, text):
                return {"input_ids": [7]}

        model = model_for("lm")
        alone = Model.load(model.hf, tokenizer=model.tokenizer)
        alone.tokenizer = OneToken()
        with pytest.raises(CorpusError, match="has one token"):
            measured(alone, GRAMMAR)

    def test_a_corpus_without_translations(self):
        with pytest.raises(TrainError, match="parallel"):
            measured(model_for("translate"), GRAMMAR)


def test_losses_are_cross_entropies_of_the_next_token():
    found, model = on("lm"), model_for("lm")
    batch = found.batch(0)
    with torch.no_grad():
        logits = model.hf(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    row, length = 2, int(batch["attention_mask"][2].sum())
    ids, goals = batch["input_ids"][row], batch["goals"][row]
    assert torch.equal(ids[1:length], goals[: length - 1])
    expected = F.cross_entropy(logits[row, :length], goals[:length], reduction="sum")
    assert float(found.rows(batch).losses[row]) == pytest.approx(float(expected), rel=1e-5)
