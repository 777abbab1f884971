"""Writes one package's picture of given attention as an HTML file, in the peers' environment.

    .bench-venv/bin/python -m benchmarks.views_peer_worker PACKAGE ATTENTION.npz OUT.html

The attention [layers, H, queries, keys] and its tokens are ready. Prints one JSON object: version and seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from typing import Any


def bertviz(view: str) -> Callable[[Any, list[str]], str]:
    """One of BertViz's views as HTML; its scripts come from the network."""

    def html(attention: Any, tokens: list[str]) -> str:
        layers = tuple(attention[:, None].unbind(0))  # [1, H, queries, keys] each
        made = getattr(import_module("bertviz"), view)(layers, tokens, html_action="return")
        return f"<!DOCTYPE html><html><body>{made.data}</body></html>"

    return html


def circuitsvis(attention: Any, tokens: list[str]) -> str:
    """CircuitsVis shows the heads of one list: all layers' heads one after the other; its scripts are in the file."""
    made = import_module("circuitsvis.attention").attention_heads(attention=attention.flatten(0, 1), tokens=tokens)
    return f"<!DOCTYPE html><html><body>{made.local_src}</body></html>"


def inspectus(attention: Any, tokens: list[str]) -> str:
    """Inspectus only shows itself in notebooks: what it would show there is gathered into one page."""
    parts: list[str] = []
    shown: Any = import_module("IPython.display")
    shown.display = lambda *given: parts.extend(each.data for each in given)
    import_module("inspectus.utils").init_inline_viz()
    import_module("inspectus").attention(list(attention[:, None].unbind(0)), tokens)
    return f"<!DOCTYPE html><html><body>{''.join(parts)}</body></html>"


PACKAGES: dict[str, tuple[str, Callable[[Any, list[str]], str]]] = {
    "bertviz head_view": ("bertviz", bertviz("head_view")),
    "bertviz model_view": ("bertviz", bertviz("model_view")),
    "circuitsvis": ("circuitsvis", circuitsvis),
    "inspectus": ("inspectus", inspectus),
}


def write(name: str, attention: str, out: str) -> dict[str, Any]:
    """Make the page and write it."""
    import numpy as np
    import torch

    with np.load(attention) as held:
        weights, tokens = torch.from_numpy(held["attention"]), held["tokens"].tolist()
    package, html = PACKAGES[name]
    import_module(package)
    start = time.perf_counter()
    Path(out).write_text(html(weights, tokens), encoding="utf-8")
    return {"version": metadata.version(package), "seconds": time.perf_counter() - start}


def main(arguments: list[str]) -> int:
    """Write; what goes wrong is told in JSON too, and the packages' chatter is kept out of it."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    with contextlib.redirect_stdout(sys.stderr):
        try:
            told = write(*arguments)
        except Exception as error:  # whatever a package raises is its reason for not being measured
            told = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    print(json.dumps(told), file=answers, flush=True)
    return 1 if "error" in told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
