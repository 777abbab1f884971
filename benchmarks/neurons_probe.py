"""A probe that streams its rows from disk beside scikit-learn's logistic regression on the same rows in memory.

    python -m benchmarks.neurons_probe build|ours|scikit|whole FOLDER WORDS THREADS

builds the stores of a model and of its random twin, or trains on them in a process of its own and prints a JSON object:
`ours` and `scikit` one L2 probe, `whole` what `pl.neurons.probe` does, with its seeds and controls.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.heads_statistics import text_of
from benchmarks.report import Measure
from benchmarks.sweep_children import peak_memory, told_by
from benchmarks.sweep_inputs import MissingInput, minilm, treebank
from benchmarks.sweep_measures import unmeasured

MODULE = "benchmarks.neurons_probe"
WORDS, MB, MEMORY, BELOW, L2 = 200_000, 1 << 20, 1 << 30, 0.003, 1e-3


def probe(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Accuracy, seconds and resident memory of both, each in a fresh process: one L2 probe of UPOS; then the memory of
    the probe that users call, with three seeds, three control tasks and three probes on the random twin."""
    words = 4_000 if quick else WORDS
    what = f"probe of UPOS on {words:,} words of MiniLM's residual stream (2,688 neurons)"
    try:
        treebank("train")
        minilm()
        if find_spec("sklearn") is None:
            raise MissingInput("scikit-learn is not installed")
    except MissingInput as missing:
        yield unmeasured(what, str(missing))
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments = (folder, str(words), str(threads))
        told_by(MODULE, "build", *arguments, threads=threads)
        ours, other, every = (told_by(MODULE, way, *arguments, threads=threads) for way in ("ours", "scikit", "whole"))
    behind = other["accuracy"] - ours["accuracy"]
    note = (
        f"accuracy {ours['accuracy']:.4f}, scikit-learn {other['accuracy']:.4f}, majority {ours['majority']:.4f}; "
        f"{ours['learned']:,} words to learn from, {ours['epochs']} epochs; the ratio is scikit-learn's accuracy less "
        f"ours, at most {BELOW}"
    )
    yield Measure(f"{what}: accuracy", None, None, None, behind, BELOW, behind <= BELOW, note=note)
    ratio = ours["seconds"] / other["seconds"]
    note = f"{threads} threads; scikit-learn: lbfgs, {other['steps']} steps, rows in memory as float32"
    yield Measure(f"{what}: time", ours["seconds"], other["seconds"], None, ratio, None, None, rounds=1, note=note)
    note = (
        f"ours {ours['peak'] / MB:.0f} MB, {ours['before'] / MB:.0f} of it before training "
        f"({ours['imported'] / MB:.0f} before any label or row is read, for what is imported); scikit-learn "
        f"{other['peak'] / MB:.0f} MB; rows on disk {ours['disk'] / MB:.0f} MB; ratio to 1 GB"
    )
    peak = ours["peak"] / MEMORY
    yield Measure(f"{what}: resident memory", None, None, None, peak, 1.0, peak <= 1.0, rounds=1, note=note)
    peak = every["peak"] / MEMORY
    note = (
        f"pl.neurons.probe(store, concept='upos', random=twin): elastic net, three seeds, as many control tasks "
        f"and probes on the random twin in {every['seconds']:.0f} s; {every['peak'] / MB:.0f} MB; accuracy "
        f"{every['accuracy']:.4f}, random model {every['random model']:.4f}, control task {every['control task']:.4f}; "
        "ratio to 1 GB"
    )
    name = f"{what}, as users call it: resident memory"
    yield Measure(name, None, None, None, peak, 1.0, peak <= 1.0, rounds=1, note=note)


def build(folder: str, words: int) -> dict[str, Any]:
    """The stores of the residual stream, of the model and of its random twin, in float16."""
    from pellucid import Model, build_store

    model, text = Model.load(minilm(), device="cpu"), text_of(words)
    rows = [
        build_store(each, text, Path(folder) / name, "resid.*", long="truncate", progress=False).rows
        for name, each in (("store", model), ("twin", Model.random_like(model, 0)))
    ]
    return {"rows": rows[0]}


def whole(folder: str) -> dict[str, Any]:
    """The probe as users call it, with its own settings."""
    import pellucid as pl

    store, twin = (pl.Store.open(Path(folder) / name) for name in ("store", "twin"))
    start = time.perf_counter()
    found = pl.neurons.probe(store, concept="upos", random=twin, progress=False)
    seconds = time.perf_counter() - start
    accuracies = {str(name): float(found.values[at, 0]) for at, name in enumerate(found.axes["measure"])}
    return {"seconds": seconds, "peak": peak_memory(), **accuracies}


def ours(folder: str) -> dict[str, Any]:
    """Trains on the rows as they lie on disk."""
    import numpy as np

    from pellucid import Store
    from pellucid.neurons.concepts import Concept
    from pellucid.neurons.probing.controls import majority
    from pellucid.neurons.probing.material import Reading, material
    from pellucid.neurons.probing.training import Settings, Task, fit

    imported = peak_memory()
    found = material(Store.open(Path(folder) / "store"), Concept.label("upos"), Reading(), controlled=False)
    data, split = found.data, found.split
    before, start = peak_memory(), time.perf_counter()
    task = Task(data.goals, split.without(0), split.fold == 0)
    fitted = fit(found.rows, [task], len(data.classes), Settings(l1=0.0, l2=L2))
    seconds = time.perf_counter() - start
    right = [
        (fitted.guesses(part)[0] == data.goals[numbers]) for numbers, part in found.rows.batches(split.test, 2048, None)
    ]
    guess = majority(data.goals, split.training, len(data.classes))
    return {
        "accuracy": float(np.concatenate(right).mean()),
        "majority": float((data.goals[split.test] == guess).mean()),
        "seconds": seconds,
        "epochs": int(fitted.epochs[0]),
        "learned": int(task.learned.sum()),
        "imported": imported,
        "before": before,
        "peak": peak_memory(),
        "disk": found.store.bytes,
    }


def scikit(folder: str) -> dict[str, Any]:
    """The same words, penalty and scaling in scikit-learn."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from pellucid import Store
    from pellucid.neurons.concepts import Concept
    from pellucid.neurons.probing.material import Reading, material

    found = material(Store.open(Path(folder) / "store"), Concept.label("upos"), Reading(), controlled=False)
    data, split = found.data, found.split
    learned = split.without(0)
    rows, held = (found.rows.take(part.nonzero()[0]).numpy() for part in (learned, split.test))
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    for part in (rows, held):
        part -= mean
        part /= np.where(deviation > 0, deviation, 1)
    start = time.perf_counter()
    model: Any = LogisticRegression(C=1 / (L2 * len(rows)), max_iter=200).fit(rows, data.goals[learned])
    seconds = time.perf_counter() - start
    return {
        "accuracy": float((model.predict(held) == data.goals[split.test]).mean()),
        "seconds": seconds,
        "steps": int(max(model.n_iter_)),
        "peak": peak_memory(),
    }


if __name__ == "__main__":
    import torch

    way, place, size, count = sys.argv[1:]
    torch.set_num_threads(int(count))
    ways = {"ours": ours, "scikit": scikit, "whole": whole}
    print(json.dumps(build(place, int(size)) if way == "build" else ways[way](place)))
