"""Progress of long work: what is being done, how fast, how long still."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import Any


class Progress:
    """A bar on standard error with tokens (or another unit) per second and time left; nothing where nobody looks.

    `shown` is True, False, or None for whether standard error is a terminal.
    """

    def __init__(self, shown: bool | None) -> None:
        self._bar: Any = None
        self._task: Any = None
        if sys.stderr.isatty() if shown is None else shown:
            self._bar = _bar()

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, line: str) -> None:
        """One line above the bar; without one, in the log (`logging.getLogger("pellucid")`)."""
        if self._bar is not None:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
        else:
            logging.getLogger("pellucid").info(line)

    def begin(self, what: str, total: int | None, done: int = 0, *, unit: str = "tokens") -> None:
        """Starts a new bar of `unit`; work `done` earlier counts for what is left, not for the speed."""
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(what, total=total, completed=done, before=done, unit=unit)

    def advance(self, amount: int) -> None:
        """So much more is done."""
        if self._bar is not None:
            self._bar.advance(self._task, amount)


def readable_bytes(count: int) -> str:
    """A number of bytes for people."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text
    except ImportError:  # a bare environment runs sweeps without a bar
        return None

    class Speed(ProgressColumn):
        def render(self, task: Any) -> Text:
            done = task.completed - task.fields.get("before", 0)
            if not task.elapsed or done <= 0:
                return Text("")
            speed = done / task.elapsed
            return Text(f"{speed:,.{0 if speed >= 10 else 1}f} {task.fields.get('unit', 'tokens')}/s")

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%"),
        Speed(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
