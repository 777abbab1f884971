"""Similarity while models learn: which checkpoint meets which, chance, intervals, freezing, and models one by one."""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid import similarity
from pellucid.collect.collector import ModelFacts
from pellucid.collect.found import Found
from pellucid.collect.moments import Moments
from pellucid.collect.sample import TokenSample
from pellucid.collect.sweep import sweep
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import PellucidError
from pellucid.model import Model
from pellucid.model.sites import Site
from pellucid.similarity import (
    Convergence,
    SimilarityWarning,
    convergence,
    epoch_by_epoch,
    follow,
    follow_runs,
    pair_of_rows,
)
from pellucid.similarity.cka import debiased_cka
from pellucid.uncertainty import jackknife
from tests.collect.sweeping import files_of, stories, subword_tokenizer
from tests.found_by_hand import facts, found_of, gathered, with_twin, word_batch
from tests.similarity.test_scores import Array, scored
from tests.tiny_models import network

LAYERS, STEPS, GROUPS, WORDS, WIDTH = 3, 4, 10, 24, 5
SIZES = {Site("resid", layer): (WIDTH,) for layer in range(LAYERS)}
CHECKPOINTS = tuple(facts(SIZES, name=f"step {step}") for step in range(1, STEPS + 1))
QUICK = partial(sweep, token_budget=150, shard_tokens=200, threads=1, progress=False)


def rows_of(model: ModelFacts) -> dict[str, Array]:
    """A model's rows over all words: later steps are nearer to the last one, and lower layers get there sooner."""
    common = np.random.default_rng(0)
    base = common.normal(size=(GROUPS * WORDS, LAYERS, WIDTH)) + 3
    number = int(model.name.split()[1])
    generator = np.random.default_rng([number, "random" in model.name, "other" in model.name])
    noise = np.array([2.0, 1.0, 0.5, 0.1])[number - 1] * (1 + np.arange(LAYERS))
    noise = noise + 8 * ("random" in model.name)
    rows = base + noise[:, None] * generator.normal(size=base.shape)
    return {str(site): rows[:, place].astype(np.float32) for place, site in enumerate(model.sites)}


def swept(models: tuple[ModelFacts, ...], *collectors: Any) -> Found:
    """A sweep over some models, put together by hand."""
    rows = {f"{number}:{key}": value for number, model in enumerate(models) for key, value in rows_of(model).items()}
    batches: list[Any] = []
    for group in range(GROUPS):
        part = slice(group * WORDS, (group + 1) * WORDS)
        batch = word_batch({key: value[part] for key, value in rows.items()}, group=group, start=part.start)
        text = {0: Sentence.of_words(["word"] * WORDS, id=str(group), document=str(group))}
        batches.append(replace(batch, sentences=text))
    chosen = collectors or (Moments("resid.*", groups=True, precision="float64"), TokenSample("resid.*", size=1000))
    return found_of(models, {each: gathered(each, models, batches) for each in chosen}, words=GROUPS * WORDS)


def one_by_one() -> list[Found]:
    """Each checkpoint beside the last one."""
    return [swept((checkpoint, CHECKPOINTS[-1])) for checkpoint in CHECKPOINTS[:-1]]


def beside_random() -> Found:
    """A random model beside the last checkpoint."""
    return swept((with_twin(CHECKPOINTS[-1])[1], CHECKPOINTS[-1]))


def found(*, random: bool = True) -> Found:
    return swept((*CHECKPOINTS, *([with_twin(CHECKPOINTS[-1])[1]] if random else [])))


@pytest.mark.parametrize("name", ["cka", "svcca", "pwcca", "mutual-knn"])
def test_every_layer_meets_its_own_in_the_last_checkpoint(name: str) -> None:
    result = convergence(found(), name)
    assert result.axes == {"measure": (name,), "layer": ("resid.0", "resid.1", "resid.2"), "step": (1, 2, 3, 4)}
    last = rows_of(CHECKPOINTS[-1])
    for place, layer in enumerate(last):
        for step, model in enumerate(CHECKPOINTS):
            expected = scored(name, rows_of(model)[layer], last[layer])
            assert result.values[0, place, step] == pytest.approx(expected, abs=1e-9)
    twin = rows_of(with_twin(CHECKPOINTS[-1])[1])
    table = result.table("random model").columns["value"]
    assert table[0].tolist() == pytest.approx([scored(name, twin[layer], last[layer]) for layer in last], abs=1e-9)


def test_interval_and_chance() -> None:
    result = convergence(found(), "cka-biased,cka")
    x, y = rows_of(CHECKPOINTS[1])["resid.2"], rows_of(CHECKPOINTS[-1])["resid.2"]
    groups = np.repeat(np.arange(GROUPS), WORDS)
    without = [np.array(debiased_cka(pair_of_rows(x[groups != g], y[groups != g]))) for g in range(GROUPS)]
    ends = jackknife(np.array(debiased_cka(pair_of_rows(x, y))), without, [WORDS] * GROUPS)
    assert result.low is not None
    assert result.high is not None
    assert result.null is not None
    assert result.low[1, 2, 1] == pytest.approx(float(ends.low), abs=1e-9)  # pyright: ignore[reportArgumentType]
    assert result.high[1, 2, 1] == pytest.approx(float(ends.high), abs=1e-9)  # pyright: ignore[reportArgumentType]
    chance = result.table("chance").columns
    assert np.allclose(chance["z"], (result.values - result.null) / chance["sd"])
    assert (result.null[0] > 0.01).all()
    assert (result.null[1] == 0).all()


@pytest.mark.parametrize("name", ["svcca", "mutual-knn"])
def test_other_intervals_on_request(name: str) -> None:
    assert convergence(found(), name).low is None
    result = convergence(found(), name, interval=True)
    assert result.low is not None
    assert (result.low[..., :-1] < result.values[..., :-1]).all()
    assert np.allclose(result.low[..., -1], 1)  # the last checkpoint is like itself whatever the text


def test_a_first_step_with_random_weights_is_a_step() -> None:
    """A model before training has the name of a random twin, and is a checkpoint all the same."""
    result = convergence(iter([beside_random(), *one_by_one()]), steps=(0, 1, 2, 3, 4))
    assert result.axes["step"] == (0, 1, 2, 3, 4)
    assert "random model" not in result.tables


def test_sweeps_one_by_one_give_the_same() -> None:
    whole, parts = convergence(found()), convergence(iter(one_by_one()), random=beside_random())
    for cell in ("values", "null", "low", "high"):
        np.testing.assert_allclose(getattr(parts, cell), getattr(whole, cell), atol=1e-12)
    assert [model["name"] for model in parts.provenance.models][:4] == ["step 1", "step 4", "step 2", "step 3"]
    for name in ("random model", "freezing"):
        for column, cells in whole.table(name).columns.items():
            np.testing.assert_allclose(parts.table(name).columns[column], cells, atol=1e-12)


def test_sites_and_steps_are_chosen() -> None:
    result = convergence(found(), sites="resid.2,resid.0", steps=("warm", "a", "b", "end"))
    assert result.axes["layer"] == ("resid.0", "resid.2")
    assert result.axes["step"] == ("warm", "a", "b", "end")
    assert result.table("freezing").columns["step"].dtype.kind == "U"
    whole = convergence(found())
    np.testing.assert_array_equal(result.values, whole.values[:, [0, 2]])


def with_values(values: list[list[float]], base: list[float] | None) -> Convergence:
    """A result with these curves, one per layer, and these scores of a random model."""
    result = convergence(found(random=base is not None))
    tables = dict(result.tables)
    if base is not None:
        table = tables["random model"]
        tables["random model"] = replace(table, columns={"value": np.array([base])})
    return replace(result, values=np.array([values]), tables=tables)


def test_a_layer_is_frozen_where_it_stays_above_its_level() -> None:
    curves = [[0.2, 0.97, 0.9, 1.0], [0.96, 0.97, 0.99, 1.0], [0.2, 0.3, 0.94, 1.0]]
    result = with_values(curves, [0.2, 0.2, 0.2])  # levels of .96
    table = result.freezable()
    assert table.columns["level"][0].tolist() == pytest.approx([0.96] * 3)
    assert table.columns["step"][0].tolist() == [4, 1, 4]  # the first falls below again after step 2
    assert table.columns["spared"][0].tolist() == pytest.approx([0, 1, 0])
    assert result.freezable(0.8).columns["step"][0].tolist() == [2, 1, 3]
    assert result.freezable(0.8).columns["spared"][0].tolist() == pytest.approx([2 / 3, 1, 1 / 3])


def test_the_level_starts_from_what_was_learned_of_nothing() -> None:
    """A layer that text alone makes .9 alike must come nearer than one that starts from 0."""
    curves = [[0.95, 0.96, 0.99, 1.0], [0.95, 0.96, 0.99, 1.0], [1.0, 1.0, 1.0, 1.0]]
    assert with_values(curves, [0.9, 0.0, 1.0]).freezable().columns["step"][0].tolist() == [4, 1, 1]
    first = with_values(curves, None).freezable()  # from the first step's score: .95 + .95 · .05 = .9975
    assert first.columns["step"][0].tolist() == [4, 4, 1]
    assert first.columns["base"][0].tolist() == [0.95, 0.95, 1.0]


def test_the_rule_is_told() -> None:
    result = convergence(found())
    (rule,) = result.table("rule").columns["rule"].tolist()
    assert "base + 0.95 × (score at the last step − base)" in rule
    assert "earlier layers need not have settled" in rule
    for column, cells in result.freezable().columns.items():
        np.testing.assert_array_equal(result.table("freezing").columns[column], cells)


def others() -> tuple[ModelFacts, ...]:
    return tuple(facts(SIZES, name=f"step {step} other") for step in range(1, STEPS + 1))


def runs() -> Found:
    return swept((*CHECKPOINTS, *others()))


def test_two_runs_meet_step_by_step() -> None:
    result = epoch_by_epoch(runs(), "cka")
    pairs = list(zip(CHECKPOINTS, others(), strict=True))
    for step, (one, other) in enumerate(pairs):
        for place in range(LAYERS):
            key = f"resid.{place}"
            expected = scored("cka", rows_of(one)[key], rows_of(other)[key])
            assert result.values[0, place, step] == pytest.approx(expected, abs=1e-9)
    parts = epoch_by_epoch((swept(pair) for pair in pairs), "cka")
    np.testing.assert_allclose(parts.values, result.values, atol=1e-12)
    np.testing.assert_allclose(parts.low, result.low, atol=1e-12)  # pyright: ignore[reportArgumentType]


# -- models, one by one ----------------------------------------------------------------------------------------------


class Opener:
    """Opens tiny models by their seed, and counts those that are alive."""

    def __init__(self) -> None:
        self.alive: weakref.WeakSet[Model] = weakref.WeakSet()
        self.most = 0

    def __call__(self, source: Any) -> Model:
        model = Model.load(network("gpt2", seed=int(source)), tokenizer=subword_tokenizer(closing=False))
        self.alive.add(model)
        self.most = max(self.most, len(self.alive))
        return model


def test_following_is_one_sweep_over_all() -> None:
    opener, corpus = Opener(), stories(25)
    result = follow({0: "1", 100: "2", 900: "3"}, corpus, "cka,mutual-knn", load=opener, using=QUICK, random=False)
    assert opener.most <= 2
    assert result.axes["step"] == (0, 100, 900)
    collectors = [Moments("resid.*", groups=True), TokenSample("resid.*")]
    whole = convergence(QUICK([opener(seed) for seed in "123"], corpus, collectors), "cka,mutual-knn")
    np.testing.assert_allclose(result.values, whole.values, atol=1e-5)
    assert result.axes["layer"] == whole.axes["layer"]


def test_following_adds_a_random_model() -> None:
    result = follow(["1", "2"], stories(25), sites="resid.1", load=Opener(), using=QUICK)
    last = Opener()("2")
    pair = QUICK([Model.random_like(last), last], stories(25), Moments("resid.1"))
    expected = similarity.grid(pair, left="0:resid.1", right="1:resid.1").values[0, 0, 0]
    assert result.table("random model").columns["value"][0, 0] == pytest.approx(expected, abs=1e-6)
    assert result.axes == {"measure": ("cka",), "layer": ("resid.1",), "step": (1, 2)}


def test_a_stopped_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    corpus, folder, done = stories(15), tmp_path / "run", []

    def stopping(models: Any, *given: Any, **options: Any) -> Found:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(options["folder"].name)
        return QUICK(models, *given, **options)

    with pytest.raises(KeyboardInterrupt):
        follow(["1", "2", "3"], corpus, load=Opener(), using=stopping, folder=folder)
    assert done == ["random", "step-00001"]
    kept = {name: (folder / "step-00001" / name).stat().st_mtime_ns for name in files_of(folder / "step-00001")}
    result = follow(["1", "2", "3"], corpus, load=Opener(), using=QUICK, folder=folder)
    again = {name: (folder / "step-00001" / name).stat().st_mtime_ns for name in kept}
    assert again == kept
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock", "random", "step-00001", "step-00002",
    ]  # fmt: skip
    assert result.same(follow(["1", "2", "3"], corpus, load=Opener(), using=QUICK, folder=folder))
    assert follow(["1", "2", "3"], corpus, load=Opener(), using=QUICK).values.tobytes() == result.values.tobytes()
    with pytest.raises(PellucidError, match="another model"):
        follow(["7", "2", "3"], corpus, load=Opener(), using=QUICK, folder=folder)


def test_two_runs_are_followed() -> None:
    opener, corpus = Opener(), stories(25)
    result = follow_runs(["1", "2"], ["3", "4"], corpus, load=opener, using=QUICK)
    assert opener.most <= 2
    whole = epoch_by_epoch(QUICK([opener(seed) for seed in "1234"], corpus, Moments("resid.*", groups=True)))
    np.testing.assert_allclose(result.values, whole.values, atol=1e-5)


def test_few_words_are_warned_of_once() -> None:
    """240 words for 121 features; of CKA, whose chance is 0, nothing is said."""
    wide = tuple(facts({Site("resid", 0): (121,)}, name=f"wide {step}") for step in range(3))
    rows = np.random.default_rng(0).normal(size=(240, 121))
    batch = word_batch({f"{number}:resid.0": rows + number for number in range(3)})
    collector = Moments("resid.*", precision="float64")
    made = found_of(wide, {collector: gathered(collector, wide, [batch])}, words=240)
    with pytest.warns(
        SimilarityWarning, match=r"240 words for 121 features: chance alone gives a svcca of about 0\."
    ) as told:
        convergence(made, "svcca,cka")
    assert len(told) == 1


def test_a_few_words_are_refused_or_go_without_an_interval() -> None:
    models = [Opener()(seed) for seed in "12"]
    for texts, words in ((["tea"], 1), (["tea is good"], 3)):
        with pytest.raises(
            PellucidError, match=f"There are {words} words to compare, and a similarity needs at least 4"
        ):
            follow(models, Corpus.of(texts), random=False, using=QUICK)
    halves = follow(models, Corpus.of(["tea is good", "we had tea"]), random=False, using=QUICK)
    assert halves.low is None
    assert "too few words" in halves.resampled


def test_a_random_model_from_elsewhere_is_refused() -> None:
    twin = with_twin(CHECKPOINTS[0])
    with pytest.raises(PellucidError, match=r"compared with .* of 'step 1'; sweep it with .* beside the last"):
        convergence(one_by_one(), random=swept(twin[::-1]))
    other = beside_random()
    moved = replace(other, about={**other.about, "corpus": {**other.about["corpus"], "fingerprint": "tea"}})
    with pytest.raises(PellucidError, match="different corpora"):
        convergence(one_by_one(), random=moved)


def test_sites_that_were_not_gathered_are_named_beside_those_that_were() -> None:
    with pytest.raises(PellucidError, match=r"None of the sites asked for was gathered; there are resid.0, resid.1\."):
        convergence(swept(CHECKPOINTS, Moments("resid.0,resid.1")), sites="resid.2")


def test_steps_of_any_kind_have_folders_of_their_own(tmp_path: Path) -> None:
    """The first step has no number, and the second has the number of the first's place."""
    result = follow({"warm": "1", 1: "2", 2: "3"}, stories(10), load=Opener(), using=QUICK, folder=tmp_path / "run")
    assert result.axes["step"] == ("warm", 1, 2)
    assert {"random", "step-00001", "step-00002"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_the_random_model_has_a_seed() -> None:
    values = [
        follow(["1", "2"], stories(10), load=Opener(), using=QUICK, seed=seed).table("random model").columns["value"]
        for seed in (0, 3)
    ]
    assert not np.allclose(values[0], values[1])


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(PellucidError, match="1 trained model, and convergence needs at least 2"):
        convergence(swept(with_twin(CHECKPOINTS[0])))
    with pytest.raises(PellucidError, match="this sweep has 3 models"):
        epoch_by_epoch(swept(CHECKPOINTS[:3]))
    with pytest.raises(PellucidError, match="has 3 models, and each needs 2"):
        convergence([swept(CHECKPOINTS[:3])])
    with pytest.raises(PellucidError, match="end in different models"):
        convergence([swept(CHECKPOINTS[:2]), swept(CHECKPOINTS[1:3])])
    with pytest.raises(PellucidError, match="nothing to follow"):
        convergence([])
    with pytest.raises(PellucidError, match=r"names 2 different steps, and there are 4"):
        convergence(found(), steps=(1, 2))
    with pytest.raises(PellucidError, match=r"'0:resid.0' and '3:resid.0' were not gathered"):
        convergence(swept(CHECKPOINTS, Moments("resid.*", pairs="diagonal")))
    short = facts({Site("resid", 0): (WIDTH,)}, name="step 1")
    with pytest.raises(PellucidError, match=r"nothing of 'resid.1' of 'step 1'.*choose sites="):
        convergence(swept((short, CHECKPOINTS[1])))
    with pytest.raises(PellucidError, match="no share of the way"):
        convergence(found()).freezable(1.5)
    other = swept(CHECKPOINTS[:2])
    moved = replace(other, about={**other.about, "corpus": {**other.about["corpus"], "fingerprint": "tea"}})
    with pytest.raises(PellucidError, match="different corpora"):
        epoch_by_epoch([other, moved])
    none = convergence(swept(CHECKPOINTS, Moments("resid.*")))
    assert none.low is None
    assert "groups=True" in none.resampled
    with pytest.raises(PellucidError, match="is one checkpoint; give a list"):
        follow("runs/last", stories(5))
    with pytest.raises(PellucidError, match="at least 2"):
        follow(["1"], stories(5))
    with pytest.raises(PellucidError, match=r"steps \[1, 2\] and the other \[1\]"):
        follow_runs(["1", "2"], ["3"], stories(5))
    with pytest.raises(PellucidError, match="its parent is not a folder"):
        follow(["1", "2"], stories(5), load=Opener(), using=QUICK, folder=tmp_path / "no" / "where")
