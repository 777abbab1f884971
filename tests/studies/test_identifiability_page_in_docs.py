"""The page on the study of identifiability says what its numbers say."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from pellucid.studies.identifiability.tables import read_cases

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def script():
    spec = spec_from_file_location("identifiability_study_docs", DOCS / "identifiability-study.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_filled_from_the_numbers_beside_it(script):
    cases = read_cases(DOCS / "identifiability-study")
    assert {"zoo:mlm", "zoo:lm", "zoo:tagger", "MiniLM", "SmolLM2-135M"} == {case.name for case in cases}
    assert {case.facts["asked"]["scale"] for case in cases} == {"full"}
    text = (DOCS / "identifiability-study.md").read_text(encoding="utf-8")
    assert script.filled(text, cases) == text
    assert text.count("<!-- end -->") == 3
    flow = (DOCS / "flow.md").read_text(encoding="utf-8")
    assert script.filled(flow, cases) == flow
    assert flow.count("<!-- end -->") == 1


def test_the_numbers_hold_no_place_on_a_disk():
    for file in (DOCS / "identifiability-study").glob("*.json"):
        assert "/" not in file.read_text(encoding="utf-8").replace("ud_english_ewt/", "")
