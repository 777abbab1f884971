"""The study of neurons as a whole, at its smallest: its numbers against plain ones, going on after a kill, its page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pellucid import Corpus, Sentence, neurons
from pellucid.errors import TrainError
from pellucid.heads import measured
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.provenance import Provenance
from pellucid.results import Table
from pellucid.studies.claims import StudyError
from pellucid.studies.neurons import figures, rows
from pellucid.studies.neurons import running as study
from pellucid.studies.neurons.cases import SCALES, Asked, Setup, case_names, check_data, setup, spread_over
from pellucid.studies.neurons.claims import claims
from pellucid.studies.neurons.measuring import Measuring, experts, first_of
from pellucid.studies.neurons.page import write_page
from pellucid.studies.neurons.tables import BARS, CONCEPTS, METHODS, STREAMED, Case, Grid, read, read_cases, write
from pellucid.studies.rules import Number
from pellucid.studies.texts import sampled
from tests.overlaps import faults
from tests.studies.neurons_numbers import SITES, case


def quiet(_: str) -> None:
    """Says nothing."""


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Case:
    """The smallest study of one model, computed once."""
    runs = study.compute(tmp_path_factory.mktemp("neurons") / "runs", models=["zoo:tagger"], scale="smoke", say=quiet)
    return read_cases(runs)[0]


@pytest.fixture(scope="module")
def opened() -> Setup:
    return setup("zoo:tagger", SCALES["smoke"], Asked(None, None, 0, Path("nowhere")))


def ranking(scores: list[list[float]], names: list[str], random: list[list[float]] | None = None) -> Ranking:
    """A ranking with these scores of each class."""
    values = np.array(scores, float)
    axes = {"class": tuple(f"c{at}" for at in range(len(values))), "neuron": tuple(names)}
    beside = {} if random is None else {"random model": Table(axes, {"value": np.array(random, float)})}
    overall = overall_table(names, np.abs(values).max(axis=0), null=None)
    origin = Provenance("neurons.made_up", {"method": "made up"})
    return Ranking(axes, values, None, None, None, "no interval: made up", origin, {"overall": overall, **beside})


# -- the numbers -------------------------------------------------------------------------------------------------------


def test_everything_is_measured(found):
    expected = {
        *(
            f"{what} {concept}"
            for what in ("layers", "probe", "margins", "anew", "beside", "smallest", "where")
            for concept in CONCEPTS
        ),
        "beside in probe",
        *(f"{what} {method}" for what in ("in probe", "loss", "accuracy") for method in METHODS),
        *(f"{what} class {cls}" for what in ("loss", "accuracy") for cls in ("NOUN", "DET")),
        *(f"stability {method}" for method in STREAMED),
        *("spread", "polysemy", "sub-layers", "experts", "agreement", "draws pos", "draws in probe"),
    }
    assert set(found.grids) == expected
    assert found.grids["draws pos"].values.shape == (1, 3)  # one shuffled order: its first, its last and a draw
    assert found.grids["draws pos"].rows == ("10",)
    assert len(claims([found])) == 34
    assert found.facts["neurons"] == {"stream": 256, "compared": 128, "sub-layers": 640}
    assert found.grids["layers pos"].columns == ("resid.0", "resid.4")
    assert found.grids["sub-layers"].columns == ("attn.3", "neurons.3")
    number = found.numbers["hidden units"]  # of the first 32 of 128 + 512 neurons
    assert number.value == pytest.approx(32 * found.grids["sub-layers"].row("value")[1])
    assert number.chance == pytest.approx(32 * 512 / 640)


def test_neurons_are_ranked_and_judged_on_other_texts(found, opened):
    texts = [{sentence.text for sentence in corpus} for corpus in (opened.ranked, opened.judged)]
    assert texts[0] != texts[1]
    assert found.facts["texts"] == {"ranked on": opened.ranked.name, "judged on": opened.judged.name}
    assert found.facts["counts"]["judged"]["words"] == sum(len(each.words) for each in opened.judged)


def test_probes_by_layer_are_those_of_each_site(found, opened):
    size = opened.size
    plain = neurons.per_layer(
        opened.model,
        opened.ranked,
        concept="upos",
        sites="resid.4",
        epochs=size.epochs,
        fewest=size.fewest,
        seeds=size.seeds,
    )
    assert found.grids["layers pos"].row("accuracy")[1] == pytest.approx(plain.values[0, 0], abs=1e-5)
    assert found.grids["layers pos"].row("control task")[1] == pytest.approx(plain.values[2, 0], abs=1e-5)


def test_the_model_as_it_is_scores_as_measured_plainly(found, opened):
    part, groups = sampled(opened.judged, opened.size.modelled), opened.size.groups
    for group in range(groups):
        plain = measured(opened.model, part.shard(group, groups), "tagger").scores()
        for method in ("probeless", "class NOUN"):
            assert found.grids[f"loss {method}"].row("whole")[group] == pytest.approx(plain["loss"], rel=1e-4)
            assert found.grids[f"accuracy {method}"].row("whole")[group] == pytest.approx(plain["accuracy"], rel=1e-4)


def test_a_probe_reads_the_first_neurons_alone(found):
    """Six of 128 neurons tell less than all; were six removed instead, hardly anything would be lost."""
    drawn = found.grids["draws in probe"]
    assert drawn.rows == tuple(METHODS)
    assert drawn.columns == (0,)
    whole = found.numbers["whole in probe"].value
    for method in METHODS:
        grid = found.grids[f"in probe {method}"]
        assert grid.columns == (1, 3, 6)
        assert (grid.values < whole - 0.03).all()
        assert grid.row("random")[-1] == pytest.approx(drawn.row(method).mean(), abs=1e-5)


def test_agreement_and_experts_are_those_of_the_rankings(found, opened):
    made = neurons.rank(
        opened.model, opened.ranked, concept="upos", methods=["iou", "precision"], sites="resid.4", progress=False
    )
    tops = {name: set(each.top(6)) for name, each in made.items()}
    shared = len(tops["iou"] & tops["precision"]) / len(tops["iou"] | tops["precision"])
    assert found.grids["agreement"].at("iou", "precision").value == pytest.approx(shared, abs=1e-5)
    share = float((np.abs(made["precision"].values).max(axis=0) >= 0.5).mean())
    number = found.grids["experts"].at("model", 0.5)
    assert number.value == pytest.approx(share, abs=0.02)
    assert number.low < number.value < number.high


def test_a_tagger_runs_on_sentences_that_it_can_answer(opened):
    """Words that are one token in its vocabulary have none of their own: a few sentences with such would be refused."""
    tags = {"upos": ("NOUN", "PUNCT", "PUNCT")}
    glued = [Sentence(f"g{at}", f"g{at}", 'Stop."', ((0, 4), (4, 5), (5, 6)), tags) if at % 4 == 0 else each
             for at, each in enumerate(Corpus.grammar(24, seed=1))]  # fmt: skip
    text = Corpus.of(glued, name="glued")
    with pytest.raises(TrainError, match="no token of their own"):
        measured(opened.model, sampled(text, 6), "tagger")
    made = Measuring.__new__(Measuring)
    made.opened, made.size = replace(opened, judged=text), replace(opened.size, modelled=6)
    assert len(list(made.modelled)) == 6
    measured(opened.model, made.modelled, "tagger")


def test_experts_by_hand():
    names = [f"resid.0:{at}" for at in range(4)]
    made = ranking([[0.6, -0.95, 0.1, 0.2], [0.75, 0.1, 0.4, 0.2]], names, [[0.1, 0.5, 0.1, 0.1]] * 2)
    grid = experts(made)
    assert grid.columns == BARS
    assert grid.row("model").tolist() == [0.5, 0.5, 0.25]  # the second detects by low values
    assert grid.row("random model").tolist() == [0.25, 0, 0]
    assert grid.at("model", 0.5).chance == 0.25
    assert grid.low is None
    reach = np.array([[0.01, 0.3, 0.01, 0.01], [0.1, 0.01, 0.12, 0.01]])
    bounded = experts(replace(made, low=made.values - reach, high=made.values + reach))
    assert bounded.row("model").tolist() == [0.5, 0.5, 0.25]
    # lower ends .65, .65, .28 and .19: two, none and none; upper ends .85, 1.25, .52 and .21: three, two and one
    assert bounded.low[0].tolist() == [0.5, 0, 0]
    assert bounded.high[0].tolist() == [0.75, 0.5, 0.25]


def test_sites_are_spread_and_the_last_is_there():
    assert [first_of(total) for total in (10, 1000)] == [4, 50]
    names = [str(at) for at in range(31)]
    assert spread_over(names, 6) == ("0", "6", "12", "18", "24", "30")
    assert spread_over(names, 1) == ("30",)
    assert spread_over(names[:3], 5) == ("0", "1", "2")


def test_grids_keep_rows_and_columns():
    one = Grid(("a", "b"), (1, 2), np.array([[1, 2], [3, 4.0]]), None, np.zeros((2, 2)), np.ones((2, 2)))
    both = Grid.beside([one, Grid(("a", "b"), (3,), np.array([[5], [6.0]]))])
    assert both.columns == (1, 2, 3)
    assert both.row("b").tolist() == [3, 4, 6]
    assert both.low is None
    assert one.at("b", 1, chance=0.5) == Number(3.0, 0.5, 0.0, 1.0)


def test_the_smallest_sets_are_not_chosen_by_documents_for_testing(found):
    """Those of `trained_anew`, by documents to learn from; accuracies of the curve, on others, do not change them."""
    grid = found.grids["smallest pos"]
    assert grid.columns == pytest.approx((0.01, 0.02, 0.05))
    assert grid.rows == ("neurons", "accuracy", "all neurons", "low", "high")
    assert (np.diff(grid.row("neurons")) <= 0).all()
    whole = Case(found.name, found.facts, {**found.grids, "anew pos": Grid(
        found.grids["anew pos"].rows, found.grids["anew pos"].columns, np.ones_like(found.grids["anew pos"].values))},
        found.numbers)  # fmt: skip
    assert rows.smallest_rows([whole])[0] == rows.smallest_rows([found])[0]
    assert f"{int(grid.row('neurons')[0]):,} (" in rows.smallest_rows([found])[0][4]


def test_probes_of_few_neurons_stand_beside_the_random_model(found):
    for name in ("pos", "number", "relation", "in probe"):
        grid = found.grids[f"beside {name}"]
        assert grid.rows == ("majority", "random model", "control task", "selectivity")
        assert grid.columns[-1] == "all"
        assert (grid.values[1] > 0).all()


def test_numbers_of_an_older_format_are_read_without_what_they_lack(tmp_path):
    """The smallest sets, the controls of few neurons, forests and ablation came with format 2."""
    new = case(task="tagger")
    gone = ("smallest", "beside")
    grids = {name: grid for name, grid in new.grids.items()
             if not name.startswith(gone) and name.rpartition(" ")[2] not in ("forest", "ablation")}  # fmt: skip
    kept = [at for at, name in enumerate(grids["agreement"].rows) if name not in ("forest", "ablation")]
    names = tuple(grids["agreement"].rows[at] for at in kept)
    cells = [part[np.ix_(kept, kept)] for part in (grids["agreement"].values, grids["agreement"].null)]
    old = Case(new.name, new.facts, {**grids, "agreement": Grid(names, names, *cells)}, new.numbers)
    path = write(old, tmp_path)
    assert path.read_text().startswith('{"format": 3,')
    path.write_text(path.read_text().replace('"format": 3', '"format": 1', 1))
    again = read(path)
    assert again.format == 1
    assert list(again.methods) == [name for name in METHODS if name not in ("forest", "ablation")]
    assert rows.smallest_rows([again])[0][3:] == ("–",) * 4
    assert rows.control_rows([again]) == []
    assert len(rows.faithful_rows([again])) == len(METHODS) - 2
    assert len(claims([again])) == len(claims([new])) - 4
    assert not faults(figures.faithful([new, again]))
    table = {row[:2]: row[2:] for row in rows.agreement_rows([new, again])}
    assert table[METHODS["probeless"], METHODS["forest"]][1] == "–"
    page = write_page([new, again], tmp_path / "page").read_text(encoding="utf-8")
    assert page.count("numbers of an older Pellucid (format 1, now 3)") == 1
    assert read(tmp_path / "page" / f"{again.name}.json").format == 1
    runs = tmp_path / "runs"
    runs.mkdir()
    for number in (1, 2):  # all that there is may be there: smallest sets were chosen otherwise
        write(Case("zoo-mlm", new.facts, new.grids, new.numbers, number), runs)
        told = rf"zoo-mlm\.json' was computed by an older Pellucid \(its numbers are of format {number}, now it is 3\)"
        with pytest.raises(StudyError, match=told):
            study.compute(runs, models=["zoo:mlm"], scale="smoke", say=quiet)


# -- files and going on ------------------------------------------------------------------------------------------------


def test_numbers_come_back_from_disk(found, tmp_path):
    before = write(found, tmp_path).read_bytes()
    again = read(tmp_path / "zoo-tagger.json")
    assert write(again, tmp_path).read_bytes() == before
    assert [each.found for each in claims([again])] == [each.found for each in claims([found])]


def test_a_killed_study_goes_on_with_the_next_model(monkeypatch, tmp_path):
    done: list[str] = []

    def computed(name, model, opened, scale, asked, say):
        if done == ["zoo-mlm"]:
            done.append("killed")
            raise KeyboardInterrupt
        done.append(name)
        facts = {**case().facts, "asked": study._told(model, scale.name, asked)}
        return Case(name, facts, case().grids, case().numbers)

    monkeypatch.setattr(study, "setup", lambda *given: None)
    monkeypatch.setattr(study, "_computed", computed)
    runs = tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        study.compute(runs, scale="smoke", say=quiet)
    assert [path.name for path in runs.iterdir()] == ["zoo-mlm.json"]
    before = (runs / "zoo-mlm.json").read_bytes()
    study.compute(runs, scale="smoke", say=quiet)
    assert done == ["zoo-mlm", "killed", "zoo-lm", "zoo-tagger"]
    assert (runs / "zoo-mlm.json").read_bytes() == before
    with pytest.raises(StudyError, match="was computed with seed=0"):
        study.compute(runs, scale="smoke", seed=1, say=quiet)


def test_numbers_of_another_text_are_not_taken_for_these(monkeypatch, tmp_path):
    """Two folders with the same names of files, and other sentences in one of them."""
    line = "1\tdogs\tdog\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
    for name, text in (("one", line), ("same", line), ("other", line.replace("dogs", "cats"))):
        folder = tmp_path / name / "ud_english_ewt"
        folder.mkdir(parents=True)
        for part in ("dev", "test"):
            (folder / f"en_ewt-ud-{part}.conllu").write_text(text)

    def computed(name, model, opened, scale, asked, say):
        return Case(name, {**case().facts, "asked": study._told(model, scale.name, asked)}, case().grids, {})

    monkeypatch.setattr(study, "setup", lambda *given: None)
    monkeypatch.setattr(study, "_computed", computed)
    ways = {"models": ["zoo:lm"], "say": quiet}
    study.compute(tmp_path / "runs", data=tmp_path / "one", **ways)
    study.compute(tmp_path / "runs", data=tmp_path / "same", **ways)
    with pytest.raises(StudyError, match="was computed with text='"):
        study.compute(tmp_path / "runs", data=tmp_path / "other", **ways)


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(StudyError, match="--data"):
        check_data(None)
    with pytest.raises(StudyError, match="which is not in"):
        study.compute(tmp_path / "runs", data=tmp_path)
    with pytest.raises(StudyError, match="no scale 'huge'"):
        study.compute(tmp_path / "runs", scale="huge")
    with pytest.raises(StudyError, match="No model was named"):
        study.compute(tmp_path / "runs", models=[], scale="smoke")
    with pytest.raises(StudyError, match="the same file as 'a/model'"):
        case_names(["a/model", "b/model"])
    with pytest.raises(StudyError, match="has several stacks"):
        study.compute(tmp_path / "runs", models=["zoo:translate"], scale="smoke", say=quiet)
    assert case_names(["zoo:lm", "folder/SmolLM2.gguf"]) == {"zoo-lm": "zoo:lm", "SmolLM2": "folder/SmolLM2.gguf"}


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"study": "heads", "format": 1},
        {"study": "neurons", "format": 1, "case": "a", "facts": {}, "grids": {"spread": {"rows": ["a"]}}},
        {"study": "neurons", "format": 1, "case": "a", "facts": {}, "numbers": {}, "grids": {
            "a": {"rows": ["a"], "columns": [1, 2], "values": [[1]], "null": None, "low": None, "high": None}}},
    ],
)  # fmt: skip
def test_files_that_are_no_case_are_refused(broken, tmp_path):
    with pytest.raises(StudyError, match=r"no NAME\.json"):
        read_cases(tmp_path)
    (tmp_path / "a.json").write_text(json.dumps(broken))
    with pytest.raises(StudyError, match="no case of the study of neurons"):
        read_cases(tmp_path)


def test_newer_files_and_models_that_are_there_twice_are_refused(tmp_path):
    write(case("a"), tmp_path)
    (tmp_path / "b.json").write_bytes((tmp_path / "a.json").read_bytes())
    with pytest.raises(StudyError, match="hold the model a"):
        read_cases(tmp_path)
    (tmp_path / "b.json").write_text(json.dumps({"study": "neurons", "format": 4}))
    with pytest.raises(StudyError, match="newer Pellucid"):
        read_cases(tmp_path)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_explains_itself(found, tmp_path):
    held = [case("made-up", causal=True), found]
    page = write_page(held, tmp_path / "page", command="pellucid study neurons").read_text(encoding="utf-8")
    for each in claims(held):
        assert each.claim in page
        assert each.rule.replace("'", "&#x27;") in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    assert ">nan" not in page
    assert "chosen by three folds" in page
    tables = {path.stem for path in (tmp_path / "page" / "tables").iterdir()}
    assert tables >= {"verdicts", "rules", "claims", "layers", "smallest", "sets", "where", "classes", "faithful"}
    assert {each.name for each in read_cases(tmp_path / "page")} == {"made-up", "zoo-tagger"}


def test_figures_are_readable():
    drawn = [case(name) for name in ("all-MiniLM-L6-v2", "SmolLM2-135M-Instruct", "zoo:lm", "zoo:mlm", "zoo:tagger")]
    for draw in ("where", "classes", "faithful"):
        assert not faults(getattr(figures, draw)(drawn)), draw
    assert not faults(figures.layers(drawn, "pos"))
    assert not faults(figures.sets(drawn[0], "pos"))
    assert figures.layer_names(drawn[0].grids["layers pos"]) == [site[-1] for site in SITES]


def test_the_smallest_sets_in_the_table():
    (pos, number, relation) = rows.smallest_rows([case()])
    assert pos[4:] == ("71 (7.1%): 88%", "52 (5.2%): 88%", "23 (2.3%): 88%")
    assert number[4:] == ("300 (30%): 88%", "210 (21%): 88%", "97 (9.7%): 88%")
    assert relation[3].plain == pytest.approx(0.9)
    (row, *_) = rows.set_rows([case()])
    assert row[8].plain == pytest.approx(0.8 / 0.9)
    assert [cell.plain for cell in row[9:]] == pytest.approx([0.2, 0.4, 0.45])
    assert len(rows.control_rows([case()])) == 4
    (first, *_) = rows.faithful_rows([case(task=None)])
    assert first[6:] == ("no task", "", "")
