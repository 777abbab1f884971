"""Views made by hand: headers and chunks written out byte by byte, independently of the code that makes real ones."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from pellucid.views.interactive.payload import Chunk, Payload
from pellucid.views.interactive.view import View

Names = list[str]


def stored(raw: bytes) -> Chunk:
    return Chunk(zlib.compress(raw), len(raw))


def floats(values: Any) -> Chunk:
    return stored(b"".join(struct.pack("<f", float(value)) for value in np.ravel(values)))


def halves(values: Any) -> Chunk:
    return stored(b"".join(struct.pack("<e", float(value)) for value in np.ravel(values)))


def strip_bytes(codes: Any, dropped: Any, start: int, stop: int, *, causal: bool) -> bytes:
    """Rows start … stop of one head: differences from the byte above, packed where causal, then dropped mass."""
    found: list[int] = []
    for row in range(start, stop):
        for key in range(row + 1 if causal else len(codes[row])):
            there = row > start and (not causal or key < row)
            above = int(codes[row - 1][key]) if there else 0
            found.append((int(codes[row][key]) - above) % 256)
    found += [int(dropped[row]) for row in range(start, stop)]
    return bytes(found)


def token_list(text: Names, **changes: Any) -> dict[str, Any]:
    count = len(text)
    plain = {
        "text": text,
        "space": "1" * count,
        "word": list(range(count)),
        "special": [],
        "sinks": [],
        "segment": [0] * count,
        "segments": ["text"],
        "rtl": False,
    }
    return {**plain, **changes}


def block(codes: Any, **changes: Any) -> dict[str, Any]:
    layers, heads, queries = np.shape(codes)[:3]
    plain = {
        "name": "self",
        "causal": False,
        "queries": "text",
        "keys": "text",
        "layers": list(range(layers)),
        "heads": [heads] * layers,
        "weightings": {"attention": "Attention weights."},
        "strip": queries,
        "quality": 1.0,
        "thumb": 4,
        "statistics": {},
        "vectors": None,
    }
    return {**plain, **changes}


def chunks_of(about: dict[str, Any], codes: Any, dropped: Any, panel: int = 0) -> dict[str, Chunk]:
    """Chunks of the weights `codes` [layers, heads, queries, keys], and thumbnails that are their corners."""
    found: dict[str, Chunk] = {}
    for place, layer in enumerate(about["layers"]):
        for head in range(about["heads"][place]):
            queries = len(codes[place][head])
            for number, start in enumerate(range(0, queries, about["strip"])):
                stop = min(start + about["strip"], queries)
                raw = strip_bytes(codes[place][head], dropped[place][head], start, stop, causal=about["causal"])
                found[f"a/{panel}/{about['name']}/attention/{layer}/{head}/{number}"] = stored(raw)
    side = about["thumb"]
    thumbs = np.zeros((len(about["layers"]), max(about["heads"]), side, side), np.uint8)
    for place, count in enumerate(about["heads"]):
        for head in range(count):
            corner = np.asarray(codes[place][head])[:side, :side]
            thumbs[place, head, : corner.shape[0], : corner.shape[1]] = corner
    found[f"t/{panel}/{about['name']}/attention"] = stored(thumbs.tobytes())
    return found


def panel_of(tokens: dict[str, Any], blocks: list[dict[str, Any]], name: str = "tiny") -> dict[str, Any]:
    return {"name": name, "model": name, "fingerprint": "0", "tokens": tokens, "blocks": blocks}


def view_of(panels: list[dict[str, Any]], chunks: dict[str, Chunk], notes: Names | None = None, **state: Any) -> View:
    kind = "compare" if len(panels) > 1 else "attention" if panels[0]["blocks"] else "text"
    header = {
        "format": 1,
        "kind": kind,
        "title": "A title",
        "notes": notes or [],
        "panels": panels,
        "chunks": {name: {"stored": len(chunk.stored), "raw": chunk.raw} for name, chunk in chunks.items()},
        "state": state,
        "pellucid": "0",
    }
    return View(Payload(header, chunks))


def codes_of(layers: int, heads: int, queries: int, keys: int, *, causal: bool = False, seed: int = 0) -> np.ndarray:
    """Codes of attention that is random and sums to about one in each row, [layers, heads, queries, keys]."""
    draw = np.random.default_rng(seed)
    scores = draw.normal(0, 2, (layers, heads, queries, keys))
    if causal:
        scores = np.where(np.tri(queries, keys, dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    return np.round(255 * np.sqrt(weights)).astype(np.uint8)


def attention_view(
    text: Names, *, layers: int = 2, heads: int = 3, causal: bool = False, changes: dict[str, Any] | None = None,
    block_changes: dict[str, Any] | None = None, seed: int = 0, **state: Any,
) -> tuple[View, np.ndarray, np.ndarray]:  # fmt: skip
    """A view of one text with its codes [layers, heads, T, T] and dropped codes [layers, heads, T]."""
    count = len(text)
    codes = codes_of(layers, heads, count, count, causal=causal, seed=seed)
    dropped = np.random.default_rng(seed + 1).integers(0, 40, (layers, heads, count)).astype(np.uint8)
    about = block(codes, causal=causal, **(block_changes or {}))
    panel = panel_of({"text": token_list(text, **(changes or {}))}, [about])
    chunks = chunks_of(about, codes, dropped)
    if about["statistics"]:
        values = np.random.default_rng(seed + 2).uniform(0, 3, (len(about["statistics"]), layers, heads))
        chunks["s/0/self"] = floats(values)
    if about["vectors"]:
        draw = np.random.default_rng(seed + 3)
        for layer in about["vectors"]["layers"]:
            for kind in "qk":
                values = draw.normal(0, 1, (heads, count, about["vectors"]["width"]))
                chunks[f"{kind}/0/self/{layer}"] = halves(values)
    return view_of([panel], chunks, **state), codes, dropped


def text_view(text: Names, *, layers: int = 3, most: int = 2, seed: int = 0, rtl: bool = False, **state: Any) -> View:
    """A text view with two tracks, one map and a lens whose words are those of the text."""
    draw, count = np.random.default_rng(seed), len(text)
    rows = ["input", *(f"layer {number}" for number in range(layers - 1))]
    panel = panel_of({"text": token_list(text, rtl=rtl)}, [])
    panel["text"] = {
        "tracks": {
            "unit": {"about": "A unit.", "signed": True, "unit": ""},
            "surprise": {"about": "Surprise in nats.", "signed": False, "unit": "nats"},
        },
        "maps": {"norms": {"about": "Lengths.", "rows": rows, "signed": False, "unit": ""}},
        "lens": {"rows": rows, "most": most, "about": "Predictions."},
    }
    tracks = draw.normal(0, 1, (2, count))
    tracks[1] = np.abs(tracks[1])
    tracks[1, 0] = np.nan
    ids = np.arange(layers * count * most).reshape(layers, count, most) % count
    chunks = {
        "text/0/tracks": floats(tracks),
        "text/0/map/norms": floats(np.arange(layers * count)),
        "text/0/lens/words": stored("\n".join(text).encode()),
        "text/0/lens/ids": stored(b"".join(struct.pack("<I", int(each)) for each in ids.ravel())),
        "text/0/lens/probs": stored(bytes(int(each) % 256 for each in np.arange(ids.size) * 7)),
    }
    return view_of([panel], chunks, mode="text", **state)
