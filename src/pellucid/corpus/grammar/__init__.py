"""Generated English with gold labels."""

from pellucid.corpus.grammar.stories import VERSION, generate

__all__ = ["VERSION", "generate"]
