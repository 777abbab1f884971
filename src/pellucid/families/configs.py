"""Tiny random models of every family that the family check covers, and inputs for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel

Head = Literal["lm", "mlm", "seq2seq", "none"]

VOCABULARY = 97
FIRST_ORDINARY_ID = 6  # the ids below serve as special tokens
LENGTHS = (11, 7, 4)
TARGET_LENGTHS = (5, 9, 6)

# Sizes that all differ, so that a transposed or misread weight cannot pass: 40 wide, 4 heads, 56 MLP units.
_TOKENS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_ENCODER: dict[str, Any] = {
    "hidden_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 56,
    "max_position_embeddings": 70,
}
_DECODER: dict[str, Any] = {**_ENCODER, "num_key_value_heads": 2}
_WIDE_HEADS: dict[str, Any] = {**_DECODER, "head_dim": 12}
_GPT: dict[str, Any] = {"n_embd": 40, "n_layer": 3, "n_head": 4, "n_inner": 56, "n_positions": 70}
_ROBERTA: dict[str, Any] = {**_ENCODER, "pad_token_id": 1, "bos_token_id": 0}
_T5: dict[str, Any] = {
    "d_model": 40,
    "d_kv": 12,
    "d_ff": 56,
    "num_layers": 3,
    "num_decoder_layers": 4,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "bos_token_id": None,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
_BART: dict[str, Any] = {
    "d_model": 40,
    "encoder_layers": 3,
    "encoder_ffn_dim": 56,
    "encoder_attention_heads": 4,
    "encoder_layerdrop": 0.0,
    "decoder_layers": 4,
    "decoder_ffn_dim": 48,
    "decoder_attention_heads": 2,
    "decoder_layerdrop": 0.0,
    "max_position_embeddings": 70,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
_DEBERTA: dict[str, Any] = {
    **_ENCODER,
    "relative_attention": True,
    "max_relative_positions": 5,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
_ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]
_PARTIAL_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.4}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 16,
}
_RANDOM_BUFFERS = ("e_score_correction_bias", "final_logits_bias")


@dataclass(frozen=True)
class Family:
    """One family: its name, `model_type`, head and the settings of its tiny model.

    `gain` scales the random weights: smaller where the family does not scale its attention scores.
    """

    name: str
    model_type: str
    head: Head
    settings: Mapping[str, Any] = field(default_factory=dict)
    gain: float = 1.2

    @property
    def is_seq2seq(self) -> bool:
        """Whether the family has an encoder, a decoder and cross attention."""
        return self.head == "seq2seq"


def _family(name: str, head: Head, settings: Mapping[str, Any], *, gain: float = 1.2) -> Family:
    merged = {"vocab_size": VOCABULARY, **_TOKENS, **settings}
    return Family(name, name, head, MappingProxyType(merged), gain)


def _encoders() -> list[Family]:
    xlnet = {"d_model": 40, "n_layer": 3, "n_head": 4, "d_inner": 56, "mem_len": None, "use_mems_eval": False}
    flaubert = {
        "emb_dim": 40,
        "n_layers": 3,
        "n_heads": 4,
        "max_position_embeddings": 70,
        "pad_token_id": 2,
        "pad_index": 2,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    distilbert = {"dim": 40, "n_layers": 3, "n_heads": 4, "hidden_dim": 56, "max_position_embeddings": 70}
    modernbert = {**_ENCODER, "local_attention": 6, "cls_token_id": 1, "sep_token_id": 2}
    deberta_v2 = {**_DEBERTA, "position_buckets": 4, "norm_rel_ebd": "layer_norm", "share_att_key": True}
    return [
        _family("bert", "mlm", _ENCODER),
        _family("roberta", "mlm", _ROBERTA),
        _family("xlm-roberta", "mlm", _ROBERTA),
        _family("distilbert", "mlm", distilbert),
        _family("electra", "mlm", {**_ENCODER, "embedding_size": 24}),
        _family("albert", "mlm", {**_ENCODER, "embedding_size": 24, "num_hidden_groups": 1}),
        _family("deberta", "mlm", _DEBERTA),
        _family("deberta-v2", "mlm", {**deberta_v2, "max_relative_positions": 12}),
        _family("mpnet", "mlm", _ROBERTA),
        _family("camembert", "mlm", _ROBERTA),
        _family("flaubert", "mlm", flaubert),
        _family("xlnet", "lm", xlnet),
        _family("longformer", "mlm", {**_ROBERTA, "attention_window": [4, 4, 4], "sep_token_id": 2}),
        _family("modernbert", "mlm", modernbert),
        _family("ernie", "mlm", _ENCODER),
    ]


def _decoders() -> list[Family]:
    neo = {
        "hidden_size": 40,
        "num_layers": 3,
        "num_heads": 4,
        "intermediate_size": 56,
        "attention_types": [[["global", "local"], 1], [["global"], 1]],
        "window_size": 6,
        "max_position_embeddings": 70,
    }
    opt = {
        **_ENCODER,
        "ffn_dim": 56,
        "do_layer_norm_before": True,
        "word_embed_proj_dim": 40,
        "pad_token_id": 1,
    }
    opt.pop("intermediate_size")
    falcon = {**_ENCODER, "ffn_hidden_size": 56, "multi_query": True, "parallel_attn": True}
    falcon.pop("intermediate_size")
    mpt = {"d_model": 40, "n_heads": 4, "n_layers": 3, "expansion_ratio": 2, "max_seq_len": 70}
    xglm = {
        "d_model": 40,
        "num_layers": 3,
        "attention_heads": 4,
        "ffn_dim": 56,
        "max_position_embeddings": 70,
    }
    rotary = {**_ENCODER, "rope_parameters": _PARTIAL_ROPE}
    return [
        _family("gpt2", "lm", _GPT),
        _family("gpt_neo", "lm", neo, gain=0.7),
        _family("gpt_neox", "lm", rotary),
        _family("gptj", "lm", {**_GPT, "rotary_dim": 4}),
        _family("opt", "lm", opt),
        _family("bloom", "lm", {"hidden_size": 40, "n_layer": 3, "n_head": 4}),
        _family("falcon", "lm", falcon),
        _family("phi", "lm", {**rotary, "num_key_value_heads": 2}),
        _family("phi3", "lm", {**_DECODER, "sliding_window": 6}),
        _family("stablelm", "lm", {**rotary, "num_key_value_heads": 2, "use_qkv_bias": True}),
        _family("codegen", "lm", {**_GPT, "rotary_dim": 4, "n_ctx": 70}),
        _family("mpt", "lm", mpt),
        _family("biogpt", "lm", {**_ENCODER, "pad_token_id": 1, "bos_token_id": 0}),
        _family("xglm", "lm", {**xglm, "pad_token_id": 1, "bos_token_id": 0}),
    ]


def _llama_like() -> list[Family]:
    granite = {
        **_DECODER,
        "residual_multiplier": 0.7,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.4,
        "logits_scaling": 2.0,
    }
    gemma2 = {
        **_WIDE_HEADS,
        "query_pre_attn_scalar": 7,
        "sliding_window": 6,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 5.0,
    }
    gemma3 = {**_WIDE_HEADS, "query_pre_attn_scalar": 7, "sliding_window": 6, "layer_types": _ALTERNATING}
    qwen2 = {**_DECODER, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
    return [
        _family("llama", "lm", _WIDE_HEADS),
        _family("mistral", "lm", {**_WIDE_HEADS, "sliding_window": 6}),
        _family("qwen2", "lm", qwen2),
        _family("qwen3", "lm", _WIDE_HEADS),
        _family("gemma", "lm", _WIDE_HEADS),
        _family("gemma2", "lm", gemma2),
        _family("gemma3_text", "lm", gemma3),
        _family("olmo", "lm", {**_DECODER, "clip_qkv": 1.5}),
        _family("olmo2", "lm", _DECODER),
        _family("starcoder2", "lm", {**_DECODER, "sliding_window": 6}),
        _family("cohere", "lm", {**_DECODER, "use_qk_norm": True, "logit_scale": 0.25}),
        _family("granite", "lm", granite),
        _family("smollm3", "lm", {**_DECODER, "no_rope_layer_interval": 2}),
    ]


def _mixtures() -> list[Family]:
    four_experts = {**_WIDE_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2}
    qwen3_moe = {
        **_WIDE_HEADS,
        "intermediate_size": 64,
        "moe_intermediate_size": 24,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    deepseek = {
        **_ENCODER,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 24,
        "n_routed_experts": 6,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "q_lora_rank": 16,
        "kv_lora_rank": 14,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8,
        "v_head_dim": 6,
        "num_mtp_layers": 0,
    }
    gpt_oss = {
        **four_experts,
        "sliding_window": 6,
        "layer_types": _ALTERNATING,
        "rope_parameters": _YARN,
        "max_position_embeddings": 64,
    }
    return [
        _family("mixtral", "lm", four_experts),
        _family("qwen3_moe", "lm", qwen3_moe),
        _family("gpt_oss", "lm", gpt_oss),
        _family("deepseek_v3", "lm", deepseek),
    ]


def _encoder_decoders() -> list[Family]:
    led = {**_BART, "attention_window": [4, 4, 4]}
    led.pop("max_position_embeddings")
    led |= {"max_encoder_position_embeddings": 70, "max_decoder_position_embeddings": 70}
    return [
        _family("t5", "seq2seq", _T5, gain=0.7),
        _family("mt5", "seq2seq", {**_T5, "feed_forward_proj": "gated-gelu"}, gain=0.7),
        _family("bart", "seq2seq", _BART),
        _family("mbart", "seq2seq", {**_BART, "scale_embedding": True}),
        _family("marian", "seq2seq", {**_BART, "scale_embedding": True, "decoder_start_token_id": 1}),
        _family("m2m_100", "seq2seq", _BART),
        _family("pegasus", "seq2seq", {**_BART, "scale_embedding": True, "decoder_start_token_id": 1}),
        _family("blenderbot", "seq2seq", _BART),
        _family("led", "seq2seq", led),
    ]


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.name: family
        for group in (_encoders, _decoders, _llama_like, _mixtures, _encoder_decoders)
        for family in group()
    }
)


def build(
    family: Family,
    *,
    seed: int = 0,
    attention: Literal["eager", "sdpa"] = "eager",
    dtype: torch.dtype | None = None,
) -> PreTrainedModel:
    """Build the family's tiny random model, in eval mode; the same seed gives the same weights.

    A family without sdpa runs eager whatever is asked. `dtype` defaults to float32.
    """
    import torch
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
        AutoModelForSeq2SeqLM,
    )

    classes = {"lm": AutoModelForCausalLM, "mlm": AutoModelForMaskedLM, "seq2seq": AutoModelForSeq2SeqLM}
    chosen = classes.get(family.head, AutoModel)
    config = AutoConfig.for_model(family.model_type, **family.settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            model = chosen.from_config(config, attn_implementation=attention)
        except ValueError:
            if attention == "eager":
                raise
            model = chosen.from_config(config, attn_implementation="eager")
    _randomise(model, gain=family.gain, seed=seed)
    return model.to(dtype or torch.float32).eval()


def _randomise(model: PreTrainedModel, *, gain: float, seed: int) -> None:
    """Redraw every trained weight, so that no bias is 0, no norm 1 and no attention uniform."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in model.named_parameters():
            if not parameter.requires_grad:  # sinusoidal position tables stay what they are
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2:  # biases around 0, norm weights around their start
                parameter.add_(0.3 * noise)
            else:
                parameter.copy_(noise * gain / parameter.shape[-1] ** 0.5)
        for name, buffer in model.named_buffers():
            if name.rpartition(".")[2] in _RANDOM_BUFFERS:
                buffer.add_(0.3 * torch.randn(buffer.shape, generator=generator))


def inputs(family: Family, *, side: Literal["right", "left"] = "right", seed: int = 0) -> dict[str, Tensor]:
    """Draw a padded batch of ordinary tokens: ids, masks [3, 11]; for seq2seq the decoder too [3, 9]."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    pad = int(family.settings["pad_token_id"])
    ids, mask = _padded(LENGTHS, pad, side, generator)
    batch = {"input_ids": ids, "attention_mask": mask}
    if family.is_seq2seq:
        batch["decoder_input_ids"], batch["decoder_attention_mask"] = _padded(
            TARGET_LENGTHS, pad, side, generator, start=int(family.settings["decoder_start_token_id"])
        )
    return batch


def _padded(
    lengths: tuple[int, ...], pad: int, side: str, generator: torch.Generator, *, start: int | None = None
) -> tuple[Tensor, Tensor]:
    """Draw rows of the given lengths, padded to the longest: ids [B, T] and mask [B, T]."""
    import torch

    longest = max(lengths)
    ids = torch.full((len(lengths), longest), pad)
    mask = torch.zeros(len(lengths), longest, dtype=torch.long)
    for row, length in enumerate(lengths):
        places = slice(0, length) if side == "right" else slice(longest - length, longest)
        drawn = torch.randint(FIRST_ORDINARY_ID, VOCABULARY, (length,), generator=generator)
        if start is not None:
            drawn[0] = start
        ids[row, places] = drawn
        mask[row, places] = 1
    return ids, mask
