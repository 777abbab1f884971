"""The recipes of the zoo: data as people write it, splits without overlap, and a small model made from end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import PellucidError
from pellucid.model import Model
from recipes import cards, lm_card, zoo_card, zoo_data
from recipes import zoo as recipe_zoo
from recipes.finished import finished
from recipes.zoo_data import Splits
from recipes.zoo_models import RECIPES, SENTIMENT


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("it 's a charming , funny film .", "It's a charming, funny film."),
        ("they wo n't sit still", "They won't sit still"),
        ("this is no `` waterboy ! ''", 'This is no "waterboy!"'),
        ("A man 's hat ( red ) . ", "A man's hat (red)."),
    ],
)
def test_tokenised_text_is_read_as_people_write_it(raw, wanted):
    assert zoo_data.plain(raw) == wanted


def test_articles_are_packed_into_rows_without_losing_a_word():
    sentences = [f"Sentence {number} has exactly {'some ' * 30}words." for number in range(40)]
    article = "= Title =\n" + " ".join(sentences[:25]) + "\n" + " ".join(sentences[25:]) + "\n"
    rows = list(zoo_data.packed(article))
    assert " ".join(rows).split() == article.split()
    counts = [len(row.split()) for row in rows]
    assert max(counts) <= zoo_data.WORDS
    assert min(counts[:-1]) > zoo_data.WORDS - 40  # no sentence more would have fitted


def test_premises_that_choose_are_not_those_that_teach(tmp_path):
    lines = [f"Premise {number // 3} ." for number in range(90)]
    for split in ("dev", "test"):
        (tmp_path / "esnli").mkdir(exist_ok=True)
        (tmp_path / "esnli" / f"s1.{split}").write_text("\n".join(lines) + "\n")
        (tmp_path / "esnli" / f"s2.{split}").write_text("\n".join(f"{line} {split}" for line in lines) + "\n")
        (tmp_path / "esnli" / f"labels.{split}").write_text("neutral\nentailment\ncontradiction\n" * 30)
    splits = zoo_data.premises(tmp_path)
    train, valid = ({sentence.text for sentence in corpus} for corpus in (splits.train, splits.valid))
    assert not train & valid
    assert len(list(splits.train)) == 81
    assert len(list(splits.valid)) == 9
    assert all(sentence.second.text.endswith("dev") for sentence in (*splits.train, *splits.valid))
    assert all(sentence.second.text.endswith("test") for sentence in splits.test)
    assert len(list(splits.test)) == 90


def test_absent_data_is_named(tmp_path):
    with pytest.raises(PellucidError, match=r"lacks sst2/train\.tsv, sst2/dev\.tsv, sst2/test\.tsv"):
        zoo_data.reviews(tmp_path)


def test_every_recipe_fits_its_task():
    for recipe in RECIPES.values():
        for number in range(len(recipe.candidates)):
            chosen = recipe_zoo.Chosen(Path(), Path(), "cpu", "zoo:lm", None, {})
            settings = chosen.settings(recipe, recipe.candidates[number])
            assert settings.task == recipe.task
            assert settings.source in (None, "zoo:lm")
            assert settings.seed == 0


def test_the_page_of_zoo_lm_is_made_from_its_card():
    from pellucid import zoo

    page = (zoo.path("lm") / "README.md").read_text(encoding="utf-8")
    assert lm_card.readme(dict(zoo.card("lm").facts)) == page


@pytest.mark.parametrize(("value", "poor"), [(0.5, True), (0.59, True), (0.61, False), (1.0, False)])
def test_a_model_that_learned_little_says_so(value, poor):
    scores = {"test": {"accuracy": value}, "valid": {"accuracy": 1.0}, "chance": {"test": {"accuracy": 0.2}}}
    scores["chance"]["valid"] = {"accuracy": 0.2}
    told = zoo_card.verdict(scores, "accuracy")
    assert f"{value:.1%}, where chance gives 20.0%" in told
    assert ("could not be learned well" in told) == poor


def test_a_score_that_was_not_measured_is_a_dash():
    scores = {
        "test": {"loss": 1.0, "bleu": 9.0},
        "valid": {"loss": 1.0},
        "chance": {"valid": {"loss": 2.0}, "test": {}},
    }
    table = zoo_card._table(scores).splitlines()
    assert table[0] == "| | valid | valid: chance | test | test: chance |"
    assert table[2] == "| loss (lower is better) | 1.00 | 2.00 | 1.00 | – |"
    assert table[3] == "| BLEU | – | – | 9.0 | – |"


def test_intervals_stand_beside_their_scores():
    scores = {
        "test": {"accuracy": 0.8, "f1": 0.7},
        "valid": {"accuracy": 0.9, "f1": 0.9},
        "chance": {"valid": {"accuracy": 0.5, "f1": 0.3}, "test": {"accuracy": 0.5, "f1": 0.3}},
        "interval": {"test": {"accuracy": [0.75, 0.85]}},
    }
    table = zoo_card._table(scores).splitlines()
    assert table[0] == "| | valid | valid: chance | test | test: 95% interval | test: chance |"
    assert table[1].count("---") == 6
    assert table[2] == "| accuracy | 90.0% | 50.0% | 80.0% | 75.0% to 85.0% | 50.0% |"
    assert table[3] == "| F1 | 90.0% | 30.0% | 70.0% | – | 30.0% |"
    assert "80.0% (95% interval 75.0% to 85.0%), where chance" in zoo_card.verdict(scores, "accuracy")


def reviews(data: Path) -> Splits:
    """Easy reviews: one word decides."""
    words = {"positive": "lovely", "negative": "dreadful"}
    made = [
        Sentence.of_text(f"The {noun} is {word} number {number}.", id=f"{noun}{number}{label}", facts={"label": label})
        for number in range(12)
        for noun in ("film", "plot")
        for label, word in words.items()
    ]
    return Splits(Corpus.of(made), Corpus.of(made[:16]), Corpus.of(made[16:32]), {"again": Corpus.of(made[:8])})


TINY = replace(
    SENTIMENT,
    read=reviews,
    settings={
        "layers": 1,
        "width": 16,
        "heads": 2,
        "feed_forward": 32,
        "length": 64,
        "vocabulary_size": 300,
        "batch": 8,
    },
    candidates=({"learning_rate": 1e-6, "epochs": 1}, {"learning_rate": 0.02, "epochs": 6}),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, recipe_zoo.Chosen]:
    place = tmp_path_factory.mktemp("zoo")
    chosen = recipe_zoo.Chosen(place, place / "runs", "cpu", "zoo:mlm", None, {})
    with finished(place / "sentiment") as folder:
        recipe_zoo.make(TINY, folder, chosen, workers=1, command="python -m recipes.zoo sentiment")
    return place / "sentiment", chosen


def test_a_model_is_made_from_data_to_card(made):
    folder, _ = made
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    assert [one["chosen"] for one in card["candidates"]] == [False, True]
    assert card["candidates"][1]["valid"] > card["candidates"][0]["valid"]
    assert card["scores"]["test"]["accuracy"] == 1.0
    assert card["scores"]["chance"]["test"]["accuracy"] == 0.5
    assert card["scores"]["interval"]["test"].keys() == {"loss", "accuracy", "f1"}
    assert set(card["scores"]["chance"]) == {"valid", "test", "again"}
    assert card["licence"] == "Apache-2.0"  # it does not start from zoo:mlm
    assert not [term for term in card["data"]["terms"] if "zoo:mlm" in term]
    assert card["data"]["sizes"]["train"]["sentences"] == 48
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert page == zoo_card.readme(card)
    assert "learning rate 0.02, epochs 6: 100.0%" in page
    assert "SST-2: no licence is stated" in page


def test_the_saved_weights_are_half_precision_and_are_the_ones_scored(made):
    folder, _ = made
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        kinds = {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    assert kinds == {torch.float16}
    model = Model.load(folder, device="cpu")
    assert type(model.hf).__name__ == "BertForSequenceClassification"
    assert model.hf.config.id2label == {0: "negative", 1: "positive"}
    loss = []
    for sentence in reviews(folder).test:
        logits = model.run(sentence.text).output["logits"][0].log_softmax(-1)
        loss.append(-float(logits[["negative", "positive"].index(sentence.facts["label"])]))
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    assert sum(loss) / len(loss) == pytest.approx(card["scores"]["test"]["loss"], abs=1e-4)


def test_scoring_again_changes_nothing_but_what_is_scored(made):
    folder, chosen = made
    before = (folder / "card.json").read_text(encoding="utf-8")
    recipe_zoo.again(TINY, folder, chosen)
    assert (folder / "card.json").read_text(encoding="utf-8") == before
    shorter = replace(chosen, first=12)
    recipe_zoo.again(TINY, folder, shorter)
    after = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    assert after["data"]["sizes"]["test"]["sentences"] == 12
    recipe_zoo.again(TINY, folder, chosen)
    assert (folder / "card.json").read_text(encoding="utf-8") == before


def test_runs_that_are_finished_are_not_trained_again(made):
    """So a recipe that was killed goes on where it was; the winner is the run with the better validation score."""
    _, chosen = made
    times = {path: path.stat().st_mtime_ns for path in chosen.runs.glob("*/log.csv")}
    winner, _ = recipe_zoo.best(TINY, chosen, reviews(Path()), 1)
    assert winner.finished
    assert winner.folder == chosen.runs / "sentiment-1"
    assert len(times) == 2
    assert {path: path.stat().st_mtime_ns for path in chosen.runs.glob("*/log.csv")} == times


def test_a_recipe_that_fails_leaves_the_old_folder(tmp_path):
    out = tmp_path / "model"
    out.mkdir()
    (out / "card.json").write_text("old")

    def fail() -> None:
        with finished(out) as folder:
            (folder / "card.json").write_text("half")
            raise PellucidError("broken")

    with pytest.raises(PellucidError, match="broken"):
        fail()
    assert (out / "card.json").read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["model"]
    with finished(out) as folder:
        (folder / "card.json").write_text("new")
    assert (out / "card.json").read_text() == "new"


def test_a_folder_that_holds_something_else_is_not_replaced(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(SystemExit, match="was not made by this recipe"), finished(tmp_path):
        pass
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_hashes_are_of_the_files(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "tokenizer.json").write_bytes(b"words")
    (tmp_path / "README.md").write_text("an older page")
    cards.write(tmp_path, {"name": "x"}, lambda card: f"# {card['name']}")
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["sha256"] == {
        "model.safetensors": "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c",
        "tokenizer.json": "dba36bffa5cab0f922d087a3aeb179f9d4e745df40b323e1b1471402848c8a3e",
    }
    assert (tmp_path / "README.md").read_text() == "# x"
