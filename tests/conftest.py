"""Nothing here touches the network: the hub is off, and torch keeps to one thread for tiny models."""

from __future__ import annotations

import os
from collections import Counter

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import pytest
import torch
import transformers

from tests.tiny_models import save

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()

SLOW = ("test_docs.py",)
"""Files with few tests that take long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long go first, those with few tests last: then files run side by side end at the same time."""
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.name not in SLOW, -counts[item.path], item.path))


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory):
    """A saved GPT-2 with its tokenizer; tests that damage it copy it first."""
    return save(tmp_path_factory.mktemp("models") / "gpt2", "gpt2")


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory):
    """A saved BERT for masked words, with its tokenizer."""
    return save(tmp_path_factory.mktemp("models") / "bert", "bert")


@pytest.fixture(scope="session")
def t5_folder(tmp_path_factory):
    """A saved T5, with its tokenizer."""
    return save(tmp_path_factory.mktemp("models") / "t5", "t5")
