"""The contract of results: every kind in the registry keeps every promise; a new kind needs one line in `FACTORIES`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields
from itertools import product

import numpy as np
import pytest

from pellucid.cli import main
from pellucid.results import ABOUT, ARRAYS, Result, kinds
from pellucid.views import figure_svg
from tests.neurons.probe_results import (
    agreement_by_hand,
    curves_by_hand,
    distribution_by_hand,
    experts_by_hand,
    explained_by_hand,
    gaussian_by_hand,
    layers_by_hand,
    polysemy_by_hand,
    probe_by_hand,
    spread_by_hand,
    stability_by_hand,
    trajectories_by_hand,
)
from tests.overlaps import faults
from tests.results_by_hand import (
    ablations_by_hand,
    aligned_heads_by_hand,
    alike_heads_by_hand,
    attribution_by_hand,
    clustered_heads_by_hand,
    convergence_by_hand,
    epochs_by_hand,
    flow_agreement_by_hand,
    freedom_by_hand,
    functions_changed_by_hand,
    generation_by_hand,
    grid_by_hand,
    head_ablation_by_hand,
    head_functions_by_hand,
    head_shapes_by_hand,
    importance_by_hand,
    information_flow_by_hand,
    matches_by_hand,
    mixing_by_hand,
    norms_by_hand,
    over_corpus_by_hand,
    pruning_by_hand,
    ranking_by_hand,
    reachable_by_hand,
    reading_by_hand,
    second_attention_by_hand,
    selective_by_hand,
    significance_by_hand,
    statistics_by_hand,
    surprise_by_hand,
    survey_by_hand,
    token_identity_by_hand,
    training_by_hand,
    trust_by_hand,
)

FACTORIES: dict[str, Callable[[], Result]] = {
    "attribution": attribution_by_hand,
    "attribution.ablations": ablations_by_hand,
    "attribution.generation": generation_by_hand,
    "attribution.over_corpus": over_corpus_by_hand,
    "attribution.trust": trust_by_hand,
    "heads.pruning": pruning_by_hand,
    "heads.alignment": aligned_heads_by_hand,
    "heads.clusters": clustered_heads_by_hand,
    "heads.functions": head_functions_by_hand,
    "heads.shapes": head_shapes_by_hand,
    "heads.ablation": head_ablation_by_hand,
    "heads.importance": importance_by_hand,
    "heads.information_flow": information_flow_by_hand,
    "heads.statistics": statistics_by_hand,
    "identifiability.attention": freedom_by_hand,
    "identifiability.functions_changed": functions_changed_by_hand,
    "identifiability.flow_agreement": flow_agreement_by_hand,
    "identifiability.mixing": mixing_by_hand,
    "identifiability.reachable": reachable_by_hand,
    "identifiability.second_attention": second_attention_by_hand,
    "identifiability.tokens": token_identity_by_hand,
    "neurons.agreement": agreement_by_hand,
    "neurons.distribution": distribution_by_hand,
    "neurons.evaluation": curves_by_hand,
    "neurons.expert_share": experts_by_hand,
    "neurons.explained": explained_by_hand,
    "neurons.per_layer": layers_by_hand,
    "neurons.polysemy": polysemy_by_hand,
    "neurons.spread": spread_by_hand,
    "neurons.stability": stability_by_hand,
    "neurons.trajectories": trajectories_by_hand,
    "neurons.gaussian": gaussian_by_hand,
    "neurons.probe": probe_by_hand,
    "neurons.ranking": ranking_by_hand,
    "neurons.reading": reading_by_hand,
    "neurons.selective": selective_by_hand,
    "neurons.survey": survey_by_hand,
    "overview.norms": norms_by_hand,
    "overview.surprise": surprise_by_hand,
    "similarity.convergence": convergence_by_hand,
    "similarity.epoch_by_epoch": epochs_by_hand,
    "similarity.grid": grid_by_hand,
    "similarity.heads": alike_heads_by_hand,
    "similarity.neurons": matches_by_hand,
    "similarity.significance": significance_by_hand,
    "train.curves": training_by_hand,
}
"""How the tests make a result of every kind, by running its analysis on a small sweep made by hand."""

ONE_DRAW = {"train.curves", "neurons.spread"}
"""Kinds without an interval: a training is one draw, and noise in small scores spreads a class beyond any range."""
ONE_TEXT = {
    "attribution",
    "attribution.ablations",
    "attribution.generation",
    "heads.information_flow",
    "identifiability.second_attention",
}
"""Kinds on one text: there is nothing to resample, and no chance without another model."""
MOST_FIELDS = 8
every_kind = pytest.mark.parametrize("kind", sorted(FACTORIES))


@pytest.fixture(scope="module")
def made() -> dict[str, Result]:
    return {kind: factory() for kind, factory in FACTORIES.items()}


def test_every_kind_has_a_factory():
    own = {kind for kind, known in kinds().items() if known.__module__.startswith("pellucid.")}
    assert own == set(FACTORIES), "add a factory for the new kind"


@every_kind
def test_a_factory_makes_its_kind(made, kind):
    assert made[kind].kind == kind
    assert type(made[kind]) is kinds()[kind]


@every_kind
def test_frozen_small_and_described(made, kind):
    result = made[kind]
    assert len(fields(result)) <= MOST_FIELDS
    for field in fields(result):
        with pytest.raises(FrozenInstanceError):
            setattr(result, field.name, None)
    assert not result.values.flags.writeable
    assert result.title
    assert type(result).__doc__
    assert set(result.measures) == set(result.axes.get("measure", ()))


@every_kind
def test_shapes_numbers_and_the_interval(made, kind):
    result = made[kind]
    shape = tuple(len(coordinates) for coordinates in result.axes.values())
    ends = () if kind in ONE_DRAW | ONE_TEXT else (result.low, result.high)
    for part in (result.values, *(() if kind in ONE_TEXT else (result.null,)), *ends):
        assert part is not None, "the factory must show chance and interval"
        assert part.shape == shape
        assert np.isfinite(part).all()
    if kind in ONE_DRAW | ONE_TEXT:
        assert result.resampled.startswith("no interval: ")
    else:
        assert (result.low <= result.values + 1e-9).all()
        assert (result.values <= result.high + 1e-9).all()
        assert "interval" not in result.resampled
        assert "document" in result.resampled
    for coordinates in result.axes.values():
        assert len(set(coordinates)) == len(coordinates)
    for table in result.tables.values():
        for column in table.columns.values():
            assert column.dtype.kind in "bfiuU"


@every_kind
def test_the_frame_is_tidy_and_complete(made, kind):
    result = made[kind]
    frame = result.to_frame()
    assert list(frame.columns) == [*result.axes, "value", "null", "low", "high"]
    assert list(frame[list(result.axes)].itertuples(index=False, name=None)) == list(product(*result.axes.values()))
    for column, part in (("value", result.values), ("null", result.null), ("low", result.low), ("high", result.high)):
        assert frame[column].isna().all() if part is None else np.array_equal(frame[column].to_numpy(), part.ravel())
    for table in result.tables.values():
        shape = tuple(len(coordinates) for coordinates in table.axes.values())
        assert len(table.to_frame()) == np.prod(shape)


@every_kind
def test_saved_and_loaded_to_the_bit(made, kind, tmp_path):
    made[kind].save(tmp_path / "r")
    loaded = Result.load(tmp_path / "r")
    assert loaded.same(made[kind])
    assert type(loaded).load(tmp_path / "r").same(loaded)
    loaded.save(tmp_path / "again")
    for name in (ABOUT, ARRAYS):
        assert (tmp_path / "r" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@every_kind
def test_the_same_work_gives_the_same_bytes(made, kind, tmp_path):
    made[kind].save(tmp_path / "one")
    FACTORIES[kind]().save(tmp_path / "two")
    for name in (ABOUT, ARRAYS):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@every_kind
def test_provenance_is_complete(made, kind):
    origin = made[kind].provenance
    assert origin.function in (kind, f"{kind}.attribute")
    assert origin.models
    assert all(model["name"] and model["fingerprint"] for model in origin.models)
    assert {"name", "fingerprint", "sentences"} <= origin.corpus.keys()
    assert {"words", "tokens"} & origin.corpus.keys()
    assert {"pellucid", "torch", "transformers", "numpy"} <= origin.versions.keys()
    json.dumps(origin.to_json())


@every_kind
def test_the_figure_is_titled_readable_and_belongs_to_nobody(made, kind):
    import sys

    from matplotlib.figure import Figure

    figure = made[kind].plot()
    assert isinstance(figure, Figure)
    assert figure.get_figwidth() == pytest.approx(7.2)
    drawn = [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]
    assert drawn
    assert all(axes.get_title() for axes in drawn)
    assert not faults(figure)
    assert figure_svg(figure) == figure_svg(figure) == figure_svg(made[kind].plot())
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def call(monkeypatch, capfd, *words: object) -> str:
    monkeypatch.setattr("sys.argv", ["pellucid", *map(str, words)])
    capfd.readouterr()
    with suppress(SystemExit):
        main()
    out, err = capfd.readouterr()
    assert not err
    return out


@every_kind
def test_the_command_line_shows_the_same_numbers(made, kind, tmp_path, monkeypatch, capfd):
    result = made[kind]
    result.save(tmp_path / "r")
    shown = call(monkeypatch, capfd, "show", tmp_path / "r")
    assert result.title in shown
    assert result.resampled in shown
    assert result.provenance.models[0]["fingerprint"] in shown
    told = json.loads(call(monkeypatch, capfd, "show", tmp_path / "r", "--json"))
    assert told == json.loads(json.dumps(result.to_json()))
    for name, part in (("value", result.values), ("null", result.null), ("low", result.low), ("high", result.high)):
        assert told[name] is None if part is None else np.array_equal(np.array(told[name]), part)
    for name, table in result.tables.items():
        for column, cells in table.columns.items():
            assert np.array_equal(np.array(told["tables"][name]["columns"][column], dtype=cells.dtype), cells)
