"""Sentences with two people and a pronoun that means one of them, told by its gender or by what is said.

Half of the pronouns mean the person who is named first, so that looking at the first noun, or at the nearest, is right
half of the time. The link is an arc: the pronoun hangs on its `antecedent`, and on its `rival` who is not meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from pellucid.corpus.grammar import lexicon
from pellucid.corpus.grammar.inflection import noun_forms
from pellucid.corpus.grammar.phrases import Dice
from pellucid.corpus.sentence import Arc, Sentence, word_spans

VERSION = "1"
"""Part of the fingerprint: raised when the same seed gives other sentences."""
FORMS = ("gender", "meaning")
"""What tells whom a pronoun means; every sentence carries its form as a fact."""

_MEANING = (
    ("offered apples to the # because", "had too many of them", "was hungry"),
    ("lent money to the # because", "had plenty of it", "was poor"),
    ("paid the # because", "owed the money", "had worked all day"),
    ("asked the # for help because", "could not lift the box alone", "could lift the box alone"),
    ("called the # because", "needed advice", "always gave good advice"),
    ("followed the # because", "did not know the way", "knew the way"),
    ("sold a house to the # because", "was moving away", "wanted to live there"),
    ("taught the # to swim because", "was a good swimmer", "had never learned it"),
    ("apologised to the # because", "had made a mistake", "had been hurt"),
    ("carried the bags of the # because", "was strong", "was tired"),
    ("hid from the # because", "was scared", "looked dangerous"),
    ("borrowed a ladder from the # because", "did not own one", "owned two of them"),
    ("waited for the # because", "had arrived early", "was late"),
    ("searched for the # because", "was worried", "had got lost"),
    ("envied the # because", "had lost the game", "had won the game"),
    ("thanked the # because", "had received a gift", "had sent a gift"),
)
"""What one person does to the other (#), and what can be said only of the first and only of the second."""
_GENDER = (
    ("told the # that", "was tired"),
    ("asked the # whether", "could leave"),
    ("met the # before", "went home"),
    ("saw the # when", "opened the door"),
    ("wrote to the # while", "was travelling"),
    ("talked to the # until", "had to go"),
    ("called the # after", "had read the letter"),
    ("sat beside the # while", "ate"),
)
"""What one person does to the other (#), and what can be said of either."""


def generate_pronouns(count: int, seed: int) -> Iterator[Sentence]:
    """`count` sentences, the two forms in turn; more of the same seed begin with the same ones."""
    for number in range(count):
        dice = Dice(int.from_bytes(blake2b(f"pronouns/{seed}/{number}".encode(), digest_size=8).digest(), "little"))
        yield _sentence(FORMS[number % 2], dice, str(number + 1))


def _sentence(form: str, dice: Dice, name: str) -> Sentence:
    first = dice.chance(0.5)  # the pronoun means the one who is named first
    if form == "meaning":
        deed, *ends = dice.one(_MEANING)
        end, pronoun = ends[0 if first else 1], dice.one(("he", "she"))
        one = dice.one(lexicon.PERSON_NOUNS)
        people = [one, dice.one([noun for noun in lexicon.PERSON_NOUNS if noun != one])]
    else:
        deed, end = dice.one(_GENDER)
        people = [dice.one(lexicon.FEMALE_NOUNS), dice.one(lexicon.MALE_NOUNS)]
        pronoun = dice.one(("she", "he"))
        if (pronoun == "she") != first:
            people.reverse()
    nouns = [noun_forms(noun)[0] for noun in people]
    words = ["The", nouns[0], *(nouns[1] if word == "#" else word for word in deed.split()), pronoun, *end.split()]
    places, at = (1, words.index(nouns[1], 2)), words.index(pronoun)
    meant, other = places if first else places[::-1]
    coref: list[str | None] = [None] * len(words)
    for entity, place in enumerate(places, start=1):
        coref[place] = str(entity)
    coref[at] = coref[meant]
    facts = {"form": form, "antecedent": "first" if first else "second"}
    arcs = (Arc(at, meant, "antecedent"), Arc(at, other, "rival"))
    text = f"{' '.join(words)}."
    return Sentence(name, name, text, word_spans(text), {"coref": (*coref, None)}, arcs, facts)
