"""Attribution of written text: what every token before it did for each token that a model writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.attribution.attribution import Attribution, gathered, one_text
from pellucid.attribution.computing import Settings, compute
from pellucid.attribution.methods import chosen
from pellucid.attribution.removal.groups import told
from pellucid.attribution.targets import Target
from pellucid.errors import AttributionError, TextError
from pellucid.model.batch import Batch
from pellucid.model.sites import Site, expand
from pellucid.results import Array, Provenance

if TYPE_CHECKING:
    from pellucid.attribution.baselines import Given
    from pellucid.attribution.removal.groups import Grouping
    from pellucid.attribution.targets import Resolved
    from pellucid.model import Model


@dataclass(frozen=True, eq=False)
class Generated(Attribution):
    """What every token did for each written one, [measure, target, place, token].

    A target bears the name of its own token, and holds exactly 0 for that token and all later ones. For
    encoder–decoders the source's tokens come first, then those that the decoder reads.
    """

    kind: ClassVar[str] = "attribution.generation"
    title: ClassVar[str] = "What made each written token"


@dataclass(frozen=True, eq=False)
class _Written:
    """A prompt with its continuation as a batch of one.

    `ids` [N] are the written tokens, `first` the place of the first of them among those that the decoder reads, and
    `before` how many tokens of a source stand before these.
    """

    batch: Batch
    ids: Tensor
    first: int
    before: int


def generation(
    model: Model,
    prompt: str | Batch,
    *,
    max_new_tokens: int = 20,
    text: str | Sequence[int] | None = None,
    method: str | Sequence[str] = "integrated_gradients",
    sites: str | Site | Sequence[str | Site] = "*.embed",
    log: bool = False,
    by: str = Settings.by,
    baseline: Given = Settings.baseline,
    rule: str = Settings.rule,
    steps: int | None = Settings.steps,
    tolerance: float = Settings.tolerance,
    samples: int = Settings.samples,
    noise: float = Settings.noise,
    seed: int = Settings.seed,
    groups: Grouping = Settings.groups,
    window: int = Settings.window,
    stride: int = Settings.stride,
    memory_limit: int | None = Settings.memory_limit,
) -> Generated:
    """What every token did for each token that a model writes after a prompt, all from the same passes.

    The continuation is what the model itself writes, the likeliest token each time, or `text`: put behind the prompt
    as it stands, with the space that it needs, or given as token ids. Its logits are explained, or with `log` its
    log-probabilities. One pass over prompt and continuation serves all of its tokens at every point of the path. The
    other options are those of `Settings`; of `groups`, tokens, ranges of them or a mask.
    """
    settings = Settings(
        baseline, rule, steps, tolerance, samples, noise, seed, memory_limit, by, groups, window, stride
    )
    methods, places = chosen(method), expand(sites, model.sites)
    written = _written(model, prompt, text, max_new_tokens)
    wanted = [
        Target.token(int(token), position=written.first + place - 1, log=log) for place, token in enumerate(written.ids)
    ]
    found, targets = compute(model, written.batch, wanted, methods, places, settings)
    written_by = "by the model" if text is None else "given"
    arguments = {**settings.told(model, methods, places), **found.told(), "groups": told(groups), "log": log}
    arguments["written"] = written_by
    provenance = Provenance(
        "attribution.generation",
        arguments,
        ({"name": model.name, "fingerprint": model.fingerprint},),
        one_text(written.batch, text=prompt if isinstance(prompt, str) else None),
        settings.drawn(methods),
    )
    named = _named(model, targets, written)
    made = gathered(model, written.batch, found, named, methods, places, by=by, provenance=provenance)
    return _before_only(made, written)


def _named(model: Model, targets: Sequence[Resolved], written: _Written) -> list[Resolved]:
    """Targets that bear the name of their token on the token axis."""
    tokenizer = model.tokenizer
    shown = [str(int(token)) if tokenizer is None else tokenizer.decode([int(token)]) for token in written.ids]
    first = written.before + written.first
    return [
        replace(target, name=f"{first + place} {token}")
        for place, (target, token) in enumerate(zip(targets, shown, strict=True))
    ]


def _before_only(made: Attribution, written: _Written) -> Generated:
    """The same with exact zeros at each target's own token and after it, which it cannot have seen."""

    def cut(part: Array) -> Array:
        kept = np.array(part)
        for place in range(len(written.ids)):
            kept[:, place, :, written.before + written.first + place :] = 0.0
        return kept

    return Generated(
        axes=made.axes,
        values=cut(made.values),
        null=None,
        low=None if made.low is None else cut(made.low),
        high=None if made.high is None else cut(made.high),
        resampled=made.resampled,
        provenance=made.provenance,
        tables=made.tables,
    )


# -- what is written -------------------------------------------------------------------------------------------------


def _written(model: Model, prompt: str | Batch, text: str | Sequence[int] | None, most: int) -> _Written:
    """The prompt and what follows it."""
    paired = bool(getattr(getattr(model.hf, "config", None), "is_encoder_decoder", False))
    if not paired and not (model.causal and "logits" in {site.kind for site in model.sites}):
        raise AttributionError(
            f"{model.name!r} is a {type(model.hf).__name__} and writes no text; generation needs a model that goes on "
            "with a text (head 'lm' or 'seq2seq'): use attribute for this one."
        )
    if text is not None and not len(text):
        raise AttributionError("The continuation to explain is empty; give at least one token, or let the model write.")
    begun: Batch = model.tokenize(prompt) if isinstance(prompt, str) else prompt
    if begun.size != 1 or not bool(begun.mask.all()):
        raise AttributionError(f"generation takes one prompt without padding, not a batch of {begun.size}.")
    if paired:
        return _translated(model, begun, text, most)
    if text is None:
        made = model.generate(begun, max_new_tokens=most)
        return _continued(model, begun, made.new_ids[0].cpu())
    if not isinstance(text, str):
        return _continued(model, begun, torch.tensor(list(text)))
    if not isinstance(prompt, str):
        raise AttributionError("A prompt of ready ids needs a continuation of ready ids: text=[…].")
    return _joined(model, prompt, text)


def _continued(model: Model, begun: Batch, ids: Tensor) -> _Written:
    special: set[int] = set(getattr(model.tokenizer, "all_special_ids", None) or [])
    flags = torch.tensor([[int(token) in special for token in ids]])
    batch = Batch.of_ids(
        torch.cat([begun.ids, ids[None]], dim=1), special=torch.cat([begun.special.bool(), flags], dim=1)
    )
    return _Written(batch, ids, begun.ids.shape[1], 0)


def _joined(model: Model, prompt: str, text: str) -> _Written:
    """Prompt and continuation read as one text; the continuation begins where its first character stands."""
    batch: Batch = model.tokenize(prompt + text)
    if not getattr(model.tokenizer, "is_fast", False):
        raise AttributionError(
            f"{model.name!r} has no tokenizer that tells where its tokens stand in the text; give the continuation as "
            "token ids: text=[…]."
        )
    offsets: list[tuple[int, int]] = model.tokenizer(prompt + text, return_offsets_mapping=True)["offset_mapping"]
    real = [place for place, flag in enumerate(batch.special[0].tolist()) if not flag]
    across = [place for place in real if offsets[place][0] < len(prompt.rstrip()) and offsets[place][1] > len(prompt)]
    if across:
        token = model.tokenizer.decode([int(batch.ids[0, across[0]])])
        raise TextError(
            f"The token {token!r} holds both the end of the prompt and the beginning of the continuation; begin the "
            "continuation with a space, or where a token begins."
        )
    own = [place for place in real if offsets[place][1] > len(prompt)]
    if not own:
        raise AttributionError("The continuation to explain is empty; give at least one token, or let the model write.")
    first, stop = own[0], own[-1] + 1  # tokens that close a text stay out: they would come after what is explained
    kept = Batch.of_ids(batch.ids[:, :stop], special=batch.special[:, :stop])
    return _Written(kept, kept.ids[0, first:], first, 0)


def _translated(model: Model, begun: Batch, text: str | Sequence[int] | None, most: int) -> _Written:
    """What a decoder writes: it reads its start token and all that it wrote, each token one step after it."""
    if text is None:
        made = model.generate(begun, max_new_tokens=most)
        ids, first = made.ids.cpu(), made.prompt_length
    elif isinstance(text, str):
        labels: Any = model.tokenizer(text_target=text, verbose=False)["input_ids"]
        from pellucid.model.tokens import targets

        read, _ = targets(model, text, 1)
        assert read is not None
        ids, first = torch.cat([read, torch.tensor([labels[-1:]])], dim=1), 1
    else:
        assert begun.target_ids is not None
        ids = torch.cat([begun.target_ids, torch.tensor([list(text)])], dim=1)
        first = begun.target_ids.shape[1]
    batch = replace(begun, target_ids=ids, target_mask=torch.ones_like(ids))
    return _Written(batch, ids[0, first:], first, begun.ids.shape[1])
