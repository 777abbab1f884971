"""Inflected forms: plurals, tenses, agreement, articles."""

from __future__ import annotations

from dataclasses import dataclass

_VOWELS = "aeiou"
_BE = {
    ("past", "singular"): "was",
    ("past", "plural"): "were",
    ("present", "singular"): "is",
    ("present", "plural"): "are",
}


@dataclass(frozen=True)
class Agreement:
    """What a finite verb agrees with: the person and number of its subject."""

    person: str
    number: str


@dataclass(frozen=True)
class Verb:
    """A verb with its forms."""

    base: str
    past: str
    participle: str

    @staticmethod
    def of(entry: str) -> Verb:
        """The verb of an entry of the lexicon."""
        base, *forms = entry.split(":")
        past, participle = forms or (_regular_past(base),) * 2
        return Verb(base, past, participle)

    def finite(self, tense: str, agreement: Agreement) -> str:
        """The form in the past or present tense that agrees with a subject."""
        if tense == "past":
            return self.past
        return _with_s(self.base) if agreement == Agreement("3", "singular") else self.base


def noun_forms(entry: str) -> tuple[str, str]:
    """Singular and plural of an entry of the lexicon."""
    singular, *plural = entry.split(":")
    return singular, plural[0] if plural else _with_s(singular)


def be(tense: str, agreement: Agreement) -> str:
    """The form of "be" in the past or present tense."""
    if agreement == Agreement("1", "singular"):
        return "was" if tense == "past" else "am"
    return _BE[tense, agreement.number]


def do(tense: str, agreement: Agreement) -> str:
    """The form of the auxiliary "do"."""
    return Verb("do", "did", "done").finite(tense, agreement)


def article(following: str) -> str:
    """ "a" or "an", by the sound of the word that follows."""
    spelt_otherwise = following.startswith(("honest", "hour", "use"))
    return "an" if (following[0] in _VOWELS) != spelt_otherwise else "a"


def _with_s(word: str) -> str:
    """The plural of a noun, or the third person of a verb."""
    if word.endswith("y") and word[-2] not in _VOWELS:
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh", "do")) else f"{word}s"


def _regular_past(base: str) -> str:
    if base.endswith("e"):
        return f"{base}d"
    if base.endswith("y") and base[-2] not in _VOWELS:
        return f"{base[:-1]}ied"
    return f"{base}ed"
