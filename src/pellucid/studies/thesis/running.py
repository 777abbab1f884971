"""The thesis study: trains its language model and its tagger, compares their layers as it did and rightly.

Computing needs torch and transformers alone; `page` draws what lies in the folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import listing
from pellucid.results import versions
from pellucid.saving import whole_folder
from pellucid.studies.claims import StudyError
from pellucid.studies.thesis import published
from pellucid.studies.thesis import scores as comparing
from pellucid.studies.thesis.arrays import folded
from pellucid.studies.thesis.gather import Reader, Running, grouping_of, running_text
from pellucid.studies.thesis.scores import Curves, Ends, Layer
from pellucid.studies.thesis.tables import Score, Study, write
from pellucid.studies.thesis.words import Grouping

if TYPE_CHECKING:
    from pellucid.train import Run

FILES = tuple(f"{split}.{kind}" for split in ("train", "valid", "test") for kind in ("txt", "tags"))
TAG = "tag"
"""The label of words that the tagger learns."""
SEEDS = {"lm": 0, "tagger": 1}
"""Added to the study's seed for each training, so that the networks do not begin with the same weights."""
RANDOM_SEED = 2
"""Added to the seed of a training for the random network beside it."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Scale:
    """How much of the study is done: text, networks, training, and how large an array is compared.

    `lines` are the lines of train, valid and test text that are read (None: all). `changes` are changes to the thesis's
    settings, of both networks and of the one named. SVCCA of epochs is worked out `every` so many.
    """

    name: str
    about: str
    lines: tuple[int, int, int] | None
    columns: int
    windows: int
    sample: int
    every: int
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    def settings(self, task: str, label: str) -> Any:
        """The settings of one of the two networks."""
        from pellucid.train import settings_for

        changes = {**self.changes.get("both", {}), **self.changes.get(task, {})}
        return settings_for(task, "thesis", **changes, **({"label": label} if task == "tagger" else {}))


SCALES = {
    "full": Scale(
        "full",
        "As published: all of WikiText-2, 50 epochs, and arrays of 3,104 × 64 × 240.",
        lines=None,
        columns=published.COLUMNS,
        windows=published.ROWS // published.LENGTH,
        sample=4096,
        every=5,
    ),
    "quick": Scale(
        "quick",
        "A small part of WikiText-2 (1,200 lines, the 5,000 commonest words) and 6 epochs, for a laptop: networks that "
        "have learned little, in arrays of the published proportions (768 × 16 × 240). Only what chance gives is as in "
        "the full study.",
        lines=(1200, 260, 200),
        columns=16,
        windows=24,
        sample=1024,
        every=2,
        changes={"both": {"vocabulary_size": 5000, "epochs": 6, "batch": 16}},
    ),
    "smoke": Scale(
        "smoke",
        "Tiny networks and two epochs, to see that everything works: no number of this page means anything.",
        lines=(400, 150, 100),
        columns=8,
        windows=6,
        sample=300,
        every=2,
        changes={
            "both": {"width": 48, "feed_forward": 64, "vocabulary_size": 400, "epochs": 2, "batch": 8, "length": 8},
            "lm": {"heads": 4, "learning_rate": 2.0},
            "tagger": {"heads": 4, "learning_rate": 0.8},
        },
    ),
}


@dataclass(frozen=True, eq=False)
class Texts:
    """The three parts of the text, as the language model and as the tagger read them."""

    name: str
    lm: tuple[Corpus, Corpus, Corpus]
    tagger: tuple[Corpus, Corpus, Corpus]


def wikitext(folder: str | Path, lines: tuple[int, int, int] | None) -> Texts:
    """WikiText-2 in a folder: train, valid and test text (.txt) and a tag for each of its words (.tags)."""
    place = Path(folder)
    absent = [name for name in FILES if not (place / name).is_file()]
    if absent:
        raise StudyError(
            f"The study reads {listing(FILES)}, and {absent[0]!r} is not in {str(place)!r}; give the folder of "
            "WikiText-2 with --data."
        )
    made: dict[str, list[Corpus]] = {"lm": [], "tagger": []}
    for at, split in enumerate(("train", "valid", "test")):
        words = place / f"{split}.txt"
        for task, corpus in (
            ("lm", Corpus.text(words)),
            ("tagger", Corpus.tagged(words, words.with_suffix(".tags"), label=TAG)),
        ):
            made[task].append(corpus if lines is None else corpus.take(lines[at]))
    first, second = (tuple(made[task]) for task in ("lm", "tagger"))
    return Texts("WikiText-2", (first[0], first[1], first[2]), (second[0], second[1], second[2]))


def generated(lines: tuple[int, int, int]) -> Texts:
    """Generated English, its words apart and its parts of speech as tags: where there is no other text."""
    parts: list[Corpus] = []
    for seed, count in enumerate(lines):
        sentences = [
            Sentence.of_words(each.words, id=each.id, document=each.document, labels={TAG: each.label("upos")})
            for each in Corpus.grammar(count, seed=seed)
        ]
        parts.append(Corpus.of(sentences, name=f"generated English ({count} sentences, seed {seed})"))
    three = (parts[0], parts[1], parts[2])
    return Texts("generated English", three, three)


def compute(
    out: str | Path,
    *,
    runs: str | Path,
    data: str | Path | None = None,
    scale: str = "full",
    device: str | None = None,
    seed: int = 0,
    command: str | None = None,
    say: Say = print,
) -> Path:
    """Runs the study and writes its numbers to a new folder, tables.json and curves.json.

    The trainings are kept in the folder `runs` and gone on with when the same is asked again. `data` is the folder of
    WikiText-2; without it, the smallest scale reads generated English, and the others are refused.
    """
    if scale not in SCALES:
        raise StudyError(f"There is no scale {scale!r} of this study; there are {listing(SCALES)}.")
    chosen = SCALES[scale]
    if data is None and (chosen.name != "smoke" or chosen.lines is None):
        raise StudyError("The study needs WikiText-2 with its tags; give the folder that holds them with --data.")
    with whole_folder(Path(out)) as work:
        texts = generated(chosen.lines or (1, 1, 1)) if data is None else wikitext(data, chosen.lines)
        trained = {
            task: _trained(task, texts, chosen, Path(runs), device, seed, command, say) for task in ("lm", "tagger")
        }
        began = time.perf_counter()
        study = measured(trained["lm"], trained["tagger"], texts, chosen, device=device, say=say)
        say(f"compared in {time.perf_counter() - began:.0f} s")
        write(study, work)
    return Path(out)


def _trained(
    task: str,
    texts: Texts,
    scale: Scale,
    runs: Path,
    device: str | None,
    seed: int,
    command: str | None,
    say: Say,
) -> Run:
    from pellucid.train import train

    runs.mkdir(exist_ok=True)
    settings = replace(scale.settings(task, TAG), seed=seed + SEEDS[task])
    corpus, valid, test = texts.lm if task == "lm" else texts.tagger
    say(f"training the {'language model' if task == 'lm' else 'tagger'}: {settings.epochs} epochs of {corpus.name}")
    return train(
        corpus,
        settings,
        runs / task,
        valid=valid,
        test=test,
        checkpoints="all",
        watch=False,
        device=device,
        command=command,
    )


def measured(lm: Run, tagger: Run, texts: Texts, scale: Scale, *, device: str | None, say: Say) -> Study:
    """Every number of the study, from two trainings whose every epoch was kept."""
    with torch.inference_mode():
        bench = _Bench(lm, tagger, texts, scale, device)
        ends = bench.ends()
        say("comparing the trained networks")
        scores = [
            *comparing.between(ends.tagger, ends.lm, (ends.random_tagger, ends.random_lm)),
            *comparing.shifted(bench.shifted_tagger(), ends.lm),
            *comparing.within(ends.lm, ends.random_lm),
        ]
        rows, columns, width = bench.shape
        drawn, correlations = comparing.noise(rows, columns, width, seed=lm.settings.seed, device=bench.device)
        spectra = {**comparing.spectra(ends.tagger, ends.lm), "noise": correlations}
        curves = bench.curves(ends, say)
    grouping = bench.grouping
    facts: dict[str, Any] = {
        "scale": {"name": scale.name, "about": scale.about},
        "text": {"name": texts.name, "words": len(grouping.groups), "sampled": len(grouping.sample)},
        "layout": {"rows": rows, "columns": columns, "width": width, "length": lm.settings.length},
        "training": {run.settings.task: _told(run) for run in (lm, tagger)},
        "groups": {"words": grouping.sizes, "sampled": grouping.sampled_sizes},
        "noise": drawn,
        "spectra": spectra,
        "versions": versions(),
    }
    return Study(facts, tuple(scores), tuple(curves))


def _told(run: Run) -> dict[str, Any]:
    """What the page says of a training."""
    kept = ("epoch", "seconds", "train_loss", "valid_loss", "valid_perplexity", "valid_accuracy")
    return {
        "settings": asdict(run.settings),
        "log": [{name: row[name] for name in kept if row.get(name) is not None} for row in run.log],
        "test": run.test,
        "network": run.facts["network"],
        "corpora": run.facts["corpora"],
        "device": run.facts["device"],
        "precision": run.facts["precision"],
    }


class _Bench:
    """Both trainings over one layout of the validation text."""

    def __init__(self, lm: Run, tagger: Run, texts: Texts, scale: Scale, device: str | None) -> None:
        self.runs: dict[str, Run] = {"lm": lm, "tagger": tagger}
        self.scale = scale
        self.readers = {task: Reader(run.checkpoint(), device=device) for task, run in self.runs.items()}
        vocabularies = [self.readers[task].tokenizer.get_vocab() for task in self.runs]
        if vocabularies[0] != vocabularies[1]:
            raise StudyError("The two trainings have different vocabularies; train both on the same text.")
        self.text: Running = running_text(texts.lm[1], self.readers["lm"].tokenizer)
        self.length = lm.settings.length
        rows = scale.windows * self.length
        self.places = folded(len(self.text.ids), scale.columns, rows)
        seed = lm.settings.seed
        self.grouping: Grouping
        self.grouping, order = grouping_of(self.text, self.places.numpy(), scale.sample, seed)
        self.order = torch.from_numpy(order).to(self.device)

    @property
    def device(self) -> torch.device:
        return self.readers["lm"].model.device

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and width of the arrays."""
        rows, columns = self.places.shape
        return rows, columns, self.runs["lm"].settings.width

    def ends(self) -> Ends:
        """The trained networks and random ones."""
        return Ends(self.epoch("lm"), self.epoch("tagger"), self._random("lm"), self._random("tagger"))

    def epoch(self, task: str, epoch: int | None = None) -> list[Layer]:
        """The layers of a network at an epoch (default: the last)."""
        run = self.runs[task]
        number = max(run.checkpoints()) if epoch is None else epoch
        self.readers[task].load(run.checkpoint(number))
        return self._layers(task, task, number, self.places)

    def shifted_tagger(self) -> list[Layer]:
        """The trained tagger over the text in columns that are shorter, as they were in the thesis."""
        run, tokens = self.runs["tagger"], len(self.text.ids) // self.scale.columns
        shorter = tokens * published.TAGGER_COLUMN // published.LM_COLUMN
        column = max(self.places.shape[0], min(shorter, tokens - 1))
        self.readers["tagger"].load(run.checkpoint())
        places = folded(len(self.text.ids), self.scale.columns, self.places.shape[0], column=column)
        return self._layers("tagger", "tagger", max(run.checkpoints()), places)

    def _random(self, task: str) -> list[Layer]:
        """A network with random weights that are not those that the training began with."""
        from pellucid.train.architectures import build

        run, reader = self.runs[task], self.readers[task]
        seed = run.settings.seed + RANDOM_SEED
        reader.take(build(replace(run.settings, seed=seed), reader.tokenizer, run.labels))
        return self._layers(task, f"random {task}", 0, self.places)

    def _layers(self, task: str, name: str, epoch: int, places: Tensor) -> list[Layer]:
        ids = torch.from_numpy(self.text.ids)[places]
        return [
            Layer(f"{name}.{number}", epoch, array, self.order, self.grouping)
            for number, array in enumerate(self.readers[task].layers(ids, self.length), start=1)
        ]

    def curves(self, ends: Ends, say: Say) -> list[Score]:
        """Every epoch against the end and against the same epoch; the slow scores of some epochs."""
        followed = Curves(ends)
        epochs = sorted(self.runs["lm"].checkpoints().keys() & self.runs["tagger"].checkpoints().keys())
        slow = slow_epochs(epochs, self.scale.every)
        made: list[Score] = []
        for epoch in epochs:
            last = epoch == epochs[-1]
            lm, tagger = (ends.lm, ends.tagger) if last else (self.epoch("lm", epoch), self.epoch("tagger", epoch))
            made += followed.epoch(lm, tagger, slow=epoch in slow)
            say(f"compared epoch {epoch} of {epochs[-1]}")
        return made


def slow_epochs(epochs: Sequence[int], every: int) -> set[int]:
    """The epochs whose matrices are decomposed: the first two, every so many, and the last."""
    return {*epochs[:2], *(epoch for epoch in epochs if epoch % every == 0), epochs[-1]}
