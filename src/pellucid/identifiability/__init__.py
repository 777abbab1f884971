"""Identifiability: what attention and hidden states can and cannot tell."""

from pellucid.collect.null_space import Space, effective, space
from pellucid.collect.other_patterns import far_pattern, second_pattern
from pellucid.identifiability.attention_freedom import AttentionIdentifiability, attention
from pellucid.identifiability.attention_reach import AttentionReach, reachable, when_unique
from pellucid.identifiability.flow_agreement import FlowAgreement, flow_agreement
from pellucid.identifiability.functions_changed import FunctionsChanged, functions_changed
from pellucid.identifiability.hidden_flow import hidden_flow
from pellucid.identifiability.jacobians import Reactions, reactions
from pellucid.identifiability.key_space import Reach, reach
from pellucid.identifiability.second_attention import SecondAttention, second_attention
from pellucid.identifiability.token_identity import TokenIdentifiability, tokens
from pellucid.identifiability.token_mixing import TokenMixing, mixing

__all__ = [
    "AttentionIdentifiability",
    "AttentionReach",
    "FlowAgreement",
    "FunctionsChanged",
    "Reach",
    "Reactions",
    "SecondAttention",
    "Space",
    "TokenIdentifiability",
    "TokenMixing",
    "attention",
    "effective",
    "far_pattern",
    "flow_agreement",
    "functions_changed",
    "hidden_flow",
    "mixing",
    "reach",
    "reachable",
    "reactions",
    "second_attention",
    "second_pattern",
    "space",
    "tokens",
    "when_unique",
]
