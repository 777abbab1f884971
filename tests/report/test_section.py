"""Sections: found by being there, in their order, with their collectors united for one pass."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import pellucid.report.sections as package
from pellucid.collect.collector import Collector
from pellucid.report import Section, all_sections
from pellucid.report.page import anchor
from pellucid.report.section import gathered

SUBJECT: Any = None


@dataclass(frozen=True)
class Tally(Collector):
    """A collector that gathers nothing."""

    sites: str | tuple[str, ...] = "resid.*"
    kind: ClassVar[str] = "test tally"

    def open(self, setting):
        raise NotImplementedError

    def merge(self, left, right):
        raise NotImplementedError


def section(title: str, *collectors: Collector, order: int = 1) -> Section:
    return Section(title, order, "Says one thing.", lambda *_: None, collectors=lambda _: collectors)


def test_every_section_has_what_a_page_needs():
    found = all_sections()
    assert [each.order for each in found] == sorted(each.order for each in found)
    assert len({anchor(each.title) for each in found}) == len(found)
    assert found[-1].title == "How this was made"
    for each in found:
        assert each.explanation.endswith(".")
        assert ". " not in each.explanation, "one sentence"


def test_a_new_file_is_a_new_section(tmp_path, monkeypatch):
    (tmp_path / "extra.py").write_text(
        "from pellucid.report import Section\nSECTION = Section('Extra', 15, 'One more.', lambda *_: None)\n"
    )
    (tmp_path / "_private.py").write_text("raise RuntimeError('not a section')\n")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    try:
        assert [each.title for each in all_sections()][:3] == ["The model", "Extra", "The text"]
    finally:
        loaded: dict[str, ModuleType] = sys.modules
        loaded.pop("pellucid.report.sections.extra", None)


def test_collectors_are_gathered_in_order_and_equal_ones_once():
    asked = [section("A", Tally("resid.*")), section("B", Tally("neurons.*"), Tally("resid.*")), section("C")]
    assert gathered(asked, SUBJECT) == (Tally("resid.*"), Tally("neurons.*"))
