"""Pruning heads: the fewest that a model can do its task with, found by learned gates, beside other ways to choose."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pellucid.attribution.passes import frozen
from pellucid.collect.lock import locked
from pellucid.collect.progress import Progress
from pellucid.errors import ModelError, TrainError
from pellucid.heads.naming import all_heads, find_heads, head_name
from pellucid.heads.pruning.curves import Curves, curves, path_of, seen_at
from pellucid.heads.pruning.gate_training import GateSettings, GateTraining, Point, check_reach, tunable
from pellucid.heads.pruning.gates import HeadGates
from pellucid.heads.pruning.main_scores import main_scores
from pellucid.heads.pruning.smaller import Saved, save_smaller, smaller
from pellucid.heads.pruning.tables import check_functions, survivor_tables
from pellucid.heads.weighing.measuring import Measured, measured
from pellucid.results import Provenance, Result, Table
from pellucid.saving import write_file
from pellucid.train.preparing import held_out

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.heads.roles.functions import HeadFunctions
    from pellucid.model import Model

ABOUT, RESULT, MODEL = "prune.json", "result", "model"
"""What a folder of a pruning holds: how it was begun, the result, and the smaller model."""
FORMAT = 1
KEEP = 0.95
"""The share of what a model is better than chance that the chosen point keeps."""
TEST = "test"
"""What was seen at a point on the text to test on."""


@dataclass(frozen=True, eq=False)
class Pruning(Result):
    """The quality of a model with ever fewer heads, [method, heads]: by learned gates, by importance, at random.

    Tables: `gates` (every head's gate at every point of the curve), `survivors` (the heads at the chosen point),
    `functions` (which functions they have, where known), `path` (the training), `layers` (survivors of every layer),
    `scores` (BLEU of translations or F1 of answers, with all heads and at the chosen point).
    """

    kind: ClassVar[str] = "heads.pruning"
    title: ClassVar[str] = "Quality with fewer heads"
    chance: ClassVar[str] = "guessing by one who knows how often each answer occurs"

    @property
    def score(self) -> str:
        """The name of the score: accuracy or perplexity."""
        return str(self.provenance.arguments["score"])

    @property
    def larger_is_better(self) -> bool:
        """Whether more of the score is better."""
        return self.score != "perplexity"

    @property
    def chosen(self) -> int:
        """How many heads are left at the chosen point."""
        return int(self.provenance.arguments["chosen"])

    @property
    def biased(self) -> bool:
        """Whether the point was chosen by the very scores that are shown, which are then a little too good there."""
        told = self.provenance.arguments
        by_score = told.get("keep") is not None and told.get("heads") is None
        return by_score and not told["settings"]["tune"] and "chosen on" not in told

    def gates_at(self, heads: int | None = None) -> dict[str, float]:
        """Every head's gate as it was measured where so many heads are left (default: at the chosen point).

        Learned gates are the column `gate` of the table `gates`; where weights were not tuned, open ones count in full.
        """
        at = self.place("heads", self.chosen if heads is None else heads)
        table = self.table("gates")
        return {
            str(name): float(gate) for name, gate in zip(table.axes["head"], table.columns["used"][at], strict=True)
        }

    def survivors(self, heads: int | None = None) -> list[str]:
        """The heads that are left."""
        return [name for name, gate in self.gates_at(heads).items() if gate > 0]


def prune(
    model: Model,
    corpus: Corpus,
    task: str | None = None,
    *,
    settings: GateSettings | None = None,
    valid: Corpus | None = None,
    test: Corpus | None = None,
    order: Sequence[str] | None = None,
    functions: HeadFunctions | None = None,
    draws: int = 5,
    keep: float | None = None,
    heads: int | None = None,
    folder: str | Path | None = None,
    label: str | None = None,
    rows: str = "sentences",
    length: int | None = None,
    save_every: float = 60.0,
    progress: bool | None = None,
    command: str | None = None,
) -> Pruning:
    """Learns which heads a model can do without, and measures it with ever fewer of them (Voita et al. 2019).

    Hard-concrete gates start open and are trained on `corpus` with task loss (mean per goal) + λ·ΣP(open). Weights stay
    as they are, and heads that stay open count in full, unless settings.tune. Quality is measured on `valid` (default:
    every tenth document), with as many heads removed by `order` (names, the most important first; default: gradient
    importance) and in `draws` random orders. Chosen is the point with the fewest heads that keeps `keep` (0.95) of what
    the model is better than chance on `valid`, or with at most `heads`; of tuned weights, the end of the training.
    There BLEU of translations and F1 of answers are measured too, in the table `scores`. With `test`, all that is shown
    is measured on it, and `valid` only chooses. A `folder` makes it resumable and gets the smaller model as `model`.
    """
    how = settings or GateSettings()
    _check(how, draws, keep, heads, folder)
    check_functions(model, functions)
    training, choice = held_out(corpus) if valid is None else (corpus, valid)
    _check_apart(choice, test)
    given: dict[str, Any] = {"label": label, "rows": rows, "length": length, "batch": how.batch, "seed": how.seed}
    network = tunable(model) if how.tune else model
    found = measured(network, training, task, shuffled=True, **given)
    chooser = measured(network, choice, found.task.name, **given)
    tested = chooser if test is None else measured(network, test, found.task.name, **given)
    check_reach(found, how)
    ranking = _ranking(model, order)
    told: dict[str, Any] = {"task": found.task.name, "settings": asdict(how), "draws": draws, "heads": heads}
    told.update(keep=None if how.tune or heads is not None else KEEP if keep is None else keep, label=label, rows=rows)
    told.update(length=length, order=None if ranking is None else list(ranking))
    place = None if folder is None else Path(folder)
    begun = _begun(told, model, (training, choice, test), functions)
    if place is not None and _finished(place, begun):
        return Pruning.load(place / RESULT)

    def look(gates: HeadGates) -> dict[str, Any]:
        return {**seen_at(chooser, gates), **({} if test is None else {TEST: seen_at(tested, gates)})}

    with nullcontext() if place is None else locked(place), Progress(progress) as bar:
        if place is not None:
            write_file(place / ABOUT, (json.dumps({"format": FORMAT, **begun}, indent=2) + "\n").encode())
        with nullcontext() if how.tune else frozen(network):
            points = GateTraining(found, how, look, bar, place, save_every).run()
        bar.begin("measuring with fewer heads", None)
        ranking = ranking or _by_gradient(model, training, found, given)
        curve, chosen = _curve(model, points, ranking, told, chooser, tested)
        bar.begin("measuring the main score", None)
        scores = main_scores(tested, model, curve, chosen, ranking, draws=draws, seed=how.seed)
        if test is not None:
            told["chosen on"] = {"name": choice.name, "fingerprint": choice.fingerprint}
        result = _result(model, found, tested, curve, chosen, told, functions, ranking, command, scores)
        if place is not None:
            _write(place, network, result)
    return result


def _curve(
    model: Model,
    points: Sequence[tuple[Point, Mapping[str, Any]]],
    ranking: Sequence[str],
    told: Mapping[str, Any],
    chooser: Measured,
    tested: Measured,
) -> tuple[Curves, int]:
    """The curves on the text to test on, and the number of heads at the point that the other text chose."""
    tune, seed = bool(told["settings"]["tune"]), int(told["settings"]["seed"])

    def measure(on: Measured, seen: Sequence[tuple[Point, Mapping[str, Any]]], draws: int) -> Curves:
        return curves(replace(on, model=model), seen, ranking, draws=draws, seed=seed, whole=not tune)

    apart = tested is not chooser
    curve = measure(tested, [(point, seen[TEST]) for point, seen in points] if apart else points, told["draws"])
    curve = replace(curve, path=path_of(points, curve.score))
    if tune:
        return curve, curve.last
    choosing = measure(chooser, points, 1) if apart else curve
    return curve, choosing.chosen(keep=told["keep"] or KEEP, most=told["heads"])


def pruned(model: Model, pruning: Pruning, *, heads: int | None = None) -> Model:
    """The model without the heads that a pruning closed, as it was measured: other gates become part of the weights.

    `heads` names another point of the curve than the chosen one. A pruning that tuned the weights keeps its model in
    its folder, and only there.
    """
    if pruning.provenance.arguments["settings"]["tune"]:
        raise ModelError("This pruning trained the weights as well; open the model in its folder with Model.load.")
    if pruning.provenance.models[0]["fingerprint"] != model.fingerprint:
        raise ModelError(
            f"The pruning was made with {pruning.provenance.models[0]['name']!r}, and {model.name!r} is another model; "
            "open the same one."
        )
    return _without(model, pruning.gates_at(heads))


def _without(model: Model, gates: Mapping[str, float]) -> Model:
    closed = [name for name, gate in gates.items() if gate == 0]
    return smaller(model, closed, gates={name: gate for name, gate in gates.items() if 0 < gate < 1})


def _check(how: GateSettings, draws: int, keep: float | None, heads: int | None, folder: str | Path | None) -> None:
    if draws < 1:
        raise TrainError(f"draws={draws} leaves no random order to compare with; give at least 1.")
    if keep is not None and not 0 < keep <= 1:
        raise TrainError(f"keep={keep} is no share of what the model can do; give over 0 and at most 1.")
    if heads is not None and heads < 0:
        raise TrainError(f"heads={heads} cannot be kept; give 0 or more.")
    if how.tune and folder is None:
        raise TrainError("Tuned weights are kept in a folder; give folder=… as well as tune.")
    asked = [f"{name}={value}" for name, value in (("heads", heads), ("keep", keep)) if value is not None]
    if how.tune and asked:
        raise TrainError(
            f"With tune, the weights fit the heads that are open at the end of the training alone, so that {asked[0]} "
            "has no other point to choose; leave it out, and let strength and epochs say how many heads close."
        )
    if len(asked) > 1:
        raise TrainError(f"{asked[0]} and {asked[1]} each choose a point of the curve; give one of them.")


def _check_apart(choice: Corpus, test: Corpus | None) -> None:
    if test is not None and test.fingerprint == choice.fingerprint:
        raise TrainError(
            f"{test.name!r} is also the text that the point is chosen by; test on another one, or leave test out."
        )


def _ranking(model: Model, order: Sequence[str] | None) -> tuple[str, ...] | None:
    """The given order of all heads, checked; None where there is none."""
    if order is None:
        return None
    find_heads(model, order)
    every = [head_name(*head) for head in all_heads(model)]
    if len(set(order)) != len(order) or len(order) != len(every):
        raise ModelError(
            f"An order names every head once, the most important first; this one has {len(set(order))} of "
            f"{len(every)} heads (in {len(order)} names)."
        )
    return tuple(order)


def _by_gradient(model: Model, training: Corpus, found: Measured, given: Mapping[str, Any]) -> tuple[str, ...]:
    from pellucid.heads.weighing.importance import importance

    weighed = importance(model, training, found.task.name, methods=("gradient",), random=False, **given)
    return weighed.ranking("gradient")


def _begun(
    told: Mapping[str, Any], model: Model, corpora: Sequence[Corpus | None], functions: HeadFunctions | None
) -> dict[str, Any]:
    """What makes two prunings the same."""
    texts = [each.fingerprint for each in corpora if each is not None]
    known = None if functions is None else functions.provenance.to_json()
    return {**told, "model": model.fingerprint, "corpora": texts, "functions": known}


def _finished(folder: Path, begun: Mapping[str, Any]) -> bool:
    """Whether a folder holds this very pruning, finished; one that was begun otherwise is refused."""
    if not folder.exists() or (folder.is_dir() and all(item.name == ".lock" for item in folder.iterdir())):
        return False
    try:
        before = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise TrainError(f"{str(folder)!r} exists and is not the folder of a pruning; choose another folder.") from None
    new = json.loads(json.dumps(begun))
    other = [name for name in new if before.get(name) != new[name]]
    if other or before.get("format") != FORMAT:
        what = other[0] if other else "format"
        raise TrainError(
            f"The pruning in {str(folder)!r} was begun with another {what}; use the same to go on, or another folder."
        )
    return (folder / RESULT).is_dir()


def _result(
    model: Model,
    found: Measured,
    tested: Measured,
    curve: Curves,
    chosen: int,
    told: Mapping[str, Any],
    functions: HeadFunctions | None,
    ranking: Iterable[str],
    command: str | None,
    scores: Table | None,
) -> Pruning:
    """The result of a curve."""
    gates = curve.gates_at(chosen)
    tables = {
        "gates": Table({"heads": curve.counts, "head": curve.names}, {"gate": curve.gates, "used": curve.used}),
        "path": curve.path,
        **survivor_tables(model, gates, ranking, functions),
        **({} if scores is None else {"scores": scores}),
    }
    arguments = {
        **told,
        "score": curve.score,
        "chosen": chosen,
        "order": "gradient importance" if told["order"] is None else "given",
        "training": {"name": found.corpus.name, "fingerprint": found.corpus.fingerprint},
    }
    corpus = {
        "name": tested.corpus.name,
        "fingerprint": tested.corpus.fingerprint,
        "sentences": tested.examples.sentences,
        "tokens": tested.examples.tokens,
    }
    return Pruning(
        axes={"method": curve.methods, "heads": curve.counts},
        values=curve.values,
        null=curve.null,
        low=curve.low,
        high=curve.high,
        resampled=curve.resampled,
        provenance=Provenance(
            "heads.pruning",
            arguments,
            ({"name": model.name, "fingerprint": model.fingerprint},),
            corpus,
            seed=int(told["settings"]["seed"]),
            command=command,
        ),
        tables=tables,
    )


def _write(folder: Path, network: Model, result: Pruning) -> Saved | None:
    """The smaller model and the result; a model whose heads cannot be removed leaves the result alone."""
    saved = None
    if len(result.survivors()) < len(result.gates_at()) and not (folder / MODEL).exists():
        try:
            saved = save_smaller(_without(network, result.gates_at()), folder / MODEL)
        except ModelError as error:
            write_file(folder / "not-removed.txt", f"{error}\n".encode())
    result.save(folder / RESULT)
    return saved
