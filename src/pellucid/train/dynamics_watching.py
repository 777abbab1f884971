"""Watching a network while it learns: after each epoch, a look at its layers over the validation text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pellucid.collect.again import Again, at_rest
from pellucid.collect.collector import Collector, Setting
from pellucid.collect.found import facts_to_json
from pellucid.collect.job import facts_of
from pellucid.collect.moments import Moments
from pellucid.collect.sample import TokenSample
from pellucid.collect.state import Array
from pellucid.errors import TrainError
from pellucid.model import Model
from pellucid.train.dynamics_looks import ABOUT, Look, Looks, sample_hash

if TYPE_CHECKING:
    from torch import nn

    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus
    from pellucid.train.dynamics import Dynamics
    from pellucid.train.settings import Settings

SITES = "resid.*"
SAMPLED = 8192
"""Words whose rows are kept of every epoch."""
MOST_MOMENTS = 1 << 28
"""Bytes of an epoch's moments; where they would take more, only the sampled words are kept."""
AT_ONCE = 1 << 16
"""Tokens of a batch on an accelerator: a look is soon over, and the fewer batches the less of it is waiting."""
WHOLE = 1 << 62
"""Tokens of a shard: the text is in memory and a look is never taken up half-way, so that it is one shard."""
WORDS = (8, 14)
"""Words that the sentence of the head pictures has at least, and that are shown of it at most."""


class Watcher:
    """Looks at a network after each epoch: sampled rows, moments of all pairs of layers, and one sentence's attention.

    `look(epoch)` runs the validation text through the network as it is at that moment and keeps the epoch on disk; the
    text is planned and encoded once, and the sampled words are the same at every epoch. The network is run as in
    evaluation and left as it was. A look at an epoch that was looked at before replaces it, unless nothing changed.
    """

    def __init__(
        self,
        network: nn.Module,
        tokenizer: Any,
        corpus: Corpus,
        folder: str | Path,
        settings: Settings,
        *,
        device: str | torch.device | None = None,
        sites: str = SITES,
        sample: int = SAMPLED,
        token_budget: int | None = None,
    ) -> None:
        self.folder, self.settings = Path(folder), settings
        with at_rest([network]):
            self.model = Model.load(network, tokenizer=tokenizer, device=device)
        collectors = _collectors(self.model, sites, sample)
        if token_budget is None and self.model.device.type != "cpu":
            token_budget = AT_ONCE
        self.pass_ = Again(self.model, corpus, collectors, token_budget=token_budget, shard_tokens=WHOLE, mixed=True)
        self._sentence = _pictured(self.pass_)
        self._patterns = tuple(
            str(site) for site in self.model.sites if site.kind == "pattern" and site.stack in (None, "encoder")
        )
        self.looks = Looks.open(self.folder) if (self.folder / ABOUT).is_file() else None
        if self.looks is not None:
            _check_same(self.looks, self.pass_, collectors)

    @property
    def dynamics(self) -> Dynamics:
        """All that was kept so far, ready for comparisons."""
        from pellucid.train.dynamics import Dynamics

        return Dynamics.open(self.folder)

    def look(self, epoch: int) -> Look:
        """Looks at the network now, and keeps it as this epoch."""
        facts = self.pass_.facts([f"{self.folder.absolute().parent.name} epoch {epoch}"])
        if self.looks is not None and epoch in self.looks.epochs:
            before = self.looks.look(epoch)
            if before.model.fingerprint == facts[0].fingerprint:
                return before
        found = self.pass_.run(facts)
        if self.looks is None:
            self.looks = self._begin(found)
        tokens, patterns = self._attention()
        if self.looks.about["sentence"]["tokens"] != tokens:
            raise TrainError(f"The tokenizer of {str(self.folder)!r} has changed since its first look.")
        return self.looks.write(epoch, found, patterns)

    def _begin(self, found: Found) -> Looks:
        tokens, _ = self._attention()
        name = next(name for name, each in found.collectors.items() if isinstance(each, TokenSample))
        about = {
            **found.about,
            "kind": "dynamics",
            "counts": asdict(found.counts),
            "frequent": {},
            "models": [facts_to_json(each) for each in found.models],
            "text": self.pass_.text,
            "sample": {"hash": sample_hash(found.states[name]), "words": len(found.states[name].arrays["ordinal"])},
            "sentence": {"text": self._sentence, "tokens": tokens},
            "fresh": self.settings.source is None,
        }
        return Looks.begin(self.folder, about, found.sentences)

    def _attention(self) -> tuple[list[str], dict[str, Array]]:
        """The tokens of the sentence of the pictures, and its attention weights [heads, tokens, tokens] by site."""
        with at_rest([self.model.hf]):
            return attention_on(self.model, self._sentence, self._patterns)


def attention_on(model: Model, text: str, sites: tuple[str, ...]) -> tuple[list[str], dict[str, Array]]:
    """A text's tokens as they read, and the attention weights [heads, tokens, tokens] of some patterns by site."""
    batch = model.tokenize(text, truncate=True)
    tokens = [str(model.tokenizer.decode([number])).strip() for number in batch.ids[0].tolist()]
    if not sites:
        return tokens, {}
    run = model.run(batch, sites, logits=False)
    return tokens, {site: run[site][0].float().cpu().numpy() for site in sites}


def _collectors(model: Model, sites: str, sample: int) -> list[Collector]:
    """What a look gathers; of networks so wide that moments take too much room, the sampled words alone."""
    words = TokenSample(sites, size=sample, dtype="float16")
    moments = Moments(sites, memory_limit=1 << 62)
    setting = Setting((facts_of(model, side="source"),), "mean", torch.device("cpu"))
    return [moments, words] if moments.memory(setting, 1) <= MOST_MOMENTS else [words]


def _pictured(again: Again) -> str:
    """The sentence of the head pictures: the beginning of the first one that is long enough, else of the longest."""
    least, most = WORDS
    found = next((each for each in again.sentences() if len(each.spans) >= least), None)
    sentence = found or max(again.sentences(), key=lambda each: len(each.spans))
    spans = sentence.spans[:most]
    return sentence.text[spans[0][0] : spans[-1][1]]


def _check_same(looks: Looks, again: Again, collectors: list[Collector]) -> None:
    """Refuses to go on where earlier looks were at another text, or at something else in it."""
    if looks.about["text"] != again.text:
        raise TrainError(
            f"The looks in {str(looks.folder)!r} were at another validation text ({looks.about['corpus']['name']!r}) "
            f"than {again.corpus.name!r}; go on with the same text, or choose another folder."
        )
    described = [each.describe() for each in collectors]
    if list(_in_order(looks.about["collectors"])) != described:
        raise TrainError(
            f"The looks in {str(looks.folder)!r} kept other sites or another number of words; go on with the same, or "
            "choose another folder."
        )


def _in_order(described: Mapping[str, Any]) -> list[Any]:
    return [described[name] for name in sorted(described, key=lambda name: int(name.partition("-")[0]))]
