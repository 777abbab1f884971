"""Noun phrases and prepositional phrases, and who has been mentioned so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from pellucid.corpus.grammar import lexicon
from pellucid.corpus.grammar.inflection import Agreement, article, noun_forms
from pellucid.corpus.grammar.tree import Node, word

T = TypeVar("T")
Adjectives = Mapping[str | None, Sequence[str]]


class Dice:
    """Choices that are the same for a seed on every version of Python: all stand on `Random.random` alone."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def chance(self, share: float) -> bool:
        """True in this share of calls."""
        return self._random.random() < share

    def one(self, items: Sequence[T]) -> T:
        """One of the items, all equally likely."""
        return items[int(self._random.random() * len(items))]

    def weighted(self, items: Mapping[T, float]) -> T:
        """One of the keys, as likely as its weight says."""
        left = self._random.random() * sum(items.values())
        for item, weight in items.items():
            left -= weight
            if left < 0:
                return item
        return list(items)[-1]


@dataclass(frozen=True)
class Pronoun:
    """The forms of a personal pronoun and what they say."""

    subject: str
    object: str
    possessive: str
    person: str
    number: str
    gender: str | None


PRONOUNS = {
    "she": Pronoun("she", "her", "her", "3", "singular", "feminine"),
    "he": Pronoun("he", "him", "his", "3", "singular", "masculine"),
    "it": Pronoun("it", "it", "its", "3", "singular", "neuter"),
    "they": Pronoun("they", "them", "their", "3", "plural", None),
    "I": Pronoun("I", "me", "my", "1", "singular", None),
    "we": Pronoun("we", "us", "our", "1", "plural", None),
}
ADJECTIVES: dict[str, Adjectives] = {
    "person": lexicon.PERSON_ADJECTIVES,
    "animal": lexicon.ANIMAL_ADJECTIVES,
    "thing": lexicon.THING_ADJECTIVES,
    "place": lexicon.PLACE_ADJECTIVES,
}
_SENTIMENTS: dict[str | None, float] = {None: 0.5, "positive": 0.25, "negative": 0.25}


@dataclass(frozen=True)
class Entity:
    """Somebody a story is about; no two in one story answer to the same pronoun."""

    id: str
    pronoun: Pronoun
    kind: str  # "person" or "animal"
    noun: str | None = None  # its entry in the lexicon
    name: str | None = None
    gender: str | None = None  # what its noun or name says

    @property
    def agreement(self) -> Agreement:
        return Agreement(self.pronoun.person, self.pronoun.number)

    @property
    def narrates(self) -> bool:
        return self.pronoun.person == "1"


@dataclass
class Scene:
    """What the sentence being written may refer to."""

    dice: Dice
    entities: tuple[Entity, ...]
    known: set[str]  # entities mentioned in the story so far
    here: set[str] = field(default_factory=set[str])  # entities mentioned in this sentence
    nouns: set[str] = field(default_factory=set[str])  # other nouns of this sentence: each is used once

    def has(self, pronoun: str) -> bool:
        """Whether somebody in the story answers to this pronoun."""
        return any(entity.pronoun.subject == pronoun for entity in self.entities)

    def free(self, role: str, kinds: Sequence[str], barred: frozenset[str]) -> list[Entity]:
        """The entities that can be mentioned now: "it" is clear only as a subject, where things cannot be meant."""
        return [
            entity
            for entity in self.entities
            if entity.kind in kinds
            and entity.id not in barred
            and not (entity.id in self.here and entity.pronoun.subject == "it" and role != "subject")
        ]


def mention(scene: Scene, entity: Entity, role: str, *, full: bool = False) -> Node:
    """A noun phrase for an entity, as "subject" or "object"; `full` means no pronoun.

    Its first mention is a name or a full noun phrase; within one sentence every later mention is a pronoun.
    """
    clear = entity.pronoun.subject != "it" or role == "subject"
    known, again = entity.id in scene.known, entity.id in scene.here
    scene.known.add(entity.id)
    scene.here.add(entity.id)
    if not full and (entity.narrates or again or (known and clear and scene.dice.chance(0.45))):
        return _pronoun(entity, getattr(entity.pronoun, role))
    if entity.name is not None:
        return Node(entity.name, "PROPN", entity.name, number="singular", gender=entity.gender, coref=entity.id)
    assert entity.noun is not None
    node = _noun(entity.noun, entity.pronoun.number, entity.gender)
    node.coref = entity.id
    if not known and scene.dice.chance(0.5):
        _adjectives(scene, node, entity.kind)
    if known or scene.dice.chance(0.25):
        _determined(node, "the")
    elif node.number == "singular":
        _indefinite(node)
    else:
        _counted(scene, node)
    return node


def _pronoun(entity: Entity, form: str) -> Node:
    pronoun = entity.pronoun
    return Node(
        form,
        "PRON",
        pronoun.subject,
        number=pronoun.number,
        gender=pronoun.gender,
        person=pronoun.person,
        coref=entity.id,
    )


def thing(scene: Scene, *, owner: Entity | None = None, new: bool = False) -> Node:
    """A noun phrase for a thing, which may belong to somebody already mentioned; `new` means an indefinite one."""
    plural = not scene.has("they") and scene.dice.chance(0.3)
    return _other(scene, lexicon.THING_NOUNS, "thing", plural, owner=owner, definite=0.0 if new else 0.35)


def other_person(scene: Scene) -> Node | None:
    """A noun phrase for somebody the story is not about, whom none of its pronouns could mean, if there is one."""
    choices: dict[str, float] = {}
    if not scene.has("they"):
        choices["plural"] = 1
    if not scene.has("she"):
        choices["feminine"] = 1
    if not scene.has("he"):
        choices["masculine"] = 1
    if not choices:
        return None
    chosen = scene.dice.weighted(choices)
    if chosen == "plural":
        return _other(scene, lexicon.PERSON_NOUNS, "person", True)
    nouns = lexicon.FEMALE_NOUNS if chosen == "feminine" else lexicon.MALE_NOUNS
    return _other(scene, nouns, "person", False, gender=chosen)


def place(scene: Scene, relation: str = "obl") -> Node:
    """A prepositional phrase that says where."""
    nouns, prepositions = scene.dice.one(
        (
            (lexicon.BUILDING_NOUNS, ("in", "near", "behind", "outside")),
            (lexicon.OUTDOOR_NOUNS, ("near", "beside")),
            (lexicon.ROOM_NOUNS, ("in",)),
        )
    )
    node = _other(scene, nouns, "place", False, decorated=0.25, definite=0.8)
    return prepositional(scene.dice.one(prepositions), node, relation)


def time(scene: Scene) -> Node:
    """A prepositional phrase that says when."""
    kind = scene.dice.one(("day", "part", "event"))
    if kind == "day":
        day = scene.dice.one(lexicon.DAYS)
        return prepositional("on", Node(day, "PROPN", day, number="singular"), "obl")
    nouns = lexicon.DAY_PARTS if kind == "part" else lexicon.EVENT_NOUNS
    node = _noun(scene.dice.one(nouns), "singular", "neuter")
    _determined(node, "the")
    preposition = "in" if kind == "part" else scene.dice.one(("during", "after", "before"))
    return prepositional(preposition, node, "obl")


def prepositional(preposition: str, node: Node, relation: str) -> Node:
    """A noun phrase behind a preposition."""
    node.before.insert(0, word(preposition, "ADP", "case"))
    return node.under(relation)


def origin(scene: Scene) -> Node:
    """A prepositional phrase that belongs to a noun: where somebody or something comes from."""
    nouns = scene.dice.one((lexicon.BUILDING_NOUNS, lexicon.OUTDOOR_NOUNS[-1:]))
    return prepositional("from", _other(scene, nouns, "place", False, decorated=0.15, definite=1.0), "nmod")


def _other(
    scene: Scene,
    nouns: Sequence[str],
    kind: str,
    plural: bool,
    *,
    gender: str | None = None,
    owner: Entity | None = None,
    decorated: float = 0.4,
    definite: float = 0.35,
) -> Node:
    unused = [noun for noun in nouns if noun not in scene.nouns] or nouns
    noun = scene.dice.one(unused)
    scene.nouns.add(noun)
    neuter = "neuter" if kind in ("thing", "place") else None
    node = _noun(noun, "plural" if plural else "singular", gender or neuter)
    if scene.dice.chance(decorated):
        _adjectives(scene, node, kind)
    if owner is not None and owner.id in scene.known and scene.dice.chance(0.5):
        node.before.insert(0, _pronoun(owner, owner.pronoun.possessive).under("nmod:poss"))
        scene.here.add(owner.id)
    elif plural:
        _counted(scene, node, definite=definite > 0)
    elif scene.dice.chance(definite):
        _determined(node, scene.dice.weighted({"the": 0.85, "this": 0.08, "that": 0.07}))
    else:
        _indefinite(node)
    return node


def _noun(entry: str, number: str, gender: str | None) -> Node:
    singular, plural = noun_forms(entry)
    return Node(plural if number == "plural" else singular, "NOUN", singular, number=number, gender=gender)


def adjective(scene: Scene, choices: Adjectives, relation: str) -> Node:
    """An adjective with its sentiment, at times with an adverb of degree."""
    sentiment = scene.dice.weighted(_SENTIMENTS)
    node = word(scene.dice.one(choices[sentiment]), "ADJ", relation)
    node.sentiment = sentiment
    return node


def with_degree(scene: Scene, node: Node, share: float) -> Node:
    """The adjective, in this share of calls with an adverb of degree before it."""
    if scene.dice.chance(share):
        node.before.append(word(scene.dice.one(lexicon.DEGREE_ADVERBS), "ADV", "advmod"))
    return node


def _adjectives(scene: Scene, node: Node, kind: str) -> None:
    node.before.append(adjective(scene, ADJECTIVES[kind], "amod"))


def _determined(node: Node, determiner: str) -> None:
    node.before.insert(0, word(determiner, "DET", "det"))


def _indefinite(node: Node) -> None:
    node.before.insert(0, word(article(next(node.in_order()).form), "DET", "det", "a"))


def _counted(scene: Scene, node: Node, *, definite: bool = True) -> None:
    """A number or a determiner of plurals before the noun."""
    if scene.dice.chance(0.4):
        node.before.insert(0, word(scene.dice.one(lexicon.NUMBERS), "NUM", "nummod"))
        return
    chosen = scene.dice.one(lexicon.PLURAL_DETERMINERS if definite else lexicon.INDEFINITE_PLURALS)
    if chosen in ("several", "many"):  # adjectives, as English treebanks have them
        node.before.insert(0, word(chosen, "ADJ", "amod"))
    else:
        node.before.insert(0, word(chosen, "DET", "det", {"these": "this", "those": "that"}.get(chosen)))
