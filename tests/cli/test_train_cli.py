"""`pellucid train`: every task from files to a model that opens, what it prints, and what it refuses."""

from __future__ import annotations

import json

import pytest

from pellucid.corpus import Corpus
from pellucid.errors import TrainError
from pellucid.model import Model
from pellucid.train import Freeze, Run
from pellucid.train.tasks import TASKS as TASKS_OF_LAB

TINY = ["--layers", "1", "--width", "16", "--heads", "2", "--feed-forward", "32", "--length", "48", "--batch", "8"]
TINY += ["--epochs", "1", "--vocabulary-size", "400", "--no-watch"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Small files of every kind of text that a task learns from."""
    place = tmp_path_factory.mktemp("texts")
    lines = [" ".join(sentence.words) for sentence in Corpus.grammar(200)]
    (place / "words.txt").write_text("\n".join(lines))
    (place / "words.tags").write_text(
        "\n".join(" ".join("ABC"[len(word) % 3] for word in line.split()) for line in lines)
    )
    (place / "broken.txt").write_text("\n".join(lines))
    (place / "broken.tags").write_text("\n".join("A" for _ in lines))
    (place / "rated.tsv").write_text("\n".join(f"{line}\t{number % 2}" for number, line in enumerate(lines)))
    for name, column in (
        ("first", lines),
        ("second", lines[::-1]),
        ("label", [("yes", "no", "maybe")[number % 3] for number in range(len(lines))]),
    ):
        (place / name).write_text("\n".join(column))
    asked = [
        {"context": line, "qas": [{"id": number, "question": "Who?", "answers": [_first(line)]}]}
        for number, line in enumerate(lines)
    ]
    (place / "asked.json").write_text(
        json.dumps({"data": [{"title": str(i), "paragraphs": [each]} for i, each in enumerate(asked)]})
    )
    return place


def _first(line: str) -> dict[str, object]:
    return {"text": line.split()[0], "answer_start": 0}


TASKS = {
    "lm": ["--corpus", "words.txt"],
    "mlm": ["--corpus", "words.txt"],
    "tagger": ["--corpus", "words.txt", "--format", "tagged"],
    "classify": ["--corpus", "rated.tsv", "--columns", "text,label"],
    "nli": ["--corpus", "first+second+label", "--format", "pairs"],
    "translate": ["--corpus", "first+second", "--format", "parallel"],
    "qa": ["--corpus", "asked.json"],
}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_from_a_file_to_a_model(cli, texts, tmp_path, monkeypatch, task):
    monkeypatch.chdir(texts)
    code, said, told = cli("train", task, *TASKS[task], *TINY, "-o", tmp_path / "run")
    assert code == 0, told
    assert "chance" in said
    assert "curves.png" in said
    run = Run.open(tmp_path / "run")
    assert run.finished
    assert (tmp_path / "run" / "curves.png").stat().st_size > 1000
    if task not in ("classify", "nli"):  # whose labels here are drawn at random
        assert run.log[1]["valid_loss"] < run.log[0]["valid_loss"]
    assert Model.load(run.checkpoint()).sites


def test_a_table_of_one_column_is_read_again_as_json(cli, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(texts)
    words = ["train", "lm", "--corpus", "words.txt", "--test", "words.txt", *TINY, "-o", tmp_path / "run", "--json"]
    code, said, _ = cli(*words)
    told = json.loads(said)
    assert code == 0
    assert told["state"] == "finished"
    assert [row["epoch"] for row in told["log"]] == [0, 1]
    assert told["test"]["scores"]["perplexity"] > 1
    assert told["command"].startswith("pellucid train lm")
    assert json.loads(cli(*words)[1])["log"] == told["log"]  # finished: the same again, and nothing trained


def test_the_scores_shown_are_those_of_the_model_that_was_kept(cli, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(texts)
    scores = iter([9.0, 1.125, 2.0])
    monkeypatch.setattr(TASKS_OF_LAB["lm"], "evaluate", lambda *_: {"loss": 7.0, "perplexity": next(scores)})
    words = ["train", "lm", "--corpus", "words.txt", *TINY, "--epochs", "2", "--checkpoints", "best"]
    code, said, told = cli(*words, "-o", tmp_path / "run")
    assert code == 0, told
    assert list(Run.open(tmp_path / "run").checkpoints()) == [1]
    assert "epoch 1 " in said
    assert "1.125" in said
    assert "epoch 2 " not in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["parser", "--corpus", "words.txt"], "There is no task 'parser'"),
        (["lm", "--corpus", "words.txt", "--preset", "huge"], "There is no preset 'huge'"),
        (["lm", "--corpus", "words.txt", "--checkpoints", "1,two"], "numbers with commas"),
        (["lm", "--corpus", "words.txt", "--checkpoints", "7"], "no epoch 7"),
        (["lm", "--corpus", "words.txt", "--track", "paper"], "There is no tracker 'paper'"),
        (["lm", "--corpus", "words.txt", "--batch", "4000"], "one batch takes"),
        (["lm", "--corpus", "nothing.txt"], "nothing.txt"),
        (["tagger", "--corpus", "broken.txt", "--format", "tagged"], "Line 1 has"),
        (["tagger", "--corpus", "rated.tsv", "--columns", "text,label"], "label"),
        (["translate", "--corpus", "words.txt"], "second"),
        (["lm", "--corpus", "words.txt", "--learning-rate", "0"], "learning_rate=0"),
        (["mlm", "--corpus", "words.txt", "--preset", "identifiable"], "has no network for mlm"),
        (["lm", "--corpus", "words.txt", "--no-mask"], "causal mask"),
        (["lm", "--corpus", "words.txt", "--from", "zoo:nothing"], "zoo"),
        (["lm", "--corpus", "words.txt", "--device", "abacus"], "The device 'abacus' cannot be used"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(cli, texts, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(texts)
    chosen = {word for word in words if word.startswith("--")}
    tiny = [word for at, word in enumerate(TINY) if not {word, TINY[at - 1]} & chosen]
    code, _, told = cli("train", *words, *tiny, "-o", tmp_path / "run")
    assert code == 2
    assert sentence in told
    assert told.startswith("pellucid: ")
    assert "Traceback" not in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ([], None),
        (["--freeze"], Freeze(0.99, 2)),
        (["--freeze", "--freeze-threshold", "0.9", "--freeze-patience", "3"], Freeze(0.9, 3)),
    ],
)
def test_layers_are_frozen_as_asked(cli, texts, tmp_path, monkeypatch, words, rule):
    asked: list[object] = []

    def stopped(*_, freeze, **__):
        asked.append(freeze)
        raise TrainError("stopped")

    monkeypatch.setattr("pellucid.train.train", stopped)
    assert cli("train", "lm", "--corpus", texts / "words.txt", *TINY, *words, "-o", tmp_path / "run")[0] == 2
    assert asked == [rule]


def test_a_folder_of_another_version_is_refused(cli, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(texts)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"format": 99}')
    code, _, told = cli("train", "lm", "--corpus", "words.txt", *TINY, "-o", tmp_path / "run")
    assert code == 2
    assert "format 99" in told
    assert "update Pellucid" in told


def test_help_has_an_example(cli):
    code, said, _ = cli("train", "--help")
    assert code == 0
    assert "pellucid train tagger --corpus" in " ".join(said.split())
