"""The study of heads: what they do, which matter, how few are needed, and which of them are left, on three cases.

Computing needs torch and transformers alone; `page` draws what lies in the folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pellucid.errors import listing
from pellucid.heads import GateSettings, importance, measured, prune
from pellucid.heads.pruning.curves import random_orders
from pellucid.model import Model
from pellucid.results import versions
from pellucid.studies.claims import StudyError
from pellucid.studies.heads import reading
from pellucid.studies.heads import removing as fewer
from pellucid.studies.heads.cases import SCALES, Asked, Setup, Size, check_data, setup
from pellucid.studies.heads.tables import CASES, Case, read, slim, write
from pellucid.studies.texts import sampled

Say = Callable[[str], None]
RANDOM_SEED = 2
"""Added to the seed for the two random networks."""
KEEP = 0.95
"""The share of what a model is better than chance that the chosen point keeps."""
ALL, RANDOM = "all heads", "as many at random"
TRANSLATED = 3
"""Random draws of heads that translate, too."""


def compute(
    runs: str | Path,
    *,
    only: Sequence[str] = tuple(CASES),
    data: str | Path | None = None,
    lm: str | None = None,
    encoder: str | None = None,
    scale: str = "full",
    device: str | None = None,
    seed: int = 0,
    say: Say = print,
) -> Path:
    """Computes the cases asked for and writes each to `runs` as CASE.json once it is finished; what is there stays.

    `data` holds multi30k, ud_english_ewt and sst2; `lm` and `encoder` are models (default: those of the zoo). An
    encoder without a head for classes is tuned first, and what it has learned is kept in `runs`, too.
    """
    if scale not in SCALES:
        raise StudyError(f"There is no scale {scale!r} of this study; there are {listing(SCALES)}.")
    chosen = checked_cases(only)
    asked = Asked(None if data is None else Path(data), lm, encoder, device, seed, Path(runs))
    if scale != "smoke":
        for case in chosen:
            check_data(case, asked.data)
    asked.runs.mkdir(exist_ok=True)
    for case in chosen:
        place = asked.runs / f"{case}.json"
        if place.is_file():
            _check_same(read(place), case, scale, asked, place)
            say(f"{case}: finished before, in {str(place)!r}")
            continue
        began = time.perf_counter()
        say(f"{case}: opening model and texts")
        opened = setup(case, SCALES[scale].sizes[case], asked, say, smoke=scale == "smoke")
        write(_computed(case, opened, SCALES[scale].sizes[case], scale, asked, say), asked.runs)
        say(f"{case}: finished in {time.perf_counter() - began:.0f} s")
    return asked.runs


def checked_cases(only: Sequence[str]) -> list[str]:
    """The cases asked for, each once, in the study's order; an unknown one raises and lists those there are."""
    unknown = [name for name in only if name not in CASES]
    if unknown or not only:
        what = f"no case {unknown[0]!r}" if unknown else "no case asked for"
        raise StudyError(f"There is {what} of the study of heads; there are {listing(CASES)}.")
    return [name for name in CASES if name in only]


def _told(case: str, scale: str, asked: Asked) -> dict[str, Any]:
    """What makes two computations of a case the same."""
    model = {"translate": None, "lm": asked.lm, "classify": asked.encoder}[case]
    return {"scale": scale, "seed": asked.seed, "model": model}


def _check_same(found: Case, case: str, scale: str, asked: Asked, place: Path) -> None:
    before, now = found.facts["asked"], _told(case, scale, asked)
    other = [name for name in now if before.get(name) != now[name]]
    if other:
        raise StudyError(
            f"{str(place)!r} was computed with {other[0]}={before.get(other[0])!r}, and now it is {now[other[0]]!r}; "
            "give another --runs, or remove the file."
        )


def _computed(case: str, opened: Setup, size: Size, scale: str, asked: Asked, say: Say) -> Case:
    """Every number of a case."""
    model, seed = opened.model, asked.seed
    say(f"{case}: what the heads of {model.name} look at")
    randoms = [Model.random_like(model, seed + RANDOM_SEED + number) for number in range(2)]
    found = reading.all_functions(model, randoms, opened.reading)
    with_arcs = next(name for name, each in found.functions.items() if "syntactic" in each.axes["measure"])
    profiles = reading.profiles(*found.sweeps[with_arcs])
    links = reading.pronoun_links(model, size.pronouns, seed)
    say(f"{case}: which heads matter, {size.weighed} sentences")
    methods = ["confidence", "gradient", "zero", *(["lrp"] if size.lrp else [])]
    part = sampled(opened.training, size.weighed)
    weighed = importance(
        model, part, opened.task, methods=methods, lrp_sentences=size.lrp or 1, label=opened.label,
        batch=min(32, size.batch), seed=seed, progress=False,
    )  # fmt: skip
    say(f"{case}: training gates on {opened.training.name}")
    pruning = prune(
        model, opened.training, opened.task, settings=_gates(size, seed), valid=opened.choice,
        order=fewer.order_of(weighed), draws=1, keep=KEEP, folder=asked.runs / f"{case}-gates", label=opened.label,
        progress=False,
    )  # fmt: skip
    say(f"{case}: fewer heads, measured on {opened.test.name}")
    tested = measured(model, opened.test, opened.task, batch=32, label=opened.label, seed=seed)
    curve = fewer.curve(tested, pruning, fewer.order_of(weighed), draws=size.draws, seed=seed)
    written: dict[str, list[Any]] = {}
    if opened.task == "translate":
        written = fewer.translations(tested, _networks(pruning, seed), size.translated)
    facts: dict[str, Any] = {
        "asked": _told(case, scale, asked),
        "about": SCALES[scale].about,
        "model": {"name": opened.name, "fingerprint": model.fingerprint, "class": type(model.hf).__name__},
        "task": opened.task,
        "notes": list(opened.notes),
        "texts": {
            "gates": opened.training.name,
            "chosen on": opened.choice.name,
            "measured on": opened.test.name,
            "weighed on": part.name,
            **{f"read: {name}": corpus.name for name, corpus in opened.reading.items()},
        },
        "layers read on": with_arcs,
        "tags": reading.tag_heads(*found.sweeps[with_arcs]),
        "size": asdict(size),
        "versions": versions(),
    }
    kept = slim(weighed, ("ranks", "agreement", "task"))
    return Case(case, facts, found.functions, found.random, kept, pruning, curve, profiles, links, written)


def _gates(size: Size, seed: int) -> GateSettings:
    return GateSettings(
        strength=size.price, epochs=size.epochs, batch=size.batch, rate=size.rate, points=size.points, seed=seed
    )


def _networks(pruning: Any, seed: int) -> dict[str, list[str]]:
    """The networks whose translations are compared, by the heads that are gone from each."""
    names = [str(name) for name in pruning.table("gates").axes["head"]]
    left = set(pruning.survivors())
    drawn = {
        f"{RANDOM} ({number})": set(order[: len(left)])
        for number, order in enumerate(random_orders(names, TRANSLATED, seed), start=1)
    }
    return {
        ALL: [],
        **{
            name: [head for head in names if head not in kept]
            for name, kept in {f"{len(left)} heads": left, **drawn}.items()
        },
    }
