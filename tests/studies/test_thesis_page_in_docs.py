"""The page in the documentation prints the numbers that lie beside it, and no others."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from pellucid.studies.thesis.page import CURVES
from pellucid.studies.thesis.tables import read

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("thesis_in_docs", DOCS / "thesis.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_on_the_page_are_those_of_the_numbers(script):
    text = (DOCS / "thesis.md").read_text(encoding="utf-8")
    assert script.filled(text, read(DOCS / "thesis")) == text
    assert len(script.BLOCK.findall(text)) == 7


def test_a_wrong_number_on_the_page_is_seen(script):
    text = (DOCS / "thesis.md").read_text(encoding="utf-8")
    changed = text.replace("| tagger | accuracy | 93.2% |", "| tagger | accuracy | 94.2% |")
    assert changed != text
    assert script.filled(changed, read(DOCS / "thesis")) == text


def test_the_figures_on_the_page_are_there():
    text = (DOCS / "thesis.md").read_text(encoding="utf-8")
    shown = re.findall(r"\]\(thesis/([\w-]+)\.svg\)", text)
    assert {"spectra", "between", "within", "within-random"} < set(shown)
    assert {f"{name}-cka" for name in CURVES} < set(shown)
    assert sorted(shown) == sorted(each.stem for each in (DOCS / "thesis").glob("*.svg"))


def test_the_files_are_small():
    assert all(path.stat().st_size < 4_000_000 for path in (DOCS / "thesis").iterdir())
