"""Reading the store: one layer, one unit and a slice, against a memory map of one file with the same bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import Measure
from benchmarks.shapes import Shape
from benchmarks.sweep_inputs import MissingInput, save_bert
from benchmarks.sweep_measures import at_least, median, unmeasured
from benchmarks.timing import interleave, timer

SHALLOW = Shape(
    "BERT of one layer, 768 wide", "bert", 1, (), {"num_hidden_layers": 1, "intermediate_size": 64}
)  # as wide as BERT-base, and quick to run: what is measured is reading
KEY, UNIT, SLICE = "resid.1", 300, 1000
TARGET = 0.40


def store(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Builds a store of float16 rows of 768 units, then reads it with the pages of both files in memory."""
    import numpy as np

    from pellucid import Corpus, Model, build_store

    count, rounds = (1_000, 5) if quick else (15_000, 15)
    what = f"store: {SHALLOW.name}"
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        place = Path(name)
        try:
            save_bert(place / "model", SHALLOW)
        except MissingInput as missing:
            yield unmeasured(what, str(missing), target=TARGET)
            return
        model = Model.load(place / "model", device="cpu")
        kept = build_store(model, Corpus.grammar(count), place / "store", "resid.*", threads=threads, progress=False)
        whole = kept.layer(KEY).numpy()
        whole.tofile(place / "whole")
        middle = kept.rows // 2
        mapped = np.memmap(place / "whole", dtype=whole.dtype, mode="r", shape=whole.shape)
        assert np.array_equal(kept.unit(KEY, UNIT).numpy(), mapped[:, UNIT])
        assert np.array_equal(kept.slice(KEY, middle, middle + SLICE).numpy(), mapped[middle : middle + SLICE])
        size = whole.nbytes
        del whole, mapped

        def floor() -> np.memmap[tuple[int, ...], np.dtype[np.float16]]:
            return np.memmap(place / "whole", dtype=np.float16, mode="r", shape=(kept.rows, kept.width(KEY)))

        found = interleave(
            {
                "layer": timer(lambda: kept.layer(KEY)),
                "whole": timer(lambda: np.array(floor())),
                "unit": timer(lambda: kept.unit(KEY, UNIT)),
                "column": timer(lambda: np.array(floor()[:, UNIT])),
                "slice": timer(lambda: kept.slice(KEY, middle, middle + SLICE)),
                "part": timer(lambda: np.array(floor()[middle : middle + SLICE])),
            },
            rounds=rounds,
        )
    note = (
        f"{size / 1e6:.0f} MB in {len(kept.entries)} shards: {size / median(found['layer']) / 1e9:.2f} GB/s, "
        f"a copy of one mapped file {size / median(found['whole']) / 1e9:.2f} GB/s"
    )
    yield at_least("store: one layer", found["layer"], found["whole"], target=TARGET, note=note)
    told = f"unit {UNIT} of {kept.rows:,} rows; the floor is a column of one mapped file"
    yield at_least("store: one unit", found["unit"], found["column"], target=None, note=told)
    told = f"{SLICE:,} rows from the middle; the floor is the same of one mapped file"
    yield at_least("store: a slice of words", found["slice"], found["part"], target=None, note=told)
