"""Questions about generated stories, each with its answer marked in the text.

A question names people as a reader would ("the aunt" where the story says "she"), and its answer is found by who did
what, not by a word that stands in one sentence alone: most stories get a sentence that says nearly the same of another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import groupby

from pellucid.corpus.grammar import lexicon
from pellucid.corpus.grammar.inflection import Agreement, Verb, article, noun_forms
from pellucid.corpus.grammar.phrases import Dice
from pellucid.corpus.grammar.stories import generate
from pellucid.corpus.grammar.told import Clause, Mention, Story
from pellucid.corpus.sentence import Sentence

VERSION = "1"
"""Part of the fingerprint: raised when the same seed gives other questions."""
FORMS = ("who", "what", "to whom", "by whom", "where", "when", "how many", "like")
"""What is asked for; every question carries its form as a fact."""
PER_STORY = 2
DISTRACTED = 0.75  # share of the questions whose story gets a sentence that says nearly the same of somebody else

_WORDS = {"person": "Who", "animal": "Which animal", "thing": "What"}
_BE = {"past": "was", "present": "is", "future": "will be"}
_THIRD = Agreement("3", "singular")


@dataclass(frozen=True)
class Question:
    """A question of one form, its answer in the story, and what writes a sentence that could mislead."""

    form: str
    text: str
    answer: Mention
    distractor: Callable[[], str] | None = None


def generate_questions(count: int, seed: int) -> Iterator[Sentence]:
    """`count` questions with their stories; more of the same seed begin with the same ones.

    A sentence is the question, its `second` the story, and the facts are those of `Corpus.squad`: `answer`, and
    `answer_start` in characters of the story; and the `form`.
    """
    written = 0
    for number, story in enumerate(_stories(seed), start=1):
        dice = Dice(int.from_bytes(blake2b(f"questions/{seed}/{number}".encode(), digest_size=8).digest(), "little"))
        for place, question in enumerate(_chosen(story, dice), start=1):
            if written == count:
                return
            yield _sentence(story, question, dice, f"story {number}", f"{number}-{place}")
            written += 1


def _stories(seed: int) -> Iterator[Story]:
    """Every story of a seed, without end."""
    for _, sentences in groupby(generate(sys.maxsize, seed), key=lambda sentence: sentence.document):
        yield Story(tuple(sentences))


def _chosen(story: Story, dice: Dice) -> list[Question]:
    """A few questions about a story, of different forms."""
    found: dict[str, list[Question]] = {}
    for question in questions(story, dice):
        found.setdefault(question.form, []).append(question)
    chosen: list[Question] = []
    while found and len(chosen) < PER_STORY:
        form = dice.one([name for name in FORMS if name in found])
        chosen.append(dice.one(found.pop(form)))
    return chosen


def _sentence(story: Story, question: Question, dice: Dice, document: str, name: str) -> Sentence:
    start, stop = story.span(question.answer)
    context = story.text
    if question.distractor is not None and dice.chance(DISTRACTED):
        other = question.distractor()
        if dice.chance(0.5):
            context = f"{context} {other}"
        else:
            context = f"{other} {context}"
            start, stop = start + len(other) + 1, stop + len(other) + 1
    facts = {"answer": context[start:stop], "answer_start": str(start), "form": question.form}
    second = Sentence.of_text(context, id=f"{name}/second", document=document)
    return Sentence.of_text(question.text, id=name, document=document, facts=facts, second=second, joint=True)


def questions(story: Story, dice: Dice) -> Iterator[Question]:
    """All that can be asked about a story, where one answer alone is right."""
    for clause in story.clauses:
        for ask in _ASKING[clause.kind]:
            yield from ask(story, clause, dice)


# Verbs. A verb that stands twice in a story is not asked about: more than one answer might be right.


def _active(story: Story, clause: Clause, dice: Dice) -> Iterator[Question]:
    verbs = [clause.head] if clause.inner is None else [clause.head, clause.inner]
    if any(story.label("upos", at) != "VERB" or story.count(story.lemma(at)) > 1 for at in verbs):
        return
    subject, told = story.named(clause.subject), _Told(story, clause, dice)
    if subject is None:
        return
    base = " to ".join(story.lemma(at) for at in verbs)
    what = _object(story, clause)
    if what is None:
        return
    asked = f"{told.helper} {subject} {base}"
    answer = story.full(clause.subject)
    if answer is not None and clause.inner is None:
        rest = what or _trail(story, clause)
        yield Question("who", f"{told.which(answer)} {told.third}{rest}?", answer, told.other_doer)
    if clause.thing is not None:
        yield from _about_thing(story, clause, told, asked)
    if clause.receiver is not None and (receiver := story.full(clause.receiver)) is not None:
        assert clause.thing is not None
        yield Question("to whom", f"Who {asked} {story.named(clause.thing)} to?", receiver, told.other_receiver)
    if clause.place is not None:
        yield Question("where", f"Where {asked}{what}?", clause.place, told.elsewhere)
    if clause.time is not None:
        yield Question("when", f"When {asked}{what}?", clause.time, told.at_another_time)


def _about_thing(story: Story, clause: Clause, told: _Told, asked: str) -> Iterator[Question]:
    """What the verb was done to, and how many of it."""
    assert clause.thing is not None
    answer = story.full(clause.thing)
    if answer is None:
        return
    receiver = "" if clause.receiver is None else f" to {story.named(clause.receiver)}"
    yield Question("what", f"{told.which(answer)} {asked}{receiver}?", answer, told.other_doer)
    number = story.child(answer, "nummod")
    if number is not None and answer is clause.thing:
        plural = story.form(answer)
        yield Question("how many", f"How many {plural} {asked}{receiver}?", number, told.other_number)


def _object(story: Story, clause: Clause) -> str | None:
    """What follows the verb in a question that does not ask for it; None where it cannot be named."""
    parts: list[str] = []
    for at in (clause.receiver, clause.thing):
        if at is not None:
            named = story.named(at)
            if named is None:
                return None
            parts.append(f" {named}")
    return "".join(parts)


def _trail(story: Story, clause: Clause) -> str:
    """Where or when something was done, behind a verb without an object."""
    at = clause.place or clause.time
    return "" if at is None else f" {story.written(at)}"


def _passive(story: Story, clause: Clause, dice: Dice) -> Iterator[Question]:
    if story.count(story.lemma(clause.head)) > 1:
        return
    told, participle = _Told(story, clause, dice), story.form(clause.head)
    subject, answer = story.named(clause.subject), story.full(clause.subject)
    if subject is None or answer is None:
        return
    agent = None if clause.agent is None else story.named(clause.agent)
    be = _BE[clause.tense]
    if clause.agent is None or agent is not None:
        behind = f" by {agent}" if agent else _trail(story, clause)
        other = told.other_sufferer if behind else None  # "Who was seen?" would have two answers
        yield Question("who", f"{told.which(answer)} {be} {participle}{behind}?", answer, other)
    helper, rest = _be(clause.tense, story.several(clause.subject))
    asked = f"{helper} {subject} {rest}{participle}"
    if clause.agent is not None and (doer := story.full(clause.agent)) is not None:
        yield Question("by whom", f"Who {asked} by?", doer, told.other_sufferer)
    if clause.place is not None:
        yield Question("where", f"Where {asked}?", clause.place, told.other_sufferer)
    if clause.time is not None:
        yield Question("when", f"When {asked}?", clause.time, told.other_sufferer)


def _described(story: Story, clause: Clause, dice: Dice) -> Iterator[Question]:
    subject, told = story.named(clause.subject), _Told(story, clause, dice)
    same = [
        other
        for other in story.clauses
        if other.kind == "described" and story.named(other.subject) == subject and subject is not None
    ]
    adjective, answer = story.lemma(clause.head), story.full(clause.subject)
    if subject is None or answer is None or len(same) != 1 or story.count(adjective) > 1:
        return
    feeling = any(adjective in some for some in lexicon.FEELINGS.values())
    if feeling:
        asked = f"How {told.helper} {subject} feel?"
    else:
        helper, rest = _be(clause.tense, story.several(clause.subject))
        asked = f"What {helper} {subject} {rest}like?"
    if feeling or not story.decorated(story.lemma(answer)):
        yield Question("like", asked, clause.head, partial(told.otherwise, feeling=feeling))
    be = _BE[clause.tense]
    yield Question("who", f"{told.which(answer)} {be} {adjective}?", answer, partial(told.otherwise, feeling=feeling))


def _existence(story: Story, clause: Clause, dice: Dice) -> Iterator[Question]:
    told, subject = _Told(story, clause, dice), story.named(clause.subject)
    helper, rest = _be(clause.tense, story.several(clause.subject))
    if subject is None or clause.place is None:
        return
    other = told.exists_elsewhere
    if story.count(story.lemma(clause.subject)) == 1:
        yield Question("where", f"Where {helper} {subject}{' ' + rest.strip() if rest else ''}?", clause.place, other)
    if story.count(story.lemma(clause.place)) == 1:
        be = _BE[clause.tense]
        yield Question("what", f"What {be} {story.written(clause.place)}?", clause.subject, other)


def _be(tense: str, several: bool) -> tuple[str, str]:
    """The form of "be" before the subject of a question, and what stands behind it."""
    if tense == "future":
        return "will", "be "
    return {"past": ("was", "were"), "present": ("is", "are")}[tense][several], ""


_ASKING: dict[str, tuple[Callable[[Story, Clause, Dice], Iterator[Question]], ...]] = {
    "active": (_active,),
    "passive": (_passive,),
    "described": (_described,),
    "existence": (_existence,),
}


class _Told:
    """One clause and what a question or a misleading sentence needs of it: verb forms, others, other places."""

    def __init__(self, story: Story, clause: Clause, dice: Dice) -> None:
        self.story, self.clause, self.dice = story, clause, dice
        several = story.several(clause.subject)
        self.helper = {"past": "did", "present": "do" if several else "does", "future": "will"}[clause.tense]
        self.base = story.lemma(clause.head)

    @property
    def third(self) -> str:
        """The verb as "who" and a name take it."""
        if self.clause.tense == "future":
            return f"will {self.base}"
        if self.clause.tense == "past":
            return self.story.form(self.clause.head)
        return Verb(self.base, self.base, self.base).finite("present", _THIRD)

    def which(self, at: Mention) -> str:
        """The word that asks for a mention."""
        return _WORDS[self.story.sort(at)]

    def somebody(self) -> str:
        """A name that is not in the story."""
        return self._unused((*lexicon.FEMALE_NAMES, *lexicon.MALE_NAMES))

    def something(self) -> str:
        noun = self._unused(tuple(noun_forms(entry)[0] for entry in lexicon.THING_NOUNS))
        return f"{article(noun)} {noun}"

    def somewhere(self) -> str:
        return f"{self.dice.one(('near', 'behind'))} the {self._unused(lexicon.BUILDING_NOUNS)}"

    def some_time(self) -> str:
        return f"on {self._unused(lexicon.DAYS)}"

    def _unused(self, words: tuple[str, ...]) -> str:
        return self.dice.one([word for word in words if self.story.count(word) == 0] or words)

    def _verb(self) -> str:
        inner = self.clause.inner
        return self.third if inner is None else f"{self.third} to {self.story.lemma(inner)}"

    def _other_object(self) -> str:
        thing = self.clause.thing
        if thing is None:
            return ""
        receiver = "" if self.clause.receiver is None else f" {self.story.named(self.clause.receiver)}"
        return f"{receiver} {self.something() if self.story.sort(thing) == 'thing' else self.somebody()}"

    def other_doer(self) -> str:
        """Somebody else did it to another; or did not do it, where nothing else tells the two apart."""
        if self.clause.thing is not None:
            return f"{self.somebody()} {self._verb()}{self._other_object()}."
        helper = {"past": "did", "present": "does", "future": "will"}[self.clause.tense]
        return f"{self.somebody()} {helper} not {self.base}{_trail(self.story, self.clause)}."

    def other_receiver(self) -> str:
        """Another thing went to somebody else, from somebody else."""
        return f"{self.somebody()} {self.third} {self.somebody()} {self.something()}."

    def elsewhere(self) -> str:
        return f"{self.somebody()} {self._verb()}{self._other_object()} {self.somewhere()}."

    def at_another_time(self) -> str:
        return f"{self.somebody()} {self._verb()}{self._other_object()} {self.some_time()}."

    def other_number(self) -> str:
        """Somebody else did it to another number of the same things."""
        assert self.clause.thing is not None
        number = self._unused(lexicon.NUMBERS)
        receiver = "" if self.clause.receiver is None else f" {self.somebody()}"
        return f"{self.somebody()} {self._verb()}{receiver} {number} {self.story.form(self.clause.thing)}."

    def other_sufferer(self) -> str:
        """The same was done to somebody else, by another, elsewhere."""
        be = _BE[self.clause.tense]
        participle = self.story.form(self.clause.head)
        return f"{self.somebody()} {be} {participle} by {self.somebody()} {self.somewhere()}."

    def otherwise(self, *, feeling: bool) -> str:
        """Another is described by another word."""
        be = _BE[self.clause.tense]
        kinds = lexicon.FEELINGS if feeling else lexicon.THING_ADJECTIVES
        adjective = self._unused(tuple(word for words in kinds.values() for word in words))
        subject = self.somebody() if feeling else self.something().partition(" ")[2]
        return f"{subject if feeling else f'The {subject}'} {be} {adjective}."

    def exists_elsewhere(self) -> str:
        be = _BE[self.clause.tense]
        return f"There {be} {self.something()} {self.somewhere()}."
