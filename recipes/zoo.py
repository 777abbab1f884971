"""Makes a model of the zoo: `python -m recipes.zoo NAME --data FOLDER --out FOLDER [--device cuda]`.

Data → trainings with the candidates' settings → the best by the validation text → float16 → scores of the saved files →
card. `--data` is the folder that holds the data sets' folders. `--score` scores a folder that was made before.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts: reproducible matrix products

import torch
from transformers.utils import logging

from pellucid.errors import PellucidError
from pellucid.model import Model
from pellucid.train import Run, Settings, settings_for, train
from recipes import cards, zoo_card, zoo_scores
from recipes.finished import finished
from recipes.zoo_data import Splits
from recipes.zoo_models import RECIPES, TUNED, Recipe

COMMAND = "python -m recipes.zoo {0} --data data --out {0}"


@dataclass(frozen=True)
class Chosen:
    """What the command line says, beside the recipe: where data and runs are, where to compute, and how much."""

    data: Path
    runs: Path
    device: str
    mlm: str  # the model that stands for zoo:mlm, where that is not yet part of the package
    first: int | None  # sentences of each text to use; None for all
    changes: Mapping[str, Any]

    def read(self, recipe: Recipe) -> Splits:
        splits = recipe.read(self.data)
        return splits if self.first is None else splits.first(self.first)

    def settings(self, recipe: Recipe, candidate: Mapping[str, Any]) -> Settings:
        changes = {**recipe.settings, **candidate, **self.changes}
        if changes.get("source") == TUNED:
            changes["source"] = self.mlm
        return settings_for(recipe.task, **changes)


def trained(recipe: Recipe, number: int, chosen: Chosen, splits: Splits | None = None) -> Run:
    """The training with one candidate's settings; one that is finished already is only read."""
    given = chosen.read(recipe) if splits is None else splits
    settings = chosen.settings(recipe, recipe.candidates[number])
    folder = chosen.runs / f"{recipe.name}-{number}"
    return train(
        given.train, settings, folder, valid=given.valid, checkpoints="best", watch=False, device=chosen.device
    )


def _trained_apart(name: str, number: int, chosen: Chosen) -> Path:
    """The same, in a process of its own."""
    logging.disable_progress_bar()
    return trained(RECIPES[name], number, chosen).folder


def best(recipe: Recipe, chosen: Chosen, splits: Splits, workers: int) -> tuple[Run, list[dict[str, Any]]]:
    """The training that did best on the validation text, and what every candidate scored there."""
    numbers = range(len(recipe.candidates))
    chosen.runs.mkdir(parents=True, exist_ok=True)
    if workers > 1:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            waiting = [pool.submit(_trained_apart, recipe.name, number, chosen) for number in numbers]
            runs = [Run.open(each.result()) for each in waiting]
    else:
        runs = [trained(recipe, number, chosen, splits) for number in numbers]
    metric, larger = runs[0].facts["best"]["metric"], runs[0].facts["best"]["larger"]
    scores = [next(row for row in run.log if row["epoch"] == run.best)[f"valid_{metric}"] for run in runs]
    winner = scores.index((max if larger else min)(scores))
    tried = [
        {
            "changes": dict(recipe.candidates[number]),
            "metric": metric,
            "valid": scores[number],
            "epoch": runs[number].best,
            "chosen": number == winner,
        }
        for number in numbers
    ]
    return runs[winner], tried


def save(run: Run, folder: Path) -> None:
    """The best epoch's weights in float16, and the tokenizer, as a folder that `Model.load` opens."""
    model = run.model(device="cpu")
    network: Any = model.hf
    tokenizer = model.tokenizer
    network.config.name_or_path = ""
    network.half().save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # it is written for its owner alone
    if "token_type_ids" not in tokenizer.model_input_names and network.config.model_type == "bert":
        tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]  # to be tuned to pairs
    tokenizer.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer.backend_tokenizer.to_str(pretty=False), encoding="utf-8")


def score(folder: Path, recipe: Recipe, splits: Splits, device: str, facts: cards.Facts) -> cards.Facts:
    """The card of the saved files: everything that depends on their scores, added to the `facts` of the training."""
    model = Model.load(folder, device=device, dtype=torch.float32)
    settings = Settings.of_json({**facts["settings"], "source": None})
    scores = zoo_scores.measure(model, settings, splits)
    sizes = zoo_scores.sizes(model, settings, splits)
    examples = [{"texts": list(texts), "said": zoo_scores.said(model, recipe.task, texts)} for texts in recipe.examples]
    described = zoo_card.describe(recipe, Settings.of_json(facts["settings"]), model.hf)
    return {
        **described,
        **facts,
        "data": {**described["data"], "sizes": sizes},
        "verdict": zoo_card.verdict(scores, recipe.main),
        "scores": scores,
        "examples": examples,
    }


def make(recipe: Recipe, folder: Path, chosen: Chosen, *, workers: int, command: str) -> None:
    """Everything from the data to the finished folder."""
    splits = chosen.read(recipe)
    run, tried = best(recipe, chosen, splits, workers)
    save(run, folder)
    settings = run.settings.to_json()
    if settings["source"] == chosen.mlm:
        settings["source"] = TUNED
    facts = {
        "recipe": command,
        "candidates": tried,
        "settings": settings,
        "machine": cards.machine(chosen.device),
        "versions": cards.versions(),
    }
    _write(folder, score(folder, recipe, splits, chosen.device, facts))


def again(recipe: Recipe, out: Path, chosen: Chosen) -> None:
    """Scores a folder that was made before and writes its card again; the training's own facts stay."""
    before = json.loads((out / "card.json").read_text(encoding="utf-8"))
    facts = {name: before[name] for name in ("recipe", "candidates", "settings", "machine", "versions")}
    _write(out, score(out, recipe, chosen.read(recipe), chosen.device, facts))


def _write(folder: Path, card: cards.Facts) -> None:
    cards.write(folder, card, zoo_card.readme)
    size = sum(item.stat().st_size for item in folder.iterdir())
    brief = {"name": card["name"], "parameters": card["parameters"], "bytes": size, "verdict": card["verdict"]}
    print(json.dumps({**brief, "candidates": card["candidates"]}, ensure_ascii=False), flush=True)


def _value(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as JSON or else as text."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def main() -> None:
    """Reads the command line; a finished folder takes the place of an older one only when all is well."""
    parser = argparse.ArgumentParser(prog="python -m recipes.zoo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=RECIPES, help="the model to make (zoo:lm has a recipe of its own, zoo_lm)")
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the folders of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; one made before is replaced")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=1, help="candidates that are trained at the same time")
    parser.add_argument("--runs", type=Path, help="folder that keeps the trainings, to go on after a kill")
    parser.add_argument("--mlm", default=TUNED, help="the model to start from where the recipe says zoo:mlm")
    parser.add_argument("--first", type=int, help="only so many sentences of each text, to try a recipe out")
    parser.add_argument("--set", type=_value, action="append", default=[], help="NAME=VALUE: another setting")
    parser.add_argument("--score", action="store_true", help="train nothing; score the folder and write its card again")
    given = parser.parse_args()
    logging.disable_progress_bar()  # of the writing of weights
    recipe = RECIPES[given.name]
    changes = dict(given.set)
    flags = [f"--set {name}={value}" for name, value in changes.items()]
    flags += [] if given.first is None else [f"--first {given.first}"]
    command = " ".join([COMMAND.format(recipe.name), "--device", given.device, *flags])
    try:
        with tempfile.TemporaryDirectory(prefix=f"zoo-{recipe.name}-") as temporary:
            runs = Path(temporary) if given.runs is None else given.runs
            chosen = Chosen(given.data, runs, given.device, given.mlm, given.first, changes)
            if given.score:
                again(recipe, given.out, chosen)
            else:
                with finished(given.out) as folder:
                    make(recipe, folder, chosen, workers=given.workers, command=command)
    except PellucidError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
