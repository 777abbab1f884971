"""Runs one peer of the benchmark `attribution` in its own environment: a line `go` times it once.

    .bench-venv/bin/python -m benchmarks.attribution_peer_worker JOB SIZE FOLDER THREADS

The jobs are `conductance` (every layer of a classifier), `answers` (start and end of an answer at every layer), both
by captum, and `generation` (every written token) by inseq. What was found is written to the folder once.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, TextIO

from benchmarks.attribution_inputs import NAMED, PROMPT, WRITTEN, Size, bert, gpt2, text, tokenizer
from benchmarks.timing import timer

Job = Callable[[], Any]


def conductance(size: Size) -> Job:
    """captum's LayerConductance, once for every layer."""
    return _layers(bert(size, "classifier"), size, {"logits": 1})


def answers(size: Size) -> Job:
    """captum's LayerConductance for the start and for the end of an answer, once for every layer."""
    return _layers(bert(size, "qa"), size, {"start_logits": 3, "end_logits": 5})


def _layers(network: Any, size: Size, targets: dict[str, int]) -> Job:
    import torch

    method = import_module("captum.attr").LayerConductance
    given = network.get_input_embeddings()(text(size.tokens)).detach()

    def run() -> Any:
        found: list[Any] = []
        for key, target in targets.items():

            def forward(embeddings: Any, key: str = key) -> Any:
                return network(inputs_embeds=embeddings)[key]

            for layer in network.bert.encoder.layer:
                part = method(forward, layer).attribute(given, target=target, n_steps=size.steps)
                found.append((part[0] if isinstance(part, tuple) else part).detach())
        return torch.stack(found).numpy()

    return run


def generation(size: Size) -> Job:
    """inseq's saliency of the logit of every token after the prompt."""
    inseq = import_module("inseq")
    with tempfile.TemporaryDirectory() as folder:
        network = gpt2(size)
        network.save_pretrained(folder)
        tokenizer(network.config.vocab_size).save_pretrained(folder)
        model = inseq.load_model(folder, "saliency", device="cpu")
    words = [f"w{number}" for number in text(PROMPT + WRITTEN)[0].tolist()]
    prompt, whole = " ".join(words[:PROMPT]), " ".join(words)

    def run() -> Any:
        out = model.attribute(prompt, whole, show_progress=False, attributed_fn="logit")
        return out.sequence_attributions[0].target_attributions.numpy()  # [tokens, written, width]

    return run


JOBS: dict[str, tuple[str, Callable[[Size], Job]]] = {
    "conductance": ("captum", conductance),
    "answers": ("captum", answers),
    "generation": ("inseq", generation),
}


def serve(job: str, size: Size, folder: Path, answers: TextIO) -> None:
    """Announce the peer's version and its FLOPs, then time one run for every line that comes in."""
    import numpy as np
    from torch.utils.flop_counter import FlopCounterMode

    package, build = JOBS[job]
    run = build(size)
    flops = 0
    if job == "generation":  # the first run also warms up; captum's are too long for one more
        with FlopCounterMode(display=False) as counter:
            run()
        flops = counter.get_total_flops()
    print(json.dumps({"version": metadata.version(package), "flops": flops}), file=answers, flush=True)
    kept: list[Any] = []
    timed = timer(lambda: kept.append(run()))
    for _ in sys.stdin:
        sample = timed()
        np.save(folder / f"{job}.npy", kept.pop())
        print(json.dumps({"wall": sample.wall, "cpu": sample.cpu}), file=answers, flush=True)


def main(arguments: list[str]) -> int:
    """Serve; what goes wrong is told in the same JSON lines, and the packages' chatter is kept out of them."""
    import torch

    job, size, folder, threads = arguments
    torch.set_num_threads(int(threads))
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    with contextlib.redirect_stdout(sys.stderr):
        try:
            serve(job, NAMED[size], Path(folder), answers)
        except Exception as error:  # whatever a package raises is its reason for not being measured
            said = (str(error).splitlines() or [""])[0]
            print(json.dumps({"error": f"{type(error).__name__}: {said}"}), file=answers, flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
