"""A long text with its model behind it: what is not in a file is made when it is looked at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.report import Measure
from benchmarks.sweep_inputs import MissingInput
from benchmarks.sweep_measures import unmeasured
from benchmarks.views_browser import NoBrowser, answered, chromium, marked, opened
from benchmarks.views_inputs import LAYERS, median, smollm2, wikitext, within

if TYPE_CHECKING:
    from playwright.sync_api import Page


def live(*, quick: bool) -> Iterator[Measure]:
    """SmolLM2 on 4,096 tokens: the pass that makes thumbnails, a layer for the first time, then rows of it."""
    from pellucid.views import model_view

    tokens = 2304 if quick else 4096
    what = f"{tokens:,} tokens × 144 heads, live"
    try:
        model = smollm2()
        text = wikitext(model, tokens)
        start = time.perf_counter()
        view = model_view(model, text, layers=LAYERS)
        made = time.perf_counter() - start
        yield within(f"made: {what}", made, None, "one pass: thumbnails and statistics of all heads", seconds=True)
        with view.serve() as server, chromium() as browser, opened(browser, server.url) as page:
            yield within(f"paint: model view, {what}", marked(page, "painted"), None, "", seconds=True)
            note = "a pass of the model for the layer's weights, then its first rows"
            first = _set(page, "{mode: 'heads', layer: 7, heads: [8]}")
            yield within(f"open a head, {what}", first, None, note, seconds=True)
            others = [_set(page, f"{{heads: [{head}]}}") for head in range(3 if quick else 7)]
            yield median(f"another head of the layer, {what}", others, None, "its first rows, by need")
    except (NoBrowser, MissingInput) as reason:
        yield unmeasured(f"live: {what}", str(reason))


def _set(page: Page, change: str) -> float:
    """Seconds from a change of the state to the paint of the head that it opens."""
    script = f"window.pellucidEvent = performance.now(); window.pellucid.setState({change})"
    found = answered(page, "head", lambda: page.evaluate(script))
    page.wait_for_timeout(200)
    return found
