"""Fills the table of recalls in docs/neurons.md, from the hand-built model of the tests: run it from the root."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from pellucid.neurons.methods import described  # noqa: E402
from tests.neurons import recall  # noqa: E402

PAGE = ROOT / "docs" / "neurons.md"
START, END = "<!-- recall -->\n", "<!-- end -->"


def main() -> None:
    """Measures every method, and writes the table anew."""
    found = recall.measured()
    lines = ["| ranking | by | recall |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {described(name).title} | {share:.2f} |" for name, share in found.items()]
    lines.append(f"| at random | as many neurons drawn | {recall.CHANCE:.2f} |")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + START + "\n".join(lines) + "\n" + END + after, encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
