"""The models of the zoo that the training lab makes: data, settings to try, licences and what their cards say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipes import wikitext, zoo_data
from recipes.zoo_data import Splits

ENCODER = {
    "layers": 4,
    "width": 128,
    "heads": 4,
    "feed_forward": 512,
    "length": 256,
    "vocabulary_size": 4096,
    "rows": "sentences",
}
"""The network of the masked language model, and of those that start from it."""
TUNED = "zoo:mlm"

ACCURACY, PERPLEXITY, F1, BLEU = "accuracy", "perplexity", "f1", "bleu"
WIKITEXT = "WikiText-2 (Merity et al. 2016), articles from English Wikipedia: CC BY-SA 3.0"
_PLAIN = (
    "The spaces that the files have around punctuation were taken out again and the first letter made a capital, so "
    "that the text reads as people type it; scores are on text prepared in the same way."
)


@dataclass(frozen=True)
class Recipe:
    """One model: what it is, what it learns from, and the settings among which the validation text chooses.

    `settings` are changes to the defaults of the task, and each of `candidates` changes them again. `main` is the score
    that stands for the model in lists; `examples` are texts of our own (pairs where the task has pairs) whose outcome
    the card shows. `terms` are those of its own texts; where it starts from zoo:mlm, that model's are added.
    """

    name: str
    task: str
    kind: str
    summary: str
    read: Callable[[Path], Splits]
    settings: Mapping[str, Any]
    candidates: tuple[Mapping[str, Any], ...]
    main: str
    data: str
    terms: tuple[str, ...]
    preparation: str
    licence: str
    licence_reason: str
    examples: tuple[tuple[str, ...], ...]
    note: str = ""
    alone: tuple[str, str] | None = None  # licence and reason where it does not start from zoo:mlm, if others


MLM = Recipe(
    name="mlm",
    task="mlm",
    kind="masked language model",
    summary="A small BERT that guesses hidden words, trained on WikiText-2; other models of the zoo start from it.",
    read=zoo_data.articles,
    settings={**ENCODER, "epochs": 60, "batch": 64},
    candidates=({"learning_rate": 1e-3}, {"learning_rate": 2e-3}),
    main=PERPLEXITY,
    data="WikiText-2 (Merity et al. 2016), articles from English Wikipedia",
    terms=(WIKITEXT,),
    preparation=f"{wikitext.NORMALISATION} Rows are as many whole sentences of an article as have {zoo_data.WORDS} "
    "words together.",
    licence="CC BY-SA 3.0",
    licence_reason="the licence of the text it was trained on",
    examples=(("The film was <mask> in the United States in 2005.",), ("He was <mask> in London in 1890.",)),
    note="Scores are of the hidden tokens (15% of all, drawn once): the perplexity of guessing them, and the share "
    "that is guessed right. `<unk>` stands for rare words, and may be a guess.",
)
TAGGER = Recipe(
    name="tagger",
    task="tagger",
    kind="part-of-speech tagger",
    summary="A small BERT that gives every word its part of speech (17 universal tags).",
    read=zoo_data.treebank,
    settings={**ENCODER, "label": "upos", "batch": 32},
    candidates=(
        {"source": TUNED, "learning_rate": 3e-4, "epochs": 10},
        {"source": TUNED, "learning_rate": 1e-3, "epochs": 10},
        {"learning_rate": 1e-3, "epochs": 20, "dropout": 0.2, "embedding_dropout": 0.2},
    ),
    main=ACCURACY,
    data="Universal Dependencies English EWT (Silveira et al. 2014), from the web",
    terms=("Universal Dependencies English EWT: CC BY-SA 4.0",),
    preparation="The text of the treebank's sentences as it stands, with their universal tags (UPOS).",
    licence="CC BY-SA 4.0",
    licence_reason="the licence of the treebank it was trained on",
    examples=(("She can open the old can.",), ("I saw the dogs run home yesterday!",)),
    note="The first token of a word carries its tag.",
)
SENTIMENT = Recipe(
    name="sentiment",
    task="classify",
    kind="sentiment classifier",
    summary="A small BERT that tells whether a sentence of a film review is positive or negative.",
    read=zoo_data.reviews,
    settings={**ENCODER, "label": "label", "batch": 32},
    candidates=(
        {"source": TUNED, "learning_rate": 1e-4, "epochs": 6},
        {"source": TUNED, "learning_rate": 3e-4, "epochs": 6},
        {"learning_rate": 5e-4, "epochs": 8, "dropout": 0.2, "embedding_dropout": 0.2},
    ),
    main=ACCURACY,
    data="SST-2, sentences of the Stanford Sentiment Treebank (Socher et al. 2013)",
    terms=("SST-2: no licence is stated",),
    preparation=_PLAIN,
    licence="CC BY-SA 3.0",
    licence_reason="that of zoo:mlm, from which it starts; the reviews that it was tuned on come without a stated "
    "licence",
    alone=("Apache-2.0", "as Pellucid; the reviews that it was trained on come without a stated licence"),
    examples=(("A warm, funny and moving film.",), ("The plot is a dull mess and the jokes fall flat.",)),
)
NLI = Recipe(
    name="nli",
    task="nli",
    kind="inference classifier",
    summary="A small BERT that tells whether a sentence follows from another, contradicts it, or neither.",
    read=zoo_data.premises,
    settings={**ENCODER, "label": "label", "batch": 32},
    candidates=(
        {"source": TUNED, "learning_rate": 2e-4, "epochs": 10},
        {"source": TUNED, "learning_rate": 6e-4, "epochs": 10},
        {"learning_rate": 5e-4, "epochs": 10, "dropout": 0.2, "embedding_dropout": 0.2},
    ),
    main=ACCURACY,
    data="e-SNLI (Camburu et al. 2018; sentences of SNLI, Bowman et al. 2015), its dev file; test on its test file",
    terms=("e-SNLI: MIT / CC BY-SA 4.0",),
    preparation=f"{_PLAIN} The dev file is for training, but for one premise in {zoo_data.HELD_OUT} with all its "
    "pairs, by which settings are chosen; the explanations are not used.",
    licence="CC BY-SA 4.0",
    licence_reason="the licence of its sentences",
    examples=(
        ("A man is sleeping on a bench.", "A man is awake."),
        ("Two dogs run through the snow.", "Animals are outside."),
    ),
    note="The full training file of SNLI, which is sixty times larger, was not at hand.",
)
QA = Recipe(
    name="qa",
    task="qa",
    kind="question answering",
    summary="A small BERT that marks the answer to a question in a short story of generated English.",
    read=zoo_data.stories,
    settings={**ENCODER, "batch": 64},
    candidates=(
        {"source": TUNED, "learning_rate": 5e-4, "epochs": 8},
        {"learning_rate": 5e-4, "epochs": 12},
    ),
    main=F1,
    data="questions about generated stories (`Corpus.questions`)",
    terms=(
        "the generated stories and questions: Apache-2.0, as Pellucid",
        "XQuAD, for scoring alone: CC BY-SA 4.0",
    ),
    preparation=f"{zoo_data.QUESTIONS['train']:,} questions of eight forms for training and "
    f"{zoo_data.QUESTIONS['test']:,} each for choosing and for the test, from other seeds: no story is in two of them. "
    "Most stories hold a sentence that says nearly the same of somebody else.",
    licence="CC BY-SA 3.0",
    licence_reason="that of zoo:mlm, from which it starts",
    alone=("Apache-2.0", "as Pellucid, which writes the stories and the questions"),
    examples=(
        ("Who washed the ring?", "The farmer washed a heavy ring on Friday. Anna washed a cup."),
        ("Where did the cat sleep?", "A cat slept in the garden. Paul slept behind the castle. The lamp was old."),
    ),
    note="`xquad.en` are questions about paragraphs of Wikipedia (Artetxe et al. 2020), of a kind that the model has "
    "never been trained on. Exact match and F1 of words are counted as for SQuAD (Rajpurkar et al. 2016).",
)
TRANSLATE = Recipe(
    name="translate",
    task="translate",
    kind="translation, English to German",
    summary="A small encoder–decoder that translates captions of pictures from English to German.",
    read=zoo_data.captions,
    settings={
        "layers": 3,
        "width": 128,
        "heads": 4,
        "feed_forward": 256,
        "length": 96,
        "vocabulary_size": 4096,
        "batch": 128,
        "epochs": 60,
        "learning_rate": 2e-3,
        "label_smoothing": 0.1,
    },
    candidates=({"dropout": 0.2, "embedding_dropout": 0.2},),
    main=BLEU,
    data="Multi30k (Elliott et al. 2016), captions with translations; the test is test_2016_flickr",
    terms=("Multi30k: no licence is stated",),
    preparation="Captions as they come.",
    licence="Apache-2.0",
    licence_reason="as Pellucid; the captions that it was trained on come without a stated licence",
    examples=(("A man is riding a bicycle.",), ("Two children are playing in the snow.",)),
    note="BLEU is sacrebleu's, of greedy translations beside one reference each; chance is the BLEU of the English "
    "captions, left untranslated. It knows captions and little else.",
)
RECIPES = {recipe.name: recipe for recipe in (MLM, TAGGER, SENTIMENT, NLI, QA, TRANSLATE)}
