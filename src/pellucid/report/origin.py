"""How the results of a page were made: the command, versions, seed, models and texts that they can be traced to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.report.html import Row, element
from pellucid.report.page import Written
from pellucid.report.sheet import Sheet

if TYPE_CHECKING:
    from pellucid.results import Result

TITLE = "How this was made"
COMMAND = "command.txt"


def origin_of(results: Iterable[Result], work: Path) -> Written:
    """The last section of a page, told by the results themselves; the command is also written beside the page."""
    origins = [each.provenance for each in results]
    command = next((each.command for each in origins if each.command), None)
    sheet = Sheet(work)
    if command is not None:
        (work / COMMAND).write_text(command + "\n", encoding="utf-8", errors="replace")
        link = element("a", element("code", COMMAND), href=COMMAND)
        sheet.text("The command that made this page, also in ", link, ":")
        sheet.html(element("pre", command))
    versions = {name: version for each in origins for name, version in each.versions.items()}
    seeds = dict.fromkeys(str(each.seed) for each in origins if each.seed is not None)
    sheet.facts(
        [
            *[(f"{name} version", version) for name, version in versions.items()],
            ("Seed", ", ".join(seeds) or "none"),
        ]
    )
    models = {(str(one["name"]), str(one["fingerprint"])) for each in origins for one in each.models}
    texts = {
        (str(told.get("name", "unnamed")), str(told.get("fingerprint") or "none"), _size(told.get("words")))
        for told in (each.corpus for each in origins)
        if told
    }
    rows: list[Row] = [("model", name, fingerprint, "") for name, fingerprint in sorted(models)]
    rows += [("text", name, fingerprint, words) for name, fingerprint, words in sorted(texts)]
    caption = "What was read and what read it. A fingerprint names the exact content: equal ones mean equal content."
    sheet.table(["what", "name", "fingerprint", "words"], rows, caption=caption, name="fingerprints", right=["words"])
    explanation = "All that is needed to make the same numbers again, or to find out why they differ."
    return Written.filled(TITLE, explanation, sheet)


def _size(words: object) -> str:
    return f"{words:,}" if isinstance(words, int) else ""
