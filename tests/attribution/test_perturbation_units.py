"""Ablation inside a model: every head, unit and site beside one edit at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid.attribution import Ablations, Target, ablations, attribute
from pellucid.attribution.removal import perturbation as engine
from pellucid.attribution.removal.ablations import planned, taken_away
from pellucid.errors import AttributionError, EditError
from pellucid.model import Batch, Edit, Model
from tests.tiny_models import opened, padded, word_tokenizer

TARGET = Target.token(4, position=3)
IDS = Batch.of_ids([[3, 9, 14, 7, 21, 5]])


def tiny(name: str = "bert") -> Model:
    return opened(name, "eager", torch.float64)


def fall(model: Model, *edits: Edit, batch: Batch = IDS) -> float:
    """How far the target falls under edits, by two plain passes."""
    score = TARGET.resolve(model, batch).score
    return float(score(model.run(batch)) - score(model.run(batch, (), edits)))


def mean(model: Model, site: str) -> torch.Tensor:
    tensor = model.run(IDS, [site])[site]
    return tensor.mean(dim=2 if tensor.dim() == 4 else 1)[0]


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_every_head_of_every_layer_in_one_pass(family, monkeypatch):
    model = tiny(family)
    wanted = []
    for site in model.sites:
        if site.kind == "heads":
            wanted += [fall(model, Edit.zero(site, heads=[head])) for head in range(model.size(site)[0])]
    runs, run = list[int](), Model.run
    monkeypatch.setattr(Model, "run", lambda self, batch, *a, **o: runs.append(batch.size) or run(self, batch, *a, **o))
    found = ablations(model, IDS, TARGET)
    assert np.allclose(found.values[0], wanted, atol=1e-10)
    assert runs == [1, len(wanted)]  # the first pass holds one copy, the second all others and the text itself
    layers, units = found.places.columns["layer"], found.places.columns["unit"]
    assert found.axes["place"] == tuple(f"heads.{layer}:{unit}" for layer, unit in zip(layers, units, strict=True))
    assert found.targets.columns["score"][0] == pytest.approx(float(run(model, IDS).logits[0, 3, 4]))


@pytest.mark.parametrize("most", [256, 16])
def test_units_in_any_order_and_from_late_starts(most, monkeypatch):
    """With 16 copies a pass, those of upper layers start above the blocks that they do not touch."""
    monkeypatch.setattr(engine, "MOST", most)
    model, late = tiny(), list[str]()
    run = Model.run

    def watched(self, *args, **options):
        late.extend(map(str, options.get("start") or ()))
        return run(self, *args, **options)

    monkeypatch.setattr(Model, "run", watched)
    found = ablations(model, IDS, TARGET, ["neurons.2", "neurons.1"], by="unit")
    assert bool(late) == (most == 16) or set(late) == {"resid.1"}
    monkeypatch.undo()
    width = model.size("neurons.1")[0]
    assert found.values.shape == (1, 2 * width)
    for site in ("neurons.2", "neurons.1"):
        for unit in (0, 7, width - 1):
            wanted = fall(model, Edit.zero(site, neurons=[unit]))
            assert found.values[0, found.place("place", f"{site}:{unit}")] == pytest.approx(wanted, abs=1e-10)
    some = ablations(model, IDS, TARGET, "neurons.1", by="unit", units=[9, 2])
    assert some.axes["place"] == ("neurons.1:9", "neurons.1:2")
    assert some.values[0, 0] == pytest.approx(fall(model, Edit.zero("neurons.1", neurons=[9])), abs=1e-10)


def test_a_target_inside_the_model_is_read_below_and_above():
    model = tiny()
    found = ablations(model, IDS, Target.unit("neurons.1", 3, position=2), ["neurons.0", "mlp.2"], by="unit")
    plain = float(model.run(IDS, ["neurons.1"])["neurons.1"][0, 2, 3])
    edit = Edit.zero("neurons.0", neurons=[5])
    changed = float(model.run(IDS, ["neurons.1"], [edit])["neurons.1"][0, 2, 3])
    assert found.values[0, 5] == pytest.approx(plain - changed, abs=1e-10)
    assert np.abs(found.values[0, model.size("neurons.0")[0] :]).max() < 1e-12  # what lies above changes nothing


def test_replacement_by_the_mean_over_the_text_and_by_another_text():
    model = tiny()
    heads = ablations(model, IDS, TARGET, "heads.1", baseline="mean").values[0]
    value = mean(model, "heads.1")
    assert heads[2] == pytest.approx(fall(model, Edit.set("heads.1", value[[2]], heads=[2])), abs=1e-10)
    units = ablations(model, IDS, TARGET, "neurons.1", by="unit", baseline="mean").values[0]
    wanted = fall(model, Edit.set("neurons.1", mean(model, "neurons.1")[[6]], neurons=[6]))
    assert units[6] == pytest.approx(wanted, abs=1e-10)
    other = torch.randn(1, 6, model.size("embed")[0], dtype=torch.float64)
    there = model.run(IDS, ["heads.1"], [Edit.patch("embed", other)])
    patched = ablations(model, IDS, TARGET, "heads.1", baseline=other).values[0]
    assert patched[3] == pytest.approx(fall(model, Edit.patch("heads.1", there, heads=[3])), abs=1e-10)
    assert len({round(float(one), 9) for one in (heads[3], patched[3], ablations(model, IDS, TARGET).values[0, 7])}) > 1


def test_a_span_is_taken_away_at_its_tokens_only():
    model = tiny()
    found = ablations(model, IDS, TARGET, "heads.0,heads.2", span=(1, 3))
    for site in ("heads.0", "heads.2"):
        wanted = fall(model, Edit.zero(site, heads=[1], positions=[1, 2]))
        assert found.values[0, found.place("place", f"{site}:1")] == pytest.approx(wanted, abs=1e-10)
    sites = ablations(model, IDS, TARGET, "mlp.*", by="site", span=(5, 6))
    assert sites.axes["place"] == ("mlp.0", "mlp.1", "mlp.2")
    assert sites.values[0, 1] == pytest.approx(fall(model, Edit.zero("mlp.1", positions=[5])), abs=1e-10)


def test_by_token_at_any_site():
    model = tiny()
    heads = attribute(model, IDS, TARGET, "ablation", ["heads.0", "heads.1"], by="head", groups=[(2, 4)])
    assert heads.values.shape == (1, 1, 8, 6)
    one = heads.values[0, 0, heads.place("place", "heads.1:3")]
    assert one[0] == pytest.approx(fall(model, Edit.zero("heads.1", heads=[3], positions=[0])), abs=1e-10)
    together = fall(model, Edit.zero("heads.1", heads=[3], positions=[2, 3]))
    assert one[2] == pytest.approx(together / 2, abs=1e-10) == one[3]
    units = attribute(model, IDS, TARGET, "ablation", "neurons.1", by="unit").values[0, 0]
    assert units[5, 2] == pytest.approx(fall(model, Edit.zero("neurons.1", neurons=[5], positions=[2])), abs=1e-10)
    sites = attribute(model, IDS, TARGET, "ablation", "*.embed,resid.2,heads.1").values[0, 0]
    assert sites[0, 4] == pytest.approx(fall(model, Edit.zero("embed", positions=[4])), abs=1e-10)
    assert sites[1, 4] == pytest.approx(fall(model, Edit.zero("resid.2", positions=[4])), abs=1e-10)
    assert sites[2, 4] == pytest.approx(fall(model, Edit.zero("heads.1", positions=[4])), abs=1e-10)


def test_of_a_pattern_the_tokens_that_are_looked_at():
    model = tiny()
    found = attribute(model, IDS, TARGET, "ablation", "pattern.1", by="head").values[0, 0]
    kept = torch.ones(1, 4, 1, 6, dtype=torch.float64)
    kept[0, 2, 0, 4] = 0
    assert found[2, 4] == pytest.approx(fall(model, Edit.gate("pattern.1", kept)), abs=1e-10)
    with pytest.raises(EditError, match="needs eager attention"):
        ablations(opened("bert", "sdpa"), IDS, TARGET, "pattern.1")


def test_an_encoder_decoder_and_its_cross_attention():
    model = tiny("bart")
    batch = Batch.of_ids([[3, 9, 14, 7, 6]], target_ids=[[2, 8, 11, 12]])
    found = ablations(model, batch, TARGET)
    for place in ("encoder.heads.0:1", "decoder.heads.1:0", "cross.heads.1:1"):
        site, head = place.split(":")
        wanted = fall(model, Edit.zero(site, heads=[int(head)]), batch=batch)
        assert found.values[0, found.place("place", place)] == pytest.approx(wanted, abs=1e-10)
    by_token = attribute(model, batch, TARGET, "ablation", ["encoder.mlp.0", "cross.value.1", "cross.heads.1"])
    for row, (site, places) in enumerate((("encoder.mlp.0", range(5)), ("cross.value.1", range(5)))):
        for place in places:
            wanted = fall(model, Edit.zero(site, positions=[place]), batch=batch)
            assert by_token.values[0, 0, row, place] == pytest.approx(wanted, abs=1e-10)
    wanted = fall(model, Edit.zero("cross.heads.1", positions=[1]), batch=batch)
    assert by_token.values[0, 0, 2, 5 + 1] == pytest.approx(wanted, abs=1e-10)
    spans = ablations(model, batch, TARGET, "decoder.mlp.0", by="site", span=(6, 8)).values[0, 0]
    assert spans == pytest.approx(fall(model, Edit.zero("decoder.mlp.0", positions=[1, 2]), batch=batch), abs=1e-10)


@pytest.mark.parametrize("replacement", ["zero", "mean"])
def test_texts_side_by_side_are_each_as_alone(replacement):
    model, batch = tiny("gpt2"), padded("gpt2", "left")
    target = Target.token(4, position=-1)
    sites = [site for site in model.sites if site.kind in ("heads", "mlp")]
    removals = planned(model, batch, sites, by="site", baseline=replacement)
    together, _ = taken_away(model, batch, removals, [target.resolve(model, batch)])
    for row in range(3):
        alone = Batch.of_ids(batch.ids[row, batch.mask[row].bool()][None])
        found = ablations(model, alone, target, sites, by="site", baseline=replacement)
        assert np.allclose(together[:, 0, row], found.values[0], atol=1e-10)


def test_the_result_is_saved_drawn_and_read(tmp_path):
    model = Model.load(tiny().hf, tokenizer=word_tokenizer(closing=True))
    found = ablations(model, "the keys near cabinet", TARGET)
    found.save(tmp_path / "saved")
    assert Ablations.load(tmp_path / "saved").same(found)
    assert found.provenance.corpus["text"] == "the keys near cabinet"
    titles = [axes.get_title() for axes in found.plot().axes if axes.get_title()]
    assert titles == [TARGET.resolve(model, model.tokenize("the keys near cabinet")).name]
    many = ablations(model, "the keys near cabinet", [TARGET, Target.token(9, position=1)], "neurons.*", by="unit")
    figure = many.plot()
    assert len(figure.axes) == 2
    assert len(figure.axes[0].patches) == 25
    assert f"of {len(many.axes['place'])}" in figure.get_supxlabel()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"units": [1, 4]}, "heads.0 has 4 heads, numbered 0 to 3; head 4 does not exist"),
        ({"units": [-1]}, "head -1 does not exist"),
        ({"units": []}, "An empty list of heads was given"),
        ({"sites": "mlp.1"}, "mlp.1 has no heads; take it away with by='unit' or by='site'"),
        ({"sites": "mlp.1", "by": "site", "units": [3]}, "Units of mlp.1 were chosen, and it is taken away whole"),
        ({"sites": "neurons.1", "by": "unit", "units": [9999]}, "unit 9999 does not exist"),
        ({"span": (2, 7)}, r"The span \(2, 7\) does not lie within the text's 6 tokens"),
        ({"span": (-1, 2)}, r"The span \(-1, 2\) does not lie"),
        ({"by": "layer"}, "taken away by site, head, unit, not by 'layer'"),
        ({"sites": "logits", "by": "unit"}, "The logits are the answer itself"),
        ({"sites": "pattern.1", "baseline": "mean"}, "no mean over the text; replace them by zero"),
        ({"baseline": "noise"}, "There is no baseline 'noise'"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(options, told):
    with pytest.raises(AttributionError, match=told) as error:
        ablations(tiny(), IDS, TARGET, **options)
    assert "\n" not in str(error.value)


def test_one_text_at_a_time():
    with pytest.raises(AttributionError, match="ablations takes one text, not 3"):
        ablations(tiny("gpt2"), padded("gpt2"), TARGET)
