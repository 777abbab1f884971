"""The study of identifiability as a whole: its curves against plain numbers, going on after a kill, and its page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pellucid import Corpus, Model, identifiability
from pellucid.corpus import Sentence
from pellucid.results import ResultError
from pellucid.studies.claims import StudyError
from pellucid.studies.identifiability import figures, measures, rows
from pellucid.studies.identifiability import running as study
from pellucid.studies.identifiability.cases import SCALES, check_data, named_models, passages, texts
from pellucid.studies.identifiability.claims import claims
from pellucid.studies.identifiability.page import write_page
from pellucid.studies.identifiability.tables import CURVES, Case, read, read_cases, write
from tests.overlaps import faults
from tests.studies.identifiability_numbers import LENGTHS, attention, case, mixing
from tests.tiny_models import WORDS, network, word_tokenizer


def quiet(_: str) -> None:
    """Says nothing."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """The smallest study, computed once."""
    place = tmp_path_factory.mktemp("identifiability") / "runs"
    return study.compute(place, {"zoo:mlm": "zoo:mlm"}, scale="smoke", say=quiet)


@pytest.fixture(scope="module", params=["gpt2", "bert"])
def tiny(request) -> Model:
    """Heads 8 wide or so, so that short texts are longer than that."""
    return Model.load(network(request.param, dtype=torch.float64), tokenizer=word_tokenizer())


def sentences(*lengths: int, documents: int = 5) -> Corpus:
    """Texts of so many words, in some documents."""
    dice = np.random.default_rng(4)
    made = [
        Sentence.of_text(" ".join(dice.choice(WORDS, size)), id=str(at), document=f"d{at * documents // len(lengths)}")
        for at, size in enumerate(lengths)
    ]
    return Corpus.of(made)


# -- the numbers -------------------------------------------------------------------------------------------------------


def told_plainly(model: Model, sentence: Sentence, layer: int) -> list[tuple[int, ...]]:
    """Keys in sight, free dimensions, whether unique, moved and argmax of every head and query, by numpy alone."""
    run = model.run(sentence.text, sites=[f"pattern.{layer}", f"value.{layer}"])
    pattern = run[f"pattern.{layer}"][0].double().numpy()
    values = run[f"value.{layer}"][0].double().numpy()
    made = []
    for head, weights in enumerate(pattern):
        for query, row in enumerate(weights):
            seen = query + 1 if model.causal else len(row)
            v, a = values[head, :seen], row[:seen]
            free = seen - np.linalg.matrix_rank(v)
            with_sum = seen - np.linalg.matrix_rank(np.column_stack([v, np.ones(seen)]))
            effect = a @ v @ np.linalg.pinv(v)
            moved = np.linalg.norm(a - effect) / np.linalg.norm(a)
            made.append((seen, free, with_sum == 0, moved, effect.argmax() != a.argmax()))
    return made


def test_attention_by_layer_and_length_against_plain_numbers(tiny, monkeypatch):
    monkeypatch.setattr(measures, "FEWEST", 1)
    short, long = sentences(3, 5, 7, 6, 4), sentences(*[30] * 5, *[12] * 5)
    found = measures.attention_curves(tiny, short, long)
    names = ("sees", "free", "unique", "moved", "argmax")
    layers = range(len(found["sentences"].places))
    plain = np.array(
        [np.mean([row for s in short for row in told_plainly(tiny, s, layer)], axis=0) for layer in layers]
    )
    for at, name in enumerate(names):
        np.testing.assert_allclose(found["sentences"].row(name), plain[:, at], atol=1e-6)
    every = np.array([row for s in long for layer in layers for row in told_plainly(tiny, s, layer)])
    curve = found["lengths"]
    for place, length in enumerate(curve.places):
        low, high = measures.first_of(length), measures.last_of(length)
        own = every[(every[:, 0] >= low) & (every[:, 0] <= high)]
        heads = len(tiny.run("the dog", sites=["pattern.0"])["pattern.0"][0])
        assert curve.row("queries")[place] == len(own) / len(layers) / heads
        for at, name in enumerate(names):
            np.testing.assert_allclose(curve.row(name)[place], own[:, at].mean(), atol=1e-6)
    width = tiny.size(next(site for site in tiny.sites if site.kind == "value"))[-1]
    beyond = [measures.first_of(length) > width for length in curve.places]
    assert any(beyond)
    within = [low for low, far in zip(map(measures.first_of, curve.places), beyond, strict=True) if far]
    deep = np.array([row for s in long for row in told_plainly(tiny, s, 0) if row[0] >= min(within)])
    np.testing.assert_allclose(found["depth"].row("moved")[0], deep[:, 3].mean(), atol=1e-6)
    assert len(found["sentences"].without) == 5
    rest = [row for s in short if s.document != "d0" for row in told_plainly(tiny, s, 0)]
    left = found["sentences"].without[:, found["sentences"].rows.index("sees"), 0]
    assert np.isclose(left, np.mean(rest, axis=0)[0]).any()


def test_a_random_direction_is_chance_for_the_part_without_effect(tiny, monkeypatch):
    monkeypatch.setattr(measures, "FEWEST", 1)
    curve = measures.attention_curves(tiny, sentences(4, 4), sentences(*[40] * 4))["lengths"]
    chance = curve.chance[curve.rows.index("moved"), -1]
    share = curve.row("free")[-1] / curve.row("sees")[-1]
    assert chance == pytest.approx(np.sqrt(share), abs=0.02)
    width = tiny.size(next(site for site in tiny.sites if site.kind == "value"))[-1]
    far = [measures.first_of(length) > width + 1 for length in curve.places]
    np.testing.assert_allclose(curve.chance[curve.rows.index("unique")][far], 0)  # in general position
    assert (curve.row("free_with_sum") <= curve.row("free")).all()
    assert curve.row("free_with_sum")[-1] == pytest.approx(curve.row("free")[-1] - 1, abs=0.1)


def test_mixing_without_a_document_is_mixing_of_the_others(tiny):
    corpus = sentences(4, 5, 3, documents=2)
    mixed = identifiability.mixing(tiny, corpus, random=False)
    curve = measures.mixing_curve(mixed)
    assert len(curve.without) == 2
    for at, name in enumerate(("d0", "d1")):
        others = corpus.filter(lambda sentence, name=name: sentence.document != name)
        alone = identifiability.mixing(tiny, others, random=False)
        np.testing.assert_allclose(curve.without[at], alone.values, atol=1e-9)
        assert curve.sizes[at] == sum(len(s.spans) for s in corpus if s.document == name)
    whole = measures.offset_curve(mixed)
    np.testing.assert_allclose(whole.values.sum(1), 1, atol=1e-9)  # these texts have no farther tokens
    np.testing.assert_allclose(whole.chance.sum(1), 1, atol=1e-9)
    own = whole.places.index("0")
    last = len(curve.places) - 1
    kept = [1, (last + 1) // 2, last]
    np.testing.assert_allclose(whole.values[:, own], curve.row("own")[kept], atol=1e-9)
    np.testing.assert_allclose(whole.chance[:, own], curve.chance[curve.rows.index("own")][kept], atol=1e-9)
    np.testing.assert_allclose(whole.without[:, :, own], curve.without[:, curve.rows.index("own")][:, kept], atol=1e-9)
    np.testing.assert_array_equal(whole.sizes, curve.sizes)
    assert (whole.chance[:, own + 1 :] > 0).any() != tiny.causal


def test_maps_of_attention_without_a_document_are_those_of_the_others(tiny):
    corpus = sentences(5, 6, 4, documents=2)

    def told(corpus: Corpus) -> identifiability.FlowAgreement:
        return identifiability.flow_agreement(tiny, corpus, "attention,rollout", random=False, progress=False)

    found = told(corpus)
    curve = measures.flow_curve(found)
    assert curve.rows == ("attention", "rollout", "own token", "nearness", "ceiling")
    np.testing.assert_allclose(curve.values[:2], found.values, atol=1e-12)
    np.testing.assert_allclose(curve.row("ceiling"), 1)  # exact norms
    for at, name in enumerate(("d0", "d1")):
        others = corpus.filter(lambda sentence, name=name: sentence.document != name)
        np.testing.assert_allclose(curve.without[at, :2], told(others).values, atol=1e-9)


def test_tokens_at_some_layers_are_those_at_all(tiny):
    corpus = sentences(*[6, 8, 5, 9, 7] * 6, documents=15)
    options = {"maps": ("identity", "linear"), "random": False, "progress": False}
    whole = identifiability.tokens(tiny, corpus, **options)
    part = identifiability.tokens(tiny, corpus, layers=[2], **options)
    assert part.axes["layer"] == (2,)
    np.testing.assert_array_equal(part.values[:, 0], whole.values[:, whole.axes["layer"].index(2)])
    curve = measures.token_curve(whole)
    groups = whole.table("groups").columns
    np.testing.assert_array_equal(curve.without, groups["without"])
    shares = curve.sizes / curve.sizes.sum()  # whole·n is the sum over the groups of what each one holds
    own = (whole.values - (1 - shares)[:, None, None] * curve.without) / shares[:, None, None]
    np.testing.assert_allclose((own * shares[:, None, None]).sum(0), whole.values, atol=1e-9)
    assert ((own > -1e-9) & (own < 1 + 1e-9)).all()
    for layers, message in (([9], "no layer 9"), ([0], "leaves nothing")):
        with pytest.raises(ResultError, match=message):
            identifiability.tokens(tiny, corpus, layers=layers, **options)


def test_layers_are_spread_and_end_with_the_last():
    assert [measures.spread(*given) for given in ((4, 2), (6, 3), (30, 1), (2, 5), (4, 0))] == [
        [2, 4],
        [2, 4, 6],
        [30],
        [1, 2],
        [],
    ]


# -- texts and models --------------------------------------------------------------------------------------------------


def test_passages_keep_to_documents_and_lengths():
    words = ["a b c d", "e f g", "h i", "j k l m n o p q r", "s t", "u v"]
    made = [Sentence.of_text(text, id=str(at), document="one" if at < 4 else "two") for at, text in enumerate(words)]
    found = list(passages(Corpus.of(made), 8))
    assert [each.text for each in found] == ["a b c d e f g", "h i", "j k l m n o p q r", "s t u v"]
    assert [each.document for each in found] == ["one", "one", "one", "two"]  # the second document: up to 4 words
    assert [len(each.text.split()) for each in passages(Corpus.of(made), 4)][-2:] == [2, 2]
    assert [each.text for each in passages(Corpus.of([made[2], made[4]]), 80)] == ["h i", "s t"]


def test_the_texts_of_the_smallest_study():
    size = SCALES["smoke"].size(10**9)
    held = texts(None, size, smoke=True, seed=0)
    assert len(list(held.told)) == size.told
    assert all(6 <= len(sentence.spans) <= size.longest for sentence in held.mixed)
    longest = max(len(sentence.spans) for sentence in held.passages)
    assert size.words // 2 < longest <= size.words
    assert SCALES["full"].size(10**6).probes > SCALES["full"].size(10**8).probes


def test_models_have_names():
    assert named_models("zoo:lm, MiniLM=/a/b/model,/c/SmolLM2/") == {
        "zoo:lm": "zoo:lm",
        "MiniLM": "/a/b/model",
        "SmolLM2": "/c/SmolLM2/",
    }
    for text, message in (
        (" , ", "No model"),
        ("a=x,a=y", "called 'a'"),
        ("a b=x", "names no model"),
        ("a=", "names no"),
    ):
        with pytest.raises(StudyError, match=message):
            named_models(text)


# -- files and going on ------------------------------------------------------------------------------------------------


def test_numbers_come_back_from_disk(runs, tmp_path):
    (found,) = read_cases(runs)
    assert tuple(found.curves) == CURVES
    again = read(write(found, tmp_path))
    assert (tmp_path / "zoo-mlm.json").read_bytes() == write(again, tmp_path).read_bytes()
    assert [each.found for each in claims([again])] == [each.found for each in claims([found])]


def test_numbers_of_the_first_format_are_read_without_maps_of_attention(tmp_path):
    file = write(case("old"), tmp_path)
    told = json.loads(file.read_text())
    del told["curves"]["flow"]
    own = told["curves"]["offsets"]
    rows = {"values": [[float(layer)] * 7 for layer in range(7)], "chance": [[0.1] * 7] * 7}
    told["curves"]["offsets"] = {**own, **rows, "rows": list("0123456"), "without": [], "sizes": []}
    file.write_text(json.dumps({**told, "format": 1}))
    found = read(file)
    assert found.curves["offsets"].values[:, 0].tolist() == [1, 3, 6]
    assert "flow" not in found.curves
    assert {each.holds for each in claims([found]) if "followed down" in each.claim} == {None}
    page = write_page([found], tmp_path / "page").read_text(encoding="utf-8")
    assert "before maps of attention belonged to the study" in page


@pytest.fixture
def planned(monkeypatch):
    """A study whose numbers are made up at once; the names of the models that were computed."""
    done: list[str] = []

    def computed(name, model, held, size, facts, seed, say):
        if done == ["one"]:
            done.append("killed")
            raise KeyboardInterrupt
        done.append(name)
        return Case(name, {**case().facts, "asked": facts["asked"]}, case().curves)

    monkeypatch.setattr(study, "_computed", computed)
    return done


def test_a_killed_study_goes_on_with_the_next_model(planned, tmp_path):
    runs, models = tmp_path / "runs", {"one": "zoo:lm", "two": "zoo:mlm"}
    with pytest.raises(KeyboardInterrupt):
        study.compute(runs, models, scale="smoke", say=quiet)
    assert [path.name for path in runs.iterdir()] == ["one.json"]
    before = (runs / "one.json").read_bytes()
    study.compute(runs, models, scale="smoke", say=quiet)
    assert planned == ["one", "killed", "two"]
    assert (runs / "one.json").read_bytes() == before
    for changes in ({"seed": 1}, {"models": {"one": "zoo:mlm"}}):
        with pytest.raises(StudyError, match="was computed with"):
            study.compute(runs, **{"models": models, "scale": "smoke", "say": quiet, **changes})


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(StudyError, match="--data"):
        check_data(None)
    with pytest.raises(StudyError, match="which is not in"):
        check_data(tmp_path)
    with pytest.raises(StudyError, match="no scale 'huge'"):
        study.compute(tmp_path / "runs", {"a": "zoo:lm"}, scale="huge")
    assert not (tmp_path / "runs").exists()
    with pytest.raises(StudyError, match="no numbers of a model"):
        read_cases(tmp_path)
    file = write(case("a"), tmp_path)
    told = json.loads(file.read_text())
    told["curves"]["mixing"]["values"].pop()
    for damaged in ({}, {**told}, {**told, "study": "heads"}):
        file.write_text(json.dumps(damaged))
        with pytest.raises(StudyError, match="compute them again"):
            read_cases(tmp_path)
    file.write_text(json.dumps({**told, "format": 99}))
    with pytest.raises(StudyError, match="newer Pellucid"):
        read_cases(tmp_path)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_explains_itself(runs, tmp_path):
    cases = [*read_cases(runs), case("made-up")]
    page = write_page(cases, tmp_path / "page", command="pellucid study identifiability").read_text(encoding="utf-8")
    for each in claims(cases):
        assert each.claim in page
    assert "the numbers of this page mean little" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    folder = tmp_path / "page"
    tables = ("verdicts", "claims", "rules", "models", "perceptrons", *(f"numbers-{name}" for name in CURVES[:4]))
    drawn = (
        "null-space",
        "effect-lengths",
        "effect-layers",
        "tokens-cosine",
        "tokens-l2",
        "mixing-own",
        "offsets",
        "flow",
    )
    assert [name for name in tables if not (folder / "tables" / f"{name}.csv").is_file()] == []
    assert [name for name in drawn if not (folder / "figures" / f"{name}.svg").is_file()] == []
    assert [each.name for each in read_cases(folder)] == ["made-up", "zoo:mlm"]


def test_figures_are_readable(runs):
    cases = [
        *read_cases(runs),
        *(case(name) for name in ("zoo:tagger", "MiniLM", "SmolLM2-135M")),
    ]  # two rows of panels
    drawn = [figures.by_length(cases), figures.offsets(cases), figures.null_space(cases), figures.flow(cases)]
    assert [found for figure in (*drawn, figures.mixing(cases, "near")) for found in faults(figure)] == []


def test_tables_hold_the_numbers():
    held = case(mixing=mixing(own=[1, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15]))
    made = rows.curve_rows(held, held.curves["mixing"], ["own"])
    assert [row[2] for row in made] == list("0123456")
    assert made[-1][3].plain == 0.15
    assert made[-1][5].plain == 0.05
    assert all(row[4].plain[0] < row[3].plain < row[4].plain[1] for row in made[1:])
    assert rows.perceptron_rows([held])[0][5].plain == pytest.approx(0.9 - 0.95)
    assert rows.model_rows([case(lengths=attention(LENGTHS))])[0][4] == 700
