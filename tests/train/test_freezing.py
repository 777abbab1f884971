"""Freezing: layers whose looks are all alike, from the bottom up, with everything that they depend on."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
)

from pellucid.errors import TrainError
from pellucid.train.freezing import Freeze, Freezer

RNG = np.random.default_rng(0)
STILL = RNG.standard_normal((60, 5))


def gpt2(layers: int = 4) -> GPT2LMHeadModel:
    sizes = {"vocab_size": 20, "n_positions": 8, "n_embd": 8, "n_layer": layers, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=2, eos_token_id=3))


def bert(layers: int = 3) -> BertForTokenClassification:
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForTokenClassification(BertConfig(**sizes, num_hidden_layers=layers))


def marian() -> MarianMTModel:
    sizes = {"vocab_size": 20, "d_model": 8, "encoder_layers": 2, "decoder_layers": 2}
    sizes |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    sizes |= {f"{side}_ffn_dim": 16 for side in ("encoder", "decoder")}
    return MarianMTModel(MarianConfig(**sizes, pad_token_id=0, decoder_start_token_id=0, eos_token_id=3))


class View:
    def __init__(self, rows: dict[str, np.ndarray]) -> None:
        self._rows, self.keys = rows, tuple(rows)

    def rows(self, key: str) -> np.ndarray:
        return self._rows[key]


def watcher(looks: dict[str, list[float]]) -> SimpleNamespace:
    """What was seen of each site: the same rows with as much noise at each epoch as is said."""
    noise = {site: np.random.default_rng([7, at]).standard_normal((50, 60, 5)) for at, site in enumerate(looks)}

    def sample(epoch: int):
        return None, View({site: STILL + levels[epoch] * noise[site][epoch] for site, levels in looks.items()})

    return SimpleNamespace(looks=SimpleNamespace(sample=sample, epochs=range(50)))


def freeze(network, names) -> None:
    parameters = dict(network.named_parameters())
    for name in names:
        parameters[name].requires_grad_(False)


def blocks(names: list[str]) -> set[str]:
    """The parts of a GPT-2 that parameters belong to: its embeddings, and its blocks by number."""
    return {name.split(".")[2] if ".h." in name else name.split(".")[1] for name in names}


def test_a_layer_depends_on_itself_and_all_below():
    network = gpt2(3)
    freezer = Freezer(Freeze(), network)
    assert freezer.sites == ("resid.1", "resid.2")  # the last block goes on learning
    freeze(network, freezer._below["resid.1"])
    left = [name for name, weight in network.named_parameters() if weight.requires_grad]
    assert blocks(freezer._below["resid.1"]) == {"wte", "wpe", "0"}
    assert blocks(left) == {"1", "2", "ln_f"}
    tagger = bert(3)
    names = Freezer(Freeze(), tagger)._below["resid.2"]
    weights = [name for name, _ in tagger.named_parameters()]
    assert names == [name for name in weights if "embeddings" in name or "layer.0" in name or "layer.1" in name]


def test_a_decoder_depends_on_its_whole_encoder():
    network = marian()
    freezer = Freezer(Freeze(), network)
    assert freezer.sites == ("encoder.resid.1", "encoder.resid.2", "decoder.resid.1")
    below = freezer._below
    assert set(below["encoder.resid.1"]) < set(below["encoder.resid.2"]) < set(below["decoder.resid.1"])
    assert not [name for name in below["encoder.resid.2"] if "decoder.layers" in name]
    assert [name for name in below["decoder.resid.1"] if "decoder.layers.0.encoder_attn" in name]
    assert not [name for name in below["decoder.resid.1"] if "decoder.layers.1" in name]


def test_frozen_parameters_get_no_gradient_and_the_others_the_same():
    network, ids = gpt2(3).eval(), torch.arange(8)[None]
    network(ids, labels=ids).loss.backward()
    before = {name: weight.grad.clone() for name, weight in network.named_parameters()}
    network.zero_grad()
    names = Freezer(Freeze(), network)._below["resid.2"]
    freeze(network, names)
    network(ids, labels=ids).loss.backward()
    for name, weight in network.named_parameters():
        if name in names:
            assert weight.grad is None
        else:
            torch.testing.assert_close(weight.grad, before[name])


def test_making_it_changes_nothing():
    network = gpt2()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Freezer(Freeze(), network)
    assert torch.equal(torch.rand(3), expected)
    assert network.training
    assert all(weight.grad is None and weight.requires_grad for weight in network.parameters())


def test_layers_are_frozen_from_the_bottom_up():
    network = gpt2(4)
    freezer = Freezer(Freeze(threshold=0.9), network)
    moving, still = [3.0] * 9, [0.01] * 9
    seen = watcher({"resid.0": still, "resid.1": moving, "resid.2": still, "resid.3": still, "resid.4": still})
    assert freezer.after(5, seen) == []  # those above have settled, the first has not
    seen = watcher({"resid.0": moving, "resid.1": still, "resid.2": still, "resid.3": moving, "resid.4": still})
    names = freezer.after(5, seen)
    assert blocks(names) == {"wte", "wpe", "0", "1"}
    freeze(network, names)
    assert freezer.layers == 2
    assert freezer.after(6, seen) == []
    seen = watcher({f"resid.{layer}": still for layer in range(5)})
    more = freezer.after(7, seen)
    assert blocks(more) == {"2"}  # what is frozen already is not named again
    freeze(network, more)
    assert freezer.layers == 3
    assert freezer.after(8, seen) == []  # the last block is never frozen


def test_all_the_last_looks_count_and_the_one_before_training_does_not():
    freezer = Freezer(Freeze(threshold=0.9, patience=3), gpt2(2))
    still = watcher({"resid.1": [0.0] * 9})
    assert [bool(freezer.after(epoch, still)) for epoch in range(6)] == [False, False, False, False, True, True]
    for moved in (2, 3, 4, 5):
        levels = [0.01] * 9
        levels[moved] = 3.0
        assert not freezer.after(5, watcher({"resid.1": levels})), moved
    before = watcher({"resid.1": [3.0, 3.0, *[0.01] * 7]})
    assert freezer.after(5, before)
    assert not freezer.after(4, before)


def test_a_slow_drift_is_no_standstill():
    """Neighbours are alike, but the first of the looks is not like the last."""
    away = RNG.standard_normal(STILL.shape)

    def sample(epoch: int):
        turned = epoch * np.pi / 16
        return None, View({"resid.1": np.cos(turned) * STILL + np.sin(turned) * away})

    drifting = SimpleNamespace(looks=SimpleNamespace(sample=sample, epochs=range(50)))
    freezer = Freezer(Freeze(threshold=0.9, patience=1), gpt2(2))
    assert freezer.after(4, drifting)
    assert not Freezer(Freeze(threshold=0.9, patience=4), gpt2(2)).after(5, drifting)


def test_the_threshold_is_what_debiased_cka_must_reach():
    from pellucid.similarity.cka import debiased_cka
    from pellucid.similarity.pair import pair_of_rows

    seen = watcher({"resid.1": [0.3] * 4})
    rows = [seen.looks.sample(epoch)[1].rows("resid.1") for epoch in (2, 3)]
    score = debiased_cka(pair_of_rows(*rows))
    assert 0.5 < score < 0.99
    for threshold, frozen in ((score - 1e-6, True), (score + 1e-6, False)):
        freezer = Freezer(Freeze(threshold=threshold, patience=1), gpt2(2))
        assert bool(freezer.after(3, seen)) == frozen


def test_what_is_not_watched_is_not_frozen():
    network = marian()
    freezer = Freezer(Freeze(threshold=0.9), network)
    still = watcher({f"encoder.resid.{layer}": [0.01] * 9 for layer in range(3)})
    names = freezer.after(5, still)
    assert set(names) == set(freezer._below["encoder.resid.2"])


def test_a_training_that_goes_on_sees_what_is_frozen_on_the_parameters():
    network = gpt2(4)
    freezer = Freezer(Freeze(threshold=0.9), network)
    freeze(network, freezer._below["resid.1"])
    assert freezer.layers == 1
    still = watcher({f"resid.{layer}": [0.01] * 9 for layer in (1, 2)} | {"resid.3": [3.0] * 9})
    assert blocks(freezer.after(5, still)) == {"1"}


def test_bad_rules_and_networks_are_refused():
    for bad in ({"threshold": 0.0}, {"threshold": 1.1}, {"patience": 0}):
        with pytest.raises(TrainError, match="give"):
            Freeze(**bad)
    with pytest.raises(TrainError, match="has one block"):
        Freezer(Freeze(), gpt2(1))
