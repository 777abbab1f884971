"""Faults of a drawn figure that a reader would see: texts that overlap each other, or are cut at the edge."""

from __future__ import annotations

from itertools import combinations
from typing import Any


def texts(figure: Any) -> list[Any]:
    """Every text that is drawn, but for those of axes that are switched off."""
    found = [*figure.texts, *([figure._suptitle] if figure._suptitle is not None else [])]
    for legend in figure.legends:
        found += legend.get_texts()
    for axes in figure.axes:
        if not axes.axison:
            continue
        found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = 1e-9 * (high - low)
            found += [tick.label1 for tick in axis.get_major_ticks() if low - slack <= tick.get_loc() <= high + slack]
            found += [tick.label2 for tick in axis.get_major_ticks() if low - slack <= tick.get_loc() <= high + slack]
    return list({id(text): text for text in found if text.get_visible() and text.get_text().strip()}.values())


def faults(figure: Any) -> list[str]:
    """What is wrong with a figure at a screen's and at a printer's resolution, in words; nothing where all is well."""
    before = figure.dpi
    try:
        return [fault for dots in (100, 200) for fault in _faults_at(figure, dots)]
    finally:
        figure.set_dpi(before)


def _faults_at(figure: Any, dots: int) -> list[str]:
    figure.set_dpi(dots)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts(figure)]
    page = figure.bbox
    found = [
        f"{text!r} is cut at the edge"
        for text, box in boxes
        if box.x0 < page.x0 - 0.5 or box.x1 > page.x1 + 0.5 or box.y0 < page.y0 - 0.5 or box.y1 > page.y1 + 0.5
    ]
    for (one, first), (other, second) in combinations(boxes, 2):
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        up = min(first.y1, second.y1) - max(first.y0, second.y0)
        if across > 1 and up > 1:
            found.append(f"{one!r} overlaps {other!r}")
    return found
