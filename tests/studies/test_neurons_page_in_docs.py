"""The page of the study of neurons in the documentation prints the numbers that lie beside it, and no others."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from pellucid.studies.neurons.tables import read_cases

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("neurons_in_docs", DOCS / "neurons-study.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_on_the_page_are_those_of_the_numbers(script):
    text = (DOCS / "neurons-study.md").read_text(encoding="utf-8")
    cases = read_cases(DOCS / "neurons-study")
    assert len(script.BLOCK.findall(text)) == len(script.blocks(cases)) == 7
    assert script.filled(text, cases) == text
    changed = text.replace("**stands**", "**does not stand**", 1)
    assert changed != text
    assert script.filled(changed, cases) == text


def test_the_numbers_are_few_and_hold_no_text_of_a_corpus():
    for path in (DOCS / "neurons-study").iterdir():
        assert path.suffix == ".json"
        assert path.stat().st_size < 200_000
    for case in read_cases(DOCS / "neurons-study"):
        assert set(case.facts["texts"]) == {"ranked on", "judged on"}
        assert case.facts["asked"]["scale"] == "full"
