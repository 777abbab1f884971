"""Where each family keeps its parts: written from the families' own model code, read only by the oracle.

Paths are relative to the model with its head; `{}` stands for the number of the block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

Form = Literal["pre", "post", "sandwich", "parallel"]


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: its weights, router and shared expert, from block `first` on.

    `transposed` experts hold `down_proj` as [E, n, d] with a bias, others as [E, d, n].
    """

    experts: str
    router: str
    norm: str
    shared: str = ""
    transposed: bool = False
    first_attribute: str = ""


@dataclass(frozen=True)
class Stack:
    """One stack of blocks: the form of its blocks and the paths of their parts.

    `attn_norm`, `cross_norm` and `mlp_norm` are the norms after the residual sum in post-norm blocks, and
    those on the sub-layer's output in sandwich blocks; `scale` says how the family scales query · key;
    `bias` is a table of relative positions (up to `bias_distance`, 0: as the config says); `content` is the
    attention module of a family whose scores are more than query · key.
    """

    form: Form
    embedding: str
    attn_out: str
    mlp_down: str
    attn_norm: str = ""
    mlp_norm: str = ""
    cross_out: str = ""
    cross_norm: str = ""
    final_norm: str = ""
    layers: str = "num_hidden_layers"
    causal: bool = False
    orientation: Literal["linear", "conv1d", "einsum"] = "linear"
    scaled_embedding: bool = False
    scale: Literal["width", "one", "granite", "gemma"] = "width"
    softcap: str = ""
    multiplier: str = ""
    window: Literal["", "every", "typed", "local", "centred", "longformer"] = ""
    bias: str = ""
    bias_distance: int = 0
    alibi: bool = False
    sinks: str = ""
    content: str = ""
    experts: Experts | None = None


@dataclass(frozen=True)
class Head:
    """From the last stream to the logits: an optional dense layer, activation and norm, then `out`."""

    out: str
    dense: str = ""
    norm: str = ""
    activation: Literal["gelu", "config"] = "gelu"
    multiply: str = ""
    divide: str = ""
    softcap: str = ""
    by_width: bool = False
    bias: str = ""


@dataclass(frozen=True)
class Row:
    """One family: its stacks by the prefix of their sites (`""`, `"encoder."`, `"decoder."`) and its head."""

    stacks: Mapping[str, Stack]
    head: Head


def _single(stack: Stack, head: Head) -> Row:
    return Row(MappingProxyType({"": stack}), head)


def _bert(base: str) -> Stack:
    block = f"{base}.encoder.layer.{{}}"
    return Stack(
        "post",
        embedding=f"{base}.embeddings.word_embeddings",
        attn_out=f"{block}.attention.output.dense",
        attn_norm=f"{block}.attention.output.LayerNorm",
        mlp_down=f"{block}.output.dense",
        mlp_norm=f"{block}.output.LayerNorm",
    )


_BERT_HEAD = Head("cls.predictions.decoder", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm")
_ROBERTA_HEAD = Head("lm_head.decoder", "lm_head.dense", "lm_head.layer_norm")
_ELECTRA_HEAD = Head("generator_lm_head", "generator_predictions.dense", "generator_predictions.LayerNorm")
_LM = Head("lm_head")


def _berts() -> dict[str, Row]:
    """BERT, and the families that changed little about it."""
    longformer = replace(_bert("longformer"), scale="one", window="longformer")
    deberta = replace(_bert("deberta"), content="deberta.encoder.layer.{}.attention.self")
    mpnet = replace(
        _bert("mpnet"),
        attn_out="mpnet.encoder.layer.{}.attention.attn.o",
        attn_norm="mpnet.encoder.layer.{}.attention.LayerNorm",
        bias="mpnet.encoder.relative_attention_bias",
        bias_distance=128,
    )
    return {
        "bert": _single(_bert("bert"), _BERT_HEAD),
        "roberta": _single(_bert("roberta"), _ROBERTA_HEAD),
        "xlm-roberta": _single(_bert("roberta"), _ROBERTA_HEAD),
        "camembert": _single(_bert("roberta"), _ROBERTA_HEAD),
        "ernie": _single(_bert("ernie"), _BERT_HEAD),
        "electra": _single(_bert("electra"), _ELECTRA_HEAD),
        "longformer": _single(longformer, _ROBERTA_HEAD),
        "deberta": _single(deberta, _BERT_HEAD),
        "deberta-v2": _single(deberta, _BERT_HEAD),
        "mpnet": _single(mpnet, _ROBERTA_HEAD),
    }


def _encoders() -> dict[str, Row]:
    """Encoders with names of their own for the parts of a block."""
    albert_layer = "albert.encoder.albert_layer_groups.0.albert_layers.0"  # one block, run in every layer
    albert = Stack(
        "post",
        embedding="albert.embeddings.word_embeddings",
        attn_out=f"{albert_layer}.attention.dense",
        attn_norm=f"{albert_layer}.attention.LayerNorm",
        mlp_down=f"{albert_layer}.ffn_output",
        mlp_norm=f"{albert_layer}.full_layer_layer_norm",
    )
    distilbert = Stack(
        "post",
        embedding="distilbert.embeddings.word_embeddings",
        attn_out="distilbert.transformer.layer.{}.attention.out_lin",
        attn_norm="distilbert.transformer.layer.{}.sa_layer_norm",
        mlp_down="distilbert.transformer.layer.{}.ffn.lin2",
        mlp_norm="distilbert.transformer.layer.{}.output_layer_norm",
    )
    flaubert = Stack(
        "post",
        embedding="transformer.embeddings",
        attn_out="transformer.attentions.{}.out_lin",
        attn_norm="transformer.layer_norm1.{}",
        mlp_down="transformer.ffns.{}.lin2",
        mlp_norm="transformer.layer_norm2.{}",
        scale="one",
    )
    xlnet = Stack(
        "post",
        embedding="transformer.word_embedding",
        attn_out="transformer.layer.{}.rel_attn",
        attn_norm="transformer.layer.{}.rel_attn.layer_norm",
        mlp_down="transformer.layer.{}.ff.layer_2",
        mlp_norm="transformer.layer.{}.ff.layer_norm",
        orientation="einsum",
        content="transformer.layer.{}.rel_attn",
    )
    modernbert = Stack(
        "pre",
        embedding="model.embeddings.tok_embeddings",
        attn_out="model.layers.{}.attn.Wo",
        mlp_down="model.layers.{}.mlp.Wo",
        final_norm="model.final_norm",
        window="centred",
    )
    return {
        "albert": _single(
            albert,
            Head("predictions.decoder", "predictions.dense", "predictions.LayerNorm", activation="config"),
        ),
        "distilbert": _single(distilbert, Head("vocab_projector", "vocab_transform", "vocab_layer_norm")),
        "flaubert": _single(flaubert, Head("pred_layer.proj")),
        "xlnet": _single(xlnet, Head("lm_loss")),
        "modernbert": _single(modernbert, Head("decoder", "head.dense", "head.norm")),
    }


def _gpt(attn_out: str, mlp_down: str, form: Form = "pre", blocks: str = "transformer.h.{}") -> Stack:
    return Stack(
        form,
        embedding="transformer.wte",
        attn_out=f"{blocks}.{attn_out}",
        mlp_down=f"{blocks}.{mlp_down}",
        final_norm="transformer.ln_f",
        causal=True,
    )


def _decoders() -> dict[str, Row]:
    bloom = replace(
        _gpt("self_attention.dense", "mlp.dense_4h_to_h"), embedding="transformer.word_embeddings", alibi=True
    )
    neox = Stack(
        "parallel",
        embedding="gpt_neox.embed_in",
        attn_out="gpt_neox.layers.{}.attention.dense",
        mlp_down="gpt_neox.layers.{}.mlp.dense_4h_to_h",
        final_norm="gpt_neox.final_layer_norm",
        causal=True,
    )
    opt = Stack(
        "pre",
        embedding="model.decoder.embed_tokens",
        attn_out="model.decoder.layers.{}.self_attn.out_proj",
        mlp_down="model.decoder.layers.{}.fc2",
        final_norm="model.decoder.final_layer_norm",
        causal=True,
        scale="one",
    )
    biogpt = Stack(
        "pre",
        embedding="biogpt.embed_tokens",
        attn_out="biogpt.layers.{}.self_attn.out_proj",
        mlp_down="biogpt.layers.{}.fc2",
        final_norm="biogpt.layer_norm",
        causal=True,
        scaled_embedding=True,
    )
    xglm = Stack(
        "pre",
        embedding="model.embed_tokens",
        attn_out="model.layers.{}.self_attn.out_proj",
        mlp_down="model.layers.{}.fc2",
        final_norm="model.layer_norm",
        causal=True,
        scaled_embedding=True,
        scale="one",
    )
    mpt = replace(
        _gpt("attn.out_proj", "ffn.down_proj", blocks="transformer.blocks.{}"),
        final_norm="transformer.norm_f",
        alibi=True,
    )
    neo = replace(_gpt("attn.attention.out_proj", "mlp.c_proj"), scale="one", window="local")
    return {
        "gpt2": _single(replace(_gpt("attn.c_proj", "mlp.c_proj"), orientation="conv1d"), _LM),
        "gpt_neo": _single(neo, _LM),
        "gpt_neox": _single(neox, _LM),
        "gptj": _single(_gpt("attn.out_proj", "mlp.fc_out", "parallel"), _LM),
        "codegen": _single(_gpt("attn.out_proj", "mlp.fc_out", "parallel"), _LM),
        "opt": _single(opt, _LM),
        "bloom": _single(bloom, _LM),
        "falcon": _single(replace(bloom, form="parallel", alibi=False), _LM),
        "mpt": _single(mpt, _LM),
        "biogpt": _single(biogpt, Head("output_projection")),
        "xglm": _single(xglm, _LM),
    }


_LLAMA = Stack(
    "pre",
    embedding="model.embed_tokens",
    attn_out="model.layers.{}.self_attn.o_proj",
    mlp_down="model.layers.{}.mlp.down_proj",
    final_norm="model.norm",
    causal=True,
)
_SANDWICH = replace(
    _LLAMA,
    form="sandwich",
    attn_norm="model.layers.{}.post_attention_layernorm",
    mlp_norm="model.layers.{}.post_feedforward_layernorm",
)
_GEMMA = replace(_SANDWICH, scaled_embedding=True, scale="gemma", window="typed")
_EXPERTS = Experts(
    "model.layers.{}.mlp.experts", "model.layers.{}.mlp.gate", "model.layers.{}.post_attention_layernorm"
)


def _llama_like() -> dict[str, Row]:
    phi = replace(
        _LLAMA,
        form="parallel",
        attn_out="model.layers.{}.self_attn.dense",
        mlp_down="model.layers.{}.mlp.fc2",
        final_norm="model.final_layernorm",
    )
    gpt_oss = replace(_EXPERTS, router="model.layers.{}.mlp.router", transposed=True)
    deepseek = replace(
        _EXPERTS,
        shared="model.layers.{}.mlp.shared_experts.down_proj",
        first_attribute="first_k_dense_replace",
    )
    stacks = {
        "llama": _LLAMA,
        "qwen3": _LLAMA,
        "olmo": _LLAMA,
        "smollm3": _LLAMA,
        "stablelm": _LLAMA,
        "mistral": replace(_LLAMA, window="every"),
        "phi3": replace(_LLAMA, window="every"),
        "starcoder2": replace(_LLAMA, mlp_down="model.layers.{}.mlp.c_proj", window="every"),
        "qwen2": replace(_LLAMA, window="typed"),
        "gemma": replace(_LLAMA, scaled_embedding=True),
        "gemma3_text": _GEMMA,
        "olmo2": _SANDWICH,
        "phi": phi,
        "mixtral": replace(_LLAMA, experts=_EXPERTS),
        "qwen3_moe": replace(_LLAMA, experts=_EXPERTS),
        "gpt_oss": replace(_LLAMA, window="typed", sinks="model.layers.{}.self_attn.sinks", experts=gpt_oss),
        "deepseek_v3": replace(_LLAMA, experts=deepseek),
    }
    rows = {name: _single(stack, _LM) for name, stack in stacks.items()}
    rows["gemma2"] = _single(
        replace(_GEMMA, softcap="attn_logit_softcapping"), Head("lm_head", softcap="final_logit_softcapping")
    )
    rows["cohere"] = _single(replace(_LLAMA, form="parallel"), Head("lm_head", multiply="logit_scale"))
    rows["granite"] = _single(
        replace(_LLAMA, scale="granite", multiplier="residual_multiplier"),
        Head("lm_head", divide="logits_scaling"),
    )
    return rows


def _t5(head: Head) -> Row:
    def stack(side: str, feed_forward: int, layers: str) -> Stack:
        block = f"{side}.block.{{}}.layer"
        return Stack(
            "pre",
            embedding="shared",
            attn_out=f"{block}.0.SelfAttention.o",
            mlp_down=f"{block}.{feed_forward}.DenseReluDense.wo",
            cross_out=f"{block}.1.EncDecAttention.o" if side == "decoder" else "",
            final_norm=f"{side}.final_layer_norm",
            layers=layers,
            causal=side == "decoder",
            scale="one",
            bias=f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias",
        )

    return Row(
        {
            "encoder.": stack("encoder", 1, "num_layers"),
            "decoder.": stack("decoder", 2, "num_decoder_layers"),
        },
        head,
    )


def _bart(form: Form, *, base: str = "model", scaled: bool = True, bias: bool = True) -> Row:
    """BART's layout: post-norm blocks have norms after the sums, pre-norm stacks end with a norm."""
    post = form == "post"

    def stack(side: str) -> Stack:
        block = f"{base}.{side}.layers.{{}}"
        decoder = side == "decoder"
        return Stack(
            form,
            embedding=f"{base}.shared",
            attn_out=f"{block}.self_attn.out_proj",
            attn_norm=f"{block}.self_attn_layer_norm" if post else "",
            mlp_down=f"{block}.fc2",
            mlp_norm=f"{block}.final_layer_norm" if post else "",
            cross_out=f"{block}.encoder_attn.out_proj" if decoder else "",
            cross_norm=f"{block}.encoder_attn_layer_norm" if decoder and post else "",
            final_norm="" if post else f"{base}.{side}.layer_norm",
            layers=f"{side}_layers",
            causal=decoder,
            scaled_embedding=scaled,
        )

    head = Head("lm_head", bias="final_logits_bias" if bias else "")
    return Row({"encoder.": stack("encoder"), "decoder.": stack("decoder")}, head)


def _encoder_decoders() -> dict[str, Row]:
    led = _bart("post", base="led", scaled=False)
    encoder = replace(
        led.stacks["encoder."],
        attn_out="led.encoder.layers.{}.self_attn.output",
        scale="one",
        window="longformer",
    )
    return {
        "t5": _t5(Head("lm_head", by_width=True)),
        "mt5": _t5(_LM),
        "bart": _bart("post"),
        "marian": _bart("post", scaled=False),
        "mbart": _bart("pre"),
        "m2m_100": _bart("pre", bias=False),
        "pegasus": _bart("pre", scaled=False),
        "blenderbot": _bart("pre"),
        "led": Row({"encoder.": encoder, "decoder.": replace(led.stacks["decoder."], scale="one")}, led.head),
    }


ROWS: Mapping[str, Row] = MappingProxyType(
    {**_berts(), **_encoders(), **_decoders(), **_llama_like(), **_encoder_decoders()}
)
