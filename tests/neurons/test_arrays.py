"""Rankings of arrays and of NeuroX's files: the same numbers as by hand, nothing changed, and what is refused."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.metrics import average_precision_score

from pellucid.errors import PellucidError
from pellucid.neurons import array_store, gaussian, iou, neurox_store, probeless, rank
from pellucid.neurons.concepts import Concept
from pellucid.neurons.neurox import mass_steps, trained
from pellucid.neurons.probing.material import Reading, material
from pellucid.neurons.probing.rows import ArrayRows
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
        cls = "b" if ranking.classes_apart else None
        assert ranking.top(1, cls)[0] in ("resid.0:3", "resid.1:1"), name
        assert set(ranking.top(2, cls)) == {"resid.0:3", "resid.1:1"} or name == "gaussian", name
        at = ranking.place("class", "b")
        assert ranking.values[at, 3] > 0 > ranking.values[at, 7] or name == "gaussian"
        assert ranking.low is not None or name == "gaussian"
    means = [rows[np.array(labels) == name].mean(0) for name in "abc"]
    overall = abs(means[0] - means[1]) + abs(means[0] - means[2]) + abs(means[1] - means[2])
    assert made["probeless"].overall.columns["score"] == pytest.approx(overall, rel=1e-5)


def test_tensors_and_lists_are_rows_too():
    import torch

    rows, labels, _ = drawn()
    expected = rank(rows, labels)["probeless"].values
    codes = np.searchsorted(["a", "b", "c"], labels)
    for given, tags in ((torch.from_numpy(rows).requires_grad_(), labels), (rows.tolist(), labels),
                        (torch.from_numpy(rows), torch.from_numpy(codes))):  # fmt: skip
        assert rank(given, tags)["probeless"].values == pytest.approx(expected, rel=1e-5)
    assert rank(torch.from_numpy(rows).bfloat16(), labels)["probeless"].values == pytest.approx(expected, abs=0.05)


def test_a_label_that_is_nan_is_no_label():
    rows, labels, _ = drawn()
    told = [float("nan") if place % 3 == 0 else label for place, label in enumerate(labels)]
    none = [None if place % 3 == 0 else label for place, label in enumerate(labels)]
    one, other = (rank(rows, each)["probeless"] for each in (told, none))
    assert one.classes == other.classes == ("a", "b", "c")
    assert np.array_equal(one.values, other.values)


def test_fewer_examples_than_classes():
    """Three words of four labels' worth: streamed rankings score what there is, learned ones say that there is too
    little."""
    rows = np.random.default_rng(0).normal(size=(3, 5))
    for method in ("probeless", "iou", "precision", "selectivity"):
        made = rank(rows, ["a", "b", "c"], methods=method)[method]
        assert made.values.shape == (3, 5)
        assert np.isfinite(made.values).all()
        assert np.isfinite(made.null).all()
    for method in ("probe-l2", "gaussian", "forest"):
        with pytest.raises(PellucidError, match="with at least 20 words"):
            rank(rows, ["a", "b", "c"], methods=method)


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
    means = [rows[np.array(labels) == name].mean(0) for name in "abc"]
    pairs = abs(means[0] - means[1]) + abs(means[0] - means[2]) + abs(means[1] - means[2])
    assert made["probeless"].overall.columns["score"] == pytest.approx(pairs, rel=1e-5)
    assert made["probe-elastic"].provenance.arguments["preset"] == "neurox"
    steps = mass_steps(made["probe-elastic"].values)
    assert made["probe-elastic"].overall.columns["score"] == pytest.approx(1 - steps / 101)
    assert made["gaussian"].provenance.arguments["preset"] == "neurox"


def test_the_presets_gaussian_chooses_by_information_about_all_words_to_learn_from():
    """The same choice by SciPy's densities, with every candidate fitted anew, on words that were fitted on."""
    rows, labels, sentences = drawn()
    store = array_store(rows, labels, sentences=sentences)
    found = gaussian(store, concept="label", count=3, by="information", preset="neurox")
    learned = material(store, Concept.parse("label"), Reading(), controlled=False).split.training
    assert found.provenance.arguments["held"] == learned.sum()
    kept, codes = (
        rows[learned].astype(np.float32).astype(float),
        np.searchsorted(["a", "b", "c"], np.array(labels)[learned]),
    )
    picks: list[int] = []
    for _ in range(3):
        tried = {}
        for unit in set(range(WIDTH)) - set(picks):
            logs = []
            for code in range(3):
                own = kept[codes == code]
                scatter = (own - own.mean(0)).T @ (own - own.mean(0))
                spread = (np.diag(np.diag(scatter) / len(own)) + scatter) / (len(own) + 2 * (WIDTH + 2))
                chosen = [*picks, unit]
                law = multivariate_normal(own.mean(0)[chosen], spread[np.ix_(chosen, chosen)])
                logs.append(law.logpdf(kept[:, chosen]) + np.log(len(own) / len(kept)))
            right = np.array(logs)[codes, np.arange(len(codes))] - np.logaddexp.reduce(logs, axis=0)
            tried[unit] = right.mean()
        picks.append(max(tried, key=tried.get))
    assert found.picks == [f"resid.0:{unit}" for unit in picks]


def test_the_presets_order_takes_every_class_up_to_the_same_share_of_its_weights():
    """By hand: sums are 10 and 100, so neurons that come after 5 and 3, 8 and 6 … tenths enter at these per cents."""
    weights = np.array([[5.0, -3.0, 2.0, 0.0, 0.0], [0.0, 0.0, -20.0, 80.0, 0.0]])
    # class 1: neuron 0 at once, neuron 1 after 50%, neuron 2 after 80%; class 2: neuron 3 at once, neuron 2 after 80%
    assert mass_steps(weights).tolist() == [0, 51, 81, 0, 101]
    assert mass_steps(np.array([[1.0, 2.0, 3.0]])).tolist() == [84, 51, 0]  # after 5/6, 1/2, 0 of the weight
    big_first = np.array([[0.0, 10.0, 9.9], [1.0, 0.0, 0.0]])
    assert np.argsort(mass_steps(big_first), kind="stable").tolist() == [0, 1, 2], (
        "and not by Σ|w|, which is 1, 10, 9.9"
    )


def test_the_presets_probe_moves_from_its_random_start_as_the_labels_say():
    """Ten epochs of small steps: weights stay near where they began, which is why such an order is unsure."""
    import torch

    rows, labels, _ = drawn()
    goals = np.searchsorted(["a", "b", "c"], labels)
    given, every = ArrayRows(rows), np.ones(ROWS, dtype=bool)
    weights = trained(given, goals, every, 3, seed=0)
    assert np.array_equal(weights, trained(given, goals, every, 3, seed=0))
    torch.manual_seed(0)
    moved = weights - torch.nn.Linear(WIDTH, 3).weight.detach().double().numpy()
    assert moved[1, 3] > 0 > moved[1, 7]
    assert np.abs(moved).max() < 0.5


def test_the_presets_probe_minimises_that_librarys_loss():
    """Gradients of cross-entropy + λ₁·Σ|w| + λ₂·‖w‖ and Adam's steps, both by hand, in double precision."""
    import torch

    rows, labels, _ = drawn()
    goals, wanted = np.searchsorted(["a", "b", "c"], labels), np.arange(ROWS) % 3 > 0
    torch.manual_seed(4)
    start = torch.nn.Linear(WIDTH, 3)
    w, b = (part.detach().double().numpy() for part in (start.weight, start.bias))
    both, first, second = np.column_stack([w, b]), np.zeros((3, WIDTH + 1)), np.zeros((3, WIDTH + 1))
    numbers = np.flatnonzero(wanted)
    batches = [numbers[begin : begin + 32] for begin in range(0, len(numbers), 32)] * 10
    for step, part in enumerate(batches, start=1):
        x = np.column_stack([rows[part], np.ones(len(part))])
        odds = np.exp(x @ both.T)
        slope = (odds / odds.sum(1, keepdims=True) - np.eye(3)[goals[part]]).T @ x / len(part)
        w = both[:, :-1]
        slope[:, :-1] += 1e-3 * np.sign(w) + 1e-3 * w / np.sqrt((w**2).sum())
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        both = both - 1e-3 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    found = trained(ArrayRows(rows), goals, wanted, 3, seed=4)
    assert found == pytest.approx(both[:, :-1], abs=1e-5)


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


def hdf5_files(folder) -> tuple[dict[str, np.ndarray], list]:
    """What an .hdf5 file of eleven sentences holds, [layers, words, width] each, and the files beside it."""
    dice = np.random.default_rng(1)
    held = {str(place): dice.normal(size=(2, 2 + place % 3, 4)).astype(np.float32) for place in range(11)}
    for name, kinds in (("words.txt", "abcd"), ("tags.txt", "NVNV")):
        (folder / name).write_text("".join(" ".join(kinds[: each.shape[1]]) + "\n" for each in held.values()))
    return held, [folder / name for name in ("acts.hdf5", "words.txt", "tags.txt")]


def check_hdf5(held, files) -> None:
    store = neurox_store(*files)
    assert store.keys == ("resid.0", "resid.1")
    for layer in range(2):
        rows = np.concatenate([each[layer] for each in held.values()])  # sentence 10 after 9, not after 1
        np.testing.assert_array_equal(store.layer(f"resid.{layer}").numpy(), rows)
    assert probeless(store, concept="label", sites="resid.1").classes == ("N", "V")


def test_neurox_hdf5_files_are_read_sentence_by_sentence(tmp_path):
    import h5py

    held, files = hdf5_files(tmp_path)
    with h5py.File(files[0], "w") as file:
        for name, each in held.items():
            file.create_dataset(name, data=each)
        index = json.dumps({"a b": "0"})
        file.create_dataset("sentence_to_index", (1,), dtype=h5py.special_dtype(vlen=str))[0] = index
    check_hdf5(held, files)


def test_what_an_hdf5_file_holds_is_read_in_the_order_of_its_sentences(tmp_path, monkeypatch):
    """A mapping of names stands in for the file, so that this runs without h5py too."""
    held, files = hdf5_files(tmp_path)
    shown = {**dict(sorted(held.items())), "sentence_to_index": np.array(["{}"])}
    monkeypatch.setitem(sys.modules, "h5py", SimpleNamespace(File=lambda path, mode: nullcontext(shown)))
    check_hdf5(held, files)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(PellucidError, match="needs h5py: pip install h5py"):
        neurox_store(*files)


def neurox_line(words: int, layers: int, width: int) -> str:
    values = [{"index": at, "values": [0.5] * width} for at in range(layers)]
    return json.dumps({"features": [{"token": "a", "layers": values} for _ in range(words)]})


@pytest.mark.parametrize(
    ("lines", "tags", "message"),
    [
        ([(2, 2, 3), (2, 2, 4)], "N V\nN V\n", "Line 2 has 2 layers and 8 neurons in all, and line 1 2 and 6"),
        ([(2, 2, 3), (2, 3, 2)], "N V\nN V\n", "Line 2 has 3 layers and 6 neurons in all, and line 1 2 and 6"),
        ([(2, 2, 3), (2, 2, 3)], "N V\nN V\nN V\n", "2 sentences, .*words.txt' 2 and .*tags.txt' 3; all three need"),
    ],
)
def test_neurox_files_that_do_not_belong_together_are_refused(tmp_path, lines, tags, message):
    (tmp_path / "acts.json").write_text("".join(neurox_line(*each) + "\n" for each in lines))
    (tmp_path / "words.txt").write_text("a b\nc d\n")
    (tmp_path / "tags.txt").write_text(tags)
    with pytest.raises(PellucidError, match=message):
        neurox_store(tmp_path / "acts.json", tmp_path / "words.txt", tmp_path / "tags.txt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, y[:-1]), "600 rows and 599 labels"),
        (lambda x, y: (x[0], y), "a matrix of numbers"),
        (lambda x, y: (np.where(x == x[4, 2], np.nan, x), y), "Row 4 has NaN, infinity or a number too large"),
        (lambda x, y: (np.where(x == x[5, 1], 1e300, x), y), "too large for float32 in column 1"),
        (lambda x, y: ([[1.0, 2.0], [3.0]], y), "differ in length"),
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
