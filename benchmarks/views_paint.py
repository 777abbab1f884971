"""How long a user waits in Chromium: first paint, opening a head, the next layer, pointing, scrolling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Measure
from benchmarks.sweep_inputs import MissingInput
from benchmarks.sweep_measures import unmeasured
from benchmarks.views_browser import NoBrowser, answered, chromium, marked, opened
from benchmarks.views_inputs import LAYERS, MB, median, smollm2, uniform, wikitext

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from pellucid.views import View


def paint(folder: Path, *, quick: bool) -> Iterator[Measure]:
    """Real attention of a short and of a long text, then attention that is nearly uniform, where lines are most."""
    try:
        with chromium() as browser:
            yield from _short(browser, folder, quick=quick)
            yield from _long(browser, folder, quick=quick)
            yield from _uniform(browser, folder, quick=quick)
    except (NoBrowser, MissingInput) as reason:
        yield unmeasured("paint", str(reason))


def _short(browser: Browser, folder: Path, *, quick: bool) -> Iterator[Measure]:
    from pellucid.views import model_view

    view = model_view(smollm2(), wikitext(smollm2(), 128), layers=LAYERS)
    path = view.save(folder / "short.html")
    yield median(
        "paint: model view, 128 tokens × 144 heads", _first(browser, path, 3 if quick else 9), 0.2, _told(path)
    )


def _long(browser: Browser, folder: Path, *, quick: bool) -> Iterator[Measure]:
    from pellucid.views import model_view

    tokens, rounds = (256, 3) if quick else (1024, 7)
    view = model_view(smollm2(), wikitext(smollm2(), tokens), layers=LAYERS)
    path = view.save(folder / "long.html")
    what = f"{tokens:,} tokens × 144 heads"
    yield median(f"paint: model view, {what}", _first(browser, path, min(rounds, 5)), 1.0, _told(path))
    with opened(browser, path.as_uri()) as page:
        marked(page, "painted")
        page.wait_for_load_state("load")
        page.wait_for_timeout(1000)
        yield median(f"open a head, {what}", list(_heads(page, rounds)), 0.1, "click in the model view to its lines")
        page.evaluate("window.pellucid.setState({heads: [0, 1, 2, 3, 4, 5, 6, 7, 8], layer: 0})")
        page.wait_for_timeout(1000)
        switches = [_key(page, "ArrowRight", "layer") for _ in range(rounds)]
        yield median(f"next layer, 9 heads, {what}", switches, 0.6, "each layer for the first time")
        yield median(f"point at a token, 9 heads, {what}", _hovers(page, rounds), 0.05)
        yield median(f"scroll frame, 9 heads, {what}", _scrolls(page, 3 * rounds), 0.1)


def _uniform(browser: Browser, folder: Path, *, quick: bool) -> Iterator[Measure]:
    from pellucid.views import head_view

    tokens, rounds = (256, 3) if quick else (1024, 7)
    model = uniform(tokens)
    view: View = head_view(model, wikitext(model, tokens), state={"layer": 1, "mass": 1})
    path = view.save(folder / "uniform.html")
    what = f"12 heads, nearly uniform, {tokens:,} tokens"
    with opened(browser, path.as_uri()) as page:
        marked(page, "painted")
        page.wait_for_timeout(1000)
        yield median(f"scroll frame, {what}", _scrolls(page, 3 * rounds), 0.1, "every line drawn, both directions")
        yield median(f"point at a token, {what}", _hovers(page, rounds), 0.05)
        yield median(f"next layer, {what}", [_key(page, key, "layer") for key in ("ArrowRight", "ArrowRight")], 0.6)


def _told(path: Path) -> str:
    return f"from asking a running browser for a file of {path.stat().st_size / MB:.1f} MB on this disk"


def _first(browser: Browser, path: Path, rounds: int) -> list[float]:
    """Times from asking for the page to its first paint; the first time, when the browser starts up, is not counted."""
    times: list[float] = []
    with opened(browser, path.as_uri()) as page:
        for _ in range(rounds):
            marked(page, "painted")
            page.wait_for_load_state("load")
            page.wait_for_timeout(300)
            page.reload(wait_until="commit")
            times.append(marked(page, "painted"))
    return times


def _heads(page: Page, rounds: int) -> Iterator[float]:
    """Opens heads from the model view by clicking on them, another one each time."""
    for number in range(rounds):
        page.mouse.move(2, 2)
        page.evaluate("window.pellucid.setState({mode: 'model'})")
        page.wait_for_timeout(300)
        x, y = _head_at(page, *divmod(number * 4 + 1, 7))
        yield answered(page, "head", lambda x=x, y=y: page.mouse.click(x, y))


def _head_at(page: Page, row: int, column: int) -> tuple[float, float]:
    """A point in the model view where a head is, about so many heads down and across."""
    box = page.get_by_role("grid").locator("canvas").bounding_box()
    assert box is not None
    y = box["y"] + 60 + row * 97
    for step in range(0, 200, 8):
        x = box["x"] + 90 + column * 97 + step
        page.mouse.move(x, y)
        if page.locator(".tip").is_visible():
            return x, y
    raise AssertionError("no head is there")


def _key(page: Page, key: str, mark: str) -> float:
    page.locator(".stage").focus()
    found = answered(page, mark, lambda: page.keyboard.press(key))
    page.wait_for_timeout(200)
    return found


def _hovers(page: Page, rounds: int) -> list[float]:
    """Points at tokens that look, one after the other."""
    page.mouse.move(2, 2)  # the pointer may rest on one of them already
    page.wait_for_timeout(200)
    times: list[float] = []
    for number in range(rounds):
        token = page.locator(".tokens.from .token").nth(3 + 2 * number)
        times.append(answered(page, "hover", token.hover))
        page.wait_for_timeout(100)
    page.mouse.move(2, 2)
    page.wait_for_timeout(200)
    return times


def _scrolls(page: Page, rounds: int) -> list[float]:
    """Scrolls by half a window at a time; each time is from the change of place to the paint of what is there."""
    times: list[float] = page.evaluate(
        """async (rounds) => {
          const view = document.querySelector('.lines-window');
          const name = 'pellucid:scroll';
          const times = [];
          for (let round = 0; round < rounds; round++) {
            performance.clearMarks(name);
            const start = performance.now();
            const down = view.scrollTop + 1.5 * view.clientHeight < view.scrollHeight;
            view.scrollTop = down ? view.scrollTop + view.clientHeight / 2 : 0;
            while (!performance.getEntriesByName(name).length) await new Promise(requestAnimationFrame);
            times.push((performance.getEntriesByName(name)[0].startTime - start) / 1000);
            await new Promise((go) => setTimeout(go, 150));
          }
          return times;
        }""",
        rounds,
    )
    return times
