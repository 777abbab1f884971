"""Drawings: an SVG file made part of a page refers to nothing outside itself and shares no ids with its neighbours."""

from __future__ import annotations

import re

from matplotlib.figure import Figure

from pellucid.report.drawing import inlined
from pellucid.views.style import figure_svg

FILE = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="72pt" height="36pt" viewBox="0 0 72 36" xmlns="http://www.w3.org/2000/svg">
 <metadata><rdf about="http://example.org"/></metadata>
 <!-- <script>alert(1)</script> -->
 <defs><style type="text/css">*{stroke-linejoin: round}</style><clipPath id="p1"><rect/></clipPath></defs>
 <g id="figure_1" clip-path="url(#p1)"><path id="glyph" d="M 0 0"/><use xlink:href="#glyph"/></g>
</svg>
"""


def test_ids_and_what_refers_to_them_get_the_prefix():
    drawn = inlined(FILE, prefix="norms", alt="a < b")
    assert set(re.findall(r'\bid="([^"]*)"', drawn)) == {"norms-p1", "norms-figure_1", "norms-glyph"}
    assert 'href="#norms-glyph"' in drawn
    assert "url(#norms-p1)" in drawn


def test_nothing_refers_elsewhere_or_styles_the_page():
    drawn = inlined(FILE, prefix="x", alt="")
    for forbidden in ("http", "<style", "<script", "<!--", "<?xml", "xmlns", "metadata"):
        assert forbidden not in drawn


def test_the_size_is_kept_and_the_text_for_those_who_cannot_see_it_escaped():
    drawn = inlined(FILE, prefix="x", alt='a < "b"')
    assert drawn.startswith(
        '<svg viewBox="0 0 72 36" role="img" aria-label="a &lt; &quot;b&quot;" style="--natural:96px">'
    )
    assert drawn.endswith("</svg>")


def test_a_figure_of_matplotlib_comes_in_whole():
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], label="a <script> & more")
    axes.legend()
    svg = figure_svg(figure)
    drawn = inlined(svg, prefix="f", alt="a line")
    assert drawn.count("<path") == svg.count("<path")
    assert "<script" not in drawn
    assert "http" not in drawn
    ids = re.findall(r'\bid="([^"]*)"', drawn)
    referred = re.findall(r'(?:href="#|url\(#)([^")]*)', drawn)
    assert ids
    assert set(referred) <= set(ids)
    assert all(name.startswith("f-") for name in ids)


def test_fonts_are_told_once_and_what_turns_nothing_is_left_out():
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1])
    axes.set_title("another", family="monospace")
    axes.set_ylabel("upwards")
    svg = figure_svg(figure)
    drawn = inlined(svg, prefix="f", alt="a line")
    assert svg.count("'DejaVu Sans',") > 5
    assert drawn.count("DejaVu Sans&#x27;,") == 1
    assert drawn.count("DejaVu Sans',") == 0
    assert drawn.count("'DejaVu Sans Mono'") == 1
    assert drawn.count("<text") == svg.count("<text")
    assert re.findall(r"rotate\(([-\d]+)", drawn) == ["-90"]
