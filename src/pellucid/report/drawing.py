"""Drawings inside a page: matplotlib's SVG made fit to stand among others in one HTML file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from pellucid.report.html import Html, element, escaped

_CUTS = (
    re.compile(r"<\?xml.*?\?>", re.DOTALL),
    re.compile(r"<!DOCTYPE.*?>", re.DOTALL),
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"<metadata>.*?</metadata>", re.DOTALL),
    re.compile(r"<style\b.*?</style>", re.DOTALL),
    re.compile(r"<title>.*?</title>", re.DOTALL),
    re.compile(r'\sxmlns(?::\w+)?="[^"]*"'),
    re.compile(r'\stransform="rotate\(-?0 [^"]*\)"'),  # which turns nothing
)
_FONTS = re.compile(r"font-family: ([^;\"]*);? ?")
_OPENING = re.compile(r"<svg\b([^>]*)>")
_LENGTH = re.compile(r'\swidth="([\d.]+)(pt|px|)"')


def inlined(svg: str, *, prefix: str, alt: str, links: Mapping[str, str] | None = None) -> Html:
    """An SVG file's drawing as part of a page: no names from elsewhere, its ids made its own by a prefix.

    `links` say of the addresses that the drawing leads to what is there; addresses are of the file, in a folder of its
    own, and become those of the page beside that folder.
    """
    for cut in _CUTS:
        svg = cut.sub("", svg)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'\bhref="#', f'href="#{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    opening = _OPENING.search(svg)
    assert opening is not None, "a figure that is no SVG"
    view = re.search(r'\sviewBox="([^"]*)"', opening[1])
    length = _LENGTH.search(opening[1])
    assert view is not None and length is not None, "a figure without a size"
    pixels = float(length[1]) * (4 / 3 if length[2] == "pt" else 1)
    inside = svg[opening.end() : svg.rindex("</svg>")].strip()
    fonts = Counter(_FONTS.findall(inside)).most_common(1)
    usual = fonts[0][0] if fonts else ""  # told once for all letters: a report is a seventh smaller
    inside = _FONTS.sub(lambda found: "" if found[1] == usual else found[0], inside)
    for address, told in (links or {}).items():
        here = element("a", element("title", told), href=address.removeprefix("../"), aria_label=told)
        opening_tag = here.removesuffix("</a>")
        inside = re.sub(rf'<a href="{re.escape(escaped(address))}"[^>]*>', lambda _, tag=opening_tag: tag, inside)
    return element(
        "svg",
        Html(inside),
        viewBox=view[1],
        role="group" if links else "img",
        aria_label=alt,
        style=f"--natural:{pixels:.0f}px" + (f"; font-family: {usual}" if usual else ""),
    )
