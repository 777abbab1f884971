"""Targets: the number of a pass that is explained, such as a class, a token's score or a neuron."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.errors import AttributionError, listing
from pellucid.model.sites import Site, expand, single

if TYPE_CHECKING:
    from pellucid.model import Batch, Model, Run

Score = Callable[["Run"], Tensor]
FORM = (
    "write predicted, class[:LABEL][@POSITION], start[:POSITION], end[:POSITION], token[:TOKEN][@POSITION], "
    "log[:TOKEN][@POSITION], contrast:TOKEN|TOKEN[@POSITION] or unit:SITE[:UNIT]@POSITION"
)


@dataclass(frozen=True, eq=False)
class Resolved:
    """A target found in a model and its texts: `score` gives one number per row of a pass that records `sites`.

    A pass may hold each of the `texts` several times, one repetition after the other.
    """

    name: str
    score: Score
    sites: tuple[Site, ...] = ()


@dataclass(frozen=True, eq=False)
class Target:
    """What is to be explained: `Target.label("positive")`, `Target.token(" Paris", position=-1)`, `Target.start()` …

    Positions count real tokens from 0, negative ones from the end. Where no label, token or position is given, it is
    the one that the model itself predicts for the text as it is.
    """

    kind: str
    choices: tuple[str | int | None, ...] = (None,)
    position: int | None = None
    site: str | Site | None = None
    function: Callable[[Run], Tensor] | None = None
    called: str | None = None
    reads: tuple[str | Site, ...] = ()

    @classmethod
    def label(cls, label: str | int | None = None, *, position: int | None = None) -> Target:
        """The logit of a class, by its name or number; a tagger's at a position."""
        return cls("class", (label,), position)

    @classmethod
    def start(cls, position: int | None = None) -> Target:
        """The logit of an answer's first token standing at a position."""
        return cls("start", (None,), position)

    @classmethod
    def end(cls, position: int | None = None) -> Target:
        """The logit of an answer's last token standing at a position."""
        return cls("end", (None,), position)

    @classmethod
    def token(cls, token: str | int | None = None, *, position: int | None = None, log: bool = False) -> Target:
        """The logit, or with `log` the log-probability, that a language model gives to a token at a position.

        For a model that continues text, what it says at a position is about the token after it.
        """
        return cls("log" if log else "token", (token,), position)

    @classmethod
    def contrast(cls, first: str | int, second: str | int, *, position: int | None = None) -> Target:
        """The logit of one token (or class) less that of another: why this and not that."""
        return cls("contrast", (first, second), position)

    @classmethod
    def unit(cls, site: str | Site, unit: int | None = None, *, position: int) -> Target:
        """A unit's activation at a position; without `unit`, or for a head, the length of the vector there."""
        return cls("unit", (unit,), position, site)

    @classmethod
    def of(cls, function: Callable[[Run], Tensor], name: str, *, sites: Sequence[str | Site] = ()) -> Target:
        """A function of a pass with one number per row: `Target.of(lambda run: run.logits[:, 0, 7], "my score")`.

        `sites` are those that the function reads in the run.
        """
        return cls("function", function=function, called=name, reads=tuple(sites))

    @classmethod
    def parse(cls, text: str) -> Target:
        """A target as the command line writes it: `class:positive`, `token: Paris@-1`, `unit:neurons.3:17@4` …"""
        found = re.fullmatch(r"(\w+)(?::(.*?))?(?:@(-?\d+))?", text, re.DOTALL)
        if found is None:
            raise AttributionError(f"The target {text!r} cannot be read; {FORM}.")
        kind, body, position = found[1], found[2] or "", None if found[3] is None else int(found[3])
        if kind in ("class", "token", "log"):
            return cls(kind, (body or None,), position)
        if kind in ("start", "end") and (not body or (position is None and re.fullmatch(r"-?\d+", body))):
            return cls(kind, (None,), int(body) if body else position)
        if kind == "contrast" and body.count("|") == 1 and all(body.split("|")):
            return cls(kind, tuple(body.split("|")), position)
        unit = re.fullmatch(r"([\w.\-]+?)(?::(\d+))?", body) if kind == "unit" else None
        if unit is not None and position is not None:
            return cls.unit(unit[1], None if unit[2] is None else int(unit[2]), position=position)
        raise AttributionError(f"The target {text!r} cannot be read; {FORM}.")

    @property
    def predicted(self) -> bool:
        """Whether a plain pass is needed to know what is explained."""
        return (self.kind in ("class", "token", "log") and self.choices[0] is None) or (
            self.kind in ("start", "end") and self.position is None
        )

    def resolve(self, model: Model, batch: Batch, run: Run | None = None) -> Resolved:
        """The target in this model and these texts; `run` is a plain pass over them, needed where `predicted`."""
        if self.kind == "function":
            return Resolved(self.called or "function", _user(self), expand(self.reads, model.sites))
        if self.kind == "unit":
            return _unit(self, model, batch)
        if self.kind in ("start", "end"):
            return _answer(self, model, batch, run)
        return _scored(self, model, batch, run)


def default_targets(model: Model) -> tuple[Target, ...]:
    """What a model's head predicts: its class, the start and end of its answer, or its next or hidden token."""
    name = type(model.hf).__name__
    if "QuestionAnswering" in name:
        return Target.start(), Target.end()
    if "SequenceClassification" in name:
        return (Target.label(),)
    if "TokenClassification" in name:
        raise AttributionError(
            f"{name} gives every word a class, so say which word is meant: Target.label(position=3) (--target class@3)."
        )
    if _is_vocabulary(model):
        return (Target.token(),)
    if "logits" in {site.kind for site in model.sites}:
        raise AttributionError(
            f"It is not known what {name} predicts; name a target: Target.of(lambda run: run.logits[:, 0], 'first')."
        )
    raise AttributionError(
        f"{name} has no head, so it predicts nothing to explain; name a target inside it: Target.unit(…) "
        "(--target unit:neurons.3:17@4)."
    )


# -- the kinds -------------------------------------------------------------------------------------------------------


def _answer(target: Target, model: Model, batch: Batch, run: Run | None) -> Resolved:
    """The start or end of an answer."""
    key = f"{target.kind}_logits"
    if "QuestionAnswering" not in type(model.hf).__name__:
        raise AttributionError(
            f"The target {target.kind!r} needs a model that marks answers (head 'qa'); {model.name!r} is a "
            f"{type(model.hf).__name__}."
        )
    if target.position is None:
        assert run is not None
        real = batch.mask.bool().to(run.output[key].device)
        places = run.output[key].masked_fill(~real, -torch.inf).argmax(dim=1).cpu()
    else:
        places = positions(batch, target.position)
    named = f"{target.kind} at {_places(places, batch.mask)}"
    return Resolved(named, lambda run: _picked(run.output[key], places))


def _scored(target: Target, model: Model, batch: Batch, run: Run | None) -> Resolved:
    """A logit, log-probability or difference of logits of the head."""
    tokens = _is_vocabulary(model)
    if target.kind in ("token", "log") and not tokens:
        raise AttributionError(
            f"The target {target.kind!r} needs a language model; {model.name!r} is a {type(model.hf).__name__}: ask "
            "for class:LABEL."
        )
    if target.kind == "class" and tokens:
        raise AttributionError(
            f"{model.name!r} is a language model and has no classes; ask for token:TOKEN or log:TOKEN."
        )
    per_token = tokens or "TokenClassification" in type(model.hf).__name__
    if target.position is not None and not per_token:
        raise AttributionError(
            f"{type(model.hf).__name__} gives one class to the whole text, so its target has no position; leave out "
            f"@{target.position}."
        )
    places = _default_places(target, model, batch) if per_token else None
    ids = [
        _predicted(run, places) if choice is None else torch.full((batch.size,), _index(model, choice, tokens))
        for choice in target.choices
    ]
    word, mask = ("after", batch.target_mask) if batch.target_ids is not None else ("at", batch.mask)
    assert mask is not None
    where = "" if places is None else f" {'after' if model.causal else word} {_places(places, mask)}"
    names = [_label(model, numbers, tokens) for numbers in ids]
    kinds = {"class": "{}", "token": "{}", "log": "log p of {}", "contrast": "{} rather than {}"}

    def score(run: Run) -> Tensor:
        logits = run.logits if places is None else _at(run.logits, places)  # [rows, C]
        if target.kind == "log":
            logits = (logits.float() if logits.element_size() < 4 else logits).log_softmax(dim=-1)
        parts = [_picked(logits, numbers) for numbers in ids]
        return parts[0] if len(parts) == 1 else parts[0] - parts[1]

    return Resolved(kinds[target.kind].format(*names) + where, score)


def _unit(target: Target, model: Model, batch: Batch) -> Resolved:
    """The activation of a unit, or the length of a head's or a site's vector, at a position."""
    assert target.site is not None and target.position is not None
    site = single(target.site, model.sites)
    if site.kind in ("pattern", "logits", "routing"):
        raise AttributionError(f"{site} holds no vector per token; name a unit of another site.")
    size, unit = model.size(site), target.choices[0]
    count = size[0] if site.per_head else size[-1]
    noun = "head" if site.per_head else "unit"
    if unit is not None and not 0 <= int(unit) < count:
        raise AttributionError(f"{site} has {count} {noun}s, numbered 0 to {count - 1}; {noun} {unit} does not exist.")
    source = site.stack == "cross" and site.kind in ("key", "value")
    places = positions(batch, target.position, decoder=site.stack in ("decoder", "cross") and not source)
    where = f"@{target.position}"
    name = f"{site}{where}" if unit is None else f"{site}:{unit}{where}"

    def score(run: Run) -> Tensor:
        value = run[site]  # [rows, T, width] or [rows, heads, T, width]
        if site.per_head:
            value = value.transpose(1, 2) if unit is None else value[:, int(unit)]
        vectors = _at(value, places).flatten(1)
        return vectors.norm(dim=-1) if unit is None or site.per_head else vectors[:, int(unit)]

    return Resolved(name, score, (site,))


def _user(target: Target) -> Score:
    def score(run: Run) -> Tensor:
        assert target.function is not None
        found: Any = target.function(run)
        rows = run.batch.size if run.batch is not None else None
        if not isinstance(found, Tensor) or found.dim() != 1 or (rows is not None and found.shape[0] != rows):
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise AttributionError(
                f"The function {target.called!r} must give a tensor with one number per row ({rows} here); it gave "
                f"{shape}."
            )
        return found

    return score


# -- places, labels and picking --------------------------------------------------------------------------------------


def positions(batch: Batch, position: int, *, decoder: bool = False) -> Tensor:
    """Where the real token `position` of every text stands in its padded row, [B]."""
    mask = batch.target_mask if decoder and batch.target_mask is not None else batch.mask
    lengths, first = mask.sum(dim=1), mask.argmax(dim=1)
    shortest = int(lengths.min())
    if not -shortest <= position < shortest:
        raise AttributionError(
            f"Position {position} was asked for, and the text has {shortest} tokens: 0 to {shortest - 1}, or from the "
            "end with a minus."
        )
    return (first + (lengths + position if position < 0 else position)).cpu()


def _default_places(target: Target, model: Model, batch: Batch) -> Tensor:
    decoder = batch.target_ids is not None
    if target.position is not None:
        return positions(batch, target.position, decoder=decoder)
    if not model.causal and not decoder and "TokenClassification" not in type(model.hf).__name__:
        mask = getattr(model.tokenizer, "mask_token_id", None)
        hidden = batch.ids == mask if mask is not None else torch.zeros_like(batch.ids, dtype=torch.bool)
        if not bool(hidden.any(dim=1).all()):
            token = getattr(model.tokenizer, "mask_token", None)
            raise AttributionError(
                f"The text holds no hidden token {token!r} to guess; put one in, or name a position (--target token@3)."
            )
        return hidden.int().argmax(dim=1).cpu()
    return positions(batch, -1, decoder=decoder)


def _predicted(run: Run | None, places: Tensor | None) -> Tensor:
    assert run is not None
    logits = run.logits if places is None else _at(run.logits, places)
    return logits.argmax(dim=-1).cpu()


_OTHER_HEADS = ("Classification", "QuestionAnswering", "MultipleChoice", "NextSentence")


def _is_vocabulary(model: Model) -> bool:
    """Whether the model's scores are of tokens."""
    named = type(model.hf).__name__
    return "logits" in {site.kind for site in model.sites} and not any(head in named for head in _OTHER_HEADS)


def _index(model: Model, choice: str | int, tokens: bool) -> int:
    """The number of a class or token."""
    if isinstance(choice, int) or (not tokens and str(choice).isdigit()):
        number, count = int(choice), _count(model, tokens)
        if not 0 <= number < count:
            noun = "tokens" if tokens else "classes"
            raise AttributionError(f"There is no number {number} among {count} {noun}, numbered 0 to {count - 1}.")
        return number
    if tokens:
        return _token_id(model, choice)
    names: dict[int, str] = dict(getattr(model.hf.config, "id2label", None) or {})
    matches = [number for number, name in names.items() if str(name).lower() == choice.lower()]
    if not matches:
        raise AttributionError(f"There is no class {choice!r}; {model.name!r} has {listing(names.values())}.")
    return int(matches[0])


def _count(model: Model, tokens: bool) -> int:
    config: Any = model.hf.config
    return model.size("logits")[-1] if tokens else int(config.num_labels)


def _token_id(model: Model, text: str) -> int:
    if model.tokenizer is None:
        raise AttributionError(f"The token {text!r} needs a tokenizer to find its number; give the number itself.")
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) == 1:
        return int(ids[0])
    whole = model.tokenizer.convert_tokens_to_ids(text)
    if whole is not None and whole != model.tokenizer.unk_token_id:
        return int(whole)
    parts = [model.tokenizer.decode([number]) for number in ids]
    raise AttributionError(
        f"{text!r} is not one token of this model but {len(ids)} ({listing(map(repr, parts))}); name one token, or its "
        "number."
    )


def _label(model: Model, numbers: Tensor, tokens: bool) -> str:
    """A class or token by name; `prediction` where texts differ."""
    if len(set(numbers.tolist())) > 1:
        return "the predicted token" if tokens else "the predicted class"
    number = int(numbers[0])
    if tokens:
        return repr(model.tokenizer.decode([number])) if model.tokenizer is not None else f"token {number}"
    names: Any = getattr(model.hf.config, "id2label", None) or {}
    return str(names.get(number, number))


def _places(places: Tensor, mask: Tensor) -> str:
    """Places in padded rows, as numbers of real tokens."""
    real = places - mask.cpu().long().argmax(dim=1)
    return f"token {int(real[0])}" if len(set(real.tolist())) == 1 else "places of their own"


def _at(tensor: Tensor, places: Tensor) -> Tensor:
    """The row at each text's place, [rows, …], of a tensor [rows, T, …] that repeats the texts."""
    rows = torch.arange(tensor.shape[0], device=tensor.device)
    return tensor[rows, _repeated(places, tensor)]


def _picked(scores: Tensor, numbers: Tensor) -> Tensor:
    """One number of each row of scores [rows, C]."""
    return scores.gather(1, _repeated(numbers, scores)[:, None])[:, 0]


def _repeated(numbers: Tensor, like: Tensor) -> Tensor:
    return numbers.to(like.device).repeat(like.shape[0] // len(numbers))


def asked(model: Model, given: str | Target | Sequence[str | Target] | None) -> tuple[Target, ...]:
    """Targets as a caller names them: nothing or `predicted` for what the model predicts, one, or several."""
    items = [given] if given is None or isinstance(given, (str, Target)) else list(given)
    found: list[Target] = []
    for item in items:
        if item is None or item == "predicted":
            found.extend(default_targets(model))
        else:
            found.append(item if isinstance(item, Target) else Target.parse(item))
    if not found:
        raise AttributionError(f"No target was given; {FORM}.")
    return tuple(found)
