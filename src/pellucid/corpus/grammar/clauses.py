"""Clauses: a subject, a predicate of one of several frames, and what hangs on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pellucid.corpus.grammar import lexicon, phrases
from pellucid.corpus.grammar.inflection import Agreement, Verb, be, do
from pellucid.corpus.grammar.phrases import Entity, Scene
from pellucid.corpus.grammar.tree import Node, word

EMBEDDED = {"past": "past", "present": "present", "future": "present"}
"""The tense of a clause inside another one, by the tense of that other one."""


@dataclass(frozen=True)
class Subject:
    """Who a predicate is about; `node` is None where the predicate shares a subject that is written already."""

    node: Node | None
    agreement: Agreement
    kind: str  # "person", "animal" or "thing"
    entity: Entity | None = None  # None for things, and for several joined
    barred: frozenset[str] = frozenset()  # entities that no object of the same clause may mean

    @staticmethod
    def of(node: Node | None, entity: Entity) -> Subject:
        """An entity as subject."""
        return Subject(node, entity.agreement, entity.kind, entity, frozenset({entity.id}))


@dataclass(frozen=True)
class Plan:
    """What the clause may hold: `room` more levels of clauses inside it, a negation, a mere description."""

    tense: str
    room: int
    negatable: bool = True
    describing: bool = True
    barred: frozenset[str] = frozenset()  # entities that must not be mentioned in it

    def inner(self) -> Plan:
        """The plan of a clause inside this one."""
        return Plan(EMBEDDED[self.tense], self.room - 1)


def clause(scene: Scene, plan: Plan) -> Node:
    """A clause with its own subject; its head is the predicate."""
    subject = _subject(scene, plan)
    return with_subject(predicate(scene, plan, subject), subject)


def with_subject(head: Node, subject: Subject) -> Node:
    """The predicate with its subject before it."""
    assert subject.node is not None
    passive = any(child.relation == "aux:pass" for child in head.before)
    head.before.insert(0, subject.node.under("nsubj:pass" if passive else "nsubj"))
    return head


def _subject(scene: Scene, plan: Plan) -> Subject:
    free = scene.free("subject", ("person", "animal"), plan.barred)
    if not free or (plan.describing and scene.dice.chance(0.1)):
        node = phrases.thing(scene)
        node = _modified(scene, node, "thing", plan, None)
        return Subject(node, _agreement(node), "thing")
    fresh = [
        entity for entity in free if entity.kind == "person" and entity.id not in scene.here and not entity.narrates
    ]
    if len(fresh) > 1 and scene.dice.chance(0.08):
        first, second = fresh[:2] if scene.dice.chance(0.5) else fresh[1::-1]
        node = phrases.mention(scene, first, "subject", full=True)
        _joined(node, phrases.mention(scene, second, "subject", full=True))
        return Subject(node, Agreement("3", "plural"), "person", None, frozenset({first.id, second.id}))
    entity = scene.dice.one(free)
    node = phrases.mention(scene, entity, "subject")
    return Subject.of(_modified(scene, node, entity.kind, plan, entity), entity)


def _agreement(node: Node) -> Agreement:
    assert node.number is not None
    return Agreement("3", node.number)


def _joined(first: Node, second: Node) -> None:
    second.before.insert(0, word("and", "CCONJ", "cc"))
    first.after.append(second.under("conj"))


def _modified(scene: Scene, node: Node, kind: str, plan: Plan, entity: Entity | None) -> Node:
    """The noun phrase, at times with a prepositional phrase or a relative clause behind its noun."""
    if node.upos != "NOUN":
        return node
    if kind != "animal" and not node.before[0].relation.endswith("poss") and scene.dice.chance(0.1):
        node.after.append(phrases.origin(scene))
    elif plan.room > 0 and scene.dice.chance(0.2):
        relative = _relative(scene, node, kind, plan, entity)
        if relative is not None:
            node.after.append(relative.under("acl:relcl"))
    return node


def _relative(scene: Scene, noun: Node, kind: str, plan: Plan, entity: Entity | None) -> Node | None:
    barred = plan.barred | ({entity.id} if entity is not None else frozenset[str]())
    inner = replace(plan.inner(), barred=barred)
    linker = word("who" if kind == "person" else "that", "PRON", "nsubj")
    if kind != "thing" and scene.dice.chance(0.6):
        head = predicate(scene, inner, Subject(None, _agreement(noun), kind, entity, barred))
        passive = any(child.relation == "aux:pass" for child in head.before)
        head.before.insert(0, linker.under("nsubj:pass" if passive else "nsubj"))
        return head
    owners = scene.free("subject", ("person",), barred)
    if not owners:
        return None
    owner = scene.dice.one(owners)
    subject = Subject.of(phrases.mention(scene, owner, "subject"), owner)
    sentiment, verbs = (None, lexicon.WITH_THING) if kind == "thing" else _person_verbs(scene, kind)
    head = _finite(scene, Verb.of(scene.dice.one(verbs)), inner, subject, False)
    head.sentiment = sentiment
    with_subject(head, subject)
    head.before.insert(0, linker.under("obj"))
    return head


def predicate(scene: Scene, plan: Plan, subject: Subject) -> Node:
    """A predicate that fits a subject, without that subject."""
    if subject.kind == "thing":
        return _described(scene, plan, subject)
    frames = {"alone": 3.0, "person": 4.0, "thing": 3.0, "described": 2.0 if plan.describing else 0.0, "passive": 0.8}
    if subject.kind == "person":
        frames |= {"gift": 1.2, "infinitive": 1.0, "linking": 0.8, "said": 2.2 if plan.room > 0 else 0.0}
    frame = scene.dice.weighted(frames)
    written = {
        "alone": alone,
        "person": _with_person,
        "thing": with_thing,
        "described": _described,
        "passive": _passive,
        "gift": _gift,
        "infinitive": _infinitive,
        "linking": _linking,
        "said": _said,
    }
    return written[frame](scene, plan, subject)


def _negated(scene: Scene, plan: Plan) -> bool:
    return plan.negatable and scene.dice.chance(0.16)


def _finite(scene: Scene, verb: Verb, plan: Plan, subject: Subject, negated: bool) -> Node:
    """The verb in its tense: with "will" in the future, with "do" under negation, else inflected."""
    head = word(verb.base, "VERB", "root")
    if plan.tense == "future":
        helper = word("will", "AUX", "aux")
        helper.tense = "future"
        head.before.append(helper)
    elif negated:
        head.before.append(_agreeing(word(do(plan.tense, subject.agreement), "AUX", "aux", "do"), plan, subject))
    else:
        head.form = verb.finite(plan.tense, subject.agreement)
        _agreeing(head, plan, subject)
    if negated:
        head.before.append(word("not", "PART", "advmod"))
    elif plan.tense == "present" and scene.dice.chance(0.15):
        head.before.append(word(scene.dice.one(lexicon.FREQUENCY_ADVERBS), "ADV", "advmod"))
    return head


def _agreeing(node: Node, plan: Plan, subject: Subject) -> Node:
    node.tense, node.number, node.person = plan.tense, subject.agreement.number, subject.agreement.person
    return node


def _being(head: Node, relation: str, plan: Plan, subject: Subject, negated: bool) -> Node:
    """The head with "be" before it, as copula or auxiliary."""
    if plan.tense == "future":
        helper = word("will", "AUX", "aux")
        helper.tense = "future"
        parts = [helper, *([word("not", "PART", "advmod")] if negated else []), word("be", "AUX", relation)]
    else:
        form = _agreeing(word(be(plan.tense, subject.agreement), "AUX", relation, "be"), plan, subject)
        parts = [form, *([word("not", "PART", "advmod")] if negated else [])]
    head.before[:0] = parts
    return head


def _adjuncts(scene: Scene, head: Node, *, manner: float = 0.0, where: float = 0.25, when: float = 0.12) -> Node:
    if scene.dice.chance(manner):
        head.after.append(word(scene.dice.one(lexicon.MANNER_ADVERBS), "ADV", "advmod"))
    if scene.dice.chance(where):
        head.after.append(phrases.place(scene))
    if scene.dice.chance(when):
        head.after.append(phrases.time(scene))
    return head


def alone(scene: Scene, plan: Plan, subject: Subject) -> Node:
    """A predicate without an object."""
    verbs = lexicon.ANIMAL_INTRANSITIVE if subject.kind == "animal" else [*lexicon.INTRANSITIVE, *lexicon.MOTION]
    head = _finite(scene, Verb.of(scene.dice.one(verbs)), plan, subject, _negated(scene, plan))
    return _adjuncts(scene, head, manner=0.35, where=0.5, when=0.25)


def _person_verbs(scene: Scene, target: str, subject_kind: str = "person") -> tuple[str | None, Sequence[str]]:
    """A sentiment, and the verbs with that sentiment whose object can be a person or an animal."""
    verbs = lexicon.ANIMAL_WITH_PERSON if subject_kind == "animal" else lexicon.WITH_PERSON
    sentiment = scene.dice.weighted({None: 0.5, "positive": 0.25, "negative": 0.25})
    fitting = [verb for verb in verbs[sentiment] if target == "person" or verb not in lexicon.ONLY_TO_PERSONS]
    return sentiment, fitting


def _somebody(scene: Scene, plan: Plan, subject: Subject, kinds: Sequence[str]) -> tuple[Node, str] | None:
    """A noun phrase for the object of a clause, and whether it is a person or an animal."""
    free = scene.free("object", kinds, subject.barred | plan.barred)
    if free and scene.dice.chance(0.75):
        entity = scene.dice.one(free)
        node = phrases.mention(scene, entity, "object")
        return _modified(scene, node, entity.kind, plan, entity), entity.kind
    node = phrases.other_person(scene)
    return None if node is None else (_modified(scene, node, "person", plan, None), "person")


def _with_person(scene: Scene, plan: Plan, subject: Subject) -> Node:
    found = _somebody(scene, plan, subject, ("person", "animal"))
    if found is None:
        return with_thing(scene, plan, subject)
    sentiment, verbs = _person_verbs(scene, found[1], subject.kind)
    head = _finite(scene, Verb.of(scene.dice.one(verbs)), plan, subject, _negated(scene, plan))
    head.sentiment = sentiment
    head.after.append(found[0].under("obj"))
    return _adjuncts(scene, head)


def with_thing(scene: Scene, plan: Plan, subject: Subject) -> Node:
    """A predicate with a thing as its object."""
    verbs = lexicon.ANIMAL_WITH_THING if subject.kind == "animal" else lexicon.WITH_THING
    head = _finite(scene, Verb.of(scene.dice.one(verbs)), plan, subject, _negated(scene, plan))
    head.after.append(_thing(scene, plan, subject, head.lemma).under("obj"))
    return _adjuncts(scene, head)


def _thing(scene: Scene, plan: Plan, subject: Subject, verb: str) -> Node:
    own = subject.kind == "person" and verb not in lexicon.OF_OTHERS
    node = phrases.thing(scene, owner=subject.entity if own else None)
    if scene.dice.chance(0.1):
        _joined(node, phrases.thing(scene))
        return node
    return _modified(scene, node, "thing", plan, None)


def _gift(scene: Scene, plan: Plan, subject: Subject) -> Node:
    plain = replace(plan, room=0)
    found = _somebody(scene, plain, subject, ("person",))
    if found is None:
        return with_thing(scene, plan, subject)
    head = _finite(scene, Verb.of(scene.dice.one(lexicon.TO_PERSON)), plan, subject, _negated(scene, plan))
    head.after.append(found[0].under("iobj"))
    head.after.append(_thing(scene, plan, subject, head.lemma).under("obj"))
    return _adjuncts(scene, head, where=0.1)


def _infinitive(scene: Scene, plan: Plan, subject: Subject) -> Node:
    head = _finite(scene, Verb.of(scene.dice.one(lexicon.WITH_INFINITIVE)), plan, subject, False)
    inner = word("", "VERB", "xcomp")
    inner.before.append(word("to", "PART", "mark"))
    if scene.dice.chance(0.4):
        inner.form = inner.lemma = Verb.of(scene.dice.one(lexicon.INTRANSITIVE)).base
        _adjuncts(scene, inner, where=0.5)
    else:
        inner.form = inner.lemma = Verb.of(scene.dice.one(lexicon.WILLED)).base
        inner.after.append(_thing(scene, plan, subject, inner.lemma).under("obj"))
    head.after.append(inner)
    return head


def _linking(scene: Scene, plan: Plan, subject: Subject) -> Node:
    head = _finite(scene, Verb.of(scene.dice.one(lexicon.LINKING)), plan, subject, False)
    state = phrases.adjective(scene, lexicon.FEELINGS, "xcomp")
    head.after.append(_graded(scene, state))
    return head


def _graded(scene: Scene, node: Node) -> Node:
    return node if node.lemma in lexicon.WITHOUT_DEGREE else phrases.with_degree(scene, node, 0.3)


def _described(scene: Scene, plan: Plan, subject: Subject) -> Node:
    feeling = subject.kind == "person" and scene.dice.chance(0.5)
    head = phrases.adjective(scene, lexicon.FEELINGS if feeling else phrases.ADJECTIVES[subject.kind], "root")
    negated = _negated(scene, plan)
    if not negated:
        _graded(scene, head)
    _being(head, "cop", plan, subject, negated)
    if feeling and scene.dice.chance(0.25):
        head.after.append(phrases.time(scene))
    return head


def _passive(scene: Scene, plan: Plan, subject: Subject) -> Node:
    sentiment, verbs = _person_verbs(scene, subject.kind)
    verb = Verb.of(scene.dice.one(verbs))
    head = Node(verb.participle, "VERB", verb.base, sentiment=sentiment)
    negated = _negated(scene, plan)
    _being(head, "aux:pass", plan, subject, negated)
    found = _somebody(scene, replace(plan, room=0), subject, ("person",))
    if found is not None:
        head.after.append(phrases.prepositional("by", found[0], "obl:agent"))
    return _adjuncts(scene, head, where=0.3)


def _said(scene: Scene, plan: Plan, subject: Subject) -> Node:
    head = _finite(scene, Verb.of(scene.dice.one(lexicon.WITH_CLAUSE)), plan, subject, False)
    inner = plan.inner()
    content = clause(scene, inner)
    if head.lemma not in ("say", "think", "know", "believe") or scene.dice.chance(0.7):
        content.before.insert(0, word("that", "SCONJ", "mark"))
    head.after.append(content.under("ccomp"))
    return head
