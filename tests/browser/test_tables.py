"""Wide tables of a page: the table scrolls inside itself, and its caption stays within what is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from pellucid.report import html

STYLE = Path(html.__file__).with_name("page.css").read_text(encoding="utf-8")
pytestmark = pytest.mark.browser
CAPTION = "What every column of this table holds, at length: " + "and one more word " * 20


@pytest.mark.parametrize("width", [1200, 700])
def test_a_caption_wraps_to_the_page_while_its_table_scrolls(browser, tmp_path, width):
    columns = [f"column {number}" for number in range(30)]
    table = html.table(columns, [[f"{number}.123" for number in range(30)]], caption=CAPTION, right=columns)
    place = tmp_path / "page.html"
    place.write_text(f'<style>{STYLE}</style><div class="layout">{table}</div>', encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 600}, offline=True)
    page = context.new_page()
    page.goto(place.as_uri())
    scroll, caption = page.locator(".scroll"), page.locator("caption > span")
    assert page.locator("table").bounding_box()["width"] > width
    assert page.evaluate("document.documentElement.scrollWidth") == width
    seen = scroll.bounding_box()
    before = caption.bounding_box()
    assert before["x"] == pytest.approx(seen["x"], abs=1)
    assert before["width"] <= seen["width"] + 1
    assert before["height"] > 30  # it is on several lines
    scroll.evaluate("each => each.scrollLeft = 300")
    assert caption.bounding_box() == before
    context.close()
