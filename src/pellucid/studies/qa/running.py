"""The question-answering study: what the start and the end of an answer rest on, layer by layer, over many questions.

Computing needs torch and transformers alone; `page` draws what lies in the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pellucid.attribution import completeness
from pellucid.attribution.baselines import automatic, embedded
from pellucid.attribution.computing import Settings, compute
from pellucid.attribution.methods import chosen
from pellucid.attribution.targets import Target
from pellucid.collect.progress import Progress
from pellucid.corpus import Corpus
from pellucid.errors import listing
from pellucid.model import Batch, Model
from pellucid.results import versions
from pellucid.saving import whole_folder
from pellucid.studies.claims import StudyError
from pellucid.studies.qa import measures
from pellucid.studies.qa.tables import PARTS, Example, Measured, Question, Study, write
from pellucid.train.tasks.answering import best_spans
from pellucid.train.tasks.scores import exact_match, words_f1

if TYPE_CHECKING:
    from pellucid.attribution.methods import Method
    from pellucid.corpus import Sentence
    from pellucid.model.sites import Site

METHODS = ("conductance", "integrated_gradients")
"""Methods that give every layer its own numbers: the input's path through all layers, or each layer's own path."""
SEED = 3
"""Of the generated questions: none that a model of the zoo was trained or chosen with."""
Array = measures.Array


@dataclass(frozen=True)
class Scale:
    """How much of the study is done: how many questions are measured, and how many shown token by token."""

    name: str
    about: str
    questions: int
    examples: int
    steps: int | None = None


SCALES = {
    "full": Scale("full", "200 questions.", 200, 4),
    "quick": Scale("quick", "40 questions, to see the picture within a minute or two: wide intervals.", 40, 2),
    "smoke": Scale(
        "smoke",
        "A few questions and coarse paths, to see that everything works; without a model, a tiny network with random "
        "weights. No number of this page means anything.",
        6,
        1,
        steps=6,
    ),
}


def compute_study(
    out: str | Path,
    *,
    model: Model | None = None,
    corpus: Corpus | None = None,
    scale: str = "full",
    method: str = "conductance",
    steps: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Runs the study and writes its numbers to a new folder, numbers.json.

    `model` marks answers (`zoo:qa` where none is given), `corpus` is in the form of SQuAD (generated questions where
    none is given); its first questions are measured, as many as the scale says.
    """
    if scale not in SCALES:
        raise StudyError(f"There is no scale {scale!r} of this study; there are {listing(SCALES)}.")
    size = SCALES[scale]
    asked = Corpus.questions(size.questions, seed=SEED) if corpus is None else corpus.take(size.questions)
    one = chosen(method)
    if len(one) != 1 or one[0].name not in METHODS:
        raise StudyError(f"This study compares layers by one of {listing(METHODS)}, not by {method!r}.")
    if model is None:
        model = tiny(seed + 1) if size.name == "smoke" else Model.load("zoo:qa")
    if "QuestionAnswering" not in type(model.hf).__name__:
        raise StudyError(
            f"{model.name!r} is a {type(model.hf).__name__} and marks no answers; give a model with a head for "
            "questions (--head qa)."
        )
    with whole_folder(Path(out)) as work:
        study = measured(model, asked, one[0], replace(size, steps=steps or size.steps), seed, progress, say)
        write(study, work)
    return Path(out)


def tiny(seed: int = 1) -> Model:
    """A tiny network with random weights for the smallest run, whose words are those of generated questions."""
    from pellucid.train import settings_for
    from pellucid.train.architectures import build
    from pellucid.train.tasks.answering import Answering
    from pellucid.train.vocabulary import vocabulary_for

    settings = settings_for(
        "qa", "small", layers=3, width=24, heads=2, feed_forward=32, length=256, vocabulary_size=1200, seed=seed
    )
    tokenizer = vocabulary_for(Answering().texts(Corpus.questions(200, seed=SEED), settings), settings)
    return Model.load(build(settings, tokenizer, None).eval(), tokenizer=tokenizer)


def measured(
    model: Model,
    corpus: Corpus,
    method: Method,
    scale: Scale,
    seed: int,
    progress: bool | None,
    say: Callable[[str], None],
) -> Study:
    """Every number of the study for a model and its questions."""
    sentences = list(corpus)
    able = any(sentence.facts.get("impossible") == "true" for sentence in sentences)
    random = Model.random_like(model, seed)
    networks = [_Network(each, method, scale.steps) for each in (model, random)]
    questions: list[Question] = []
    examples: list[Example] = []
    long = 0
    with Progress(progress) as bar:
        bar.begin("explaining answers", len(sentences))
        for sentence in sentences:
            asked = _encoded(model, sentence, corpus)
            bar.advance(1)
            if model.limit is not None and len(asked.ids) > model.limit:
                long += 1
                continue
            question, example = _explained(networks, asked, able=able)
            questions.append(question)
            _show(examples, example, questions, scale.examples)
    if not questions:
        raise StudyError(f"No question of {corpus.name!r} fits into the {model.limit} tokens that the model takes.")
    if long:
        say(f"{long} of {len(sentences)} questions are left out: their text is longer than the model takes")
    width = len(examples[0].features[0][0])
    facts: dict[str, Any] = {
        "scale": {"name": scale.name, "about": scale.about},
        "model": {"name": model.name, "fingerprint": model.fingerprint, "class": type(model.hf).__name__},
        "corpus": {"name": corpus.name, "fingerprint": corpus.fingerprint, "unit": corpus.unit},
        "method": {"name": method.name, "phrase": method.phrase, "baseline": networks[0].baseline},
        "places": [_place(site) for site in networks[0].sites],
        "width": width,
        "bins": measures.BINS,
        "normal": measures.normal_entropy(width),
        "left_out": long,
        "random": seed,
        "versions": versions(),
    }
    return Study(facts, tuple(questions), tuple(examples))


def _show(shown: list[Example], example: Example, questions: Sequence[Question], most: int) -> None:
    """The first questions are shown; where all are right or all wrong, the last gives way to the first other one."""
    if len(shown) < most:
        shown.append(example)
        return
    names = {each.name for each in shown}
    kinds = {each.right for each in questions if each.name in names}
    if most > 1 and questions[-1].right not in kinds:
        shown[-1] = example


def _place(site: Site) -> str:
    return "input" if site.kind == "embed" else f"layer {site.layer}"


# -- one question ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Asked:
    """A question with its text as the model reads them; `sides` [n] are 0 for the question, 1 for the text, None."""

    sentence: Sentence
    context: str
    ids: list[int]
    batch: Batch
    sides: list[int | None]
    offsets: list[tuple[int, int]]


def _encoded(model: Model, sentence: Sentence, corpus: Corpus) -> _Asked:
    second = sentence.second
    if second is None or not sentence.joint:
        raise StudyError(
            f"Question {sentence.id!r} of {corpus.name!r} has no text to look in; give a file in the format of SQuAD, "
            "or questions:COUNT:SEED."
        )
    if not getattr(model.tokenizer, "is_fast", False):
        raise StudyError(f"{model.name!r} has no tokenizer that tells where its tokens stand in the text.")
    encoded = model.tokenizer(sentence.text, second.text, verbose=False)
    one = encoded.encodings[0]
    batch = Batch.of_ids(
        [one.ids],
        special=torch.tensor([one.special_tokens_mask]),
        types=torch.tensor([one.type_ids]) if "token_type_ids" in encoded else None,
    )
    return _Asked(sentence, second.text, one.ids, batch, one.sequence_ids, one.offsets)


class _Network:
    """A network whose answers are explained at its input and at every layer."""

    def __init__(self, model: Model, method: Method, steps: int | None) -> None:
        self.model, self.method, self.steps, self.baseline = model, method, steps, ""
        stack = next(site.stack for site in model.sites if site.kind == "embed")
        self.sites = tuple(
            site
            for site in model.sites
            if site.stack == stack and (site.kind == "embed" or (site.kind == "resid" and site.layer))
        )

    def explain(self, batch: Batch, ends: tuple[int, int]) -> tuple[Array, Array, float]:
        """Attributions [ends, places, tokens], features [ends, places, width] of each end's token, and the error."""
        targets = (Target.start(ends[0]), Target.end(ends[1]))
        if not self.baseline:
            self.baseline, _ = automatic(self.model, batch, embedded(self.model, batch))
        settings = Settings(self.baseline, steps=self.steps)
        found, _ = compute(self.model, batch, targets, [self.method], self.sites, settings)
        parts = [[found.parts[self.method.name, end, site][0].numpy() for site in self.sites] for end in range(2)]
        values = np.stack([np.stack([part.sum(axis=1) for part in row]) for row in parts])
        features = np.stack([np.stack([part[place] for part in row]) for row, place in zip(parts, ends, strict=True)])
        errors = [float(one.error.max()) for one in completeness.sums(found)]
        return values, features, max(errors, default=0.0)


def _answer(model: Model, asked: _Asked, *, able: bool) -> tuple[tuple[int, int], str, list[float]]:
    """The two ends of the model's answer, the answer itself, and how likely it held each end to be."""
    output = model.run(asked.batch).output
    logits = torch.stack([output.start_logits, output.end_logits], dim=1).float()  # [1, 2, n]
    own = [place for place, side in enumerate(asked.sides) if side == 1]
    best, none, first, last = best_spans(logits, torch.tensor([[own[0], own[-1] + 1]]).to(logits.device))[0].tolist()
    ends = (0, 0) if able and none > best else (int(first), int(last))
    text = "" if ends == (0, 0) else asked.context[asked.offsets[ends[0]][0] : asked.offsets[ends[1]][1]]
    likely = logits[0].softmax(dim=-1)
    return ends, text, [float(likely[which, place]) for which, place in enumerate(ends)]


def _explained(networks: Sequence[_Network], asked: _Asked, *, able: bool) -> tuple[Question, Example]:
    model, sentence = networks[0].model, asked.sentence
    ends, answered, chances = _answer(model, asked, able=able)
    parts = _parts(asked, ends)
    (values, features, error), (other, other_features, _) = (each.explain(asked.batch, ends) for each in networks)
    wanted = sentence.facts.get("answer", "")
    _, guessed, _ = _answer(networks[1].model, asked, able=able)
    question = Question(
        sentence.id,
        sentence.document,
        sentence.facts.get("form", ""),
        sentence.text,
        wanted,
        answered,
        bool(exact_match(answered, wanted)),
        bool(exact_match(guessed, wanted)),
        float(words_f1(answered, wanted)),
        chances,
        list(ends),
        len(asked.ids),
        (np.bincount(parts, minlength=len(PARTS)) / len(parts)).tolist(),
        error,
        _measured(values, features, parts),
        _measured(other, other_features, parts),
    )
    tokens = [model.tokenizer.decode([token]).strip() or "␣" for token in asked.ids]
    return question, Example(sentence.id, tokens, list(ends), values.tolist(), features.tolist())


def _parts(asked: _Asked, ends: tuple[int, int]) -> Array:
    """The part of every token: the question, the answer given, the rest of the text, or special tokens."""
    answer = range(ends[0], ends[1] + 1) if ends != (0, 0) else range(0)
    found = [0 if side == 0 else 3 if side is None else 1 if at in answer else 2 for at, side in enumerate(asked.sides)]
    return np.array(found)


def _measured(values: Array, features: Array, parts: Array) -> Measured:
    return Measured(
        measures.spread(values).tolist(),
        measures.pmf_entropy(features).tolist(),
        measures.part_shares(values, parts, len(PARTS)).tolist(),
        measures.overlap(values[0], values[1]).tolist(),
    )
