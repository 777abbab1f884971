"""Views undone: chunks decoded by plain loops, independently of the code that makes them."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np

from pellucid.model import Model
from tests.tiny_models import network, word_tokenizer

TEXT = "the keys near the cabinet are old and the dog sleeps"
STAND_IN = b"export function openEmbedded() {}"


@cache
def model(name: str, attention: str = "eager", *, closing: bool | None = None) -> Model:
    """A tiny model of a family with a tokenizer; shared, never changed."""
    closed = name != "gpt2" if closing is None else closing
    return Model.load(network(name, attention), tokenizer=word_tokenizer(closing=closed))


def inflated(view, name: str) -> bytes:
    """A chunk's bytes, which are as many as the header says."""
    raw = zlib.decompress(view.chunk(name).stored)
    if name in view.header["chunks"]:
        assert view.header["chunks"][name] == {"stored": len(view.chunk(name).stored), "raw": len(raw)}
    return raw


def block(view, name: str = "self", panel: int = 0) -> dict:
    return next(each for each in view.header["panels"][panel]["blocks"] if each["name"] == name)


def tokens(view, name: str = "text", panel: int = 0) -> dict:
    return view.header["panels"][panel]["tokens"][name]


def head_codes(view, layer: int, head: int, *, name: str = "self", panel: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Codes of one head [queries, keys], and of the mass dropped from each row."""
    about = block(view, name, panel)
    lists = view.header["panels"][panel]["tokens"]
    queries, keys = (len(lists[about[side]]["text"]) for side in ("queries", "keys"))
    found, dropped = np.zeros((queries, keys), np.uint8), np.zeros(queries, np.uint8)
    for strip, start in enumerate(range(0, queries, about["strip"])):
        raw = inflated(view, f"a/{panel}/{name}/attention/{layer}/{head}/{strip}")
        place, above = 0, np.zeros(keys, np.uint8)
        rows = range(start, min(start + about["strip"], queries))
        for row in rows:
            width = row + 1 if about["causal"] else keys
            line = np.zeros(keys, np.uint8)
            for key in range(width):
                line[key] = (raw[place] + int(above[key])) % 256
                place += 1
            found[row], above = line, line
        for row in rows:
            dropped[row] = raw[place]
            place += 1
        assert place == len(raw)
    return found, dropped


def weight(code) -> np.ndarray:
    return (np.asarray(code, float) / 255) ** 2


def statistics(view, name: str = "self", panel: int = 0) -> dict[str, np.ndarray]:
    about = block(view, name, panel)
    shape = (len(about["statistics"]), len(about["layers"]), max(about["heads"]))
    values = np.frombuffer(inflated(view, f"s/{panel}/{name}"), "<f4").reshape(shape)
    return dict(zip(about["statistics"], values, strict=True))
