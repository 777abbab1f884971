"""Other packages' pictures of the same attention: size of the page, and time until it is painted."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers import PYTHON, ROOT, PeerError
from benchmarks.report import Measure
from benchmarks.sweep_children import environment
from benchmarks.sweep_inputs import MissingInput
from benchmarks.sweep_measures import unmeasured
from benchmarks.views_browser import NoBrowser, chromium, marked, opened, settled
from benchmarks.views_inputs import LAYERS, MB, smollm2, wikitext
from benchmarks.views_peer_worker import PACKAGES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

MODULE = "benchmarks.views_peer_worker"
TOKENS = 128
PATIENCE = 300
LONG = 30.0
"""Seconds after which a page is not opened once more."""

SCRIPTS = PYTHON.parent.parent / "node_modules"
NEEDED = {
    "require.min.js": "requirejs/require.js",
    "d3.min.js": "d3/dist/d3.min.js",
    "jquery.min.js": "jquery/dist/jquery.min.js",
}
"""Scripts that a page fetches from the network, and where `make bench-venv` has put them."""


def peers(folder: Path, *, threads: int, quick: bool) -> Iterator[Measure]:
    """Every package on SmolLM2's attention over 128 tokens, 16 layers of 9 heads, and ours beside it."""
    try:
        ours, given = _inputs(folder)
        with chromium() as browser:
            rounds = 1 if quick else 3
            mine = {mode: _own(browser, path, rounds) for mode, path in ours.items()}
            for name in PACKAGES:
                mode = "heads" if "head" in name else "model"
                yield _beside(browser, name, folder, given, mine[mode], ours[mode], threads=threads, rounds=rounds)
    except (NoBrowser, MissingInput) as reason:
        yield unmeasured("peers", str(reason))


def _inputs(folder: Path) -> tuple[dict[str, Path], Path]:
    """Our pages of the text, and its attention as a file that packages read."""
    import numpy as np

    from pellucid.views import head_view, model_view

    model, text = smollm2(), wikitext(smollm2(), TOKENS)
    sites = [f"pattern.{layer}" for layer in LAYERS]
    run = model.run(text, sites)
    attention = np.stack([run[site][0].float().cpu().numpy() for site in sites])  # [layers, H, queries, keys]
    tokenizer: Any = model.tokenizer
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    np.savez(folder / "attention.npz", attention=attention, tokens=np.array(tokens))
    views = {"heads": head_view(model, text, layers=LAYERS), "model": model_view(model, text, layers=LAYERS)}
    pages = {mode: view.save(folder / f"{mode}.html") for mode, view in views.items()}
    return pages, folder / "attention.npz"


def _beside(
    browser: Browser, name: str, folder: Path, given: Path, mine: float, ours: Path, *, threads: int, rounds: int
) -> Measure:
    what = f"peers: {name}, {TOKENS} tokens × 144 heads"
    path = folder / "peer.html"
    try:
        told = _written(name, given, path, threads=threads)
        theirs = _painted(browser, path, rounds)
    except PeerError as reason:
        return unmeasured(what, f"{name.split()[0]}: {reason}")
    size, own = path.stat().st_size / MB, ours.stat().st_size / MB
    note = (
        f"ours painted over theirs standing still; files {own:.2f} MB and {size:.1f} MB "
        f"({size / own:.0f} times); {name} {told['version']}, written in {told['seconds']:.1f} s"
    )
    return Measure(what, mine, theirs, None, mine / theirs, 1.0, mine <= theirs, rounds=rounds, note=note)


def _written(name: str, given: Path, path: Path, *, threads: int) -> dict[str, Any]:
    """What the package's own process says of the page that it wrote."""
    if not PYTHON.exists():
        raise PeerError("no bench environment (make bench-venv)")
    command = [str(PYTHON), "-m", MODULE, name, str(given), str(path)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(threads), capture_output=True, text=True, timeout=PATIENCE
        )
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise PeerError(f"no page within {PATIENCE} s") from None
    except (IndexError, ValueError):
        raise PeerError("its process said nothing") from None
    if "error" in told:
        raise PeerError(told["error"])
    return told


def _own(browser: Browser, path: Path, rounds: int) -> float:
    """The median time until our page says that it is painted."""
    times: list[float] = []
    for _ in range(rounds):
        with opened(browser, path.as_uri()) as page:
            times.append(marked(page, "painted"))
    return statistics.median(times)


def _painted(browser: Browser, path: Path, rounds: int) -> float:
    """The median time until the page stands still; a page that draws nothing raises."""
    times: list[float] = []
    while len(times) < rounds and sum(times) < LONG:
        with opened(browser, path.as_uri(), before=_local) as page:
            last, found = settled(page)
        if not found:
            raise PeerError("its page draws nothing here (its scripts come from the network)")
        times.append(last)
    return statistics.median(times)


def _local(page: Page) -> None:
    """Scripts that the page asks the network for come from the bench environment, where they are there."""

    def answer(route: Route) -> None:
        place = NEEDED.get(route.request.url.rpartition("/")[2])
        if place is not None and (SCRIPTS / place).is_file():
            route.fulfill(path=SCRIPTS / place, content_type="text/javascript")
        else:
            route.abort()

    page.route(lambda url: url.startswith("http"), answer)
