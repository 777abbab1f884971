"""Fingerprints: what a model is, whatever was done with it; another weight or another word is another model."""

from __future__ import annotations

import pytest
import torch

from pellucid.model.fingerprint import fingerprint
from tests.tiny_models import network, word_tokenizer


def test_use_of_the_tokenizer_does_not_change_it() -> None:
    """Truncation and padding stay set after a call; a worker that opens the model anew has not set them."""
    net, tokenizer = network("bert", "sdpa"), word_tokenizer()
    before = fingerprint(net, tokenizer)
    tokenizer(["one two", "one"], truncation=True, max_length=3, padding=True)
    assert tokenizer.backend_tokenizer.truncation is not None
    assert fingerprint(net, tokenizer) == before
    assert tokenizer.backend_tokenizer.truncation is not None, "nor does the fingerprint change the tokenizer"


@pytest.mark.parametrize("what", ["weight", "word", "setting"])
def test_what_is_another_model_has_another_one(what: str) -> None:
    net, tokenizer = network("bert", "sdpa"), word_tokenizer()
    before = fingerprint(net, tokenizer)
    if what == "weight":
        with torch.no_grad():
            next(net.parameters()).view(-1)[0] += 1
    elif what == "word":
        tokenizer.add_tokens(["another"])
    else:
        net.config.layer_norm_eps *= 2
    assert fingerprint(net, tokenizer) != before
