"""Training as a whole: it learns, it is the same after a kill, and what goes wrong is said."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import PellucidError, TrainError
from pellucid.model import Model
from pellucid.train import Run, Settings, settings_for, train, training
from pellucid.train import folder as folders
from pellucid.train.folder import Latest
from pellucid.train.preparing import held_out, prepare
from pellucid.train.steps import Steps
from pellucid.train.training import Training

TEXT = Corpus.of(
    [
        Sentence.of_words(each.words, id=each.id, document=each.document, labels={"upos": each.label("upos")})
        for each in Corpus.grammar(300)
    ]
)
TINY: dict[str, Any] = {
    "layers": 2,
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "length": 16,
    "vocabulary": "word",
    "least": 1,
    "batch": 8,
    "epochs": 2,
}


def tiny(task: str = "lm", **changes: Any) -> Settings:
    return settings_for(task, **{**TINY, **changes})


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows but for what differs from run to run; a column that was not there yet says nothing."""
    return [{name: value for name, value in row.items() if "seconds" not in name and value is not None} for row in rows]


def test_a_language_model_learns_and_every_epoch_opens(tmp_path: Path) -> None:
    run = train(TEXT, tiny(epochs=4, learning_rate=0.03), tmp_path / "run", test=TEXT.take(20), checkpoints="all")
    losses = [row["valid_loss"] for row in run.log]
    assert [row["epoch"] for row in run.log] == [0, 1, 2, 3, 4]
    assert losses[4] < losses[1] < losses[0]
    assert run.log[4]["valid_perplexity"] < run.facts["chance"]["perplexity"]
    assert list(run.checkpoints()) == [0, 1, 2, 3, 4]
    assert run.finished
    assert run.test is not None
    assert run.test["scores"]["perplexity"] < run.test["chance"]["perplexity"]
    model = run.model(2)
    assert "resid.2" in {str(site) for site in model.sites}
    weights = [run.model(epoch).hf.state_dict()["lm_head.weight"] for epoch in (3, 4)]
    assert not torch.equal(*weights)


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    first, second = (train(TEXT, tiny(), tmp_path / name, watch=False) for name in ("one", "two"))
    other = train(TEXT, tiny(seed=1), tmp_path / "three", watch=False)
    assert without_times(first.log) == without_times(second.log)
    assert first.steps == second.steps
    assert first.log[-1]["valid_loss"] != other.log[-1]["valid_loss"]


def test_training_leaves_the_random_state_of_others_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(TEXT, tiny(epochs=1), tmp_path / "run", watch=False)
    assert torch.equal(torch.rand(3), expected)


class Killed(BaseException):
    """What stops a training half-way in these tests."""


def killed(*_: Any) -> Any:
    raise Killed


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
@pytest.mark.parametrize("stop", [(1, 3), (2, 0), (3, 7)])
def test_an_interrupted_training_goes_on_to_the_same_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimiser: str, stop: tuple[int, int]
) -> None:
    monkeypatch.setattr(training, "EVERY", 2)
    settings = tiny(epochs=3, optimiser=optimiser, learning_rate=0.01)
    whole = train(TEXT, settings, tmp_path / "whole", checkpoints="all", watch=False)
    taken: list[int] = []
    real = Steps.take

    def dying(self: Any, batch: Any, rate: float) -> Any:
        taken.append(1)
        if len(taken) == (stop[0] - 1) * per_epoch + stop[1] + 1:
            raise Killed
        return real(self, batch, rate)

    per_epoch = whole.log[1]["step"]
    assert per_epoch > 7
    monkeypatch.setattr(Steps, "take", dying)
    with pytest.raises(Killed):
        train(TEXT, settings, tmp_path / "cut", checkpoints="all", watch=False, save_every=0)
    monkeypatch.setattr(Steps, "take", real)
    assert not Run.open(tmp_path / "cut").finished
    cut = train(TEXT, settings, tmp_path / "cut", checkpoints="all", watch=False, save_every=0)
    assert without_times(cut.log) == without_times(whole.log)
    assert cut.steps == whole.steps
    for epoch, place in whole.checkpoints().items():
        assert (place / "model.safetensors").read_bytes() == (cut.checkpoint(epoch) / "model.safetensors").read_bytes()


def test_a_killed_process_goes_on_to_the_same_curve(tmp_path: Path) -> None:
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from pellucid.corpus import Corpus\nfrom pellucid.train import settings_for, train\n"
        f"settings = settings_for('lm', **{ {**TINY, 'epochs': 25}!r})\n"
        f"run = train(Corpus.grammar(300), settings, {str(tmp_path / 'run')!r}, save_every=0, watch=False)\n"
        "print(run.log[-1]['valid_loss'])"
    )
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    latest = tmp_path / "run" / folders.LATEST
    while not latest.is_file() and started.poll() is None:
        time.sleep(0.05)
    time.sleep(0.3)
    started.send_signal(signal.SIGKILL)
    assert started.wait() == -signal.SIGKILL, "it ended before it was killed: make it longer"
    done = Run.open(tmp_path / "run").log
    assert len(done) < 26
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    straight = subprocess.run(
        [sys.executable, "-c", code.replace(str(tmp_path / "run"), str(tmp_path / "straight"))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout == straight.stdout
    logs = [without_times(Run.open(tmp_path / name).log) for name in ("run", "straight")]
    assert logs[0] == logs[1]
    assert logs[0][: len(done)] == without_times(done)


def test_a_finished_run_is_given_back_and_not_trained_again(tmp_path: Path) -> None:
    first = train(TEXT, tiny(), tmp_path / "run", watch=False)
    before = (tmp_path / "run" / "log.csv").read_bytes()
    assert train(TEXT, tiny(), tmp_path / "run", watch=False).log == first.log
    assert (tmp_path / "run" / "log.csv").read_bytes() == before


def test_other_settings_or_another_text_are_refused(tmp_path: Path) -> None:
    train(TEXT, tiny(epochs=1), tmp_path / "run", watch=False)
    with pytest.raises(TrainError, match=r"begun with epochs=1, and now it is 2"):
        train(TEXT, tiny(epochs=2), tmp_path / "run", watch=False)
    with pytest.raises(TrainError, match="another training text"):
        train(TEXT.take(200), tiny(epochs=1), tmp_path / "run", watch=False)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(TrainError, match="not the folder of a training"):
        train(TEXT, tiny(), tmp_path / "other", watch=False)
    assert [item.name for item in (tmp_path / "other").iterdir()] == ["notes.txt"]


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Steps.take
    taken: list[int] = []

    def poisoned(self: Any, batch: Any, rate: float) -> Any:
        taken.append(1)
        found = real(self, batch, rate)
        return found * float("nan") if len(taken) == 13 else found

    monkeypatch.setattr(training, "EVERY", 5)
    monkeypatch.setattr(Steps, "take", poisoned)
    with pytest.raises(TrainError, match=r"no number at step 13 \(epoch 1\).*after step 10, is kept"):
        train(TEXT, tiny(), tmp_path / "run", watch=False, save_every=0, checkpoints="all")
    run = Run.open(tmp_path / "run")
    assert run.facts["state"] == "stopped"
    assert list(run.checkpoints()) == [0]
    latest = folders.read_latest(tmp_path / "run")
    assert latest is not None
    assert latest.facts["number"] == 10
    monkeypatch.setattr(Steps, "take", real)
    assert train(TEXT, tiny(), tmp_path / "run", watch=False, checkpoints="all").finished


def cut_after_the_first_epoch(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training of two epochs that ended after the first, with its state saved."""
    real = Training._epoch

    def dying(self: Any, epoch: int) -> None:
        if epoch == 2:
            raise Killed
        real(self, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_epoch", dying)
        with pytest.raises(Killed):
            train(TEXT, tiny(), place, watch=False, save_every=0)


def test_a_loss_that_is_no_number_after_a_kill_still_leaves_the_last_good_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_after_the_first_epoch(tmp_path / "run", monkeypatch)
    assert not Run.open(tmp_path / "run").checkpoints()
    real = Steps.take
    monkeypatch.setattr(Steps, "take", lambda self, batch, rate: real(self, batch, rate) * float("nan"))
    with pytest.raises(TrainError, match="the last checkpoint is that of epoch 1"):
        train(TEXT, tiny(), tmp_path / "run", watch=False, save_every=0)
    latest = folders.read_latest(tmp_path / "run")
    assert latest is not None
    kept = Run.open(tmp_path / "run").model(1).hf.state_dict()
    for name, weight in latest.tensors.items():
        if name.startswith("network/"):
            assert torch.equal(kept[name.removeprefix("network/")], weight)


def test_going_on_in_another_precision_or_shape_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after_the_first_epoch(tmp_path / "run", monkeypatch)
    with pytest.raises(TrainError, match=r"begun in float32, and now it is bfloat16; go on with --precision float32"):
        train(TEXT, tiny(), tmp_path / "run", watch=False, precision="bfloat16")
    state = folders.read_latest(tmp_path / "run")
    assert state is not None
    name = next(name for name, each in state.tensors.items() if name.startswith("network/") and each.dim() == 2)
    folders.write_latest(tmp_path / "run", Latest({**state.tensors, name: state.tensors[name][:-1]}, state.facts))
    with pytest.raises(TrainError, match=f"another network than these libraries build .as {name[8:]} shows"):
        train(TEXT, tiny(), tmp_path / "run", watch=False)


def test_weights_that_are_no_numbers_are_never_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Steps.take

    def broken(self: Any, batch: Any, rate: float) -> Any:
        found = real(self, batch, rate)
        with torch.no_grad():
            next(self.network.parameters()).fill_(float("nan"))
        return found * 0

    monkeypatch.setattr(training, "EVERY", 1)
    monkeypatch.setattr(Steps, "take", broken)
    with pytest.raises(TrainError, match="no number"):
        train(TEXT, tiny(), tmp_path / "run", watch=False, save_every=0)
    latest = folders.read_latest(tmp_path / "run")
    assert latest is not None
    assert latest.facts["number"] == 0


def test_the_best_epoch_alone_is_kept_and_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(TEXT, TEXT.take(40), TEXT.take(30), tiny())
    task = prepared.task
    real, scores = task.evaluate, iter([9.0, 3.0, 1.0, 2.0])

    def evaluate(*given: Any, **named: Any) -> dict[str, float]:
        found = real(*given, **named)
        return {**found, task.best: next(scores, found[task.best])}

    monkeypatch.setattr(task, "evaluate", evaluate)
    texts = {"valid": TEXT.take(40), "test": TEXT.take(30)}
    run = train(TEXT, tiny(epochs=3), tmp_path / "run", checkpoints="best", watch=False, **texts)
    assert list(run.checkpoints()) == [2]
    assert run.best == 2
    assert run.test is not None
    assert run.test["epoch"] == 2
    again = real(run.model().hf, prepared.test, torch.device("cpu"), run.settings)
    assert again["loss"] == pytest.approx(run.test["scores"]["loss"], rel=1e-6)


def test_chosen_epochs_are_kept_and_the_last_always(tmp_path: Path) -> None:
    run = train(TEXT, tiny(epochs=3), tmp_path / "run", checkpoints=[0, 2], watch=False)
    assert list(run.checkpoints()) == [0, 2, 3]
    for wrong, told in (("some", "all, best, last"), ([4], "no epoch 4")):
        with pytest.raises(TrainError, match=told):
            train(TEXT, tiny(epochs=3), tmp_path / "new", checkpoints=wrong)
    assert not (tmp_path / "new").exists()


def test_bad_input_leaves_nothing_behind(tmp_path: Path) -> None:
    for corpus, changes, told in (
        (TEXT.take(3), {"batch": 64, "length": 128}, "batch"),
        (TEXT, {"task": "tagger", "label": "colour"}, "colour"),
        (TEXT, {"source": "zoo:nothing"}, "zoo"),
    ):
        with pytest.raises(PellucidError, match=told):
            train(corpus, tiny(**changes), tmp_path / "run", valid=TEXT.take(20), trackers=())
        assert not (tmp_path / "run").exists()
    with pytest.raises(TrainError, match="no tracker 'paper'; there are"):
        train(TEXT, tiny(), tmp_path / "run", trackers=["paper"])
    with pytest.raises(TrainError, match="precision"):
        train(TEXT, tiny(), tmp_path / "run", precision="int8")
    assert not (tmp_path / "run").exists()


def test_a_run_can_be_gone_on_from_as_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(TEXT, tiny(), tmp_path / "first", checkpoints="all", watch=False)
    tuned = train(TEXT, tiny(source=str(tmp_path / "first"), epochs=1), tmp_path / "tuned", watch=False)
    assert tuned.log[0]["valid_loss"] == pytest.approx(first.log[-1]["valid_loss"], rel=1e-6)
    assert tuned.log[0]["valid_loss"] != pytest.approx(first.log[1]["valid_loss"], rel=1e-3)
    with monkeypatch.context() as patch:
        patch.setattr(Steps, "take", killed)
        with pytest.raises(Killed):
            train(TEXT, tiny(), tmp_path / "cut", checkpoints="all", watch=False)
    asked = tiny(source=str(tmp_path / "cut"))
    kept = str(tmp_path / "cut" / "checkpoints" / "epoch-0000")
    with pytest.raises(TrainError, match=f"not finished, so it has no last network.*such as '{kept}'"):
        train(TEXT, asked, tmp_path / "new", watch=False)
    folders.drop_checkpoint(tmp_path / "cut", 0)
    with pytest.raises(TrainError, match=r"go on with it \(it has kept no epoch yet\)"):
        train(TEXT, asked, tmp_path / "new", watch=False)
    assert not (tmp_path / "new").exists()


def test_a_tenth_of_the_documents_is_held_out() -> None:
    training, valid = held_out(TEXT)
    parts = [{sentence.document for sentence in part} for part in (training, valid)]
    everything = list(dict.fromkeys(sentence.document for sentence in TEXT))
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == set(everything)
    assert parts[1] == set(everything[9::10])
    assert training.fingerprint
    assert valid.fingerprint
    assert training.fingerprint != valid.fingerprint
    with pytest.raises(TrainError, match="too few to hold some out"):
        held_out(Corpus.of(["one sentence", "and another"]))


def test_watching_changes_nothing_of_the_training(tmp_path: Path) -> None:
    alone = train(TEXT, tiny(), tmp_path / "alone", watch=False)
    watched = train(TEXT, tiny(), tmp_path / "watched", watch=True)
    assert without_times(alone.log) == without_times(watched.log)


@pytest.mark.parametrize("task", ["lm", "tagger"])
def test_a_checkpoint_scores_as_its_log_says(tmp_path: Path, task: str) -> None:
    """The validation loss of the log, worked out again from the saved files alone, token by token."""
    label = {"label": "upos"} if task == "tagger" else {}
    run = train(TEXT, tiny(task, rows="stream", **label), tmp_path / "run", valid=TEXT.take(40), watch=False)
    model = Model.load(run.checkpoint())
    ids: list[int] = []
    goals: list[int] = []
    for sentence in TEXT.take(40):
        ids += model.tokenizer(sentence.text)["input_ids"]
        if task == "tagger":
            assert run.labels is not None
            goals += [run.labels.index(str(tag)) for tag in sentence.label("upos")] + [-100]
    if task == "lm":
        ids, goals = ids[:-1], ids[1:]
    length, surprise, count = run.settings.length, 0.0, 0
    for start in range(0, len(ids), length):
        with torch.no_grad():
            logits = model.hf(input_ids=torch.tensor([ids[start : start + length]])).logits[0].log_softmax(-1)
        for place, goal in enumerate(goals[start : start + length]):
            if goal != -100:
                surprise, count = surprise - float(logits[place, goal]), count + 1
    assert run.log[-1]["valid_loss"] == pytest.approx(surprise / count, rel=1e-5)


def test_run_json_says_what_was_trained(tmp_path: Path) -> None:
    run = train(TEXT, tiny(epochs=1), tmp_path / "run", watch=False, command="pellucid train …")
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["corpora"]["training"]["fingerprint"]
    assert facts["command"] == "pellucid train …"
    assert facts["network"]["parameters"] == sum(each.numel() for each in run.model().hf.parameters())
    assert facts["state"] == "finished"
    assert facts["settings"]["task"] == "lm"
