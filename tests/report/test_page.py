"""The page and its sheets: whole, escaped, and in need of nothing from elsewhere."""

from __future__ import annotations

import csv
import re

import pytest
from matplotlib.figure import Figure

from pellucid.report import Section, Sheet
from pellucid.report.html import Cell, Html, bar, bounds, element
from pellucid.report.page import Written, page
from tests.report.test_html import Reader

EVIL = "</title></style><script>alert('x')</script><img src=x onerror=alert(1)>"


def section(title: str = "Norms & more") -> Section:
    return Section(title, 1, "Says one thing.", lambda *_: None)


@pytest.fixture
def sheet(tmp_path) -> Sheet:
    return Sheet(tmp_path)


def test_user_text_never_becomes_markup(sheet):
    sheet.text(EVIL)
    sheet.note(EVIL)
    sheet.heading(EVIL)
    sheet.facts([(EVIL, EVIL)])
    sheet.table([EVIL, "n"], [(EVIL, EVIL)], caption=EVIL, fold=EVIL)
    sheet.highlight(EVIL, EVIL, chance=EVIL)
    figure = Figure()
    figure.subplots().set_title(EVIL)
    sheet.figure(figure, name="evil", caption=EVIL, alt=EVIL)
    text = page(EVIL, EVIL, [EVIL], [Written(section(EVIL), sheet, None), Written(section("B"), sheet, EVIL)])
    seen = Reader(text)
    assert [tag for tag, _ in seen.tags].count("script") == 1, "the page's own, for sorting"
    assert "img" not in [tag for tag, _ in seen.tags]
    assert [tag for tag, _ in seen.tags].count("style") == 1
    assert not [name for _, attributes in seen.tags for name in attributes if name.startswith("on")]
    assert seen.text.count("alert('x')") > 10


def test_the_page_asks_for_nothing_from_elsewhere(sheet):
    figure = Figure()
    figure.subplots().imshow([[0, 1], [2, 3]], rasterized=True)
    sheet.figure(figure, name="heat", caption="c", alt="a")
    text = page("m", "a", [], [Written(section(), sheet, None)])
    for tag, attributes in Reader(text).tags:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        if tag != "a":
            assert attributes.get("href", "#").startswith(("#", "data:image/png;base64,")), attributes
    assert "@import" not in text
    assert not re.findall(r"https?://", text)
    policies = [attributes["content"] for _, attributes in Reader(text).tags if "http-equiv" in attributes]
    assert [policy.split(";")[0] for policy in policies] == ["default-src 'none'"]


def test_every_entry_of_the_contents_leads_to_a_section(sheet, tmp_path):
    sheet.highlight("Perplexity", "12", chance="chance: 4,096")
    written = [Written(section("First one"), sheet, None), Written(section("Second"), Sheet(tmp_path), "it is a test")]
    seen = Reader(page("m", "a", ["Read so."], written))
    places = {attributes["id"] for tag, attributes in seen.tags if tag == "section"}
    links = [attributes["href"] for tag, attributes in seen.tags if tag == "a" and attributes["href"].startswith("#")]
    assert places == {"first-one", "second"}
    assert {link[1:] for link in links} == places | {"main"}
    assert "Not in this report: it is a test" in seen.text
    assert "chance: 4,096" in seen.text


def test_headings_are_in_order_and_there_is_one_title(sheet):
    sheet.heading("Inside")
    tags = [tag for tag, _ in Reader(page("m", "a", [], [Written(section(), sheet, None)])).tags]
    assert [tag for tag in tags if re.fullmatch(r"h\d", tag)] == ["h1", "h2", "h2", "h3"]
    assert tags.count("main") == tags.count("nav") == tags.count("title") == 1


def test_a_named_table_is_also_a_file_with_plain_values(sheet, tmp_path):
    rows = [(Cell(element("b", "a,b"), "a,b"), bar(0.25, 1.0)), ('say "no"', None), (Html("x"), 3)]
    sheet.table(["word", "share"], rows, caption="c", name="words")
    with (tmp_path / "tables" / "words.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [["word", "share"], ["a,b", "0.25"], ['say "no"', ""], ["x", "3"]]
    assert sheet.files == ["tables/words.csv"]
    assert 'href="tables/words.csv"' in sheet.written()


def test_files_hold_both_ends_of_intervals_and_the_text_of_markup(sheet, tmp_path):
    rows = [(Html("<code>a &amp; <b>b</b></code>"), bounds(0.12345, 2.5), 1), ("c", bounds(None, 2.5), 2),
            ("d", bounds(float("nan"), 2.5), 3)]  # fmt: skip
    sheet.table(["what", "interval", "n"], rows, caption="c", name="ends", right=["interval", "n"])
    with (tmp_path / "tables" / "ends.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.reader(file))
    assert read[0] == ["what", "interval from", "interval to", "n"]
    assert read[1:] == [["a & b", "0.12345", "2.5", "1"], ["c", "", "", "2"], ["d", "", "", "3"]]
    cells = [attributes for tag, attributes in Reader(sheet.written()).tags if tag == "td"]
    assert [cell.get("data-sort") for cell in cells[::2]] == ["0.12345", None, None], "by the lower end"
    assert "none" in sheet.written()


def test_a_figure_is_also_a_file(sheet, tmp_path):
    figure = Figure()
    figure.subplots().plot([1, 2])
    sheet.figure(figure, name="line", caption="A line.", alt="one line, rising")
    saved = (tmp_path / "figures" / "line.svg").read_text(encoding="utf-8")
    assert saved.startswith("<svg")
    assert 'xmlns="http://www.w3.org/2000/svg"' in saved
    seen = Reader(sheet.written())
    assert [tag for tag, _ in seen.tags if tag in ("figure", "figcaption")] == ["figure", "figcaption"]
    assert [attributes["aria-label"] for tag, attributes in seen.tags if tag == "svg"] == ["one line, rising"]
