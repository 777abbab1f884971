"""Draws the pictures of the README: `python docs/pictures.py` runs the demo and saves what it prints."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console

from pellucid.cli import _predictions, _print, demo, sites

FOLDER = Path(__file__).parent / "images"


def draw_demo() -> None:
    """The demo's output as an SVG picture of a terminal."""
    screen = Console(record=True, width=100, highlight=False, force_terminal=True)
    for module in (_print, _predictions, demo, sites):
        module.console = lambda stderr=False: screen if not stderr else Console(stderr=True)
    screen.print("$ pellucid demo")
    demo.demo()
    picture = screen.export_svg(title="pellucid demo")
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # no font from elsewhere: works offline
    (FOLDER / "demo.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    draw_demo()
