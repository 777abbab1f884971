"""The page as a whole: alone in its file, with any text in it, for the keyboard, for screen readers, in its states."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from pellucid.views import head_view, model_view, neuron_view, text_view
from tests.browser.inputs import PAIR, TEXT, minilm, tiny, told

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def view():
    return model_view(minilm(), TEXT)


def test_a_file_needs_nothing_but_itself(show, view):
    page = show(view)
    assert page.page.title() == f"{view.header['title']} – Pellucid"
    assert page.page.locator("h1").inner_text() == view.header["title"]
    for note in view.notes:
        assert page.page.locator(".notes li", has_text=note).count() == 1
    page.page.get_by_role("tab", name="Heads").click()
    page.ready()
    assert page.asked[0].startswith("file:")
    assert page.strangers() == []
    assert any(url.startswith("blob:") for url in page.asked)


def test_clicking_a_head_opens_it(show, view):
    page = show(view)
    assert page.state()["mode"] == "model"
    grid = page.page.get_by_role("grid")
    box = grid.locator("canvas").bounding_box()
    found = set()
    for x in range(60, int(box["width"]) - 5, 12):
        page.page.mouse.move(box["x"] + x, box["y"] + box["height"] - 30)
        found.add(page.page.locator(".tip b").inner_text() if page.page.locator(".tip").is_visible() else "")
    assert {f"Layer 5, head {head}" for head in range(12)} <= found
    page.page.mouse.click(box["x"] + box["width"] - 30, box["y"] + box["height"] - 30)
    page.ready()
    assert (page.state()["mode"], page.state()["layer"], page.state()["heads"]) == ("heads", 5, [11])
    page.says("Layer 5, head 11")
    page.painted("head", 1)


def test_a_keyboard_is_enough(show, view):
    page = show(view)
    keys = page.page.keyboard
    page.page.get_by_role("tab", name="Model").focus()
    for _ in range(12):
        keys.press("Tab")
        if page.page.evaluate("document.activeElement.getAttribute('role')") == "grid":
            break
    else:
        pytest.fail("the grid of heads is not in the tab order")
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    keys.press("ArrowRight")
    page.says("Layer 2, head 1")
    keys.press("Enter")
    page.ready()
    assert (page.state()["layer"], page.state()["heads"]) == (2, [1])
    for _ in range(40):
        keys.press("Tab")
        if page.page.evaluate("document.activeElement.classList.contains('from')"):
            break
    else:
        pytest.fail("the tokens are not in the tab order")
    for _ in range(5):
        keys.press("ArrowDown")
    page.says("“\u2068looked\u2069” looks at")
    keys.press("Enter")
    assert page.state()["left"] == [4]
    keys.press("ArrowRight")
    page.says("Layer 3, ")
    keys.press("Escape")
    assert page.state()["left"] == []


def test_parts_have_roles_and_names(show, view):
    page = show(view)
    tabs = page.page.get_by_role("tab")
    assert tabs.all_inner_texts() == ["Model", "Heads"]
    assert tabs.nth(0).get_attribute("aria-selected") == "true"
    assert page.page.get_by_role("status").get_attribute("aria-live") == "polite"
    assert "Arrow keys" in page.page.get_by_role("grid").get_attribute("aria-label")
    assert page.page.locator("html").get_attribute("lang") == "en"
    tabs.nth(1).click()
    page.ready()
    lists = page.page.get_by_role("listbox")
    assert [lists.nth(place).get_attribute("aria-multiselectable") for place in (0, 1)] == ["true", "true"]
    assert page.page.get_by_role("option", name="keyholes").count() == 0
    assert page.page.get_by_role("option", name="holes").count() == 2
    unnamed = page.page.evaluate(
        """[...document.querySelectorAll('button, select, input')].filter(it => it.offsetParent !== null &&
        !(it.getAttribute('aria-label') || it.textContent.trim() && it.tagName === 'BUTTON' || it.labels?.length))
        .map(it => it.outerHTML)"""
    )
    assert unnamed == []


@pytest.mark.parametrize("system", ["light", "dark"])
def test_colours_follow_the_system_and_the_choice(show, view, system):
    page = show(view, color_scheme=system)
    ground = "getComputedStyle(document.querySelector('.pellucid-view')).backgroundColor"
    papers = {"light": "rgb(252, 252, 250)", "dark": "rgb(20, 25, 28)"}
    assert page.page.evaluate(ground) == papers[system]
    select = page.page.locator(".tools select")
    for chosen in ("dark", "light"):
        select.select_option(chosen)
        assert page.page.evaluate(ground) == papers[chosen]
    select.select_option("auto")
    other = "dark" if system == "light" else "light"
    page.page.emulate_media(color_scheme=other)
    page.until(lambda: _equal(page.page.evaluate(ground), papers[other]))


EVIL = "<img src=x onerror=alert(1)> </script><script>alert(2)</script> <!-- \u2028 ${alert(3)} &amp; ]]> \"'"


@pytest.mark.parametrize("make", [head_view, model_view, neuron_view])
def test_markup_in_a_text_stays_text(show, make):
    view = make(minilm(), EVIL, pair="</title><b onmouseover=alert(4)>x</b>", title=EVIL)
    page = show(view)
    assert page.page.locator("h1").inner_text().split() == EVIL.split()
    page.set(mode="heads")
    page.ready()
    assert page.tokens("left").nth(1).inner_text() == told(view)[1]
    page.token("left", 2).hover()
    page.says("looks at")
    svg = page.saved("Save SVG").decode()
    alone = page.context.new_page()  # where no policy of the page's own stands in the way
    alone.set_content(svg)
    assert alone.locator("svg").count() == 1
    assert alone.locator("img, script, b").count() == 0


def test_markup_in_predictions_stays_text(show):
    view = text_view(tiny("gpt2"), "the keys <b>x</b>", title="<i>t</i>")
    page = show(view)
    assert page.page.locator("h1").inner_text() == "<i>t</i>"
    assert page.page.locator("h1 i, .flow b").count() == 0


@pytest.mark.parametrize(("text", "direction"), [("ذهب الولد إلى البيت", "rtl"), ("猫は古い鍵を見ました。", "ltr")])
def test_other_scripts(show, text, direction):
    view = head_view(minilm(), text)
    page = show(view)
    page.ready()
    assert page.tokens("left").all_inner_texts() == told(view)
    assert page.page.locator(".tokens.from").get_attribute("dir") == direction
    page.token("left", 3).hover()
    page.says(f"“\u2068{told(view)[3]}\u2069” looks at")
    svg = page.saved("Save SVG").decode()
    assert ('direction="rtl"' in svg) == (direction == "rtl")
    page = show(text_view(minilm(), text))
    assert page.page.locator(".flow .token").all_inner_texts() == told(view)
    drawn = page.page.locator(".flow").evaluate("it => getComputedStyle(it).direction")
    assert drawn == direction


CHANGES = {
    "mode": "heads", "layer": 3, "heads": [1, 7], "average": "heads", "unit": "words", "hideSpecial": True,
    "mass": 0.8, "left": [2], "right": [3, 4], "theme": "dark", "from": 0, "to": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def pair():
    return head_view(minilm(), TEXT, pair=PAIR)


def picture(page) -> str:
    page.ready()
    page.away()
    page.until(lambda: _says(page, "Layer" if page.state()["average"] != "layers" else "mean"))
    return page.saved("Save SVG").decode()


def _says(page, text: str) -> None:
    assert text in page.status


def test_one_state_is_one_picture(show, pair):
    first = show(pair)
    first.ready()
    first.set(**CHANGES)
    state = first.state()
    assert {name: state[name] for name in CHANGES} == CHANGES
    drawn = picture(first)
    first.until(lambda: _equal(first.page.evaluate("location.hash") != "", True))
    address = first.page.evaluate("location.hash")
    assert picture(show(pair, address_end=address)) == drawn  # the address carries it
    assert picture(show(pair.with_state(**state))) == drawn  # so does Python
    other = show(pair)
    other.ready()
    assert picture(other) != drawn
    other.set(**json.loads(json.dumps(state)))  # and so does JSON
    assert other.state() == state
    other.until(lambda: _equal(picture(other) == drawn, True))


def _equal(one, other) -> None:
    assert one == other


@pytest.mark.parametrize("given", ["{not json", '{"layer": 99, "mode": "no", "mass": -1, "left": "x"}', "[]", '"a"'])
def test_a_broken_address_shows_the_view_as_it_was(show, pair, given):
    page = show(pair, address_end="#state=" + quote(given))
    page.ready()
    usual = show(pair)
    usual.ready()
    assert page.state() == usual.state()


def test_narrow_windows_lose_nothing(show, view):
    page = show(view, viewport={"width": 420, "height": 800})
    page.page.get_by_role("tab", name="Heads").click()
    page.ready()
    page.token("left", 4).hover()
    page.says("looks at")
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
