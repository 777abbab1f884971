"""Options that mean the same in every command on neurons, and the group that these commands stand in."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from pellucid.errors import PellucidError

SourceArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A folder, a GGUF file, a name on the Hugging Face hub, or a saved store."),
]
OptionalCorpus = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        metavar="FILE",
        help="What the model reads: a file, FIRST+SECOND, or grammar[:COUNT]. A store has its text already.",
    ),
]
ConceptOption = Annotated[
    str,
    typer.Option(
        help="upos, upos=NOUN, upos=NOUN,VERB, words:FILE, pattern:REGEX, property:length, pair:overlap, arc:nsubj, "
        "sentence:label."
    ),
]
METHODS = (
    "probeless, iou, precision, selectivity, probe-elastic, probe-l1, probe-l2, gaussian, ablation, ablation-greedy or "
    "forest"
)
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", metavar="METHOD", help=f"How to rank: {METHODS} (may be repeated; default: probeless)."),
]
SitesOption = Annotated[list[str] | None, typer.Option(help="Sites (may be repeated; default: resid.* and neurons.*).")]
Class = Annotated[str | None, typer.Option("--class", help="The class whose order counts (default: overall).")]
Control = Annotated[bool, typer.Option(help="Read the text with a randomly initialised model too.")]
Pooling = Annotated[
    str | None,
    typer.Option(
        help="What a row is: a word from its sub-words (mean, first, last), or a whole sentence (sentence-mean, "
        "sentence-max, sentence-first, sentence-last). Default: mean, or as the store was built."
    ),
]
Epochs = Annotated[int, typer.Option(min=1, help="The most passes of a probe over the words.")]
Fewest = Annotated[int, typer.Option(min=2, help="Words that a class needs; rarer ones are left out.")]
FewestRanked = Annotated[
    int | None,
    typer.Option(
        min=2, help="Words that a class needs where none are named (default: 10; probes, gaussian, forest: 20, always)."
    ),
]
Seeds = Annotated[int, typer.Option(min=1, max=10, help="Probes, each without another tenth of the documents.")]
Seed = Annotated[int, typer.Option(help="Seed of the control model and of all draws.")]
Memory = Annotated[
    float | None, typer.Option(min=0.001, help="Gigabytes of rows that a probe holds at a time (default: 0.2).")
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="A folder for the results and their page; it must be new or empty.")
]


@dataclass(frozen=True)
class Scoring:
    """Options of single methods, named as they name them; what no chosen method has is refused."""

    quantile: Annotated[float | None, typer.Option(help="iou: neurons fire above this quantile (default: .95).")] = None
    threshold: Annotated[float | None, typer.Option(help="iou: neurons fire above this value instead.")] = None
    ends: Annotated[
        str | None, typer.Option(help="iou, precision: both ends of the values, or upper alone (default: both).")
    ] = None
    exact: Annotated[
        bool, typer.Option("--exact", help="iou, precision: from the values themselves, read into a store.")
    ] = False
    standardise: Annotated[
        bool, typer.Option("--standardise", help="probeless: divide by each neuron's standard deviation.")
    ] = False
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=10, help="probes, gaussian, forest: each leaves out another tenth (default: 3)."),
    ] = None
    replacement: Annotated[
        str | None, typer.Option(help="ablation, ablation-greedy: zero, or mean, the neuron's own (default: zero).")
    ] = None
    within: Annotated[
        int | None,
        typer.Option(min=1, help="ablation-greedy: out of so many first neurons by ablation (default: 30)."),
    ] = None
    count: Annotated[
        int | None,
        typer.Option(min=1, help="ablation-greedy, gaussian: neurons to choose one after another (default: 10; 50)."),
    ] = None
    fewest: FewestRanked = None
    memory: Annotated[
        float | None,
        typer.Option(min=0.001, help="probes, gaussian, forest: gigabytes of rows held at a time (default: 0.2)."),
    ] = None

    def given(self) -> dict[str, Any]:
        """The options that were given; those that cannot be are refused before anything is read."""
        from pellucid.neurons.histograms import ENDS
        from pellucid.neurons.judging.ablating import REPLACEMENTS

        if self.quantile is not None and self.threshold is not None:
            raise PellucidError("Neurons fire above --quantile or above --threshold; give one of the two.")
        if self.quantile is not None and not 0 <= self.quantile < 1:
            raise PellucidError(f"--quantile {self.quantile} must be at least 0 and less than 1, such as 0.95.")
        if self.ends not in (None, *ENDS):
            raise PellucidError(f"There are no --ends {self.ends!r}; use {' or '.join(ENDS)}.")
        if self.replacement not in (None, *REPLACEMENTS):
            raise PellucidError(f"There is no --replacement {self.replacement!r}; use {' or '.join(REPLACEMENTS)}.")
        if self.count is not None and self.within is not None and self.count > self.within:
            raise PellucidError(
                f"Not --count {self.count} neurons can go out of --within {self.within}; give a larger --within or a "
                "smaller --count."
            )
        told = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "fewest"}
        told["memory"] = memory_of(self.memory)
        made = {name: value for name, value in told.items() if value is not None and value is not False}
        return {"quantile": None, **made} if "threshold" in made else made


def memory_of(gigabytes: float | None) -> int | None:
    """The bytes of rows that may be held, where memory was given."""
    return None if gigabytes is None else round(gigabytes * 1e9)


def classes_of(methods: list[str], fewest: int | None) -> dict[str, int]:
    """The words that a class needs, as `rank` takes it: for rankings from one pass, and for those that train."""
    from pellucid.neurons.scores import FEW

    return {"least": FEW if fewest is None else fewest, **fewest_of(methods, fewest)}


def fewest_of(methods: list[str], fewest: int | None) -> dict[str, int]:
    """`fewest` for the methods that take it, which are those that train; nothing where none does."""
    from pellucid.neurons import RANKINGS
    from pellucid.neurons.ranked import own_options

    takes = any(name in RANKINGS and "fewest" in own_options(name) for name in methods)
    return {"fewest": fewest} if takes and fewest is not None else {}


def group(app: typer.Typer) -> typer.Typer:
    """The group of commands about neurons, which several modules fill; made where it is not there yet."""
    made = [each.typer_instance for each in app.registered_groups if each.name == "neurons"]
    if made and made[0] is not None:
        return made[0]
    new = typer.Typer(help="Find the neurons that carry a concept, and see what they respond to.", no_args_is_help=True)
    app.add_typer(new, name="neurons")
    return new
