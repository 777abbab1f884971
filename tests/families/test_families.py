"""The family check itself: every family full, and a check that cannot be fooled by silence."""

from __future__ import annotations

import pytest
import torch

from pellucid.errors import PellucidError
from pellucid.families import configs
from pellucid.families.blocks import ROWS
from pellucid.families.check import NOT_APPLICABLE, Report, check_families, check_family, table
from pellucid.families.configs import FAMILIES
from tests.tiny_models import network

WANTED = """
bert roberta xlm-roberta distilbert electra albert deberta deberta-v2 mpnet camembert flaubert xlnet
longformer modernbert ernie gpt2 gpt_neo gpt_neox gptj opt bloom falcon llama mistral mixtral qwen2
qwen3 qwen3_moe gemma gemma2 gemma3_text phi phi3 stablelm olmo olmo2 starcoder2 codegen cohere
gpt_oss deepseek_v3 mpt biogpt xglm granite smollm3 t5 mt5 bart mbart marian m2m_100 pegasus
blenderbot led
"""
CHECKS = {"sites", "output", "copy", "hooks", "pattern_rows", "heads", "attn", "mlp", "stream", "padding"}
CHECKS |= {"edit", "undo", "gradient"}


def test_every_family_that_was_promised_is_there():
    assert set(WANTED.split()) <= set(FAMILIES)
    assert set(FAMILIES) == set(ROWS)


@pytest.mark.families
@pytest.mark.parametrize("name", FAMILIES)
def test_family_is_full(name):
    report = check_family(FAMILIES[name])
    assert report.status == "full", [*report.missing[:5], *report.failed[:5]]
    assert set(report.passed) >= CHECKS
    assert all(reason in NOT_APPLICABLE for reason in report.left_out.values())


@pytest.mark.parametrize("name", ["gpt2", "t5", "mixtral"])
def test_tiny_models_are_the_same_every_time_and_have_no_trivial_weight(name):
    one, again, other = (network(name, seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)
    for key, value in network(name).named_parameters():
        assert value.std() > 0.01, f"{key} is constant, so a fault in it could not show"


@pytest.mark.parametrize("side", ["right", "left"])
def test_batches_are_padded_on_the_side_asked_for(side):
    given = configs.inputs(FAMILIES["t5"], side=side)
    mask = given["attention_mask"]
    assert mask.sum(1).tolist() == [11, 7, 4]
    edge = mask[:, -1] if side == "right" else mask[:, 0]
    assert edge.tolist() == [1, 0, 0]
    assert given["decoder_attention_mask"].sum(1).tolist() == [5, 9, 6]


def test_a_report_is_full_only_without_failures_gaps_or_other_reasons():
    def report(**changes):
        made = Report("x", passed={"output": 1})
        for name, value in changes.items():
            setattr(made, name, value)
        return made.status

    assert report() == "full"
    assert report(left_out={"edit pattern": "window"}) == "full"
    assert report(left_out={"edit pattern": "too hard"}) == "partial"
    assert report(missing=["heads.0: not found"]) == "partial"
    assert report(failed=["output: differs"]) == "partial"
    assert report(passed={}) == "none"


def test_a_failed_comparison_is_kept_with_its_reason():
    report = Report("x")
    report.note("stream", True, "not used")
    report.note("stream", False, "resid.1 is off")
    assert report.passed == {"stream": 1}
    assert report.to_dict()["missing"] == ["stream: resid.1 is off"]
    assert report.to_dict()["status"] == "partial"


def test_unknown_families_are_refused_before_anything_runs():
    with pytest.raises(PellucidError, match=r"no family called 'gpt22'; the families are bert, roberta"):
        check_families(["gpt2", "gpt22"])


def test_the_table_has_a_row_for_each_report():
    rows = table([Report("a", passed={"x": 1}), Report("b")])["families"]
    assert [(row["name"], row["status"]) for row in rows] == [("a", "full"), ("b", "none")]
