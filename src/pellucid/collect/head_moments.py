"""Head moments: the moments of every attention head's output, and of all pairs of heads, from one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting, split_key
from pellucid.collect.moment_sums import MomentsView
from pellucid.collect.moments import Moments
from pellucid.collect.state import State
from pellucid.errors import SweepError
from pellucid.model.sites import CUSTOM, Site, single

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch


@dataclass(frozen=True)
class HeadMoments(Collector):
    """`Moments` of every head alone: key `heads.3.5` is head 5 of `heads.3`, and all pairs of heads are kept.

    `Moments("heads.*")` has the products of heads too, but the lengths of whole rows alone: debiased CKA of two heads
    needs those of the heads. Options are those of `Moments`.
    """

    kind: ClassVar[str] = "head-moments"
    sites: Patterns = "heads.*"
    groups: bool = field(default=False, kw_only=True)
    memory_limit: int = field(default=4 * 2**30, kw_only=True)
    precision: str = field(default="float32", kw_only=True)

    def __post_init__(self) -> None:
        self._inside()  # which refuses a precision that it does not know

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.sites,) if isinstance(self.sites, str) else self.sites

    def open(self, setting: Setting) -> Accumulator:
        inside = self._inside().open(self._by_head(setting))
        return _Split(inside, {key: setting.heads(key) for key in setting.keys(self.sites)})

    def pilot(self, batch: WordBatch, setting: Setting) -> State:
        heads = {key: setting.heads(key) for key in setting.keys(self.sites)}
        return self._inside().pilot(split(batch, heads), self._by_head(setting))

    def merge(self, left: State, right: State) -> State:
        return self._inside().merge(left, right)

    def view(self, state: State, setting: Setting) -> MomentsView:
        return self._inside().view(state, self._by_head(setting))

    def memory(self, setting: Setting, groups: int) -> int:
        return self._inside().memory(self._by_head(setting), groups)

    def _inside(self) -> Moments:
        return Moments("*", groups=self.groups, memory_limit=self.memory_limit, precision=self.precision)

    def _by_head(self, setting: Setting) -> Setting:
        """The same models, as if every head were a site of its own and there were no others."""
        keys = setting.keys(self.sites)
        for key in keys:
            number, name = split_key(key)
            if single(name, setting.models[number].sites).kind != "heads":
                raise SweepError(f"HeadMoments reads outputs of heads, and {key!r} is something else; use 'heads.*'.")
        models = list(setting.models)
        for number, model in enumerate(models):
            sizes: dict[str, tuple[int, ...]] = {}
            for key in keys:
                owner, name = split_key(key)
                heads = range(setting.heads(key)) if owner == number else ()
                sizes |= {f"{name}.{head}": (setting.width(key) // len(heads),) for head in heads}
            models[number] = replace(model, sites=tuple(Site(CUSTOM, name) for name in sizes), sizes=sizes)
        return replace(setting, models=tuple(models))


def head_key(key: str, head: int) -> str:
    """The key of one head of a site."""
    return f"{key}.{head}"


def split(batch: WordBatch, heads: dict[str, int]) -> WordBatch:
    """The same words with the rows of every head apart."""
    rows: dict[str, Tensor] = {}
    for key, count in heads.items():
        parts: Sequence[Tensor] = batch.rows[key].chunk(count, dim=1)
        rows |= {head_key(key, head): part for head, part in enumerate(parts)}
    return replace(batch, rows=rows)


class _Split(Accumulator):
    """Takes the rows of sites apart and hands them to moments of single heads."""

    def __init__(self, inside: Accumulator, heads: dict[str, int]) -> None:
        self._inside, self._heads = inside, heads

    def add(self, batch: WordBatch) -> None:
        self._inside.add(split(batch, self._heads))

    def state(self) -> State:
        return self._inside.state()
