"""The cases of the study of heads: which model, by which task, on which texts, and how much of each is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import listing
from pellucid.model import Model
from pellucid.studies.claims import StudyError
from pellucid.studies.names import short_name
from pellucid.studies.texts import sampled

Say = Callable[[str], None]
GRAMMAR, ENGLISH = "generated English", "UD English"
_LARGER = 8.0
"""How much larger the weights of a tiny network are than those that a training would begin with."""
_UD, _SST2, _MULTI30K = "ud_english_ewt", "sst2", "multi30k"


@dataclass(frozen=True)
class Size:
    """How much of a case is done.

    Sentences that gates are trained on (`gates`), chosen by and measured on (`tested`); that heads are weighed on
    (`weighed`; by LRP on `lrp`, which 0 leaves out); whose attention is read (`read`); pronouns; translations. `price`
    is the full price of an open head, in nats per goal.
    """

    gates: int
    tested: int
    weighed: int
    lrp: int
    read: int
    pronouns: int
    translated: int = 0
    epochs: int = 3
    batch: int = 32
    price: float = 0.5
    rate: float = 0.1
    points: int = 16
    draws: int = 5
    tuning: int = 3


@dataclass(frozen=True)
class Scale:
    """The size of the whole study."""

    name: str
    about: str
    sizes: Mapping[str, Size]


_TINY = Size(32, 12, 6, 0, 24, 24, epochs=4, batch=8, price=0.05, rate=0.4, points=8, draws=2)
SCALES = {
    "full": Scale(
        "full",
        "The whole study.",
        {
            "translate": Size(8000, 1000, 600, 60, 1000, 1000, translated=500, epochs=4),
            "lm": Size(640, 120, 40, 0, 300, 600, epochs=4, batch=16, price=0.1, points=12),
            "classify": Size(4000, 400, 300, 40, 300, 600, epochs=4, price=0.1, points=12, tuning=2),
        },
    ),
    "quick": Scale(
        "quick",
        "Small samples, to see the picture within five minutes: wide intervals.",
        {
            "translate": Size(800, 150, 60, 8, 200, 200, translated=60, epochs=6, rate=0.2, points=10, draws=2),
            "lm": Size(480, 100, 40, 0, 200, 200, epochs=8, price=0.3, rate=0.2, points=10, draws=2),
            "classify": Size(960, 200, 60, 10, 200, 200, epochs=4, price=0.3, rate=0.2, points=10, draws=2, tuning=1),
        },
    ),
    "smoke": Scale(
        "smoke",
        "Tiny networks with random weights and generated texts, to see that everything works: no number of this page "
        "means anything.",
        {
            "translate": replace(_TINY, lrp=1, translated=6),
            "lm": _TINY,
            "classify": _TINY,
        },
    ),
}


@dataclass(frozen=True, eq=False)
class Setup:
    """A model with its texts: to train gates on, to choose by, to measure on, and to read attention on, by name.

    Functions and findings by layer come from `reading`; the first text with arcs is the one that layers are read on.
    `name` is the model's on the page.
    """

    model: Model
    name: str
    task: str
    training: Corpus
    choice: Corpus
    test: Corpus
    reading: Mapping[str, Corpus]
    label: str | None = None
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Asked:
    """What a run of the study was asked for, beside its scale."""

    data: Path | None
    lm: str | None
    encoder: str | None
    device: str | None
    seed: int
    runs: Path


def setup(case: str, size: Size, asked: Asked, say: Say, *, smoke: bool) -> Setup:
    """Opens the model and the texts of a case; what is missing is said before anything is computed."""
    makers = {"translate": _translate, "lm": _language, "classify": _classify}
    return makers[case](size, asked, say, smoke)


def check_data(case: str, data: Path | None) -> None:
    """Raises where a case lacks its texts."""
    needed = {
        "translate": [
            f"{_MULTI30K}/{part}.{side}" for part in ("train", "val", "test_2016_flickr") for side in ("en", "de")
        ],
        "lm": [f"{_UD}/en_ewt-ud-{part}.conllu" for part in ("train", "dev", "test")],
        "classify": [f"{_SST2}/{part}.tsv" for part in ("train", "dev", "test")],
    }[case]
    if data is None:
        raise StudyError(
            f"The case {case!r} reads {listing(needed)}; give the folder that holds them with --data (or name it in "
            "PELLUCID_DATA), or see that all works with --smoke."
        )
    absent = [name for name in needed if not (data / name).is_file()]
    if absent:
        raise StudyError(f"The case {case!r} reads {absent[0]!r}, which is not in {str(data)!r}; give another --data.")


def _arcs(asked: Asked, count: int, *, smoke: bool) -> dict[str, Corpus]:
    """Texts with dependency arcs: generated English, and UD English where it is there."""
    found = {GRAMMAR: Corpus.grammar(count, seed=asked.seed + 11)}
    place = None if asked.data is None or smoke else asked.data / _UD / "en_ewt-ud-dev.conllu"
    if place is not None and place.is_file():
        found = {ENGLISH: sampled(Corpus.conllu(place), count), **found}
    return found


def _translate(size: Size, asked: Asked, say: Say, smoke: bool) -> Setup:
    if smoke:
        parts = [_reversed(count, seed) for seed, count in enumerate((size.gates, size.tested, size.tested))]
        reading = _arcs(asked, size.read, smoke=True)
        model = _tiny("translate", parts[0], asked.seed)
        return Setup(model, short_name(model.name), "translate", parts[0], parts[1], parts[2], reading)
    check_data("translate", asked.data)
    assert asked.data is not None
    place = asked.data / _MULTI30K
    training, choice, test = (
        sampled(Corpus.parallel(place / f"{part}.en", place / f"{part}.de"), count)
        for part, count in (("train", size.gates), ("val", size.tested), ("test_2016_flickr", size.tested))
    )
    captions = sampled(Corpus.text(place / "val.en"), size.read)
    arcs = _arcs(asked, size.read, smoke=False)
    reading = {GRAMMAR: arcs[GRAMMAR], "captions": captions, **{k: v for k, v in arcs.items() if k != GRAMMAR}}
    model = Model.load("zoo:translate", device=asked.device)
    seen = "zoo:translate has seen captions of pictures alone; generated and UD English are foreign to it."
    return Setup(model, short_name(model.name), "translate", training, choice, test, reading, notes=(seen,))


def _language(size: Size, asked: Asked, say: Say, smoke: bool) -> Setup:
    if smoke:
        parts = [Corpus.grammar(count, seed=seed) for seed, count in enumerate((size.gates, size.tested, size.tested))]
        model = _tiny("lm", parts[0], asked.seed) if asked.lm is None else _language_model(asked)
        return Setup(
            model, short_name(model.name), "lm", parts[0], parts[1], parts[2], _arcs(asked, size.read, smoke=True)
        )
    check_data("lm", asked.data)
    assert asked.data is not None
    model = _language_model(asked)
    training, choice, test = (
        sampled(Corpus.conllu(asked.data / _UD / f"en_ewt-ud-{part}.conllu"), count)
        for part, count in (("train", size.gates), ("test", size.tested), ("dev", size.tested))
    )
    small = "Without --lm, the small language model of the zoo stands in for a large one."
    notes = (small,) if asked.lm is None else ()
    return Setup(
        model, short_name(model.name), "lm", training, choice, test, _arcs(asked, size.read, smoke=False), notes=notes
    )


def _language_model(asked: Asked) -> Model:
    model = Model.load(asked.lm or "zoo:lm", device=asked.device)
    if not model.causal or not any(site.kind == "logits" for site in model.sites):
        raise StudyError(
            f"{model.name!r} ({type(model.hf).__name__}) does not predict the next word; give --lm a causal language "
            "model."
        )
    return model


def _classify(size: Size, asked: Asked, say: Say, smoke: bool) -> Setup:
    if smoke:
        parts = [_judged(count, seed) for seed, count in enumerate((size.gates, size.tested, size.tested))]
        model = _tiny("classify", parts[0], asked.seed) if asked.encoder is None else _encoder(asked, size, parts, say)
        reading = _arcs(asked, size.read, smoke=True)
        return Setup(model, _tuned(asked, model), "classify", parts[0], parts[1], parts[2], reading, label="label")
    check_data("classify", asked.data)
    assert asked.data is not None
    whole = [
        Corpus.table(asked.data / _SST2 / f"{part}.tsv", columns=["text", "label"], quoted=False)
        for part in ("train", "dev", "test")
    ]
    model = Model.load("zoo:sentiment", device=asked.device) if asked.encoder is None else None
    model = model or _encoder(asked, size, whole, say)
    training, choice, test = (
        sampled(corpus, count) for corpus, count in zip(whole, (size.gates, size.tested, size.tested), strict=True)
    )
    small = "Without --encoder, the small classifier of the zoo stands in for a pretrained one."
    notes = (small,) if asked.encoder is None else ()
    reading = _arcs(asked, size.read, smoke=False)
    name = _tuned(asked, model)
    return Setup(model, name, "classify", training, choice, test, reading, label="label", notes=notes)


def _tuned(asked: Asked, model: Model) -> str:
    """The name of the classifier: that of the encoder, and that it was tuned where it was."""
    if asked.encoder is None or short_name(asked.encoder) == short_name(model.name):
        return short_name(model.name)
    return f"{short_name(asked.encoder)}, tuned"


def _encoder(asked: Asked, size: Size, parts: list[Corpus], say: Say) -> Model:
    """The model given, as it is where it is a classifier; otherwise tuned on the training text, and kept."""
    from pellucid.train import settings_for, train

    assert asked.encoder is not None
    source = Model.load(asked.encoder, device=asked.device)
    if source.causal or any(site.stack is not None for site in source.sites):
        raise StudyError(
            f"{source.name!r} ({type(source.hf).__name__}) is no encoder; give --encoder a model that reads both ways, "
            "such as a BERT."
        )
    if "SequenceClassification" in type(source.hf).__name__:
        return source
    length = min(64, source.limit or 64)
    settings = settings_for(
        "classify", source=asked.encoder, epochs=size.tuning, length=length, label="label", seed=asked.seed
    )
    say(f"tuning {source.name} on {parts[0].name}: {settings.epochs} epochs")
    run = train(
        parts[0], settings, asked.runs / "classify-tuning", valid=parts[1], test=parts[2], device=asked.device,
        watch=False,
    )  # fmt: skip
    return Model.load(run.checkpoint(), device=asked.device)


# -- the smallest size: generated texts and tiny networks --------------------------------------------------------------


def _reversed(count: int, seed: int) -> Corpus:
    """Generated sentences with their words in the opposite order for translations."""
    made = [
        Sentence.of_text(
            each.text, id=each.id, second=Sentence.of_text(" ".join(reversed(each.words)), id=f"{each.id} reversed")
        )
        for each in Corpus.grammar(count, seed=seed)
    ]
    return Corpus.of(made, name=f"generated sentences, reversed ({count}, seed {seed})")


def _judged(count: int, seed: int) -> Corpus:
    """Generated sentences labelled by whether they tell of the past."""
    made = [
        Sentence.of_text(each.text, id=each.id, facts={"label": str(int(each.facts["tense"] == "past"))})
        for each in Corpus.grammar(count, seed=seed)
    ]
    return Corpus.of(made, name=f"generated sentences ({count}, seed {seed})")


def _tiny(task: str, corpus: Corpus, seed: int) -> Model:
    """A tiny network with random weights whose words are those of a corpus; large ones, so that its heads differ."""
    import torch

    from pellucid.train import settings_for
    from pellucid.train.architectures import build
    from pellucid.train.tasks import TASKS
    from pellucid.train.vocabulary import vocabulary_for

    label = "label" if task == "classify" else None
    sizes: dict[str, Any] = {"layers": 3, "width": 24, "heads": 3, "feed_forward": 32, "length": 64}
    settings = settings_for(task, "small", vocabulary_size=600, seed=seed + 1, label=label, **sizes)
    tokenizer = vocabulary_for(TASKS[task].texts(corpus, settings), settings)
    network = build(settings, tokenizer, TASKS[task].labels(corpus, settings)).eval()
    with torch.no_grad():
        for weights in network.parameters():
            if weights.dim() > 1:
                weights.mul_(_LARGER)
    return Model.load(network, tokenizer=tokenizer)
