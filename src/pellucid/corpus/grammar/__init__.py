"""Generated English with gold labels, questions about it, and sentences whose pronouns mean somebody."""

from pellucid.corpus.grammar.pronouns import VERSION as PRONOUNS_VERSION
from pellucid.corpus.grammar.pronouns import generate_pronouns
from pellucid.corpus.grammar.questions import FORMS, generate_questions
from pellucid.corpus.grammar.questions import VERSION as QUESTIONS_VERSION
from pellucid.corpus.grammar.stories import VERSION, generate

__all__ = [
    "FORMS",
    "PRONOUNS_VERSION",
    "QUESTIONS_VERSION",
    "VERSION",
    "generate",
    "generate_pronouns",
    "generate_questions",
]
