"""Rankings of arrays and of NeuroX's files: the same numbers as by hand, nothing changed, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from pellucid.errors import PellucidError
from pellucid.neurons import array_store, gaussian, iou, neurox_store, probeless, rank
from pellucid.neurons.neurox import trained
from tests.neurons import planted

ROWS, WIDTH = 600, 12


def drawn() -> tuple[np.ndarray, list[str], list[int]]:
    """Noise, in which column 3 is high and column 7 low for `b`; sentences of five rows."""
    dice = np.random.default_rng(2)
    labels = dice.choice(["a", "b", "c"], ROWS).tolist()
    rows = dice.normal(size=(ROWS, WIDTH))
    own = np.array(labels) == "b"
    rows[own, 3] += 4
    rows[own, 7] -= 6
    return rows, labels, (np.arange(ROWS) // 5).tolist()


def test_every_ranking_takes_arrays_and_changes_nothing():
    rows, labels, sentences = drawn()
    before = rows.copy()
    methods = ["probeless", "iou", "precision", "selectivity", "probe-elastic", "gaussian", "forest"]
    made = rank(rows, np.array(labels), methods=methods, sentences=np.array(sentences), layers=2)
    assert np.array_equal(rows, before)
    for name, ranking in made.items():
        assert ranking.neurons[:7] == (*(f"resid.0:{unit}" for unit in range(6)), "resid.1:0")
        assert ranking.top(1, "b")[0] in ("resid.0:3", "resid.1:1"), name
        assert set(ranking.top(2, "b")) == {"resid.0:3", "resid.1:1"} or name == "gaussian", name
        at = ranking.place("class", "b")
        assert ranking.values[at, 3] > 0 > ranking.values[at, 7] or name == "gaussian"
        assert ranking.low is not None or name == "gaussian"
    means = [rows[np.array(labels) == name].mean(0) for name in "abc"]
    overall = abs(means[0] - means[1]) + abs(means[0] - means[2]) + abs(means[1] - means[2])
    assert made["probeless"].overall.columns["score"] == pytest.approx(overall, rel=1e-5)


def test_rows_without_sentences_have_no_interval():
    rows, labels, _ = drawn()
    made = rank(rows, labels, methods=["probeless", "probe-l2"])
    assert made["probeless"].low is None
    assert "one document group" in made["probeless"].resampled
    assert set(made["probe-l2"].top(2)) == {"resid.0:3", "resid.0:7"}


def test_the_preset_is_that_librarys_arithmetic():
    rows, labels, sentences = drawn()
    made = rank(
        rows, labels, methods=["probeless", "iou", "probe-elastic", "gaussian"], preset="neurox", sentences=sentences
    )
    own = np.array(labels) == "b"
    expected = [average_precision_score(own, rows[:, unit].astype(np.float32)) for unit in range(WIDTH)]
    at = made["iou"].place("class", "b")
    assert made["iou"].values[at] == pytest.approx(np.array(expected), abs=1e-9)
    assert made["iou"].order("b")[0] == "resid.0:3"
    assert made["iou"].order("b").index("resid.0:7") > 5, "a neuron that is low for the class comes late there"
    assert made["probe-elastic"].provenance.arguments["preset"] == "neurox"
    assert made["gaussian"].top(1) in (["resid.0:3"], ["resid.0:7"])
    assert made["gaussian"].provenance.arguments["preset"] == "neurox"


def test_the_presets_probe_moves_from_its_random_start_as_the_labels_say():
    """Ten epochs of small steps: weights stay near where they began, which is why such an order is unsure."""
    import torch

    rows, labels, _ = drawn()
    goals = torch.from_numpy(np.searchsorted(["a", "b", "c"], labels))
    weights = trained(torch.from_numpy(rows).float(), goals, 3, seed=0)
    assert np.array_equal(weights, trained(torch.from_numpy(rows).float(), goals, 3, seed=0))
    torch.manual_seed(0)
    moved = weights - torch.nn.Linear(WIDTH, 3).weight.detach().double().numpy()
    assert moved[1, 3] > 0 > moved[1, 7]
    assert np.abs(moved).max() < 0.5


def test_neurox_files_are_read_line_by_line(tmp_path):
    corpus = list(planted.corpus().take(30))
    run = [planted.model().run(each.text, ("resid.0", "resid.1")) for each in corpus]
    lines = []
    for number, (each, one) in enumerate(zip(corpus, run, strict=True)):
        layers = [one[name][0].numpy() for name in ("resid.0", "resid.1")]
        assert len(layers[0]) == len(each.words)
        features = [
            {
                "token": word,
                "layers": [{"index": at, "values": part[place].tolist()} for at, part in enumerate(layers)],
            }
            for place, word in enumerate(each.words)
        ]
        lines.append(json.dumps({"linex_index": number, "features": features}))
    (tmp_path / "acts.json").write_text("\n".join(lines) + "\n")
    (tmp_path / "words.txt").write_text("".join(" ".join(each.words) + "\n" for each in corpus))
    tags = [[tag or "X" for tag in each.label("upos")] for each in corpus]
    (tmp_path / "tags.txt").write_text("".join(" ".join(each) + "\n" for each in tags))
    store = neurox_store(tmp_path / "acts.json", tmp_path / "words.txt", tmp_path / "tags.txt", label="pos")
    assert store.keys == ("resid.0", "resid.1")
    assert store.words(["pos"])["pos"].tolist() == [tag for each in tags for tag in each]
    mine = probeless(store, concept="pos", sites="resid.1")
    own = probeless(planted.model(), planted.corpus().take(30), concept="upos", sites="resid.1", control=False)
    assert mine.values == pytest.approx(own.values, rel=1e-4, abs=1e-5)
    assert iou(store, concept="pos=NOUN", exact=True).low is not None
    tags[4].append("NOUN")
    (tmp_path / "tags.txt").write_text("".join(" ".join(each) + "\n" for each in tags))
    with pytest.raises(PellucidError, match="Line 5 has"):
        neurox_store(tmp_path / "acts.json", tmp_path / "words.txt", tmp_path / "tags.txt")
    (tmp_path / "bad.json").write_text("{}\n")
    with pytest.raises(PellucidError, match="no NeuroX activation"):
        neurox_store(tmp_path / "bad.json", tmp_path / "words.txt", tmp_path / "tags.txt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, y[:-1]), "600 rows and 599 labels"),
        (lambda x, y: (x[0], y), "a matrix of numbers"),
        (lambda x, y: (np.where(x == x[4, 2], np.nan, x), y), "Row 4 has NaN or infinity in column 2"),
        (lambda x, y: (x, ["a"] * len(y)), "nothing to tell apart"),
        (lambda x, y: (x, None), "Rows need labels"),
    ],
)
def test_bad_arrays_are_named(change, message):
    rows, labels, _ = drawn()
    with pytest.raises(PellucidError, match=message):
        rank(*change(rows, labels))


def test_what_has_no_place_is_refused():
    rows, labels, sentences = drawn()
    with pytest.raises(PellucidError, match="cannot be 5 layers"):
        array_store(rows, labels, layers=5)
    with pytest.raises(PellucidError, match="must stand together"):
        array_store(rows, labels, sentences=[place % 7 for place in range(ROWS)])
    with pytest.raises(PellucidError, match="NeuroX has no ranking by 'forest'"):
        rank(rows, labels, methods="forest", preset="neurox")
    with pytest.raises(PellucidError, match="of a store or of arrays"):
        rank(planted.model(), planted.corpus(), concept="upos", preset="neurox")
    with pytest.raises(PellucidError, match="runs the model itself"):
        rank(rows, labels, methods="ablation")
    assert gaussian(array_store(rows, labels, sentences=sentences), concept="label", count=3).picks[0] in (
        "resid.0:3",
        "resid.0:7",
    )
