"""Attention in a view, decoded by hand, against the model's own patterns, queries and keys."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid.errors import ModelError, PellucidError, SiteError
from pellucid.model import Batch, Model
from pellucid.views import head_view, model_view, neuron_view
from pellucid.views.interactive import scene, vectors
from pellucid.views.interactive import weights as layer_weights
from tests.tiny_models import network, word_tokenizer
from tests.views.interactive.decoding import TEXT, block, head_codes, inflated, model, tokens, weight

HALF_STEP = 0.5 / 255 + 1e-6


def assert_weights(view, run, name: str, prefix: str, layers: int, heads: int) -> None:
    for layer in range(layers):
        for head in range(heads):
            exact = run[f"{prefix}pattern.{layer}"][0, head].double().numpy()
            found, dropped = head_codes(view, layer, head, name=name)
            assert np.abs(found / 255 - np.sqrt(exact)).max() <= HALF_STEP, (layer, head)
            assert not dropped.any()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "mistral"])
def test_weights_are_the_models_own(name, attention):
    opened = model(name, attention)
    view = head_view(opened, TEXT)
    about = block(view)
    assert (about["causal"], about["layers"], about["heads"]) == (name != "bert", [0, 1, 2], [4, 4, 4])
    assert (about["queries"], about["keys"], about["quality"], about["strip"]) == (
        "text",
        "text",
        1,
        len(tokens(view)["text"]),
    )
    assert_weights(view, opened.run(TEXT, "pattern.*"), "self", "", 3, 4)


def test_sentence_pairs_are_read_together():
    opened = model("bert")
    batch = opened.tokenize("the dog", "a cat runs")
    view = model_view(opened, "the dog", pair="a cat runs")
    assert tokens(view)["segment"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert_weights(view, opened.run(batch, "pattern.*"), "self", "", 3, 4)


def test_encoder_decoder_and_cross_attention():
    opened = model("bart")
    batch = opened.tokenize(TEXT, target="a dog runs")
    view = head_view(opened, TEXT, target="a dog runs")
    assert [each["name"] for each in view.header["panels"][0]["blocks"]] == ["encoder", "decoder", "cross"]
    run = opened.run(batch, ["encoder.pattern.*", "decoder.pattern.*", "cross.pattern.*"])
    for name, layers, heads, causal, sides in (
        ("encoder", 3, 4, False, ("source", "source")),
        ("decoder", 4, 2, True, ("target", "target")),
        ("cross", 4, 2, False, ("target", "source")),
    ):
        about = block(view, name)
        assert (about["causal"], about["queries"], about["keys"]) == (causal, *sides)
        assert_weights(view, run, name, f"{name}.", layers, heads)


def test_long_texts_are_stored_in_strips(monkeypatch):
    monkeypatch.setattr(scene, "strip_rows", lambda queries, keys: 4)
    for name in ("gpt2", "bert"):
        view = head_view(model(name), TEXT)
        assert f"a/0/self/attention/2/3/{2}" in view.payload.chunks
        assert_weights(view, model(name).run(TEXT, "pattern.*"), "self", "", 3, 4)


def test_thumbnails_hold_the_largest_weight_of_their_tiles(monkeypatch):
    monkeypatch.setattr(scene, "THUMB", 5)
    view = model_view(model("gpt2"), TEXT)
    count = len(tokens(view)["text"])
    shown = np.frombuffer(inflated(view, "t/0/self/attention"), np.uint8).reshape(3, 4, 5, 5)
    edges = [place * count // 5 for place in range(6)]
    for layer, head in ((0, 0), (2, 3)):
        codes, _ = head_codes(view, layer, head)
        for row in range(5):
            for column in range(5):
                tile = codes[edges[row] : edges[row + 1], edges[column] : edges[column + 1]]
                assert shown[layer, head, row, column] == tile.max()


def test_chosen_layers_alone_are_there():
    view = head_view(model("gpt2"), TEXT, layers=[2, 0])
    assert block(view)["layers"] == [0, 2]
    assert not [name for name in view.payload.chunks if name.startswith("a/0/self/attention/1/")]
    exact = model("gpt2").run(TEXT, "pattern.2")["pattern.2"][0, 1].double().numpy()
    assert np.abs(head_codes(view, 2, 1)[0] / 255 - np.sqrt(exact)).max() <= HALF_STEP
    for wrong in ([3], [-1], [], [0, 9], [True]):
        with pytest.raises(PellucidError, match="this model has the layers 0 to 2"):
            head_view(model("gpt2"), TEXT, layers=wrong)


def test_quality_drops_small_weights_and_stores_their_mass():
    opened = model("bert")
    view = head_view(opened, TEXT, quality=0.8)
    assert block(view)["quality"] == 0.8
    run = opened.run(TEXT, "pattern.*")
    lost = 0
    for layer in range(3):
        for head in range(4):
            exact = run[f"pattern.{layer}"][0, head].double().numpy()
            found, dropped = head_codes(view, layer, head)
            gone = np.where(found == 0, exact, 0).sum(1)
            assert (gone <= 0.2 + 1e-6).all()
            assert np.abs(dropped / 255 - np.sqrt(gone)).max() <= HALF_STEP
            kept = found > 0
            assert np.abs(weight(found)[kept] ** 0.5 - exact[kept] ** 0.5).max() <= HALF_STEP
            lost += (~kept).sum()
    assert lost > 0
    for wrong in (0, 1.01):
        with pytest.raises(PellucidError, match="share of each row"):
            head_view(opened, TEXT, quality=wrong)


@pytest.mark.parametrize(
    ("name", "width", "scale"), [("gpt2", 10, 10**-0.5), ("llama", 12, 12**-0.5), ("granite", 10, 0.4)]
)
def test_queries_and_keys_give_the_attention(name, width, scale):
    opened = model(name)
    view = neuron_view(opened, TEXT)
    assert view.state["mode"] == "neurons"
    about, count = block(view)["vectors"], len(tokens(view)["text"])
    assert (about["layers"], about["width"]) == ([0, 1, 2], width)
    assert about["scale"] == pytest.approx(scale, rel=1e-3)
    run = opened.run(TEXT, ["query.*", "key.*", "pattern.*"])
    for layer in range(3):
        q, k = (
            np.frombuffer(inflated(view, f"{kind}/0/self/{layer}"), "<f2").reshape(4, count, width) for kind in "qk"
        )
        assert np.abs(q - run[f"query.{layer}"][0].numpy()).max() < 0.01
        scores = np.einsum("hqd,hkd->hqk", q.astype(float), k.astype(float)) * about["scale"]
        scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        softmax = np.exp(scores - scores.max(-1, keepdims=True))
        softmax /= softmax.sum(-1, keepdims=True)
        assert np.abs(softmax - run[f"pattern.{layer}"][0].numpy()).max() < 0.02
    assert not [note for note in view.notes if "does not give" in note]
    if name == "llama":  # two heads share their keys
        assert (k[0] == k[1]).all()
        assert not (k[1] == k[2]).all()


def test_position_biases_are_said():
    view = neuron_view(model("bloom"), TEXT)
    [note] = [note for note in view.notes if "does not give" in note]
    opened, scale = model("bloom"), block(view)["vectors"]["scale"]
    run = opened.run(TEXT, ["query.*", "key.*", "pattern.*"])
    worst = 0.0
    for layer in range(3):
        scores = run[f"query.{layer}"][0] @ run[f"key.{layer}"][0].transpose(1, 2) * scale
        hidden = torch.ones(scores.shape[1:]).triu(1).bool()
        worst = max(
            worst, float((scores.masked_fill(hidden, -torch.inf).softmax(-1) - run[f"pattern.{layer}"][0]).abs().max())
        )
    assert f"{worst:.2f}" in note


def test_vectors_that_would_take_too_much_are_left_out_from_the_end(monkeypatch):
    whole = neuron_view(model("gpt2"), TEXT)
    sizes = [sum(len(whole.chunk(f"{kind}/0/self/{layer}").stored) for kind in "qk") for layer in range(3)]
    monkeypatch.setattr(vectors, "LARGEST", sizes[0] + sizes[1])
    view = neuron_view(model("gpt2"), TEXT)
    assert block(view)["vectors"]["layers"] == [0, 1]
    assert "k/0/self/2" not in view.payload.chunks
    assert any("layers 0 to 1" in note for note in view.notes)
    monkeypatch.setattr(vectors, "LARGEST", 10)
    none = neuron_view(model("gpt2"), TEXT)
    assert block(none)["vectors"] is None
    assert none.state["mode"] == "heads"
    assert any("no layers" in note for note in none.notes)
    assert block(head_view(model("gpt2"), TEXT))["vectors"] is None


def test_attention_that_is_not_a_number_is_named():
    hf = network("gpt2")
    with torch.no_grad():
        hf.transformer.h[1].attn.c_attn.weight[:, 20:30] = torch.nan  # queries of head 2
    opened = model("gpt2")
    broken = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    broken.hf.load_state_dict(hf.state_dict())
    with pytest.raises(ModelError, match=r"Head 2 of pattern\.1 .*float32"):
        head_view(broken, TEXT)
    assert head_view(opened, TEXT)


def test_a_causal_block_never_loses_weights_on_later_tokens():
    weights = torch.full((1, 2, 3, 3), 1 / 3)
    assert layer_weights.checked(weights, "pattern.0", causal=False).shape == (2, 3, 3)
    with pytest.raises(ModelError, match="later tokens"):
        layer_weights.checked(weights, "pattern.0", causal=True)


def test_a_model_without_attention_says_what_it_has():
    wrapped = Model.wrap(torch.nn.Linear(3, 3), tokenize=lambda text: torch.zeros(1, 3), sites={"out": ""})
    with pytest.raises(SiteError, match=r"no attention patterns to show.*its sites are out"):
        head_view(wrapped, TEXT)


def test_patterns_are_never_held_together():
    """Each layer's float weights are gone when the next one comes."""
    import gc
    import weakref

    opened, alive = model("gpt2"), []
    reading = scene.Reading(opened.tokenize(TEXT), scene_tokens(opened), ())
    made = scene.Scene(opened, reading, layers=None, quality=1.0)

    def beside(_block, _layer, weights):
        gc.collect()
        assert not [each for each in alive if each() is not None]
        alive.append(weakref.ref(weights))

    made.look(beside=beside)
    assert len(alive) == 3


def scene_tokens(opened):
    from pellucid.views.interactive.reading import read

    return read(opened, TEXT).tokens


def test_the_text_is_run_as_the_model_reads_it():
    opened = model("gpt2")
    view = head_view(opened, TEXT)
    assert view.header["panels"][0]["fingerprint"] == opened.fingerprint
    batch = opened.tokenize(TEXT)
    assert isinstance(batch, Batch)
    assert len(tokens(view)["text"]) == batch.ids.shape[1]
