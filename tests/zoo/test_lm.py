"""zoo:lm is the model that its card describes: its files, its scores, and that it has learned something."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from pellucid import zoo
from pellucid.model import Batch, Model
from pellucid.model.sites import describe
from recipes import wikitext
from recipes.lm_scores import repeated_tokens

SENTENCES = [
    "The film was released in the United States in 2005.",
    "He was born in New York City and died in London.",
    "The ship was built in the late 19th century and was used during the war.",
    "It was the first time that the team had won the championship.",
]


@pytest.fixture(scope="module")
def model():
    return Model.load("zoo:lm")


@pytest.fixture(scope="module")
def facts():
    return zoo.card("lm").facts


def surprises(model, ids):
    """The loss of every token but the first, [B, T − 1]."""
    logits = model.run(Batch.of_ids(ids)).logits
    return functional.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")


def test_it_opens_with_every_kind_of_site(model, facts):
    shape = facts["architecture"]
    last = shape["layers"] - 1
    assert not model.missing
    for kind in ("query", "key", "value", "pattern", "heads", "attn", "mid", "neurons", "mlp"):
        assert f"{kind}.0-{last}" in describe(model.sites)
    assert model.size("resid.0") == (shape["width"],)
    assert model.size(f"heads.{last}")[0] == shape["heads"]
    assert model.limit == shape["context"]
    assert sum(weight.numel() for weight in model.hf.parameters()) == facts["parameters"]


def test_its_files_are_whole_and_small(facts):
    assert {*zoo.verify("lm"), "README.md", "card.json"} == {item.name for item in zoo.path("lm").iterdir()}
    assert zoo.card("lm").size <= 6_000_000
    assert {item.name for item in zoo.path("lm").iterdir()} == {
        *("README.md", "card.json", "config.json", "generation_config.json"),
        *("model.safetensors", "tokenizer.json", "tokenizer_config.json"),
    }


def test_the_page_of_the_card_holds_its_figures(facts):
    page = (zoo.path("lm") / "README.md").read_text(encoding="utf-8")
    for split in ("valid", "test"):
        for unit in ("token", "word"):
            figure = facts["scores"][split][f"perplexity_per_{unit}"]
            assert (f"{figure:.1f}" if figure < 1000 else f"{figure:,.0f}") in page
    for digest in facts["sha256"].values():
        assert digest in page
    assert "CC BY-SA 3.0" in page


def test_perplexities_agree_with_losses_and_counts(facts):
    scores, data = facts["scores"], facts["data"]
    for group in (scores, scores["unigram"], scores["untrained"]):
        for split in ("valid", "test"):
            nats = group[split]["loss"] * data["tokens"][split]
            assert group[split]["perplexity_per_token"] == pytest.approx(math.exp(group[split]["loss"]))
            assert group[split]["perplexity_per_word"] == pytest.approx(math.exp(nats / data["words"][split]))
    chance = math.log(facts["architecture"]["vocabulary"])
    for split in ("valid", "test"):
        assert scores[split]["loss"] < scores["unigram"][split]["loss"] < scores["untrained"][split]["loss"]
        assert scores["untrained"][split]["loss"] == pytest.approx(chance, abs=0.1)


def test_the_excerpt_on_the_card_scores_as_the_card_says(model, facts):
    """Computed here from plain logits, row by row, each beginning half a context before the first token it adds."""
    excerpt, context = facts["scores"]["excerpt"], facts["architecture"]["context"]
    text = [*model.tokenizer(excerpt["text"])["input_ids"][1:], 0]
    total, done = 0.0, 0
    while done < len(text):
        begin = max(0, done - context // 2)
        piece = text[begin : begin + context]
        logits = model.run(Batch.of_ids(torch.tensor([[0, *piece[:-1]]]))).logits[0]
        losses = functional.cross_entropy(logits, torch.tensor(piece), reduction="none")
        total += float(losses[done - begin :].sum())
        done = begin + len(piece)
    assert len(text) == excerpt["tokens"]
    assert total / len(text) == pytest.approx(excerpt["loss"], abs=2e-3)


def test_the_first_test_articles_score_as_the_card_says(model, facts):
    folder = wikitext.find_data()
    if folder is None:
        pytest.skip("WikiText-2 is not here: set PELLUCID_DATA to the folder that holds wikitext2/")
    from recipes.lm_scores import score

    kept = facts["scores"]["first_test_articles"]
    articles = wikitext.read(folder)["test"].articles
    assert articles[0].startswith(facts["scores"]["excerpt"]["text"])
    ids = [[*model.tokenizer(article)["input_ids"], 0] for article in articles[: kept["articles"]]]
    found = score(model.hf, ids, rows=16)
    assert found.tokens == kept["tokens"]
    assert found.per_token == pytest.approx(kept["loss"], abs=2e-3)


def test_it_knows_more_than_chance_and_more_than_frequency(model, facts):
    """Grammatical sentences, and the same words in reverse order, which frequency alone cannot tell apart."""
    chance = math.log(facts["architecture"]["vocabulary"])
    forward, backward = [], []
    for sentence in SENTENCES:
        ids = model.tokenize(sentence).ids
        forward.append(float(surprises(model, ids).mean()))
        turned = torch.cat([ids[:, :1], ids[:, 1:].flip(1)], dim=1)
        backward.append(float(surprises(model, turned).mean()))
    assert max(forward) < chance - 2
    assert sum(backward) > sum(forward) + len(SENTENCES)


def test_it_generates_text_without_unknown_words(model):
    greedy = model.generate("The city of", max_new_tokens=20)
    assert greedy.texts[0].strip()
    assert 1 not in greedy.ids
    sampled = [model.generate("The city of", max_new_tokens=40, temperature=1.0, seed=seed) for seed in range(3)]
    assert len({tuple(one.ids[0].tolist()) for one in sampled}) == 3
    assert all(1 not in one.ids for one in sampled)


def test_texts_begin_with_the_start_token_and_come_back_whole(model):
    text = 'In 1998, "role-playing" cost £1.5 (or more): naïve 戦場!'
    ids = model.tokenize(text).ids[0].tolist()
    assert ids[0] == 0
    assert 0 not in ids[1:]
    assert 1 not in ids
    assert model.tokenizer.decode(ids[1:]) == text
    assert model.tokenizer("a <unk> b")["input_ids"].count(1) == 1


def test_repetition_is_taken_as_the_card_says(model, facts):
    """Random tokens said twice: losses and the head that looks back, read through Pellucid's own patterns."""
    card, shape = facts["scores"]["induction"], facts["architecture"]
    length = min(64, (shape["context"] - 1) // 2)
    ids = repeated_tokens(shape["vocabulary"], 0, length=length)
    assert torch.equal(ids[:, 1 : length + 1], ids[:, length + 1 :])
    losses = surprises(model, ids)
    assert float(losses[:, :length].mean()) == pytest.approx(card["first"], abs=5e-3)
    assert float(losses[:, length + 1 :].mean()) == pytest.approx(card["second"], abs=5e-3)

    def looking_back(site, pattern):
        return torch.stack([pattern[:, :, t, t - length + 1] for t in range(length + 1, 2 * length)]).mean((0, 1))

    heads = torch.stack(list(model.run(Batch.of_ids(ids), "pattern.*", reduce=looking_back).values()))
    assert divmod(int(heads.argmax()), shape["heads"]) == (card["layer"], card["head"])
    assert float(heads.max()) == pytest.approx(card["attention"], abs=5e-3)
