"""Views inside a report: made when the reader comes to them, apart from the page's style, each with its own data."""

from __future__ import annotations

import pytest

from pellucid import Corpus
from pellucid.report import report
from tests.browser.inputs import TEXT, tiny

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    corpus = Corpus.of([TEXT] * 4)
    return report(tiny("gpt2"), corpus, tmp_path_factory.mktemp("reports") / "out", control=False)


def test_sections_open_and_views_are_made_there(browser, written):
    context = browser.new_context(viewport={"width": 1300, "height": 900}, offline=True)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(written.as_uri())
    fold = page.locator("#one-sentence > details")
    assert fold.get_attribute("open") is None
    assert page.locator("[data-pellucid] .pellucid-view").count() == 0
    page.locator("nav a", has_text="One sentence").click()
    first, second = page.locator("#one-sentence [data-pellucid]").all()
    first.get_by_role("tab", name="Heads").click()
    first.locator(".tokens .token").first.wait_for()
    assert fold.get_attribute("open") is not None
    second.scroll_into_view_if_needed()
    second.get_by_text("Layer by layer").wait_for()
    assert second.get_by_role("tab").count() == 0  # each has its own header
    page.get_by_role("button", name="Open all sections").click()
    assert all(each.get_attribute("open") is not None for each in page.locator("main > section > details").all())
    page.get_by_role("button", name="Close all sections").click()
    assert fold.get_attribute("open") is None
    assert problems == []
    context.close()
