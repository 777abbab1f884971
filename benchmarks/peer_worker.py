"""Runs one peer in its own environment: a line `go` on standard input times one pass, a JSON line comes back.

    .bench-venv/bin/python -m benchmarks.peer_worker PEER SHAPE LENGTH THREADS

The sites are those of our own measure: head outputs, neurons, the stream, queries, keys and values.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, TextIO

from benchmarks.shapes import CPU_SHAPES, Shape, build, token_ids
from benchmarks.timing import timer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Capture = Callable[[], list[Any]]


def transformer_lens(model: PreTrainedModel, ids: torch.Tensor) -> Capture:
    """TransformerLens' `run_with_cache` over the same transformers model, whose attention it makes eager."""
    bridge_class = import_module("transformer_lens.model_bridge").TransformerBridge
    with tempfile.TemporaryDirectory() as folder:
        _tokenizer(model.config.vocab_size).save_pretrained(folder)
        bridge = bridge_class.boot_transformers(folder, hf_model=model, device="cpu")
    parts = ("hook_in", "hook_out", "attn.q.hook_out", "attn.k.hook_out", "attn.v.hook_out")
    names = {
        f"blocks.{layer}.{part}"
        for layer in range(model.config.num_hidden_layers)
        for part in (*parts, "attn.o.hook_in", "mlp.out.hook_in")
    }

    def capture() -> list[Any]:
        _, cache = bridge.run_with_cache(ids, names_filter=lambda name: name in names, return_cache_object=False)
        return list(cache.values())

    return capture


def nnsight(model: PreTrainedModel, ids: torch.Tensor) -> Capture:
    """A trace of nnsight that saves references at the same places."""
    wrapped = import_module("nnsight").NNsight(model)
    bert = model.config.model_type == "bert"
    blocks = wrapped.bert.encoder.layer if bert else wrapped.transformer.h

    def of_bert() -> list[Any]:
        saved: list[Any] = []
        with wrapped.trace(ids):
            for block in blocks:
                saved.append(block.input.save())
                saved.append(block.attention.self.query.output.save())
                saved.append(block.attention.self.key.output.save())
                saved.append(block.attention.self.value.output.save())
                saved.append(block.attention.E_output.dense.input.save())  # nnsight's name for `output`
                saved.append(block.E_output.dense.input.save())
                saved.append(block.output.save())
        return saved

    def of_gpt2() -> list[Any]:
        saved: list[Any] = []
        with wrapped.trace(ids):
            for block in blocks:
                saved.append(block.input.save())
                saved.append(block.attn.c_attn.output.save())  # queries, keys and values in one
                saved.append(block.attn.c_proj.input.save())
                saved.append(block.mlp.c_proj.input.save())
                saved.append(block.output.save())
        return saved

    return of_bert if bert else of_gpt2


def _tokenizer(size: int) -> Any:
    """TransformerLens asks for a tokenizer; this one is never used."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(size)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")),
        unk_token="w0",
        pad_token="w0",
        bos_token="w0",
        eos_token="w0",
    )


PEERS: dict[str, Callable[[PreTrainedModel, torch.Tensor], Capture]] = {
    "transformer-lens": transformer_lens,
    "nnsight": nnsight,
}


def serve(peer: str, shape: Shape, length: int, threads: int, answers: TextIO) -> None:
    """Announce the peer's version and what it captures, then time one pass for every line that comes in."""
    import torch

    torch.set_num_threads(threads)
    with torch.no_grad():
        capture = PEERS[peer](build(shape, head=True), token_ids(shape, length))
        tensors = len(capture())
        if tensors == 0:
            raise RuntimeError("nothing was captured")
        timed = timer(capture)
        print(json.dumps({"version": metadata.version(peer), "tensors": tensors}), file=answers, flush=True)
        for _ in sys.stdin:
            sample = timed()
            print(json.dumps({"wall": sample.wall, "cpu": sample.cpu}), file=answers, flush=True)


def main(arguments: list[str]) -> int:
    """Serve; what goes wrong is told in the same JSON lines, and libraries' chatter is kept out of them."""
    peer, name, length, threads = arguments
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    shape = next(shape for shape in CPU_SHAPES if shape.name == name)
    with contextlib.redirect_stdout(sys.stderr):
        try:
            serve(peer, shape, int(length), int(threads), answers)
        except Exception as error:  # whatever a peer raises is its reason for not being measured
            text = (str(error).splitlines() or [""])[0]
            print(json.dumps({"error": f"{type(error).__name__}: {text}"}), file=answers, flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
