"""Ablation, occlusion, Shapley values and LIME of tokens: beside captum, and where the answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.attribution import Target, attribute
from pellucid.attribution.baselines import baseline, embedded
from pellucid.attribution.computing import Settings, compute
from pellucid.attribution.methods import chosen
from pellucid.attribution.removal import perturbation as engine
from pellucid.attribution.removal.groups import grouped, with_words
from pellucid.attribution.sweep import Asked
from pellucid.attribution.targets import Resolved
from pellucid.errors import AttributionError, OutOfMemory
from pellucid.model import Batch, Edit, Model
from pellucid.model.sites import Site
from tests.tiny_models import opened, padded, word_tokenizer

METHODS = ["ablation", "occlusion", "shapley", "lime"]
EMBED = Site("embed")
IDS = [[3, 9, 14, 7, 21, 5]]


def tiny(name: str = "bert") -> Model:
    return opened(name, "eager", torch.float64)


def forward(model: Model, batch: Batch, target: Target):
    """The target as captum wants it: a function of embeddings [N, T, width]."""
    score = target.resolve(model, batch, model.run(batch)).score

    def run(embeddings):
        return score(model.run(batch.repeated(len(embeddings)), (), [Edit.patch(EMBED, embeddings)]))

    return run


def columns(mask, width: int):
    """A group number per token as captum's mask of features, [1, T, width]."""
    return torch.tensor(mask)[None, :, None].expand(1, -1, width).contiguous()


# -- beside captum ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "start"), [("bert", "zero"), ("gpt2", "zero"), ("bert", "mean")])
def test_ablation_is_captums_feature_ablation(family, start):
    from captum.attr import FeatureAblation

    model, batch, target = tiny(family), Batch.of_ids(IDS), Target.token(4, position=3)
    end = embedded(model, batch)
    begin = baseline(model, batch, start, end)[EMBED]
    theirs = FeatureAblation(forward(model, batch, target)).attribute(
        end[EMBED], baselines=begin, feature_mask=columns(range(6), end[EMBED].shape[2]), perturbations_per_eval=1
    )
    ours = attribute(model, batch, target, "ablation", baseline=start)
    assert np.allclose(ours.values[0, 0, 0], theirs[0, :, 0].numpy(), atol=1e-10)
    assert np.abs(ours.values).max() > 1e-3


def test_groups_are_captums_masks_and_a_groups_number_is_shared():
    from captum.attr import FeatureAblation

    model, batch, target = tiny(), Batch.of_ids(IDS), Target.token(4, position=3)
    end = embedded(model, batch)[EMBED]
    mask = [0, 1, 1, 1, 2, 0]
    theirs = FeatureAblation(forward(model, batch, target)).attribute(end, feature_mask=columns(mask, end.shape[2]))[
        0, :, 0
    ].numpy() / np.array([2, 3, 3, 3, 1, 2])
    ours = attribute(model, batch, target, "ablation", groups=mask)
    assert np.allclose(ours.values[0, 0, 0], theirs, atol=1e-10)
    spans = attribute(model, batch, target, "ablation", groups=[(1, 4)]).values[0, 0, 0]
    assert np.allclose(spans[1:4], theirs[1:4], atol=1e-10)
    alone = attribute(model, batch, target, "ablation").values[0, 0, 0]
    assert np.allclose(spans[[0, 4, 5]], alone[[0, 4, 5]], atol=1e-10)


@pytest.mark.parametrize(("window", "stride"), [(3, 1), (2, 2), (4, 3)])
def test_occlusion_is_captums(window, stride):
    from captum.attr import Occlusion

    model, batch, target = tiny(), Batch.of_ids(IDS), Target.token(4, position=3)
    end = embedded(model, batch)[EMBED]
    theirs = Occlusion(forward(model, batch, target)).attribute(
        end, sliding_window_shapes=(window, end.shape[2]), strides=(stride, end.shape[2])
    )
    ours = attribute(model, batch, target, "occlusion", window=window, stride=stride)
    assert np.allclose(ours.values[0, 0, 0], theirs[0, :, 0].numpy(), atol=1e-10)


def test_exact_shapley_values_are_captums():
    from captum.attr import ShapleyValues

    model, batch, target = tiny(), Batch.of_ids([IDS[0][:5]]), Target.token(4, position=3)
    end = embedded(model, batch)[EMBED]
    theirs = ShapleyValues(forward(model, batch, target)).attribute(
        end, feature_mask=columns(range(5), end.shape[2]), perturbations_per_eval=8
    )
    ours = attribute(model, batch, target, "shapley")
    assert np.allclose(ours.values[0, 0, 0], theirs[0, :, 0].numpy(), atol=1e-10)
    assert ours.low is None
    assert "exact, 32 coalitions" in ours.provenance.arguments["note"]


def test_sampled_shapley_values_agree_with_captums_and_have_intervals():
    from captum.attr import ShapleyValueSampling

    model, target = tiny(), Target.token(4, position=3)
    batch = Batch.of_ids([[*IDS[0], 11, 30, 8, 17]])
    end = embedded(model, batch)[EMBED]
    torch.manual_seed(0)
    theirs = (
        ShapleyValueSampling(forward(model, batch, target))
        .attribute(end, feature_mask=columns(range(10), end.shape[2]), n_samples=60, perturbations_per_eval=1)[0, :, 0]
        .numpy()
    )
    ours = attribute(model, batch, target, "shapley", samples=20, seed=3)
    exact = attribute(model, batch, target, "shapley", samples=60)
    values, exact = ours.values[0, 0, 0], exact.values[0, 0, 0]
    assert ours.low is not None
    reach = (ours.high - ours.values)[0, 0, 0]
    assert (reach > 0).all()
    assert (np.abs(values - exact) <= reach).mean() >= 0.7
    assert (np.abs(values - exact) <= 3 * reach).all()
    assert np.abs(values - theirs).max() < 0.15 * np.abs(theirs).max()
    assert ours.provenance.seed == 3
    again = attribute(model, batch, target, "shapley", samples=20, seed=4)
    assert not np.array_equal(again.values, ours.values)
    assert attribute(model, batch, target, "shapley", samples=20, seed=3).same(ours)


# -- known answers ---------------------------------------------------------------------------------------------------


def custom(model: Model, batch: Batch, score, start: str = "zero", **options) -> Asked:
    end = embedded(model, batch)
    target = Resolved("by hand", score, (EMBED,))
    return Asked(model, batch, (target,), (EMBED,), baseline(model, batch, start, end), end, **options)


@pytest.mark.parametrize("start", ["zero", "mean"])
def test_an_additive_target_gives_each_token_its_own_term(start):
    model, batch = tiny(), Batch.of_ids([[*IDS[0], 11, 30, 8, 17]])
    asked = custom(model, batch, lambda run: (run[EMBED] * weights).sum(dim=(1, 2)) + 3, start)
    weights = torch.randn(asked.end[EMBED].shape[1:], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted = ((asked.end[EMBED] - asked.start[EMBED]) * weights).sum(dim=2)
    for method in ("ablation", "shapley", "lime"):
        found = engine.sweep_perturbed(asked, [method], samples=3)
        assert torch.allclose(found.parts[method, 0, EMBED][..., 0], wanted, atol=1e-9), method


def test_what_a_model_cannot_see_gets_nothing():
    """For a causal model, tokens after the one that is looked at."""
    model, batch = tiny("gpt2"), Batch.of_ids([[*IDS[0], 11, 30, 8]])
    found = attribute(model, batch, Target.token(4, position=2), ["ablation", "shapley", "lime"])
    size = np.abs(found.values[:, 0, 0, :3]).max()
    assert np.abs(found.values[:2, 0, 0, 3:]).max() < 1e-12 * size
    assert (np.abs(found.values[2, 0, 0, 3:]) <= 2 * (found.high - found.values)[2, 0, 0, 3:]).all()  # a fit's noise
    hidden = attribute(model, batch, Target.token(4, position=2), "occlusion", window=2).values[0, 0, 0]
    assert np.abs(hidden[4:]).max() < 1e-12 * size
    assert np.abs(hidden[3]) > 1e-6 * size  # its window reaches back to token 2


def test_tokens_that_play_the_same_part_get_the_same():
    model, batch = tiny(), Batch.of_ids([[9, 4, 9, 12, 6]])
    asked = custom(model, batch, lambda run: run[EMBED].sum(dim=1).norm(dim=-1) ** 1.5)
    found = engine.sweep_perturbed(asked, ["ablation", "shapley", "lime"])
    for method in ("ablation", "shapley", "lime"):
        part = found.parts[method, 0, EMBED][0, :, 0]
        assert part[0] == pytest.approx(float(part[2]), rel=1e-9)
        assert part[0] != pytest.approx(float(part[1]), rel=1e-3)


def test_shapley_values_add_up_to_the_targets_change():
    model, batch = tiny(), Batch.of_ids([[*IDS[0], 11, 30, 8, 17, 2, 6]])
    found = attribute(model, batch, Target.token(4, position=3), "shapley", samples=2, groups=[(2, 5)])
    table = found.completeness.columns
    assert table["measure"].tolist() == ["shapley"]
    assert table["relative error"].max() < 1e-10
    change = found.targets.columns["change"][0]
    assert found.values.sum() == pytest.approx(change)
    assert abs(change) > 1e-3
    plain = model.run(batch).logits[0, 3, 4]
    assert found.targets.columns["score"][0] == pytest.approx(float(plain))
    nothing = model.run(batch, (), [Edit.zero("embed")]).logits[0, 3, 4]
    assert found.targets.columns["baseline"][0] == pytest.approx(float(nothing))


def test_an_encoder_decoder_has_the_tokens_of_both_sides():
    model = tiny("bart")
    batch = Batch.of_ids([[3, 9, 14, 7]], target_ids=[[2, 8, 11]])
    found = attribute(model, batch, Target.token(4, position=1), ["ablation", "shapley"])
    assert found.axes["place"] == ("encoder.embed", "decoder.embed")
    whole = float(model.run(batch).logits[0, 1, 4])
    for site, places in (("encoder.embed", range(4)), ("decoder.embed", range(3))):
        for place in places:
            without = model.run(batch, (), [Edit.zero(site, positions=[place])]).logits[0, 1, 4]
            at = place + (4 if site == "decoder.embed" else 0)
            mine = found.values[0, 0, found.place("place", site), at]
            assert mine == pytest.approx(whole - float(without), abs=1e-10)
    assert not found.values[0, 0, 0, 4:].any()
    assert found.completeness.columns["relative error"].max() < 1e-10


# -- batches, memory -------------------------------------------------------------------------------------------------


def sizes_seen(**options):
    """The values of a plan, and how many copies each pass held."""
    model, seen = tiny(), list[int]()

    def score(run):
        seen.append(run.batch.size)
        return run[EMBED].square().sum(dim=(1, 2)).sqrt()

    asked = custom(model, Batch.of_ids([[*IDS[0], 11, 30]]), score, **options)
    return engine.sweep_perturbed(asked, ["shapley"]).parts["shapley", 0, EMBED], seen


def test_the_size_of_passes_changes_nothing(monkeypatch):
    wanted, seen = sizes_seen()
    assert seen == [1, 255]  # 256 coalitions of 8 tokens
    monkeypatch.setattr(engine, "MOST", 7)
    found, seen = sizes_seen()
    assert max(seen) == 7
    assert sum(seen) == 256
    assert torch.allclose(found, wanted, atol=1e-12)


def test_a_limit_of_memory_bounds_the_passes():
    wanted, _ = sizes_seen()
    small, few = sizes_seen(memory_limit=400_000)
    smaller, fewer = sizes_seen(memory_limit=200_000)
    assert 1 < max(fewer) < max(few) < 255
    assert max(few) // 2 in (max(fewer), max(fewer) + 1, max(fewer) - 1)
    least, one = sizes_seen(memory_limit=1)
    assert set(one) == {1}
    for found in (small, smaller, least):
        assert torch.allclose(found, wanted, atol=1e-12)


def test_passes_are_halved_where_memory_runs_out(monkeypatch):
    wanted, _ = sizes_seen()
    model, run = tiny(), Model.run

    def cramped(self, batch, *args, **options):
        if batch.size > 20:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(self, batch, *args, **options)

    monkeypatch.setattr(Model, "run", cramped)
    found, seen = sizes_seen()
    assert torch.allclose(found, wanted, atol=1e-12)
    assert sum(seen) == 256
    assert 10 <= max(seen) <= 20

    def broken(self, batch, *args, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    asked = custom(model, Batch.of_ids(IDS), lambda run: run[EMBED].sum(dim=(1, 2)))
    monkeypatch.setattr(Model, "run", broken)
    with pytest.raises(OutOfMemory, match="on a single copy of the text"):
        engine.sweep_perturbed(asked, ["ablation"])


@pytest.mark.parametrize("side", ["right", "left"])
def test_texts_side_by_side_are_each_as_alone(side):
    model, batch = tiny("gpt2"), padded("gpt2", side)
    settings = Settings(samples=3, window=2)
    together, _ = compute(model, batch, [Target.token(5, position=-1)], chosen(METHODS), [EMBED], settings)
    for row in range(3):
        real = batch.mask[row].bool()
        alone = Batch.of_ids(batch.ids[row, real][None])
        found, _ = compute(model, alone, [Target.token(5, position=-1)], chosen(METHODS), [EMBED], settings)
        for method in METHODS:
            part = together.parts[method, 0, EMBED][row, :, 0]
            assert torch.allclose(part[real], found.parts[method, 0, EMBED][0, :, 0], atol=1e-9), (method, row)
            assert not part[~real].any()
            if method in ("shapley", "lime") and row < 2:  # 4 tokens are exact
                reach = together.reach[method, 0, EMBED][row, real, 0]
                assert torch.allclose(reach, found.reach[method, 0, EMBED][0, :, 0], atol=1e-9)
        assert torch.allclose(together.end[0, row], found.end[0, 0], atol=1e-10)


# -- words, bad input ------------------------------------------------------------------------------------------------


def test_words_are_groups_of_their_tokens():
    model = Model.load("zoo:lm")
    text = "Unbelievably, the zookeeper's hippopotamus sleeps"
    batch = model.tokenize(text)
    groups = grouped(with_words(model, batch, text), "words")
    told = model.tokenizer(text, return_offsets_mapping=True)
    words: dict[int, str] = {}
    for group, (start, stop) in zip(groups.members[0].tolist(), told["offset_mapping"], strict=True):
        words[group] = words.get(group, "") + text[start:stop]
    spoken = [word.strip() for word in words.values() if word.strip()]
    assert spoken == ["Unbelievably", ",", "the", "zookeeper's", "hippopotamus", "sleeps"]
    assert groups.sizes(0).max() > 1
    found = attribute(model, text, "token: in", "ablation", groups="words")
    assert found.provenance.arguments["groups"] == "words"
    mine = np.flatnonzero(groups.members[0] == groups.members[0, -1])
    end = embedded(model, batch)[EMBED].clone()
    end[:, mine] = 0
    fall = attribute(model, text, "token: in", "saliency").targets.columns["score"][0] - float(
        Target.token(" in").resolve(model, batch).score(model.run(batch, (), [Edit.patch(EMBED, end)]))
    )
    assert found.values[0, 0, 0, mine].sum() == pytest.approx(fall, abs=1e-4)


def test_words_of_a_pair_are_not_joined():
    model = Model.load(tiny().hf, tokenizer=word_tokenizer(closing=True))
    batch = model.tokenize("the dog", "the cat runs")
    groups = grouped(with_words(model, batch, "the dog", "the cat runs"), "words")
    assert groups.members[0].tolist() == list(range(batch.ids.shape[1]))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"groups": [(4, 7)]}, r"The span \(4, 7\) does not lie within the text's 6 tokens"),
        ({"groups": [(3, 3)]}, r"The span \(3, 3\) does not lie"),
        ({"groups": [(0, 3), (2, 5)]}, r"The span \(2, 5\) overlaps with another"),
        ({"groups": [0, 1, 1]}, "mask of groups has 3 entries and the text 6 tokens"),
        ({"groups": []}, "mask of groups has 0 entries and the text 6 tokens"),
        ({"groups": "clauses"}, "no groups called 'clauses'; give tokens, words"),
        ({"groups": "words"}, "words of a Batch of token ids are not known"),
        ({"method": "shapley", "samples": 1}, "at least two samples to know its error; 1 was asked for"),
        ({"method": "occlusion", "window": 8}, "window of 8 tokens does not fit into a text of 6"),
        (
            {"method": "shapley", "sites": "resid.*"},
            "shapley takes tokens of the text away, so it speaks of 'embed'",
        ),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(options, told):
    with pytest.raises(AttributionError, match=told) as error:
        attribute(tiny(), Batch.of_ids(IDS), Target.token(4, position=3), **{"method": "ablation", **options})
    assert "\n" not in str(error.value)


def test_groups_are_for_one_text():
    batch = padded("gpt2")
    with pytest.raises(AttributionError, match="given for one text, not for 3"):
        grouped(batch, [(0, 2)])
    words = replace(batch, word_index=torch.tensor([[0, 0, 1, 2, 2, 3, 3, 3, 4, 5, -1]] * 3))
    assert grouped(words, "words").members[1].tolist() == [0, 0, 1, 2, 2, 3, 3, -1, -1, -1, -1]


def test_a_target_that_overflows_is_not_believed():
    asked = custom(tiny(), Batch.of_ids(IDS), lambda run: 1 / run[EMBED][:, 0].sum(dim=-1))
    with pytest.raises(AttributionError, match="not a finite number for a changed copy"):
        engine.sweep_perturbed(asked, ["ablation"])
