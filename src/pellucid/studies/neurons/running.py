"""The study of neurons: probes and rankings of every model, and what its neurons are worth; one file for each model.

Computing needs torch and transformers alone; `page` draws what lies in the folder.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pellucid.errors import listing
from pellucid.neurons import Ranking
from pellucid.results import versions
from pellucid.studies.claims import StudyError
from pellucid.studies.names import short_name
from pellucid.studies.neurons.cases import SCALES, ZOO, Asked, Scale, Setup, case_names, check_data, setup, text_mark
from pellucid.studies.neurons.measuring import Measuring
from pellucid.studies.neurons.tables import CONCEPTS, FORMAT, Case, read, write

Say = Callable[[str], None]


def compute(
    runs: str | Path,
    *,
    models: Sequence[str] = ZOO,
    data: str | Path | None = None,
    scale: str = "full",
    device: str | None = None,
    seed: int = 0,
    say: Say = print,
) -> Path:
    """Computes every model's case and writes it to `runs` as NAME.json once it is finished; what is there stays.

    `data` is a folder with ud_english_ewt; the smallest scale reads generated English instead.
    """
    if scale not in SCALES:
        raise StudyError(f"There is no scale {scale!r} of this study; there are {listing(SCALES)}.")
    names = case_names(models)
    asked = Asked(None if data is None else Path(data), device, seed, Path(runs))
    if scale != "smoke":
        check_data(asked.data)
    asked.runs.mkdir(exist_ok=True)
    for name, model in names.items():
        place = asked.runs / f"{name}.json"
        if place.is_file():
            _check_same(read(place), model, scale, asked, place)
            say(f"{name}: finished before, in {str(place)!r}")
            continue
        began = time.perf_counter()
        say(f"{name}: opening model and texts")
        opened = setup(model, SCALES[scale], asked)
        write(_computed(name, model, opened, SCALES[scale], asked, say), asked.runs)
        say(f"{name}: finished in {time.perf_counter() - began:.0f} s")
    return asked.runs


def _told(model: str, scale: str, asked: Asked) -> dict[str, Any]:
    """What makes two computations of a case the same."""
    return {"scale": scale, "seed": asked.seed, "model": short_name(model), "text": text_mark(scale == "smoke", asked)}


def _check_same(found: Case, model: str, scale: str, asked: Asked, place: Path) -> None:
    if found.format < FORMAT:
        raise StudyError(
            f"{str(place)!r} was computed by an older Pellucid (its numbers are of format {found.format}, now it is "
            f"{FORMAT}); give another --runs, or remove the file."
        )
    before, now = found.facts["asked"], _told(model, scale, asked)
    other = [name for name in now if before.get(name) != now[name]]
    if other:
        raise StudyError(
            f"{str(place)!r} was computed with {other[0]}={before.get(other[0])!r}, and now it is {now[other[0]]!r}; "
            "give another --runs, or remove the file."
        )


def _computed(name: str, model: str, opened: Setup, scale: Scale, asked: Asked, say: Say) -> Case:
    """Every number of a case."""

    def step(told: str) -> None:
        say(f"{name}: {told}")

    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        step(f"reading {opened.ranked.name} and {opened.judged.name}")
        found = Measuring(opened, Path(folder), asked.seed)
        probed: dict[str, Ranking] = {}
        for concept, told in CONCEPTS.items():
            step(f"probes of {told}, by layer and of the first neurons")
            found.layers(concept)
            probed[concept] = found.sets(concept)
        found.depths(probed["relation"], probed["pos"])
        found.shapes(probed["pos"])
        found.random_sets(probed["pos"])
        found.sub_layers()
        step(f"ranking {', '.join(opened.compared)}")
        rankings = found.rankings()
        found.kept_in_probe(rankings)
        if opened.task is not None:
            step(f"the model's own task without first neurons ({opened.task})")
            found.removed_in_model(rankings)
        step(f"the same rankings on {opened.size.parts} parts of the documents")
        found.stable()
    return Case(name, _facts(model, opened, found, scale, asked), found.grids, found.numbers)


def _facts(model: str, opened: Setup, found: Measuring, scale: Scale, asked: Asked) -> dict[str, Any]:
    own = opened.model
    counts = {name: {each: store.about["counts"][each] for each in ("sentences", "words")}
              for name, store in (("ranked", found.ranked), ("judged", found.judged))}  # fmt: skip
    return {
        "asked": _told(model, scale.name, asked),
        "about": scale.about,
        "model": {
            "name": short_name(own.name),
            "fingerprint": own.fingerprint,
            "class": type(own.hf).__name__,
            "causal": bool(own.causal),
        },
        "task": opened.task,
        "texts": {"ranked on": opened.ranked.name, "judged on": opened.judged.name},
        "counts": counts,
        "concepts": dict(opened.concepts),
        "sites": {"stream": opened.stream, "compared": opened.compared, "sub-layers": opened.inner},
        "neurons": opened.neurons,
        "size": asdict(opened.size),
        "versions": versions(),
    }
