"""The report's part on information flow: one sentence beside the control, or why there is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pellucid.corpus import Corpus
from pellucid.heads import information_flow
from pellucid.model import Model
from pellucid.report.flow import checks, own_shares, strongest
from pellucid.report.sections import flow
from pellucid.report.sheet import Sheet
from pellucid.results import Result, Table
from pellucid.views.information_flow import shares
from tests.tiny_models import WORDS, network, word_tokenizer

GOOD = " ".join(WORDS[place % len(WORDS)] for place in range(9))


def subject(model: Any, *texts: str, twin: Any = None) -> Any:
    return SimpleNamespace(model=model, corpus=Corpus.of(texts or [GOOD]), twin=twin)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(network("gpt2"), tokenizer=word_tokenizer())


def test_a_sentence_beside_the_control(model: Model, tmp_path: Path) -> None:
    sheet = Sheet(tmp_path)
    flow.render(sheet, subject(model, twin=Model.random_like(model)), SimpleNamespace())  # type: ignore[arg-type]
    assert Result.load(tmp_path / "results" / "flow").axes["measure"] == flow.METHODS
    written = "".join(sheet.parts)
    assert "random model" in written
    assert "pellucid flow MODEL TEXT" in written
    alone = Sheet(tmp_path / "alone")
    (tmp_path / "alone").mkdir()
    flow.render(alone, subject(model), SimpleNamespace())  # type: ignore[arg-type]
    assert "random model" not in "".join(alone.parts)


def test_text_or_models_that_cannot_be_followed_say_why(model: Model, tmp_path: Path) -> None:
    sheet = Sheet(tmp_path)
    flow.render(sheet, subject(model, " ".join([WORDS[0]] * 40)), SimpleNamespace())  # type: ignore[arg-type]
    assert "No sentence of this text" in "".join(sheet.parts)
    flow.render(sheet, subject(model, "dog"), SimpleNamespace())  # type: ignore[arg-type]
    assert "could not be followed through this sentence: The text has one token" in "".join(sheet.parts)
    assert flow.SECTION.absent(subject(model)) is None
    blind = SimpleNamespace(tokenizer=object(), sites=[site for site in model.sites if site.kind != "pattern"])
    assert "no attention weights" in str(flow.SECTION.absent(subject(blind)))


def test_own_shares_and_the_strongest_sources(model: Model) -> None:
    found = information_flow(model, "the old dog sleeps", "rollout")
    own, even = own_shares(found)
    np.testing.assert_allclose(own[0], [layer.diagonal().mean() for layer in found.values[0]])
    assert even == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert strongest(found, 0, 0, 0) == "0 the (1.00)"
    order = np.argsort(-found.values[0, 1, 3])
    assert strongest(found, 0, 1, 3).startswith(found.axes["source"][order[0]])


def test_attributions_of_layers_can_be_compared_and_bad_sums_are_told():
    values = np.array([[[200.0, -100.0], [0.0, 50.0]], [[0.01, 0.0], [-0.02, 0.0]]])
    np.testing.assert_allclose(shares("attribution", values)[0], values[0] / 200)
    np.testing.assert_allclose(shares("attribution", values)[1], values[1] / 0.02)
    np.testing.assert_array_equal(shares("attribution", np.zeros((1, 2, 2))), np.zeros((1, 2, 2)))
    np.testing.assert_array_equal(shares("rollout", values), values)
    table = {"measure": ["attribution"] * 2, "layer": [0, 1], "what": ["sums are off by at most"] * 2}
    for worst, told in ((0.9, "0.9 of their size (layer 1): that map is not to be trusted"), (0.01, "at most 0.01.")):
        made = Table.of_rows({**table, "error": np.array([0.001, worst])})
        result = SimpleNamespace(axes={"measure": ("attribution",)}, table=lambda _, made=made: made)
        assert told in checks(result)[0]
