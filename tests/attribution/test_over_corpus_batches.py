"""Attribution over a corpus: a text gets the same numbers and steps in a padded batch as alone."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from pellucid.attribution import Target, attribute, over_corpus
from pellucid.attribution.over_corpus import _attributed, _Done, _Wanted
from pellucid.attribution.passes import PaddingError
from pellucid.corpus import Corpus
from pellucid.model import Batch, Model
from tests.attribution.small_corpus import classifier, pieces, tagged
from tests.tiny_models import opened, padded, word_tokenizer


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(classifier(), tokenizer=pieces())


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return tagged()


@pytest.mark.parametrize("method", ["integrated_gradients", "conductance,saliency,smoothgrad"])
def test_batches_and_padding_change_nothing(model, corpus, method):
    options = {"sites": "embed,resid.1,heads.1", "group": "upos", "samples": 4}
    one = over_corpus(model, corpus, method=method, batch_tokens=1, **options)
    all_ = over_corpus(model, corpus, method=method, batch_tokens=10_000, **options)
    assert all_.values == pytest.approx(one.values, abs=1e-5)


def test_a_text_is_given_the_steps_that_it_needs_alone(model, corpus):
    one = over_corpus(model, corpus, group="upos", tolerance=1e-6, batch_tokens=1)
    all_ = over_corpus(model, corpus, group="upos", tolerance=1e-6, batch_tokens=10_000)
    assert all_.values == pytest.approx(one.values, abs=1e-5)
    loose = over_corpus(model, corpus, group="upos", tolerance=0.05)
    assert loose.provenance.arguments["most steps"] < all_.provenance.arguments["most steps"]


@pytest.mark.parametrize("causal", [True, False])
def test_raw_attributions_of_a_padded_batch(causal, model):
    """Row by row the numbers of a padded batch are those of the texts alone, at every place."""
    torch.manual_seed(1)
    if causal:
        config = GPT2Config(vocab_size=30, n_positions=32, n_embd=16, n_layer=2, n_head=2)
        model = Model.load(GPT2LMHeadModel(config).eval(), tokenizer=word_tokenizer())
    from pellucid.attribution.computing import Settings
    from pellucid.attribution.methods import chosen
    from pellucid.attribution.targets import asked
    from pellucid.collect.encode import Encoder, Reading
    from pellucid.model.sites import expand

    rows = [[4, 5, 9, 10, 4], [4, 5], [11, 12, 9]]
    mask = torch.tensor([[1] * len(row) + [0] * (7 - len(row)) for row in rows])
    ids = torch.tensor([row + [0] * (7 - len(row)) for row in rows])
    encoder = Encoder(model, Reading(pooling="all"))
    sites = expand("embed,resid.*,mlp.*,heads.*", model.sites)
    methods = chosen("integrated_gradients,conductance,gradient_x_activation,vargrad")
    wanted = _Wanted(
        model, encoder, asked(model, None), methods, sites, "site", False, Settings("zero", steps=8, samples=3)
    )
    found = dict(_attributed(wanted, Batch.of_ids(ids, mask), _Done("zero")))
    for number, row in enumerate(rows):
        alone = attribute(model, Batch.of_ids([row]), method=[m.name for m in methods], sites=sites, steps=8, samples=3)
        assert found[number][:, :, :, : len(row)] == pytest.approx(alone.values, abs=1e-5)
        assert (found[number][:, :, :, len(row) :] == 0).all()


def test_targets_that_are_the_same_for_some_texts_keep_their_places(model, corpus):
    """The predicted class is class 0, 1 or 2 of each text, and texts of many lengths end at many places."""
    told = over_corpus(model, corpus, ["predicted", "class:0", "class:1", "class:2"], group="upos", steps=6)
    assert told.axes["target"] == ("predicted class", "class:0", "class:1", "class:2")
    alone = over_corpus(model, corpus, "class:2", group="upos", steps=6)
    assert told.values[:, :, 3] == pytest.approx(alone.values[:, :, 0], abs=1e-6)


def test_steps_are_judged_also_where_no_sum_is_asked_for(model, corpus):
    """Heads and internal influence have no sum of their own; the input's tells how many steps are enough."""
    options = {"sites": "heads.0", "group": "upos", "tolerance": 1e-4}
    told = over_corpus(model, corpus, method="conductance", **options)
    assert told.provenance.arguments["most steps"] > 25
    influence = over_corpus(model, corpus, method="internal_influence", **options)
    assert influence.provenance.arguments["most steps"] > 25
    assert influence.axes["method"] == ("internal_influence",)


@pytest.mark.parametrize("method", ["ablation", "shapley", "lrp_attn"])
def test_methods_of_other_engines(model, corpus, method):
    one = over_corpus(model, corpus, method=method, group="upos", batch_tokens=1, samples=5)
    all_ = over_corpus(model, corpus, method=method, group="upos", batch_tokens=10_000, samples=5)
    assert all_.values == pytest.approx(one.values, abs=1e-5)
    assert all_.measure("share").sum() == pytest.approx(1)


@pytest.mark.parametrize("family", ["longformer", "led"])
def test_models_without_gradients_beside_padding_are_given_one_text_at_a_time(family, model):
    """In float64, a token that sees only padding has no gradient there, and spoils those of real tokens."""
    from pellucid.attribution.computing import Settings, compute
    from pellucid.attribution.methods import chosen
    from pellucid.collect.encode import Encoder, Reading
    from pellucid.model.sites import expand

    encoder = Encoder(model, Reading(pooling="all"))  # of another model: nothing is encoded here
    model, batch = opened(family, "eager", torch.float64), padded(family)
    aims, methods = (Target.token(7, position=-1),), chosen("saliency")
    sites, settings = expand("*.embed", model.sites)[:1], Settings("zero")
    with pytest.raises(PaddingError, match=r"padded batch: .* one by one, or open the model in float32"):
        compute(model, batch, aims, methods, sites, settings)
    plain = opened(family, "eager")
    assert compute(plain, batch, aims, methods, expand("*.embed", plain.sites), settings)
    found = dict(_attributed(_Wanted(model, encoder, aims, methods, sites, "site", False, settings), batch, _Done("")))
    for row, values in found.items():
        mask = batch.mask[row].bool()
        written = None if batch.target_ids is None else batch.target_ids[row][batch.target_mask[row].bool()][None]
        one = Batch.of_ids(batch.ids[row][mask][None], target_ids=written)
        alone = compute(model, one, aims, methods, sites, settings)[0].parts["saliency", 0, sites[0]][0].sum(dim=1)
        assert values[0, 0, 0, : len(alone)] == pytest.approx(alone.numpy(), rel=1e-9)
        assert alone.isfinite().all()
