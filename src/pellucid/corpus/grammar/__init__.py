"""Generated English with gold labels, and questions about it."""

from pellucid.corpus.grammar.questions import FORMS, generate_questions
from pellucid.corpus.grammar.questions import VERSION as QUESTIONS_VERSION
from pellucid.corpus.grammar.stories import VERSION, generate

__all__ = ["FORMS", "QUESTIONS_VERSION", "VERSION", "generate", "generate_questions"]
