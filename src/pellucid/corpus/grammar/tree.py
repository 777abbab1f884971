"""Dependency trees under construction, and the sentences they become."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pellucid.corpus.sentence import Arc, Sentence

FEATURES = ("number", "tense", "gender", "person", "sentiment", "coref")
CLAUSES = frozenset({"acl:relcl", "ccomp", "advcl"})
"""Relations that open a clause inside a clause."""


@dataclass(eq=False)
class Node:
    """A word with its labels and its dependents, in order, on both sides: every tree of nodes is projective."""

    form: str
    upos: str
    lemma: str
    relation: str = "root"
    number: str | None = None
    tense: str | None = None
    gender: str | None = None
    person: str | None = None
    sentiment: str | None = None
    coref: str | None = None
    before: list[Node] = field(default_factory=list["Node"])
    after: list[Node] = field(default_factory=list["Node"])

    def under(self, relation: str) -> Node:
        """This node, as a dependent by `relation`."""
        self.relation = relation
        return self

    def children(self) -> list[Node]:
        """All dependents, from left to right."""
        return [*self.before, *self.after]

    def in_order(self) -> Iterator[Node]:
        """The words of the subtree from left to right."""
        for child in self.before:
            yield from child.in_order()
        yield self
        for child in self.after:
            yield from child.in_order()


def word(form: str, upos: str, relation: str, lemma: str | None = None) -> Node:
    """A word without features."""
    return Node(form, upos, form if lemma is None else lemma, relation)


def sentence_of(root: Node, *, id: str, document: str, tense: str) -> Sentence:  # noqa: A002
    """The finished sentence: text with capital and full stop, labels, arcs and facts."""
    nodes = list(root.in_order())
    place = {id_: position for position, id_ in enumerate(map(_identity, nodes))}
    heads = {_identity(child): place[_identity(node)] for node in nodes for child in node.children()}
    text, spans = "", list[tuple[int, int]]()
    for position, node in enumerate(nodes):
        form = node.form if position else node.form[0].upper() + node.form[1:]
        text += " " if position and node.upos != "PUNCT" else ""
        spans.append((len(text), len(text) + len(form)))
        text += form
    labels: dict[str, tuple[str | None, ...]] = {
        "upos": tuple([node.upos for node in nodes]),
        "lemma": tuple([node.lemma for node in nodes]),
        "deprel": tuple([node.relation for node in nodes]),
        **{name: tuple([getattr(node, name) for node in nodes]) for name in FEATURES},
    }
    arcs = tuple([Arc(at, heads.get(_identity(node), -1), node.relation) for at, node in enumerate(nodes)])
    facts = {
        "sentiment": _sentiment(nodes),
        "tense": tense,
        "depth": str(_depth(root)),
        "subject_number": _subject_number(root),
    }
    return Sentence(id, document, text, tuple(spans), labels, arcs, facts)


def _identity(node: Node) -> int:
    return id(node)


def _sentiment(nodes: list[Node]) -> str:
    """The sign of the sum over words with a sentiment; a negation turns the word it hangs on."""
    total = 0
    for node in nodes:
        if node.sentiment is not None:
            negated = any(child.lemma == "not" for child in node.children())
            total += -1 if (node.sentiment == "negative") != negated else 1
    return "positive" if total > 0 else "negative" if total < 0 else "neutral"


def _depth(node: Node) -> int:
    """How many clauses lie inside one another below the main clause."""
    return max((_depth(child) + (child.relation in CLAUSES) for child in node.children()), default=0)


def _subject_number(root: Node) -> str:
    subject = next(child for child in root.children() if child.relation in ("nsubj", "nsubj:pass"))
    joined = any(child.relation == "conj" for child in subject.children())
    number = "plural" if joined else subject.number
    assert number is not None
    return number
