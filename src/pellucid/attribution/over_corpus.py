"""Attribution over a corpus: what predictions draw on, by token, part of speech or any other label of words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from pellucid.attribution import completeness
from pellucid.attribution.attribution import per_token, places
from pellucid.attribution.baselines import automatic, embedded
from pellucid.attribution.computing import Settings, between, compute_between
from pellucid.attribution.methods import METHODS, chosen
from pellucid.attribution.passes import PaddingError
from pellucid.attribution.removal.groups import reads
from pellucid.attribution.shares import Array, Shares
from pellucid.attribution.sweep import AT_THE_END, AUTOMATIC
from pellucid.attribution.targets import Target, asked
from pellucid.attribution.token_groups import TokenGroups, counted, find_groups
from pellucid.collect.encode import Encoder, Reading
from pellucid.collect.plan import make_plan, read_shards
from pellucid.collect.progress import Progress, readable_bytes
from pellucid.errors import AttributionError
from pellucid.model.sites import Site, expand
from pellucid.results import Provenance, Result, Table
from pellucid.uncertainty import Interval, jackknife

if TYPE_CHECKING:
    from pellucid.attribution.methods import Method
    from pellucid.attribution.sweep import Swept
    from pellucid.collect.plan import Plan
    from pellucid.corpus import Corpus, Sentence
    from pellucid.model import Batch, Model

STEPPED = ("path", "site path")
"""Engines whose numbers for a text do not depend on the texts beside it; others are run text by text."""
_BUDGET = 512
_SHARD = 20_000
_ROOM = 2 << 30


@dataclass(frozen=True, eq=False)
class CorpusAttribution(Result):
    """Mean shares of attribution over the sentences of a corpus, [measure, method, target, place, group].

    Table `groups` counts the tokens of each group; table `places` says what share of a sentence's attribution each
    place holds (special tokens included), of all the places that were asked for.
    """

    kind: ClassVar[str] = "attribution.over_corpus"
    title: ClassVar[str] = "What predictions draw on"
    phrases: ClassVar[Mapping[str, str]] = {
        "share": "share of a sentence's attribution, without its sign, that falls to the group",
        "signed": "the same with signs: for the target above 0, against it below",
        "lift": "the share, over what chance gives the group",
    }
    chance: ClassVar[str] = "tokens change places at random within each sentence"


def over_corpus(
    model: Model,
    corpus: Corpus,
    target: str | Target | Sequence[str | Target] | None = None,
    method: str | Sequence[str] = "integrated_gradients",
    sites: str | Site | Sequence[str | Site] | None = None,
    *,
    by: str = Settings.by,
    group: str = "token",
    most: int = 40,
    special: bool = False,
    side: str = "source",
    long: str = "refuse",
    baseline: str = "auto",
    rule: str = Settings.rule,
    steps: int | None = Settings.steps,
    tolerance: float = Settings.tolerance,
    samples: int = Settings.samples,
    noise: float = Settings.noise,
    seed: int = Settings.seed,
    window: int = Settings.window,
    stride: int = Settings.stride,
    memory_limit: int | None = Settings.memory_limit,
    batch_tokens: int = _BUDGET,
    progress: bool | None = None,
) -> CorpusAttribution:
    """Attributions of every sentence, added up by groups of tokens as they come, so that memory stays flat.

    `group` is `token`, `position`, `special`, `word` or any label of the corpus (`upos`); the `most` frequent are told
    apart. Special tokens are left out unless `special` (or grouped by it). Without `steps`, each sentence is given as
    many as make its own sums complete; the other options of computing are those of `Settings`. `side` tells which text
    of an encoder–decoder is looked at. The interval leaves out one group of documents at a time.
    """
    settings = Settings(
        baseline, rule, steps, tolerance, samples, noise, seed, memory_limit, by, window=window, stride=stride
    )
    if long not in ("refuse", "truncate"):
        raise AttributionError(f"A sentence over the model's limit can be met by refuse or truncate, not {long!r}.")
    if most < 1 or batch_tokens < 1:
        raise AttributionError(f"most={most} groups and batch_tokens={batch_tokens} must both be at least 1.")
    special = special or group == "special"
    encoder = Encoder(model, Reading(pooling="all", special=special and side == "source", long=long, side=side))
    wanted = _Wanted(
        model,
        encoder,
        asked(model, target),
        chosen(method),
        _sites(model, sites, side),
        by,
        special,
        settings,
    )
    with Progress(progress) as bar:
        bar.begin("reading the corpus", None)
        plan = make_plan([encoder], corpus, budget=batch_tokens, shard_tokens=_SHARD, mixed=True)
        groups = find_groups(encoder, corpus, group, special=special, most=most)
        sums = _room(wanted, plan, groups, memory_limit or _ROOM)
        done = _Done(baseline if any(each.baseline for each in wanted.methods) else "")
        bar.begin("attributing", plan.counts.tokens[0])
        for sentence, batch, row, values, document in _stream(wanted, plan, corpus, done):
            tokens = counted(batch, row, side=side, special=special)
            if len(tokens.places):
                every = counted(batch, row, side=side, special=True).places
                held = np.abs(values[..., every]).sum(axis=-1)
                sums.add(values[..., tokens.places], groups.codes(model, sentence, tokens), document, held)
            bar.advance(int(batch.mask[row].sum()))
    return _result(wanted, corpus, plan, groups, sums, done)


@dataclass(frozen=True, eq=False)
class _Wanted:
    """What is asked of every sentence."""

    model: Model
    encoder: Encoder
    targets: tuple[Target, ...]
    methods: tuple[Method, ...]
    sites: tuple[Site, ...]
    by: str
    special: bool
    settings: Settings

    @property
    def places(self) -> list[str]:
        return [name for site in self.sites for name in places(self.model, site, self.by)]


@dataclass(eq=False)
class _Done:
    """What it took: the most steps of a sentence, and how many sentences were not complete enough even with those.

    `baseline` is the one that was used, empty where no method looks at one, and `note` says why.
    """

    baseline: str
    note: str = ""
    steps: int = 0
    incomplete: int = 0
    error: float = 0.0


def _sites(model: Model, given: str | Site | Sequence[str | Site] | None, side: str) -> tuple[Site, ...]:
    """The sites asked for; all must speak of the side that is looked at, since tokens of one text are grouped."""
    stack = {"source": "encoder", "target": "decoder"}[side]
    if given is None:
        found = tuple(site for site in expand("*.embed", model.sites) if site.stack in (None, stack))
    else:
        found = expand(given, model.sites)
    wrong = [site for site in found if reads(site) not in (None, stack)]
    if wrong:
        raise AttributionError(
            f"{wrong[0]} speaks of the other text of an encoder–decoder; with side={side!r} ask for sites of its "
            f"{stack}, or change the side."
        )
    return found


def _room(wanted: _Wanted, plan: Plan, groups: TokenGroups, most: int) -> Shares:
    """Sums of all cells, refused where they would not fit."""
    shape = (len(wanted.methods), len(wanted.targets), len(wanted.places))
    needed = 8 * 4 * plan.groups * int(np.prod(shape)) * len(groups.names)
    if needed > most:
        raise AttributionError(
            f"{shape[2]:,} places × {len(groups.names)} groups would take {readable_bytes(needed)} of memory; ask for "
            "fewer sites, for whole sites or heads (by=…), or for fewer groups (most=…)."
        )
    return Shares(plan.groups, shape, len(groups.names))


# -- the stream ------------------------------------------------------------------------------------------------------

Item = tuple["Sentence", "Batch", int, Array, int]


def _stream(wanted: _Wanted, plan: Plan, corpus: Corpus, done: _Done) -> Iterator[Item]:
    """Every sentence with its batch and row there, its attributions [M, T, P, tokens], and its document group."""
    for shard, sentences in read_shards(plan, corpus, range(len(plan.shards))):
        for planned in shard.batches:
            members = [sentences[member] for member in planned.members]
            encoded = wanted.encoder.encode(members)
            rows = [one.rows[0] for one in encoded]
            batch = wanted.encoder.batch(rows, [one.target for one in encoded], planned.lengths[0])
            if done.baseline == "auto":  # the same for every sentence: settled by the first
                one = _alone(batch, 0)
                done.baseline, done.note = automatic(wanted.model, one, embedded(wanted.model, one))
                wanted = replace(wanted, settings=replace(wanted.settings, baseline=done.baseline))
            for row, values in _attributed(wanted, batch, done):
                yield members[row], batch, row, values, planned.group


def _attributed(wanted: _Wanted, batch: Batch, done: _Done) -> Iterator[tuple[int, Array]]:
    """The attributions of every text of a batch, each text as if it stood alone."""
    stepped = [method for method in wanted.methods if method.passes in STEPPED]
    others = [method for method in wanted.methods if method.passes not in STEPPED]
    found: dict[int, list[tuple[Method, Swept, int]]] = {row: [] for row in range(batch.size)}
    if stepped:
        for row, swept, at in _together(wanted, batch, stepped, done):
            found[row] += [(method, swept, at) for method in stepped]
    for row in range(batch.size) if others else ():
        swept = _swept(wanted, _alone(batch, row), others, wanted.sites, wanted.settings)
        found[row] += [(method, swept, 0) for method in others]
    width = batch.word_index.shape[1] if batch.word_index is not None else batch.ids.shape[1]
    for row, held in found.items():
        order = {method.name: (swept, at) for method, swept, at in held}
        values = np.zeros((len(wanted.methods), len(wanted.targets), len(wanted.places), width))
        for number, method in enumerate(wanted.methods):
            swept, at = order[method.name]
            for aim in range(len(wanted.targets)):
                parts = [
                    per_token(swept.parts[method.name, aim, site][at], site, wanted.by).numpy() for site in wanted.sites
                ]
                joined = np.concatenate(parts)  # [P, T]
                values[number, aim, :, : joined.shape[1]] = joined
        yield row, values


def _together(
    wanted: _Wanted, batch: Batch, methods: Sequence[Method], done: _Done
) -> Iterator[tuple[int, Swept, int]]:
    """Every text with its sweep and its row there, all at a time, or one by one where the model takes no padding."""
    try:
        yield from list(_complete(wanted, batch, methods, done))
    except PaddingError:
        for row in range(batch.size):
            yield from ((row, swept, at) for _, swept, at in _complete(wanted, _alone(batch, row), methods, done))


def _complete(
    wanted: _Wanted, batch: Batch, methods: Sequence[Method], done: _Done
) -> Iterator[tuple[int, Swept, int]]:
    """Every text with a sweep that is complete enough for it, and its row there; only those that need it go again."""
    settings, rows, sites = wanted.settings, torch.arange(batch.size), wanted.sites
    if settings.steps is None and any(one.passes == "path" and one.name not in AT_THE_END for one in methods):
        inputs = [site for site in wanted.model.sites if site.kind == "embed"]
        sites = tuple(dict.fromkeys([*sites, *inputs]))  # where sums tell whether the steps are enough
        methods = [*methods] if any(one.complete for one in methods) else [*methods, METHODS["conductance"]]
    for steps in AUTOMATIC if settings.steps is None else (settings.steps,):
        part = batch if len(rows) == batch.size else _chosen_rows(batch, rows)
        swept = _swept(wanted, part, methods, sites, replace(settings, steps=steps))
        worst = torch.zeros(len(rows), dtype=torch.float64)
        for one in completeness.sums(swept):
            worst = torch.maximum(worst, one.error.amax(dim=0))
        last = settings.steps is not None or steps == AUTOMATIC[-1]
        enough = worst <= settings.tolerance
        done.steps = max(done.steps, swept.steps)
        for at, row in enumerate(rows.tolist()):
            if bool(enough[at]) or last:
                done.incomplete += not bool(enough[at])
                done.error = max(done.error, float(worst[at]))
                yield row, swept, at
        rows = rows[~enough]
        if last or not len(rows):
            return


def _swept(
    wanted: _Wanted, batch: Batch, methods: Sequence[Method], sites: Sequence[Site], settings: Settings
) -> Swept:
    """The attributions of a batch; every target keeps its number, also where two are the same for these texts."""
    model, targets = wanted.model, wanted.targets
    plain = model.run(batch) if any(target.predicted for target in targets) else None
    resolved = tuple(target.resolve(model, batch, plain) for target in targets)
    asked, _, _ = between(model, batch, resolved, methods, sites, settings)
    return compute_between(asked, methods, settings)


def _chosen_rows(batch: Batch, rows: torch.Tensor) -> Batch:
    return replace(batch, **{name: value[rows] for name, value in vars(batch).items() if value is not None})


def _alone(batch: Batch, row: int) -> Batch:
    """One text without its padding."""
    one = _chosen_rows(batch, torch.tensor([row]))
    length = int(one.mask.sum())
    source = {"ids": one.ids[:, :length], "mask": one.mask[:, :length], "special": one.special[:, :length]}
    types = None if one.types is None else one.types[:, :length]
    if one.target_ids is None or one.target_mask is None:
        return replace(one, **source, types=types, word_index=None, counted=None)
    written = int(one.target_mask.sum())
    target = {"target_ids": one.target_ids[:, :written], "target_mask": one.target_mask[:, :written]}
    return replace(one, **source, **target, types=types, word_index=None, counted=None)


# -- the result ------------------------------------------------------------------------------------------------------


def _result(
    wanted: _Wanted, corpus: Corpus, plan: Plan, groups: TokenGroups, sums: Shares, done: _Done
) -> CorpusAttribution:
    whole = sums.estimates()
    values = np.stack([whole.share, whole.signed, whole.lift])
    null = np.stack([whole.share_chance, whole.signed_chance, np.ones_like(whole.lift)])
    apart = [sums.estimates(without=number) for number in sums.kept] if len(sums.kept) > 1 else []
    sizes = [float(sums.sentences[number]) for number in sums.kept][: len(apart)]
    interval = jackknife(values, [np.stack([each.share, each.signed, each.lift]) for each in apart], sizes)
    own = jackknife(whole.place, [each.place for each in apart], sizes)
    shared: dict[str, tuple[str, ...]] = {
        "method": tuple(method.name for method in wanted.methods),
        "target": tuple(spelled(target) for target in wanted.targets),
        "place": tuple(wanted.places),
    }
    return CorpusAttribution(
        axes={"measure": tuple(CorpusAttribution.phrases), **shared, "group": groups.names},
        values=values,
        null=null,
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=_provenance(wanted, corpus, plan, groups, done),
        tables={
            "groups": Table.of_rows({"group": groups.names, "tokens": groups.counts}),
            "places": Table(shared, _place_columns(whole.place, own)),
        },
    )


def _place_columns(share: Array, interval: Interval) -> dict[str, Array]:
    columns = {"share": share, "chance": np.full(share.shape, 1 / share.shape[-1])}
    if interval.low is not None and interval.high is not None:
        columns.update(low=interval.low, high=interval.high)
    return columns


def _provenance(wanted: _Wanted, corpus: Corpus, plan: Plan, groups: TokenGroups, done: _Done) -> Provenance:
    settings, counts = wanted.settings, plan.counts
    stepped = any(method.passes in STEPPED for method in wanted.methods)
    arguments: dict[str, Any] = {
        **settings.told(wanted.model, wanted.methods, wanted.sites),
        "group": groups.by,
        "special": wanted.special,
        "side": groups.side,
        **({"baseline": done.baseline} if done.baseline else {}),
        **({"most steps": done.steps, "largest error": float(f"{done.error:.3g}")} if stepped else {}),
        **({"sentences not complete": done.incomplete} if done.incomplete else {}),
        **({"note": done.note} if done.note else {}),
    }
    read = {
        "name": corpus.name,
        "fingerprint": corpus.fingerprint or "none",
        "sentences": counts.sentences,
        "documents": counts.documents,
        "words": counts.words,
        "tokens": counts.tokens[0],
    }
    model = wanted.model
    return Provenance(
        "attribution.over_corpus",
        arguments,
        ({"name": model.name, "fingerprint": model.fingerprint},),
        read,
        settings.drawn(wanted.methods),
    )


def spelled(target: Target) -> str:
    """A target as the command line writes it: the same for every text, whatever the model predicts there."""
    if target.kind == "function":
        return target.called or "function"
    where = "" if target.position is None else str(target.position)
    if target.kind in ("start", "end"):
        return f"{target.kind}:{where}" if where else target.kind
    names = "|".join("" if choice is None else str(choice) for choice in target.choices)
    if target.kind == "unit":
        names = f"{target.site}:{names}" if names else str(target.site)
    told = f"{target.kind}:{names}" if names else f"predicted {target.kind}" if not where else target.kind
    return f"{told}@{where}" if where else told
