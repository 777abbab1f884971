"""The survey of a model when it is opened: sites located by one pass, then all of them captured in a second and
compared."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.errors import ModelError
from pellucid.model.attention import uses_interface
from pellucid.model.frame import Frame, Wiring
from pellucid.model.hooks import Recorder
from pellucid.model.locate import locate
from pellucid.model.probe import probe
from pellucid.model.sites import KINDS, Site
from pellucid.model.taps import Located, Tap

BATCH, LENGTH, TARGET_LENGTH = 2, 7, 5


@dataclass(frozen=True)
class Survey:
    """A model's sites, where each is, and the sizes that do not depend on the text."""

    located: Located
    sites: tuple[Site, ...]
    sizes: Mapping[Site, tuple[int, ...]]
    causal: bool = False  # no query of the only stack sees a later key


_TRIES = 3


class _Differs(ModelError):
    """Attention was not seen, or the output was another than the model's own."""


def survey(wiring: Wiring, attention: str) -> Survey:
    """Finds every site of a transformers model and proves that capturing them leaves its output as it was."""
    module: Any = wiring.module
    encoder_decoder = bool(getattr(module.config, "is_encoder_decoder", False))
    if encoder_decoder and type(module).__name__.endswith(("Classification", "QuestionAnswering")):
        raise ModelError(
            f"{type(module).__name__} puts a head for whole texts on an encoder–decoder, which Pellucid does not open; "
            "open it with head='none' or head='seq2seq'."
        )
    inputs = probe_inputs(module)
    for _ in range(_TRIES - 1):  # outputs are compared to the bit, and a busy machine may sum in another order once
        with suppress(_Differs):
            return _attempt(wiring, attention, inputs, encoder_decoder=encoder_decoder)
    return _attempt(wiring, attention, inputs, encoder_decoder=encoder_decoder)


def _attempt(wiring: Wiring, attention: str, inputs: dict[str, Tensor], *, encoder_decoder: bool) -> Survey:
    """One probe pass and one proving pass beside the model's own."""
    module: Any = wiring.module
    plain = _plain(module, inputs)
    for interface in [True, False] if uses_interface(type(module)) else [False]:
        trace = probe(wiring, inputs, attention=attention, interface=interface)
        if not trace.attention or not _same_output(plain, trace.output):
            continue  # attention that bypasses the interface, or differs through it: watch its operations instead
        located = locate(trace, encoder_decoder=encoder_decoder, interface=interface)
        return _prove(wiring, attention, inputs, located, plain, encoder_decoder=encoder_decoder)
    raise _Differs(
        f"{type(module).__name__} ({module.config.model_type}) cannot be opened: no attention of a known form was "
        "seen in its forward pass. "
        "Recurrent and state-space layers are not supported; name places of your own with Model.wrap(module, "
        "tokenize=…, sites=…)."
    )


def probe_inputs(module: Any) -> dict[str, Tensor]:
    """A small batch of random token ids; encoder and decoder have different lengths, so that cross attention shows."""
    encoder_decoder = bool(getattr(module.config, "is_encoder_decoder", False))
    generator = torch.Generator().manual_seed(0)
    vocabulary = getattr(module.get_input_embeddings(), "num_embeddings", None)
    if vocabulary is None:
        raise ModelError(
            f"{type(module).__name__} ({module.config.model_type}) does not read token ids, and Pellucid opens "
            "models of text; name places of your own with Model.wrap(module, tokenize=…, sites=…)."
        )

    def ids(length: int) -> Tensor:
        return torch.randint(vocabulary // 2, vocabulary, (BATCH, length), generator=generator).to(module.device)

    inputs = {"input_ids": ids(LENGTH)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if encoder_decoder:
        inputs["decoder_input_ids"] = ids(TARGET_LENGTH)
        inputs["decoder_attention_mask"] = torch.ones_like(inputs["decoder_input_ids"])
    return inputs


def _plain(module: nn.Module, inputs: dict[str, Tensor]) -> Any:
    """The model's own output; a model that cannot run even so is refused in a sentence."""
    try:
        with torch.no_grad():
            output = module(**inputs)
    except (ValueError, IndexError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{type(module).__name__} cannot run on a small batch of random tokens ({reason}).") from error
    if not isinstance(output, Mapping):
        raise ModelError(f"{type(module).__name__} returns a bare tuple; set return_dict to true in its configuration.")
    if next(iter(output.values())).isnan().any():  # outputs are compared, and NaN is never the same as itself
        raise ModelError(_why_nan(module))
    return output


def _why_nan(module: nn.Module) -> str:
    """The sentence for a model whose output is NaN: its first spoilt parameter, or that all are sound."""
    spoilt = [name for name, weight in module.named_parameters() if not weight.isfinite().all()]
    if spoilt:
        return (
            f"The weights of this {type(module).__name__} contain NaN or infinity, first in {spoilt[0]!r} "
            f"({len(spoilt)} in all), so that all it computes is NaN; take an earlier checkpoint, or copy the model "
            "again."
        )
    return (
        f"{type(module).__name__} computes NaN from a small batch of random tokens, though its weights are finite; "
        "open it with dtype=torch.float32."
    )


def _same_output(one: Any, other: Any) -> bool:
    """Whether two outputs hold the same first tensor, bit for bit."""
    first, second = next(iter(one.values())), next(iter(other.values()))
    return first.shape == second.shape and torch.equal(first, second)


def _prove(
    wiring: Wiring,
    attention: str,
    inputs: dict[str, Tensor],
    located: Located,
    plain: Any,
    *,
    encoder_decoder: bool,
) -> Survey:
    """Captures every located site at once: output unchanged, every site seen, in-place changes by the model guarded."""
    module: Any = wiring.module
    stacks: dict[str | None, str] = (
        {"encoder": "attention_mask", "decoder": "decoder_attention_mask"}
        if encoder_decoder
        else {None: "attention_mask"}
    )
    frame = Frame.of(BATCH, {stack: inputs[name] for stack, name in stacks.items()}, module.device)
    sites = _ordered(located)
    recorder = Recorder(wiring, located, frame, sites=sites)
    with recorder.installed(attention), torch.no_grad():
        output = module(**inputs)
    if not _same_output(plain, output):
        raise _Differs(
            f"Recording would change what {type(module).__name__} computes, so it cannot be opened; please report this."
        )
    values = recorder.steps[-1]
    located = _guarded(located, recorder.changed_in_place())
    empty = [site for site in sites if site.per_head and site in values and not values[site].shape[1]]
    located = replace(
        located,
        missing={
            **located.missing,
            **{str(s): "it never passed in the probe" for s in sites if s not in values},
            **dict.fromkeys(map(str, empty), "all heads of this layer were removed"),
        },
    )
    seen = tuple(site for site in sites if site in values and site not in empty)
    patterns = [values[site] for site in seen if site.kind == "pattern" and site.stack is None]
    causal = bool(patterns) and all(not pattern.triu(1).any() for pattern in patterns)
    if empty and not patterns and not encoder_decoder:  # no pattern is left to tell: the modules still say it
        causal = any(getattr(part, "is_causal", False) is True for part in module.modules())
    return Survey(located, seen, {site: _size(site, values[site]) for site in seen}, causal)


def _guarded(located: Located, changed: list[Site]) -> Located:
    """Copies at capture where the model later changes the tensor in place."""

    def guard(taps: Mapping[Site, Tap]) -> dict[Site, Tap]:
        return {site: replace(tap, clone=True) if site in changed else tap for site, tap in taps.items()}

    return replace(located, taps=guard(located.taps)) if changed else located


def _ordered(located: Located) -> tuple[Site, ...]:
    """Every located site: the embedding, then block by block in the order of computation, then the logits."""
    found = {*located.taps, *located.sums, *located.windows, *located.inline}
    for site in located.attention.values():
        found.update(site.beside(kind) for kind in ("query", "key", "value", "pattern"))
    for site in located.experts.values():
        found.update((site.beside("neurons"), site.beside("routing")))
    stacks = (None, "encoder", "decoder", "cross")

    def place(site: Site) -> tuple[bool, int, int, int]:
        layer = -1 if site.layer is None else int(site.layer)
        return (
            site.kind == "logits",
            min(stacks.index(site.stack), 2),
            layer,
            stacks.index(site.stack) * 100 + KINDS.index(site.kind),
        )

    return tuple(sorted(found, key=place))


def _size(site: Site, value: Tensor) -> tuple[int, ...]:
    if site.kind == "pattern":
        return (value.shape[1],)
    return (value.shape[1], value.shape[3]) if site.per_head else (value.shape[-1],)
