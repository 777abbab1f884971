"""A Chromium that is on this machine (none is downloaded), and pages opened in it with the network shut off."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.browser.opened import Opened

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-background-networking"]


def chromium() -> str | None:
    """Where a Chromium is: named by PELLUCID_BROWSER, or on the path."""
    named = os.environ.get("PELLUCID_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium without a window; it ends with this folder's tests, and with it the loop that Playwright runs."""
    place = chromium()
    if place is None:
        pytest.skip(f"no Chromium: install it ({', '.join(NAMES)}), or name one with PELLUCID_BROWSER")
    if find_spec("playwright") is None:
        pytest.skip("no playwright: install it with pip install 'pellucid[test]'")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=place, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="package")
def files(tmp_path_factory) -> Path:
    """A folder for the pages."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def show(browser, files) -> Iterator[Any]:
    """Opens a view as a file (or a server's address); afterwards nothing may have gone wrong or out."""
    pages: list[Opened] = []

    def opened(view: Any, *, address_end: str = "", **options: Any) -> Opened:
        place = files / f"{len(list(files.iterdir()))}.html"
        address = view if isinstance(view, str) else view.save(place).as_uri()
        page = Opened(browser, address, options)
        pages.append(page)
        page.go(address + address_end)
        return page

    yield opened
    for page in pages:
        page.close()
    for page in pages:
        assert page.problems == []
        assert page.strangers() == []
