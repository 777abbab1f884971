"""The models and texts of the study of identifiability, and how much of each is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import listing
from pellucid.studies.claims import StudyError
from pellucid.studies.texts import sampled

MODELS = "zoo:mlm,zoo:lm,zoo:tagger"
UD = "ud_english_ewt/en_ewt-ud-dev.conllu"
SHORTEST = 6
"""The fewest words of a sentence whose mixing is looked at."""
DOCUMENT = 10
"""Generated sentences that make one document."""
_NAME = re.compile(r"[\w:.+-]+")


@dataclass(frozen=True)
class Size:
    """How much is done with a model.

    Sentences that tokens are told in (`told`, a fifth of the documents) and whose attention is read (`read`); longer
    `passages` of up to so many `words`; sentences whose mixing is looked at (`mixed`), of at most `longest` words, by
    `probes` random directions for each token; layers with perceptrons (0 leaves them out); the first of the mixed
    sentences in which maps of attention are compared (`followed`).
    """

    told: int
    read: int
    passages: int
    words: int
    mixed: int
    longest: int
    probes: int
    perceptrons: int
    followed: int


@dataclass(frozen=True)
class Scale:
    """The size of the study: for models with fewer parameters than each limit, in millions."""

    about: str
    sizes: Mapping[float, Size]

    def size(self, parameters: int) -> Size:
        """The size for a model."""
        return next(size for limit, size in self.sizes.items() if parameters < limit * 1e6)


_QUICK = Size(200, 40, 40, 100, 6, 14, 4, 1, 3)
SCALES = {
    "full": Scale(
        "The whole study.",
        {
            5: Size(1200, 400, 300, 120, 40, 20, 16, 2, 16),
            50: Size(800, 200, 160, 150, 30, 20, 16, 2, 10),
            float("inf"): Size(400, 60, 50, 150, 12, 14, 8, 1, 3),
        },
    ),
    "quick": Scale(
        "Small samples, to see the picture: wide intervals.",
        {50: _QUICK, float("inf"): replace(_QUICK, read=20, passages=20, mixed=4, followed=2)},
    ),
    "smoke": Scale(
        "A few generated sentences, to see that everything works: the numbers of this page mean little.",
        {float("inf"): Size(50, 10, 16, 60, 2, 8, 2, 1, 2)},
    ),
}


@dataclass(frozen=True, eq=False)
class Texts:
    """What a model reads: sentences to tell tokens in, others for attention, longer passages, and those for mixing."""

    told: Corpus
    read: Corpus
    passages: Corpus
    mixed: Corpus


def named_models(text: str) -> dict[str, str]:
    """Models by the name that they have on the page: NAME=MODEL or a model alone, with commas between them."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        given, _, source = part.rpartition("=")
        name = given or (source if source.startswith("zoo:") else Path(source).name)
        if not source or not _NAME.fullmatch(name):
            raise StudyError(
                f"{part!r} names no model of the study; write MODEL or NAME=MODEL, a NAME of letters, digits and -_.:+."
            )
        if name in found:
            raise StudyError(f"Two models of the study are called {name!r}; write NAME=MODEL with another name.")
        found[name] = source
    if not found:
        raise StudyError(f"No model was asked for; give some with commas, such as {MODELS}.")
    return found


def check_data(data: Path | None) -> Path:
    """The file that the study reads; raises where it is not there."""
    if data is None:
        raise StudyError(
            f"The study of identifiability reads {UD}; give the folder that holds it with --data (or name it in "
            "PELLUCID_DATA), or see that all works with --smoke."
        )
    if not (data / UD).is_file():
        raise StudyError(f"The study reads {UD!r}, which is not in {str(data)!r}; give another --data.")
    return data / UD


def texts(data: Path | None, size: Size, *, smoke: bool, seed: int) -> Texts:
    """The texts of a size."""
    whole = _generated(10 * size.told, seed) if smoke else Corpus.conllu(check_data(data))
    fit = whole.filter(
        lambda sentence: SHORTEST <= len(sentence.spans) <= size.longest,
        name=f"{SHORTEST} to {size.longest} words",
    )
    return Texts(
        sampled(whole, size.told),
        sampled(whole, size.read),
        sampled(passages(whole, size.words), size.passages),
        sampled(fit, size.mixed),
    )


def passages(corpus: Corpus, words: int) -> Corpus:
    """Consecutive sentences of a document as one text of at most so many words; in every other document a half, a
    quarter and an eighth of that, so that all lengths are there."""
    made: list[Sentence] = []
    held: list[Sentence] = []
    limits = [words, words // 2, words // 4, words // 8]
    documents: dict[str, int] = {}

    def close() -> None:
        if held:
            text = " ".join(each.text for each in held)
            made.append(Sentence.of_text(text, id=f"from {held[0].id}", document=held[0].document))
            held.clear()

    for sentence in corpus:
        number = documents.setdefault(sentence.document, len(documents))
        size = sum(len(each.spans) for each in held) + len(sentence.spans)
        if held and (held[0].document != sentence.document or size > limits[number % len(limits)]):
            close()
        held.append(sentence)
    close()
    return Corpus.of(made, name=f"passages of {corpus.name}, up to {words} words")


def _generated(count: int, seed: int) -> Corpus:
    """Generated sentences in documents of some sentences each."""
    made = [
        replace(sentence, document=f"text {number // DOCUMENT}")
        for number, sentence in enumerate(Corpus.grammar(count, seed=seed))
    ]
    return Corpus.of(made, name=f"grammar:{count}:{seed}")


def scale_named(name: str) -> Scale:
    """A size of the study."""
    if name not in SCALES:
        raise StudyError(f"There is no scale {name!r} of this study; there are {listing(SCALES)}.")
    return SCALES[name]
