"""From what is asked to passes and results: steps that are enough, notes that say what was done, and the whole call."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch

from pellucid.attribution import Attribution, attribute, computing
from pellucid.attribution.precision import precision
from pellucid.attribution.targets import Target
from pellucid.errors import AttributionError, EditError, ModelError, SiteError
from pellucid.model import Batch, Model
from pellucid.model.sites import Site
from tests.attribution.engine_models import headed, ids, model, one, ragged, swept
from tests.tiny_models import error, network, opened, padded, word_tokenizer


def steps_tried(monkeypatch):
    tried = []
    real = computing.sweep_path

    def note(asked, methods, *, rule, steps):
        tried.append(steps)
        return real(asked, methods, rule=rule, steps=steps)

    monkeypatch.setattr(computing, "sweep_path", note)
    return tried


def test_steps_grow_until_sums_are_complete(monkeypatch):
    tried = steps_tried(monkeypatch)
    for tolerance, most in ((0.5, 25), (0.01, 100), (1e-7, 400)):
        tried.clear()
        found = swept(headed("classifier"), ids(), Target.label(2), "conductance", "resid.*", tolerance=tolerance)
        worst = max(float(each.error.max()) for each in computing.completeness.sums(found))
        assert found.steps == tried[-1] <= most
        assert found.points == sum(steps + 1 for steps in tried)
        assert (worst <= tolerance) == ("still miss" not in found.note)
    assert tried[0] == 25
    assert "after 400 steps sums still miss the target's change by" in found.note
    assert len(tried) < 5, "numbers of steps that cannot do are left out"


def test_a_method_without_sums_of_its_own_is_judged_by_the_inputs(monkeypatch):
    tried = steps_tried(monkeypatch)
    found = swept(
        opened("llama"), ids(), Target.token(9), "internal_influence", "resid.2", baseline="mean", tolerance=1e-5
    )
    assert len(tried) > 1
    assert set(found.parts) == {("internal_influence", 0, Site("resid", 2))}, (
        "what was only judged by is not given back"
    )


def test_gradients_at_the_text_need_no_path():
    found = swept(headed("classifier"), ids(), Target.label(2), "saliency,gradient_x_activation", "resid.*")
    assert found.points == 1
    assert float(found.end) == pytest.approx(float(headed("classifier").run(ids()).logits[0, 2]))
    assert found.start is None
    assert (found.steps, found.baseline) == (0, "")


@pytest.mark.parametrize("method", ["saliency", "smoothgrad", "lrp_attn"])
def test_a_method_that_looks_at_no_baseline_runs_none(method, monkeypatch):
    def never(*_):
        raise AssertionError("a baseline was made")

    monkeypatch.setattr(computing, "baseline", never)
    monkeypatch.setattr(computing, "settled", never)
    result = attribute(headed("classifier"), ids(), Target.label(2), method, samples=2)
    assert set(result.targets.columns) == {"target", "score"}
    assert "baseline" not in result.provenance.arguments
    with pytest.raises(AttributionError, match="There is no baseline 'nothing'"):
        attribute(headed("classifier"), ids(), Target.label(2), method, baseline="nothing")


@pytest.mark.parametrize("other", ["saliency", "lrp_attn", "smoothgrad"])
@pytest.mark.parametrize("method", ["conductance", "integrated_gradients"])
def test_beside_one_that_does_the_baseline_is_told(other, method):
    options = {"baseline": "zero", "steps": 8, "samples": 2}
    result = attribute(headed("classifier"), ids(), Target.label(2), [other, method], "resid.1", **options)
    alone = attribute(headed("classifier"), ids(), Target.label(2), method, "resid.1", **options)
    assert result.targets.columns["baseline"] == pytest.approx(alone.targets.columns["baseline"])
    assert result.targets.columns["baseline"][0] != 0


def test_the_automatic_baseline_says_what_it_is():
    found = attribute(opened("llama"), ids(), Target.token(9), steps=30)
    assert "baseline: the mean embedding" in found.provenance.arguments["note"]
    assert float(found.completeness.columns["relative error"][0]) < 0.05
    assert "note" not in attribute(headed("classifier"), ids(), steps=30).provenance.arguments


def test_gradients_that_overflow_are_a_sentence_not_numbers():
    """A deep model without positions, from zeros: each norm multiplies the gradient by a thousand."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "vocab_size": 97}
    net = LlamaForCausalLM(LlamaConfig(num_hidden_layers=12, attn_implementation="eager", **sizes)).eval()
    with torch.no_grad():
        for weight in net.parameters():
            if weight.dim() > 1:
                weight.normal_(generator=torch.Generator().manual_seed(0))
    deep = Model.load(net)
    with pytest.raises(AttributionError, match=r"conductance at resid.3 is not a finite number: .* such as mean"):
        swept(deep, ids(), Target.token(9), "conductance", "resid.3", steps=5)
    assert np.isfinite(attribute(deep, ids(), Target.token(9), "conductance", "resid.3", steps=5).values).all()


@pytest.mark.parametrize("name", ["t5", "marian"])
def test_tokens_of_both_texts_have_their_own_places(name):
    net, both = opened(name), padded(name)
    kept = both.target_mask[0].bool()
    batch = Batch.of_ids(both.ids[:1], target_ids=both.target_ids[:1, kept])
    source, target = batch.ids.shape[1], batch.target_ids.shape[1]
    sites = ["encoder.embed", "decoder.embed", "cross.pattern.1", "cross.value.1", "cross.heads.1", "encoder.mlp.0"]
    found = attribute(net, batch, Target.token(9, position=-1), "saliency", sites, by="site")
    assert found.values.shape == (1, 1, len(sites), source + target)
    for place, side in zip(sites, ("source", "target", "source", "source", "target", "source"), strict=True):
        row = found.values[0, 0, sites.index(place)]
        inside = row[:source] if side == "source" else row[source:]
        outside = row[source:] if side == "source" else row[:source]
        assert inside.all(), place
        assert not outside.any(), place
    assert found.tokens.columns["side"].tolist() == ["source"] * source + ["target"] * target


def test_features_are_summed_and_patterns_belong_to_the_token_looked_at():
    net, batch, target = model("gpt2"), ids(), Target.token(9)
    raw = swept(net, batch, target, "gradient_x_activation", "heads.1,pattern.1,neurons.1,embed")
    wanted = {
        ("heads.1", "site"): raw.parts["gradient_x_activation", 0, Site("heads", 1)][0].sum((0, 2))[None],
        ("heads.1", "head"): raw.parts["gradient_x_activation", 0, Site("heads", 1)][0].sum(2),
        ("pattern.1", "head"): raw.parts["gradient_x_activation", 0, Site("pattern", 1)][0].sum(1),
        ("neurons.1", "unit"): raw.parts["gradient_x_activation", 0, Site("neurons", 1)][0].T,
        ("embed", "head"): raw.parts["gradient_x_activation", 0, Site("embed")][0].sum(1)[None],
    }
    for (site, by), told in wanted.items():
        found = attribute(net, batch, target, "gradient_x_activation", site, by=by)
        assert error(torch.tensor(found.values[0, 0]), told) < 1e-9, (site, by)
        names = [site] if len(told) == 1 else [f"{site}:{number}" for number in range(len(told))]
        assert list(found.axes["place"]) == names


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_around_one_text_is_left_out(side):
    batch = ragged(side)
    padded_one = Batch.of_ids(batch.ids[1:], batch.mask[1:])
    found = attribute(model("gpt2"), padded_one, Target.token(9), "saliency", "embed,heads.1")
    alone = attribute(model("gpt2"), one(batch, 1), Target.token(9), "saliency", "embed,heads.1")
    assert found.axes == alone.axes
    assert np.allclose(found.values, alone.values)


def test_words_are_read_and_told():
    net = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    found = attribute(net, "the old dog", ["token:runs", "log:sleeps@1"], ["ig", "gradient"], "embed")
    assert isinstance(found, Attribution)
    assert list(found.axes["measure"]) == ["integrated_gradients", "saliency"]
    assert list(found.axes["target"]) == ["'runs' after token 2", "log p of 'sleeps' after token 1"]
    assert list(found.axes["token"]) == ["0 the", "1 old", "2 dog"]
    rows = found.targets.columns
    assert np.allclose(rows["change"], rows["score"] - rows["baseline"])
    sums = found.values[0].sum(axis=(1, 2))
    assert np.allclose(sums, rows["change"], rtol=0.02)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"by": "token"}, AttributionError, r"given by site, head, unit, not by 'token'"),
        ({"method": "magic"}, AttributionError, r"no method of attribution 'magic'; the methods are saliency"),
        ({"method": []}, AttributionError, r"No method was given"),
        ({"sites": "logits", "method": "saliency"}, AttributionError, r"'logits' is what is explained"),
        ({"sites": "heads.9"}, SiteError, r"No site matches 'heads.9'"),
        ({"rule": "simpson"}, AttributionError, r"no rule 'simpson'"),
        ({"steps": 1}, AttributionError, r"given 1 steps; it needs at least 2"),
        ({"baseline": "dark"}, AttributionError, r"no baseline 'dark'"),
    ],
)
def test_bad_options_are_a_sentence(options, kind, message):
    with pytest.raises(kind, match=message):
        attribute(model("gpt2"), ids(), Target.token(9), **options)


def test_what_a_model_does_not_allow_is_a_sentence():
    with pytest.raises(AttributionError, match=r"attribute takes one text, not 2; use over_corpus"):
        attribute(model("gpt2"), ids(2), Target.token(9))
    longformer = opened("longformer")
    with pytest.raises(ModelError, match=r"with respect to pattern.0 cannot be had: .* chunks of a window"):
        attribute(longformer, ids(), Target.token(9, position=1), "conductance", "pattern.0", steps=3)
    fused = opened("gpt2", "sdpa", torch.float64)
    with pytest.raises((EditError, ModelError), match=r"pattern.1 needs? eager attention"):
        attribute(fused, ids(), Target.token(9), "integrated_gradients", "pattern.1", steps=3)


def test_the_precision_of_all_parameters_is_told():
    """Weights of several types, and in half precision; numbers are near those in full precision."""
    plain = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    half = Model.load(deepcopy(network("gpt2")).to(torch.bfloat16), tokenizer=word_tokenizer())
    given = {"target": "token:cat", "steps": 8}
    full, rough = (attribute(each, "the old dog", **given) for each in (plain, half))
    assert (full.provenance.arguments["precision"], rough.provenance.arguments["precision"]) == ("float32", "bfloat16")
    assert rough.values == pytest.approx(full.values, abs=0.05 * np.abs(full.values).max())
    mixed = deepcopy(network("gpt2"))
    mixed.held = torch.nn.Parameter(torch.zeros(3, dtype=torch.float16))
    assert precision(Model.load(mixed, tokenizer=word_tokenizer())) == "float32 and float16"
    packed = deepcopy(network("gpt2"))
    packed.held = torch.nn.Parameter(torch.zeros(3, dtype=torch.int8), requires_grad=False)
    assert precision(Model.load(packed, tokenizer=word_tokenizer())) == "float32 and int8, quantised weights"


@pytest.mark.filterwarnings("ignore")
def test_quantised_layers_have_ablation_and_no_gradients():
    """Their gradients would read as zeros, without a word."""
    net = torch.ao.quantization.quantize_dynamic(deepcopy(network("llama")), {torch.nn.Linear}, dtype=torch.qint8)
    small, plain = (Model.load(each, tokenizer=word_tokenizer()) for each in (net, network("llama")))
    assert small.fingerprint != plain.fingerprint
    given = {"target": "token:cat", "method": "ablation", "baseline": "zero"}
    found, wanted = (attribute(each, "the old dog", **given) for each in (small, plain))
    assert found.provenance.arguments["precision"] == "float32, quantised weights"
    assert found.values == pytest.approx(wanted.values, abs=0.2 * np.abs(wanted.values).max())
    with pytest.raises(AttributionError, match="saliency needs gradients, and the quantised layers"):
        attribute(small, "the old dog", "token:cat", ["ablation", "saliency"])
