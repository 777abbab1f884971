"""Trust where the right answer is known: a linear model, and methods that are exact, random or blind to the weights."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from captum.metrics import infidelity as captum_infidelity

from pellucid.attribution import Target, Trust, trust
from pellucid.attribution.methods import METHODS
from pellucid.attribution.sweep import Asked
from pellucid.attribution.trials.randomised import ALL, groups, randomised, stages
from pellucid.attribution.trials.removal import Removal
from pellucid.attribution.trials.trust import MEASURES
from pellucid.attribution.trials.verdicts import verdicts
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import AttributionError, PellucidError
from pellucid.model import Model
from tests.attribution.bag_of_embeddings import bag, contributions
from tests.tiny_models import WORDS, network, word_tokenizer

FIVE = "the old dog runs near"
LINES = [" ".join(np.random.default_rng(n).choice(WORDS, size=4 + n % 5)) for n in range(24)]
CURVES = ("insertion", "deletion")


def tiny(name: str = "gpt2") -> Model:
    return Model.load(network(name, dtype=torch.float64), tokenizer=word_tokenizer(closing=name != "gpt2"))


def cell(result: Trust, measure: str, method: str) -> float:
    return float(result.values[result.place("measure", measure), result.place("method", method)])


def chance(result: Trust, measure: str, method: str) -> tuple[float, float]:
    at = result.place("measure", measure), result.place("method", method)
    columns = result.table("chance").columns
    return float(columns["low"][at]), float(columns["high"][at])


def areas(parts: np.ndarray) -> list[float]:
    """The areas under the insertion curves of all orders of tokens that add so much each."""
    found = []
    for order in permutations(range(len(parts))):
        scores = np.concatenate([[0.0], np.cumsum(parts[list(order)])])
        found.append(float((scores[1:] + scores[:-1]).sum() / 2 / len(parts)))
    return found


@pytest.mark.parametrize("baseline", ["zero", "mean"])
def test_an_exact_method_is_exact_and_its_order_the_best_of_all(baseline):
    parts = contributions(FIVE, "cat", baseline=baseline).numpy()
    assert parts.min() < 0 < parts.max()
    result = trust(bag(), [FIVE], "integrated_gradients", "token:cat", baseline=baseline, measures=list(MEASURES)[:6])
    assert cell(result, "completeness", "integrated_gradients") == pytest.approx(0, abs=1e-12)
    assert cell(result, "infidelity", "integrated_gradients") == pytest.approx(0, abs=1e-12)
    assert cell(result, "unexplained", "integrated_gradients") == pytest.approx(0, abs=1e-12)
    every, whole = areas(parts), abs(parts.sum())
    assert cell(result, "insertion", "integrated_gradients") == pytest.approx(max(every) / whole, rel=1e-6)
    assert cell(result, "deletion", "integrated_gradients") == pytest.approx(min(every) / whole, rel=1e-6)


def test_random_orders_score_the_mean_of_all_orders():
    parts = contributions(FIVE, "cat").numpy()
    result = trust(bag(), [FIVE], "saliency", "token:cat", baseline="zero", measures=CURVES, draws=2000)
    every, whole = np.array(areas(parts)), abs(parts.sum())
    expected, error = every.mean() / whole, every.std() / whole / np.sqrt(2000)
    for name in CURVES:
        assert abs(result.null[result.place("measure", name), 0] - expected) < 4 * error
        low, high = chance(result, name, "saliency")
        assert (high - low) / 2 == pytest.approx(1.96 * every.std() / whole, rel=0.06)


def test_curves_begin_and_end_at_the_empty_and_the_whole_text():
    result = trust(tiny(), LINES[:6], ["saliency", "ablation"], measures=CURVES)
    table, random = result.table("curves"), result.table("random curves")
    texts = result.table("texts").columns
    change = (texts["score"] - texts["baseline"]).sum() / np.abs(texts["score"] - texts["baseline"]).sum()
    for scores in (table.columns["score"][0], random.columns["score"][:1]):
        assert np.allclose(scores[:, 0], 0, atol=1e-9)
        assert np.allclose(scores[:, -1], change)
    for scores in (table.columns["score"][1], random.columns["score"][1:]):
        assert np.allclose(scores[:, 0], change)
        assert np.allclose(scores[:, -1], 0, atol=1e-9)


def test_a_linear_model_s_gradient_is_steady_and_its_product_moves_with_the_input():
    methods = ["saliency", "gradient_x_activation"]
    small = trust(bag(), [FIVE], methods, "token:cat", baseline="zero", measures=["sensitivity"], radius=0.01)
    large = trust(bag(), [FIVE], methods, "token:cat", baseline="zero", measures=["sensitivity"], radius=0.04)
    assert cell(small, "sensitivity", "saliency") == cell(large, "sensitivity", "saliency") == 0
    moved = cell(small, "sensitivity", "gradient_x_activation")
    assert 0 < moved < 0.1
    assert cell(large, "sensitivity", "gradient_x_activation") == pytest.approx(4 * moved, rel=1e-9)


def test_padding_changes_nothing():
    model, one, two = tiny(), LINES[1], LINES[3]
    assert len(one.split()) != len(two.split())
    methods = ["saliency", "integrated_gradients", "ablation"]
    names = ["completeness", *CURVES]
    joint = trust(model, [one, two], methods, "token:dog", measures=names)
    alone = [trust(model, [text], methods, "token:dog", measures=names) for text in (one, two)]
    changes = [
        abs(float((each.table("texts").columns["score"] - each.table("texts").columns["baseline"])[0]))
        for each in alone
    ]
    for place, name in enumerate(names):
        weights = [1, 1] if name == "completeness" else changes
        expected = np.average([each.values[place] for each in alone], axis=0, weights=weights)
        assert np.allclose(joint.values[place], expected, rtol=1e-8), name


def test_what_a_method_says_of_padding_is_not_heard():
    def loud(asked: Asked):
        places = torch.arange(asked.batch.ids.shape[1]).double().expand(asked.batch.ids.shape)
        return torch.where(asked.batch.mask.bool(), places, 1e6)[None]

    def quiet(asked: Asked):
        return loud(asked) * asked.batch.mask

    result = trust(tiny(), [LINES[1], LINES[3]], (), "token:dog", own={"loud": loud, "quiet": quiet})
    assert (result.values[:, 0] == result.values[:, 1]).all()
    assert (result.null[:, 0] == result.null[:, 1]).all()


def test_special_tokens_stay_unless_they_are_asked_for():
    model = tiny("bert")
    seen: list[int] = []

    def tokens(asked: Asked):
        seen.append(int(asked.batch.mask.sum()))
        return torch.ones(1, *asked.batch.ids.shape)

    for special in (False, True):
        result = trust(
            model, ["the old dog"], (), "token:cat@2", own={"even": tokens}, measures=CURVES, special=special
        )
        assert result.table("texts").columns["tokens"].tolist() == [5 if special else 3]
    assert set(seen) == {5}


def test_removed_tokens_give_what_the_network_itself_gives():
    """Infidelity over sets of tokens, beside captum's with the network called by its embeddings."""
    model = tiny()
    result: dict[str, object] = {}

    def peek(asked: Asked):
        result["asked"] = asked
        return torch.ones(1, *asked.batch.ids.shape)

    trust(model, [FIVE], (), "token:cat", baseline="zero", own={"peek": peek}, measures=["completeness"])
    asked = result["asked"]
    assert isinstance(asked, Asked)
    rng = np.random.default_rng(0)
    sets = [rng.random(5) < 0.5 for _ in range(15)]
    removal = Removal(asked)
    removal.run([[np.ones(5, dtype=bool), *sets]])
    embeddings = next(iter(asked.end.values())).detach()
    token = model.tokenizer("cat")["input_ids"][0]
    masks = torch.tensor(np.array(sets))

    def forward(given):
        return model.hf(inputs_embeds=given).logits[:, -1, token]

    def perturb(given):
        return (~masks).double()[..., None].expand_as(given), given * masks[..., None]

    shares = torch.randn(1, 5, 1).double()
    theirs = captum_infidelity(
        forward, perturb, embeddings, (shares / 8).expand(-1, -1, embeddings.shape[2]), n_perturb_samples=15
    )
    scores = removal.of(0, [np.ones(5, dtype=bool), *sets])[0]
    explained = (~np.array(sets)) @ shares[0, :, 0].numpy() * embeddings.shape[2] / 8
    mine = ((explained - (scores[0] - scores[1:])) ** 2).mean()
    assert mine == pytest.approx(float(theirs), rel=1e-8)


@pytest.fixture(scope="module")
def judged() -> Trust:
    """Three methods that have nothing to say, beside two that have."""

    def numbers(asked: Asked):
        seeds = [int(row.sum()) for row in asked.batch.ids]
        rows = [np.random.default_rng(seed).standard_normal(asked.batch.ids.shape[1]) for seed in seeds]
        return np.stack(rows)[None]

    def places(asked: Asked):
        return torch.arange(asked.batch.ids.shape[1]).double().expand(1, *asked.batch.ids.shape)

    def even(asked: Asked):
        return torch.ones(1, *asked.batch.ids.shape)

    own = {"random": numbers, "places": places, "even": even}
    return trust(
        bag(),
        LINES,
        ["gradient_x_activation", "integrated_gradients"],
        "token:cat",
        own=own,
        baseline="zero",
        cascade=2,
    )


def test_random_attributions_score_chance(judged):
    for name in ("infidelity", "unexplained", "insertion", "deletion"):
        low, high = chance(judged, name, "random")
        wide = (high - low) / 2
        assert low - wide < cell(judged, name, "random") < high + wide, name
    word = {each.method: each for each in verdicts(judged)}
    assert word["random"].doubtful
    assert "no better than a random one" in word["random"].sentence


def test_methods_that_ignore_the_model_are_flagged(judged):
    word = {each.method: each for each in verdicts(judged)}
    for name in ("random", "places", "even"):
        assert cell(judged, "randomisation", name) == pytest.approx(1)
        assert word[name].words["randomisation"] == "unchanged"
        assert word[name].doubtful
    for name in ("gradient_x_activation", "integrated_gradients"):
        assert cell(judged, "randomisation", name) < 0.6
        assert not word[name].doubtful
        assert word[name].words["insertion"] == word[name].words["deletion"] == "better"
        assert "they add up" in word[name].sentence


def test_what_counts_is_the_last_stage_of_the_cascade(judged):
    cascade = judged.table("cascade")
    assert cascade.axes["stage"][-1] == ALL
    assert (judged.values[judged.place("measure", "randomisation")] == cascade.columns["correlation"][-1]).all()
    assert not np.allclose(cascade.columns["correlation"][0], cascade.columns["correlation"][-1])


def test_the_chance_of_a_rank_correlation_is_nothing(judged):
    at = judged.place("measure", "randomisation")
    low, high = chance(judged, "randomisation", "random")
    assert abs(judged.null[at]).max() < 0.2
    assert low < 0 < high < 0.4


def test_the_interval_is_over_documents():
    sentences = [Sentence.of_text(text, id=str(n), document=str(n // 12)) for n, text in enumerate(LINES)]
    by_two = trust(tiny(), Corpus.of(sentences), "saliency", measures=CURVES)
    assert "2 document groups" in by_two.resampled
    assert "10 document groups" in trust(tiny(), LINES, "saliency", measures=CURVES).resampled
    assert trust(tiny(), [FIVE], "saliency", measures=CURVES).low is None


def test_weights_become_random_from_the_top():
    model = Model.load(network("bert"), tokenizer=word_tokenizer(closing=True))
    before = {name: weight.clone() for name, weight in model.hf.named_parameters()}
    names = [name for name, _ in stages(model, 99)]
    assert len(names) == len(groups(model))
    assert names[-1] == ALL
    assert stages(model, 1) == [(ALL, 0)]
    cuts = dict(stages(model, 99))
    changed: dict[str, set[str]] = {}
    for name, twin in randomised(model, 99, seed=3):
        now = dict(twin.hf.named_parameters())
        changed[name] = {weight for weight in before if not torch.equal(before[weight], now[weight])}
    for name in names:
        above = {weight for _, weights in groups(model)[cuts[name] :] for weight in weights}
        assert changed[name] <= above
        assert any("weight" in weight for weight in changed[name])
    matrices = {name for name, weight in before.items() if weight.dim() > 1}
    assert matrices <= changed[ALL]
    assert all(torch.equal(before[name], weight) for name, weight in model.hf.named_parameters())


def test_the_same_seed_gives_the_same_bytes_and_little_memory_the_same_numbers(tmp_path):
    methods = ["saliency", "integrated_gradients", "smoothgrad"]
    few = {"steps": 4, "samples": 3, "draws": 3, "perturbations": 2, "cascade": 2}
    one, two = (trust(tiny(), LINES[:4], methods, seed=4, **few) for _ in range(2))
    assert one.same(two)
    one.save(tmp_path / "r")
    assert Trust.load(tmp_path / "r").same(one)
    tight = trust(tiny(), LINES[:4], methods, seed=4, memory_limit=1, **few)
    assert np.allclose(tight.values, one.values, rtol=1e-8)
    other = trust(tiny(), LINES[:4], methods, seed=5, **few)
    orders = one.place("measure", "insertion"), one.place("method", "saliency")
    assert other.values[orders] == pytest.approx(one.values[orders])
    assert other.null[orders] != pytest.approx(one.null[orders], rel=1e-6)


def test_every_quick_method_of_the_register_is_tried_by_default():
    result = trust(tiny(), LINES[:3], measures=["completeness"])
    assert set(result.axes["method"]) == {
        name for name, each in METHODS.items() if not each.random and each.passes != "lrp"
    }


def test_several_targets_and_pairs():
    model = tiny("bert")
    pair = [
        Sentence.of_text("the old dog", id=str(n), second=Sentence.of_text(text), joint=True)
        for n, text in enumerate(["a cat sleeps", "the red cat runs"])
    ]
    result = trust(model, Corpus.of(pair), "saliency", ["token:cat@2", "token:dog@3"], measures=CURVES)
    assert result.table("texts").columns["target"].tolist() == [0, 1, 0, 1]
    assert result.table("texts").columns["tokens"].tolist() == [6, 6, 7, 7]


def test_several_targets_are_each_judged_by_their_own_attributions():
    names, targets = ["completeness", *CURVES], ["token:cat", "token:dog"]
    both = trust(bag(), [FIVE], ["saliency", "integrated_gradients"], targets, baseline="zero", measures=names)
    alone = [
        trust(bag(), [FIVE], ["saliency", "integrated_gradients"], each, baseline="zero", measures=names)
        for each in targets
    ]
    changes = [abs(float(contributions(FIVE, each.removeprefix("token:")).sum())) for each in targets]
    for place, name in enumerate(names):
        weights = [1, 1] if name == "completeness" else changes
        expected = np.average([each.values[place] for each in alone], axis=0, weights=weights)
        assert np.allclose(both.values[place], expected, rtol=1e-9, atol=1e-12), name


def test_both_inputs_of_an_encoder_decoder_are_removed():
    model = Model.load(network("t5", dtype=torch.float64), tokenizer=word_tokenizer(closing=True))
    lines = [
        Sentence.of_text("the old dog", id=str(n), second=Sentence.of_text(text))
        for n, text in enumerate(["a cat sleeps", "the red cat runs"])
    ]
    result = trust(model, Corpus.of(lines), ["saliency", "ablation"], "token:cat", cascade=1)
    decoder = model.tokenize("the old dog", target="a cat sleeps").target_ids.shape[1] - 1
    assert result.table("texts").columns["tokens"].tolist() == [3 + decoder, 3 + decoder + 1]
    assert np.isfinite(result.values).all()


def test_short_and_long_sentences_are_skipped_and_counted():
    model = tiny()
    texts = ["dog", FIVE, " ".join(["dog"] * (model.limit + 1)), "cat", LINES[0]]
    result = trust(model, texts, "saliency", measures=["completeness"], sentences=2)
    assert result.table("skipped").columns["sentences"].tolist() == [2, 1]
    assert result.table("texts").columns["sentence"].tolist() == ["2", "5"]
    with pytest.raises(AttributionError, match=r"2 with fewer than two tokens and 1 longer than the model takes"):
        trust(model, ["dog", "cat", texts[2]], "saliency")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"methods": "salience"}, r"no method of attribution 'salience'; the methods are saliency"),
        ({"methods": ()}, r"No method was given; the methods are saliency"),
        ({"measures": ["trust"]}, r"no measure of trust 'trust'; the measures are completeness"),
        ({"targets": "token:giraffe@9"}, r"Position 9|giraffe"),
        ({"points": 1}, r"points=1 is too few; use at least 2"),
        ({"draws": 1}, r"draws=1 is too few"),
        ({"baseline": "noise"}, r"no baseline 'noise'"),
        ({"own": {"bad": lambda asked: torch.ones(2, 2)}}, r"The method 'bad' must give attributions \[targets"),
    ],
)
def test_bad_input_is_one_sentence(options, told):
    with pytest.raises(PellucidError, match=told):
        trust(tiny(), LINES[:3], **options)


def test_a_model_without_a_target_says_so():
    with pytest.raises(AttributionError, match="no hidden token"):
        trust(tiny("bert"), LINES[:2], "saliency")


def test_the_baseline_is_settled_by_the_model():
    """Zeros leave a Llama's stream empty, and a BERT's not."""
    for name, wanted in (("llama", "mean"), ("bert", "zero")):
        model = Model.load(network(name), tokenizer=word_tokenizer())
        found = trust(
            model,
            ["the old dog sleeps", "a red cat runs"],
            ["saliency"],
            Target.unit("resid.1", 3, position=1),
            measures=["deletion"],
            points=2,
            draws=2,
            progress=False,
        )
        assert found.provenance.arguments["baseline"] == wanted


def test_the_limits_of_words_are_arguments(judged):
    strict = {each.method: each.words for each in verdicts(judged, unchanged=-1.0, adds_up=0.0)}
    plain = {each.method: each.words for each in verdicts(judged)}
    assert {words["randomisation"] for words in strict.values()} == {"unchanged"}
    assert plain["integrated_gradients"]["completeness"] == "better"
    assert plain["integrated_gradients"]["randomisation"] != "unchanged"
