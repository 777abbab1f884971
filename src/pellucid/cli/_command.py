"""The command as it was typed, and results that tell it."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pellucid.results import Result

R = TypeVar("R", bound="Result")


def command_line() -> str:
    """The command as it was typed."""
    return shlex.join(["pellucid", *sys.argv[1:]])


def under_command(result: R) -> R:
    """The result with the command that made it."""
    return replace(result, provenance=replace(result.provenance, command=command_line()))
