"""Markup: nothing that is text can become a tag, and numbers read as people write them."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.report import html
from pellucid.report.html import Cell, Html, element


class Reader(HTMLParser):
    """The tags and the text of a piece of markup."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@given(st.text())
def test_text_stays_text_and_comes_back(text):
    seen = Reader(element("p", text, title=text))
    assert [tag for tag, _ in seen.tags] == ["p"]
    kept = html._FORBIDDEN.sub("\ufffd", text)
    assert seen.text.replace("\r\n", "\n").replace("\r", "\n") == kept.replace("\r\n", "\n").replace("\r", "\n")
    assert seen.tags[0][1]["title"] == kept


def test_characters_that_no_page_may_hold_are_replaced():
    shown = html.escaped("a\x00b\ud800c\x1b[31m")
    assert shown == "a\ufffdb\ufffdc\ufffd[31m"
    shown.encode("utf-8")


def test_markup_is_not_escaped_twice():
    assert element("p", element("b", "1 < 2"), " & ") == "<p><b>1 &lt; 2</b> &amp; </p>"


def test_attributes():
    drawn = element("div", class_="a", data_sort=3, hidden=True, open=False, id=None, aria_label='"x"')
    assert drawn == '<div class="a" data-sort="3" hidden aria-label="&quot;x&quot;"></div>'
    assert element("br") == "<br>"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (0.0, "0"),
        (1234567, "1,234,567"),
        (-12, "−12"),
        (1234.0, "1,234"),
        (12.0, "12.0"),
        (0.12345, "0.123"),
        (3.14159, "3.14"),
        (98765.4, "98,765"),
        (-0.5, "−0.500"),
        (0.00002, "< 0.001"),
        (-0.00002, "> −0.001"),
        (0.001, "0.00100"),
        (0.999999, "1.000"),
        (float("nan"), "not defined"),
        (None, "not defined"),
        (float("inf"), "∞"),
    ],
)
def test_numbers(value, written):
    assert html.number(value) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.5, "50%"), (0.0312, "3.1%"), (0.0, "0%"), (0.0004, "< 0.1%"), (1.0, "100%"), (float("nan"), "not defined")],
)
def test_shares(value, written):
    assert html.share(value) == written


def test_intervals():
    assert html.interval(0.25, 0.5) == "0.250 to 0.500"
    assert html.interval(None, None) == "none"
    assert html.interval(float("nan"), 1.0) == "none"


def test_a_bar_is_as_long_as_its_share_and_marks_chance():
    cell = html.bar(30, 120, chance=60)
    styles = [attributes["style"] for _, attributes in Reader(str(cell.shown)).tags if "style" in attributes]
    assert styles == ["width:25.0%", "left:50.0%"]
    assert cell.plain == 30
    assert "width:100.0%" in str(html.bar(200, 100).shown)
    assert "width:0.0%" in str(html.bar(1, 0).shown)


def test_a_table_has_a_caption_scopes_and_keys_to_sort_by():
    drawn = html.table(
        ["word", "times"],
        [("<b>", Cell("many", 12)), ("b", 3), ("c", Cell("a third", 1 / 3))],
        caption="Words & times",
        right=["times"],
    )
    seen = Reader(drawn)
    tags = [tag for tag, _ in seen.tags]
    assert tags.count("caption") == 1
    assert tags.count("b") == 0
    assert [attributes.get("scope") for tag, attributes in seen.tags if tag == "th"] == ["col", "col", *["row"] * 3]
    assert [attributes.get("data-sort") for tag, attributes in seen.tags if tag == "td"] == ["12", None, "0.3333333"]
    assert [attributes.get("class") for tag, attributes in seen.tags if tag == "td"] == ["number"] * 3
    assert "Words & times" in seen.text


def test_words_carry_their_own_direction():
    assert html.word("שלום") == Html('<bdi class="word">שלום</bdi>')


def test_a_table_that_cannot_be_sorted_has_no_keys():
    assert "data-sort" not in html.table(["a"], [(Cell("one", 1),), (Cell("two", 2),)], caption="two rows")
    assert html.table(["a"], [(Cell("one", 1),)] * 3, caption="three").count("data-sort") == 3
