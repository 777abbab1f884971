"""`pellucid identifiability`: what it prints, the folder it writes, and what it refuses."""

from __future__ import annotations

import json

from pellucid.results import Result

TEXTS = (
    "the old dog runs\na cat sleeps near the keys\nthe red cabinet\nkeys of the dog are old\na cat and a dog\nthe cat\n"
)


def test_a_page_with_all_parts(cli, bert_folder, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXTS, encoding="utf-8")
    out = tmp_path / "out"
    code, said, told = cli("identifiability", bert_folder, "--corpus", texts, "-o", out, "--sentences", "3")
    assert code == 0, told
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
    assert "no part 'souls'; there are attention, tokens, mixing" in told
    assert not out.exists()
