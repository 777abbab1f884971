"""The question-answering study: its measures, its numbers against plain attributions, its claims, page and command."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.attribution import attribute
from pellucid.attribution.methods import METHODS
from pellucid.cli import main
from pellucid.corpus import Corpus, Sentence
from pellucid.model import Model
from pellucid.studies.claims import StudyError
from pellucid.studies.qa import figures as qa_figures
from pellucid.studies.qa import measures
from pellucid.studies.qa.claims import claims
from pellucid.studies.qa.page import write_page
from pellucid.studies.qa.running import SCALES, SEED, _encoded, compute_study, measured, tiny
from pellucid.studies.qa.tables import NUMBERS, Measured, Study, read, write
from tests.overlaps import faults
from tests.tiny_models import opened

CONDUCTANCE = METHODS["conductance"]


def command(*words: object) -> int:
    """Runs the command line in this process; its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["pellucid", *map(str, words)])
        try:
            main()
        except SystemExit as done:
            return int(done.code or 0)
    return 0


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The smallest study, run once by its command."""
    place = tmp_path_factory.mktemp("qa") / "out"
    assert command("study", "qa", "--smoke", "-o", place) == 0
    return place


@pytest.fixture(scope="module")
def study(folder) -> Study:
    return read(folder)


def quietly(model: Model, corpus: Corpus, **changes) -> Study:
    scale = replace(SCALES["smoke"], **changes)
    return measured(model, corpus, CONDUCTANCE, scale, 0, False, lambda _: None)


# -- the measures ----------------------------------------------------------------------------------------------------


def test_spread_known_answers():
    assert measures.spread(np.array([0.0, -3.0, 0.0, 0.0])) == pytest.approx(0)
    assert measures.spread(np.array([2.0, -2.0, 2.0, 2.0])) == pytest.approx(1)
    assert measures.spread(np.array([1.0, -1.0, 0.0, 0.0])) == pytest.approx(0.5)
    assert measures.spread(np.zeros((2, 4))) == pytest.approx([1, 1])
    shares = np.array([0.5, 0.25, 0.125, 0.125])
    assert measures.spread(7 * shares) == pytest.approx(1.75 / 2)  # bits over log2 4


def test_feature_pmf_known_answers():
    assert measures.pmf_entropy(np.arange(100.0)) == pytest.approx(np.log2(100))
    assert measures.pmf_entropy(np.array([0.0] * 6 + [1.0] * 2)) == pytest.approx(0.8112781)  # ¾ and ¼
    assert measures.pmf(np.array([0.0, 0.0, 1.0, 4.0]), bins=4).tolist() == [0.5, 0.25, 0, 0.25]
    scaled = np.random.default_rng(0).normal(size=50)
    assert measures.pmf_entropy(3 * scaled + 1) == pytest.approx(measures.pmf_entropy(scaled))
    assert measures.normal_entropy(100_000, draws=2) < np.log2(100)


def test_overlap_and_parts_known_answers():
    one, other = np.array([1.0, -1.0, 0.0]), np.array([0.0, 3.0, 1.0])
    assert measures.overlap(one, 5 * one) == pytest.approx(1)
    assert measures.overlap(one, np.array([0.0, 0.0, 2.0])) == pytest.approx(0)
    assert measures.overlap(one, other) == pytest.approx(0.5)  # the second token: min(½, ¾)
    shares = measures.part_shares(np.array([[1.0, -3.0, 4.0]]), np.array([0, 0, 2]), 3)
    assert shares[0] == pytest.approx([0.5, 0, 0.5])


def test_means_leave_out_whole_stories():
    """Twenty stories of two questions are ten groups; questions of a story agree, so that only stories count."""
    dice = np.random.default_rng(1)
    values = np.repeat(dice.normal(size=20), 2)
    documents = [f"story {number}" for number in range(20) for _ in range(2)]
    mean = measures.mean_over(values, documents)
    groups = values.reshape(10, 4).mean(axis=1)
    reach = 2.2621572 * groups.std(ddof=1) / 10**0.5
    assert mean.value == pytest.approx(values.mean())
    assert (mean.low, mean.high) == (pytest.approx(values.mean() - reach), pytest.approx(values.mean() + reach))
    assert "10 story groups" in mean.resampled
    alone = measures.mean_over(values[:2], documents[:2])
    assert alone.low is None
    assert "no interval" in alone.resampled


# -- the numbers -----------------------------------------------------------------------------------------------------


def brute_force(model: Model, sentence: Sentence) -> tuple[int, int]:
    """The best answer by looking at every pair of tokens of the text."""
    encoded = model.tokenizer(sentence.text, sentence.second.text)
    sides = encoded.encodings[0].sequence_ids
    with torch.no_grad():
        output = model.hf(**{name: torch.tensor([row]) for name, row in encoded.items()})
    own = [place for place, side in enumerate(sides) if side == 1]
    first, last = output.start_logits[0], output.end_logits[0]
    pairs = [(float(first[a] + last[b]), a, b) for a in own for b in own if a <= b < a + 30]
    return max(pairs)[1:]


def test_every_question_equals_plain_attributions(model):
    corpus = Corpus.questions(2, seed=7)
    study = quietly(model, corpus, examples=2)
    assert study.places == ["input", "layer 1", "layer 2", "layer 3"]
    for sentence, question, example in zip(corpus, study.questions, study.examples, strict=True):
        start, stop = brute_force(model, sentence)
        assert question.ends == example.explained == [start, stop]
        told = attribute(
            model,
            sentence.text,
            [f"start:{start}", f"end:{stop}"],
            "conductance",
            "embed,resid.1-3",
            pair=sentence.second.text,
            steps=6,
        )
        assert np.array(example.values) == pytest.approx(told.values[0], abs=1e-6)
        assert len(example.tokens) == question.tokens == told.values.shape[-1]
        sizes = np.abs(told.values[0])
        shares = sizes / sizes.sum(-1, keepdims=True)
        entropy = -(shares * np.log(shares + 1e-300)).sum(-1) / np.log(shares.shape[-1])
        assert np.array(question.trained.spread) == pytest.approx(entropy, abs=1e-5)
        assert question.trained.overlap == pytest.approx(np.minimum(shares[0], shares[1]).sum(-1), abs=1e-5)
        by_unit = attribute(
            model, sentence.text, f"end:{stop}", "conductance", "resid.2", pair=sentence.second.text, by="unit", steps=6
        )
        assert example.features[1][2] == pytest.approx(by_unit.values[0, 0, :, stop], abs=1e-6)
        sides = model.tokenizer(sentence.text, sentence.second.text).encodings[0].sequence_ids
        parts = [0 if s == 0 else 3 if s is None else 1 if start <= t <= stop else 2 for t, s in enumerate(sides)]
        for part in range(4):
            held = shares[:, :, [place for place, name in enumerate(parts) if name == part]].sum(-1)
            assert np.array(question.trained.parts)[:, :, part] == pytest.approx(held, abs=1e-6)
            assert question.frequency[part] == pytest.approx(parts.count(part) / len(parts))


def test_the_last_layer_is_read_off_the_explained_token(study):
    for question in study.questions:
        assert np.array(question.trained.spread)[:, -1] == pytest.approx([0, 0], abs=1e-6)
    for example in study.examples:
        for end in range(2):
            last = np.abs(example.values[end][-1])
            assert int(last.argmax()) == example.explained[end]


def test_the_random_network_is_another_one(study):
    for question in study.questions:
        assert not np.allclose(question.trained.spread, question.random.spread)


def test_a_planted_token_of_the_question_gets_everything(model):
    """Only `Who` has an embedding: everything that the answer rests on is in the question, on one token."""
    hf = tiny().hf
    number = model.tokenizer("Who", add_special_tokens=False)["input_ids"][0]
    with torch.no_grad():
        table = hf.get_input_embeddings().weight
        kept = table[number].clone()
        table.zero_()
        table[number] = 20 * kept
    planted = Model.load(hf, tokenizer=model.tokenizer)
    text = Sentence.of_text("It rained and it was cold", id="second")
    asked = Sentence.of_text("Who was it", second=text, joint=True, facts={"answer": "it", "answer_start": "14"})
    study = quietly(planted, Corpus.of([asked]))
    question = study.questions[0]
    assert np.array(question.trained.spread)[:, 0] == pytest.approx([0, 0], abs=1e-6)
    assert np.array(question.trained.parts)[:, 0] == pytest.approx(np.array([[1, 0, 0, 0]] * 2), abs=1e-6)
    assert question.trained.overlap[0] == pytest.approx(1)


def test_texts_that_are_too_long_are_left_out_and_counted(model):
    long = Sentence.of_text("It rained . " * 200, id="second")
    asked = Sentence.of_text("What fell", second=long, joint=True, facts={"answer": "It", "answer_start": "0"})
    said: list[str] = []
    sentences = [asked, *Corpus.questions(1, seed=2)]
    told = measured(model, Corpus.of(sentences), CONDUCTANCE, SCALES["smoke"], 0, False, said.append)
    assert len(told.questions) == 1
    assert told.facts["left_out"] == 1
    assert "1 of 2 questions" in said[0]
    with pytest.raises(StudyError, match="No question"):
        quietly(model, Corpus.of([asked]))


def test_no_answer_is_an_answer_where_questions_may_have_none(model):
    hf = tiny().hf
    encoded = model.tokenizer("Who ran", "It rained", return_tensors="pt")
    with torch.no_grad():  # a head that likes the first token
        hidden = hf.bert(**encoded).last_hidden_state[0]
        hf.qa_outputs.weight[:] = hidden[0] - hidden[1:].mean(dim=0)
    planted = Model.load(hf, tokenizer=model.tokenizer)
    text = Sentence.of_text("It rained", id="second")
    none = Sentence.of_text("Who ran", id="1", second=text, joint=True, facts={"impossible": "true"})
    some = Sentence.of_text("What fell", id="2", second=text, joint=True, facts={"answer": "It", "answer_start": "0"})
    told = quietly(planted, Corpus.of([none, some]))
    assert [question.answered for question in told.questions] == ["", ""]
    assert [question.right for question in told.questions] == [True, False]
    assert told.questions[0].ends == [0, 0]
    without = quietly(planted, Corpus.of([some]))
    assert without.questions[0].answered  # where every question has an answer, one is given


# -- claims ----------------------------------------------------------------------------------------------------------


def planted_study(study: Study, *, spread: float, question: float, wrong: float = 0.0, alike: bool = False) -> Study:
    """Forty questions with the spread, the question's share and the change of wrong answers that are wanted."""
    dice = np.random.default_rng(0)
    made = []
    for number in range(40):
        one, noise = study.questions[0], 0.01 * float(dice.normal())
        right = number % 2 == 0
        low = 0.5 + noise
        level = low + spread + (0.0 if right else wrong)
        trained = Measured(
            [[level, level - 0.1, level - 0.2, 0.0]] * 2,
            [[5.0] * 4] * 2,
            [[[question, 0.1, 0.8 - question, 0.1], *[[0.0, 0.5, 0.4, 0.1]] * 3]] * 2,
            [0.8 + noise, 0.5, 0.3, 0.0],
        )
        still = replace(trained, parts=[[trained.parts[0][0]] * 4] * 2, overlap=[0.2] * 4)
        random = replace(trained if alike else still, spread=[row if alike else [low] * 4 for row in trained.spread])
        frequency = [0.1, 0.05, 0.8, 0.05]
        made.append(
            replace(
                one,
                name=str(number),
                document=f"story {number}",
                right=right,
                ends=[3, 5],
                answered="it",
                frequency=frequency,
                trained=trained,
                random=random,
            )
        )
    return replace(study, questions=tuple(made), examples=())


def verdicts(study: Study) -> list[bool | None]:
    return [each.holds for each in claims(study)]


def test_claims_follow_the_numbers(study):
    assert verdicts(planted_study(study, spread=0.2, question=0.4, wrong=0.1)) == [True] * 6
    reading, _, _, question, _, wrong = verdicts(planted_study(study, spread=-0.2, question=0.02, wrong=-0.1))
    assert (reading, question, wrong) == (False, False, False)
    reading, *_, wrong = verdicts(planted_study(study, spread=0.0, question=0.4))
    assert (reading, wrong) == (None, None)


def test_what_a_random_network_does_too_is_not_what_was_learned(study):
    """With depth everything changes as planted; where it changes alike without learning, nothing can be told."""
    _, deeper, apart, _, gathered, _ = verdicts(planted_study(study, spread=0.2, question=0.4, alike=True))
    assert (deeper, apart, gathered) == (None, None, None)


def test_claims_tell_both_numbers_and_their_difference(study):
    reading, deeper, apart, question, *_ = claims(planted_study(study, spread=0.2, question=0.4))
    assert re.match(r"start 0\.70, random network 0\.50: difference 0\.20 \(0\.\d\d to 0\.\d\d\); end", reading.found)
    assert deeper.found.startswith(
        "start 0.70 → 0.50, change −0.20 (−0.20 to −0.20); random network 0.00, beyond it −0.20"
    )
    assert apart.found.startswith("overlap 0.80 → 0.30, change −0.50")
    assert question.found.startswith("start 0.40, share of tokens 0.10: difference 0.30")


def test_right_and_wrong_need_enough_of_both(study):
    told = planted_study(study, spread=0.2, question=0.4, wrong=0.3)
    few = replace(told, questions=tuple(one for one in told.questions if one.right or one.name in ("1", "3")))
    claim = claims(few)[-1]
    assert claim.holds is None
    assert "too few" in claim.found


# -- page and command ------------------------------------------------------------------------------------------------


def test_the_folder_explains_itself(folder, study):
    page = (folder / "qa.html").read_text(encoding="utf-8")
    for each in claims(study):
        assert each.claim.replace("'", "&#x27;") in page
    assert "random network" in page
    assert "No number of this page means anything" in page
    for name in ("claims", "layers", "parts", "questions"):
        assert (folder / "tables" / f"{name}.csv").is_file()
    for name in ("spread", "features", "overlap", "parts", "question-1", "question-1-features"):
        assert (folder / "figures" / f"{name}.svg").is_file()
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")


def test_drawn_again_from_its_numbers(folder, study, tmp_path, capfd):
    assert command("study", "qa", "--from", folder, "-o", tmp_path / "again", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["questions"] == len(study.questions)
    assert len(told["claims"]) == 6
    assert (tmp_path / "again" / NUMBERS).read_bytes() == (folder / NUMBERS).read_bytes()


def test_figures_are_readable(study):
    asked = {one.name: one for one in study.questions}
    for example in study.examples:
        assert not faults(qa_figures.maps(study, example, asked[example.name]))
        assert not faults(qa_figures.token_features(study, example, asked[example.name]))
    told = planted_study(study, spread=0.2, question=0.4)
    for draw in (qa_figures.spreads, qa_figures.features, qa_figures.overlaps, qa_figures.parts):
        assert not faults(draw(told))
    assert not faults(qa_figures.right_and_wrong(told))


def test_right_and_wrong_are_drawn_where_there_are_both(study, tmp_path):
    write_page(planted_study(study, spread=0.2, question=0.4), tmp_path / "page")
    assert (tmp_path / "page" / "figures" / "right-and-wrong.svg").is_file()


def test_numbers_come_back_from_disk(study, tmp_path):
    write(study, tmp_path)
    again = read(tmp_path)
    assert again.questions == study.questions
    assert again.examples == study.examples
    assert dict(again.facts) == dict(study.facts)
    (tmp_path / NUMBERS).write_text('{"format": 1}')
    with pytest.raises(StudyError, match="damaged"):
        read(tmp_path)
    with pytest.raises(StudyError, match=r"no numbers\.json"):
        read(tmp_path / "nowhere")


def test_every_layers_own_path_on_request(model):
    corpus = Corpus.questions(1, seed=7)
    scale = replace(SCALES["smoke"], examples=1)
    told = measured(model, corpus, METHODS["integrated_gradients"], scale, 0, False, lambda _: None)
    sentence = next(iter(corpus))
    plain = attribute(
        model, sentence.text, f"start:{told.questions[0].ends[0]}", "ig", "resid.2", pair=sentence.second.text, steps=6
    )
    assert told.examples[0].values[0][2] == pytest.approx(plain.values[0, 0, 0], abs=1e-6)


def test_right_and_wrong_are_both_shown(study):
    from pellucid.studies.qa.running import _show

    shown, asked = [], []
    for number, right in enumerate([True, True, True, False, False]):
        asked.append(replace(study.questions[0], name=str(number), right=right))
        _show(shown, replace(study.examples[0], name=str(number)), asked, 2)
    assert [example.name for example in shown] == ["0", "3"]


def test_generated_questions_are_not_those_of_any_training():
    assert SEED not in (0, 1, 2)
    assert _encoded(tiny(), next(iter(Corpus.questions(1, seed=SEED))), Corpus.questions(1)).sides[0] is None


def test_refusals(tmp_path, model, capfd):
    for words, told in (
        (("--quick", "--smoke"), "give one of them"),
        (("--smoke", "--method", "saliency"), "one of conductance, integrated_gradients"),
        (("--smoke", "--corpus", "grammar:3"), "has no text to look in"),
        (("--from", tmp_path), "no numbers.json"),
    ):
        assert command("study", "qa", *words, "-o", tmp_path / "out") == 2
        assert told in capfd.readouterr().err
        assert not (tmp_path / "out").exists()
    with pytest.raises(StudyError, match="marks no answers"):
        compute_study(tmp_path / "out", model=opened("gpt2"), scale="smoke")
    with pytest.raises(StudyError, match="no scale 'huge'"):
        compute_study(tmp_path / "out", model=model, scale="huge")
