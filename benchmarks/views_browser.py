"""Chromium for the benchmark `views`: pages opened without a window, and times taken by the pages' own clock."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-background-networking")
SIZE: Any = {"width": 1300, "height": 1000}
PATIENCE = 120.0

_WATCH = """
window.pellucidEvent = 0;
for (const kind of ['click', 'pointermove', 'keydown'])
  window.addEventListener(kind, (event) => { window.pellucidEvent = event.timeStamp; }, true);
"""
"""Notes when the last event of a user came, before any of the page's own listeners."""


class NoBrowser(Exception):
    """There is no browser to measure with; the message says what to do."""


@contextmanager
def chromium() -> Generator[Browser]:
    """A Chromium of this machine."""
    place = os.environ.get("PELLUCID_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if place is None:
        raise NoBrowser("no Chromium here (install it, or set PELLUCID_BROWSER)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NoBrowser("playwright is not installed (make venv)") from None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=place, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, address: str, *, before: Callable[[Page], None] | None = None) -> Generator[Page]:
    """A page in a fresh context, from the moment that it was asked for; `before` prepares it."""
    context = browser.new_context(viewport=SIZE)
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    page.add_init_script(_WATCH)
    if before is not None:
        before(page)
    page.goto(address, wait_until="commit")
    try:
        yield page
    finally:
        context.close()


def marked(page: Page, name: str) -> float:
    """Waits for a mark, and tells when it was set: seconds after the page was asked for."""
    end = time.monotonic() + PATIENCE
    while True:
        found: float | None = page.evaluate(
            "name => performance.getEntriesByName('pellucid:' + name).at(-1)?.startTime ?? null", name
        )
        if found is not None:
            return found / 1000
        if time.monotonic() > end:
            raise TimeoutError(f"the page did not mark {name!r}")
        page.wait_for_timeout(5)


def answered(page: Page, name: str, act: Callable[[], object]) -> float:
    """Seconds from what a user does to the mark that its paint sets."""
    page.evaluate("name => performance.clearMarks('pellucid:' + name)", name)
    act()
    end = marked(page, name)
    start: float = page.evaluate("window.pellucidEvent")
    return end - start / 1000


def settled(page: Page, *, quiet: float = 1.5) -> tuple[float, int]:
    """When any page's picture stood still (seconds after it was asked for), and how many parts it then had.

    That is the first frame after the one that showed its last parts: a page that is still busy drawing gives no frame.
    """
    parts = "document.querySelectorAll('svg *, canvas, table td, img').length"
    last, seen, start = None, 0, time.monotonic()
    while time.monotonic() - start < PATIENCE:
        now, found = page.evaluate(f"new Promise(go => requestAnimationFrame(() => go([performance.now(), {parts}])))")
        if found != seen or last is None:
            last, seen = (now / 1000 if found == seen else None), found
        elif now / 1000 - last > (quiet if seen else 20):
            break
    return last or time.monotonic() - start, seen
