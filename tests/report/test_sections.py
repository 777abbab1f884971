"""The sections together, on tiny models: their numbers are those of the results and of an independent count."""

from __future__ import annotations

import csv
import json
import math
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.corpus import Corpus, Sentence
from pellucid.model import Model
from pellucid.report import Sheet, all_sections, report
from pellucid.report.html import number
from pellucid.report.page import Written, page
from pellucid.report.sections import heads
from pellucid.results import Provenance, Result, Table
from tests.report.test_html import Reader
from tests.results_by_hand import many_functions
from tests.tiny_models import WORDS, network, word_tokenizer

TEXTS = [" ".join(random.Random(seed).choices(WORDS, k=4 + seed % 9)) for seed in range(60)]


def sentence(text: str, place: int) -> Sentence:
    """A text whose second word is of two tokens."""
    first, *spans = Sentence.of_text(text).spans
    return Sentence(str(place), str(place), text, (first, (spans[0][0], spans[1][1]), *spans[2:]))


SENTENCES = [sentence(text, place) for place, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(network("gpt2"), tokenizer=word_tokenizer())


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """One report with every section."""
    place = tmp_path_factory.mktemp("reports") / "out"
    report(model, Corpus.of(SENTENCES, name="texts"), place, command="the command")
    return place


@pytest.fixture(scope="module")
def text(folder) -> str:
    return " ".join(Reader((folder / "report.html").read_text(encoding="utf-8")).text.split())


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are left out: they take most of the time."""
    monkeypatch.setattr(Sheet, "figure", lambda *_, **__: None)


def rows(folder, name: str) -> list[dict[str, str]]:
    with (folder / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_section_is_there_with_its_explanation(text, folder):
    for section in all_sections():
        assert section.title in text
        assert section.explanation in text
    about = json.loads((folder / "result.json").read_text())
    assert [each["title"] for each in about["sections"] if each["absent"]] == ["Neurons and parts of speech"]
    assert "the text has no parts of speech (the label 'upos')" in text


def test_perplexity_is_that_of_the_network_alone(model, text):
    nats = tokens = words = 0
    for line in TEXTS:
        ids = torch.tensor([word_tokenizer()(line)["input_ids"]])
        with torch.no_grad():
            scores = model.hf(ids).logits[0, :-1].log_softmax(-1)
        nats -= float(scores.gather(1, ids[0, 1:, None]).sum())
        tokens += ids.shape[1] - 1
        words += ids.shape[1] - 2
    assert f"surprises the model by {number(nats / words)} nats on average" in text
    assert f"Perplexity per token {number(math.exp(nats / tokens))}" in text
    vocabulary = model.size("logits")[0]
    assert f"chance: {vocabulary}, control:" in text


def test_results_are_saved_with_the_command_and_say_what_the_tables_say(folder):
    for name in ("heads", "norms", "surprise", "neurons"):
        result = Result.load(folder / "results" / name)
        assert result.provenance.command == "the command"
        assert [float(row["value"]) for row in rows(folder, name)] == result.values.ravel().tolist()


def test_ends_of_the_heads_are_the_ends(folder):
    result = Result.load(folder / "results" / "heads")
    control = result.table("random model").columns["value"]
    told = rows(folder, "head_ends")
    dead = {
        name
        for place, name in enumerate(result.axes["measure"])
        if not (result.values[place].any() or result.null[place].any())
    }
    assert "next" in dead, "a causal model does not see it"
    assert {row["measure"] for row in told} == set(result.axes["measure"]) - dead
    for row in told:
        which = result.place("measure", row["measure"])
        take = np.max if row["end"] == "largest" else np.min
        assert float(row["value"]) == take(result.values[which])
        assert float(row["control's own end"]) == take(control[which])
        layer, head = (int(part.split()[1]) for part in row["head"].split(", "))
        assert result.values[which, layer, head] == float(row["value"])
        assert float(row["uniform attention"]) == result.null[which, layer, head]


def test_the_highlighted_word_of_a_context_is_the_unit_s_own(folder):
    markup = (folder / "report.html").read_text(encoding="utf-8")
    section = markup[markup.index('id="neurons"') :]
    first = section[section.index('class="contexts"') :]
    marked = first[: first.index("</ul>")].count("<mark")
    assert marked == 8
    units = rows(folder, "neuron_units")
    shown = [unit["word"] for unit in units]
    liked = [part.split("</bdi>")[0] for part in section.split('<strong><bdi class="word">')[1:]]
    assert liked == list(dict.fromkeys(shown))[:12], "one unit for every word, the most selective first"


def test_shares_of_selective_units_are_weighted_by_their_number(folder, text):
    told = rows(folder, "neuron_sites")
    mine = [row for row in told if row["of"] == "model"]
    alive = [int(row["units"]) - int(row["silent"]) for row in mine]
    chosen = sum(count * float(row["selective"]) for count, row in zip(alive, mine, strict=True))
    assert f"Of all units that change, {100 * chosen / sum(alive):.0f}% are selective in this model" in text
    assert {row["of"] for row in told} == {"model", "control model"}


def test_frequent_words_are_counted(folder):
    counts = Counter(word for sentence in SENTENCES for word in sentence.words)
    told = {row["word"]: int(row["times"]) for row in rows(folder, "frequent_words")}
    assert len(told) == 15
    assert told == {word: counts[word] for word in told}
    assert min(told.values()) >= max(count for word, count in counts.items() if word not in told)


def test_the_page_is_small(folder):
    assert (folder / "report.html").stat().st_size < 1_000_000


def test_a_page_of_32_by_32_heads_is_small_too(tmp_path):
    from pellucid.heads.roles.statistics import MEASURES, HeadStatistics

    draw = np.random.default_rng(0)
    axes: dict[str, Any] = {"measure": tuple(MEASURES), "layer": tuple(range(32)), "head": tuple(range(32))}
    values = draw.random((len(MEASURES), 32, 32))
    offsets: dict[str, Any] = {"offset": tuple(range(-9, 10)), "layer": axes["layer"], "head": axes["head"]}
    result = HeadStatistics(
        axes=axes,
        values=values,
        null=values / 2,
        low=values - 0.1,
        high=values + 0.1,
        resampled="10 groups",
        provenance=Provenance("test"),
        tables={"offsets": Table(offsets, {"share": draw.random((19, 32, 32))})},
    )
    sheet = Sheet(tmp_path)
    patched = pytest.MonkeyPatch()
    with patched.context() as patch:
        patch.setattr("pellucid.heads.statistics", lambda found: result)
        patch.setattr("pellucid.heads.functions", lambda found: many_functions(32, 32))
        patch.setattr("pellucid.heads.roles.examples.examples", lambda *_: [])
        subject = SimpleNamespace(twin=None, model=SimpleNamespace(sites=()), corpus=())
        heads.SECTION.render(sheet, subject, SimpleNamespace(corpus_words={}))  # type: ignore[arg-type]
    text = page("m", "a", [], [Written(heads.SECTION, sheet, None)])
    assert len(text.encode()) < 2_000_000
    assert "All 1024 heads, with intervals, are in tables/heads.csv" in text
    assert "1024 of 1024 heads have a function: 512 positional, 512 sink" in text


def absences(model: Model) -> dict[str, str | None]:
    return {
        section.title: section.absent(SimpleNamespace(model=model, corpus=Corpus.grammar(5)))
        for section in all_sections()
    }  # type: ignore[arg-type]


def test_models_that_do_not_predict_the_next_word_say_so(bert_folder, gpt2_folder):
    assert "reads the whole text at once" in str(absences(Model.load(bert_folder))["Surprise"])
    headless = absences(Model.load(gpt2_folder, head="none"))
    assert "without a head that predicts the next word" in str(headless["Surprise"])
    missing = [title for title, reason in headless.items() if reason is not None]
    assert missing == [
        "Surprise",
        "Which heads matter",
        "What made the prediction",
        "Can attributions be believed?",
    ]


def test_an_encoder_and_an_encoder_decoder_get_a_report_too(bert_folder, t5_folder, undrawn, tmp_path):
    texts = Corpus.of(TEXTS[:25])
    for name, source in (("bert", bert_folder), ("t5", t5_folder)):
        made = report(Model.load(source), texts, tmp_path / name)
        told = " ".join(Reader(made.read_text(encoding="utf-8")).text.split())
        assert "Not in this report: this model reads the whole text at once" in told
        about = json.loads((tmp_path / name / "result.json").read_text())
        missing = {each["title"] for each in about["sections"] if each["absent"]}
        unlabelled = {"Surprise", "Neurons and parts of speech"}
        assert missing in (unlabelled, unlabelled | {"Can attributions be believed?"})
        assert len(Result.load(tmp_path / name / "results" / "heads").axes["layer"]) == 3


def test_without_a_control_nothing_pretends_to_be_one(model, undrawn, tmp_path):
    made = report(model, Corpus.of(TEXTS[:25]), tmp_path / "out", control=False)
    told = " ".join(Reader(made.read_text(encoding="utf-8")).text.split())
    assert "no control" in told
    assert "the control model has" not in told
    assert "in the control model" not in told
