"""`pellucid store`: activations on disk: building, looking at, and exporting them."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli import _sweeping as sweeping
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table
from pellucid.errors import SweepError

BUILD = """Examples: pellucid store build zoo:lm --corpus grammar:200 --sites resid.* -o my-store ;
pellucid store build zoo:tagger --corpus grammar:200 --sites neurons.* --control -o both"""

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a store.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Keep activations on disk, look at them, and export them.", no_args_is_help=True)
    group.command(name="build", epilog=BUILD)(spread(build))
    group.command(name="info", epilog="Example: pellucid store info my-store --verify")(info)
    group.command(name="export", epilog="Example: pellucid store export my-store -o arrays --to npy")(export)
    app.add_typer(group, name="store")


def build(
    model: options.ModelArgument,
    corpus: corpora.CorpusOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The store's folder; an unfinished one is gone on with.")],
    sites: Annotated[list[str] | None, typer.Option(help="Sites to keep (may be repeated; default: resid.*).")] = None,
    keep: Annotated[str, typer.Option(help="How values are kept: float16, bfloat16 or float32.")] = "float16",
    part: Annotated[str, typer.Option(help="Only part I of N, as 1/4, for several writers into one folder.")] = "1/1",
    control: Annotated[
        bool,
        typer.Option(
            "--control/--no-control",
            help="Also keep what a randomly initialised model says, which probes, Gaussians and forests stand beside.",
        ),
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the control model (default: 0).")] = None,
    *,
    running: sweeping.Running,
    pooled: sweeping.Pooled,
    shape: corpora.CorpusShape,
    opening: options.Opening,
    json: options.Json = False,
) -> None:
    """Run a model over a corpus and keep what its sites hold at every word; run it again to go on after a stop."""
    from pellucid.collect.build import build_store
    from pellucid.model import Model

    if seed is not None and not control:
        raise SweepError(f"--seed {seed} is that of the control model; add --control, or leave --seed out.")
    read = shape.open(corpus)
    opened = opening.open(model)
    with options.resumable(out):
        build_store(
            [opened, Model.random_like(opened, seed or 0)] if control else opened,
            read,
            out,
            tuple(sites or ("resid.*",)),
            dtype=keep,
            part=_part(part),
            **asdict(running),
            **asdict(pooled),
            progress=True,
        )
    info(out, verify=False, json=json)


def info(
    store: StoreArgument,
    verify: Annotated[bool, typer.Option("--verify", help="Read everything and compare it with its hashes.")] = False,
    json: options.Json = False,
) -> None:
    """What a store holds, and whether it is whole."""
    from pellucid.collect.progress import readable_bytes
    from pellucid.collect.store import Store

    opened = Store.open(store)
    if verify:
        opened.verify()
    about: dict[str, Any] = {
        "folder": str(store),
        "models": [model.name for model in opened.models],
        "corpus": opened.about["corpus"]["name"],
        "rows": opened.rows,
        "shards": len(opened.entries),
        "missing": list(opened.missing),
        "dtype": opened.about["dtype"],
        "bytes": opened.bytes,
        "widths": {key: opened.width(key) for key in opened.keys},
        "verified": verify,
    }
    if json:
        print_json(about)
        return
    whole = "all there" if not opened.missing else f"{len(opened.missing)} missing: build it again to finish"
    rows = [
        ("model", ", ".join(about["models"])),
        ("corpus", about["corpus"]),
        ("rows", f"{opened.rows:,} ({opened.about['reading']['pooling']} of sub-words)"),
        ("shards", f"{len(opened.entries)}, {whole}"),
        ("kept as", f"{about['dtype']}, {readable_bytes(opened.bytes)}"),
        *((f"site {key}", f"{width} wide") for key, width in about["widths"].items()),
        *([("verified", "every file is as it was written")] if verify else []),
    ]
    print_table(["what", "is"], rows)


def export(
    store: StoreArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; it must be new or empty.")],
    to: Annotated[str, typer.Option(help="npy (one file per site) or zarr.")] = "npy",
) -> None:
    """Copy a store into files that other programs read."""
    from pellucid.collect.export import export_npy, export_zarr
    from pellucid.collect.store import Store

    writers = {"npy": export_npy, "zarr": export_zarr}
    if to not in writers:
        raise SweepError(f"There is no export to {to!r}; use npy or zarr.")
    writers[to](Store.open(store), out)
    console().print(f"Exported to {out}")


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise SweepError(f"--part {text!r} means nothing; write it as 1/4, 2/4, 3/4, 4/4.")
    return int(found[1]) - 1, int(found[2])
