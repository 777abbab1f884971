"""Dynamics: what is kept of every epoch, and comparisons that need neither the network nor its activations."""

from __future__ import annotations

import gc
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from pellucid.collect.moments import Moments
from pellucid.collect.sample import TokenSample
from pellucid.collect.state import State
from pellucid.collect.sweep import sweep
from pellucid.corpus import Corpus
from pellucid.errors import TrainError
from pellucid.model import Model
from pellucid.similarity import grid
from pellucid.train import dynamics_looks
from pellucid.train.dynamics import Dynamics, Watcher
from pellucid.train.dynamics_looks import MOMENTS, PATTERNS, SAMPLE, sample_hash
from pellucid.train.settings import Settings
from tests.collect.sweeping import stories, subword_tokenizer
from tests.tiny_models import network, word_tokenizer

EPOCHS, SAMPLED = 4, 120
FILES = (MOMENTS, PATTERNS, SAMPLE)


def changed(net, seed: int, size: float = 0.05) -> None:
    """Changes every weight in place, as an epoch of training does."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(size * torch.randn(weight.shape, generator=generator))


def watched(folder: Path, *, seed: int = 0, epochs: int = EPOCHS, family: str = "gpt2", corpus=None, **options):
    """A run of hand-made epochs, and the network at each of them."""
    net = network(family, "sdpa", seed=seed).train()
    tokenizer = subword_tokenizer(closing=family != "gpt2")
    settings = options.pop("settings", Settings("lm"))
    watcher = Watcher(net, tokenizer, corpus or stories(60), folder / "dynamics", settings, sample=SAMPLED, **options)
    kept = []
    for epoch in range(epochs):
        watcher.look(epoch)
        kept.append({name: value.clone() for name, value in net.state_dict().items()})
        changed(net, 100 * seed + epoch)
    return watcher, kept


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs over the same text, with the weights of the first at each epoch."""
    place = tmp_path_factory.mktemp("runs")
    one, kept = watched(place / "one")
    watched(place / "two", seed=1, family="bert")
    return place, one, kept


def at_epoch(kept, epoch: int) -> Model:
    net = network("gpt2", "sdpa")
    net.load_state_dict(kept[epoch])
    return Model.load(net, tokenizer=subword_tokenizer(closing=False))


def rows_at(kept, epoch: int, site: str, ordinal: np.ndarray) -> np.ndarray:
    """Rows of sampled words, from a sweep that keeps every word."""
    found = sweep(at_epoch(kept, epoch), stories(60), TokenSample(site, size=2000), progress=False)
    view = found[TokenSample]
    assert np.array_equal(view.ordinal, np.arange(view.n))
    return view.rows(site)[ordinal]


def debiased_cka(x: np.ndarray, y: np.ndarray) -> float:
    """Song et al.'s unbiased HSIC from whole kernels, in float64."""
    n = len(x)

    def kernel(rows: np.ndarray) -> np.ndarray:
        gram = rows.astype(np.float64) @ rows.astype(np.float64).T
        np.fill_diagonal(gram, 0)
        return gram

    def hsic(k: np.ndarray, l: np.ndarray) -> float:  # noqa: E741
        ones = np.ones(n)
        return np.sum(k * l) + k.sum() * l.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (ones @ k @ l @ ones)

    k, l = kernel(x), kernel(y)  # noqa: E741
    return float(hsic(k, l) / np.sqrt(hsic(k, k) * hsic(l, l)))


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_a_kill_while_a_look_is_replaced_leaves_no_epoch_of_another_name(tmp_path, monkeypatch):
    watcher, _ = watched(tmp_path, epochs=2)
    gone, real = watcher.looks.place(1), dynamics_looks.shutil.rmtree

    def dying(path, **options):
        real(path, **options)
        if path == gone:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dynamics_looks.shutil, "rmtree", dying)
        with pytest.raises(KeyboardInterrupt):
            watcher.look(1)
    assert Dynamics.open(tmp_path).epochs == (0,)
    watcher.look(1)
    assert Dynamics.open(tmp_path).epochs == (0, 1)
    assert sorted(place.name for place in watcher.folder.iterdir() if place.is_dir()) == ["epoch-0000", "epoch-0001"]


def test_the_sampled_rows_are_those_of_the_network(runs):
    place, _, kept = runs
    dynamics = Dynamics.open(place / "one")
    assert dynamics.epochs == (0, 1, 2, 3)
    assert dynamics.words == SAMPLED
    for epoch in (0, 2):
        look, view = dynamics.looks.sample(epoch)
        assert look.model.fingerprint == at_epoch(kept, epoch).fingerprint
        assert look.folder.joinpath(SAMPLE).stat().st_size < SAMPLED * (2 * 4 * 32 + 5 * 8) * 1.2 + 4096
        for site in dynamics.sites:
            mine = rows_at(kept, epoch, site, view.ordinal)
            assert np.array_equal(view.rows(site), mine.astype(np.float16).astype(np.float32))


def test_the_moments_are_those_of_a_sweep(runs):
    place, watcher, kept = runs
    dynamics = Dynamics.open(place / "one")
    for epoch in (0, 3):
        collectors = [Moments("resid.*"), TokenSample("resid.*", size=SAMPLED, dtype="float16")]
        swept = sweep(at_epoch(kept, epoch), stories(60), collectors, long="window", progress=False)
        mine, theirs = dynamics.grid(epoch, ["cka", "svcca", "procrustes"]), grid(swept, ["cka", "svcca", "procrustes"])
        # A look is one shard, so that its float32 products are summed in another order than a sweep's.
        np.testing.assert_allclose(mine.values, theirs.values, rtol=0, atol=2e-7)
        np.testing.assert_allclose(mine.null, theirs.null, rtol=0, atol=2e-7)
        mine, theirs = dynamics.grid(epoch), grid(swept)
        np.testing.assert_allclose(mine.low, theirs.low, rtol=0, atol=2e-7)
        assert mine.axes == theirs.axes
        assert dynamics.found(epoch).words == swept.words == watcher.pass_.words


def test_looks_at_the_same_network_have_the_same_bytes(runs, tmp_path):
    _, _, kept = runs
    watcher, _ = watched(tmp_path / "still", epochs=0)
    watcher.model.hf.load_state_dict(kept[2])
    looks = [watcher.look(epoch) for epoch in (1, 2)]
    for name in FILES:
        assert looks[0].folder.joinpath(name).read_bytes() == looks[1].folder.joinpath(name).read_bytes(), name
    changed(watcher.model.hf, 7)
    assert watcher.look(3).folder.joinpath(SAMPLE).read_bytes() != looks[0].folder.joinpath(SAMPLE).read_bytes()


def test_a_look_at_an_epoch_again_replaces_it(tmp_path):
    watcher, _ = watched(tmp_path / "run", epochs=2)
    before = {name: (tmp_path / "run/dynamics/epoch-0001" / name).read_bytes() for name in FILES}
    fresh = watcher.look(1)  # the weights were changed after the second look
    assert any(fresh.folder.joinpath(name).read_bytes() != content for name, content in before.items())
    times = {name: fresh.folder.joinpath(name).stat().st_mtime_ns for name in FILES}
    assert watcher.look(1).model == fresh.model
    assert {name: fresh.folder.joinpath(name).stat().st_mtime_ns for name in FILES} == times, "written for nothing"
    assert sorted(item.name for item in (tmp_path / "run/dynamics").iterdir()) == [
        "dynamics.json", "epoch-0000", "epoch-0001", "sentences.jsonl",
    ]  # fmt: skip


def test_watching_goes_on_after_a_kill(tmp_path):
    watcher, kept = watched(tmp_path / "run", epochs=2)
    (tmp_path / "run/dynamics/epoch-0002.new").mkdir()  # what a kill in the middle of a look leaves
    (tmp_path / "run/dynamics/epoch-0002.new" / SAMPLE).write_bytes(b"half")
    net = network("gpt2", "sdpa")
    net.load_state_dict(watcher.model.hf.state_dict())
    again = Watcher(
        net, subword_tokenizer(closing=False), stories(60), tmp_path / "run/dynamics", Settings("lm"), sample=SAMPLED
    )
    assert Dynamics.open(tmp_path / "run").epochs == (0, 1)
    again.look(2)
    assert Dynamics.open(tmp_path / "run").epochs == (0, 1, 2)
    whole, _ = watched(tmp_path / "whole", epochs=3)
    assert (tmp_path / "run/dynamics/epoch-0002" / SAMPLE).read_bytes() == (
        tmp_path / "whole/dynamics/epoch-0002" / SAMPLE
    ).read_bytes()
    assert len(kept) == 2
    assert whole.dynamics.epochs == (0, 1, 2)


def test_the_network_goes_on_learning_as_if_nobody_looked(tmp_path):
    torch.manual_seed(3)
    net = network("gpt2", "sdpa").train()
    frozen = net.transformer.h[0].requires_grad_(requires_grad=False)
    state, modes = torch.random.get_rng_state(), [part.training for part in net.modules()]
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    watcher = Watcher(
        net, subword_tokenizer(closing=False), stories(40), tmp_path / "run/dynamics", Settings("lm"), sample=50
    )
    watcher.look(0)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [part.training for part in net.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    assert not any(weight.requires_grad for weight in frozen.parameters())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())


def test_every_epoch_and_every_run_samples_the_same_words(runs):
    place, *_ = runs
    one, two = (Dynamics.open(place / name).looks for name in ("one", "two"))
    hashes = {look.sample_hash for looks in (one, two) for look in map(looks.look, looks.epochs)}
    assert len(hashes) == 1
    assert one.about["sample"] == {"hash": hashes.pop(), "words": SAMPLED}
    assert one.about["text"] == two.about["text"]
    assert np.array_equal(one.sample(0)[1].ordinal, two.sample(3)[1].ordinal)


def test_the_hash_of_a_sample_names_its_words(runs):
    place, *_ = runs
    state = Dynamics.open(place / "one").found(0).states["1-token-sample"]
    turned = State({name: array[::-1] for name, array in state.arrays.items()}, state.facts)
    assert sample_hash(turned) == sample_hash(state), "the order of a state does not matter"
    for name in ("ordinal", "position", "hash", "sentence"):
        other = State({**state.arrays, name: state.arrays[name] + np.ones(1, state.arrays[name].dtype)}, state.facts)
        assert sample_hash(other) != sample_hash(state), name


def test_attention_on_one_sentence_is_kept(runs):
    place, _, kept = runs
    dynamics = Dynamics.open(place / "one")
    text = dynamics.looks.about["sentence"]["text"]
    words = next(each for each in stories(60) if len(each.spans) >= 8).words
    assert text.split()[0] == words[0]
    run = at_epoch(kept, 1).run(text, "pattern.*")
    for site, weights in dynamics.patterns(1).items():
        assert weights.shape[1:] == (len(dynamics.tokens),) * 2
        np.testing.assert_allclose(weights, run[site][0].numpy(), atol=1e-3)
    assert list(dynamics.patterns(1)) == ["pattern.0", "pattern.1", "pattern.2"]


def test_of_a_wide_network_the_sample_alone_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("pellucid.train.dynamics_watching.MOST_MOMENTS", 1000)
    _, kept = watched(tmp_path / "wide", epochs=2)
    dynamics = Dynamics.open(tmp_path / "wide")
    assert list(dynamics.found(1).collectors) == ["0-token-sample"]
    view = dynamics.looks.sample(1)[1]
    rows = [view.rows(site) for site in dynamics.sites]
    expected = [[debiased_cka(one, other) for other in rows] for one in rows]
    np.testing.assert_allclose(dynamics.grid(1).values[0], expected, atol=1e-9)
    assert len(kept) == 2


def test_memory_does_not_grow_with_epochs(tmp_path):
    watcher, _ = watched(tmp_path / "run", epochs=3)
    gc.collect()
    tracemalloc.start()
    held: list[int] = []
    for epoch in range(3, 9):
        watcher.look(epoch)
        changed(watcher.model.hf, epoch)
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
    dynamics, most = Dynamics.open(tmp_path / "run"), list[int]()
    for epochs in ([0, 7, 8], [0, 7, 8], None):  # the first fills what is kept for good, such as caches
        gc.collect()
        tracemalloc.reset_peak()
        dynamics.convergence(epochs=epochs, interval=False)
        most.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    state = (tmp_path / "run/dynamics/epoch-0002" / SAMPLE).stat().st_size
    assert held[-1] - held[0] < 2 * state, "five looks leave something behind"
    assert most[2] < 1.5 * most[1], "nine epochs take more than three"


# -- comparisons -----------------------------------------------------------------------------------------------------


def test_an_epoch_with_itself_is_exactly_one(runs):
    place, *_ = runs
    dynamics = Dynamics.open(place / "one")
    assert set(dynamics.alike(2, 2).values()) == {1.0}
    assert (np.diagonal(dynamics.compare(2, 2).values[0]) == 1).all()
    assert (np.diagonal(dynamics.grid(2).values[0]) == 1).all()
    assert (dynamics.convergence().values[..., -1] == 1).all()
    assert (dynamics.between(dynamics).values == 1).all()


def test_scores_of_samples_are_those_of_the_stored_rows(runs):
    place, *_ = runs
    one, two = (Dynamics.open(place / name) for name in ("one", "two"))
    mine, theirs = one.looks.sample(1)[1], two.looks.sample(3)[1]
    expected = np.array([[debiased_cka(mine.rows(a), theirs.rows(b)) for b in two.sites] for a in one.sites])
    found = one.compare(1, 3, other=two)
    np.testing.assert_allclose(found.values[0], expected, rtol=0, atol=1e-11)
    assert found.axes["left"] == one.sites
    assert found.axes["right"] == two.sites
    assert found.resampled.endswith("sampled words")
    assert "all words" not in found.resampled
    part = one.compare(1, 3, other=two, left="resid.1,resid.2", right="resid.0")
    np.testing.assert_allclose(part.values[0], expected[1:3, :1], rtol=0, atol=1e-11)
    shared = one.alike(1, 3, other=two)
    np.testing.assert_allclose(
        list(shared.values()), [expected[one.sites.index(s), two.sites.index(s)] for s in shared]
    )


def test_convergence_is_each_epoch_against_the_last(runs):
    place, *_ = runs
    dynamics = Dynamics.open(place / "one")
    result = dynamics.convergence()
    rows = [dynamics.looks.sample(epoch)[1] for epoch in dynamics.epochs]
    for at, site in enumerate(dynamics.sites):
        expected = [debiased_cka(view.rows(site), rows[-1].rows(site)) for view in rows]
        np.testing.assert_allclose(result.values[0, at], expected[1:], rtol=0, atol=1e-11)
        assert result.table("random model").columns["value"][0, at] == pytest.approx(expected[0], abs=1e-10)
    assert result.axes["step"] == (1, 2, 3)
    assert result.low is not None
    assert (result.low <= result.values + 1e-12).all()
    assert result.table("freezing").columns["step"].shape == (1, len(dynamics.sites))
    some = dynamics.convergence(epochs=[1, 2], sites="resid.2", scores=["cka", "rbf-cka"])
    assert some.axes == {"measure": ("cka", "rbf-cka"), "layer": ("resid.2",), "step": (1, 2)}
    assert "random model" not in some.tables


def test_of_a_fine_tuned_network_epoch_0_is_no_random_model(tmp_path):
    watched(tmp_path / "tuned", epochs=2, settings=Settings("lm", source="zoo:lm"))
    result = Dynamics.open(tmp_path / "tuned").convergence()
    assert result.axes["step"] == (0, 1)
    assert "random model" not in result.tables


def test_two_runs_epoch_by_epoch_and_against_one_epoch(runs):
    place, *_ = runs
    one, two = (Dynamics.open(place / name) for name in ("one", "two"))
    result = one.between(two)
    fixed = one.between(two, against=3)
    shared = [site for site in one.sites if site in two.sites]
    assert result.axes["layer"] == tuple(shared)
    assert result.axes["step"] == fixed.axes["step"] == (0, 1, 2, 3)
    for at, site in enumerate(shared):
        for step in range(EPOCHS):
            mine = one.looks.sample(step)[1].rows(site)
            assert result.values[0, at, step] == pytest.approx(
                debiased_cka(mine, two.looks.sample(step)[1].rows(site)), abs=1e-10
            )
            assert fixed.values[0, at, step] == pytest.approx(
                debiased_cka(mine, two.looks.sample(3)[1].rows(site)), abs=1e-10
            )


def test_words_that_one_tokenizer_lacks_are_left_out_of_both(tmp_path):
    words = [f"{sentence.text} ~" for sentence in stories(40)]  # a tilde has no token in one of the vocabularies
    corpus = Corpus.of(words)
    watched(tmp_path / "one", epochs=1, corpus=corpus)
    net = network("gpt2", "sdpa", seed=5)
    Watcher(net, word_tokenizer(), corpus, tmp_path / "two/dynamics", Settings("lm"), sample=SAMPLED).look(0)
    one, two = (Dynamics.open(tmp_path / name) for name in ("one", "two"))
    mine, theirs = one.looks.sample(0)[1], two.looks.sample(0)[1]
    common, here, there = np.intersect1d(mine.ordinal, theirs.ordinal, return_indices=True)
    assert len(common) < SAMPLED
    expected = debiased_cka(mine.rows("resid.1")[here], theirs.rows("resid.1")[there])
    assert one.alike(0, 0, other=two)["resid.1"] == pytest.approx(expected, abs=1e-10)


# -- refusals --------------------------------------------------------------------------------------------------------


def test_another_text_is_refused(runs, tmp_path):
    place, *_ = runs
    watched(tmp_path / "other", epochs=2, corpus=stories(30))
    one, other = Dynamics.open(place / "one"), Dynamics.open(tmp_path / "other")
    for compare in (lambda: one.between(other), lambda: one.compare(0, 1, other=other)):
        with pytest.raises(TrainError, match=r"different validation texts .*fingerprints differ"):
            compare()
    with pytest.raises(TrainError, match="not the text on which the run"):
        one.exact(stories(30))
    with pytest.raises(TrainError, match="another validation text"):
        Watcher(
            network("gpt2", "sdpa"), subword_tokenizer(closing=False), stories(30), place / "one/dynamics",
            Settings("lm"), sample=SAMPLED,
        )  # fmt: skip
    with pytest.raises(TrainError, match="other sites or another number of words"):
        Watcher(
            network("gpt2", "sdpa"), subword_tokenizer(closing=False), stories(60), place / "one/dynamics",
            Settings("lm"), sample=SAMPLED + 1,
        )  # fmt: skip


def test_unknown_epochs_and_folders_are_named(runs, tmp_path):
    place, *_ = runs
    one = Dynamics.open(place / "one")
    with pytest.raises(TrainError, match=r"Epoch 9 was not looked at .* there are 0, 1, 2, 3"):
        one.grid(9)
    with pytest.raises(TrainError, match="Epoch 9 was not looked at"):
        one.convergence(epochs=[1, 9])
    with pytest.raises(TrainError, match="needs at least two"):
        one.convergence(epochs=[0, 3])
    with pytest.raises(TrainError, match="holds nothing of how a network learned"):
        Dynamics.open(tmp_path)


def test_a_newer_or_damaged_folder_is_refused(runs, tmp_path):
    place, *_ = runs
    about = json.loads((place / "one/dynamics/dynamics.json").read_text())
    for name, content, said in (
        ("newer", json.dumps({**about, "format": 2}), "have format 2"),
        ("broken", "{", "is damaged"),
    ):
        (tmp_path / name / "dynamics").mkdir(parents=True)
        (tmp_path / name / "dynamics/dynamics.json").write_text(content)
        with pytest.raises(TrainError, match=said):
            Dynamics.open(tmp_path / name)
