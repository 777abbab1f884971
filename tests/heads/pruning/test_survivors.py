"""What survives a pruning: by function, beside chance, and chosen on one text to be measured on another."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pellucid.corpus import Corpus
from pellucid.errors import ModelError
from pellucid.heads import functions, prune
from pellucid.heads.naming import all_heads, head_name
from pellucid.heads.pruning.curves import sums_under
from pellucid.heads.pruning.tables import by_function
from pellucid.heads.weighing.measuring import Measured, measured
from pellucid.report.pruning import sentences
from tests.heads.built_models import planted, repeated_corpus
from tests.heads.measuring_models import CORPORA, model_for
from tests.heads.pruning.test_pruning import QUICK, quick


def test_the_point_is_chosen_on_one_text_and_measured_on_another(monkeypatch):
    """Two heads do no worse than eight on words said twice, and worse on other text: the first of them chooses."""
    monkeypatch.setattr(Measured, "chance", lambda self: {"loss": 100.0, "perplexity": math.exp(100)})
    model, training, choice = planted(), repeated_corpus(40), repeated_corpus(30, length=8)
    other = Corpus.grammar(12)
    given = {"order": [head_name(*head) for head in all_heads(model)], "keep": 1.0}
    plain, apart, swapped = (
        quick(model, training, **given, **texts)
        for texts in ({"valid": choice}, {"valid": choice, "test": other}, {"valid": other, "test": choice})
    )
    assert (plain.chosen, apart.chosen, swapped.chosen) == (2, 2, 8)
    assert plain.biased
    assert not apart.biased
    assert "chosen by the scores that are shown" in " ".join(sentences(plain))
    assert "chosen by the scores" not in " ".join(sentences(apart))
    assert apart.provenance.corpus["fingerprint"] == other.fingerprint
    assert apart.provenance.arguments["chosen on"]["fingerprint"] == choice.fingerprint
    wanted = float(sums_under(measured(model, other, batch=8), [()]).score("perplexity")[0])
    assert apart.values[:, 0] == pytest.approx(wanted)
    assert plain.values[0] == pytest.approx(swapped.values[0])
    assert apart.table("path").columns["perplexity"].tolist() == plain.table("path").columns["perplexity"].tolist()


def test_survivors_by_function_beside_chance():
    gates = {"0.0": 1.0, "0.1": 0.0, "0.2": 0.4, "1.0": 0.0}
    labels = {"0.0": ("positional", "sink"), "0.1": ("sink",), "0.2": (), "1.0": ()}
    columns = by_function(gates, labels).columns
    assert columns["function"].tolist() == ["positional", "sink", "none"]
    assert columns["heads"].tolist() == [1, 2, 2]
    assert columns["left"].tolist() == [1, 1, 1]
    assert columns["by chance"].tolist() == [0.5, 1.0, 1.0]
    assert columns["low"].tolist() == [0, 0, 0]
    assert columns["high"].tolist() == [1, 2, 2]


def test_survivors_are_held_against_heads_whose_functions_were_read():
    """Of ten heads that were read five are left: none of the four with a function would be a draw in 42."""
    gates = {f"encoder.0.{head}": float(head >= 5) for head in range(10)} | {
        f"cross.0.{head}": 1.0 for head in range(5)
    }
    labels = {name: ("sink",) if name < "encoder.0.4" else () for name in gates if name.startswith("encoder")}
    labels |= {name: ("not read",) for name in gates if name.startswith("cross")}
    columns = by_function(gates, labels).columns
    assert columns["function"].tolist() == ["sink", "not read", "none"]
    assert columns["left"].tolist() == [0, 5, 5]
    assert columns["by chance"].tolist() == pytest.approx([2.0, 10 / 3, 3.0])
    assert columns["low"].tolist() == [1, 2, 2]  # P(0 of 4) = 1/42 < 2.5%
    assert columns["high"].tolist() == [3, 5, 4]


def test_functions_of_heads_are_told_with_the_survivors():
    model = planted()
    known = functions(model, repeated_corpus(40))
    result = prune(
        model, repeated_corpus(80), settings=replace(QUICK, rate=0.3), functions=known, draws=1, heads=4, progress=False
    )
    told = dict(
        zip(result.table("survivors").columns["head"], result.table("survivors").columns["functions"], strict=True)
    )
    for name, labels in known.labels.items():
        if name in told:
            assert told[name] == "; ".join(labels)
    columns = result.table("functions").columns
    assert columns["heads"].sum() >= 8
    with pytest.raises(ModelError, match="is another model"):
        quick(model_for("lm", layers=1), CORPORA["lm"][0], functions=known)


def test_functions_of_an_encoder_are_those_of_its_heads_alone():
    model, (corpus, _) = model_for("translate"), CORPORA["translate"]
    low = {"sink": 0.01, "induction": 0.01, "duplicate": 0.01, "rare": 0.01}
    known = functions(model, corpus, level=1.0, least=1, random=False, **low)
    assert known.labels, "with such thresholds some heads must have a function"
    result = quick(model, corpus, functions=known)
    gates = result.table("gates").axes["head"]
    inside = [name for name in gates if str(name).startswith("encoder.")]
    counts = dict(
        zip(*(result.table("functions").columns[name].tolist() for name in ("function", "heads")), strict=True)
    )
    assert counts["not read"] == len(gates) - len(inside)
    for label in dict.fromkeys(each for labels in known.labels.values() for each in labels):
        assert counts[label] == len([1 for labels in known.labels.values() if label in labels])
    assert counts["none"] == len(inside) - len(known.labels)
