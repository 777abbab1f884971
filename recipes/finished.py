"""Folders that are replaced only by finished ones."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def finished(out: Path) -> Generator[Path]:
    """A folder to work in; when all went well it takes the place of `out`, which must be new or hold a card."""
    if out.exists() and not (out / "card.json").is_file():
        sys.exit(f"{str(out)!r} exists and was not made by this recipe; choose another folder.")
    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
