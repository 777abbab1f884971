"""Identifiability: what attention and hidden states can and cannot tell."""

from pellucid.collect.null_space import Space, effective, second_pattern, space
from pellucid.identifiability.attention_freedom import AttentionIdentifiability, attention
from pellucid.identifiability.jacobians import Reactions, reactions
from pellucid.identifiability.token_identity import TokenIdentifiability, tokens
from pellucid.identifiability.token_mixing import TokenMixing, mixing

__all__ = [
    "AttentionIdentifiability",
    "Reactions",
    "Space",
    "TokenIdentifiability",
    "TokenMixing",
    "attention",
    "effective",
    "mixing",
    "reactions",
    "second_pattern",
    "space",
    "tokens",
]
