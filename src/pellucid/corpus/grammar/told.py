"""A story read back as clauses: who does what to whom, where and when, found from its labels and arcs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pellucid.corpus.grammar import lexicon
from pellucid.corpus.grammar.inflection import noun_forms
from pellucid.corpus.sentence import Sentence

PLACES = frozenset([*lexicon.BUILDING_NOUNS, *lexicon.OUTDOOR_NOUNS, *lexicon.ROOM_NOUNS])
TIMES = frozenset([*lexicon.DAYS, *lexicon.DAY_PARTS, *lexicon.EVENT_NOUNS])
THINGS = frozenset([noun_forms(entry)[0] for entry in lexicon.THING_NOUNS])
ANIMALS = frozenset([noun_forms(entry)[0] for entry in lexicon.ANIMAL_NOUNS])
UNREAL = frozenset({"if"})  # what such a clause says has not happened


@dataclass(frozen=True, eq=False)
class Mention:
    """A phrase, by the place of its head: the sentence's number in the story and the word's in the sentence.

    `alone` leaves out what is joined to it by "and": of "Felix and the scientist", what "she" means is one.
    """

    sentence: int
    word: int
    alone: bool = False


@dataclass(frozen=True, eq=False)
class Clause:
    """One thing that is said to happen or to be so; negated clauses and hearsay are left out.

    `kind` is "active", "passive", "described" (an adjective with "be") or "existence" ("there was …"); `inner` is the
    verb that the main one governs ("began to draw"), whose object is then `thing`.
    """

    kind: str
    tense: str
    head: Mention
    subject: Mention
    inner: Mention | None = None
    thing: Mention | None = None
    receiver: Mention | None = None
    agent: Mention | None = None
    place: Mention | None = None
    time: Mention | None = None


class Story:
    """The sentences of one story as one text, with what can be asked about it."""

    def __init__(self, sentences: Sequence[Sentence]) -> None:
        self.sentences = tuple(sentences)
        self.starts: list[int] = []
        place = 0
        for sentence in self.sentences:
            self.starts.append(place)
            place += len(sentence.text) + 1
        self.text = " ".join(sentence.text for sentence in self.sentences)
        self._words = [sentence.words for sentence in self.sentences]
        self._children = [_children(sentence) for sentence in self.sentences]

    def form(self, at: Mention) -> str:
        """The word as it is written, without the capital that opens a sentence."""
        form = self._words[at.sentence][at.word]
        return form if self.label("upos", at) == "PROPN" or form == "I" else form.lower()

    def label(self, name: str, at: Mention) -> str | None:
        return self.sentences[at.sentence].labels[name][at.word]

    def lemma(self, at: Mention) -> str:
        lemma = self.label("lemma", at)
        assert lemma is not None
        return lemma

    def child(self, at: Mention, *relations: str) -> Mention | None:
        """The first word that hangs on this one by one of the relations."""
        return next(self.children(at, *relations), None)

    def children(self, at: Mention, *relations: str) -> Iterator[Mention]:
        arcs = self.sentences[at.sentence].arcs
        for word in self._children[at.sentence][at.word]:
            if not relations or arcs[word].relation in relations:
                yield Mention(at.sentence, word)

    def span(self, at: Mention) -> tuple[int, int]:
        """Where the phrase of a head stands in `text`, in characters.

        Of a noun, all but the relative clause behind it, and a preposition only before places and times; of an
        adjective, only an adverb of degree before it.
        """
        words = sorted(self._phrase(at))
        spans, start = self.sentences[at.sentence].spans, self.starts[at.sentence]
        return start + spans[words[0]][0], start + spans[words[-1]][1]

    def written(self, at: Mention) -> str:
        start, stop = self.span(at)
        return self.text[start:stop]

    def _phrase(self, at: Mention) -> Iterator[int]:
        yield at.word
        adjective = self.label("upos", at) == "ADJ"
        skipped = ["acl:relcl"]
        if at.alone:
            skipped += ["cc", "conj"]
        if self.lemma(at) not in PLACES | TIMES:
            skipped.append("case")  # "by" before somebody is no part of the answer, "near" before a place is
        for child in self.children(at):
            degree = self.form(child) in lexicon.DEGREE_ADVERBS
            if degree if adjective else self.label("deprel", child) not in skipped:
                yield from self._phrase(child)

    def full(self, at: Mention) -> Mention | None:
        """The mention itself, or for a pronoun the last mention before it that is none; None where there is none."""
        if self.label("upos", at) != "PRON":
            return at
        entity = self.label("coref", at)
        if entity is None:
            return None
        named = [
            Mention(sentence, word, alone=True)
            for sentence in range(at.sentence + 1)
            for word, other in enumerate(self.sentences[sentence].labels["coref"])
            if other == entity and self.sentences[sentence].labels["upos"][word] != "PRON"
        ]
        before = [found for found in named if (found.sentence, found.word) < (at.sentence, at.word)]
        return before[-1] if before else None

    def named(self, at: Mention) -> str | None:
        """How a question speaks of a mention: "Maria", "the aunt", "the farmer and Maria"; None for a narrator."""
        found = self.full(at)
        if found is None:
            return None
        other = None if found.alone else self.child(found, "conj")
        rest = "" if other is None else f" and {self.named(other)}"
        form = self.form(found)
        return (form if self.label("upos", found) == "PROPN" else f"the {form}") + rest

    def several(self, at: Mention) -> bool:
        """Whether the noun phrase is plural."""
        return self.label("number", at) == "plural" or self.child(at, "conj") is not None

    def sort(self, at: Mention) -> str:
        """What a mention means: "thing", "animal" or "person"."""
        found = self.full(at) or at
        lemma = self.lemma(found)
        return "thing" if lemma in THINGS else "animal" if lemma in ANIMALS else "person"

    def count(self, lemma: str) -> int:
        """How often a word stands in the story, in any form."""
        return self._lemmas[lemma]

    @cached_property
    def _lemmas(self) -> Counter[str | None]:
        return Counter(lemma for sentence in self.sentences for lemma in sentence.labels["lemma"])

    def decorated(self, lemma: str) -> bool:
        """Whether an adjective stands before this noun, or a relative clause behind it, anywhere in the story."""
        return any(
            self.child(Mention(number, word), "amod", "acl:relcl") is not None
            for number, sentence in enumerate(self.sentences)
            for word, other in enumerate(sentence.labels["lemma"])
            if other == lemma
        )

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        """What the story says has happened, happens or will happen."""
        heads = (
            Mention(number, word)
            for number, sentence in enumerate(self.sentences)
            for word, relation in enumerate(sentence.labels["deprel"])
            if relation in ("root", "conj", "advcl") and sentence.labels["upos"][word] in ("VERB", "ADJ")
        )
        return tuple(found for head in heads if (found := self._clause(head)) is not None)

    def _clause(self, head: Mention) -> Clause | None:
        if any(self.lemma(child) == "not" or self.form(child) in UNREAL for child in self.children(head)):
            return None
        above = self.sentences[head.sentence].arcs[head.word].head
        parent = Mention(head.sentence, above)
        if self.label("deprel", head) in ("conj", "advcl") and self.label("deprel", parent) != "root":
            return None  # it hangs inside a clause that may be hearsay
        subject = self.child(head, "nsubj", "nsubj:pass")
        if subject is None and self.label("deprel", head) == "conj":
            subject = self.child(parent, "nsubj")
        verbs = (head, *self.children(head, "aux", "aux:pass", "cop"))
        tense = next((found for at in verbs if (found := self.label("tense", at)) is not None), None)
        if subject is None or tense is None or self.child(head, "ccomp") is not None:
            return None
        inner = self.child(head, "xcomp")
        frame = head if inner is None else inner
        return Clause(
            self._kind(head),
            tense,
            head,
            subject,
            inner,
            self.child(frame, "obj"),
            self.child(head, "iobj"),
            self.child(head, "obl:agent"),
            next((at for at in self.children(frame, "obl") if self.lemma(at) in PLACES), None),
            next((at for at in self.children(frame, "obl") if self.lemma(at) in TIMES), None),
        )

    def _kind(self, head: Mention) -> str:
        if self.child(head, "expl") is not None:
            return "existence"
        if self.label("upos", head) == "ADJ":
            return "described"
        return "passive" if self.child(head, "aux:pass") is not None else "active"


def _children(sentence: Sentence) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in sentence.spans]
    for arc in sentence.arcs:
        if arc.head >= 0:
            found[arc.head].append(arc.dependent)
    return found
