"""`pellucid neurons rank` and `show`: what is printed, what is written, and what bad input says."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from pellucid import neurons
from pellucid.corpus import Corpus
from pellucid.results import Result
from tests.neurons import planted

CORPUS = ("--corpus", "grammar:60:3")


def test_rank_prints_saves_and_dumps(cli, tagger, tmp_path):
    words = ("neurons", "rank", tagger, *CORPUS, "--concept", "upos=NOUN", "--sites", "neurons.*")
    code, out, _ = cli(*words, "--method", "probeless", "--method", "iou", "-o", tmp_path / "r")
    assert code == 0
    assert planted.names()["NOUN"] in out
    assert "chance:" in out
    saved = {name: Result.load(tmp_path / "r" / name) for name in ("probeless", "iou")}
    assert saved["probeless"].top(1) == [planted.names()["NOUN"]]
    assert saved["iou"].low is not None
    assert "pellucid neurons rank" in saved["iou"].provenance.command
    code, out, _ = cli(*words, "--json", "--top", "2")
    told = json.loads(out)["probeless"]
    assert [row["neuron"] for row in told["neurons"]] == saved["probeless"].top(2)
    assert told["classes"]["NOUN"][0]["score"] > told["classes"]["NOUN"][0]["null"]


def test_rankings_that_learn_tell_their_accuracy_beside_controls(cli, tagger, tmp_path):
    words = ("neurons", "rank", tagger, *CORPUS, "--concept", "upos=NOUN", "--sites", "neurons.0", "--seeds", "2")
    methods = ("probe-l1", "forest", "gaussian")
    code, out, err = cli(*words, *(word for name in methods for word in ("--method", name)), "-o", tmp_path / "r")
    assert code == 0, err
    said = " ".join(out.split())
    assert said.count("accuracy of what ranked:") == 3
    assert said.count("best class") == 3
    told = cli(*("upos" if word == "upos=NOUN" else word for word in words), "--method", "gaussian")[1]
    assert "best class" not in told, "all classes are told apart at once"
    page = (tmp_path / "r" / "neurons.html").read_text(encoding="utf-8")
    assert page.count("Accuracy of what ranked them, on documents that it did not learn from") == 3
    for name in methods:
        told = Result.load(tmp_path / "r" / name).accuracies
        assert {"accuracy", "majority", "random model", "control task", "selectivity"} <= set(told)
    code, out, _ = cli(*words, "--method", "probe-l1", "--json")
    told = json.loads(out)["probe-l1"]["accuracy"]
    assert told["accuracy"] > told["random model"]
    assert cli(*words, "--method", "probeless")[0] == 2


def test_options_of_methods_and_a_store_as_source(cli, refused, tagger, tmp_path):
    from pellucid.collect.build import build_store

    store = build_store(planted.model(), planted.corpus().take(40), tmp_path / "kept", ("neurons.0",), dtype="float32",
                        progress=False)  # fmt: skip
    words = ("neurons", "rank", tmp_path / "kept", "--concept", "upos=NOUN", "--method", "iou", "--json")
    code, out, err = cli(*words, "--exact", "--quantile", "0.8", "--ends", "upper")
    assert code == 0, err
    wanted = neurons.iou(store, concept="upos=NOUN", exact=True, quantile=0.8, ends="upper")
    told = json.loads(out)["iou"]["neurons"]
    assert [row["neuron"] for row in told] == wanted.top(15)
    assert told[0]["score"] == pytest.approx(wanted.scores().max())
    code, out, err = cli(*words, "--threshold", "1.5")
    assert code == 0, err
    code, out, err = cli(*words, "--preset", "neurox")
    assert code == 0, err
    code, out, err = cli(*words, "--pooling", "last")
    assert (code, out) == (2, "")
    assert "was read with pooling='mean', not with 'last'" in " ".join(err.split())
    read_already = f"The store {str(tmp_path / 'kept')!r} was read already, so leave "
    refused(*words, "--long", "truncate", said=read_already + "--long out")
    refused(*words, "--engine", "processes", "--dtype", "bfloat16", said=read_already + "--dtype, --engine out")
    read = (
        "neurons",
        "rank",
        tagger,
        *CORPUS,
        "--concept",
        "upos=NOUN",
        "--sites",
        "neurons.0",
        "--no-control",
        "--json",
    )
    code, out, err = cli(*read, "--method", "probeless", "--standardise", "--method", "iou", "--exact")
    assert code == 0, err
    assert set(json.loads(out)) == {"probeless", "iou"}


def test_ablation_alone_has_no_use_for_how_a_text_is_read(cli, refused, tagger):
    words = ("neurons", "rank", tagger, *CORPUS, "--concept", "upos=NOUN", "--no-control", "--json")
    said = "ablation runs the model's own task on the text; leave --threads, --long out"
    refused(*words, "--method", "ablation", "--long", "truncate", "--threads", "1", said=said)
    code, _, err = cli(*words, "--method", "ablation", "--method", "probeless", "--long", "truncate", "--threads", "1")
    assert code == 0, err


def test_a_page_is_written_beside_the_rankings(cli, tagger, tmp_path):
    words = ("neurons", "rank", tagger, *CORPUS, "--concept", "upos", "--method", "probeless", "--method", "ablation")
    code, out, err = cli(*words, "--no-control", "-o", tmp_path / "r")
    assert code == 0, err
    assert "Careful: ablation removes MLP units unless sites are named" in err
    page = (tmp_path / "r" / "neurons.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert planted.names()["NOUN"] in page
    assert "Open this file in a browser" in out


def test_show_writes_a_page_with_every_neuron(cli, tagger, tmp_path):
    words = ("neurons", "show", tagger, *CORPUS, "--concept", "upos", "--sites", "neurons.*", "--top", "3")
    code, out, _ = cli(*words, "-o", tmp_path / "page")
    assert code == 0
    page = (tmp_path / "page" / "neurons.html").read_text(encoding="utf-8")
    first = Result.load(tmp_path / "page" / "results" / "ranking_probeless").top(3)
    assert "is one by luck: NUM (9)." in " ".join(out.split())
    for name in first:
        assert name in out
        assert f">{name}</h2>" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert (tmp_path / "page" / "results" / "neuron_reading" / "result.json").is_file()
    assert "was not asked" not in page
    code, out, _ = cli("neurons", "show", tagger, *CORPUS, "--neuron", "neurons.0:3", "--json")
    assert json.loads(out)["axes"]["neuron"] == ["neurons.0:3"]


def test_show_tells_the_classes_of_several_concepts_and_how_to_ask_for_them(cli, tagger, tmp_path):
    words = ("neurons", "show", tagger, *CORPUS, "--neuron", "neurons.0:3", "--sites", "neurons.0", "--effects", "0")
    code, _, _ = cli(*words, "-o", tmp_path / "none")
    assert code == 0
    assert "was not asked: add --concept" in (tmp_path / "none" / "neurons.html").read_text(encoding="utf-8")
    code, _, _ = cli(*words, "--concept", "upos", "--concept", "property:capital", "-o", tmp_path / "two")
    assert code == 0
    reading = Result.load(tmp_path / "two" / "results" / "neuron_reading")
    capital = Counter(word[0].isupper() for sentence in Corpus.grammar(60, seed=3) for word in sentence.words)
    told = reading.rows_of("classes", "neurons.0:3")
    assert {row["concept"] for row in told} == {"upos", "capital"}
    assert reading.provenance.arguments["concept"] == ["upos", "capital"]
    mine = [row["words"] for row in told if row["concept"] == "capital"]
    assert sorted(mine) == sorted(capital.values())
    page = (tmp_path / "two" / "neurons.html").read_text(encoding="utf-8")
    assert ">concept</th>" in page
    assert "Ranking by probeless" in page


def test_show_ranks_rows_of_whole_sentences_and_reads_words(cli, refused, tagger, tmp_path):
    line = ("neurons", "show", tagger, *CORPUS, "--sites", "neurons.0", "--effects", "0", "--top", "2")
    wide = (*line, "--concept", "sentence:sentiment", "--concept", "upos")
    code, _, err = cli(*wide, "--pooling", "sentence-mean", "-o", tmp_path / "whole")
    assert code == 0, err
    assert "All words of a sentence have the same" not in err
    ranking = Result.load(tmp_path / "whole" / "results" / "ranking_probeless")
    text = Corpus.grammar(60, seed=3)
    wanted = neurons.rank(planted.model(), text, concept="sentence:sentiment", sites="neurons.0", least=10,
                          pooling="sentence-mean", long="window", progress=False)["probeless"]  # fmt: skip
    assert ranking.values == pytest.approx(wanted.values, abs=1e-5)
    reading = Result.load(tmp_path / "whole" / "results" / "neuron_reading")
    assert reading.neurons == tuple(ranking.top(2))
    counted = {row["class"]: row["words"] for row in reading.rows_of("classes", ranking.top(1)[0])}
    assert counted["NOUN"] == sum(tag == "NOUN" for each in text for tag in each.labels["upos"])
    code, _, err = cli(*wide, "-o", tmp_path / "words")
    assert code == 0
    assert "rank whole sentences: pooling='sentence-mean'" in " ".join(err.split())
    refused(*line, "--concept", "upos", "--pooling", "sentence-mean", said="'upos' is a label of words, and --pooling")
    refused(*line, "--neuron", "neurons.0:3", "--pooling", "last", said="without --concept nothing is ranked")


def test_show_takes_the_words_that_a_class_needs(cli, tagger):
    line = ("neurons", "show", tagger, *CORPUS, "--sites", "neurons.0", "--effects", "0", "--top", "1", "--concept")
    said = " ".join(cli(*line, "upos", "--fewest", "18")[1].split())
    assert "is one by luck: ADV (15), NUM (9), PART (17)." in said
    assert "by luck" not in cli(*line, "upos", "--fewest", "2")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rank", "--concept", "upos=NOPE"), "has NOPE for 'upos'"),
        (("rank", "--concept", "upos", "--method", "guess"), "no ranking by guess; there are probeless"),
        (("rank", "--concept", "nolabel"), "No word or sentence of grammar:60:3 has the label 'nolabel'; it has coref"),
        (("rank", "--concept", "sentence:nolabel"), "No sentence of "),
        (("rank", "--concept", "pair:overlap"), "'pair:overlap' is about pairs of sentences, and "),
        (("rank", "--concept", "upos", "--pooling", "sentence-mean"), "'upos' is a label of words, and --pooling"),
        (
            ("rank", "--concept", "sentiment=positive", "--pooling", "sentence-mean"),
            "--pooling sentence-mean reads whole sentences: write sentence:sentiment=positive, or leave --pooling out",
        ),
        (("rank", "--concept", "upos", "--sites", "pattern.1"), "pellucid: pattern.1 holds attention weights, which"),
        (
            ("rank", "--concept", "property:capital", "--pooling", "sentence-mean"),
            "'property:capital' tells words apart, and --pooling sentence-mean reads whole sentences: leave --pooling",
        ),
        (("rank", "--concept", "upos=XYZ"), "has XYZ for 'upos'; its values are ADJ, ADP, ADV, AUX, CCONJ, DET, NOUN"),
        (("rank", "--concept", "property:size"), "there are length"),
        (("rank", "--concept", "upos", "--sites", "nothing.*"), "nothing"),
        (("rank", "--concept", "upos", "--quantile", "0.9"), "has no use for quantile"),
        (("rank", "--concept", "upos", "--preset", "neurox"), "no preset 'neurox' for this"),
        (("show",), "Name the neurons to show"),
        (("show", "--neuron", "neurons.0:999"), "there is no unit 999"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(refused, tagger, tmp_path, words, message):
    command, *rest = words
    refused("neurons", command, tagger, *CORPUS, *rest, "-o", tmp_path / "out", said=message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--quantile", "1.5"), "--quantile 1.5 must be at least 0 and less than 1"),
        (("--quantile", "0.5", "--threshold", "1"), "--quantile or above --threshold; give one of the two"),
        (("--replacement", "noise"), "There is no --replacement 'noise'; use zero or mean"),
        (("--count", "9", "--within", "3"), "Not --count 9 neurons can go out of --within 3; give a larger --within"),
        (("--ends", "lower"), "There are no --ends 'lower'; use both or upper"),
        (("-o", "/proc/x"), "'/proc/x' could not be written"),
        (("-o", __file__), "is a file; give the name of a folder"),
    ],
)
def test_bad_options_are_refused_before_anything_is_opened(refused, words, message):
    refused("neurons", "rank", "nowhere", *CORPUS, "--concept", "upos", "--method", "iou", *words, said=message)


def test_ablation_takes_its_options_and_ranks_language_models_too(cli, tagger, refused, tmp_path):
    from pellucid.neurons.judging.ablation import by_greedy_ablation
    from tests.tiny_models import save

    ways = ("--concept", "upos=NOUN", "--sites", "neurons.0", "--json")
    greedy = ("--method", "ablation-greedy", "--replacement", "mean", "--count", "2", "--within", "4")
    code, out, err = cli("neurons", "rank", tagger, "--corpus", "grammar:8", *ways, *greedy)
    assert code == 0, err
    expected = by_greedy_ablation(planted.model(), Corpus.grammar(8), concept="upos=NOUN", sites="neurons.0",
                                  replacement="mean", count=2, within=4)  # fmt: skip
    assert [row["neuron"] for row in json.loads(out)["ablation-greedy"]["neurons"]] == expected.top(15)
    reader = save(tmp_path / "lm", "gpt2")
    code, out, err = cli("neurons", "rank", reader, "--corpus", "grammar:8", *ways, "--method", "ablation")
    assert (code, err) == (0, "")
    told = json.loads(out)["ablation"]
    assert (told["concept"], list(told["classes"])) == ("upos=NOUN", ["NOUN"])
    assert told["neurons"][0]["score"] != 0
    refused("neurons", "rank", tagger, *CORPUS, *ways, "--method", "ablation", "--within", "4",
            said="Ranking a Model by ablation has no use for within; the options are replacement.")  # fmt: skip
    refused("neurons", "rank", tagger, *CORPUS, "--concept", "property:capital", "--method", "ablation",
            said="itself predicts, upos (ADJ, ADP, ADV, AUX, CCONJ, DET, NOUN,")  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        ("rank", "nowhere", *CORPUS, "--concept", "upos"),
        ("show", "nowhere", *CORPUS, "--neuron", "neurons.0:3"),
        ("survey", "nowhere", *CORPUS),
        ("search", "nowhere", "--with", "nowhere", *CORPUS),
        ("probe", "nowhere", *CORPUS, "--concept", "upos"),
        ("evaluate", "nowhere", *CORPUS, "--concept", "upos"),
        ("follow", "nowhere", "--neuron", "neurons.0:3"),
        ("compare", "nowhere"),
    ],
)
def test_a_full_folder_is_refused_before_anything_is_opened(refused, tmp_path, line):
    (tmp_path / "kept").write_text("")
    refused("neurons", *line, "-o", tmp_path, said="exists and is not empty")


def test_classes_of_few_words_are_left_out_and_named(cli, tagger, tmp_path):
    words = ("neurons", "rank", tagger, *CORPUS, "--concept", "upos", "--sites", "neurons.*", "--method", "selectivity")
    code, out, err = cli(*words, "-o", tmp_path / "r")
    assert code == 0, err
    assert "is one by luck: NUM (9)." in " ".join(out.split())
    assert "fewer than 10 words" not in err
    saved = Result.load(tmp_path / "r" / "selectivity")
    assert "NUM" not in saved.classes
    assert "NOUN" in saved.classes
    page = (tmp_path / "r" / "neurons.html").read_text(encoding="utf-8")
    assert "is one by luck: NUM (9)." in page
    told = json.loads(cli(*words, "--json")[1])["selectivity"]
    assert told["left out"] == {"NUM": 9}
    one = json.loads(cli("neurons", "rank", tagger, *CORPUS, "--concept", "upos=NUM", "--json")[1])["probeless"]
    assert list(one["classes"]) == ["NUM"]


def test_the_random_model_stands_beside_scores(cli, tagger, tmp_path):
    words = ("neurons", "rank", tagger, *CORPUS, "--concept", "upos=NOUN", "--sites", "neurons.*", "--method", "iou")
    code, out, err = cli(*words, "-o", tmp_path / "r")
    assert code == 0, err
    control = abs(Result.load(tmp_path / "r" / "iou").table("random model").columns["value"][0])
    said = " ".join(out.split())
    assert "neuron score chance random model low high best class" in said
    assert f"where weights are random; the best there is {control.max():.4g} (" in said
    told = json.loads(cli(*words, "--json")[1])["iou"]
    place = Result.load(tmp_path / "r" / "iou").place("neuron", told["neurons"][0]["neuron"])
    assert told["neurons"][0]["random model"] == pytest.approx(control[place])
    assert abs(told["classes"]["NOUN"][0]["random model"]) == pytest.approx(control[place])
    assert f"the best there is {control.max():.4g} (" in told["random model"]
    assert "random model" not in cli(*words, "--no-control")[1]


def test_several_classes_of_the_random_model_are_summed_as_the_method_does(tmp_path):
    found = neurons.rank(planted.model(), planted.corpus().take(30), concept="upos=NOUN,VERB,DET", sites="neurons.0",
                         methods=["probeless", "selectivity"], progress=False)  # fmt: skip
    other = {name: abs(each.table("random model").columns["value"]) for name, each in found.items()}
    assert found["probeless"].random_model == pytest.approx(other["probeless"].sum(0) / 2)
    assert found["selectivity"].random_model == pytest.approx(other["selectivity"].max(0))
    sums = abs(found["probeless"].values).sum(0) / 2
    assert sums == pytest.approx(found["probeless"].scores())


@pytest.mark.parametrize("name", ["other", "upos"])
def test_a_list_of_words_may_be_called_like_anything(cli, tagger, tmp_path, name):
    (tmp_path / f"{name}.txt").write_text("the\na\n")
    words = ("--concept", f"words:{tmp_path / name}.txt", "--sites", "neurons.0", "--no-control", "--json")
    code, out, err = cli("neurons", "rank", tagger, *CORPUS, *words)
    assert code == 0, err
    assert list(json.loads(out)["probeless"]["classes"]) == [f"words of {name}"]


def test_fewest_says_how_many_words_a_class_needs(cli, tagger, refused):
    words = ("neurons", "rank", tagger, *CORPUS, "--concept", "upos", "--sites", "neurons.0", "--json")
    told = json.loads(cli(*words, "--no-control", "--fewest", "18")[1])["probeless"]
    assert told["left out"] == {"ADV": 15, "NUM": 9, "PART": 17}
    assert "NUM" in json.loads(cli(*words, "--no-control", "--fewest", "9")[1])["probeless"]["classes"]
    made = json.loads(cli(*words, "--method", "forest", "--seeds", "1", "--fewest", "60")[1])["forest"]
    assert list(made["classes"]) == ["DET", "NOUN", "PRON", "PUNCT", "VERB"]
    words = ("neurons", "probe", tagger, *CORPUS, "--concept", "upos", "--fewest", "120")
    refused(*words, said="lower fewest (--fewest).")


def test_help_names_every_method_and_the_default(cli):
    from pellucid.cli._neuron_options import METHODS
    from pellucid.neurons import RANKINGS

    assert METHODS.replace(" or ", ", ").split(", ") == list(RANKINGS)
    for command, default in (("rank", "probeless"), ("compare", "probeless, selectivity, iou, precision")):
        said = " ".join(cli("neurons", command, "--help")[1].replace("│", " ").split())
        assert METHODS in said
        assert f"default: {default})" in said
