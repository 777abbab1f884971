"""Second attention: a head's weights on one text beside others that give the same output, and effective attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from pellucid.collect.null_space import (
    check_numbers,
    effective,
    gaps,
    in_sight,
    space,
    values_of_heads,
)
from pellucid.collect.other_patterns import far_pattern, second_pattern
from pellucid.collect.output_space import OutputSpace, deficient
from pellucid.collect.output_space import told as outputs_told
from pellucid.corpus.identity import fingerprint_of
from pellucid.errors import SiteError
from pellucid.heads.naming import find_heads, head_name
from pellucid.identifiability.attention_freedom import patterns_with_values
from pellucid.identifiability.attention_reach import keys_do_not_tell
from pellucid.identifiability.key_space import outside_keys
from pellucid.identifiability.notes import notes_table, rounding_told
from pellucid.model.sites import expand
from pellucid.results import Array, Coordinate, Provenance, Result, Table

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.model.sites import Site

MATRICES = {
    "attention": "the weights of the head",
    "second": "other weights, 0 or more with the same sums, that give the same output",
    "effective": "the weights without the part that has no effect; they have signs and the same output",
}


@dataclass(frozen=True, eq=False)
class SecondAttention(Result):
    """Three matrices of one head on one text, all with the same output, [measure, query, key]; tokens have numbers.

    Tables: `queries` (keys in sight, dimensions that are free, how far second weights are, how far outputs are off over
    their length), `head` (its name, the width of its values and the head they are of), `notes` where there are any. In
    `queries`, `gap` is the smallest eigenvalue of VᵀV that counts over the cut below which it would not, `gap below`
    the cut over the largest that does not count (0 where there is none), `gap with sum` and `gap below with sum` those
    of [V, 1]. `outside keys` is the part of the way to the second weights (half-way, in logarithms) that the head's own
    keys do not span: where it is not 0, no query makes them.
    """

    kind: ClassVar[str] = "identifiability.second_attention"
    title: ClassVar[str] = "Attention, and other attention with the same output"
    phrases: ClassVar[Mapping[str, str]] = MATRICES
    chance: ClassVar[str] = "uniform attention over all that a query sees (effective: that of uniform attention)"

    @property
    def head(self) -> str:
        """The name of the head, such as `3.2`."""
        return str(self.table("head").columns["head"][0])

    @property
    def unique(self) -> bool:
        """Whether no query could have other weights with the same output."""
        return not bool(self.table("queries").columns["free with sum"].any())


def second_attention(model: Model, text: str, head: str | None = None, *, seed: int = 0) -> SecondAttention:
    """A head's weights on a text, a second attention matrix with the same output, and effective attention.

    `head` is named as in `3.2` (head 2 of layer 3; with grouped queries a query head, which reads the values of its
    group); without one it is the head that random second weights take furthest from its own. The second matrix gives up
    as much as it can of every query's largest weight (`far_pattern`); where attention is unique, it is the same one.
    """
    sites = expand(patterns_with_values(model), model.sites)
    asked = None if head is None else _asked(model, head, sites)
    batch = model.tokenize([text])
    wanted = sites if asked is None else (asked[0],)
    kinds = ("pattern", "value", *(() if keys_do_not_tell(model, wanted) else ("key",)))
    run = model.run(batch, [site.beside(kind) for site in wanted for kind in kinds], logits=False)
    layers = {site: (run[site][0].double().cpu(), run[site.beside("value")][0].cpu()) for site in wanted}
    for site, (pattern, values) in layers.items():
        check_numbers(pattern, values, str(site))
    lost = deficient(model, wanted)
    passed = OutputSpace(lost)
    reaching = {
        site: (pattern, passed.through(str(site), values.double(), len(pattern)))
        for site, (pattern, values) in layers.items()
    }
    site, number = asked or _furthest(reaching, seed)
    pattern, values = layers[site]
    tokens = _tokens(model, batch.ids[0].tolist())
    keys = run[site.beside("key")][0].cpu() if "key" in kinds else None
    told = _Matrices(*reaching[site], keys, number, values.dtype)
    notes = outputs_told([each for each in lost if each[0] == str(site)])
    return SecondAttention(
        axes={"measure": tuple(MATRICES), "query": tokens, "key": tokens},
        values=told.values,
        null=told.chance,
        low=None,
        high=None,
        resampled="no interval: one head on one text",
        provenance=Provenance(
            "identifiability.second_attention",
            {"text": text, "head": head},
            ({"name": model.name, "fingerprint": model.fingerprint},),
            {"name": "a text", "fingerprint": fingerprint_of("text", text), "sentences": 1, "tokens": len(tokens)},
            seed=seed,
        ),
        tables={
            "queries": Table({"query": tokens}, told.queries),
            "head": Table.of_rows(
                {
                    "head": [head_name(site.beside("heads"), number)],
                    "width": [values.shape[-1]],
                    "values of head": [number * len(values) // len(pattern)],
                    "heads with these values": [len(pattern) // len(values)],
                }
            ),
            **notes_table([*notes, *rounding_told(str(values.dtype))]),
        },
    )


def text_beyond(model: Model, corpus: Corpus, *, more: int = 24, sentences: int = 200) -> str:
    """The first sentences of a corpus that together have `more` tokens beyond those whose attention is always unique.

    Where the model takes fewer, or `sentences` are not enough, as many as there are.
    """
    sites = expand(patterns_with_values(model), model.sites)
    wanted = min(model.size(site.beside("value"))[-1] for site in sites) + 1 + more
    text = ""
    for sentence in corpus.take(sentences):
        longer = f"{text} {sentence.text}".strip()
        length = int(model.tokenize([longer], truncate=True).mask.sum())
        if text and model.limit is not None and length >= model.limit:
            break
        text = longer
        if length >= wanted:
            break
    return text


def _asked(model: Model, head: str, sites: tuple[Site, ...]) -> tuple[Site, int]:
    """The pattern and number of a head that was named."""
    ((site, number),) = find_heads(model, [head])
    if site.beside("pattern") not in sites:
        raise SiteError(
            f"Head {head!r} is not one that reads the text by itself; those of {sites[0]} to {sites[-1]} are."
        )
    return site.beside("pattern"), number


def _furthest(layers: Mapping[Site, tuple[Tensor, Tensor]], seed: int) -> tuple[Site, int]:
    """The head whose second weights are furthest from its own; the first of equals."""
    best: tuple[float, Site, int] | None = None
    for site, (pattern, values) in layers.items():
        away = (second_pattern(pattern, values, seed=seed) - pattern).abs().sum(-1).mean(-1) / 2  # [heads]
        number = int(away.argmax())
        if best is None or float(away[number]) > best[0]:
            best = float(away[number]), site, number
    assert best is not None
    return best[1], best[2]


def _tokens(model: Model, ids: list[int]) -> tuple[Coordinate, ...]:
    """Tokens with their numbers, so that no two are the same."""
    decode = model.tokenizer.decode
    return tuple(f"{place} {str(decode([token])).strip() or '␣'}" for place, token in enumerate(ids))


_GAPS = {"over": "gap", "under": "gap below", "over_with_sum": "gap with sum", "under_with_sum": "gap below with sum"}


def _finite(gap: Tensor) -> Array:
    """Gaps as a table holds them: 0 where no eigenvalue is on that side, and at most 1e30."""
    return torch.where(torch.isinf(gap), 0.0, gap.clamp(max=1e30)).numpy()


class _Matrices:
    """The three matrices of one head, and what is told of its queries."""

    def __init__(self, pattern: Tensor, values: Tensor, keys: Tensor | None, head: int, dtype: torch.dtype) -> None:
        sight = in_sight(pattern).double()
        even = (sight / sight.sum(-1, keepdim=True).clamp(min=1)).expand_as(pattern)
        effect, told = effective(pattern, values), space(pattern, values, dtype=dtype)
        v = values_of_heads(values, len(pattern))[head]
        second = pattern.clone()
        second[head] = far_pattern(pattern, values, head)
        self.values: Array = torch.stack([each[head] for each in (pattern, second, effect)]).numpy()
        self.chance: Array = torch.stack([even[head], even[head], effective(even, values)[head]]).numpy()
        output = pattern[head] @ v
        length = output.norm(dim=-1).clamp(min=torch.finfo(torch.float64).tiny)
        self.queries: dict[str, Array] = {
            "sees": told.sees[head].numpy(),
            "free": told.free[head].numpy(),
            "free with sum": told.free_with_sum[head].numpy(),
            "uncertain": told.uncertain[head].numpy(),
            **{_GAPS[name]: _finite(gap) for name, gap in gaps(pattern, values, head).items()},
            "second moved": ((second - pattern)[head].abs().sum(-1) / 2).numpy(),
            "effective moved": (effect - pattern)[head].norm(dim=-1).numpy(),
            "second output off": ((second[head] @ v - output).norm(dim=-1) / length).numpy(),
            "effective output off": ((effect[head] @ v - output).norm(dim=-1) / length).numpy(),
        }
        if keys is not None:
            self.queries["outside keys"] = outside_keys(pattern, second, keys)[head].numpy()
