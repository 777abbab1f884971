"""The study of identifiability: attention, tokens, mixing and flow of several models, each written when finished.

Computing needs torch and transformers alone; `page` draws what lies in the folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pellucid import identifiability
from pellucid.identifiability.jacobians import stream
from pellucid.model import Model
from pellucid.results import versions
from pellucid.studies.claims import StudyError
from pellucid.studies.identifiability import measures
from pellucid.studies.identifiability.cases import Size, Texts, check_data, scale_named, texts
from pellucid.studies.identifiability.tables import Case, file_name, read, write

Say = Callable[[str], None]


def compute(
    runs: str | Path,
    models: Mapping[str, str | Model],
    *,
    data: str | Path | None = None,
    scale: str = "full",
    device: str | None = None,
    seed: int = 0,
    say: Say = print,
) -> Path:
    """Computes the numbers of every model, {name: model}, and writes each to `runs` once it is finished; what is there
    stays. `data` holds ud_english_ewt."""
    chosen = scale_named(scale)
    smoke, folder = scale == "smoke", None if data is None else Path(data)
    if not smoke:
        check_data(folder)
    place = Path(runs)
    place.mkdir(exist_ok=True)
    for name, source in models.items():
        file = place / file_name(name)
        asked = {"scale": scale, "seed": seed, "model": _source(source)}
        if file.is_file():
            _check_same(read(file), asked, file)
            say(f"{name}: finished before, in {str(file)!r}")
            continue
        began = time.perf_counter()
        say(f"{name}: opening the model")
        model = source if isinstance(source, Model) else Model.load(source, device=device)
        size = chosen.size(_parameters(model))
        read_texts = texts(folder, size, smoke=smoke, seed=seed)
        facts = {"asked": asked, "about": chosen.about, **_facts(name, model, read_texts, size)}
        write(_computed(name, model, read_texts, size, facts, seed, say), place)
        say(f"{name}: finished in {time.perf_counter() - began:.0f} s")
    return place


def _source(source: str | Model) -> str:
    """A model as it was asked for, without the folders that it lies in."""
    name = source.name if isinstance(source, Model) else source
    return name.rstrip("/").rpartition("/")[2]


def _check_same(found: Case, asked: Mapping[str, Any], file: Path) -> None:
    before = found.facts["asked"]
    other = [name for name in asked if before.get(name) != asked[name]]
    if other:
        raise StudyError(
            f"{str(file)!r} was computed with {other[0]}={before.get(other[0])!r}, and now it is {asked[other[0]]!r}; "
            "give another --runs, or remove the file."
        )


def _parameters(model: Model) -> int:
    return sum(weights.numel() for weights in model.hf.parameters())


def _facts(name: str, model: Model, read_texts: Texts, size: Size) -> dict[str, Any]:
    sites = stream(model)
    widths = [model.size(site)[-1] for site in model.sites if site.kind == "value" and site.stack == sites[0].stack]
    if not widths:
        raise StudyError(f"{model.name!r} does not show the values of its attention; give another model for {name!r}.")
    return {
        "model": {
            "class": type(model.hf).__name__,
            "fingerprint": model.fingerprint,
            "parameters": _parameters(model),
            "layers": len(sites) - 1,
            "width": model.size(sites[0])[-1],
            "head width": min(widths),
            "causal": model.causal,
        },
        "texts": {part: getattr(read_texts, part).name for part in ("told", "read", "passages", "mixed")},
        "size": asdict(size),
        "versions": versions(),
    }


def _computed(name: str, model: Model, held: Texts, size: Size, facts: dict[str, Any], seed: int, say: Say) -> Case:
    """Every number of a model."""
    say(f"{name}: what attention leaves open, {held.read.name} and {held.passages.name}")
    curves = measures.attention_curves(model, held.read, held.passages)
    say(f"{name}: telling tokens from states, {held.told.name}")
    maps = ("identity", "linear")
    told = identifiability.tokens(model, held.told, maps=maps, seed=seed, progress=False)
    curves["tokens"] = measures.token_curve(told)
    layers = measures.spread(int(facts["model"]["layers"]), size.perceptrons)
    say(f"{name}: perceptrons at layers {', '.join(map(str, layers))}")
    trained = identifiability.tokens(
        model, held.told, maps=("linear", "mlp"), layers=layers, random=False, seed=seed, progress=False
    )
    curves["perceptrons"] = measures.token_curve(trained)
    say(f"{name}: how far tokens mix, {held.mixed.name}, {size.probes} directions for each token")
    mixed = identifiability.mixing(
        model, held.mixed, sentences=size.mixed, probes=size.probes, seed=seed, progress=False
    )
    curves["mixing"], curves["offsets"] = measures.mixing_curve(mixed), measures.offset_curve(mixed)
    say(f"{name}: maps of attention beside what states react to, {size.followed} of these sentences")
    followed = identifiability.flow_agreement(
        model, held.mixed, sentences=size.followed, probes=size.probes, seed=seed, progress=False
    )
    curves["flow"] = measures.flow_curve(followed)
    counts = {
        "tokens asked about": int(told.table("groups").columns["tokens"][:, 0, 0].sum())
        if "groups" in told.tables
        else 0,
        "tokens mixed": int(mixed.table("texts").columns["tokens"].sum()),
        "error of the norms": float(mixed.table("texts").columns["error"].mean()),
        "not largest by half": float(mixed.table("directions").columns["not largest by half"][-1]),
        "positions followed": int(followed.table("texts").columns["positions"].sum()),
    }
    return Case(name, {**facts, "counts": counts}, curves)
