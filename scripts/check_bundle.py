"""Stops the build of a wheel that would lack the script that draws interactive views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLE = "src/pellucid/views/interactive/bundle.js"


class CheckBundle(BuildHookInterface[Any]):
    """Looks for the bundle before a wheel is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not (Path(self.root) / BUNDLE).is_file():
            raise FileNotFoundError(f"{BUNDLE} is missing: build it with `npm ci && npm run build` in the folder web.")
