"""Writes NOTICE from the cards of the zoo: `python -m recipes.notice`."""

from __future__ import annotations

from pathlib import Path

from pellucid import zoo

FILE = Path(__file__).parents[1] / "NOTICE"

_HEAD = """Pellucid
Copyright The Pellucid authors

The code is under the Apache License 2.0 (see LICENSE).

The package also holds small trained models (src/pellucid/zoo; pellucid/zoo where it is installed). Their weights were
made from the texts named here, and are under the licences named here. Each model's folder holds a card (README.md,
card.json) with the same facts, its scores and the hashes of its files.
"""
_LICENCES = {
    "Apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
    "CC BY-SA 3.0": "https://creativecommons.org/licenses/by-sa/3.0/",
    "CC BY-SA 4.0": "https://creativecommons.org/licenses/by-sa/4.0/",
}


def notice() -> str:
    """The text of NOTICE: for every model the licence of its weights and the terms of its data."""
    parts = [_HEAD]
    for card in zoo.models():
        data = card.facts["data"]
        terms = data.get("terms", [f"{data['name']}: {card.licence}"])  # zoo:lm has one text
        lines = [f"zoo:{card.name}", f"  weights: {card.licence}, {card.facts['licence_reason']}"]
        parts.append("\n".join([*lines, *(f"  data: {term}" for term in terms), ""]))
    parts.append("\n".join(f"{name}: {address}" for name, address in _LICENCES.items()) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.write_text(notice(), encoding="utf-8")
