"""What is refused before a sweep or a store begins, and what counts as running out of memory."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pellucid import Moments, build_store, sweep
from pellucid.collect.ray_engine import _room
from pellucid.errors import SweepError
from pellucid.model import Model
from pellucid.model.memory import ran_out
from pellucid.reading import control
from tests.collect.sweeping import reader, stories


def test_nothing_to_do_is_refused(tmp_path):
    with pytest.raises(SweepError, match="at least one model and one collector"):
        sweep([], stories(3), Moments("resid.*"))
    with pytest.raises(SweepError, match="at least one model and one collector"):
        sweep(reader("gpt2"), stories(3), [])
    with pytest.raises(SweepError, match="at least one model"):
        build_store([], stories(3), tmp_path / "k")


def test_a_store_refuses_what_a_sweep_refuses(tmp_path):
    models = [reader("gpt2"), reader("bert")]
    with pytest.raises(SweepError, match="Several models meet at words"):
        build_store(models, stories(3), tmp_path / "k", pooling="all")
    with pytest.raises(SweepError, match=r"^pattern\.0 holds attention weights, which are a matrix for a whole text"):
        build_store(reader("gpt2"), stories(3), tmp_path / "k", "pattern.*")
    assert not (tmp_path / "k").exists()


def test_scores_of_whole_texts_are_no_rows():
    from transformers import AutoModelForSequenceClassification

    from pellucid.families.configs import FAMILIES, build

    config = build(FAMILIES["bert"], attention="eager", seed=0).config
    network = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager")
    model = Model.load(network, tokenizer=reader("bert").tokenizer)
    with pytest.raises(SweepError, match=r"^logits has one row for a whole text and not"):
        sweep(model, stories(3), Moments("logits"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            True,
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate"), True),
        (MemoryError(), True),
        (torch.OutOfMemoryError("x"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_what_running_out_of_memory_looks_like(error, expected):
    assert ran_out(error) is expected


def test_ray_never_waits_for_room_that_it_has_not():
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": 8.0, "GPU": 2.0})
    assert _room(ray, {"num_cpus": 2, "num_gpus": 0}, None) == 4
    assert _room(ray, {"num_cpus": 1, "num_gpus": 1}, None) == 2
    assert _room(ray, {"num_cpus": 4, "num_gpus": 0}, 2) == 2
    with pytest.raises(SweepError, match="8 CPUs and 2 GPUs, room for 2 workers of 4 threads, and 3 were asked for"):
        _room(ray, {"num_cpus": 4, "num_gpus": 0}, 3)
    with pytest.raises(SweepError, match="room for 0 workers of 16 threads"):
        _room(ray, {"num_cpus": 16, "num_gpus": 0}, None)


def test_only_the_first_models_own_twin_is_its_control():
    found = sweep([reader("gpt2"), Model.random_like(reader("gpt2"), 3)], stories(3), Moments("resid.0"))
    assert control(found.models) == 1
    other = replace(found.models[1], name="another (random, seed 3)")
    assert control((found.models[0], other)) is None
