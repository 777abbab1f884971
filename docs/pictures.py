"""Draws the picture of the README: `python docs/pictures.py` makes the demo's report and photographs a part of it.

It needs Chromium, under one of the names below or where CHROMIUM points.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).parent / "images" / "report.png"
SIZE = (1200, 1330)
SHOWN = "<style>section:not(#surprise), .reading { display: none }</style></head>"
"""Between the top of the page and one section, nothing is shown: the picture has room for little."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OFFLINE = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--blink-settings=preferredColorScheme=1",
)


def browser() -> str:
    """The Chromium that is installed."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        sys.exit(f"No browser was found; install Chromium ({', '.join(BROWSERS)}) or set CHROMIUM to its path.")
    return found


def photograph(page: Path, picture: Path) -> None:
    """The top of a page and one section of it as a PNG file."""
    with tempfile.TemporaryDirectory() as profile:
        cut = Path(profile) / "cut.html"
        cut.write_text(page.read_text(encoding="utf-8").replace("</head>", SHOWN, 1), encoding="utf-8")
        place = [f"--user-data-dir={profile}", f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={picture}"]
        subprocess.run([browser(), *OFFLINE, *place, cut.as_uri()], check=True, capture_output=True)


def main() -> None:
    """Makes the demo's report, unless the path of one is given, and photographs it."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "demo" / "report.html"
        if len(sys.argv) < 2:
            command = Path(sys.executable).with_name("pellucid")
            subprocess.run([str(command), "demo", "--out", str(page.parent)], check=True)
        photograph(page, PICTURE)
    print(PICTURE)


if __name__ == "__main__":
    main()
