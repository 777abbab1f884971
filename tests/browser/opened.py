"""A view that is open in a browser: what a user does with it, and what it then says."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

SIZE = {"width": 1300, "height": 1000}
PATIENCE = 20.0
"""Seconds until something that should come has come; nothing is measured by it."""

_NAMED = re.compile("“\u2068([^\u2069]*)\u2069” (<?[0-9.]+)")


class Opened:
    """One page with one view. `problems` are errors of the page, `asked` the addresses that it asked for."""

    def __init__(self, browser: Any, address: str, options: dict[str, Any]) -> None:
        self.context = browser.new_context(**{"viewport": SIZE, "accept_downloads": True, **options})
        self.local = address.startswith("file:")
        if self.local:
            self.context.set_offline(True)
        self.context.set_default_timeout(1000 * PATIENCE)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.asked: list[str] = []
        self._own = address.split("#")[0]
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._said)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", self._dialog)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def go(self, address: str) -> None:
        """Opens an address, and waits until its view is painted."""
        self.page.goto(address)
        self.painted("painted", 1)

    def strangers(self) -> list[str]:
        """Addresses asked for that are neither the page's own nor made by it."""
        return [url for url in self.asked if not url.startswith(("blob:", "data:", self._own))]

    def close(self) -> None:
        self.context.close()

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return self.page.evaluate("window.pellucid.state()")

    def set(self, **changes: Any) -> None:
        self.page.evaluate("change => window.pellucid.setState(change)", changes)

    def until(self, check: Callable[[], None]) -> None:
        """Tries a check again and again: what a page does comes a little later."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                check()
            except AssertionError:
                if time.monotonic() > end:
                    raise
                self.page.wait_for_timeout(25)
            else:
                return

    def painted(self, name: str, times: int) -> None:
        """Waits until a paint was marked so often. Marks come a frame later; paints of one frame share one."""

        def check() -> None:  # the page's own policy forbids Playwright's way of waiting for a script
            marks = self.page.evaluate("name => performance.getEntriesByName('pellucid:' + name).length", name)
            assert marks >= times, (name, marks, self.problems)

        self.until(check)

    # -- what is there -------------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        return self.page.locator(".status").inner_text()

    def says(self, *parts: str) -> None:
        """Waits until the status line holds all these."""

        def check() -> None:
            said = self.status
            assert all(part in said for part in parts), (said, parts)

        self.until(check)

    def named(self) -> list[tuple[str, float]]:
        """Tokens in the status line with the numbers after them."""
        return [(text, float(number.lstrip("<").rstrip("."))) for text, number in _NAMED.findall(self.status)]

    def shows(self, wanted: list[tuple[str, float]], tolerance: float = 0.0051) -> None:
        """Waits until the status line names these tokens with these numbers, the largest first."""

        def check() -> None:
            found = self.named()
            assert [text for text, _ in found] == [text for text, _ in wanted], (self.status, wanted)
            for (_, got), (_, right) in zip(found, wanted, strict=True):
                assert abs(got - right) <= tolerance, (self.status, wanted)

        self.until(check)

    def tokens(self, side: str = "left") -> Any:
        """The elements of one column of tokens."""
        column = ".tokens.from" if side == "left" else ".tokens:not(.from)"
        return self.page.locator(f".panel >> nth=0 >> {column} .token")

    def token(self, side: str, place: int) -> Any:
        column = ".tokens.from" if side == "left" else ".tokens:not(.from)"
        return self.page.locator(f'.panel >> nth=0 >> {column} .token[data-place="{place}"]')

    def ready(self) -> None:
        """Waits until the head view has its tokens."""
        self.tokens().first.wait_for()

    def away(self) -> None:
        """Moves the pointer off everything."""
        self.page.mouse.move(2, 2)

    def choose(self, label: str, value: str) -> None:
        """Chooses from a labelled list of the view that is shown."""
        self.page.locator(f".stage label:has(> span:text-is('{label}')) select").select_option(value)

    def saved(self, button: str) -> bytes:
        """The file that a button saves."""
        with self.page.expect_download() as waiting:
            self.page.get_by_role("button", name=button).click()
        return waiting.value.path().read_bytes()
