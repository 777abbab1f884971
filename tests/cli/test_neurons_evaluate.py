"""`pellucid neurons probe` and `evaluate`: numbers beside their controls, folders, JSON, refusals in one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pellucid import neurons
from pellucid.corpus import Corpus
from pellucid.errors import ModelError
from pellucid.model import Model
from pellucid.results import Result
from pellucid.written import number
from tests.neurons import planted

LINE = ["--corpus", "grammar:240:3", "--sites", "neurons.0", "--epochs", "15"]


def test_a_probe_with_its_controls_and_its_ranking(cli, tagger, tmp_path):
    out = tmp_path / "probed"
    code, printed, told = cli("neurons", "probe", tagger, *LINE, "--concept", "upos=NOUN", "--seeds", "2", "-o", out)
    assert code == 0, told
    said = " ".join(printed.split())
    for word in ("control task", "random model", "selectivity", "document groups", "always the most frequent class"):
        assert word in said
    found = Result.load(out / "probe")
    assert found.values[0, 0] > 0.95
    low, high = (float(part[0, 0]) for part in (found.low, found.high))
    row = next(line for line in printed.splitlines() if line.strip().startswith("all classes"))
    assert f"{number(float(found.values[0, 0]))} ({number(low)} to {number(high)})" in row
    assert "made by" not in printed
    assert " rows" not in printed
    ranked = Result.load(out / "ranking").top(10)
    assert [line.split()[0] for line in printed.splitlines() if line.strip().startswith("neurons.0:")] == ranked
    ranking = Result.load(out / "ranking")
    assert ranking.top(1) == [planted.names()["NOUN"]]
    assert ranking.provenance.command.startswith("pellucid neurons probe")
    assert cli("neurons", "probe", tagger, *LINE, "--concept", "upos=NOUN", "-o", out)[0] == 2


def test_a_ranking_is_judged_on_other_documents(cli, tagger):
    line = ["neurons", "evaluate", tagger, *LINE, "--concept", "upos", "--ways", "model,anew,layers,sites"]
    code, printed, told = cli(*line, "--modelled", "0", "--seeds", "2", "--json")
    assert code == 0, told
    made = json.loads(printed)
    assert set(made) == {"ranking", "model", "anew", "layers", "sites"}
    top, bottom, _ = made["anew"]["value"]
    assert max(one - other for one, other in zip(top, bottom, strict=True)) > 0.1
    lost, kept, _ = made["model"]["value"]
    assert lost[-1] > kept[0] + 0.1
    prints = {name: each["provenance"]["corpus"]["fingerprint"] for name, each in made.items()}
    assert prints["ranking"] != prints["anew"] == prints["model"] == prints["layers"]
    assert made["anew"]["provenance"]["arguments"]["seeds"] == made["layers"]["provenance"]["arguments"]["seeds"] == 2


def test_a_single_document_cannot_be_halved(refused, tagger, tmp_path):
    line = ["neurons", "evaluate", tagger, "--corpus", "grammar:4", "--concept", "upos", "-o", tmp_path / "out"]
    refused(*line, said="has a single document")
    assert not (tmp_path / "out").exists()


def test_several_methods_are_judged_as_asked(cli, tagger, tmp_path):
    few = [
        "--corpus",
        "grammar:90:3",
        "--sites",
        "neurons.0",
        "--epochs",
        "4",
        "--concept",
        "upos",
        "--draws",
        "1",
        "--seeds",
        "1",
    ]
    asked = ["--method", "probeless", "--method", "selectivity", "--count", "3", "--count", "9", "--class", "NOUN"]
    line = ["neurons", "evaluate", tagger, *few, *asked, "--replacement", "mean", "--modelled", "8", "--seed", "2"]
    code, _, told = cli(*line, "-o", tmp_path / "out")
    assert code == 0, told
    made = {place.parent.name: Result.load(place.parent) for place in (tmp_path / "out").glob("*/result.json")}
    parts = {f"{method}-{part}" for method in ("probeless", "selectivity")
             for part in ("ranking", "model", "probe", "anew", "sites")}  # fmt: skip
    assert set(made) == {*parts, "agreement"}  # the model has a task: it is judged in it without being asked
    assert made["agreement"].provenance.seed == 2
    for part in ("model", "probe", "anew"):
        assert made[f"probeless-{part}"].axes["neurons"] == (3, 9)
        assert made[f"probeless-{part}"].provenance.arguments["class"] == "NOUN"
        assert made[f"probeless-{part}"].provenance.arguments["draws"] == 1
    for part in ("probe", "anew"):
        assert "random model" in made[f"probeless-{part}"].table("controls").axes["measure"]
        assert len(made[f"probeless-{part}"].provenance.models) == 2
    assert "(mean)" in made["probeless-model"].done
    assert made["probeless-model"].provenance.corpus["sentences"] == 8
    page = (tmp_path / "out" / "neurons.html").read_text(encoding="utf-8")
    assert page.count("<svg") == len(made)
    assert ">selectivity: its neurons removed in the model</h2>" in page
    assert not [name for name in made if f">{name}</h2>" in page], "names of folders are no headings"


def test_answers_are_held_against_explained_neurons(cli, refused, tagger, tmp_path):
    line = ["neurons", "evaluate", tagger, *LINE, "--concept", "upos", "--method", "iou", "--ways", "explained"]
    code, printed, told = cli(*line, "--modelled", "40", "--seed", "2", "-o", tmp_path / "out")
    assert code == 0, told
    made = {place.parent.name: Result.load(place.parent) for place in (tmp_path / "out").glob("*/result.json")}
    assert set(made) == {"ranking", "explained"}
    text = Corpus.grammar(240, seed=3).shard(1, 2).take(40)
    wanted = neurons.explained_accuracy(made["ranking"], planted.model(), text, seed=2)
    assert np.array_equal(made["explained"].values, wanted.values)
    assert made["explained"].provenance.corpus["sentences"] == 40
    assert number(float(wanted.values[0])) in printed
    page = (tmp_path / "out" / "neurons.html").read_text(encoding="utf-8")
    assert ">Answers where explained neurons fire</h2>" in page
    told = json.loads(cli(*line, "--modelled", "40", "--seed", "2", "--json")[1])["explained"]
    assert told["value"] == pytest.approx(wanted.values.tolist())
    bare = tmp_path / "bare"
    planted.network().transformer.save_pretrained(bare)
    planted.tokenizer().save_pretrained(bare)
    refused("neurons", "evaluate", bare, *line[3:], said="task")


def test_a_model_without_a_task_is_judged_by_probes_alone(cli, tmp_path):
    bare = tmp_path / "bare"
    planted.network().transformer.save_pretrained(bare)
    planted.tokenizer().save_pretrained(bare)
    few = ["--corpus", "grammar:90:3", "--sites", "neurons.0", "--epochs", "4"]
    line = ["neurons", "evaluate", bare, *few, "--concept", "upos=NOUN", "--count", "3", "--draws", "1", "--seeds", "1"]
    code, printed, told = cli(*line, "--json")
    assert code == 0, told
    assert "not judged in the model" in told
    assert set(json.loads(printed)) == {"ranking", "probe", "anew", "sites"}


def test_a_task_that_was_asked_for_is_looked_for_before_anything_is_read(refused, tagger, tmp_path, monkeypatch):
    bare = tmp_path / "bare"
    planted.network().transformer.save_pretrained(bare)
    planted.tokenizer().save_pretrained(bare)
    monkeypatch.setattr(neurons, "rank", None)
    refused("neurons", "evaluate", bare, *LINE, "--concept", "upos=NOUN", "--ways", "model", said="task")
    refused("neurons", "evaluate", tagger, *LINE, "--concept", "upos", "--replacement", "noise", said="noise")


def one_sided(path, half):
    """Documents whose adjectives are called X in one half of them: 0 is ranked, 1 judges."""
    lines, seen = [], dict[str, int]()
    for sentence in Corpus.grammar(160, seed=3):
        if sentence.document not in seen:
            lines.append(f"# newdoc id = {sentence.document}")
        own = seen.setdefault(sentence.document, len(seen)) % 2 == half
        tags = ["X" if own and tag == "ADJ" else str(tag) for tag in sentence.labels["upos"]]
        lines.append(f"# text = {sentence.text}")
        for place, (word, tag) in enumerate(zip(sentence.words, tags, strict=True), 1):
            lines.append("\t".join([str(place), word, "_", tag, *["_"] * 6]))
        lines.append("")
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


@pytest.mark.parametrize("half", [0, 1])
def test_a_class_that_one_half_lacks_is_refused_before_anything_is_ranked(refused, tagger, tmp_path, monkeypatch, half):
    def ranked(*_, **__):
        raise AssertionError("the text was read")

    monkeypatch.setattr(neurons, "rank", ranked)
    text = one_sided(tmp_path / "text.conllu", half)
    count = text.read_text(encoding="utf-8").count("\tX\t")
    words = (count, 0) if half == 0 else (0, count)
    said = "only: {} words in the half that is ranked, {} in the half that judges; both need some".format(*words)
    line = ["neurons", "evaluate", tagger, "--corpus", text, "--sites", "neurons.0", "--concept"]
    refused(*line, "upos=X", said=f"'upos=X' has 'X' in one half of the documents of text.conllu {said}")
    more = "Give a text with 'X' in more documents, or ask for another class; both halves have NOUN."
    refused(*line, "upos=NOUN,X", said=f"{said}. {more}")
    refused(*line, "upos", "--class", "X", said="'upos' has 'X' in one half")


def test_a_list_of_words_that_one_half_lacks_is_refused(refused, tagger, tmp_path):
    text = one_sided(tmp_path / "text.conllu", 0)
    text.write_text(text.read_text(encoding="utf-8").replace(next(iter(Corpus.grammar(1, seed=3))).words[0], "Zed", 2))
    (tmp_path / "rare.txt").write_text("zed")
    line = ["--corpus", text, "--sites", "neurons.0", "--concept", f"words:{tmp_path / 'rare.txt'}"]
    refused("neurons", "evaluate", tagger, *line, said="'rare' has 'rare' in one half of the documents")


@pytest.mark.parametrize("half", [0, 1])
def test_classes_that_one_half_lacks_are_told_before_and_once(cli, tagger, tmp_path, half):
    text = one_sided(tmp_path / "text.conllu", half)
    line = ["neurons", "evaluate", tagger, "--corpus", text, "--sites", "neurons.0", "--concept", "upos", "--epochs"]
    line += ["2", "--seeds", "1", "--draws", "1", "--count", "3", "--ways", "anew,probe,sites", "--json"]
    code, _, told = cli(*line)
    assert code == 0, told
    said = " ".join(told.split())
    assert f"only the half that {('is ranked', 'judges')[half]} has X (" in said
    assert f"only the half that {('judges', 'is ranked')[half]} has ADJ (" in said
    assert "do not have the same classes" not in said
    assert said.count("Careful:") == 1


def test_nothing_is_left_where_saving_fails(cli, tagger, tmp_path, monkeypatch):
    def full(self, *_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(neurons.RankingCurves, "save", full)
    line = ["neurons", "evaluate", tagger, *LINE, "--concept", "upos=NOUN", "--ways", "sites,probe", "--count", "3"]
    line += ["--seeds", "1"]
    assert cli(*line, "-o", tmp_path / "out")[0] != 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("evaluate", ["--concept", "upos", "--ways", "magic"], "no way magic"),
        ("evaluate", ["--concept", "upos", "--method", "magic"], "magic"),
        ("evaluate", ["--concept", "upos", "--class", "DOG"], "DOG"),
        ("evaluate", ["--concept", "upos", "--count", "999"], "999"),
        ("probe", ["--concept", "upos", "--penalty", "l9"], "no penalty 'l9'"),
        ("probe", ["--concept", "upos=DOG"], "DOG"),
    ],
)
def test_refusals_are_one_sentence(refused, tagger, command, options, said):
    refused("neurons", command, tagger, *LINE, *options, said=said)


@pytest.mark.parametrize("options", [["--class", "DOG"], ["--count", "999"]])
def test_wrong_classes_and_numbers_are_refused_before_anything_is_ranked(refused, tagger, monkeypatch, options):
    def ranked(*_, **__):
        raise AssertionError("the text was read")

    monkeypatch.setattr(neurons, "rank", ranked)
    for ways in (["--ways", "probe"], ["--ways", "model"], []):
        refused("neurons", "evaluate", tagger, *LINE, "--concept", "upos", *options, *ways, said=options[1])


# -- of a store --------------------------------------------------------------------------------------------------------

TEXT = ["--corpus", "grammar:60:3"]
FEW = ["--concept", "upos=NOUN", "--seeds", "1", "--json"]


@pytest.fixture
def stores(cli, tagger, tmp_path):
    """Stores of the tagger: `both` with the randomly initialised model, `one` without."""
    line = ["store", "build", tagger, *TEXT, "--sites", "neurons.0", "--keep", "float32"]
    for name, more in (("both", ["--control"]), ("one", [])):
        code, _, told = cli(*line, *more, "-o", tmp_path / name)
        assert code == 0, told
    return tmp_path


def test_a_store_is_probed_and_ranked_as_the_model_is(cli, tagger, stores):
    def numbers(*words: object) -> dict[str, dict]:
        code, printed, told = cli("neurons", *words)
        assert code == 0, told
        made = json.loads(printed)
        for each in made.values():
            each.pop("provenance", None)
        return made

    probing = [*FEW, "--epochs", "8"]
    of_model = numbers("probe", tagger, *TEXT, "--sites", "neurons.0", *probing)
    assert numbers("probe", stores / "both", *probing) == of_model
    assert numbers("probe", stores / "both", *probing, "--memory", "0.001")["probe"].keys() == of_model["probe"].keys()
    ranking = [*FEW, *(word for name in ("probe-l1", "gaussian", "forest") for word in ("--method", name))]
    of_model = numbers("rank", tagger, *TEXT, "--sites", "neurons.0", *ranking)
    assert numbers("rank", stores / "both", *ranking, "--sites", "neurons.0", "--memory", "0.1") == of_model


def test_the_page_of_a_store_names_its_text(cli, stores):
    code, _, told = cli(
        "neurons", "probe", stores / "both", "--concept", "upos=NOUN", "--epochs", "2", "-o", stores / "p"
    )
    assert code == 0, told
    assert "from the neurons over grammar:60:3." in (stores / "p" / "neurons.html").read_text(encoding="utf-8")


def test_what_is_refused_of_a_store(refused, stores, tagger):
    both, one, out = stores / "both", stores / "one", ["-o", stores / "out"]
    asked = ["--concept", "upos=NOUN", *out]
    advice = (
        f"'{one}' holds {tagger} alone; build one that has both: pellucid store build {tagger} --corpus FILE --control"
    )
    for words in (
        ["probe", one],
        *(["rank", one, "--method", name] for name in ("probe-elastic", "gaussian", "forest")),
    ):
        refused("neurons", *words, *asked, said=advice)
    refused("neurons", "rank", one, *asked, "--method", "gaussian", "--preset", "neurox", said=advice)
    for command in ("rank", "probe"):
        refused("neurons", command, both, *asked, *TEXT, said="has its text already; leave --corpus out.")
        given = ["--take", "3", "--dtype", "float16"]
        refused("neurons", command, both, *asked, *given, said="was read already, so leave --take, --dtype out.")
        refused(
            "neurons", command, stores / "none", *asked, said="is no store, and a model needs a text to read: name one"
        )
    refused("neurons", "probe", both, *asked, "--device", "nowhere", said="The device 'nowhere' cannot be used here")
    refused("neurons", "rank", both, *asked, "--memory", "1", said="has no use for memory")
    assert not (stores / "out").exists()


def test_a_store_is_no_model(refused, stores, tagger):
    said = (
        f"'{stores / 'both'}' is a store, which keeps activations of {tagger}, and this command runs the model: give "
    )
    for words in (
        ["neurons", "evaluate", stores / "both", *TEXT, "--concept", "upos"],
        ["neurons", "show", stores / "both", *TEXT, "--neuron", "neurons.0:3"],
        ["neurons", "survey", stores / "both", *TEXT],
        ["neurons", "search", tagger, "--with", stores / "both", *TEXT],
        ["sites", stores / "both"],
        ["store", "build", stores / "both", *TEXT, "-o", stores / "out"],
    ):
        refused(*words, said=said)
    with pytest.raises(ModelError, match=r"It is a store of activations: Store.open reads it\.$"):
        Model.load(stores / "one")
