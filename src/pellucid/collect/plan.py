"""The plan of a sweep: shards of contiguous documents and their batches; corpus, models and budget determine it."""

from __future__ import annotations

import gc
import json
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.collect.encode import looked_at
from pellucid.collect.packing import packed
from pellucid.collect.sentence_rows import is_whole
from pellucid.collect.words import all_words
from pellucid.corpus.sentence import digest
from pellucid.errors import SweepError
from pellucid.uncertainty import GROUPS

if TYPE_CHECKING:
    from pellucid.collect.encode import Encoded, Encoder
    from pellucid.corpus import Corpus, Sentence

KEPT_WORDS = 50_000
"""Distinct words whose counts are kept."""
KEPT_TOKENS = 1 << 18
"""Tokens of the largest corpus whose sentences and encodings planning keeps for the pass: 80 MB with many labels."""
_AT_ONCE = 512  # sentences tokenized together


@dataclass(frozen=True)
class PlannedBatch:
    """Sentences that go through the models together: their places in the shard, and each model's padded length.

    All of them lie in one document `group`.
    """

    members: tuple[int, ...]
    lengths: tuple[int, ...]
    group: int = 0


@dataclass(frozen=True)
class Shard:
    """A run of sentences that is gathered from zero: the unit of work, of checkpoints and of repetition.

    `first` is the number of its first sentence, `start` that of its first word (or token) in the corpus; `digest` is a
    hash of its sentences, checked whenever they are read again.
    """

    index: int
    first: int
    sentences: int
    start: int
    rows: int
    tokens: int
    digest: str
    batches: tuple[PlannedBatch, ...]


@dataclass(frozen=True)
class Counts:
    """What a corpus is to the models: sizes, and all that was cut, split or passed over (of every model together)."""

    sentences: int = 0
    documents: int = 0
    words: int = 0
    tokens: tuple[int, ...] = ()
    truncated: int = 0  # sentences cut at the limit
    lost_words: int = 0  # cut off with them
    windowed: int = 0  # sentences read in several windows
    missing_words: int = 0  # that a tokenizer gives no token of their own
    scattered: int = 0  # documents whose sentences stand apart


@dataclass(frozen=True)
class Plan:
    """Shards in the order of the corpus, what they hold together, the most frequent words, and the labels there are,
    of which `facts` are about whole sentences."""

    shards: tuple[Shard, ...]
    groups: int
    counts: Counts
    frequent: dict[str, int] = field(default_factory=dict[str, int])
    labels: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The plan as text; the same plan always gives the same text."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @staticmethod
    def read(path: Path) -> Plan:
        """The plan in a file."""
        try:
            return Plan.from_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SweepError(f"{str(path)!r} is damaged ({error}); delete it, and the plan is made again.") from None

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that `to_json` wrote."""
        about: dict[str, Any] = json.loads(text)
        shards = tuple(_shard(each) for each in about["shards"])
        sizes: dict[str, Any] = {**about["counts"], "tokens": tuple(about["counts"]["tokens"])}
        counts = Counts(**sizes)
        names = tuple(about["labels"]), tuple(about.get("facts", ()))
        return Plan(shards, about["groups"], counts, about["frequent"], *names)


def _shard(about: dict[str, Any]) -> Shard:
    batches = tuple(
        PlannedBatch(tuple(each["members"]), tuple(each["lengths"]), each["group"]) for each in about["batches"]
    )
    settings: dict[str, Any] = {**about, "batches": batches}
    return Shard(**settings)


@dataclass(frozen=True)
class Ahead:
    """All sentences of a small corpus by number, and each as every model reads it: read by planning, for the pass.

    Of a corpus that is not small it keeps nothing. Unless the plan is `lasting`, nobody will read sentences that are
    here again, and no hash of them is needed.
    """

    lasting: bool = True
    sentences: dict[int, Sentence] = field(default_factory=dict[int, "Sentence"])
    encoded: dict[int, list[Encoded]] = field(default_factory=dict[int, list["Encoded"]])

    def of(self, shard: Shard) -> list[Sentence] | None:
        """The sentences of a shard, if they are here."""
        if shard.first not in self.sentences:
            return None
        return [self.sentences[number] for number in range(shard.first, shard.first + shard.sentences)]

    def let_go(self, shard: Shard) -> None:
        """Forgets the sentences of a shard that is done."""
        for number in range(shard.first, shard.first + shard.sentences):
            self.sentences.pop(number, None)
            self.encoded.pop(number, None)

    def clear(self) -> None:
        """Forgets all."""
        self.sentences.clear()
        self.encoded.clear()


class _Sizes:
    """What planning must remember of every sentence, in a few dozen bytes each."""

    def __init__(self, models: int) -> None:
        self.rows, self.tokens, self.new = array("L"), array("L"), bytearray()
        self.longest = [array("L") for _ in range(models)]
        self.pieces = [array("L") for _ in range(models)]
        self.digests = bytearray()
        self.labels, self.facts = set[str](), set[str]()
        self.read = False  # whether there is a word that every model has a token for

    def __len__(self) -> int:
        return len(self.rows)


def make_plan(
    encoders: Sequence[Encoder],
    corpus: Corpus,
    *,
    budget: int,
    shard_tokens: int,
    groups: int = GROUPS,
    mixed: bool = False,
    ahead: Ahead | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Plan:
    """Reads the corpus once, without running a model: shards of about `shard_tokens`, batches of at most `budget`.

    Each batch lies in one of `groups` document groups, and so does each shard unless shards may be `mixed`. A corpus of
    up to `KEPT_TOKENS` goes into `ahead`.
    """
    sizes, counts, words = _measure(encoders, corpus, ahead, on_progress)
    if not len(sizes):
        raise SweepError(f"The corpus {corpus.name!r} is empty; there is nothing to sweep.")
    if not sizes.read:
        raise SweepError(
            f"The corpus {corpus.name!r} has {len(sizes)} sentences and no word that the tokenizer reads; check the "
            "file and its encoding."
        )
    group_of = _groups(sizes, groups)
    shards: list[Shard] = []
    start = first = 0
    for last in _ends(sizes, None if mixed else group_of, shard_tokens):
        batches = _batches(sizes, group_of, first, last, budget)
        rows = sum(sizes.rows[first:last])
        shards.append(
            Shard(
                len(shards),
                first,
                last - first,
                start,
                rows,
                sum(sizes.tokens[first:last]),
                _hash(sizes, first, last),
                batches,
            )
        )
        first, start = last, start + rows
    names = tuple(sorted(sizes.labels | sizes.facts)), tuple(sorted(sizes.facts - sizes.labels))
    return Plan(tuple(shards), group_of[-1] + 1, counts, dict(words.most_common(KEPT_WORDS)), *names)


def _measure(
    encoders: Sequence[Encoder], corpus: Corpus, ahead: Ahead | None, on_progress: Callable[[int], None]
) -> tuple[_Sizes, Counts, Counter[str]]:
    sizes, words = _Sizes(len(encoders)), Counter[str]()
    tally = Counter[str]()
    tokens = [0] * len(encoders)
    previous: str | None = None
    runs = array("q")  # hashes of documents, in the order in which they begin: numbers in a set would be objects
    with ExitStack() as stack:
        if ahead is not None:
            stack.enter_context(_uncollected())
        for sentences in chunks(corpus, _AT_ONCE):
            encoded = [encoder.encode(sentences) for encoder in encoders]
            for sentence, *each in zip(sentences, *encoded, strict=True):
                if sentence.document != previous:
                    previous = sentence.document
                    sizes.new.append(1)
                    runs.append(hash(previous))
                else:
                    sizes.new.append(0)
                for place, one in enumerate(each):
                    tokens[place] += one.tokens
                if ahead is not None and sum(tokens) > KEPT_TOKENS:
                    if not ahead.lasting:
                        sizes.digests += b"".join(digest(kept) for kept in ahead.sentences.values())
                    ahead.clear()
                    stack.close()
                    ahead, words = None, _moved(words)
                if ahead is not None:
                    ahead.sentences[len(sizes)], ahead.encoded[len(sizes)] = sentence, each
                if ahead is None or ahead.lasting:
                    sizes.digests += digest(sentence)
                _note(sizes, encoders[0].reading.pooling, each)
                read = looked_at(sentence, encoders[0].reading.side, encoders[0].reading.pooling)
                words.update(word.lower() for word in all_words(read))
                sizes.labels.update(read.labels, read.second.labels if read.second and read.joint else ())
                sizes.facts.update(read.facts)
                tally["words"] += each[0].words
                tally["truncated"] += any(one.lost for one in each)
                tally["lost_words"] += sum(one.lost for one in each)
                tally["windowed"] += any(len(one.rows) > 1 for one in each)
                tally["missing_words"] += sum(one.missing for one in each)
            on_progress(len(sizes))
    tally["documents"] = len(np.unique(np.frombuffer(runs, np.int64))) if runs else 0
    tally["scattered"] = len(runs) - tally["documents"]
    return sizes, Counts(sentences=len(sizes), tokens=tuple(tokens), **tally), words


@contextmanager
def _uncollected() -> Generator[None]:
    """No search for garbage: it would go through all that is kept, again and again, and takes as long as tokenizing."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _moved(words: Counter[str]) -> Counter[str]:
    """Copies of the words met so far, after what lay between them was let go.

    Python gives memory back in blocks of a megabyte, none of which is empty while each holds some words.
    """
    gc.collect()
    return Counter(
        {word.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass"): n for word, n in words.items()}
    )


def _note(sizes: _Sizes, pooling: str, each: Sequence[Encoded]) -> None:
    sizes.rows.append(each[0].counting if pooling == "all" else 1 if is_whole(pooling) else each[0].words)
    sizes.tokens.append(max(one.tokens for one in each))
    sizes.read = sizes.read or all(one.words > one.missing for one in each)
    for place, one in enumerate(each):
        sizes.longest[place].append(one.longest)
        sizes.pieces[place].append(len(one.rows))


def _hash(sizes: _Sizes, first: int, last: int) -> str:
    """The hash of some sentences; empty where all are kept for the only pass there will be."""
    return blake2b(sizes.digests[16 * first : 16 * last], digest_size=16).hexdigest() if sizes.digests else ""


def _groups(sizes: _Sizes, groups: int) -> list[int]:
    """The group of every sentence: runs of whole documents of about equal size, fewer where documents are few."""
    total, before, group, found = sum(sizes.tokens), 0, -1, list[int]()
    share = -1
    for place, new in enumerate(sizes.new):
        if new and groups * before // max(1, total) != share:
            share = groups * before // max(1, total)
            group += 1
        found.append(group)
        before += sizes.tokens[place]
    return found


def _ends(sizes: _Sizes, groups: Sequence[int] | None, shard_tokens: int) -> Iterator[int]:
    """Where shards end: at documents, at groups, and inside a document only where it is much larger than a shard."""
    gathered = 0
    for place in range(len(sizes)):
        if gathered and (
            (groups is not None and groups[place] != groups[place - 1])
            or (gathered >= shard_tokens and sizes.new[place])
            or gathered >= 2 * shard_tokens
        ):
            yield place
            gathered = 0
        gathered += sizes.tokens[place]
    yield len(sizes)


def _batches(sizes: _Sizes, groups: Sequence[int], first: int, last: int, budget: int) -> tuple[PlannedBatch, ...]:
    """Sentences of one group and of like length, as many as stay under the budget of padded tokens for every model.

    Within a group the batch with most padded tokens comes first: what it leaves in memory has room for the next.
    """
    longest = {place: max(own[place] for own in sizes.longest) for place in range(first, last) if sizes.tokens[place]}
    found: list[PlannedBatch] = []
    for group, each in groupby(sorted(longest, key=lambda place: (groups[place], longest[place], place)),
                               key=lambda place: groups[place]):  # fmt: skip
        order = list(each)
        rows = [max(own[place] for own in sizes.pieces) for place in order]
        cuts = packed(rows, [longest[place] for place in order], budget)
        cuts.sort(key=lambda cut: -sum(rows[cut]) * longest[order[cut.stop - 1]])
        for cut in cuts:
            members = order[cut]
            lengths = tuple(max(own[place] for place in members) for own in sizes.longest)
            found.append(PlannedBatch(tuple(place - first for place in members), lengths, group))
    return tuple(found)


def notes(plan: Plan) -> list[str]:
    """What was cut, split or passed over, one sentence each."""
    counts = plan.counts
    told: list[str] = []
    if counts.truncated:
        told.append(
            f"{counts.truncated:,} sentences are cut at the model's limit; {counts.lost_words:,} words are lost."
        )
    if counts.windowed:
        told.append(
            f"{counts.windowed:,} sentences over the limit are read in overlapping windows; every word counts once."
        )
    if counts.missing_words:
        told.append(f"{counts.missing_words:,} words have no token of their own and are left out.")
    if counts.scattered:
        told.append("Sentences of one document stand apart in this corpus: document groups may cut through documents.")
    return told


def chunks(sentences: Iterable[Sentence], size: int) -> Iterator[list[Sentence]]:
    """Lists of up to `size` sentences."""
    source = iter(sentences)
    while part := list(islice(source, size)):
        yield part


def read_shards(
    plan: Plan, corpus: Corpus, wanted: Sequence[int], ahead: Ahead | None = None
) -> Iterator[tuple[Shard, list[Sentence]]]:
    """The sentences of the wanted shards, in order; a corpus that has changed since it was planned raises.

    Those that planning has kept `ahead` are not read again.
    """
    source, place = iter(corpus), 0
    for shard in (plan.shards[index] for index in sorted(wanted)):
        known = None if ahead is None else ahead.of(shard)
        if known is not None:
            yield shard, known
            del known  # whoever asked lets go of them before the next are read
            continue
        sentences = list(islice(source, shard.first - place, shard.first - place + shard.sentences))
        place = shard.first + shard.sentences
        found = blake2b(b"".join(digest(sentence) for sentence in sentences), digest_size=16).hexdigest()
        if found != shard.digest:
            raise SweepError(
                f"The corpus {corpus.name!r} has changed since the sweep was planned: sentences {shard.first + 1:,} to "
                f"{shard.first + shard.sentences:,} are not the same. Start again in another folder."
            )
        yield shard, sentences
        del sentences
