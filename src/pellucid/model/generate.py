"""Generation under a recorder: transformers' own loop, with sites recorded and edits made at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.errors import EditError, ModelError, SiteError, TextError
from pellucid.model.run import Captured, Generation

if TYPE_CHECKING:
    from pellucid.model.hooks import Recorder
    from pellucid.model.model import Model


def generate(
    model: Model,
    recorder: Recorder,
    arguments: dict[str, Any],
    *,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
) -> Generation:
    """Continues the batch in `arguments`; `temperature=0` is greedy."""
    hf: Any = model.hf
    if not hasattr(hf, "can_generate") or not hf.can_generate():
        raise ModelError(f"{type(hf).__name__} cannot generate text: open a model that has a head 'lm' or 'seq2seq'.")
    if max_new_tokens < 1:
        raise TextError(f"max_new_tokens is {max_new_tokens}; it must be at least 1.")
    if temperature < 0 or (temperature == 0 and (top_k is not None or top_p is not None)):
        raise TextError("Sampling needs a temperature above 0; top_k and top_p only narrow it.")
    _check_followed(hf, recorder)
    _check_edits(recorder)
    given = {name: arguments[name] for name in ("input_ids", "attention_mask")}
    length = given["input_ids"].shape[1]
    encoder_decoder = hf.config.is_encoder_decoder
    if encoder_decoder:
        given["decoder_input_ids"] = _started(hf, arguments["decoder_input_ids"])
        length = given["decoder_input_ids"].shape[1]
        if not bool(arguments["decoder_attention_mask"].all()):
            raise TextError("To be continued, all targets must have the same number of tokens; give them one by one.")
    elif not bool(given["attention_mask"][:, -1].all()):
        raise TextError(
            "To be continued, shorter texts must be padded on the left: tokenize(texts, padding_side='left')."
        )
    _check_positions(recorder, length + max_new_tokens)
    if model.limit is not None and length + max_new_tokens > model.limit:
        raise TextError(
            f"The prompt has {length} tokens and {max_new_tokens} more are asked for; this model takes at most "
            f"{model.limit} in all."
        )
    sampling: dict[str, Any] = {"do_sample": temperature > 0, "num_beams": 1, "use_cache": True}
    if temperature > 0:
        sampling.update(temperature=temperature, top_k=top_k or 0, top_p=1.0 if top_p is None else top_p)
    pad = next(
        (
            i
            for i in (
                hf.generation_config.pad_token_id,
                getattr(model.tokenizer, "pad_token_id", None),
                _eos(hf),
            )
            if i is not None
        ),
        0,
    )
    devices = [] if model.device.type == "cpu" else [model.device]
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(seed)
        ids = hf.generate(**given, max_new_tokens=max_new_tokens, pad_token_id=pad, **sampling)
    texts: tuple[str, ...] = ()
    if model.tokenizer is not None:
        texts = tuple(model.tokenizer.batch_decode(ids[:, length:], skip_special_tokens=True))
    return Generation(ids, length, texts, tuple(Captured(step) for step in recorder.taken()))


def _started(hf: Any, ids: Tensor) -> Tensor:
    """Decoder ids with the start token before them, where it is not there yet."""
    start = hf.config.decoder_start_token_id
    if start is None or bool((ids[:, 0] == start).all()):
        return ids
    return torch.cat([torch.full_like(ids[:, :1], start), ids], dim=1)


def _check_followed(hf: Any, recorder: Recorder) -> None:
    """Raises where steps of generation do not read one new token each, or cannot be told apart."""
    if hf.config.model_type in ("xlnet", "xlm", "flaubert") and recorder.touched:
        raise ModelError(
            f"{type(hf).__name__} reads its text anew at every step of generation, so sites cannot be followed there; "
            "use run on the text so far."
        )
    located = recorder.located
    shared = [s for s in recorder.touched if s in located.taps and located.taps[s].module in located.repeated]
    if hf.config.is_encoder_decoder and shared:
        raise ModelError(f"{shared[0]} cannot be followed in generation: encoder and decoder share its module.")


def _check_edits(recorder: Recorder) -> None:
    """Raises for edits that only make sense where a whole text passes at once."""
    for site, edits in recorder.edits.items():
        for edit in edits:
            if edit.action == "mean" and edit.value is None:
                raise EditError(
                    f"The mean over the batch at {site} cannot be used in generation, where each step holds one token; "
                    "give the mean as a tensor: Edit.mean(site, value)."
                )
            if edit.action == "patch" and site.kind in ("key", "value", "logits"):
                raise EditError(
                    f"A patch of {site} cannot be kept during generation; patch the stream (resid) instead."
                )


def _check_positions(recorder: Recorder, end: int) -> None:
    """Raises for positions that the generated text will never reach."""
    for site, edits in recorder.edits.items():
        for position in (place for edit in edits for place in edit.positions or ()):
            if position >= end - 1 and recorder.frame.source(site) != "encoder":
                raise SiteError(
                    f"Positions 0 to {end - 2} pass through the model here (the last new token is not read again); "
                    f"position {position} at {site} never comes."
                )


def _eos(hf: Any) -> int | None:
    eos = hf.generation_config.eos_token_id
    return eos[0] if isinstance(eos, list) else eos  # pyright: ignore[reportUnknownVariableType]
