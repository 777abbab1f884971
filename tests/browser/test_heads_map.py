"""The map of heads in its page: every cell opens its head on a sentence, by the mouse and by the keyboard."""

from __future__ import annotations

import re

import pytest

import pellucid as pl
from pellucid.heads import functions, head_collectors, shapes
from pellucid.heads.roles.examples import examples
from pellucid.report.heads import write_heads
from tests.heads.built_models import PLANTED, grammar_corpus, planted

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    model, corpus = planted(), grammar_corpus().take(120)
    found = pl.sweep(model, corpus, head_collectors(model), progress=False)
    result = functions(found)
    shown = examples(model, corpus, result, found.corpus_words)
    folder = tmp_path_factory.mktemp("heads") / "out"
    return write_heads(folder, result, shapes(found), [], model=model, found=shown, command="test")


@pytest.fixture
def page(browser, written):
    context = browser.new_context(viewport={"width": 1300, "height": 900}, offline=True)
    made = context.new_page()
    problems: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    made.goto(written.as_uri())
    yield made
    assert problems == []
    context.close()


def opened_on(page) -> str:
    """What the view that was opened says it shows."""
    page.locator(".tokens .token").first.wait_for()
    return page.get_by_text(re.compile(r"Layer \d+, head \d+")).first.inner_text()


def test_a_cell_opens_its_head_with_the_mouse(page):
    layer, head = PLANTED["rare"]
    cell = page.locator(f'svg a[aria-label="head {layer}.{head}, rare words"]')
    box = cell.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert f"Layer {layer}, head {head}" in opened_on(page)


def test_what_is_written_on_a_cell_does_not_stand_in_its_way(page):
    layer, head = PLANTED["previous"]  # which says −1
    box = page.locator(f'svg a[aria-label="head {layer}.{head}, positional"]').bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert f"Layer {layer}, head {head}" in opened_on(page)


def test_cells_are_reached_and_opened_by_the_keyboard(page):
    page.locator("svg a").first.focus()
    seen = []
    for _ in range(8):
        seen.append(page.locator("svg a:focus").get_attribute("aria-label"))
        page.keyboard.press("Tab")
    assert [name.split(",")[0] for name in seen] == [f"head {at // 4}.{at % 4}" for at in range(8)]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    assert "Layer 1, head 3" in opened_on(page)


def test_rows_lead_to_several_sentences(page):
    links = page.locator("tr", has_text="rare words").get_by_role("link")
    assert links.all_inner_texts() == ["example 1", "example 2", "example 3"]
    assert len({links.nth(at).get_attribute("href") for at in range(3)}) == 3
    links.nth(2).click()
    assert "Layer 0, head 2" in opened_on(page)
