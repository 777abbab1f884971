"""`pellucid identifiability`: what it prints, the folder it writes, and what it refuses."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from pellucid import Model
from pellucid.cli.identifiability import PARTS
from pellucid.results import Result
from tests.tiny_models import save

TEXTS = (
    "the old dog runs\na cat sleeps near the keys\nthe red cabinet\nkeys of the dog are old\na cat and a dog\nthe cat\n"
)


def test_a_page_with_all_parts(cli, bert_folder, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXTS, encoding="utf-8")
    out = tmp_path / "out"
    code, said, told = cli("identifiability", bert_folder, "--corpus", texts, "-o", out, "--sentences", "3")
    assert code == 0, told
    assert "Not told" not in said
    for text in ("unique", "linear cosine", "not largest", "chance", "identifiability.html"):
        assert text in said, text
    page = (out / "identifiability.html").read_text(encoding="utf-8")
    for text in ("What attention leaves open", "Telling tokens from states", "How far tokens mix", "random model"):
        assert text in page, text
    for name in ("attention", "tokens", "mixing"):
        assert Result.load(out / "results" / name).provenance.command.startswith("pellucid identifiability")


def test_one_part_as_json(cli, gpt2_folder, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXTS, encoding="utf-8")
    code, said, told = cli("identifiability", gpt2_folder, "--corpus", texts, "--parts", "attention", "--json")
    assert code == 0, told
    assert json.loads(said)["attention"]["kind"] == "identifiability.attention"


def test_an_unknown_part_is_refused_before_anything_is_written(cli, gpt2_folder, tmp_path):
    out = tmp_path / "out"
    code, _, told = cli(
        "identifiability", gpt2_folder, "--corpus", "grammar:10", "--parts", "attention,souls", "-o", out
    )
    assert code == 2
    assert "no part 'souls'; there are attention, keys, functions, second, tokens, mixing" in told
    assert not out.exists()


LONG = "\n".join(
    " ".join(np.random.default_rng(seed).permutation(TEXTS.replace("\n", " ").split())[:16]) for seed in range(24)
)


def test_functions_keys_and_a_second_attention_in_a_page(cli, gpt2_folder, tmp_path):
    texts, out = tmp_path / "texts.txt", tmp_path / "out"
    texts.write_text(LONG, encoding="utf-8")
    parts = ("--parts", "attention,functions,keys,second", "--sentences", "4")
    code, said, told = cli("identifiability", gpt2_folder, "--corpus", texts, *parts, "-o", out)
    assert code == 0, told
    for text in ("changed", "unique with keys", "queries could have other weights", "own keys could make 0 of these"):
        assert text in said, text
    page = (out / "identifiability.html").read_text(encoding="utf-8")
    for text in ("Functions by effective attention", "Weights that keys could make", "A second attention", "signed"):
        assert text in page, text
    for name in ("functions_changed", "reachable", "second_attention"):
        assert Result.load(out / "results" / name).provenance.command.startswith("pellucid identifiability")


def test_one_head_on_one_text(cli, gpt2_folder, tmp_path):
    long = " ".join(TEXTS.split())
    code, said, told = cli("identifiability", gpt2_folder, "--on", long, "--at", "1.2", "-o", tmp_path / "out")
    assert code == 0, told
    assert "Head 1.2" in said
    assert "outputs differ by at most" in said
    assert (tmp_path / "out" / "figures" / "second_attention.svg").is_file()
    code, said, told = cli("identifiability", gpt2_folder, "--on", "a cat", "--at", "1.2")
    assert code == 0, told
    assert "Attention is identifiable here" in said


def test_what_a_model_cannot_tell_is_left_out_by_name_unless_asked_for(cli, tmp_path):
    folder = save(tmp_path / "xlnet", "xlnet")
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXTS, encoding="utf-8")
    code, _, told = cli("identifiability", folder, "--corpus", texts, "--parts", "keys")
    assert code == 2
    assert "also meet vectors of positions" in told


@pytest.mark.parametrize(
    ("family", "left_out", "why"),
    [
        ("bloom", {"mixing"}, "Derivatives cannot be carried"),
        ("gpt2", {"attention", "keys", "functions", "second"}, "does not show both weights and values"),
    ],
)
def test_what_a_model_cannot_tell_does_not_stop_the_rest(cli, tmp_path, monkeypatch, family, left_out, why):
    if family == "gpt2":  # as a model that keeps its values to itself
        shown = Model.sites.fget
        hidden = property(lambda self: tuple(site for site in shown(self) if site.kind != "value"))
        monkeypatch.setattr(Model, "sites", hidden)
    folder, texts, out = save(tmp_path / family, family), tmp_path / "texts.txt", tmp_path / "out"
    texts.write_text(TEXTS, encoding="utf-8")
    options = ("--corpus", texts, "--sentences", "2", "--no-random", "-o", out)
    code, said, told = cli("identifiability", folder, *options)
    assert code == 0, told
    plain = " ".join(said.split())
    assert {part for part in PARTS if f"Not told: {part}, because of this:" in plain} == left_out
    assert why in plain
    page = (out / "identifiability.html").read_text(encoding="utf-8")
    for part in left_out:
        assert f"Not told: {part}, because of this:" in page
    named = sorted(left_out)[0]
    code, _, told = cli(
        "identifiability", folder, "--corpus", texts, "--parts", f"tokens,{named}", "--maps", "identity"
    )
    assert code == 2
    assert why in " ".join(told.split())


def test_few_documents_are_no_reason_to_stop(cli, gpt2_folder, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("the old dog runs\na cat sleeps near the keys\nthe red cabinet\n", encoding="utf-8")
    options = ("--corpus", texts, "--sentences", "2", "--no-random")
    code, said, told = cli("identifiability", gpt2_folder, *options)
    assert code == 0, told
    assert "Not told: tokens, because of this:" in said
    assert "3 sentences in 3 documents, too few" in " ".join(said.split())
    code, _, told = cli("identifiability", gpt2_folder, *options, "--maps", "identity")  # asked for by an option
    assert code == 2
    assert "too few to hold some out" in " ".join(told.split())


def test_layers_intervals_and_notes_are_printed(cli, gpt2_folder, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text(LONG, encoding="utf-8")
    given = ("--corpus", texts, "--parts", "tokens", "--maps", "linear", "--no-random")
    code, said, told = cli("identifiability", gpt2_folder, *given, "--layers", "1,3", "--json")
    assert code == 0, told
    result = json.loads(said)["tokens"]
    assert result["axes"]["layer"] == [1, 3]
    code, said, told = cli("identifiability", gpt2_folder, *given, "--layers", "2-3")
    assert code == 0, told
    assert "95% interval" in said
    assert re.search(r"linear cosine +2 +[01]\.\d{3} +[01]\.\d{3} to [01]\.\d{3} +0\.\d{3}", said)
    assert "Note: Maps were fitted on four fifths of the documents" in said
    code, _, told = cli("identifiability", gpt2_folder, *given, "--layers", "all")
    assert code == 2
    assert "--layers 'all' names no layers" in told
    code, _, told = cli("identifiability", gpt2_folder, *given, "--layers", "1-9")
    assert code == 2
    assert "no layer 4 to look at" in told


def test_long_texts_are_cut_unless_they_are_to_be_refused(cli, gpt2_folder, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text(f"{' '.join(LONG.split())}\na cat sleeps\n", encoding="utf-8")
    given = ("--corpus", texts, "--parts", "attention")
    code, said, told = cli("identifiability", gpt2_folder, *given)
    assert code == 0, told
    assert "Note: 1 sentences are cut at the model's limit" in said
    code, _, told = cli("identifiability", gpt2_folder, *given, "--long", "refuse")
    assert code == 2
    assert "takes at most" in " ".join(told.split())


def test_parts_without_a_text_are_refused(cli, gpt2_folder):
    code, _, told = cli("identifiability", gpt2_folder)
    assert code == 2
    assert "There is no text to read: second needs --corpus (or give --on TEXT" in told
    code, _, told = cli("identifiability", gpt2_folder, "--on", "a cat", "--parts", "tokens")
    assert code == 2
    assert "tokens needs --corpus" in told


def test_a_head_that_is_not_there_is_refused_and_nothing_written(cli, gpt2_folder, tmp_path):
    code, _, told = cli("identifiability", gpt2_folder, "--on", "a cat", "--at", "9.9", "-o", tmp_path / "out")
    assert code == 2
    assert "no head '9.9'" in told
    assert not (tmp_path / "out").exists()
