"""`pellucid train`: a small transformer learns a task from a corpus, and is watched while it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli import _corpus as corpora
from pellucid.cli import _options as options
from pellucid.cli._command import command_line
from pellucid.cli._groups import spread
from pellucid.cli._print import console, print_json, print_table
from pellucid.errors import TrainError
from pellucid.written import number

if TYPE_CHECKING:
    from pellucid.train import Freeze, Run

EXAMPLES = """Examples: pellucid train lm --corpus grammar:2000 --epochs 5 -o my-lm ;
pellucid train tagger --corpus en_ewt-ud-train.conllu --valid en_ewt-ud-dev.conllu --label upos -o my-tagger ;
pellucid train classify --corpus train.tsv --columns text,label --from sentence-transformers/all-MiniLM-L6-v2 -o tuned ;
pellucid train translate --corpus train.en+train.de --format parallel -o my-translator"""


@dataclass(frozen=True)
class Network:
    """The network and its vocabulary; None leaves what the preset says."""

    layers: Annotated[int | None, typer.Option(help="Blocks, one above the other.")] = None
    width: Annotated[int | None, typer.Option(help="Numbers that stand for one token.")] = None
    heads: Annotated[int | None, typer.Option(help="Attention heads of every block.")] = None
    feed_forward: Annotated[int | None, typer.Option(help="Neurons of every block.")] = None
    length: Annotated[int | None, typer.Option(help="Longest text, in tokens.")] = None
    dropout: Annotated[float | None, typer.Option(help="Share of numbers left out while training, in blocks.")] = None
    embedding_dropout: Annotated[float | None, typer.Option(help="The same, of embeddings.")] = None
    vocabulary: Annotated[str | None, typer.Option(help="word (whole words) or bpe (byte pairs).")] = None
    vocabulary_size: Annotated[int | None, typer.Option(help="Tokens in the vocabulary (0: no limit to words).")] = None
    least: Annotated[int | None, typer.Option(help="Words that occur less often become <unk>.")] = None


@dataclass(frozen=True)
class Learning:
    """The training; None leaves what the preset says."""

    epochs: Annotated[int | None, typer.Option(help="How often the corpus is read.")] = None
    batch: Annotated[int | None, typer.Option(help="Rows of one step.")] = None
    rows: Annotated[str | None, typer.Option(help="A row is a piece of running text (stream) or a sentence.")] = None
    optimiser: Annotated[str | None, typer.Option(help="adamw or sgd.")] = None
    learning_rate: Annotated[float | None, typer.Option(help="The largest on the way.")] = None
    schedule: Annotated[str | None, typer.Option(help="cosine, step (× decay every few epochs) or constant.")] = None
    warmup: Annotated[float | None, typer.Option(help="Share of the steps in which the learning rate rises.")] = None
    decay: Annotated[float | None, typer.Option(help="What the step schedule multiplies by.")] = None
    decay_every: Annotated[int | None, typer.Option(help="Epochs between those steps.")] = None
    weight_decay: Annotated[float | None, typer.Option(help="Of matrices, with AdamW.")] = None
    clip: Annotated[float | None, typer.Option(help="The largest norm of a gradient.")] = None
    label_smoothing: Annotated[float | None, typer.Option(help="Share of a goal spread over all classes.")] = None
    masked: Annotated[float | None, typer.Option(help="Share of the tokens that mlm hides.")] = None
    seed: Annotated[int | None, typer.Option(help="Of weights, order and dropout.")] = None


@dataclass(frozen=True)
class Freezing:
    """When layers are no longer trained."""

    freeze: Annotated[bool, typer.Option("--freeze", help="Freeze layers that have settled.")] = False
    freeze_threshold: Annotated[
        float, typer.Option(help="With --freeze: the similarity (CKA) of its last looks at which a layer has settled.")
    ] = 0.99
    freeze_patience: Annotated[
        int, typer.Option(help="With --freeze: epochs over which a layer must be that similar.")
    ] = 2

    def asked(self) -> Freeze | None:
        """The rule, where one is asked for."""
        from pellucid.train import Freeze

        return Freeze(self.freeze_threshold, self.freeze_patience) if self.freeze else None


def register(app: typer.Typer) -> None:
    app.command(name="train", epilog=EXAMPLES)(spread(train))


def train(
    task: Annotated[str, typer.Argument(help="lm, mlm, tagger, translate, classify, qa or nli.")],
    corpus: corpora.CorpusOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The run's folder; an unfinished one is gone on with.")],
    valid: Annotated[
        str | None, typer.Option(metavar="FILE", help="Text to validate with (default: every tenth document).")
    ] = None,
    test: Annotated[str | None, typer.Option(metavar="FILE", help="Text to score on at the end.")] = None,
    label: Annotated[str | None, typer.Option(help="The label to learn (tagger, classify, nli).")] = None,
    preset: Annotated[str, typer.Option(help="small, thesis or identifiable.")] = "small",
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="MODEL", help="Fine-tune this model: a folder, a finished run, hub name or zoo:NAME."
        ),
    ] = None,
    no_mask: Annotated[bool, typer.Option("--no-mask", help="Let every token see those after it, too.")] = False,
    checkpoints: Annotated[
        str, typer.Option(help="Epochs to keep: all, best, last, or numbers as in 0,1,5,10.")
    ] = "last",
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", help="Keep what `pellucid dynamics` compares, after every epoch.")
    ] = True,
    *,
    freezing: Freezing,
    track: Annotated[
        list[str] | None, typer.Option(help="Also track with tensorboard or mlflow (may be repeated).")
    ] = None,
    device: options.Device = None,
    precision: Annotated[str, typer.Option(help="auto (bfloat16 on a GPU), float32 or bfloat16.")] = "auto",
    network: Network,
    learning: Learning,
    shape: corpora.CorpusShape,
    json: options.Json = False,
) -> None:
    """Train a small transformer and keep its log, its checkpoints and what it was like after every epoch."""
    from pellucid.train import settings_for
    from pellucid.train import train as run_training

    own = {"label": label, "source": source, "mask": False if no_mask else None}
    settings = settings_for(task, preset, **_given({**vars(network), **vars(learning), **own}))
    splits = [None if spec is None else shape.open(spec) for spec in (corpus, valid, test)]
    assert splits[0] is not None
    with options.resumable(out):
        run = run_training(
            splits[0],
            settings,
            out,
            valid=splits[1],
            test=splits[2],
            checkpoints=_epochs(checkpoints),
            watch=watch,
            freeze=freezing.asked(),
            trackers=track or (),
            device=device,
            precision=precision,
            progress=True,
            command=command_line(),
        )
    _draw(run)
    if json:
        print_json({**run.facts, "log": run.log, "test": run.test})
        return
    show_run(run)


def show_run(run: Run) -> None:
    """A finished training as a table: the scores of the model that was kept last, beside chance."""
    kept = max(run.checkpoints())
    last, chance = next(row for row in run.log if row["epoch"] == kept), run.facts["chance"]
    rows = [
        (name, number(last[f"valid_{name}"], digits=4), number(chance[name], digits=4) if name in chance else "")
        for name in (key.removeprefix("valid_") for key in last if key.startswith("valid_"))
        if f"valid_{name}" in last and not name.endswith("seconds") and last[f"valid_{name}"] is not None
    ]
    print_table(["validation", f"epoch {last['epoch']}", "chance"], rows, right=[f"epoch {last['epoch']}", "chance"])
    if run.test is not None:
        _show_test(run.test)
    screen = console()
    screen.print(f"The model: {run.checkpoint()}", soft_wrap=True)
    screen.print(f"Its curves: {run.folder / 'curves.png'}", soft_wrap=True)
    if (run.folder / "dynamics").is_dir():
        screen.print(f"How its layers came to be: pellucid dynamics {run.folder} -o OUT", soft_wrap=True)


def _show_test(test: Mapping[str, Any]) -> None:
    """The scores on the test text, beside their intervals and chance."""
    ends, chance = test.get("interval", {}), test["chance"]
    rows = [
        (
            name,
            number(value, digits=4),
            " to ".join(number(end, digits=4) for end in ends[name]) if name in ends else "",
            number(chance[name], digits=4) if name in chance else "",
        )
        for name, value in test["scores"].items()
    ]
    heads = ["test", f"epoch {test['epoch']}", "95% interval", "chance"]
    print_table(heads, rows, right=heads[1:])


def _draw(run: Run) -> None:
    """The curves of a run as a picture in its folder."""
    from io import BytesIO

    from pellucid.saving import write_file
    from pellucid.train import learning_curves

    drawn = BytesIO()
    learning_curves(run).plot().savefig(drawn, format="png", dpi=150)
    write_file(run.folder / "curves.png", drawn.getvalue())


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were given; the preset has the others."""
    return {name: value for name, value in settings.items() if value is not None}


def _epochs(text: str) -> str | list[int]:
    if not any(char.isdigit() for char in text):
        return text
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise TrainError(
            f"Checkpoints {text!r} are not understood; write all, best, last, or numbers with commas: 0,1,5,10."
        ) from None
