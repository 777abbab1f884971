"""The errors Pellucid raises for things a person can mend; every message says what was asked, what exists and what to
do."""

from __future__ import annotations

from collections.abc import Iterable


class PellucidError(Exception):
    """Base of every error meant for the user; the command line prints it as one sentence and exits with 2."""


class ModelError(PellucidError):
    """A model that cannot be opened, or cannot do what was asked of it."""


class SiteError(PellucidError):
    """A site, head, neuron or position that the model does not have."""


class EditError(PellucidError):
    """An edit that does not fit the site it is aimed at."""


class TextError(PellucidError):
    """Text that the model cannot take: empty, too long, or without a tokenizer to read it."""


class SweepError(PellucidError):
    """A sweep, store or collector that cannot do what was asked, or a saved one that is damaged or of another kind."""


class CorpusError(PellucidError):
    """A corpus that cannot be read, or does not have what was asked of it."""


class TrainError(PellucidError):
    """A training that cannot be begun or gone on with as asked, or a run folder that cannot be read."""


class AttributionError(PellucidError):
    """An attribution that was asked for a target, baseline or method that does not exist or does not fit."""


class OutOfMemory(PellucidError):
    """The machine or the accelerator ran out of memory during a pass."""


def listing(names: Iterable[object], *, most: int = 12) -> str:
    """Names as one readable list, cut after `most` of them with the number left out."""
    shown = [str(name) for name in names]
    if not shown:
        return "none"
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")
