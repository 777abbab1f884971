"""The cases of the study of neurons: a model with its texts and sites, and how much of each is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pellucid.corpus import Corpus
from pellucid.corpus.identity import fingerprint_of
from pellucid.errors import listing
from pellucid.heads.weighing.measuring import head_tasks
from pellucid.model import Model
from pellucid.neurons.judging.ablating import site_width
from pellucid.studies.claims import StudyError
from pellucid.studies.names import short_name
from pellucid.studies.texts import sampled

ZOO = ("zoo:mlm", "zoo:lm", "zoo:tagger")
"""The models that are studied where none are named."""
TASKS = ("lm", "mlm", "tagger")
"""Tasks of a model's own that neurons are removed in."""
_FOLDER = "ud_english_ewt"
_TAGS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "VERB",
)  # fmt: skip
"""All but INTJ, SYM and X, of which there are too few words to rank neurons by."""
_RELATIONS = ("nsubj", "obj", "obl", "nmod", "amod", "advmod", "conj", "compound", "ccomp", "advcl")
_LARGE = 50_000_000
"""Parameters from which a model counts as large on a CPU, and fewer sentences are read."""


@dataclass(frozen=True)
class Size:
    """How much of a case is done.

    Sentences that neurons are ranked on and judged on (`read` of each), and that the model itself runs on without
    neurons (`modelled`); sites of the stream (`layers`), of those the ones on which rankings are compared
    (`compared`), and blocks whose sub-layers are (`blocks`). Probes: at most `epochs`, `seeds` each, and `curves` where
    few neurons are judged; forests learn from at most `grown` words; neurons are ablated one by one on `ablated`
    sentences (0: they are not). `draws` of random neurons, and `shuffles` of all neurons, each of which gives three
    sets of random ones; `parts` of the documents that rankings are made of again; `groups` of them that the model runs
    on; `held` words decide what Gaussians choose; classes have at least `fewest` words.
    """

    read: int
    modelled: int
    layers: int = 7
    compared: int = 3
    blocks: int = 3
    epochs: int = 30
    seeds: int = 2
    curves: int = 1
    grown: int = 2000
    ablated: int = 24
    draws: int = 3
    shuffles: int = 2
    parts: int = 5
    groups: int = 6
    held: int = 1000
    fewest: int = 20


@dataclass(frozen=True)
class Scale:
    """The size of the whole study: of small models and of large ones."""

    name: str
    about: str
    small: Size
    large: Size


SCALES = {
    "full": Scale(
        "full", "The whole study.", Size(1000, 300), Size(240, 16, layers=6, ablated=0, draws=2, parts=4, groups=4)
    ),
    "quick": Scale(
        "quick",
        "Small samples, to see the picture within a minute: wide intervals.",
        Size(
            120,
            12,
            3,
            compared=2,
            blocks=2,
            epochs=8,
            grown=500,
            ablated=6,
            draws=1,
            shuffles=1,
            parts=3,
            groups=2,
            held=200,
            fewest=12,
        ),
        Size(
            60,
            8,
            3,
            compared=1,
            blocks=1,
            epochs=8,
            grown=500,
            ablated=0,
            draws=1,
            shuffles=1,
            parts=3,
            groups=2,
            held=200,
            fewest=12,
        ),
    ),
    "smoke": Scale(
        "smoke",
        "Few generated sentences, to see that everything works: no number of this page means much.",
        Size(
            48,
            6,
            2,
            compared=1,
            blocks=1,
            epochs=3,
            grown=200,
            ablated=4,
            draws=1,
            shuffles=1,
            parts=3,
            groups=2,
            held=100,
            fewest=8,
        ),
        Size(
            40,
            4,
            2,
            compared=1,
            blocks=1,
            epochs=4,
            grown=200,
            ablated=0,
            draws=1,
            shuffles=1,
            parts=3,
            groups=2,
            held=100,
            fewest=8,
        ),
    ),
}


@dataclass(frozen=True)
class Asked:
    """What a run of the study was asked for, beside its scale."""

    data: Path | None
    device: str | None
    seed: int
    runs: Path


@dataclass(frozen=True, eq=False)
class Setup:
    """A model with the texts that neurons are ranked and judged on, concepts by name, sites, and its own task."""

    model: Model
    size: Size
    ranked: Corpus
    judged: Corpus
    concepts: Mapping[str, str]
    stream: tuple[str, ...]
    compared: tuple[str, ...]
    inner: tuple[str, ...]
    task: str | None

    @property
    def neurons(self) -> dict[str, int]:
        """How many neurons the sites of each kind have."""
        kinds = {"stream": self.stream, "compared": self.compared, "sub-layers": self.inner}
        known = {str(site): site for site in self.model.sites}
        return {kind: sum(site_width(self.model, known[name]) for name in names) for kind, names in kinds.items()}


def case_names(models: Sequence[str]) -> dict[str, str]:
    """The name of every model's case, NAME: model; names are those of files, and must differ."""
    if not models:
        raise StudyError(f"No model was named; name some with --model, such as {listing(ZOO)}.")
    found: dict[str, str] = {}
    for model in models:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", short_name(model)).strip("-.")
        if not name or name in found:
            other = f"the same file as {found[name]!r}" if name else "no file"
            raise StudyError(f"The numbers of {model!r} would go to {other}; give its folder another name.")
        found[name] = model
    return found


def check_data(data: Path | None) -> None:
    """Raises where the texts are missing."""
    needed = [f"{_FOLDER}/en_ewt-ud-{part}.conllu" for part in ("dev", "test")]
    if data is None:
        raise StudyError(
            f"The study of neurons reads {listing(needed)}; give the folder that holds them with --data (or name it in "
            "PELLUCID_DATA), or see that all works with --smoke."
        )
    absent = [name for name in needed if not (data / name).is_file()]
    if absent:
        raise StudyError(f"The study of neurons reads {absent[0]!r}, which is not in {str(data)!r}; give another.")


def setup(name: str, scale: Scale, asked: Asked) -> Setup:
    """Opens a model and the texts; a model with several stacks is refused."""
    model = Model.load(name, device=asked.device)
    large = model.device.type == "cpu" and sum(weights.numel() for weights in model.hf.parameters()) >= _LARGE
    size = scale.large if large else scale.small
    depth = [site.layer for site in model.sites if site.kind == "resid" and site.stack is None]
    if not depth:
        raise StudyError(
            f"{model.name!r} ({type(model.hf).__name__}) has several stacks, and the study reads one; give an encoder, "
            "a language model or a tagger."
        )
    ranked, judged, concepts = _texts(scale.name == "smoke", size, asked)
    stream = spread_over([f"resid.{layer}" for layer in depth], size.layers)
    compared = spread_over(stream[1:] or stream, size.compared)
    blocks = spread_over([str(layer) for layer in depth[:-1]], size.blocks)
    inner = tuple(f"{kind}.{block}" for block in blocks for kind in ("attn", "neurons"))
    own = head_tasks(model, judged)
    return Setup(
        model, size, ranked, judged, concepts, stream, compared, inner, own if own in TASKS else None
    )  # fmt: skip


def spread_over(names: Sequence[str], count: int) -> tuple[str, ...]:
    """At most so many of the names, spread evenly; the last is among them, and of two or more the first."""
    if count >= len(names):
        return tuple(names)
    places = np.linspace(0, len(names) - 1, count) if count > 1 else [len(names) - 1]
    return tuple(names[round(float(place))] for place in places)


def text_mark(smoke: bool, asked: Asked) -> str:
    """What names the texts that a study reads: a hash of their files, or that they are generated."""
    if smoke:
        return "generated English"
    return fingerprint_of(*(_corpus(part, asked).fingerprint or "none" for part in ("dev", "test")))


def _corpus(part: str, asked: Asked) -> Corpus:
    check_data(asked.data)
    assert asked.data is not None
    return Corpus.conllu(asked.data / _FOLDER / f"en_ewt-ud-{part}.conllu")


def _texts(smoke: bool, size: Size, asked: Asked) -> tuple[Corpus, Corpus, dict[str, str]]:
    if smoke:
        ranked, judged = (Corpus.grammar(size.read, seed=asked.seed + number) for number in (21, 22))
        return ranked, judged, {"pos": "upos", "number": "number", "relation": "deprel"}
    ranked, judged = (sampled(_corpus(part, asked), size.read) for part in ("dev", "test"))
    tags, relations = f"upos={','.join(_TAGS)}", f"deprel={','.join(_RELATIONS)}"
    return ranked, judged, {"pos": tags, "number": "feats.Number", "relation": relations}
