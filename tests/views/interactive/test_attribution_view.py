"""The interactive view of an attribution: tracks and maps with the result's numbers, and nothing else needed."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.attribution import Attribution
from pellucid.errors import PellucidError
from pellucid.results import Result
from pellucid.views import attribution_view
from pellucid.views.interactive.held import Held
from tests.overlaps import faults
from tests.views.attribution_results import WORDS, attribution, drawn


def test_one_method_target_and_place_is_one_track():
    result = drawn()
    view = attribution_view(result)
    text = view.header["panels"][0]["text"]
    assert list(text["tracks"]) == ["integrated_gradients"]
    assert text["maps"] == {}
    assert text["tracks"]["integrated_gradients"]["signed"]
    assert "class 0" in text["tracks"]["integrated_gradients"]["about"]
    assert Held(view, 0).track("integrated_gradients") == pytest.approx(result.values[0, 0, 0], abs=1e-6)
    assert view.header["title"] == f"“{''.join(WORDS).strip()}”"
    assert any("completeness error" in note for note in view.notes)


def test_methods_targets_and_places_are_all_there_to_choose():
    result = drawn(measures=2, targets=2, places=3)
    view = attribution_view(result, state={"track": "saliency · class 1 · resid.2"})
    text = view.header["panels"][0]["text"]
    assert len(text["tracks"]) == 2 * 2 * 3
    assert list(text["maps"]) == [
        f"{measure} · class {at}" for measure in ("integrated_gradients", "saliency") for at in (0, 1)
    ]
    held = Held(view, 0)
    for which, measure in enumerate(result.axes["measure"]):
        for number, target in enumerate(result.axes["target"]):
            wanted = result.values[which, number]
            assert held.map(f"{measure} · {target}") == pytest.approx(wanted, abs=1e-6)
            for at, place in enumerate(result.axes["place"]):
                assert held.track(f"{measure} · {target} · {place}") == pytest.approx(wanted[at], abs=1e-6)
    assert not text["tracks"]["saliency · class 1 · resid.2"]["signed"]
    assert not faults(view.figure())


@pytest.mark.parametrize(
    ("places", "heading"),
    [
        (["resid.0", "resid.1"], "Layer by layer"),
        (["embed", "resid.0", "resid.1"], "Layer by layer"),
        (["encoder.resid.0", "decoder.resid.1"], "Layer by layer"),
        (["heads.0:1", "heads.1:0"], "Head by head"),
        (["neurons.0:1", "neurons.0:17"], "Unit by unit"),
        (["mlp.0", "attn.0"], "Place by place"),
    ],
)
def test_a_map_says_what_its_rows_are(places, heading):
    result = attribution(np.ones((1, 1, len(places), 10)), places=places)
    (found,) = attribution_view(result).header["panels"][0]["text"]["maps"].values()
    assert found["heading"] == heading


def test_of_many_places_the_strongest_are_held():
    values = np.random.default_rng(0).normal(size=(1, 1, 300, 10))
    result = attribution(values, places=[f"neurons.0:{at}" for at in range(300)], by="unit")
    view = attribution_view(result, most=5)
    order = np.argsort(-np.abs(values[0, 0]).sum(axis=1))[:5]
    assert list(view.header["panels"][0]["text"]["tracks"]) == [f"neurons.0:{at}" for at in sorted(order)]
    assert Held(view, 0).map("integrated_gradients") == pytest.approx(values[0, 0, sorted(order)], abs=1e-6)
    assert "Of 300 places the 5 are shown" in view.notes[-1]


def test_targets_at_one_place_are_a_map_too():
    result = drawn(targets=3)
    view = attribution_view(result)
    assert view.header["panels"][0]["text"]["maps"]["integrated_gradients"]["rows"] == ["class 0", "class 1", "class 2"]
    assert view.header["panels"][0]["text"]["maps"]["integrated_gradients"]["heading"] == "Target by target"
    assert Held(view, 0).map("integrated_gradients") == pytest.approx(result.values[0, :, 0], abs=1e-6)


def test_a_saved_result_gives_the_same_view(tmp_path):
    result = drawn(places=2)
    result.save(tmp_path / "r")
    loaded = Result.load(tmp_path / "r")
    assert isinstance(loaded, Attribution)
    one, other = attribution_view(result), attribution_view(loaded)
    assert one.header == other.header
    assert {name: chunk.stored for name, chunk in one.payload.chunks.items()} == {
        name: chunk.stored for name, chunk in other.payload.chunks.items()
    }


def test_a_state_that_is_not_there_is_refused():
    with pytest.raises(PellucidError, match="it has integrated_gradients"):
        attribution_view(drawn(), state={"track": "conductance"})
