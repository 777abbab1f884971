"""`pellucid identifiability`: what it prints, the folder it writes, and what it refuses."""

from __future__ import annotations

import json

import numpy as np

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
