"""Pages of results on neurons: rankings beside the untrained model, surveys, and captions without intervals."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pellucid import neurons
from pellucid.neurons.survey import KINDS
from pellucid.report.cells import resampling
from pellucid.report.neuron_results import write_results
from pellucid.report.neurons import write_neurons
from tests.neurons import planted
from tests.results_by_hand import survey_by_hand


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def ranking():
    return neurons.probeless(planted.model(), planted.corpus().take(60), concept="upos", sites="neurons.*")


def test_every_class_has_its_best_neuron_beside_the_untrained_models_best(ranking, tmp_path):
    page = write_results(tmp_path / "out", {"probeless": ranking}, model="m", about="a").read_text(encoding="utf-8")
    assert "the untrained model shows by how much" in page
    rows = {row["class"]: row for row in rows_of(tmp_path / "out" / "tables" / "probeless_classes.csv")}
    assert set(rows) == set(ranking.classes)
    at = ranking.place("class", "NOUN")
    assert abs(float(rows["NOUN"]["best score"])) == pytest.approx(np.abs(ranking.values[at]).max())
    other = np.abs(ranking.table("random model").columns["value"][at]).max()
    assert float(rows["NOUN"]["untrained model's best"]) == pytest.approx(other)
    ends = float(rows["NOUN"]["95% interval from"]), float(rows["NOUN"]["95% interval to"])
    best = ranking.place("neuron", ranking.top(1, "NOUN")[0])
    assert ends == pytest.approx((ranking.low[at, best], ranking.high[at, best])), "both ends, as numbers"
    told = rows["NOUN"]["first neurons"].split(", ")
    assert [name.removeprefix("−") for name in told] == ranking.top(len(told), "NOUN")
    low = [name for name in told if ranking.values[at, ranking.place("neuron", name.removeprefix("−"))] < 0]
    assert low
    assert [name for name in told if name.startswith("−")] == low
    first = rows_of(tmp_path / "out" / "tables" / "probeless_first.csv")
    heads = ["neuron", "score", "95% interval from", "95% interval to", "chance", "random model", "best class"]
    assert list(first[0]) == heads
    at = ranking.place("neuron", first[0]["neuron"])
    ends = [float(first[0][f"95% interval {end}"]) for end in ("from", "to")]
    assert ends == pytest.approx([ranking.overall.columns[end][at] for end in ("low", "high")])
    summed = np.abs(ranking.table("random model").columns["value"])[:, ranking.place("neuron", first[0]["neuron"])]
    assert float(first[0]["random model"]) == pytest.approx(summed.sum() / 2), "a sum over pairs, as the score is"
    assert first[0]["neuron"] == ranking.top(1)[0]


def test_without_a_control_none_is_spoken_of(ranking, tmp_path):
    alone = replace(ranking, tables={name: each for name, each in ranking.tables.items() if name != "random model"})
    page = write_results(tmp_path / "out", {"probeless": alone}, model="m", about="a").read_text(encoding="utf-8")
    assert "look better than they are." in page
    assert "untrained" not in page


def test_a_survey_has_its_kinds_and_the_first_of_each(tmp_path):
    result = survey_by_hand()
    page = write_results(tmp_path / "out", {"survey": result}, model="m", about="a").read_text(encoding="utf-8")
    assert "In brackets: in the same model with random weights" in page
    kinds = rows_of(tmp_path / "out" / "tables" / "survey_kinds.csv")
    assert [int(row["mostly silent"]) for row in kinds] == (
        result.table("sites").columns["neurons"][:, list(KINDS).index("mostly silent")].tolist()
    )
    firsts = rows_of(tmp_path / "out" / "tables" / "survey_firsts.csv")
    silent = next(row for row in firsts if row["kind"] == "mostly silent")
    assert silent["neuron"] == result.of_kind("mostly silent")[0]
    place = result.place("neuron", silent["neuron"])
    assert float(silent["value"]) == pytest.approx(result.table("activity").columns["silent"][place])
    follows = next(row for row in firsts if row["kind"] == "frequency")
    at = result.place("measure", "frequency"), result.place("neuron", follows["neuron"])
    assert float(follows["value"]) == pytest.approx(result.values[at])
    assert float(follows["chance"]) == pytest.approx(result.null[at])


def test_captions_say_where_intervals_come_from_or_why_there_are_none(ranking):
    assert resampling(replace(ranking, resampled="ten groups")) == "Interval: ten groups"
    assert resampling(replace(ranking, resampled="no interval: one text")) == "No interval: one text"


def test_neurons_that_tell_all_classes_at_once_have_no_class_of_their_own(ranking, tmp_path):
    origin = ranking.provenance
    together = replace(ranking, provenance=replace(origin, arguments={**origin.arguments, "method": "gaussian"}))
    page = write_results(tmp_path / "out", {"g": together}, model="m", about="a").read_text(encoding="utf-8")
    assert "All 14 classes are told apart at once" in page
    assert not [word for word in ("fires for", "best class", "is low for") if word in page]
    assert "best class" not in rows_of(tmp_path / "out" / "tables" / "g_first.csv")[0]
    reading = neurons.read(planted.model(), planted.corpus().take(20), neurons=[ranking.top(1)[0]], progress=False)
    write_neurons(tmp_path / "one", reading, {"g": together}, model="m", command="c")
    (row,) = rows_of(next((tmp_path / "one" / "tables").glob("*_places.csv")))
    assert row["best class"] == "all at once"
    assert float(row["score"]) == pytest.approx(together.scores().max())


def test_of_two_classes_that_mirror_each_other_a_neuron_is_told_by_the_one_it_is_high_for(ranking):
    name = ranking.neurons[0]
    at = ranking.place("neuron", name)
    values = np.zeros_like(ranking.values)
    values[0, at], values[1, at] = -2.0, 2.0 - 1e-12
    mirrored = replace(ranking, values=values)
    assert mirrored.best_class(name) == (mirrored.classes[1], values[1, at])
    assert mirrored.with_side(name, mirrored.classes[0]) == f"−{name}"
    assert mirrored.with_side(name, mirrored.classes[1]) == name
    values[0, at] = -2.1
    assert replace(ranking, values=values).best_class(name) == (ranking.classes[0], -2.1), "the larger one, if low"


def test_a_page_says_what_it_was_made_from(ranking, tmp_path):
    told = replace(ranking, provenance=replace(ranking.provenance, command="pellucid neurons rank x"))
    page = write_results(tmp_path / "out", {"probeless": told}, model="m", about="a").read_text(encoding="utf-8")
    assert ">How this was made</h2>" in page
    assert (tmp_path / "out" / "command.txt").read_text(encoding="utf-8") == "pellucid neurons rank x\n"
    assert "<pre>pellucid neurons rank x</pre>" in page
    rows = {row["what"]: row for row in rows_of(tmp_path / "out" / "tables" / "fingerprints.csv")}
    assert rows["text"]["fingerprint"] == ranking.provenance.corpus["fingerprint"]
    assert rows["text"]["words"] == f"{ranking.provenance.corpus['words']:,}"
    assert rows["model"]["fingerprint"] in {each["fingerprint"] for each in ranking.provenance.models}
