"""One way to bring word-level activations to disk, in a process of its own.

    python -m benchmarks.sweep_extract_worker WAY MODEL SENTENCES FOLDER

WAY is `float32` or `float16` (our store), `plain` (our batches, forward alone), `hdf5` or `json` (a loop over single
sentences in the peers' environment, where nothing of Pellucid is imported). SENTENCES is a JSON file of lists of words.
A line `go` on standard input makes one pass, timed in wall and CPU-seconds. All take the last sub-word of every word.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from benchmarks.sweep_children import cpu_seconds

Sentences = Sequence[Sequence[str]]
Extract = Callable[[Sentences, Path], None]
CHECKED = 8  # sentences whose numbers all ways must agree on


def loop(model: Any, tokenizer: Any, sentences: Sentences, write: Callable[[int, Sequence[str], Any], None]) -> None:
    """One sentence at a time through the model; `write` gets its number, words and rows [layers, words, width]."""
    import torch

    for number, words in enumerate(sentences):
        encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            states = model(**encoded, output_hidden_states=True).hidden_states
        last: dict[int, int] = {word: place for place, word in enumerate(encoded.word_ids()) if word is not None}
        known = sorted(last)
        places = [last[word] for word in known]
        write(number, [words[word] for word in known], torch.stack([layer[0, places] for layer in states]).numpy())


def hdf5(model: Any, tokenizer: Any) -> tuple[Extract, Callable[[Path], Any]]:
    """One float32 data set per sentence."""
    h5py = import_module("h5py")

    def extract(sentences: Sentences, path: Path) -> None:
        with h5py.File(path, "w") as file:

            def write(number: int, _words: Sequence[str], rows: Any) -> None:
                file.create_dataset(str(number), data=rows)

            loop(model, tokenizer, sentences, write)

    def read(path: Path) -> Any:
        import numpy as np

        with h5py.File(path) as file:
            return np.concatenate([file[str(number)][:] for number in range(len(file))], axis=1)

    return extract, read


def json_lines(model: Any, tokenizer: Any, *, fast: bool) -> tuple[Extract, Callable[[Path], Any]]:
    """One JSON object per sentence: each number rounded by itself, as NeuroX does, or as `fast` as plain Python can."""

    def numbers(rows: Any) -> list[list[list[float]]]:
        if fast:
            return rows.tolist()
        return [[[round(value.item(), 8) for value in row] for row in layer] for layer in rows]

    def extract(sentences: Sentences, path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:

            def write(_number: int, words: Sequence[str], rows: Any) -> None:
                values = numbers(rows)
                features = [
                    {
                        "token": word,
                        "layers": [{"index": layer, "values": values[layer][place]} for layer in range(len(values))],
                    }
                    for place, word in enumerate(words)
                ]
                file.write(json.dumps({"features": features}) + "\n")

            loop(model, tokenizer, sentences, write)

    def read(path: Path) -> Any:
        import numpy as np

        lines = [json.loads(line)["features"] for line in path.read_text(encoding="utf-8").splitlines()]
        words = [[layer["values"] for layer in feature["layers"]] for line in lines for feature in line]
        return np.array(words, dtype=np.float32).swapaxes(0, 1)

    return extract, read


def store(model: Any, dtype: str) -> tuple[Extract, Callable[[Path], Any]]:
    """Our store, as `build_store` writes it."""
    import torch

    from pellucid import Corpus, Store, build_store

    def extract(sentences: Sentences, path: Path) -> None:
        corpus = Corpus.of(sentences)
        build_store(
            model, corpus, path, "resid.*", dtype=dtype, pooling="last", threads=torch.get_num_threads(), progress=False
        )

    def read(path: Path) -> Any:
        import numpy as np

        found = Store.open(path)
        return np.stack([found.layer(key).float().numpy() for key in found.keys])

    return extract, read


def plain(model: Any) -> tuple[Extract, None]:
    """The forward pass over the store's batches; the first call with new sentences makes them ready."""
    from benchmarks.sweep_plain import plain_forward
    from pellucid import Corpus

    ready: dict[int, Callable[[], None]] = {}

    def extract(sentences: Sentences, _path: Path) -> None:
        if len(sentences) not in ready:
            forward, _ = plain_forward(model, Corpus.of(sentences), budget=2048, shard_tokens=8192)
            ready[len(sentences)] = forward
            return
        ready[len(sentences)]()

    return extract, None


def opened(way: str, folder: str) -> tuple[Extract, Callable[[Path], Any] | None]:
    """A way to extract, with its model loaded, and how to read back what it wrote."""
    if way in ("hdf5", "json", "fast-json"):
        from transformers import AutoModel, AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        network = AutoModel.from_pretrained(folder).eval()
        if way == "hdf5":
            return hdf5(network, tokenizer)
        return json_lines(network, tokenizer, fast=way == "fast-json")
    from pellucid import Model

    model = Model.load(folder, device="cpu")
    return plain(model) if way == "plain" else store(model, way)


def serve(way: str, folder: str, sentences: Sentences, place: Path, answers: TextIO) -> None:
    """Tell what a few sentences gave, then time one pass over all for every line that comes in."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    extract, read = opened(way, folder)
    output = place / way
    extract(sentences[:CHECKED], output)
    told: dict[str, Any] = {}
    if read is not None:
        rows = read(output)  # [layers, words, width]
        told = {"words": rows.shape[1], "means": abs(rows).mean(axis=(1, 2)).tolist(), "bytes": _size(output)}
    else:
        extract(sentences, output)
    print(json.dumps(told), file=answers, flush=True)
    for _ in sys.stdin:
        _remove(output)
        cpu, wall = cpu_seconds(), time.perf_counter()
        extract(sentences, output)
        sample = {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}
        print(json.dumps(sample), file=answers, flush=True)
    _remove(output)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(each.stat().st_size for each in path.rglob("*"))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def main(arguments: list[str]) -> int:
    """Serve; what goes wrong is told in the same JSON lines, and libraries' chatter is kept out of them."""
    way, folder, sentences, place = arguments
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    with contextlib.redirect_stdout(sys.stderr):
        try:
            words = json.loads(Path(sentences).read_text(encoding="utf-8"))
            serve(way, folder, words, Path(place), answers)
        except Exception as error:  # whatever a way raises is its reason for not being measured
            text = (str(error).splitlines() or [""])[0]
            print(json.dumps({"error": f"{type(error).__name__}: {text}"}), file=answers, flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
