"""The thesis study as a whole, on tiny networks and generated English: numbers, claims, page and command."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.cli import main
from pellucid.model import Batch, Model
from pellucid.similarity.cka import debiased_cka
from pellucid.similarity.pair import pair_of_rows
from pellucid.studies.claims import StudyError
from pellucid.studies.thesis import rows
from pellucid.studies.thesis.claims import claims
from pellucid.studies.thesis.claims_layers import cut_of, settled
from pellucid.studies.thesis.gather import Reader, grouping_of, running_text
from pellucid.studies.thesis.running import RANDOM_SEED, SCALES, compute, generated, slow_epochs, wikitext
from pellucid.studies.thesis.tables import FORMAT, KINDS, Score, Study, read, write
from pellucid.train import Run
from pellucid.train.architectures import build


def command(*words: object) -> int:
    """Runs the command line in this process; its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["pellucid", *map(str, words)])
        try:
            main()
        except SystemExit as done:
            return int(done.code or 0)
    return 0


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """The smallest study, run once by its command: its page and numbers, and its two trainings."""
    place = tmp_path_factory.mktemp("thesis")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PELLUCID_DATA", raising=False)
        assert command("study", "thesis", "--smoke", "-o", place / "out") == 0
    return place / "out", place / "out-runs"


@pytest.fixture(scope="session")
def study(folders) -> Study:
    return read(folders[0])


# -- text and layers -----------------------------------------------------------------------------------------------


def test_the_generated_text_has_a_tag_for_every_word():
    texts = generated((20, 5, 5))
    for sentence in texts.tagger[0]:
        assert len(sentence.labels["tag"]) == len(sentence.text.split()) == len(sentence.words)
        assert all(sentence.labels["tag"])


def test_the_running_text_is_every_sentence_with_its_end(folders):
    tokenizer = Run.open(folders[1] / "lm").model().tokenizer
    corpus = generated((1, 30, 1)).lm[1]
    text = running_text(corpus, tokenizer)
    expected = [token for sentence in corpus for token in tokenizer(sentence.text)["input_ids"]]
    assert text.ids.tolist() == expected
    assert text.special.sum() == 30  # one </s> for each sentence
    assert (text.ids[text.special] == tokenizer.eos_token_id).all()
    assert (np.diff(text.groups) >= 0).all()
    assert 2 < len(np.unique(text.groups)) <= 10
    documents = [d for s in corpus for d in [s.document] * len(tokenizer(s.text)["input_ids"])]
    for name in set(documents):
        assert len({group for group, other in zip(text.groups, documents, strict=True) if other == name}) == 1


def test_words_are_counted_once_in_the_order_of_the_text(folders):
    tokenizer = Run.open(folders[1] / "lm").model().tokenizer
    text = running_text(generated((1, 40, 1)).lm[1], tokenizer)
    places = np.arange(5)[:, None] + 50 * np.arange(3)
    grouping, order = grouping_of(text, places, sample=6, seed=0)
    tokens = places.ravel()[order]
    assert (np.diff(tokens) > 0).all()
    assert set(tokens) == {token for token in places.ravel() if not text.special[token]}
    assert len(grouping.sample) == 6
    assert len(grouping.groups) == len(order)
    assert sum(grouping.sizes) == len(order)
    assert sum(grouping.sampled_sizes) == 6


def test_layers_are_those_of_each_window_alone(folders):
    """Place (row, column) of a layer is token `row mod length` of the window that holds it."""
    run = Run.open(folders[1] / "lm")
    reader = Reader(run.checkpoint(2), device="cpu")
    reader.load(run.checkpoint(1))
    ids = torch.randint(5, 300, (16, 3), generator=torch.Generator().manual_seed(1))
    found = reader.layers(ids, 8)
    assert len(found) == 6
    model = Model.load(run.checkpoint(1), device="cpu")
    for window in range(2):
        for column in range(3):
            piece = ids[8 * window : 8 * window + 8, column]
            alone = model.run(Batch.of_ids([piece.tolist()]), ["resid.1", "resid.6"])
            for layer, site in ((0, "resid.1"), (5, "resid.6")):
                assert torch.allclose(found[layer][8 * window : 8 * window + 8, column], alone[site][0], atol=1e-5)


def test_no_two_networks_begin_with_the_same_weights(folders):
    seeds = {Run.open(folders[1] / task).settings.seed for task in ("lm", "tagger")}
    assert len(seeds) == 2
    assert not seeds & {seed + RANDOM_SEED for seed in seeds}


# -- the numbers ---------------------------------------------------------------------------------------------------


def test_every_kind_of_number_is_there(study):
    kinds = {score.kind for score in (*study.scores, *study.curves)}
    assert kinds == set(KINDS)
    assert study.depth == {"lm": 6, "tagger": 2}
    assert study.last == 2
    assert len(study.of("between", "thesis", "thesis-svcca")) == 12
    assert len(study.of("within", "words", "rbf-cka:0.5")) == 21
    assert {each.left_epoch for each in study.of("epochs", "words", "cka")} == {0, 1, 2}
    for score in (*study.scores, *study.curves):
        numbers = [score.value, score.chance, score.sd, score.low, score.high, *score.without]
        assert np.isfinite([number for number in numbers if number is not None]).all()
        assert score.value == float(f"{score.value:.6g}")  # files stay small
    for score in study.of("between", "words", "cka"):
        assert score.low < score.value < score.high
        assert len(score.without) == len(study.facts["groups"]["words"]) == 10
        controls = (score.random_left, score.random_right, score.random_both)
        assert (None in controls) == (score.right not in ("lm.1", "lm.2"))


def test_a_network_is_alike_with_itself_and_not_with_a_random_one(study):
    for layout, name in (("thesis", "thesis-svcca"), ("thesis", "kornblith-cka"), ("words", "cka")):
        for layer in range(1, 7):
            curve = study.curve("final", layout, name, f"lm.{layer}")
            assert curve[-1].value == pytest.approx(1.0, abs=1e-5)
            assert curve[0].value < 0.95
            assert curve[0].random_left < 0.9
        same = study.one("within", layout, name, "lm.3", "lm.3")
        assert same.value == pytest.approx(1.0, abs=1e-5)


def words_of(model: Model, layer: int) -> np.ndarray:
    """A layer over the words of the validation text, window by window, [words, width]."""
    scale = SCALES["smoke"]
    text = running_text(generated(scale.lines).lm[1], model.tokenizer)
    step, kept = len(text.ids) // scale.columns, []
    for column in range(scale.columns):
        for window in range(scale.windows):
            start = column * step + 8 * window
            found = model.run(Batch.of_ids([text.ids[start : start + 8].tolist()]), [f"resid.{layer}"])
            kept.append(found[f"resid.{layer}"][0][torch.from_numpy(~text.special[start : start + 8])])
    return torch.cat(kept).numpy()


def test_numbers_are_those_of_the_networks(study, folders):
    """Trained and random networks over the words of the validation text, written out."""
    runs = {task: Run.open(folders[1] / task) for task in ("lm", "tagger")}
    trained, random = {}, {}
    for task, run in runs.items():
        model = run.model()
        trained[task] = words_of(model, 2)
        settings = replace(run.settings, seed=run.settings.seed + RANDOM_SEED)
        model.hf.load_state_dict(build(settings, model.tokenizer, run.labels).state_dict())
        random[task] = words_of(model, 2)

    def scored(left: np.ndarray, right: np.ndarray) -> float:
        return debiased_cka(pair_of_rows(left, right))

    ours = study.one("between", "words", "cka", "tagger.2", "lm.2")
    assert ours.value == pytest.approx(scored(trained["tagger"], trained["lm"]), abs=1e-4)
    assert ours.random_left == pytest.approx(scored(random["tagger"], trained["lm"]), abs=1e-4)
    assert ours.random_right == pytest.approx(scored(trained["tagger"], random["lm"]), abs=1e-4)
    assert ours.random_both == pytest.approx(scored(random["tagger"], random["lm"]), abs=1e-4)
    assert ours.random == max(ours.random_left, ours.random_right, ours.random_both)
    assert study.facts["text"]["words"] == len(trained["lm"])


def test_noise_scores_what_chance_gives(study):
    for name, found in study.facts["noise"].items():
        assert abs(found["value"] - found["chance"]) < 5 * found["sd"] + 0.01, name


def test_slow_scores_are_worked_out_for_some_epochs():
    assert slow_epochs(range(51), 5) == {0, 1, *range(5, 51, 5)}
    assert slow_epochs([0, 1, 2, 3], 2) == {0, 1, 2, 3}


# -- claims --------------------------------------------------------------------------------------------------------


def changed(study: Study, rule) -> Study:
    """The study with some numbers changed: `rule` gives a score's new fields, or None."""

    def new(score: Score) -> Score:
        return replace(score, **(rule(score) or {}))

    return Study(study.facts, tuple(map(new, study.scores)), tuple(map(new, study.curves)))


def verdict(study: Study, start: str) -> str:
    (found,) = [each for each in claims(study) if each.claim.startswith(start)]
    assert found.found
    assert found.rule
    return found.verdict


def test_claims_follow_the_numbers(study):
    start = "CKA shows that the first two layers"

    def learned(score):
        if score.kind == "between":
            return {"value": 0.9, "low": None if score.layout == "thesis" else 0.85, "random_both": 0.5}
        return None

    def short(score):
        if score.kind == "between" and score.layout == "words":
            return {"value": 0.9, "low": 0.45, "random_both": 0.5}
        return None

    low = changed(study, lambda score: {"random_left": 0.4, "random_right": 0.3, "random_both": 0.5})
    assert verdict(changed(low, learned), start) == "stands"
    assert verdict(changed(changed(low, learned), short), start) == "only in the thesis's layout"
    assert verdict(changed(changed(low, learned), lambda score: {"random_both": 0.95}), start) == "does not stand"


def test_the_published_svcca_is_what_noise_gives(study):
    found = next(each for each in claims(study) if each.claim.startswith("SVCCA finds"))
    assert found.thesis is False
    assert "noise 0.444" in found.found


def test_clusters_are_found_where_they_are():
    grid = np.full((6, 6), 0.3)
    grid[:4, :4], grid[4:, 4:] = 0.9, 0.8
    below, gap = cut_of(grid)
    assert below == 4
    assert gap == pytest.approx((6 * 0.9 + 0.8) / 7 - 0.3)
    assert cut_of(grid[::-1, ::-1])[0] == 2


def test_the_claim_of_clusters_is_judged_by_the_grid(study):
    def four_and_two(score):
        if score.kind != "within":
            return None
        one, other = (int(name[-1]) <= 4 for name in (score.left, score.right))
        return {"value": 0.9 if one == other else 0.4, "random_both": 0.99}

    start = "Within the language model, the first four"
    assert verdict(changed(study, four_and_two), start) == "stands"

    def three_and_three(score):
        if score.kind != "within":
            return None
        one, other = (int(name[-1]) <= 3 for name in (score.left, score.right))
        return {"value": 0.9 if one == other else 0.4, "random_both": 0.99}

    assert verdict(changed(study, three_and_three), start) == "does not stand"


def test_a_difference_is_judged_by_its_own_interval(study):
    """Own layers score higher by .1 everywhere; with one group that says otherwise, the interval reaches below 0."""

    def own(score):
        if score.kind != "between" or score.layout != "words" or not score.score.startswith("rbf"):
            return None
        value = 0.8 if score.left[-1] == score.right[-1] else 0.7
        return {"value": value, "without": tuple([value] * 10)}

    def unsure(score):
        found = own(score)
        if found is None or score.left[-1] != score.right[-1]:
            return found
        return {**found, "without": (0.2, *[0.8] * 9)}

    def flat(score):
        if score.kind == "between" and score.layout == "words" and not score.score.startswith("rbf"):
            return {"value": 0.5, "without": tuple([0.5] * 10)}
        return None

    base = changed(study, flat)
    start = "Only CKA with Gaussian kernels"
    assert verdict(changed(base, own), start).startswith("stands")
    assert not verdict(changed(base, unsure), start).startswith("stands")


def test_when_a_curve_has_settled(study):
    curve = study.curve("target", "words", "cka", "tagger.1")
    values = (0.5, 0.89, 0.9)
    assert settled([replace(each, value=value) for each, value in zip(curve, values, strict=True)]) == 1
    values = (0.9, 0.7, 0.9)
    assert settled([replace(each, value=value) for each, value in zip(curve, values, strict=True)]) == 2
    assert verdict(study, "Tagger and trained language model are as alike") == "cannot be told from this run"


def test_training_scores_are_judged_on_the_whole_text_alone(study):
    assert verdict(study, "The tagger reaches") == "cannot be told from this run"
    whole = Study({**study.facts, "scale": {"name": "full", "about": ""}}, study.scores, study.curves)
    accuracy = study.facts["training"]["tagger"]["test"]["scores"]["accuracy"]
    assert verdict(whole, "The tagger reaches") == ("stands" if accuracy >= 0.922 else "does not stand")


# -- files, page and command ---------------------------------------------------------------------------------------


def test_numbers_are_written_and_read_alike(study, tmp_path):
    write(study, tmp_path)
    again = read(tmp_path)
    assert again == study
    (tmp_path / "two").mkdir()
    write(again, tmp_path / "two")
    for name in ("tables.json", "curves.json"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_what_is_no_study_is_refused(study, tmp_path):
    with pytest.raises(StudyError, match=r"tables.json' does not exist; give a folder"):
        read(tmp_path)
    write(study, tmp_path)
    (tmp_path / "curves.json").write_text("{")
    with pytest.raises(StudyError, match="is damaged"):
        read(tmp_path)
    (tmp_path / "curves.json").write_text(json.dumps({"study": "thesis", "format": FORMAT + 1}))
    with pytest.raises(StudyError, match=f"does not hold a thesis study of format {FORMAT}"):
        read(tmp_path)


def test_what_was_not_compared_is_said(study):
    with pytest.raises(StudyError, match="no numbers between/words/pwcca; it has between/thesis/cca"):
        study.of("between", "words", "pwcca")
    with pytest.raises(StudyError, match=r"did not compare tagger.1 and lm.9"):
        study.one("between", "words", "cka", "tagger.1", "lm.9")


def test_the_page_has_every_table_and_needs_nothing_else(study, folders):
    page = folders[0] / "thesis.html"
    text = page.read_text(encoding="utf-8")
    assert "http" not in text.replace("http-equiv", "")
    for table in rows.all_rows(study):
        assert (page.parent / "tables" / f"{table.name}.csv").is_file()
        for row in table.rows:
            assert all(len(row) == len(table.columns) for row in table.rows)
            assert row[-1].split(" (")[0].replace("'", "&#x27;") in text
    for claim in claims(study):
        assert claim.verdict.replace("'", "&#x27;") in text
    assert text.count("<svg") == 14


def test_tables_as_markdown():
    table = rows.Rows("x", "…", ("a", "b"), (("one", "0.5"), ("t|wo", "−1.0 to 2")))
    assert table.markdown() == "| a | b |\n| --- | ---: |\n| one | 0.5 |\n| t\\|wo | −1.0 to 2 |"
    assert rows.number(-0.0001) == "0.000"
    assert rows.number(-0.01, 2) == "−0.01"


def test_the_command_draws_from_a_folder(folders, tmp_path, capfd):
    assert command("study", "thesis", "--from", folders[0], "-o", tmp_path / "o") == 0
    told = capfd.readouterr().out
    assert "93.2%" in told
    assert "163.8" in told
    assert "thesis.html" in told
    for name in ("tables.json", "curves.json"):
        assert (tmp_path / "o" / name).read_bytes() == (folders[0] / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--quick", "--smoke"], "give one of them"),
        (["--quick"], "needs WikiText-2 with its tags"),
        (["--data", "nowhere"], "'train.txt' is not in 'nowhere'"),
        (["--from", "nowhere"], "does not exist"),
    ],
)
def test_what_the_command_refuses(words, message, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PELLUCID_DATA", raising=False)
    assert command("study", "thesis", *words, "-o", "out") == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_unknown_scale_lists_the_known(tmp_path):
    with pytest.raises(StudyError, match="there are full, quick, smoke"):
        compute(tmp_path / "out", runs=tmp_path / "runs", scale="huge")


def test_text_with_its_tags_is_read_from_a_folder(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(" the cat sleeps \n \n a dog barks \n a bird sings \n")
        (tmp_path / f"{split}.tags").write_text("D N V\n\nD N V\nD N V\n")
    texts = wikitext(tmp_path, (3, 2, 1))
    assert [len(list(corpus)) for corpus in texts.lm] == [3, 2, 1]
    for one, other in zip(texts.lm, texts.tagger, strict=True):
        assert [s.text.split() for s in one] == [list(s.words) for s in other]
    assert next(iter(texts.tagger[0])).labels == {"tag": ("D", "N", "V")}
