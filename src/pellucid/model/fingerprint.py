"""Fingerprints: a short name for a model's exact content, the same on every machine."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.model.fewer_heads import held

_WHOLE = 1 << 20  # elements of a tensor that are hashed one by one; of larger ones a sample and the sum
_SAMPLE = 1 << 16


def fingerprint(module: nn.Module, tokenizer: Any) -> str:
    """A hash of a network's configuration, of all its weights and buffers, and of its tokenizer.

    Tensors of more than a million elements enter with 65,536 evenly spaced elements and the sums of their bit
    patterns, so that naming a model of billions of weights takes seconds.
    """
    digest = blake2b(digest_size=16)
    config: Any = getattr(module, "config", None)
    if config is not None:
        left_out = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "_attn_implementation"}
        settings = {name: value for name, value in config.to_dict().items() if name not in left_out}
        digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    fewer = held(module)
    if fewer is not None and fewer.reason:  # what the configuration does not say
        digest.update(json.dumps(fewer.to_json(), sort_keys=True).encode())
    for name, held_there in sorted(module.state_dict().items()):
        for tensor in _tensors(held_there):
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            for part in _content(tensor.detach()):
                digest.update(part)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        digest.update(_unset(backend).to_str().encode())
    elif tokenizer is not None:
        digest.update(json.dumps(tokenizer.get_vocab(), sort_keys=True).encode())
    return digest.hexdigest()


def _tensors(held_there: Any) -> list[Tensor]:
    """The tensors of an entry of a state: itself, or those that quantised weights are packed in."""
    if isinstance(held_there, Tensor):
        if not held_there.is_quantized:
            return [held_there]
        scales = (
            held_there.q_scale()
            if held_there.qscheme() == torch.per_tensor_affine
            else held_there.q_per_channel_scales()
        )
        return [held_there.int_repr(), torch.as_tensor(scales)]
    parts: list[Any] = list(held_there) if isinstance(held_there, (tuple, list)) else []
    return [tensor for part in parts for tensor in _tensors(part)]


def _unset(backend: Any) -> Any:
    """A tokenizer without truncation and padding, which are settings of its last use and no part of the model."""
    if backend.truncation is None and backend.padding is None:
        return backend
    plain = type(backend).from_str(backend.to_str())
    plain.no_truncation()
    plain.no_padding()
    return plain


def _content(tensor: Tensor) -> list[bytes]:
    """The bytes of a tensor, or of what stands for a large one."""
    if tensor.numel() <= _WHOLE:
        return [_bytes(tensor)]
    flat = tensor.reshape(-1)
    sample = flat[:: max(1, flat.numel() // _SAMPLE)][:_SAMPLE]
    bits = flat.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
    sums = [int(part.to(torch.int64).sum()) for part in bits.split(_WHOLE)]
    return [_bytes(sample), json.dumps(sums).encode()]


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
