"""Options that mean the same in every command, and opening a model from them."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pellucid.errors import ModelError, listing

if TYPE_CHECKING:
    from pellucid.model import Model

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A folder, a GGUF file or a name on the Hugging Face hub.")
]
Device = Annotated[
    str | None,
    typer.Option(help="Where to run: cpu, cuda, cuda:1 … (default: an accelerator if there is one)."),
]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16, float16 or float64 (default: float32 on a CPU).")]
Head = Annotated[str, typer.Option(help="auto, none, lm, mlm, classifier, qa, tagger or seq2seq.")]
Attention = Annotated[str, typer.Option(help="fused (fast) or eager (patterns can be edited).")]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Open weights stored as pickle. Only for models you trust.")
]
Probes = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER|exact",
        help="Random directions per token for what states react to (default: exact if it takes seconds, else 16).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


INTERRUPTED = 130
"""What a command that Ctrl-C stopped exits with."""


class Stopped(SystemExit):
    """Ctrl-C, of which the user was told already."""


@contextmanager
def resumable(folder: Path) -> Generator[None]:
    """Ctrl-C in the block says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        begun = folder.is_dir() and any(folder.glob("*.json"))
        told = f" What is finished is in {str(folder)!r}; run the same command again to go on." if begun else ""
        print(f"pellucid: stopped.{told}", file=sys.stderr)
        raise Stopped(INTERRUPTED) from None


def directions(probes: str | None) -> int | Literal["exact"] | None:
    """`--probes` as the functions take it; what is neither a number nor `exact` is refused there."""
    from pellucid.identifiability.jacobians import check_probes

    found: Any = int(probes) if probes is not None and probes.lstrip("-").isdigit() else probes
    check_probes(found)
    return found


def is_store(name: str) -> bool:
    """Whether a folder is a store, which some commands read instead of a model."""
    from pellucid.collect.store import ABOUT

    return (Path(name) / ABOUT).is_file()


def _refuse_store(name: str) -> None:
    """Raises: a store was given to a command that runs the model itself."""
    from pellucid.collect.store import Store

    models = listing(each.name for each in Store.open(name).models[:1])
    raise ModelError(
        f"{name!r} is a store, which keeps activations of {models}, and this command runs the model: give that. A "
        "store is read by pellucid neurons rank and probe; pellucid store info tells what it holds."
    )


_DTYPES = ("float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True)
class Opening:
    """How a model is opened."""

    device: Device = None
    dtype: Dtype = None
    head: Head = "auto"
    attention: Attention = "fused"
    allow_pickle: AllowPickle = False

    def open(self, name: str) -> Model:
        """The model of a name."""
        if self.dtype is not None and self.dtype not in _DTYPES:
            raise ModelError(f"There is no dtype {self.dtype!r}; use one of {', '.join(_DTYPES)}.")
        if is_store(name):
            _refuse_store(name)
        import torch

        from pellucid.model import Model

        return Model.load(
            name,
            device=self.device,
            dtype=None if self.dtype is None else getattr(torch, self.dtype),
            head=self.head,
            attention=self.attention,
            allow_pickle=self.allow_pickle,
        )
