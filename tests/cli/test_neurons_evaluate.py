"""`pellucid neurons probe` and `evaluate`: numbers beside their controls, folders, JSON, refusals in one sentence."""

from __future__ import annotations

import json

import pytest

from pellucid.results import Result
from tests.neurons import planted


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model") / "tagger"
    planted.network().save_pretrained(place)
    planted.tokenizer().save_pretrained(place)
    return place


LINE = ["--corpus", "grammar:240:3", "--sites", "neurons.0", "--epochs", "15"]


def test_a_probe_with_its_controls_and_its_ranking(cli, folder, tmp_path):
    out = tmp_path / "probed"
    code, printed, told = cli("neurons", "probe", folder, *LINE, "--concept", "upos=NOUN", "--seeds", "2", "-o", out)
    assert code == 0, told
    said = " ".join(printed.split())
    for word in ("control task", "random model", "selectivity", "document groups", "always the most frequent class"):
        assert word in said
    assert Result.load(out / "probe").values[0, 0] > 0.95
    ranking = Result.load(out / "ranking")
    assert ranking.top(1) == [planted.names()["NOUN"]]
    assert ranking.provenance.command.startswith("pellucid neurons probe")
    assert cli("neurons", "probe", folder, *LINE, "--concept", "upos=NOUN", "-o", out)[0] == 2


def test_a_ranking_is_judged_on_other_documents(cli, folder):
    line = ["neurons", "evaluate", folder, *LINE, "--concept", "upos", "--ways", "model,anew,layers,sites", "--json"]
    code, printed, told = cli(*line)
    assert code == 0, told
    made = json.loads(printed)
    assert set(made) == {"ranking", "model", "anew", "layers", "sites"}
    top, bottom, _ = made["anew"]["value"]
    assert max(one - other for one, other in zip(top, bottom, strict=True)) > 0.1
    lost, kept, _ = made["model"]["value"]
    assert lost[-1] > kept[0] + 0.1
    prints = {name: each["provenance"]["corpus"]["fingerprint"] for name, each in made.items()}
    assert prints["ranking"] != prints["anew"] == prints["model"] == prints["layers"]


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("evaluate", ["--concept", "upos", "--ways", "magic"], "no way magic"),
        ("evaluate", ["--concept", "upos", "--method", "magic"], "magic"),
        ("probe", ["--concept", "upos", "--penalty", "l9"], "no penalty 'l9'"),
        ("probe", ["--concept", "upos=DOG"], "DOG"),
    ],
)
def test_refusals_are_one_sentence(cli, folder, command, options, said):
    code, printed, told = cli("neurons", command, folder, *LINE, *options)
    assert code == 2
    assert not printed
    assert said in told
    assert "Traceback" not in told
