"""`pellucid sweep`: one pass over a corpus, many statistics, saved in a folder that a kill does not harm."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli import _sweeping as sweeping
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table

if TYPE_CHECKING:
    from pellucid.collect.found import Found

EXAMPLES = """Examples: pellucid sweep zoo:lm --corpus grammar:500 -o my-sweep ;
pellucid sweep ./my-model --corpus dev.conllu --collect "moments resid.* pairs=diagonal"
--collect "class-moments neurons.* label=upos" --engine processes -o my-sweep"""

DEFAULT = ("moments resid.* pairs=units", "head-counts")


def register(app: typer.Typer) -> None:
    app.command(name="sweep", epilog=EXAMPLES)(spread(sweep))


def sweep(
    models: Annotated[list[str], typer.Argument(metavar="MODEL…", help="One or several models, read side by side.")],
    corpus: corpora.CorpusOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The sweep's folder; an unfinished one is gone on with.")],
    collect: Annotated[
        list[str] | None,
        typer.Option(
            help="What to gather: a collector's name, its sites and options, in quotes (may be repeated; default: "
            f"{' and '.join(DEFAULT)})."
        ),
    ] = None,
    *,
    running: sweeping.Running,
    pooled: sweeping.Pooled,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Gather statistics of models over a corpus in one pass; run the same command again to go on after a stop."""
    from pellucid.collect.sweep import sweep as run_sweep

    collectors = [sweeping.collector_from(item) for item in collect or DEFAULT]
    read = shape.open(corpus)
    opened = [opening.open(name) for name in models]
    with options.resumable(out):
        found = run_sweep(
            opened,
            read,
            collectors,
            folder=out,
            **asdict(running),
            **asdict(pooled),
            progress=True,
        )
    show_found(found, json=json)
    if not json:
        console().print(f"Saved to {out}; read it with pellucid.Found.load({str(out)!r}).")


def show_found(found: Found, *, json: bool) -> None:
    """A finished sweep as a table: what was read, and what was gathered."""
    about: dict[str, Any] = {
        "models": {model.name: model.fingerprint for model in found.models},
        "corpus": found.about["corpus"],
        "counts": vars(found.counts),
        "notes": found.about["notes"],
        "record": dict(found.record),
        "collectors": {name: str(each) for name, each in found.collectors.items()},
        "bytes": {name: found.states[name].bytes for name in found.collectors},
    }
    if json:
        print_json(about)
        return
    counts, unmatched, halved = found.counts, found.record["unmatched"], found.record["halved"]
    rows = [
        *(("model", f"{name} ({fingerprint[:12]})") for name, fingerprint in about["models"].items()),
        ("corpus", f"{about['corpus']['name']} ({(about['corpus']['fingerprint'] or 'no fingerprint')[:12]})"),
        ("sentences", f"{counts.sentences:,} in {counts.documents:,} documents"),
        ("words", f"{counts.words:,}"),
        ("tokens", ", ".join(f"{number:,}" for number in counts.tokens)),
        *(("note", line) for line in about["notes"]),
        *([("note", f"{unmatched:,} words that only some of the models have are left out.")] if unmatched else []),
        *([("note", f"memory ran out: {len(halved)} shards ran with smaller batches")] if halved else []),
        *(("gathered", text) for text in about["collectors"].values()),
    ]
    print_table(["what", "is"], rows)
