"""Every model of the zoo is what its card says: files, head, scores better than chance, and what it says to a text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pellucid import zoo
from pellucid.corpus import Corpus
from pellucid.model import Model
from pellucid.model.loading import open_source
from pellucid.train import Settings
from recipes import notice, zoo_card, zoo_data, zoo_scores
from recipes.zoo_models import RECIPES
from tests.corpus.real_data import real

ROOT = Path(__file__).parents[2]
HEADS = {
    "mlm": "BertForMaskedLM",
    "tagger": "BertForTokenClassification",
    "sentiment": "BertForSequenceClassification",
    "nli": "BertForSequenceClassification",
    "qa": "BertForQuestionAnswering",
    "translate": "MarianMTModel",
}
NAMES = tuple(HEADS)
LABELS = {"sentiment": ["negative", "positive"], "nli": ["contradiction", "entailment", "neutral"]}
UPOS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"


@pytest.fixture(scope="module")
def opened():
    """Each model once."""
    models: dict[str, Model] = {}

    def open_one(name: str) -> Model:
        if name not in models:
            models[name] = Model.load(f"zoo:{name}", device="cpu", dtype=torch.float32)
        return models[name]

    return open_one


def test_half_precision_is_of_the_disk_alone():
    """Elsewhere than on a CPU, other models run as their checkpoint is; these are small, and run in float32 too."""
    wanted = {"head": "auto", "dtype": None, "attention": "fused", "allow_pickle": False, "new_head": False}
    opened = open_source("zoo:sentiment", device="meta", tokenizer=None, **wanted)
    assert opened.module.dtype == torch.float32
    elsewhere = open_source(zoo.path("sentiment"), device="meta", tokenizer=None, **wanted)
    assert elsewhere.module.dtype == torch.float16


def test_every_model_has_a_recipe_and_all_are_small():
    assert {card.name for card in zoo.models()} == {"lm", *HEADS} == {"lm", *RECIPES}
    assert sum(card.size for card in zoo.models()) <= 24_000_000


@pytest.mark.parametrize("name", NAMES)
def test_files_are_those_of_the_card_in_half_precision(name):
    assert {*zoo.verify(name), "README.md", "card.json"} == {item.name for item in zoo.path(name).iterdir()}
    with safe_open(zoo.path(name) / "model.safetensors", framework="pt") as file:
        assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.float16}  # noqa: SIM118
    page = (zoo.path(name) / "README.md").read_text(encoding="utf-8")
    card = zoo.card(name)
    assert page == zoo_card.readme(dict(card.facts))
    low, high = card.scores["interval"]["test"][card.main.metric]
    assert low < card.main.value < high
    assert not low < card.main.chance < high


def test_the_notice_says_what_the_cards_say_and_is_packed():
    assert notice.FILE.read_text(encoding="utf-8") == notice.notice()
    assert 'license-files = ["LICENSE", "NOTICE"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_it_opens_with_its_head_and_all_its_sites(opened, name):
    model, card = opened(name), zoo.card(name)
    assert type(model.hf).__name__ == HEADS[name]
    assert sum(weight.numel() for weight in model.hf.parameters()) == card.parameters
    layers = card.facts["architecture"]["layers"]
    stacks = ("encoder.", "decoder.") if name == "translate" else ("",)
    wanted = {
        f"{stack}{kind}.{layer}"
        for stack in stacks
        for kind in ("pattern", "heads", "neurons", "attn", "mlp")
        for layer in range(layers)
    }
    assert wanted <= {str(site) for site in model.sites}
    labels = list(model.hf.config.id2label.values())
    if name in LABELS:
        assert labels == LABELS[name]
    if name == "tagger":
        assert labels == UPOS.split()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_better_than_chance_on_its_test_text(name):
    main = zoo.card(name).main
    assert main.metric == RECIPES[name].main
    better = main.value < main.chance if main.metric == "perplexity" else main.value > main.chance
    assert better
    told = zoo.card(name).facts["verdict"]
    assert str(main) in told.replace(" is ", " ")


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_the_card_says_it_says(opened, name):
    for example in zoo.card(name).facts["examples"]:
        found = zoo_scores.said(opened(name), RECIPES[name].task, example["texts"])
        assert found == example["said"]


@pytest.mark.parametrize("name", LABELS)
def test_classes_by_transformers_alone_are_those_of_the_card(name):
    folder = zoo.path(name)
    network = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for example in zoo.card(name).facts["examples"]:
        encoded = tokenizer(*example["texts"], return_tensors="pt")
        if name == "nli":
            assert encoded["token_type_ids"].max() == 1
        with torch.no_grad():
            chances = network(**encoded).logits[0].softmax(-1)
        assert example["said"] == f"{LABELS[name][int(chances.argmax())]} ({float(chances.max()):.0%})"


def given_text(name: str) -> Corpus:
    """The test text of a model alone, without what it was trained on."""
    if name == "qa":
        return Corpus.questions(zoo_data.QUESTIONS["test"], seed=2)
    files = {
        "mlm": ["wikitext2/train.txt"],
        "tagger": ["ud_english_ewt/en_ewt-ud-test.conllu"],
        "sentiment": ["sst2/test.tsv"],
        "nli": ["esnli/s1.test", "esnli/s2.test", "esnli/labels.test"],
        "translate": ["multi30k/test_2016_flickr.en", "multi30k/test_2016_flickr.de"],
    }
    paths = real(*files[name])
    read = {
        "mlm": lambda _: zoo_data.articles(paths[0].parents[1]).test,
        "tagger": Corpus.conllu,
        "sentiment": lambda path: Corpus.of(zoo_data.read_reviews(path)),
        "nli": lambda *parts: Corpus.of(zoo_data.read_inferences(*parts)),
        "translate": Corpus.parallel,
    }
    return read[name](*paths)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_sentences_of_the_test_text_score_as_the_card_says(opened, name):
    facts = zoo.card(name).facts
    kept = dict(facts["scores"]["first_of_test"])
    settings = Settings.of_json({**facts["settings"], "source": None})
    found = zoo_scores.Scorer(opened(name), settings).score(given_text(name).take(kept.pop("sentences")))
    for metric, value in kept.items():
        assert found[metric] == pytest.approx(value, rel=5e-3, abs=5e-3), metric
