"""Attribution over a corpus: shares by groups of tokens, as a plain loop over single texts gives them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from pellucid.attribution import attribute, over_corpus
from pellucid.attribution.over_corpus import _attributed, _Done, _Wanted, spelled
from pellucid.attribution.shares import Shares
from pellucid.attribution.targets import Target
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import AttributionError
from pellucid.model import Batch, Model
from pellucid.results import Result
from tests.tiny_models import network, word_tokenizer

PIECES = [
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    "the",
    "dog",
    "cab",
    "##in",
    "##et",
    "red",
    "runs",
    "a",
    "old",
    "key",
    "##s",
]
TAGS = {"the": "DET", "a": "DET", "dog": "NOUN", "cabinet": "NOUN", "keys": "NOUN", "red": "ADJ", "old": "ADJ"}
TEXTS = (
    ("the red dog runs", "one"),
    ("a cabinet", "one"),
    ("the old keys runs the red cabinet", "two"),
    ("red keys", "three"),
    ("the dog", "three"),
    ("a old red cabinet runs", "four"),
    ("keys", "five"),
)


def pieces() -> PreTrainedTokenizerFast:
    """Sub-words: `cabinet` is three tokens, `keys` two; every text stands between [CLS] and [SEP]."""
    core = Tokenizer(models.WordPiece({piece: place for place, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    named = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, **named)


def classifier(seed: int = 0) -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
        initializer_range=0.5,
        num_labels=3,
    )
    torch.manual_seed(seed)
    return BertForSequenceClassification(config).eval()


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(classifier(), tokenizer=pieces())


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.of(
        [
            Sentence.of_words(
                text.split(),
                id=str(number),
                document=document,
                labels={"upos": [TAGS.get(word) for word in text.split()]},
                facts={"length": "short" if len(text.split()) < 3 else "long"},
            )
            for number, (text, document) in enumerate(TEXTS)
        ]
    )


def words_of(text: str) -> list[int]:
    """The word of each token between [CLS] and [SEP], written out."""
    sizes = {"cabinet": 3, "keys": 2}
    return [number for number, word in enumerate(text.split()) for _ in range(sizes.get(word, 1))]


def by_hand(model: Model, texts, method: str, site: str, group) -> dict[str, tuple[float, float, float]]:
    """Share, signed share and chance of every group, by a loop over single texts; `group(text, token)` names it."""
    found: dict[str, list[float]] = {}
    for text, _ in texts:
        values = attribute(model, text, method=method, sites=site, steps=10).values[0, 0, 0, 1:-1]
        total = sum(abs(value) for value in values)
        for token, value in enumerate(values):
            held = found.setdefault(group(text, token), [0.0, 0.0, 0.0])
            held[0] += abs(value) / total
            held[1] += value / total
            held[2] += 1 / len(values)
    return {
        name: (share / len(texts), signed / len(texts), by / len(texts)) for name, (share, signed, by) in found.items()
    }


def tag(text: str, token: int) -> str:
    return TAGS.get(text.split()[words_of(text)[token]], "(none)")


# -- the same as a plain loop ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["integrated_gradients", "conductance", "gradient_x_activation"])
def test_equal_to_a_plain_loop(model, corpus, method):
    told = over_corpus(model, corpus, method=method, sites="embed,resid.1", group="upos", steps=10)
    for place, site in enumerate(("embed", "resid.1")):
        expected = by_hand(model, TEXTS, method, site, tag)
        assert set(told.axes["group"]) == set(expected)
        for number, name in enumerate(told.axes["group"]):
            share, signed, by_chance = expected[name]
            cell = (0, 0, place, number)
            assert told.measure("share")[cell] == pytest.approx(share, abs=1e-5)
            assert told.measure("signed")[cell] == pytest.approx(signed, abs=1e-5)
            assert told.measure("lift")[cell] == pytest.approx(share / by_chance, abs=1e-4)
            assert told.null[told.place("measure", "share")][cell] == pytest.approx(by_chance, abs=1e-12)


def test_the_interval_leaves_out_whole_documents(model, corpus):
    """Five documents are five groups; the interval follows from estimates without each, written out."""
    told = over_corpus(model, corpus, group="upos", steps=10)
    names = list(dict.fromkeys(document for _, document in TEXTS))
    whole = by_hand(model, TEXTS, "ig", "embed", tag)["NOUN"][0]
    n, pseudo, centre, ratios = len(TEXTS), [], len(names) * whole, []
    for name in names:
        rest = [text for text in TEXTS if text[1] != name]
        ratio = n / (n - len(rest))
        other = by_hand(model, rest, "ig", "embed", tag)["NOUN"][0]
        pseudo.append(ratio * whole - (ratio - 1) * other)
        centre -= (1 - 1 / ratio) * other
        ratios.append(ratio)
    variance = sum((p - centre) ** 2 / (r - 1) for p, r in zip(pseudo, ratios, strict=True)) / len(names)
    reach = 2.7764451 * variance**0.5  # Student's t, 4 degrees of freedom
    cell = (0, 0, 0, 0, told.place("group", "NOUN"))
    assert told.low[cell] == pytest.approx(whole - reach, abs=1e-4)
    assert told.high[cell] == pytest.approx(whole + reach, abs=1e-4)
    assert "5 document groups" in told.resampled


def test_by_token_position_and_special(model, corpus):
    ids = {text: model.tokenize(text).ids[0, 1:-1].tolist() for text, _ in TEXTS}
    told = over_corpus(model, corpus, group="token", steps=10)
    expected = by_hand(model, TEXTS, "ig", "embed", lambda text, token: PIECES[ids[text][token]])
    assert {name: told.measure("share")[0, 0, 0, place] for place, name in enumerate(told.axes["group"])} == {
        name: pytest.approx(share, abs=1e-5) for name, (share, _, _) in expected.items()
    }
    places = over_corpus(model, corpus, group="position", steps=10)
    assert places.axes["group"] == tuple(str(place) for place in range(1, 11))  # [CLS] stands at 0 and is left out
    expected = by_hand(model, TEXTS, "ig", "embed", lambda _, token: str(token + 1))
    assert places.measure("share")[0, 0, 0] == pytest.approx([expected[n][0] for n in places.axes["group"]], abs=1e-5)
    kinds = over_corpus(model, corpus, group="special", steps=10)
    assert set(kinds.axes["group"]) == {"special", "text"}
    frequency = np.mean([2 / (len(ids[text]) + 2) for text, _ in TEXTS])
    assert kinds.null[0, 0, 0, 0, kinds.place("group", "special")] == pytest.approx(frequency)


def test_rare_groups_are_one(model, corpus):
    every = over_corpus(model, corpus, group="token", steps=4)
    few = over_corpus(model, corpus, group="token", steps=4, most=3)
    assert few.axes["group"] == (*every.axes["group"][:3], "(other)")
    assert few.measure("share")[..., 3] == pytest.approx(every.measure("share")[..., 3:].sum(-1))
    assert few.measure("share").sum() == pytest.approx(1)
    assert over_corpus(model, corpus, group="token", steps=4, most=10).axes["group"][10:] == ("(other)",)
    assert few.table("groups").columns["tokens"].sum() == every.table("groups").columns["tokens"].sum() == 32


def test_heads_and_several_targets(model, corpus):
    told = over_corpus(
        model, corpus, ["class:0", "class:2"], "conductance", "heads.*", by="head", group="special", steps=6
    )
    assert told.axes["place"] == ("heads.0:0", "heads.0:1", "heads.1:0", "heads.1:1")
    assert told.axes["target"] == ("class:0", "class:2")
    text, held = TEXTS[0][0], np.zeros(4)
    for text, _ in TEXTS:
        one = attribute(model, text, "class:2", "conductance", "heads.*", by="head", steps=6).values[0, 0]
        sizes = np.abs(one).sum(axis=1)
        held += sizes / sizes.sum() / len(TEXTS)
    places = told.table("places").columns
    assert places["share"][0, 1] == pytest.approx(held, abs=1e-5)
    assert places["chance"] == pytest.approx(0.25)
    without = over_corpus(model, corpus, "class:2", "conductance", "heads.*", by="head", group="upos", steps=6)
    assert without.table("places").columns["share"][0, 0] == pytest.approx(held, abs=1e-5)  # special tokens as well
    assert (places["low"] <= places["share"]).all()


# -- batches and padding ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["integrated_gradients", "conductance,saliency,smoothgrad"])
def test_batches_and_padding_change_nothing(model, corpus, method):
    options = {"sites": "embed,resid.1,heads.1", "group": "upos", "samples": 4}
    one = over_corpus(model, corpus, method=method, batch_tokens=1, **options)
    all_ = over_corpus(model, corpus, method=method, batch_tokens=10_000, **options)
    assert all_.values == pytest.approx(one.values, abs=1e-5)


def test_a_text_is_given_the_steps_that_it_needs_alone(model, corpus):
    one = over_corpus(model, corpus, group="upos", tolerance=1e-6, batch_tokens=1)
    all_ = over_corpus(model, corpus, group="upos", tolerance=1e-6, batch_tokens=10_000)
    assert all_.values == pytest.approx(one.values, abs=1e-5)
    loose = over_corpus(model, corpus, group="upos", tolerance=0.05)
    assert loose.provenance.arguments["most steps"] < all_.provenance.arguments["most steps"]


@pytest.mark.parametrize("causal", [True, False])
def test_raw_attributions_of_a_padded_batch(causal, model):
    """Row by row the numbers of a padded batch are those of the texts alone, at every place."""
    torch.manual_seed(1)
    if causal:
        config = GPT2Config(vocab_size=30, n_positions=32, n_embd=16, n_layer=2, n_head=2)
        model = Model.load(GPT2LMHeadModel(config).eval(), tokenizer=word_tokenizer())
    from pellucid.attribution.computing import Settings
    from pellucid.attribution.methods import chosen
    from pellucid.attribution.targets import asked
    from pellucid.collect.encode import Encoder, Reading
    from pellucid.model.sites import expand

    rows = [[4, 5, 9, 10, 4], [4, 5], [11, 12, 9]]
    mask = torch.tensor([[1] * len(row) + [0] * (7 - len(row)) for row in rows])
    ids = torch.tensor([row + [0] * (7 - len(row)) for row in rows])
    encoder = Encoder(model, Reading(pooling="all"))
    sites = expand("embed,resid.*,mlp.*,heads.*", model.sites)
    methods = chosen("integrated_gradients,conductance,gradient_x_activation,vargrad")
    wanted = _Wanted(
        model, encoder, asked(model, None), methods, sites, "site", False, Settings("zero", steps=8, samples=3)
    )
    found = dict(_attributed(wanted, Batch.of_ids(ids, mask), _Done("zero")))
    for number, row in enumerate(rows):
        alone = attribute(model, Batch.of_ids([row]), method=[m.name for m in methods], sites=sites, steps=8, samples=3)
        assert found[number][:, :, :, : len(row)] == pytest.approx(alone.values, abs=1e-5)
        assert (found[number][:, :, :, len(row) :] == 0).all()


def test_targets_that_are_the_same_for_some_texts_keep_their_places(model, corpus):
    """The predicted class is class 0, 1 or 2 of each text, and texts of many lengths end at many places."""
    told = over_corpus(model, corpus, ["predicted", "class:0", "class:1", "class:2"], group="upos", steps=6)
    assert told.axes["target"] == ("predicted class", "class:0", "class:1", "class:2")
    alone = over_corpus(model, corpus, "class:2", group="upos", steps=6)
    assert told.values[:, :, 3] == pytest.approx(alone.values[:, :, 0], abs=1e-6)


def test_steps_are_judged_also_where_no_sum_is_asked_for(model, corpus):
    """Heads and internal influence have no sum of their own; the input's tells how many steps are enough."""
    options = {"sites": "heads.0", "group": "upos", "tolerance": 1e-4}
    told = over_corpus(model, corpus, method="conductance", **options)
    assert told.provenance.arguments["most steps"] > 25
    influence = over_corpus(model, corpus, method="internal_influence", **options)
    assert influence.provenance.arguments["most steps"] > 25
    assert influence.axes["method"] == ("internal_influence",)


@pytest.mark.parametrize("method", ["ablation", "shapley", "lrp_attn"])
def test_methods_of_other_engines(model, corpus, method):
    one = over_corpus(model, corpus, method=method, group="upos", batch_tokens=1, samples=5)
    all_ = over_corpus(model, corpus, method=method, group="upos", batch_tokens=10_000, samples=5)
    assert all_.values == pytest.approx(one.values, abs=1e-5)
    assert all_.measure("share").sum() == pytest.approx(1)


# -- planted answers -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted() -> Model:
    """Only `red` has an embedding, so that only it can do anything on the way from nothing."""
    hf = classifier(seed=3)
    table = hf.get_input_embeddings().weight
    with torch.no_grad():
        kept = table[PIECES.index("red")].clone()
        table.zero_()
        table[PIECES.index("red")] = kept
    return Model.load(hf, tokenizer=pieces())


def test_the_one_token_that_matters_gets_everything(planted, corpus):
    told = over_corpus(planted, corpus, group="token", steps=8)
    shares = dict(zip(told.axes["group"], told.measure("share")[0, 0, 0], strict=True))
    assert shares["red"] == pytest.approx(1)
    assert sum(shares.values()) == pytest.approx(1)  # sentences without it do not count
    tags = over_corpus(planted, corpus, group="upos", steps=8)
    assert tags.measure("share")[0, 0, 0, tags.place("group", "ADJ")] == pytest.approx(1)
    counts = {
        "the red dog runs": 4,
        "the old keys runs the red cabinet": 10,
        "red keys": 3,
        "a old red cabinet runs": 7,
    }
    frequency = np.mean([(text.count("red") + text.count("old")) / n for text, n in counts.items()])
    assert tags.null[0, 0, 0, 0, tags.place("group", "ADJ")] == pytest.approx(frequency)
    assert tags.null[0].sum() == pytest.approx(1)


def test_labels_of_the_second_text_of_a_pair(planted):
    """`red` stands in the second text; its label is found behind the words of the first."""
    pairs = [
        Sentence.of_words(
            ["the", "cabinet"],
            labels={"upos": ["A", "B"]},
            second=Sentence.of_words(["keys", "red", "runs"], labels={"upos": ["C", "D", "E"]}),
            joint=True,
        )
    ]
    told = over_corpus(planted, Corpus.of(pairs), group="upos", steps=8)
    assert told.measure("share")[0, 0, 0, told.place("group", "D")] == pytest.approx(1)
    assert told.low is None
    assert "no interval" in told.resampled


def test_both_texts_of_a_translation():
    model = Model.load(network("bart"), tokenizer=word_tokenizer(closing=True))
    pairs = [
        Sentence.of_words(
            words.split(),
            id=str(number),
            labels={"tag": [f"s{place}" for place, _ in enumerate(words.split())]},
            second=Sentence.of_words(
                second.split(), labels={"tag": [f"t{place}" for place, _ in enumerate(second.split())]}
            ),
        )
        for number, (words, second) in enumerate([("the keys are", "old red"), ("a dog", "cat runs and sleeps")])
    ]
    corpus = Corpus.of(pairs)
    source = over_corpus(model, corpus, group="tag", steps=6)
    assert set(source.axes["group"]) == {"s0", "s1", "s2"}
    assert source.axes["place"] == ("encoder.embed",)
    target = over_corpus(model, corpus, group="tag", steps=6, side="target")
    assert set(target.axes["group"]) == {"t0", "t1", "t2", "t3"}
    shares = np.zeros(4)
    for words, second in (("the keys are", "old red"), ("a dog", "cat runs and sleeps")):
        one = attribute(model, words, decoder=second, sites="*.embed", steps=6)
        own = np.abs(one.values[0, 0, 1][one.tokens.columns["side"] == "target"])
        count = len(second.split())
        own = own[2 : 2 + count]  # the decoder reads </s> <s> before the words
        shares[:count] += own / own.sum() / 2
    found = [target.measure("share")[0, 0, 0, target.place("group", f"t{place}")] for place in range(4)]
    assert found == pytest.approx(shares, abs=1e-5)
    with pytest.raises(AttributionError, match="other text"):
        over_corpus(model, corpus, sites="decoder.resid.1")


# -- the arithmetic alone --------------------------------------------------------------------------------------------


def test_chance_is_what_permutations_give():
    dice = np.random.default_rng(0)
    sentences = [(dice.normal(size=(2, n)), dice.integers(0, 3, size=n)) for n in (4, 9, 6)]
    told = Shares(1, (2,), 3)
    for values, codes in sentences:
        told.add(values, codes, 0, np.abs(values).sum(-1))
    shuffled = Shares(1, (2,), 3)
    for _ in range(4000):
        for values, codes in sentences:
            order = dice.permutation(len(codes))
            shuffled.add(values[:, order], codes, 0, np.abs(values).sum(-1))
    estimates, drawn = told.estimates(), shuffled.estimates()
    assert drawn.share == pytest.approx(estimates.share_chance, abs=0.01)
    assert drawn.signed == pytest.approx(estimates.signed_chance, abs=0.01)
    frequency = np.mean([np.bincount(codes, minlength=3) / len(codes) for _, codes in sentences], axis=0)
    assert estimates.share_chance == pytest.approx(np.stack([frequency] * 2))


def test_sentences_weigh_the_same_whatever_their_scale():
    one, many = Shares(1, (1,), 2), Shares(1, (1,), 2)
    for scale in (1.0, 1000.0):
        values = np.array([[1.0, -3.0]])
        one.add(values, np.array([0, 1]), 0, np.abs(values).sum(-1))
        many.add(values * scale, np.array([0, 1]), 0, np.abs(values).sum(-1))
    assert many.estimates().share == pytest.approx(one.estimates().share)
    assert one.estimates().share[0] == pytest.approx([0.25, 0.75])
    assert one.estimates().signed[0] == pytest.approx([0.25, -0.75])


# -- what goes around it ---------------------------------------------------------------------------------------------


def test_saved_loaded_and_drawn(model, corpus, tmp_path):
    told = over_corpus(model, corpus, group="upos", sites="embed,resid.*", steps=4)
    told.save(tmp_path / "one")
    assert Result.load(tmp_path / "one").same(told)
    assert over_corpus(model, corpus, group="upos", sites="embed,resid.*", steps=4).same(told)
    assert told.plot().axes


def test_targets_are_spelled_as_they_are_asked_for():
    for text in (
        "class:positive",
        "class@3",
        "start:4",
        "start",
        "token: Paris@-1",
        "contrast:a|b@2",
        "unit:mlp.1:3@0",
    ):
        assert spelled(Target.parse(text)) == text
    assert spelled(Target.label()) == "predicted class"


def test_refusals(model, corpus):
    with pytest.raises(AttributionError, match=r"label 'xpos'; tokens can be grouped by token, .*upos, length"):
        over_corpus(model, corpus, group="xpos")
    with pytest.raises(AttributionError, match="refuse or truncate"):
        over_corpus(model, corpus, long="window")
    with pytest.raises(AttributionError, match="fewer sites"):
        over_corpus(model, corpus, sites="neurons.*", by="unit", memory_limit=1000)
    with pytest.raises(AttributionError, match="at least 1"):
        over_corpus(model, corpus, most=0)


def test_interrupting_leaves_the_model_as_it_was(model, corpus, monkeypatch):
    from pellucid.attribution import over_corpus as module

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = [weight.requires_grad for weight in model.hf.parameters()]
    import sys

    monkeypatch.setattr(sys.modules[module.__module__].Shares, "add", stop)
    with pytest.raises(KeyboardInterrupt):
        over_corpus(model, corpus, steps=4)
    assert [weight.requires_grad for weight in model.hf.parameters()] == before
