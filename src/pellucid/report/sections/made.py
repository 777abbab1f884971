"""How the report was made: the command, versions, fingerprints and seed that every number can be traced to."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING

from pellucid.report.html import element, number
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import Sheet

if TYPE_CHECKING:
    from pellucid.collect.found import Found


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """Everything needed to make the same numbers again."""
    provenance = found.provenance("pellucid.report.report", seed=subject.seed)
    sheet.text(
        "The command that made this page, also in ",
        element("a", element("code", "command.txt"), href="command.txt"),
        ":",
    )
    sheet.html(element("pre", subject.command))
    sheet.facts(
        [
            *[(f"{name} version", version) for name, version in provenance.versions.items()],
            ("Python version", platform.python_version()),
            ("Seed", str(subject.seed)),
            ("Time taken", f"{number(time.perf_counter() - subject.started, digits=2)} seconds"),
        ]
    )
    sheet.table(
        ["what", "name", "fingerprint"],
        [
            *[
                ("model" if place == 0 else "control model", model.name, model.fingerprint)
                for place, model in enumerate(found.models)
            ],
            ("corpus", subject.corpus.name, subject.corpus.fingerprint or "none"),
        ],
        caption="What was read and what read it. A fingerprint names the exact content: equal ones mean equal content.",
        name="fingerprints",
    )
    sheet.text(
        "Every section links the results behind it: a folder with ",
        element("code", "result.json"),
        " (what was computed, from what, with which options) and ",
        element("code", "arrays.safetensors"),
        " (the numbers). Open one with ",
        element("code", "pellucid show results/NAME"),
        " or, in Python, with ",
        element("code", "pellucid.results.Result.load"),
        ".",
    )
    sheet.text(
        "To reproduce a number, run the command with the same versions on the same files; the fingerprints tell "
        "whether they are the same. To cite this report, give the version of Pellucid, the fingerprints, the seed and "
        "the command."
    )


SECTION = Section(
    title="How this was made",
    order=1000,
    explanation="All that is needed to make the same numbers again, or to find out why they differ.",
    render=render,
)
