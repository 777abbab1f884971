"""The section on what made a prediction: the model's own prediction, its parts, and the random model beside it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pellucid.attribution import Attribution, attribute
from pellucid.corpus import Corpus
from pellucid.model import Model
from pellucid.report.attribution import largest, strongest_places
from pellucid.report.sections import attribution as section
from pellucid.report.sheet import Sheet
from pellucid.results import Result
from tests.tiny_models import WORDS, network, word_tokenizer

GOOD = " ".join(WORDS[place % len(WORDS)] for place in range(9))


def subject(model: Any, *texts: str, twin: Any = None) -> Any:
    return SimpleNamespace(model=model, twin=twin, corpus=Corpus.of(texts or [GOOD]))


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(network("gpt2"), tokenizer=word_tokenizer())


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    place = tmp_path_factory.mktemp("section")
    sheet = Sheet(place, "the command")
    section.render(sheet, subject(model, twin=Model.random_like(model, 3)), SimpleNamespace())  # type: ignore[arg-type]
    return place, " ".join(sheet.parts)


def loaded(folder: Path, name: str) -> Attribution:
    result = Result.load(folder / "results" / name)
    assert isinstance(result, Attribution)
    return result


def test_the_last_word_is_foretold_and_the_prediction_is_the_models_own(model, folder):
    place, text = folder
    begun = " ".join(GOOD.split()[:-1])
    assert section.begun(GOOD) == begun
    assert f"What the model reads: {begun}<" in text
    batch = model.tokenize(begun)
    best = int(model.run(batch).logits[0, -1].argmax())
    target = f"{model.tokenizer.decode([best])!r} after token {batch.ids.shape[1] - 1}"
    result = loaded(place, "attribution")
    assert result.axes["target"] == (target,)
    again = attribute(model, begun, method="integrated_gradients", steps=section.STEPS)
    assert np.allclose(result.values, again.values)


def test_the_control_has_the_same_target_and_numbers_of_its_own(model, folder):
    place, text = folder
    result = loaded(place, "attribution")
    control = result.table("random model").columns["value"]
    batch, targets = section.asked(model, section.begun(GOOD))
    wanted = attribute(Model.random_like(model, 3), batch, targets, "integrated_gradients", steps=section.STEPS)
    assert np.allclose(control, wanted.values)
    assert wanted.axes["target"] == result.axes["target"]
    r = np.corrcoef(result.values.ravel(), control.ravel())[0, 1]
    assert f"at r = {r:.2f}".replace("-", "−") in text


def test_layers_are_conductance_and_errors_are_told(folder):
    place, text = folder
    layers = loaded(place, "attribution-layers")
    assert layers.axes["measure"] == ("conductance",)
    assert layers.axes["place"] == ("resid.0", "resid.1", "resid.2", "resid.3")
    assert "Completeness error" in text
    assert (place / "views" / "sentence-attribution.html").stat().st_size > 10_000
    assert (place / "figures" / "attribution-layers.svg").is_file()


def test_without_a_control_there_is_none(model, tmp_path):
    sheet = Sheet(tmp_path)
    section.render(sheet, subject(model), SimpleNamespace())  # type: ignore[arg-type]
    assert "control" not in " ".join(sheet.parts)
    assert "random model" not in loaded(tmp_path, "attribution").tables


def test_a_hidden_token_is_guessed(bert_folder):
    model = Model.load(bert_folder)
    batch, (target,) = section.asked(model, GOOD)
    hidden = (batch.ids[0] == model.tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    assert hidden == [target.position]
    assert not batch.special[0, hidden[0]]
    assert target.choices == (int(model.run(batch).logits[0, hidden[0]].argmax()),)
    assert (model.tokenize(GOOD).ids != batch.ids).sum() == 1


def test_text_of_long_sentences_alone_says_so(model, tmp_path):
    sheet = Sheet(tmp_path)
    section.render(sheet, subject(model, " ".join([WORDS[0]] * 40)), SimpleNamespace())  # type: ignore[arg-type]
    assert "No sentence of this text" in "".join(sheet.parts)


def test_models_that_predict_nothing_go_without(model, gpt2_folder):
    assert section.absent(subject(model)) is None
    assert "no head" in str(section.absent(subject(Model.load(gpt2_folder, head="none"))))
    assert "no tokenizer" in str(section.absent(subject(SimpleNamespace(tokenizer=None, sites=()))))


def test_an_encoder_decoder_is_explained_too(t5_folder, tmp_path):
    sheet = Sheet(tmp_path)
    section.render(sheet, subject(Model.load(t5_folder)), SimpleNamespace())  # type: ignore[arg-type]
    result = loaded(tmp_path, "attribution")
    assert result.axes["place"] == ("encoder.embed", "decoder.embed")


def test_strongest_places_and_tokens_are_the_largest(model):
    result = attribute(model, GOOD, method="conductance", sites="resid.*", steps=6)
    values = result.values[0, 0]
    sizes = np.abs(values).sum(axis=1)
    rows = strongest_places(result, "conductance", result.axes["target"][0], 2)
    assert [row[0] for row in rows] == [result.axes["place"][at] for at in np.argsort(-sizes)[:2]]
    assert rows[0][1] == pytest.approx(values[sizes.argmax()].sum())
    assert rows[0][2] == pytest.approx(sizes.max())
    best = int(np.abs(values[1]).argmax())
    assert largest(result, "conductance", "resid.1", 1).startswith(f"“{result.tokens.columns['token'][best].strip()}”")
