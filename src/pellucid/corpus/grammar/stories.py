"""Short stories: a few entities, one tense, three to eight sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import count as counting

from pellucid.corpus.grammar import lexicon, phrases
from pellucid.corpus.grammar.clauses import Plan, Subject, alone, clause, with_thing
from pellucid.corpus.grammar.inflection import Agreement, be
from pellucid.corpus.grammar.phrases import PRONOUNS, Dice, Entity, Scene
from pellucid.corpus.grammar.tree import Node, sentence_of, word
from pellucid.corpus.sentence import Sentence

VERSION = "2"
"""Part of the fingerprint of generated corpora: raised when the same seed gives other sentences."""

SHAPES = {"simple": 0.5, "adverbial": 0.13, "fronted": 0.1, "joined": 0.12, "shared": 0.1, "existence": 0.05}


def generate(count: int, seed: int) -> Iterator[Sentence]:
    """`count` sentences of stories; a longer corpus of the same seed begins with those of a shorter one."""
    written = 0
    for story in counting(1):
        for sentence in _story(story, seed):
            if written == count:
                return
            yield sentence
            written += 1


def _story(number: int, seed: int) -> Iterator[Sentence]:
    dice = Dice(int.from_bytes(blake2b(f"{seed}/{number}".encode(), digest_size=8).digest(), "little"))
    entities = _entities(dice)
    tense = dice.weighted({"past": 0.65, "present": 0.35})
    known: set[str] = set()
    for place in range(1, 4 + int(dice.one(range(6)))):
        scene = Scene(dice, entities, known)
        now = "future" if tense == "present" and dice.chance(0.25) else tense
        root = _sentence(scene, now, first=place == 1)
        root.after.append(word(".", "PUNCT", "punct"))
        yield sentence_of(root, id=f"{number}-{place}", document=f"story {number}", tense=now)


def _entities(dice: Dice) -> tuple[Entity, ...]:
    """Two to four entities, no two of which answer to the same pronoun."""
    pronouns = [dice.one(("she", "he"))]
    for pronoun, share in (("she", 0.6), ("he", 0.6), ("it", 0.4), ("they", 0.3), ("I", 0.12), ("we", 0.06)):
        if pronoun not in pronouns and len(pronouns) < 4 and dice.chance(share):
            pronouns.append(pronoun)
    if len(pronouns) == 1:
        pronouns.append("he" if pronouns[0] == "she" else "she")
    return tuple([_entity(dice, pronoun, f"e{number}") for number, pronoun in enumerate(pronouns, start=1)])


def _entity(dice: Dice, pronoun: str, name: str) -> Entity:
    forms = PRONOUNS[pronoun]
    if forms.person == "1":
        return Entity(name, forms, "person")
    if pronoun == "it":
        return Entity(name, forms, "animal", noun=dice.one(lexicon.ANIMAL_NOUNS), gender="neuter")
    if pronoun == "they":
        return Entity(name, forms, "person", noun=dice.one(lexicon.PERSON_NOUNS))
    female = pronoun == "she"
    kind = dice.weighted({"name": 0.45, "gendered": 0.25, "open": 0.3})
    if kind == "name":
        names = lexicon.FEMALE_NAMES if female else lexicon.MALE_NAMES
        return Entity(name, forms, "person", name=dice.one(names), gender=forms.gender)
    if kind == "gendered":
        nouns = lexicon.FEMALE_NOUNS if female else lexicon.MALE_NOUNS
        return Entity(name, forms, "person", noun=dice.one(nouns), gender=forms.gender)
    return Entity(name, forms, "person", noun=dice.one(lexicon.PERSON_NOUNS))


def _sentence(scene: Scene, tense: str, *, first: bool) -> Node:
    """One sentence without its full stop."""
    dice = scene.dice
    shape = dice.weighted(SHAPES)
    plan = Plan(tense, room=2)
    if shape == "existence":
        return _existence(scene, tense)
    if shape == "fronted":
        opening = _subordinate(scene, plan)
        opening.after.append(word(",", "PUNCT", "punct"))
        root = clause(scene, replace(plan, room=1))
        root.before.insert(0, opening)
        return root
    root = clause(scene, replace(plan, room=2 if shape == "simple" else 1, negatable=shape != "shared"))
    if shape == "adverbial":
        root.after.append(_subordinate(scene, plan))
    elif shape == "joined":
        _join(scene, root, replace(plan, room=1))
    elif shape == "shared":
        _share(scene, root, plan)
    if not first and dice.chance(0.12) and all(child.form not in lexicon.FREQUENCY_ADVERBS for child in root.before):
        opener = word(dice.one(lexicon.OPENING_ADVERBS), "ADV", "advmod")
        root.before[:0] = [opener, word(",", "PUNCT", "punct")]
    return root


def _subordinate(scene: Scene, plan: Plan) -> Node:
    """An adverbial clause with the word that opens it."""
    mark = word(scene.dice.one(lexicon.SUBORDINATORS[plan.tense]), "SCONJ", "mark")
    reason = mark.form in ("because", "although")
    head = clause(scene, replace(plan.inner(), negatable=reason or mark.form == "if", describing=reason))
    head.before.insert(0, mark)
    return head.under("advcl")


def _join(scene: Scene, root: Node, plan: Plan) -> None:
    """A second main clause behind the first."""
    other = clause(scene, plan)
    conjunction = scene.dice.one(("and", "but"))
    other.before[:0] = [word(",", "PUNCT", "punct"), word(conjunction, "CCONJ", "cc")]
    root.after.append(other.under("conj"))


def _share(scene: Scene, root: Node, plan: Plan) -> None:
    """A second predicate that shares the subject of the first, where the first is a plain verb of somebody."""
    subject = root.before[0]
    entity = next((entity for entity in scene.entities if entity.id == subject.coref), None)
    joined = any(child.relation == "conj" for child in subject.after)
    clausal = any(child.relation in ("ccomp", "xcomp") for child in root.after)
    if entity is None or joined or clausal or root.upos != "VERB" or root.tense is None:
        return
    written = alone if any(child.relation == "obj" for child in root.after) else with_thing
    other = written(scene, replace(plan, room=0, negatable=False), Subject.of(None, entity))
    other.before.insert(0, word("and", "CCONJ", "cc"))
    root.after.append(other.under("conj"))


def _existence(scene: Scene, tense: str) -> Node:
    """ "There was a lamp in the kitchen", with agreement between the verb and the noun behind it."""
    noun = phrases.thing(scene, new=True)
    assert noun.number is not None
    root = Node("be", "VERB", "be")
    if tense == "future":
        helper = word("will", "AUX", "aux")
        helper.tense = tense
        root.before = [helper]
    else:
        root.form = be(tense, Agreement("3", noun.number))
        root.tense, root.number, root.person = tense, noun.number, "3"
    root.before.insert(0, word("there", "PRON", "expl"))
    root.after = [noun.under("nsubj"), phrases.place(scene)]
    return root
