"""`pellucid neurons compare`, `search` and `follow`: what is written and printed of a model whose answers are known."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from pellucid import neurons
from pellucid.cli.neurons_compare import _by_method
from pellucid.corpus import Corpus
from pellucid.model import Model
from pellucid.results import Result
from pellucid.written import number
from tests.neurons import planted

CORPUS = ["--corpus", "grammar:40:3"]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory):
    """Saved rankings of a text by two methods, and of half of it by one."""
    place = tmp_path_factory.mktemp("rankings")
    few = planted.corpus().take(40)
    for name, text, methods in (("all", few, ["probeless", "precision"]), ("half", few.shard(0, 2), ["precision"])):
        found = neurons.rank(planted.model(), text, concept="upos", methods=methods,
                             sites="neurons.0", control=False, progress=False)  # fmt: skip
        for method, ranking in found.items():
            ranking.save(place / f"{name}-{method}")
    return place


def test_saved_rankings_are_compared(cli, ranked, tmp_path):
    out = tmp_path / "out"
    code, printed, told = cli("neurons", "compare", ranked, "--top", "10", "-o", out)
    assert code == 0, told
    names = {"all-precision", "all-probeless", "half-precision"}
    made = {place.parent.name: Result.load(place.parent) for place in out.glob("*/result.json")}
    assert {"agreement", "vote", "precision-stability", "experts"} <= set(made)
    assert "probeless-stability" not in made  # one text alone
    assert {f"{name}-{part}" for name in names for part in ("where", "spread", "polysemy")} <= set(made)
    loaded = {name: Result.load(ranked / name) for name in sorted(names)}
    assert np.array_equal(made["agreement"].values, neurons.agreement(loaded, k=10).values)
    assert made["vote"].top(3) == neurons.vote(loaded).top(3)
    assert set(made["experts"].axes["model"]) == {"all-precision", "half-precision"}
    page = (out / "neurons.html").read_text(encoding="utf-8")
    assert page.count("<svg") == len(made)
    assert ">all-precision: its first neurons by site</h2>" in page
    assert ">precision: stability over documents</h2>" in page
    assert not [name for name in made if f">{name}</h2>" in page], "names of folders are no headings"
    lines = printed.splitlines()
    assert {"Agreement of the rankings", "A vote of all rankings", "all-precision: neurons per class"} <= set(lines)
    assert len(lines) < 350
    assert "made by" not in printed
    assert "memory_limit" not in printed
    names = [line.split()[0] for line in lines if line.strip().startswith("neurons.0:")]
    assert names == made["vote"].top(10)


@pytest.mark.parametrize(
    "given",
    [
        ("--corpus", "grammar:5"),
        ("--concept", "upos"),
        ("--method", "iou"),
        ("--sites", "resid.*"),
        ("--parts", "3"),
        ("--parts", "0"),
        ("--redraw", "5"),
        ("--fewest", "5"),
        ("--pooling", "last"),
        ("--device", "cpu"),
    ],
)
def test_saved_rankings_are_compared_as_they_are(refused, ranked, given):
    said = f"Saved rankings are compared as they are, so {given[0]} would need --model."
    refused("neurons", "compare", ranked, *given, said=said)


def test_a_single_ranking_is_looked_at(cli, ranked, tmp_path):
    code, _, told = cli("neurons", "compare", ranked / "all-precision", "-o", tmp_path / "out")
    assert code == 0, told
    assert "One ranking looked at: all-precision" in (tmp_path / "out" / "neurons.html").read_text(encoding="utf-8")


def test_methods_are_compared_on_parts_of_the_documents(cli, tagger):
    line = ["neurons", "compare", "--model", tagger, *CORPUS, "--concept", "upos", "--sites", "neurons.0"]
    code, printed, told = cli(*line, "--method", "probeless", "--method", "selectivity", "--parts", "3", "--json")
    assert code == 0, told
    made = json.loads(printed)
    assert made["probeless-stability"]["provenance"]["arguments"]["rankings"] == 3
    assert made["agreement"]["axes"]["first"] == ["probeless", "selectivity"]
    assert "probeless-stability" not in json.loads(cli(*line, "--parts", "0", "--json")[1])


def test_stability_alone_is_left_out_where_parts_have_too_little_text(cli, tagger):
    line = ["neurons", "compare", "--model", tagger, "--corpus", "grammar:50:3", "--concept", "upos=NUM", "--sites"]
    line += ["neurons.0", "--method", "probeless", "--method", "gaussian", "--fewest", "2", "--json"]
    code, printed, told = cli(*line)
    assert code == 0, told
    said = " ".join(told.split())
    assert "Left out: stability of gaussian: part 1 of 4: The class 'NUM' occurs in too few sentences" in said
    assert "Fewer --parts have more text each." in said
    made = json.loads(printed)
    assert {"agreement", "vote", "probeless-stability", "gaussian-where"} <= set(made)
    assert "gaussian-stability" not in made
    one = cli("neurons", "compare", "--model", tagger, "--corpus", "grammar:4:3", *line[6:10], "--json")
    assert one[0] == 0, one[2]
    assert "Left out: stability of probeless" in " ".join(one[2].split())


def test_rankings_of_documents_drawn_again_are_compared(cli, refused, tagger, tmp_path):
    line = ["neurons", "compare", "--model", tagger, *CORPUS, "--concept", "upos", "--sites", "neurons.0", "--parts"]
    line += ["0", "--method", "iou", "--method", "selectivity", "--method", "forest", "--top", "7", "--seed", "3"]
    code, printed, told = cli(*line, "--redraw", "3", "--fewest", "15", "-o", tmp_path / "out")
    assert code == 0, told
    said = " ".join(told.split())
    assert "Left out: documents drawn again for forest: only probeless, selectivity, iou, precision are made of" in said
    assert "iou: stability over documents drawn again" in printed
    page = (tmp_path / "out" / "neurons.html").read_text(encoding="utf-8")
    assert ">selectivity: stability over documents drawn again</h2>" in page
    text, kept = Corpus.grammar(40, seed=3), Result.load(tmp_path / "out" / "selectivity-spread").axes["class"]
    assert "NUM" not in kept
    for method in ("iou", "selectivity"):
        wanted = neurons.resampled_stability(
            Model.load(str(tagger)), text, concept=neurons.Concept.label("upos", classes=[str(each) for each in kept]),
            sites="neurons.0", method=method, counts=(5, 7, 10, 20), draws=3, seed=3,
        )  # fmt: skip
        made = Result.load(tmp_path / "out" / f"{method}-redrawn")
        assert made.axes["neurons"] == (5, 7, 10, 20)
        assert made.values == pytest.approx(wanted.values)
        assert "drawn with replacement" in made.resampled
    refused(*line, "--redraw", "1", said="--redraw 1 leaves nothing to compare; use 2 or more")


def test_fewest_says_how_many_words_a_class_needs(cli, tagger):
    line = ["neurons", "compare", "--model", tagger, *CORPUS, "--concept", "upos", "--sites", "neurons.0", "--parts"]
    line += ["0", "--method", "probeless", "--json"]
    for fewest, there in ((2, True), (15, False)):
        made = json.loads(cli(*line, "--fewest", str(fewest))[1])
        assert ("NUM" in made["probeless-spread"]["axes"]["class"]) == there


def test_rankings_of_other_neurons_have_no_agreement(cli, ranked, tmp_path):
    other = neurons.rank(planted.model(), planted.corpus().take(30), concept="upos", methods="precision",
                         sites="neurons.1", control=False, progress=False)  # fmt: skip
    other["precision"].save(tmp_path / "other")
    code, printed, told = cli("neurons", "compare", ranked / "all-precision", tmp_path / "other", "--json")
    assert code == 0
    assert "Left out: agreement: the rankings are of different neurons" in told
    assert "experts" in json.loads(printed)


def _told(ranking, concept, text, method="precision"):
    """The same ranking as if it were made for another concept, of another text, or by another method."""
    origin = ranking.provenance
    arguments = {**origin.arguments, "concept": concept, "method": method}
    return replace(
        ranking, provenance=replace(origin, arguments=arguments, corpus={**origin.corpus, "fingerprint": text})
    )


def test_rankings_by_one_method_are_kept_apart_by_concept(ranked):
    """Stability is of one method and concept, whatever order its neurons are written in."""
    made = Result.load(ranked / "all-precision")
    turned = made.in_order(made.neurons[::-1])
    found = {
        "a": _told(made, "upos", "1"), "b": _told(turned, "upos", "2"),
        "c": _told(made, "xpos", "1"), "d": _told(made, "xpos", "2"), "e": _told(made, "xpos", "3"),
        "f": _told(made, "upos", "1", "iou"), "g": _told(made, "upos", "2", "iou"),
        "h": _told(made, "upos", "1", "probeless"),
    }  # fmt: skip
    groups = _by_method(found)
    assert {name: len(each) for name, each in groups.items()} == {
        "precision-upos": 2, "precision-xpos": 3, "iou": 2,
    }  # fmt: skip
    assert groups["precision-xpos"] == [found["c"], found["d"], found["e"]]
    odd = {f"{at}": _told(made, concept, str(at % 2)) for at, concept in enumerate(("a/b", "a/b", "a b", "a b"))}
    assert list(_by_method(odd)) == ["precision-a_b", "precision-a_b-2"], "names of folders"


def test_rankings_of_one_name_are_grouped_by_their_neurons(ranked, tmp_path):
    made = Result.load(ranked / "all-precision")
    other = neurons.rank(planted.model(), planted.corpus().take(30), concept="upos", methods="precision",
                         sites="neurons.1", control=False, progress=False)["precision"]  # fmt: skip
    found = {str(at): _told(each, "upos", str(at)) for at, each in enumerate((made, made, other, other))}
    assert {name: len(each) for name, each in _by_method(found).items()} == {
        "precision-neurons.0": 2, "precision-neurons.1": 2,
    }  # fmt: skip
    origin = made.provenance
    stranger = replace(made, provenance=replace(origin, models=({"name": "other", "fingerprint": "x"},)))
    assert not _by_method({"a": _told(made, "upos", "1"), "b": _told(stranger, "upos", "2")})


def test_what_a_ranking_cannot_tell_of_a_class_is_left_out(cli, ranked, tmp_path):
    made = Result.load(ranked / "all-precision")
    together = _told(made, "upos", "1", "gaussian")
    (tmp_path / "in").mkdir()
    for name, each in (("one", made), ("other", _told(made, "upos", "2")), ("gaussian", together)):
        each.save(tmp_path / "in" / name)
    line = ["neurons", "compare", tmp_path / "in", "--class", "NOUN", "--top", "9", "--seed", "4", "--json"]
    code, printed, told = cli(*line)
    assert code == 0, told
    said = " ".join(told.split())
    assert "Left out: agreement, vote and sites of gaussian: 'gaussian' tells all" in said
    result = json.loads(printed)
    assert result["agreement"]["axes"]["first"] == ["one", "other"]
    assert "gaussian-where" not in result
    assert "one-where" in result
    assert result["agreement"]["provenance"]["seed"] == result["vote"]["provenance"]["seed"] == 4
    assert result["one-polysemy"]["provenance"]["seed"] == 4
    alone = cli(
        "neurons", "compare", tmp_path / "in" / "one", tmp_path / "in" / "gaussian", "--class", "NOUN", "--json"
    )
    assert alone[0] == 0
    assert "Left out: agreement: it takes two rankings" in " ".join(alone[2].split())


def test_a_class_that_no_ranking_has_is_refused(refused, ranked):
    refused("neurons", "compare", ranked, "--class", "DOG", said="DOG")


def test_a_class_that_no_word_has_is_refused_before_anything_is_ranked(refused, tagger, monkeypatch):
    def ranked(*_, **__):
        raise AssertionError("the text was read")

    monkeypatch.setattr(neurons, "rank", ranked)
    asked = ["--concept", "upos", "--class", "DOG"]
    refused("neurons", "compare", "--model", tagger, *CORPUS, *asked, said="its classes are ADJ")


def test_experts_of_concepts_without_a_class_in_common_are_left_out(cli, tmp_path):
    for name, concept in (("tags", "upos=NOUN"), ("length", "property:length")):
        text = planted.corpus().take(30)
        made = neurons.precision(planted.model(), text, concept=concept, sites="neurons.0", control=False)
        made.save(tmp_path / name)
    code, printed, told = cli("neurons", "compare", tmp_path / "tags", tmp_path / "length", "--json")
    assert code == 0, told
    assert "Left out: experts: The rankings have no class in common" in " ".join(told.split())
    assert "agreement" in json.loads(printed)


def test_neurons_are_searched_in_other_models(cli, tagger, tmp_path):
    other = shutil.copytree(tagger, tmp_path / "other")
    line = ["neurons", "search", tagger, "--with", other, *CORPUS, "--sites", "neurons.0"]
    code, printed, told = cli(*line, "--score", "maxcorr", "--score", "svcca", "-o", tmp_path / "out")
    assert code == 0, told
    found = Result.load(tmp_path / "out" / "maxcorr")
    alive = found.values[0] > 0
    assert found.values[0][alive] == pytest.approx(1, abs=1e-4)  # the same model again
    assert "random model" in found.tables
    assert "likes in other models (MaxCorr)" in printed
    like = found.table("matches").columns
    first = found.place("neuron", found.top(1)[0])
    assert f"other {like['other site'][first]}:{like['other unit'][first]} (" in printed  # no folders, which are long
    assert "random model: the same score where weights are random" in printed
    page = (tmp_path / "out" / "neurons.html").read_text(encoding="utf-8")
    assert "neurons.0:direction 0" in page
    assert "found in" in page


def test_neurons_are_followed_through_templates(cli, tagger, tmp_path):
    name = planted.names()["NOUN"]
    words = [word for word, tag in planted.tags_of_words().items() if tag in ("NOUN", "VERB") and word.isalpha()]
    nouns = [word for word in words if planted.tags_of_words()[word] == "NOUN"][:2]
    verbs = [word for word in words if planted.tags_of_words()[word] == "VERB"][:2]
    kinds = ["--template", f"noun: the / {'|'.join(nouns)}", "--template", f"verb: the / {'|'.join(verbs)}"]
    line = ["neurons", "follow", tagger, "--neuron", name, "--neuron", "neurons.0:0", *kinds]
    code, printed, told = cli(*line, "-o", tmp_path / "out")
    assert code == 0, told
    page = (tmp_path / "out" / "neurons.html").read_text(encoding="utf-8")
    assert page.count("mean activation at each word") == 1, "what is the same for all neurons is told once"
    found = Result.load(tmp_path / "out" / "templates")
    first, second = found.values[0]
    assert first[0] == pytest.approx(second[0])
    assert first[1] > second[1] + 0.5
    assert name in printed
    low, high = float(found.low[0, 0, 1]), float(found.high[0, 0, 1])
    assert f"{number(float(first[1]))} ({number(low)} to {number(high)})" in printed
    saved = neurons.rank(Model.load(str(tagger)), planted.corpus().take(20), concept="upos=NOUN", sites="neurons.0",
                         control=False, progress=False)["probeless"]  # fmt: skip
    saved.save(tmp_path / "ranked")
    line = ["neurons", "follow", tagger, "--ranking", tmp_path / "ranked", "--top", "2", "--stimuli", "negation"]
    code, printed, told = cli(*line, "--json")
    assert code == 0, told
    assert json.loads(printed)["negation"]["axes"]["measure"] == saved.top(2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["compare"], "Give folders of saved rankings, or --model"),
        (["compare", "--model", "x"], "needs --corpus and --concept"),
        (["compare", "nothing"], "no saved ranking in 'nothing'"),
        (["search", "MODEL", "--with", "MODEL", *CORPUS, "--score", "pwcca"], "no search by pwcca; there are maxcorr"),
        (["follow", "MODEL"], "Name the neurons to follow"),
        (
            ["follow", "MODEL", "--neuron", "neurons.0:3", "--stimuli", "colour"],
            "no stimuli 'colour'; there are number",
        ),
        (["follow", "MODEL", "--neuron", "neurons.0:999"], "there is no neuron 999"),
        (["follow", "MODEL", "--neuron", "neurons.0:3", "--template", "no kind"], "'no kind' is no new kind"),
    ],
)
def test_refusals_are_one_sentence(refused, tagger, line, said):
    refused("neurons", *(tagger if word == "MODEL" else word for word in line), said=said)


def test_one_ranking_of_this_very_model_is_followed(refused, tagger, ranked, tmp_path):
    line = ["neurons", "follow", tagger, "--stimuli", "number", "--ranking"]
    refused(*line, ranked, said="holds 3 rankings, and one is followed: give the folder of all-precision, all-prob")
    made = Result.load(ranked / "all-precision")
    other = replace(made.provenance, models=({"name": "another", "fingerprint": "x"},))
    replace(made, provenance=other).save(tmp_path / "other")
    refused(*line, tmp_path / "other", said="The ranking was made with 'another', and ")


def test_several_sites_are_searched_if_they_are_equally_wide(cli, refused, tagger):
    line = ["neurons", "search", tagger, "--with", tagger, *CORPUS, "--no-control", "--json", "--sites"]
    code, printed, told = cli(*line, "neurons.0,neurons.1")
    assert code == 0, told
    assert json.loads(printed)["maxcorr"]["axes"]["neuron"][64] == "neurons.1:0"
    refused(*line, "resid.*,neurons.1", said="have equally many neurons, and resid.0 has ")
