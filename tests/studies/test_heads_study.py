"""The study of heads as a whole, on tiny networks: its numbers against plain ones, going on after a kill, its page."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import hypergeom

from pellucid.corpus import Corpus
from pellucid.heads import alignment, functions, measured, statistics
from pellucid.studies.claims import StudyError
from pellucid.studies.heads import figures as heads_figures
from pellucid.studies.heads import removing as heads_removing
from pellucid.studies.heads import rows as heads_rows
from pellucid.studies.heads import running as study
from pellucid.studies.heads.cases import SCALES, Asked, Setup, check_data, setup
from pellucid.studies.heads.claims import claims
from pellucid.studies.heads.page import write_page
from pellucid.studies.heads.reading import all_functions, profiles, pronoun_links, read_text, tag_heads
from pellucid.studies.heads.removing import left_at, removing
from pellucid.studies.heads.tables import CASES, Case, read, read_cases, write
from pellucid.studies.texts import sampled
from tests.heads.built_models import grammar_corpus, planted
from tests.overlaps import faults
from tests.studies.heads_numbers import NAMES, case, pruning


def quiet(_: str) -> None:
    """Says nothing."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """The smallest study, computed once."""
    return study.compute(tmp_path_factory.mktemp("heads") / "runs", scale="smoke", say=quiet)


@pytest.fixture(scope="module")
def cases(runs) -> tuple[Case, ...]:
    return read_cases(runs)


def opened(name: str) -> Setup:
    """The model and the texts of a case of the smallest study."""
    asked = Asked(None, None, None, None, 0, Path("nowhere"))
    return setup(name, SCALES["smoke"].sizes[name], asked, quiet, smoke=True)


# -- the numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["translate", "classify"])
def test_fewer_heads_score_as_the_model_without_them(cases, name):
    found = next(each for each in cases if each.name == name)
    held = opened(name)
    task = measured(held.model, held.test, held.task, label=held.label)
    every = [str(head) for head in found.importance.axes["head"]]
    chance = task.chance()
    for count in (found.curve.counts[0], found.curve.counts[-1]):
        left = left_at(found.pruning)[count]
        assert len(left) == count
        scores = task.scores(removing(head for head in every if head not in left))
        at = found.curve.counts.index(count)
        assert found.curve.scores[0, at] == pytest.approx(scores[found.curve.score], rel=1e-4)
        if name == "translate":
            plain = task.scores()["loss"]
            gained = chance["loss"] - plain
            kept = (chance["loss"] - scores["loss"]) / gained if gained >= 1e-3 else 1.0
            assert found.curve.kept[0, at] == pytest.approx(kept, abs=1e-4)
    order = found.importance.ranking("zero")
    last = found.curve.counts[-1]
    scores = task.scores(removing(order[last:]))
    assert found.curve.scores[1, -1] == pytest.approx(scores[found.curve.score], rel=1e-4)


@pytest.mark.parametrize("best", ["accuracy", "perplexity"])
def test_what_is_kept_by_hand(monkeypatch, best):
    """All heads: .9 where guessing has .5; half of them .8, .7 and .5: three quarters, a half, and nothing is kept."""
    shares, goals = np.array([0.9, 0.8, 0.9, 0.7, 0.9, 0.5]), np.array([10.0, 0.0, 30.0])
    sums = shares[:, None] * goals
    monkeypatch.setattr(heads_removing, "group_sums", lambda found, settings: (-sums, sums, goals))
    task = SimpleNamespace(task=SimpleNamespace(best=best), chance=lambda: {"accuracy": 0.5, "loss": -0.5})
    found = heads_removing.curve(task, pruning(NAMES, (48, 24)), NAMES, draws=1, seed=0)
    assert found.counts == (48, 24)
    assert found.kept == pytest.approx(np.array([[1, 0.75], [1, 0.5], [1, 0]]))
    scores = shares.reshape(3, 2)
    assert found.scores == pytest.approx(scores if best == "accuracy" else np.exp(-scores))
    assert found.chance == pytest.approx(0.5 if best == "accuracy" else np.exp(-0.5))
    assert found.low == pytest.approx(found.kept)  # both groups agree


def test_pronouns_by_looking_at_every_pattern():
    """Largest weights between words, from the patterns themselves: sums over a word's keys, means over its queries."""
    model = opened("classify").model
    corpus = Corpus.pronouns(8, seed=0)
    hits = {form: np.zeros((2, 3, 3)) for form in ("gender", "meaning")}
    for sentence in corpus:
        encoded = model.tokenizer(sentence.text)
        offsets = encoded.encodings[0].offsets
        special = encoded.encodings[0].special_tokens_mask
        belongs = torch.zeros(len(offsets), len(sentence.spans))
        for token, (start, stop) in enumerate(offsets):
            for word, (first, last) in enumerate(sentence.spans):
                belongs[token, word] = float(not special[token] and start < last and first < stop)
        run = model.run(sentence.text, [f"pattern.{layer}" for layer in range(3)])
        for layer in range(3):
            weights = run[f"pattern.{layer}"][0].float() @ belongs
            words = belongs.T @ weights / belongs.sum(0)[:, None]  # [heads, words, words]
            for link, arc in enumerate(sentence.arcs):
                largest = words[:, arc.dependent].argmax(dim=-1)
                hits[sentence.facts["form"]][link, layer] += (largest == arc.head).numpy()
    found = pronoun_links(model, 8, 0)
    for form, links in found.items():
        assert links.hits.sum(0).tolist() == hits[form].tolist()
        assert links.pronouns.sum() == 4
    people = [sentence for sentence in corpus if sentence.facts["form"] == "gender"]
    even = sum(1 / len(sentence.spans) for sentence in people)
    assert found["gender"].expected.sum(0) == pytest.approx([even, even])


def test_findings_by_layer_are_means_over_heads():
    held = opened("lm")
    corpus = held.reading["generated English"]
    found = read_text(held.model, corpus)
    made = profiles(found, found)
    distance = statistics(found).measure("distance")
    assert made["distance"].values[0] == pytest.approx(distance.mean(axis=1))
    shares = alignment(found, of="tags")
    assert made["tags"].rows == shares.axes["target"]
    assert made["tags"].values == pytest.approx(shares.values.mean(axis=2))
    assert np.array(tag_heads(found, found)["random"]) == pytest.approx(
        shares.values.reshape(len(made["tags"].rows), -1)
    )
    relations = alignment(found, of="relations", least=1)
    names = [str(name) for name in relations.axes["target"]]
    kept = [at for at, name in enumerate(names) if not name.startswith("punct ")]
    inside = (made["neighbours"].values >= relations.values[kept].mean(2).min(0) - 1e-9).all()
    assert inside
    assert (made["neighbours"].values <= relations.values[kept].mean(2).max(0) + 1e-9).all()
    assert made["distance"].without.shape == (len(made["distance"].sizes), 1, 3)


def test_a_network_is_compared_with_two_others(cases):
    model, corpus = planted(), grammar_corpus().take(60)
    twin = all_functions(model, [model, model], {"text": corpus})
    assert functions(read_text(model, corpus)).labels
    assert twin.functions["text"].labels == {}  # nothing is ten points better than itself
    assert twin.random["text"].counts == {}
    assert twin.random["text"].specialised == 0
    assert twin.random["text"].best
    for found in cases:
        assert all(not drawn.specialised for drawn in found.random.values())


def test_samples_are_spread_over_a_text():
    corpus = Corpus.grammar(40)
    ids = [sentence.id for sentence in corpus]
    assert [sentence.id for sentence in sampled(corpus, 4)] == [ids[0], ids[10], ids[20], ids[30]]
    assert sampled(corpus, 50) is corpus


# -- files and going on ------------------------------------------------------------------------------------------------


def test_numbers_come_back_from_disk(cases, tmp_path):
    for found in cases:
        again = read(write(found, tmp_path))
        assert again.pruning.survivors() == found.pruning.survivors()
        assert again.functions.keys() == found.functions.keys()
        assert (tmp_path / f"{found.name}.json").read_bytes() == write(again, tmp_path).read_bytes()
        assert [each.found for each in claims([again])] == [each.found for each in claims([found])]


@pytest.fixture
def planned(monkeypatch):
    """A study whose cases are made up at once; the names of those that were computed."""
    done: list[str] = []

    def computed(name, opened, size, scale, asked, say):
        if done == ["lm"] and "killed" not in done:
            done.append("killed")
            raise KeyboardInterrupt
        done.append(name)
        facts = {**case().facts, "asked": {"scale": scale, "seed": asked.seed, "model": asked.lm}}
        return case(name, facts=facts)

    monkeypatch.setattr(study, "setup", lambda *given, smoke: None)
    monkeypatch.setattr(study, "_computed", computed)
    return done


def test_a_killed_study_goes_on_with_the_next_case(planned, tmp_path):
    runs = tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        study.compute(runs, only=["classify", "lm"], scale="smoke", say=quiet)
    assert [path.name for path in runs.iterdir()] == ["lm.json"]
    before = (runs / "lm.json").read_bytes()
    study.compute(runs, only=["lm", "classify"], scale="smoke", say=quiet)
    assert planned == ["lm", "killed", "classify"]
    assert (runs / "lm.json").read_bytes() == before
    for changes in ({"seed": 1}, {"scale": "smoke", "lm": "zoo:lm"}):
        with pytest.raises(StudyError, match="was computed with"):
            study.compute(runs, only=["lm"], **{"scale": "smoke", "say": quiet, **changes})


def test_cases_of_several_machines_are_drawn_together(tmp_path):
    for name in ("translate", "classify"):
        write(case(name), tmp_path)
    held = read_cases(tmp_path)
    assert [each.name for each in held] == ["translate", "classify"]
    assert not any("Language model and encoder" in each.claim for each in claims(held))


def test_what_is_missing_is_said(tmp_path):
    for name in CASES:
        with pytest.raises(StudyError, match="--data"):
            check_data(name, None)
        with pytest.raises(StudyError, match="which is not in"):
            check_data(name, tmp_path)
    with pytest.raises(StudyError, match="no scale 'huge'"):
        study.compute(tmp_path / "runs", scale="huge")
    with pytest.raises(StudyError, match="no case 'speech'"):
        study.compute(tmp_path / "runs", only=["speech"])
    assert not (tmp_path / "runs").exists()
    with pytest.raises(StudyError, match=r"none of translate\.json"):
        read_cases(tmp_path)
    (tmp_path / "lm.json").write_text("{}")
    with pytest.raises(StudyError, match="no case of the study of heads"):
        read_cases(tmp_path)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_explains_itself(cases, tmp_path):
    page = write_page(cases[:1], tmp_path / "page", command="pellucid study heads").read_text(encoding="utf-8")
    for each in claims(cases[:1]):
        assert each.claim in page
    assert "Not in this page: lm (a language model), classify (a classifier)." in page
    assert "no number of this page means anything" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    for name in (
        "verdicts",
        "claims",
        "rules",
        "layers",
        "survivors-translate",
        "scores-translate",
        "pronouns-translate",
    ):
        assert (tmp_path / "page" / "tables" / f"{name}.csv").is_file()
    for name in ("kept", "lasting", "pronoun-heads", "pronoun-layers", "distance", "neighbours", "tags"):
        assert (tmp_path / "page" / "figures" / f"{name}.svg").is_file()
    assert read_cases(tmp_path / "page")[0].name == "translate"


def test_figures_are_readable(cases):
    drawn = [*cases[:1], case("lm"), case("classify")]
    for draw in ("kept", "lasting_heads", "pronoun_maps", "pronoun_lines", "tag_maps"):
        assert not faults(getattr(heads_figures, draw)(drawn)), draw
    assert not faults(heads_figures.profile_lines(drawn, "distance", title="distance", label="words"))


def test_survivors_beside_a_draw_in_the_table():
    rows = heads_rows.survivor_rows(case())
    assert [row[0] for row in rows] == [48, 36, 24, 12, 6]
    assert [row[5] for row in rows] == [11, 11, 11, 11, 6]
    assert rows[3][6].plain == pytest.approx(12 * 11 / 48)
    low, high = hypergeom(48, 11, 12).ppf([0.025, 0.975])
    assert rows[3][7] == f"{low:.0f} to {high:.0f}"


def test_survivors_by_each_function():
    rows = {(row[0], row[1]): row[2:] for row in heads_rows.survivor_function_rows(case())}
    assert {name for _, name in rows} == {"positional", "syntactic", "rare words", "none"}
    heads, left, expected, band = rows[12, "positional"]
    assert (heads, left, expected.plain) == (8, 8, pytest.approx(2.0))
    low, high = hypergeom(48, 8, 12).ppf([0.025, 0.975])
    assert band == f"{low:.0f} to {high:.0f}"
    assert rows[12, "none"][:2] == (37, 1)


def test_the_page_in_the_documentation_says_what_its_numbers_say():
    docs = Path(__file__).parents[2] / "docs"
    found = claims(read_cases(docs / "heads-study"))
    page = (docs / "heads-study.md").read_text(encoding="utf-8")
    for each in found:
        row = next(line for line in page.splitlines() if line.startswith(f"| {each.claim.rstrip('.')} |"))
        cells = row.split(" | ")
        at = [*CASES].index(each.case) + 1 if each.case in CASES else 2
        assert cells[at].startswith(f"**{each.verdict}**"), (each.claim, each.case)
    counts = [sum(each.holds is holds for each in found) for holds in (True, False, None)]
    told = " ".join(page.split())
    assert f"of {len(found)} judgements {counts[0]} stand, {counts[1]} do not, and {counts[2]} cannot be told" in told


def test_translations_are_scored_where_the_package_is_there(cases, monkeypatch):
    found = next(each for each in cases if each.name == "translate")
    right = [f"ein Hund rennt über die Wiese {number}" for number in range(20)]
    written = {
        "source": ["a dog"] * 20,
        "right": right,
        "groups": [number // 2 for number in range(20)],
        "all heads": right,
        "9 heads": [text.replace("rennt", "geht") for text in right],
    }
    made = replace(found, written=written)
    pytest.importorskip("sacrebleu")
    rows = heads_rows.bleu_rows(made)
    assert rows[0][1].plain == pytest.approx(100)
    assert rows[1][1].plain < 90
    assert rows[1][3].plain == pytest.approx(rows[1][1].plain - 100)
    assert math.isclose(rows[2][1].plain, 0, abs_tol=1)
    monkeypatch.setattr("pellucid.train.tasks.scores.bleu", lambda found, right: None)
    assert heads_rows.bleu_rows(made) == []


# -- models that are given ---------------------------------------------------------------------------------------------


def test_an_encoder_is_tuned_and_kept_and_a_classifier_is_taken_as_it_is(tmp_path):
    size = SCALES["smoke"].sizes["classify"]
    own = opened("classify").model
    own.hf.bert.save_pretrained(tmp_path / "encoder")
    own.hf.save_pretrained(tmp_path / "classifier")
    for name in ("encoder", "classifier"):
        own.tokenizer.save_pretrained(tmp_path / name)

    def given(name: str) -> Setup:
        asked = Asked(None, None, str(tmp_path / name), "cpu", 0, tmp_path / "runs")
        return setup("classify", size, asked, quiet, smoke=True)

    plain = given("classifier").model
    assert given("classifier").name == "classifier"
    assert torch.equal(plain.hf.classifier.weight, own.hf.classifier.weight)
    assert not (tmp_path / "runs").exists()
    (tmp_path / "runs").mkdir()
    found = given("encoder")
    tuned = found.model
    assert found.name == "encoder, tuned"
    assert tuned.hf.config.num_labels == 2
    log = (tmp_path / "runs" / "classify-tuning" / "log.csv").read_text().splitlines()
    assert len(log) == 2 + size.tuning  # the names of the columns, before training, and every epoch
    again = given("encoder").model
    assert torch.equal(again.hf.classifier.weight, tuned.hf.classifier.weight)
