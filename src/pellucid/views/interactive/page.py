"""A view as one HTML file that needs nothing but itself, and the page that a local server shows."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from pellucid.errors import PellucidError
from pellucid.views.interactive.payload import Payload

BUNDLE = Path(__file__).with_name("bundle.js")
"""The script that draws views, built from the folder web."""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' blob:; worker-src blob:; "
    "img-src data: blob:"
)
"""What a browser may load for the file: nothing from anywhere."""

SERVED_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self' 'unsafe-inline' blob:; worker-src blob:; "
    "img-src data: blob:; connect-src 'self'"
)

_STARTER = """
(async () => {
  const text = document.getElementById("pellucid-bundle").textContent;
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  try {
    (await import(address)).openEmbedded(document);
  } catch (error) {
    for (const place of document.querySelectorAll("[data-pellucid]")) {
      place.textContent = "This view could not be shown: " + error.message;
    }
    throw error;
  } finally {
    URL.revokeObjectURL(address);
  }
})();
"""
"""Starts the bundle that the file holds, before the weights further down have been read."""

_SERVED_STARTER = """
import { openHttp } from "./bundle.js";
const place = document.getElementById("pellucid");
try {
  window.pellucid = await openHttp(place, "");
} catch (error) {
  place.textContent = "This view could not be shown: " + error.message;
  throw error;
}
"""


def bundle() -> bytes:
    """The script's bytes."""
    if not BUNDLE.is_file():
        raise PellucidError(
            "The script that draws views (views/interactive/bundle.js) is not in this installation; build it with "
            "`npm ci && npm run build` in the folder web, or install Pellucid again."
        )
    return BUNDLE.read_bytes()


def page(payload: Payload) -> bytes:
    """The whole file: header, thumbnails, statistics, bundle and starter first, then everything else."""
    early, late = _in_order(payload)
    parts = [
        _head(str(payload.header["title"]), POLICY),
        _header(payload),
        *_scripts(payload, early),
        starter().encode(),
        *_scripts(payload, late),
        b"</body>\n</html>\n",
    ]
    return b"".join(parts)


def embedded(payload: Payload) -> str:
    """A view for a place inside another page, whose end has `starter()`: an empty element, and its data beside it."""
    early, late = _in_order(payload)
    place = b'<div data-pellucid class="pellucid-place"></div>\n'
    parts = [place, _header(payload), *_scripts(payload, early), *_scripts(payload, late)]
    return f'<div class="pellucid-embedded">\n{b"".join(parts).decode()}</div>'


def starter() -> str:
    """The bundle, and the script that starts it for every view of a page."""
    # What would end the script's tag can only stand in its strings, where the other spelling means the same.
    held = re.sub(r"<(?=/script|!--|script)", r"\\x3c", bundle().decode(), flags=re.IGNORECASE)
    return f'<script type="text/plain" id="pellucid-bundle">{held}</script>\n<script>{_STARTER}</script>\n'


def _in_order(payload: Payload) -> tuple[list[str], list[str]]:
    """Names of chunks: those of the first picture, then all others."""
    early = [name for name in payload.chunks if name.startswith(("t/", "s/"))]
    return early, [name for name in payload.chunks if not name.startswith(("t/", "s/"))]


def _header(payload: Payload) -> bytes:
    return b'<script type="application/json" data-header>' + header_json(payload.header) + b"</script>\n"


def served_page(title: str) -> bytes:
    """The page of a local server, which fetches header, bundle and chunks from it."""
    starter = f'<script type="module">{_SERVED_STARTER}</script>\n'.encode()
    return _head(title, SERVED_POLICY) + starter + b"</body>\n</html>\n"


def header_json(header: Mapping[str, Any]) -> bytes:
    """The header as JSON that no browser takes for markup: `<` is written \\u003c."""
    told = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return told.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").encode()


def _head(title: str, policy: str) -> bytes:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="generator" content="Pellucid">\n'
        f"<title>{escape(title)} – Pellucid</title>\n"
        "<style>body{margin:0}</style>\n</head>\n<body>\n"
        '<main id="pellucid" data-pellucid></main>\n'
        "<noscript>This page draws its picture with JavaScript, which is switched off here.</noscript>\n"
    ).encode()


def _scripts(payload: Payload, names: list[str]) -> Iterator[bytes]:
    for name in names:
        stored = base64.b64encode(payload.chunks[name].stored)
        yield b'<script type="text/plain" data-chunk="' + escape(name).encode() + b'">' + stored + b"</script>\n"
