"""Claims of "On identifiability in Transformers", judged on every model by stated rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pellucid.studies.claims import CaseClaim
from pellucid.studies.identifiability import answers
from pellucid.studies.identifiability.answers import Answer
from pellucid.studies.identifiability.tables import Case

BRUNNER = "Brunner et al. 2020"
SLIDES = "Lee 2022, a talk on Brunner et al. 2020"
BHARDWAJ = "Bhardwaj et al. 2021, in Lee 2022"
ABNAR = "Abnar & Zuidema 2020"
PASCUAL = "Pascual et al. 2021, in Lee 2022"


@dataclass(frozen=True)
class Question:
    """A claim with its rule, where it is made and what was published, and how a model answers it."""

    claim: str
    rule: str
    source: str
    published: str
    answer: Callable[[Case], Answer]


def claims(cases: Sequence[Case]) -> list[CaseClaim]:
    """Every claim on every model, claim by claim."""
    return [_judged(question, case) for question in QUESTIONS for case in cases]


def _judged(asked: Question, case: Case) -> CaseClaim:
    got = asked.answer(case)
    return CaseClaim(
        asked.claim, asked.rule, got.found, got.holds, case.name, asked.source, asked.published, got.number
    )


QUESTIONS = (
    Question(
        "Attention over a text that is longer than a head is wide is not unique.",
        "Share of queries whose weights could be others with the same output and the same sum, among those with more "
        f"keys in sight than a head's values are wide: the interval lies above {answers.NEARLY:.0%}.",
        SLIDES,
        "proved",
        answers.open_beyond,
    ),
    Question(
        "Attention over a shorter text is unique.",
        "Share of queries whose weights could be no others, among those with at most as many keys in sight as a head's "
        f"values are wide: the interval lies above {answers.NEARLY:.0%}.",
        BHARDWAJ,
        "more identifiable than was claimed",
        answers.unique_within,
    ),
    Question(
        "Open attention is no special case.",
        "Share of queries whose weights could be others, over single sentences of ordinary text: the interval lies "
        f"above {answers.MOST:.0%}.",
        SLIDES,
        "BERT reads up to 512 tokens, and its heads are 64 wide",
        answers.open_sentences,
    ),
    Question(
        "Effective attention tells another story than attention.",
        "Share of queries, among those with more keys in sight than a head is wide, whose largest weight stands "
        f"elsewhere in effective attention: the interval lies above {answers.SEVERAL:.0%}.",
        SLIDES,
        "only a part of attention affects the output",
        answers.another_story,
    ),
    Question(
        "The longer the text, the more effective attention differs.",
        "Share of attention that lies elsewhere in effective attention, in the longest texts less that in the shortest "
        "that are longer than a head is wide: the interval lies above 0.",
        BRUNNER,
        "they agree less for longer texts",
        answers.longer,
    ),
    Question(
        "Tokens are mostly identifiable.",
        "Share of tokens that are found again from their states (linear map, cosine) after the layer where it is "
        f"lowest: the interval lies above {answers.MOST:.0%}.",
        SLIDES,
        "the rate remains high throughout all the layers",
        answers.mostly,
    ),
    Question(
        "Identity fades with depth.",
        "Rise from the first layer to the last of a straight line through the share of tokens found again (linear map, "
        "cosine): the interval lies below 0.",
        BRUNNER,
        "gradually decreases with depth",
        answers.fades,
    ),
    Question(
        "Identity lies in the angle of a state.",
        "Share of tokens found again by the cosine less that by the distance (linear map), mean over the layers: the "
        "interval lies above 0.",
        BRUNNER,
        "mainly encoded in the angle",
        lambda case: answers.difference(case, "linear cosine", "linear l2"),
    ),
    Question(
        "A linear map finds more tokens than the states as they are.",
        "Share of tokens found again with a linear map less that without (cosine), mean over the layers: the interval "
        "lies above 0.",
        BRUNNER,
        "maps are learned",
        lambda case: answers.difference(case, "linear cosine", "identity cosine"),
    ),
    Question(
        "Tokens are strongly mixed.",
        f"A token's own share in what its last state reacts to: the interval lies below {answers.MOST:.0%}.",
        SLIDES,
        "strongly mixed",
        answers.strongly,
    ),
    Question(
        "States keep some identity.",
        "A token's own share in what its last state reacts to: the interval lies above equal shares of all tokens in "
        "sight.",
        SLIDES,
        "some identity is preserved",
        answers.still_own,
    ),
    Question(
        "In the last layers, 30% of tokens are not their own largest contributor.",
        "Share of tokens with a larger contributor than their own input, mean over the last sixth of the layers: the "
        f"interval lies within {100 * answers.REACH:.0f} points of {answers.PUBLISHED:.0%} (it stands), or wholly "
        "outside of that (it does not).",
        SLIDES,
        f"{answers.PUBLISHED:.0%} in BERT",
        answers.not_largest,
    ),
    Question(
        "Tokens mix more and more with depth.",
        "Rise from the first layer to the last of a straight line through a token's own share: the interval lies below "
        "0.",
        BRUNNER,
        "more mixed in later layers",
        answers.ever_more,
    ),
    Question(
        "Context is gathered from neighbours first.",
        "Share of the two tokens before and the two after in what is not a token's own, mean over the layers: the "
        "interval lies above equal shares.",
        BRUNNER,
        "mostly local",
        answers.neighbours,
    ),
    Question(
        "Deeper layers gather from farther away.",
        "Rise from the first layer to the last of a straight line through the neighbours' share: the interval lies "
        "below 0.",
        PASCUAL,
        "from local attention to global aggregation",
        answers.farther,
    ),
    Question(
        "Attention followed down to the input tells more than attention.",
        "Rank correlation of rollout with what states react to after the last layer less that of the last layer's "
        "attention: the interval lies above 0.",
        ABNAR,
        "rollout and flow agree better with ablation and gradients",
        answers.followed_down,
    ),
)
"""The claims, in the order of the page."""
