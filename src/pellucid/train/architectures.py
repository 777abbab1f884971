"""Networks of each preset and task, made from transformers' own classes, so that every analysis applies to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertGenerationConfig,
    BertGenerationDecoder,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForQuestionAnswering,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    MarianConfig,
    MarianMTModel,
    PreTrainedModel,
)

from pellucid.errors import ModelError, TrainError, listing
from pellucid.model import Model
from pellucid.model.loading import HEADS, quiet
from pellucid.train.architectures_weights import (
    constant,
    draw_published,
    identities,
    output_projections,
    positions,
)
from pellucid.train.folder import ABOUT, Run
from pellucid.train.settings import Settings
from pellucid.train.vocabulary import fits

LABELLED = ("tagger", "classify", "nli")
"""Tasks whose network has one output for each label."""

_BERT: dict[str, type[PreTrainedModel]] = {
    "mlm": BertForMaskedLM,
    "tagger": BertForTokenClassification,
    "classify": BertForSequenceClassification,
    "nli": BertForSequenceClassification,
    "qa": BertForQuestionAnswering,
}
_LLAMA: dict[str, type[PreTrainedModel]] = {
    "lm": LlamaForCausalLM,
    "tagger": LlamaForTokenClassification,
    "classify": LlamaForSequenceClassification,
    "nli": LlamaForSequenceClassification,
    "qa": LlamaForQuestionAnswering,
}
_HEADS = {
    "lm": "lm",
    "mlm": "mlm",
    "tagger": "tagger",
    "translate": "seq2seq",
    "classify": "classifier",
    "nli": "classifier",
    "qa": "qa",
}
_MASKED = ("lm", "tagger", "qa")  # tasks that make sense where a token sees only what stands before it


def build(settings: Settings, tokenizer: Any, labels: Sequence[str] | None) -> PreTrainedModel:
    """An untrained network for the settings, in training mode; the same seed gives the same weights.

    `labels` are the classes in order, for the tasks that have them. The configuration carries their names and the
    special tokens' ids; `thesis` is Vaswani et al. 2017 with the norm after the sum, as published; `identifiable` has
    heads whose outputs are added and whose values are as wide as the stream (Brunner et al. 2020).
    """
    _check(settings, labels)
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(settings.seed)
        network = _BUILDERS[settings.preset](settings, tokenizer, labels)
    return ready(network, settings)


def fine_tuned(source: str | Path, settings: Settings, labels: Sequence[str] | None) -> tuple[PreTrainedModel, Any]:
    """A network that has learned something already, with the task's head, and its own tokenizer.

    `source` is what `Model.load` opens, the folder of a finished training (the network it kept last), or the name of an
    installed package that holds a model. A head with the same labels is kept; any other starts anew, from the settings'
    seed. The network is on the CPU, in float32.
    """
    _check_labels(settings.task, labels)
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(settings.seed)
        model, network = _opened(_found(source), settings.task, labels)
    if model.tokenizer is None:
        raise TrainError(f"{str(source)!r} has no tokenizer beside it, so no text can be read; copy the whole model.")
    if model.limit is not None and settings.length > model.limit:
        raise TrainError(
            f"{str(source)!r} reads at most {model.limit} tokens and length={settings.length} was asked for; give a "
            f"length of at most {model.limit}."
        )
    _settle_special(network, model.tokenizer, source, settings.task)
    network.config.use_cache = False
    fits(model.tokenizer, network.config)
    return ready(network, settings), model.tokenizer


def ready(network: PreTrainedModel, settings: Settings) -> PreTrainedModel:
    """The network with what its configuration cannot say: which tables stay as they are, and the embedding's dropout.

    To be called after a checkpoint of a training was loaded, too. Changes the network itself, and sets it to training.
    """
    for parameter in constant(network):
        parameter.requires_grad_(False)
    if settings.source is None:
        _set_embedding_dropout(network, settings.embedding_dropout)
    return network.train()


def _check(settings: Settings, labels: Sequence[str] | None) -> None:
    """Raises where no network can do what is asked."""
    task, preset = settings.task, settings.preset
    if preset == "identifiable":
        _check_identifiable(settings)
    elif preset == "small" and task == "lm" and not settings.mask:
        raise TrainError(
            "The small language model is a GPT-2, which cannot do without its causal mask; use the preset 'thesis'."
        )
    elif settings.mask and task not in _MASKED:
        raise TrainError(
            f"A causal mask makes no sense for {task}, whose network must see the whole text; the tasks that can have "
            f"one are {listing(_MASKED)}."
        )
    _check_labels(task, labels)


def _check_labels(task: str, labels: Sequence[str] | None) -> None:
    if task in LABELLED and not labels:
        raise TrainError(f"A network for {task} needs the labels it is to tell apart; none were given.")
    if labels and len(set(labels)) != len(labels):
        raise TrainError(f"A label is given twice among {listing(labels)}; name each once.")


def _check_identifiable(settings: Settings) -> None:
    if settings.task not in _LLAMA:
        raise TrainError(
            f"The preset 'identifiable' has no network for {settings.task}; it has those for {listing(_LLAMA)}."
        )
    if not settings.mask:
        raise TrainError(
            "The preset 'identifiable' is a Llama, which cannot do without its causal mask; use the preset 'thesis' "
            "or 'small'."
        )
    if settings.length > settings.width:
        raise TrainError(
            f"Attention over {settings.length} tokens is not determined by its output where values are "
            f"{settings.width} wide; give a length of at most {settings.width} or a width of at least "
            f"{settings.length}."
        )
    if settings.width % settings.heads:
        raise TrainError(
            f"transformers builds this network only where the width is a multiple of the heads, and {settings.width} "
            f"is not one of {settings.heads}; change either."
        )


def _facts(settings: Settings, tokenizer: Any, labels: Sequence[str] | None) -> dict[str, Any]:
    """What every configuration says: special tokens, labels; and no cache, which only generation needs."""
    facts: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "use_cache": False,
        "attn_implementation": "sdpa",
    }
    if settings.task in LABELLED:
        facts["id2label"], facts["label2id"] = _label_names(labels)
    return facts


def _label_names(labels: Sequence[str] | None) -> tuple[dict[int, str], dict[str, int]]:
    assert labels is not None
    return dict(enumerate(labels)), {label: place for place, label in enumerate(labels)}


def _bert_shape(settings: Settings) -> dict[str, Any]:
    return {
        "hidden_size": settings.width,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "intermediate_size": settings.feed_forward,
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.dropout,
        "max_position_embeddings": settings.length,
        "is_decoder": settings.mask,
    }


def _marian_shape(settings: Settings, tokenizer: Any) -> dict[str, Any]:
    sizes = {"layers": settings.layers, "attention_heads": settings.heads, "ffn_dim": settings.feed_forward}
    return {
        **{f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in sizes.items()},
        "d_model": settings.width,
        "dropout": settings.dropout,
        "attention_dropout": settings.dropout,
        "max_position_embeddings": settings.length,
        "scale_embedding": True,
        "activation_function": "relu",
        "decoder_start_token_id": tokenizer.bos_token_id,
        "forced_eos_token_id": tokenizer.eos_token_id,
    }


def _small(settings: Settings, tokenizer: Any, labels: Sequence[str] | None) -> PreTrainedModel:
    """GPT-2 for lm, Marian for translation, BERT for the rest; the output of words shares the embedding's table."""
    facts = _facts(settings, tokenizer, labels)
    if settings.task == "lm":
        config = GPT2Config(
            n_embd=settings.width,
            n_layer=settings.layers,
            n_head=settings.heads,
            n_inner=settings.feed_forward,
            n_positions=settings.length,
            resid_pdrop=settings.dropout,
            attn_pdrop=settings.dropout,
            embd_pdrop=settings.embedding_dropout,
            **facts,
        )
        return GPT2LMHeadModel(config)
    if settings.task == "translate":
        return MarianMTModel(MarianConfig(**_marian_shape(settings, tokenizer), **facts))
    return _BERT[settings.task](BertConfig(**_bert_shape(settings), **facts))


def _thesis(settings: Settings, tokenizer: Any, labels: Sequence[str] | None) -> PreTrainedModel:
    """Norm after the sum, ReLU, fixed sinusoidal positions, an output layer of its own."""
    facts: dict[str, Any] = {**_facts(settings, tokenizer, labels), "tie_word_embeddings": False}
    if settings.task == "translate":
        apart: dict[str, Any] = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": len(tokenizer)}
        network: Any = MarianMTModel(MarianConfig(**_marian_shape(settings, tokenizer), **apart, **facts))
        draw_published(network)
        return network
    shape: dict[str, Any] = {**_bert_shape(settings), "hidden_act": "relu", "layer_norm_eps": 1e-5}
    if settings.task == "lm":
        network = BertGenerationDecoder(BertGenerationConfig(**shape, **facts))
    else:
        paired = settings.task in ("classify", "nli", "qa")
        network = _BERT[settings.task](BertConfig(**shape, type_vocab_size=2 if paired else 1, **facts))
        if not paired:
            network.bert.embeddings.token_type_embeddings.weight.data.zero_()
    draw_published(network)
    embeddings = network.bert.embeddings
    embeddings.position_embeddings.weight.data.copy_(positions(embeddings.position_embeddings.weight))
    return network


def _identifiable(settings: Settings, tokenizer: Any, labels: Sequence[str] | None) -> PreTrainedModel:
    """Llama with heads as wide as the stream and without an output projection: head outputs are added as they are.

    Rotary positions do not enter the values, so in the first block a token that stands twice in a text has the same
    value both times and only the sum of its two weights is determined; later blocks tell them apart.
    """
    config = LlamaConfig(
        hidden_size=settings.width,
        head_dim=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=settings.feed_forward,
        max_position_embeddings=settings.length,
        attention_dropout=settings.dropout,
        tie_word_embeddings=settings.task == "lm",
        **_facts(settings, tokenizer, labels),
    )
    network: Any = _LLAMA[settings.task](config)
    for projection in output_projections(network):
        projection.data.copy_(identities(projection))
    return network


_BUILDERS = {"small": _small, "thesis": _thesis, "identifiable": _identifiable}


def _set_embedding_dropout(network: Any, share: float) -> None:
    """Dropout after the positions; Llama has none there."""
    kind = network.config.model_type
    if kind in ("bert", "bert-generation"):
        network.bert.embeddings.dropout.p = share
    elif kind == "marian":
        network.model.encoder.dropout = network.model.decoder.dropout = share
    elif kind == "gpt2":
        network.transformer.drop.p = share


def _found(source: str | Path) -> str | Path:
    """What to open: of a finished training the network it kept last, of an installed package the model in it."""
    place = Path(source).expanduser()
    if (place / ABOUT).is_file() and not (place / "config.json").is_file():
        return _kept_by(Run.open(place))
    package = str(source).replace("-", "_")
    if not package.isidentifier() or place.exists():
        return source
    spec = find_spec(package)
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        for folder in (Path(root), Path(root) / "model"):
            if (folder / "config.json").is_file():
                return folder
    return source


def _kept_by(run: Run) -> Path:
    """The network that a finished training kept last; of one that is not finished, one must be named."""
    if run.finished:
        return run.checkpoint()
    kept = run.checkpoints()
    named = f", or name one that it kept, such as {str(kept[max(kept)])!r}" if kept else " (it has kept no epoch yet)"
    raise TrainError(
        f"{str(run.folder)!r} is the folder of a training that is not finished, so it has no last network; go on with "
        f"it{named}."
    )


def _opened(source: str | Path, task: str, labels: Sequence[str] | None) -> tuple[Model, Any]:
    """The model as it stands in its files, and the network with a head for the task: its own, or a new one on top."""
    options: dict[str, Any] = {"device": "cpu", "dtype": torch.float32}
    try:
        model = Model.load(source, head=_HEADS[task], **options)
    except ModelError:  # without such a head; what else may be wrong is said by the second attempt
        model = Model.load(source, head="none", **options)
        return model, _with_new_head(model, task, labels)
    network: Any = model.hf
    if task in LABELLED and list(_named(network.config)) != list(labels or ()):
        return model, _with_new_head(model, task, labels)
    return model, network


def _named(config: Any) -> Iterator[str]:
    return (config.id2label.get(place) for place in range(config.num_labels))


def _with_new_head(model: Model, task: str, labels: Sequence[str] | None) -> Any:
    """The network of an opened model under a fresh head, which has one output per label (or an answer's two ends)."""
    trained: Any = model.hf
    config = deepcopy(trained.config)
    if task in LABELLED:
        config.id2label, config.label2id = _label_names(labels)
    elif task == "qa":
        config.num_labels = 2
    auto: Any = getattr(transformers, HEADS[_HEADS[task]])
    try:
        network = auto.from_config(config, attn_implementation=config._attn_implementation, dtype=torch.float32)
    except ValueError:
        raise TrainError(
            f"{model.name!r} is a {config.model_type} model, which cannot have a head for {task}; choose another model "
            "or task."
        ) from None
    result = network.base_model.load_state_dict(trained.base_model.state_dict(), strict=False)
    assert all("pooler" in name for name in result.missing_keys), result.missing_keys
    return network


def _settle_special(network: Any, tokenizer: Any, source: str | Path, task: str) -> None:
    """Sees to it that there is a token to pad with, which the network knows, and one to hide words behind."""
    if task == "mlm" and tokenizer.mask_token_id is None:
        raise TrainError(f"{str(source)!r} has no token to hide words behind, so it cannot learn mlm; choose another.")
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token is None:
            raise TrainError(f"{str(source)!r} has neither a padding nor an end token; choose another model.")
        tokenizer.pad_token = tokenizer.eos_token
    if network.config.pad_token_id is None:
        network.config.pad_token_id = tokenizer.pad_token_id
