"""A result of every kind, made by its own analysis from a sweep put together by hand; and large ones for figures."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pellucid import Corpus, attribution, heads, identifiability, neurons, overview, similarity
from pellucid.heads.roles.functions import HeadFunctions
from pellucid.heads.roles.statistics import MEASURES, HeadStatistics
from pellucid.model import Model
from pellucid.results import Provenance, Result, Table
from pellucid.train import learning_curves
from tests.found_by_hand import with_twin
from tests.heads.built_models import grammar_corpus, planted, repeated_corpus
from tests.heads.roles import test_statistics as head_sweep
from tests.neurons import test_contexts as unit_sweep
from tests.overview import test_norms as norm_sweep
from tests.overview import test_surprise as word_sweep
from tests.similarity import test_grid as pair_sweep
from tests.similarity import test_heads as head_pair_sweep
from tests.similarity import test_neurons as match_sweep
from tests.similarity import test_training as training_sweep
from tests.tiny_models import WORDS, network, word_tokenizer
from tests.train import runs_by_hand as training_log


def attribution_by_hand() -> Result:
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    methods = ["integrated_gradients", "saliency"]
    return attribution.attribute(model, "the old dog sleeps", method=methods, sites="resid.*", steps=6)


def ablations_by_hand() -> Result:
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    return attribution.ablations(model, "the old dog sleeps", ["token:dog", "token:cat"])


def information_flow_by_hand() -> Result:
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    methods = ["attention", "rollout", "flow", "norms_layernorm", "attribution"]
    found = heads.information_flow(model, "the old dog sleeps", methods, steps=4, heads=True)
    return found.joined(identifiability.hidden_flow(model, "the old dog sleeps"))


def flow_agreement_by_hand() -> Result:
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    texts = ["the old dog sleeps", "a red cat runs near the cabinet", "the keys are old"]
    return identifiability.flow_agreement(model, Corpus.of(texts))


def trust_by_hand() -> Result:
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    texts = ["the old dog sleeps", "a red cat runs near the cabinet", "the keys are old"]
    methods = ["saliency", "integrated_gradients", "ablation"]
    return attribution.trust(model, texts, methods, steps=5, draws=5, perturbations=2, cascade=2)


def generation_by_hand() -> Result:
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    return attribution.generation(model, "the old dog", max_new_tokens=3, steps=6)


def over_corpus_by_hand() -> Result:
    from pellucid.corpus import Corpus

    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    corpus = Corpus.of(["the old dog sleeps", "a red cat runs", "the keys are old", "a dog is near the cabinet"])
    return attribution.over_corpus(model, corpus, group="word", steps=5)


def head_functions_by_hand() -> Result:
    return heads.functions(planted(), grammar_corpus().take(60))


def head_shapes_by_hand() -> Result:
    return heads.shapes(planted(), grammar_corpus().take(30))


def aligned_heads_by_hand() -> Result:
    return heads.alignment(planted(), grammar_corpus().take(30), of="relations", least=5)


def clustered_heads_by_hand() -> Result:
    return heads.clusters(planted(), grammar_corpus().take(30))


def statistics_by_hand() -> Result:
    return heads.statistics(head_sweep.found(with_twin(head_sweep.MODEL)))


def selective_by_hand() -> Result:
    return neurons.selective(unit_sweep.found(with_twin(unit_sweep.MODEL)), top=12, seed=5)


def ranking_by_hand() -> Result:
    from tests.neurons import planted

    return neurons.probeless(planted.model(), planted.corpus().take(60), concept="upos", sites="neurons.*")


def survey_by_hand() -> Result:
    from tests.neurons import planted as tagger

    return neurons.survey(tagger.model(), tagger.corpus().take(30), sites="neurons.*", progress=False)


def reading_by_hand() -> Result:
    from tests.neurons import planted

    names = [planted.names()["NOUN"], "neurons.1:0", "resid.1:3"]
    return neurons.read(planted.model(), planted.corpus().take(60), neurons=names, concept="upos", contexts=4)


def norms_by_hand() -> Result:
    return overview.norms(norm_sweep.found(with_twin(norm_sweep.MODEL)))


def surprise_by_hand() -> Result:
    return overview.surprise(word_sweep.found(with_twin(word_sweep.MODEL)))


def grid_by_hand() -> Result:
    return similarity.grid(pair_sweep.found(with_twin(pair_sweep.MODEL)), "cka,cka-biased,svcca", interval=True)


def significance_by_hand() -> Result:
    return similarity.significance(pair_sweep.found(), permutations=99)


def convergence_by_hand() -> Result:
    return similarity.convergence(training_sweep.found(), "cka,svcca", interval=True)


def epochs_by_hand() -> Result:
    return similarity.epoch_by_epoch(training_sweep.runs())


def matches_by_hand() -> Result:
    models = (match_sweep.ONE, match_sweep.TWO)
    return similarity.neuron_matches(match_sweep.found((*models, *with_twin(match_sweep.TWO)[1:])))


def alike_heads_by_hand() -> Result:
    return similarity.head_patterns(head_pair_sweep.looked(with_twin(head_pair_sweep.MODEL)))


def importance_by_hand() -> Result:
    from tests.heads.measuring_models import CORPORA, model_for

    corpus, changes = CORPORA["classify"]
    return heads.importance(model_for("classify"), corpus, batch=16, progress=False, **changes)


def head_ablation_by_hand() -> Result:
    from tests.heads.measuring_models import CORPORA, model_for

    return heads.ablation(model_for("lm"), CORPORA["lm"][0].take(20), batch=16, progress=False)


def training_by_hand() -> Result:
    with TemporaryDirectory() as folder:
        return learning_curves(training_log.written(Path(folder) / "run", training_log.rows(6, frozen=True)))


def pruning_by_hand() -> Result:
    settings = heads.GateSettings(strength=0.3, epochs=8, batch=8, points=8, rate=0.2)
    return heads.prune(planted(), repeated_corpus(40), settings=settings, draws=3, heads=3, progress=False)


def many_heads(layers: int, count: int, *, causal: bool = True) -> HeadStatistics:
    """Statistics of a model of any size, with numbers that are plausible and no more."""
    rng = np.random.default_rng([layers, count])
    shape = (layers, count)
    values = {name: rng.beta(1.2, 6, size=shape) for name in MEASURES}
    values["entropy"] = rng.gamma(4, 0.5, size=shape)
    values["distance"] = rng.gamma(2, 2.5, size=shape)
    if causal:
        values["next"] = np.zeros(shape)
        values["other specials"] = np.zeros(shape)
    chance = {name: np.full(shape, 0.05) for name in MEASURES} | {"entropy": np.full(shape, 3.1)}
    chance |= {"distance": np.full(shape, 6.2), "next": np.full(shape, 0 if causal else 0.05)}
    chance["other specials"] = np.zeros(shape)
    cells = np.array(list(values.values()))
    axes = {"measure": tuple(MEASURES), "layer": tuple(range(layers)), "head": tuple(range(count))}
    offsets = ("< -8", *range(-8, 9), "> 8")
    share = rng.dirichlet(np.full(len(offsets), 0.15), size=shape).transpose(2, 0, 1)
    flat = np.full(share.shape, 1 / len(offsets))
    return HeadStatistics(
        axes=axes,
        values=cells,
        null=np.array([chance[name] for name in MEASURES]),
        low=cells * 0.9,
        high=cells * 1.1,
        resampled="10 document groups (jackknife, 95%)",
        provenance=Provenance("heads.statistics"),
        tables={
            "offsets": Table(
                {"offset": offsets, "layer": axes["layer"], "head": axes["head"]}, {"share": share, "chance": flat}
            )
        },
    )


def many_functions(layers: int, count: int) -> HeadFunctions:
    """Functions of a model of any size: heads with an even number are positional, the others sinks."""
    shape = (layers, count)
    even = np.indices(shape).sum(0) % 2 == 0
    main = np.where(even, "positional", "sink")
    values = np.stack([np.where(even, 0.95, 0.1), np.where(even, 0.1, 0.8)])
    axes = {"measure": ("positional", "sink"), "layer": tuple(range(layers)), "head": tuple(range(count))}
    grid = {"layer": axes["layer"], "head": axes["head"]}
    labels = {"main": main, "all": main, "offset": np.where(even, "-1", ""), "relation": np.full(shape, "")}
    rules = {"positional": 0.9, "syntactic": 0.1, "rare": 0.5, "rare_times": 3.0, "sink": 0.5, "induction": 0.5}
    return HeadFunctions(
        axes=axes,
        values=values,
        null=np.full(values.shape, 0.1),
        low=values - 0.05,
        high=values + 0.05,
        resampled="10 document groups (jackknife, 95%)",
        provenance=Provenance("heads.functions", {**rules, "duplicate": 0.5, "level": 0.05}),
        tables={
            "labels": Table(grid, labels),
            "tests": Table(axes, {"corrected": np.full(values.shape, 1e-4)}),
            "skipped": Table.of_rows({"function": [], "why": []}),
        },
    )


def _short_texts() -> Corpus:
    return Corpus.of(
        ["the old dog sleeps", "a cat runs to the keys", "the red cabinet", "a dog and a cat", "old keys are red"]
    )


def freedom_by_hand() -> Result:
    return identifiability.attention(Model.load(network("gpt2"), tokenizer=word_tokenizer()), _short_texts())


def _random_words() -> Corpus:
    """Texts that have more words than the values of a tiny model are wide."""
    dice = np.random.default_rng(0)
    return Corpus.of([" ".join(dice.choice(WORDS, 16)) for _ in range(20)])


def functions_changed_by_hand() -> Result:
    return identifiability.functions_changed(
        Model.load(network("gpt2"), tokenizer=word_tokenizer()), _random_words(), halvings=2
    )


def reachable_by_hand() -> Result:
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    return identifiability.reachable(model, _random_words(), sentences=4, queries=4)


def second_attention_by_hand() -> Result:
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    return identifiability.second_attention(model, next(iter(_random_words())).text, "1.2")


def token_identity_by_hand() -> Result:
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    several = Corpus.of([sentence.text for sentence in _short_texts()] * 2)
    return identifiability.tokens(model, several, maps=("identity", "linear"), progress=False)


def mixing_by_hand() -> Result:
    return identifiability.mixing(Model.load(network("gpt2"), tokenizer=word_tokenizer()), _short_texts())
