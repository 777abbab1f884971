"""`pellucid neurons follow`: how neurons move, word by word, through sentences built from templates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli import _options as options
from pellucid.cli._groups import spread
from pellucid.cli._neuron_options import Class, Out, group
from pellucid.cli._neuron_rankings import first_of, saved
from pellucid.cli._neuron_results import check_out, give
from pellucid.cli._print import console, print_table
from pellucid.errors import PellucidError, listing
from pellucid.written import number

if TYPE_CHECKING:
    from pellucid.model import Model
    from pellucid.neurons import Ranking, Trajectories

FOLLOW = """Examples: pellucid neurons follow zoo:lm --neuron resid.3:17 --stimuli number ;
pellucid neurons follow zoo:lm --ranking ranked/probeless --top 3 --stimuli negation -o moves ; pellucid neurons follow
zoo:lm --neuron neurons.1:4 --template "one: the / dog|cat / sleeps" --template "many: the / dogs|cats / sleep" """
SLOTS = "/"
"""What stands between the slots of a template on the command line."""


def register(app: typer.Typer) -> None:
    group(app).command(name="follow", epilog=FOLLOW.strip())(spread(follow))


def follow(
    model: options.ModelArgument,
    neuron: Annotated[list[str] | None, typer.Option(help="A neuron, as neurons.3:17 (may be repeated).")] = None,
    ranking: Annotated[Path | None, typer.Option(help="A saved ranking, whose first neurons are followed.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Neurons of the ranking.")] = 4,
    cls: Class = None,
    stimuli: Annotated[
        list[str] | None,
        typer.Option(help="number, negation or intensifiers (may be repeated; default: all three)."),
    ] = None,
    template: Annotated[
        list[str] | None,
        typer.Option(help='Sentences of your own, two kinds or more: "KIND: slot / slot", | between alternatives.'),
    ] = None,
    out: Out = None,
    *,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Follow neurons through sentences that differ in one thing: the mean at each word, beside all kinds together."""
    from pellucid.neurons import trajectories
    from pellucid.neurons.judging.trajectories import TEMPLATES

    check_out(out)
    if template and stimuli:
        raise PellucidError("Give --stimuli that are built in, or a --template for each kind of your own; not both.")
    if not neuron and ranking is None:
        raise PellucidError("Name the neurons to follow (--neuron neurons.3:17), or a saved --ranking.")
    own = {"templates": _kinds(template)} if template else {name: name for name in stimuli or TEMPLATES}
    ranked = None if ranking is None else _only(ranking)
    opened = opening.open(model)
    names = list(neuron or [])
    if ranked is not None:
        _check_model(ranked, opened)
        names += first_of(ranked, top, cls)
    made = {name: trajectories(opened, names, kinds) for name, kinds in own.items()}
    give(made, out, json, model=model, about="How neurons move through sentences built from templates.", tell=_print)


def _only(folder: Path) -> Ranking:
    """The ranking in a folder; several raise."""
    found = saved([folder])
    if len(found) > 1:
        raise PellucidError(
            f"{str(folder)!r} holds {len(found)} rankings, and one is followed: give the folder of {listing(found)}."
        )
    return next(iter(found.values()))


def _check_model(ranking: Ranking, model: Model) -> None:
    """Raises where a ranking is of another model, whose neurons have the same names and mean something else."""
    made = ranking.provenance.models[:1]
    if made and made[0]["fingerprint"] != model.fingerprint:
        raise PellucidError(
            f"The ranking was made with {made[0]['name']!r}, and {model.name!r} has other weights, or the same in "
            "another --dtype; give a ranking of this model, or name neurons with --neuron."
        )


def _kinds(templates: list[str]) -> dict[str, list[list[str]]]:
    """The sentences of every kind, from `KIND: slot / slot`."""
    from pellucid.neurons.judging.trajectories import sentences

    found: dict[str, list[list[str]]] = {}
    for text in templates:
        kind, colon, slots = text.partition(":")
        if not colon or not kind.strip() or not slots.strip() or kind.strip() in found:
            raise PellucidError(f'{text!r} is no new kind of sentence; write "KIND: slot / slot", each kind once.')
        found[kind.strip()] = sentences([slot.strip() for slot in slots.split(SLOTS)])
    return found


def _print(name: str, result: Trajectories) -> None:
    """One table for each neuron: the mean at every word of every kind, with its interval."""
    words = result.table("words").columns["word"]
    kinds = [str(kind) for kind in result.axes["stimulus"]]
    for at, neuron in enumerate(result.axes["measure"]):
        means = result.values[at]  # [kind, position]
        rows = [
            [
                place + 1,
                *(f"{words[kind, place]} {_told(result, (at, kind, place))}" for kind in range(len(kinds))),
                number(float(means[:, place].max() - means[:, place].min())),
            ]
            for place in range(means.shape[1])
        ]
        print_table(["word", *kinds, "apart"], rows, title=f"{name}: {neuron}", right=["apart"])
    console().print(f"interval: {result.resampled}")


def _told(result: Trajectories, at: tuple[int, int, int]) -> str:
    """A mean and the interval of it, where there is one."""
    if result.low is None or result.high is None:
        return number(float(result.values[at]))
    return f"{number(float(result.values[at]))} ({number(float(result.low[at]))} to {number(float(result.high[at]))})"
