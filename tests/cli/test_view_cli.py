"""`pellucid view`: files, options and bad input."""

from __future__ import annotations

import json
import re

import pytest

from pellucid.views.interactive import page
from pellucid.views.interactive.server import Server

TEXT = "the old dog sleeps"


@pytest.fixture(autouse=True)
def stand_in(tmp_path_factory, monkeypatch):
    place = tmp_path_factory.mktemp("built") / "bundle.js"
    place.write_bytes(b"export function openEmbedded() {}")
    monkeypatch.setattr(page, "BUNDLE", place)


def header(path) -> dict:
    return json.loads(re.search(r"data-header>(.*?)</script>", path.read_text(encoding="utf-8"), re.S)[1])


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        (["heads", "--layers", "0-1", "--quality", "0.9"], "heads"),
        (["model", "--generate", "3"], "model"),
        (["neurons", "--title", "Dogs"], "neurons"),
        (["text", "--neuron", "neurons.1:3", "--no-lens"], "text"),
    ],
)
def test_each_command_writes_a_page(cli, gpt2_folder, tmp_path, words, mode):
    out = tmp_path / "x.html"
    code, told, err = cli("view", words[0], gpt2_folder, TEXT, *words[1:], "-o", out)
    assert (code, err) == (0, "")
    assert f"The view is in {out}" in told
    found = header(out)
    assert found["state"]["mode"] == mode
    if mode == "heads":
        assert found["panels"][0]["blocks"][0]["layers"] == [0, 1]
        assert found["panels"][0]["blocks"][0]["quality"] == 0.9
    if mode == "neurons":
        assert found["title"] == "Dogs"
    if mode == "text":
        assert list(found["panels"][0]["text"]["tracks"]) == ["neurons.1:3", "surprise"]


def test_compare_takes_two_models(cli, gpt2_folder, bert_folder, tmp_path):
    code, _, err = cli("view", "compare", gpt2_folder, bert_folder, TEXT, "-o", tmp_path / "x.html")
    assert code == 0
    assert "Note: Heads of block 'self' are not paired" in err
    assert header(tmp_path / "x.html")["kind"] == "compare"


def test_encoder_decoders_take_a_target(cli, t5_folder, tmp_path):
    code, _, _ = cli("view", "heads", t5_folder, TEXT, "--target", "a cat", "-o", tmp_path / "x.html")
    assert code == 0
    assert [block["name"] for block in header(tmp_path / "x.html")["panels"][0]["blocks"]] == [
        "encoder",
        "decoder",
        "cross",
    ]


def test_text_from_a_file_state_and_default_name(cli, gpt2_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text("\ufeff" + TEXT, encoding="utf-8")
    code, _, err = cli("view", "heads", gpt2_folder, "--file", "story.txt", "--state", '{"layer": 2, "heads": [1]}')
    assert (code, err) == (0, "")
    found = header(tmp_path / "heads.html")
    assert found["state"] == {"mode": "heads", "layer": 2, "heads": [1]}
    assert found["panels"][0]["tokens"]["text"]["text"] == TEXT.split()


def test_serve_shows_an_address_and_writes_nothing(cli, gpt2_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "wait", interrupted)
    code, out, _ = cli("view", "model", gpt2_folder, TEXT, "--serve")
    assert code == 0
    assert re.search(r"The view is at http://127\.0\.0\.1:\d+/", out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["heads", "MODEL", TEXT, "-o", "x.txt"], "the endings are"),
        (["heads", "MODEL", TEXT, "-o", "none/x.html"], "no folder"),
        (["heads", "MODEL"], "either as an argument or with --file"),
        (["heads", "MODEL", TEXT, "--file", "x"], "either as an argument or with --file"),
        (["heads", "MODEL", "--file", "missing.txt"], "missing.txt cannot be read"),
        (["heads", "MODEL", ""], "at least one word"),
        (["heads", "MODEL", TEXT, "--layers", "0-x"], "--layers '0-x' names no layers"),
        (["heads", "MODEL", TEXT, "--layers", "7"], "layers 0 to 2"),
        (["heads", "MODEL", TEXT, "--quality", "0"], "above 0 and at most 1"),
        (["heads", "MODEL", TEXT, "--state", "{"], "--state is not JSON"),
        (["heads", "MODEL", TEXT, "--state", "[1]"], "one JSON object"),
        (["heads", "MODEL", TEXT, "--state", '{"heads": [9]}'], "numbers of heads"),
        (["text", "MODEL", TEXT, "--neuron", "neurons.1"], "names no unit"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(cli, gpt2_folder, tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)
    code, _, err = cli("view", *[gpt2_folder if word == "MODEL" else word for word in words])
    assert code == 2
    assert complaint in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_text(cli, gpt2_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_bytes(b"caf\xe9")
    code, _, err = cli("view", "heads", gpt2_folder, "--file", "story.txt")
    assert (code, err.count("\n")) == (2, 1)
    assert "byte 4 is not UTF-8" in err


@pytest.mark.parametrize("name", ["heads", "model"])
def test_effective_weights(cli, gpt2_folder, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    code, _, err = cli("view", name, gpt2_folder, TEXT, "--weights", "effective")
    assert code == 0, err
    assert "It has signs" in " ".join(err.split())
    assert "negative" in (tmp_path / f"{name}.html").read_text(encoding="utf-8")
