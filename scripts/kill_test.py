"""Kills sweeps and store builds with SIGKILL at random moments, resumes them, and compares the bytes in the end.

    python scripts/kill_test.py --kills 100 [--what sweep|store|both] [--seed 0] [--minutes 20]

Every run happens in a process of its own over the small language model of the zoo and generated English. A kill comes
at once, at any moment, or at the very moment at which a file is being written. A run that was killed is started again
until it ends; what it leaves must be what an undisturbed run leaves, file by file. Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WHAT = ("sweep", "store")
_AT_MOST = 15  # kills of one run, after which it is left to end


@dataclass
class Outcome:
    """What came of the kills of one kind of work."""

    what: str
    kills: int = 0
    while_writing: int = 0
    runs: int = 0
    problems: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.kills} kills ({self.while_writing} while a file was being written), {self.runs} runs "
            f"ended, {len(self.problems)} of them with a difference."
        )


def collectors() -> list[Any]:
    """One of every kind of collector."""
    from pellucid.collect.classes import ClassMoments
    from pellucid.collect.counts import HeadCounts
    from pellucid.collect.moments import Moments
    from pellucid.collect.quantiles import Quantiles
    from pellucid.collect.sample import TokenSample
    from pellucid.collect.surprise import Surprise
    from pellucid.collect.topk import TopContexts

    return [
        Moments("resid.*", groups=True),
        HeadCounts(),
        TopContexts("neurons.*", k=5),
        Surprise(),
        ClassMoments("neurons.*", label="upos"),
        Quantiles("resid.1"),
        TokenSample("resid.*", size=64),
    ]


def work(what: str, model: Any, corpus: Any, folder: Path, *, engine: str, long: str) -> None:
    """The sweep, or the building of the store, in shards small enough for many checkpoints."""
    import torch

    from pellucid.collect.build import build_store
    from pellucid.collect.sweep import sweep

    torch.set_num_threads(1)
    options: dict[str, Any] = {
        "engine": engine,
        "long": long,
        "threads": 1,
        "token_budget": 256,
        "shard_tokens": 400,
        "progress": False,
    }
    if what == "sweep":
        sweep(model, corpus, collectors(), folder=folder, **options)
    else:
        build_store(model, corpus, folder, ("resid.*", "neurons.1"), dtype="float32", **options)


def files_of(folder: Path) -> dict[str, bytes]:
    """Every finished file under a folder, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def differences(expected: dict[str, bytes], found: dict[str, bytes]) -> str:
    """The names of files that are missing, too many, or not the same; empty where all is well."""
    names = sorted(expected.keys() | found.keys())
    return ", ".join(name for name in names if expected.get(name) != found.get(name))


def kill_test(
    kills: int,
    *,
    what: str = "sweep",
    seed: int = 0,
    minutes: float = 20,
    model: str | Path = "zoo:lm",
    sentences: int = 60,
    engine: str = "inline",
    long: str = "refuse",
    say: Callable[[str], None] = print,
) -> Outcome:
    """Kills one kind of work so often, and tells what came of it."""
    import torch

    from pellucid.corpus import Corpus
    from pellucid.model import Model

    torch.set_num_threads(1)  # threads, also those of tokenizers, would not live on in the processes below
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    opened, corpus = Model.load(model), Corpus.grammar(sentences)
    chance, outcome = random.Random(seed), Outcome(what)
    context = multiprocessing.get_context("fork")
    until = time.monotonic() + 60 * minutes

    def start(folder: Path) -> Any:
        options = {"engine": engine, "long": long}
        process = context.Process(target=work, args=(what, opened, corpus, folder), kwargs=options)
        process.start()
        return process

    with tempfile.TemporaryDirectory(prefix="kill-test-") as place:
        began = time.monotonic()
        undisturbed = start(Path(place) / "undisturbed")
        undisturbed.join()
        if undisturbed.exitcode:
            raise RuntimeError(f"The undisturbed {what} ended with {undisturbed.exitcode}.")
        takes = time.monotonic() - began
        expected = files_of(Path(place) / "undisturbed")
        say(f"{what}: undisturbed in {takes:.1f} s, {len(expected)} files.")
        while outcome.kills < kills and time.monotonic() < until and len(outcome.problems) < 5:
            folder = Path(place) / f"run-{outcome.runs}"
            before = outcome.kills
            exitcode = _one_run(folder, start, chance, takes, outcome, kills)
            outcome.runs += 1
            differs = differences(expected, files_of(folder)) if exitcode == 0 else f"it ended with {exitcode}"
            if differs:
                outcome.problems.append(differs)
            say(f"{what}: run {outcome.runs}, {outcome.kills - before} kills: {differs or 'the same bytes'}.")
    return outcome


def _one_run(
    folder: Path, start: Callable[[Path], Any], chance: random.Random, takes: float, outcome: Outcome, kills: int
) -> int:
    """One run from beginning to end, with kills in between; its exit code."""
    killed = 0
    while True:
        process = start(folder)
        if outcome.kills < kills and killed < _AT_MOST:
            writing = _wait_for_the_moment(process, folder, chance, takes)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                process.join()
                if process.exitcode == -signal.SIGKILL:
                    killed += 1
                    outcome.kills += 1
                    outcome.while_writing += writing
                    continue
        process.join()
        return process.exitcode


def _wait_for_the_moment(process: Any, folder: Path, chance: random.Random, takes: float) -> bool:
    """Waits until the kill is due, or the run has ended; whether a file is being written just then."""
    kind = chance.choice(("early", "any", "any", "writing"))
    if kind != "writing":
        process.join(chance.uniform(0, takes * (0.1 if kind == "early" else 1.1)))
        return False
    left, end = chance.randrange(12), time.monotonic() + 2 * takes
    seen: set[str] = set()
    while process.is_alive() and time.monotonic() < end:
        halves = {name for _, _, names in os.walk(folder) for name in names if name.endswith(".part")}
        left -= len(halves - seen)
        if halves and left < 0:
            return True
        seen |= halves
        time.sleep(0.0002)
    return False


def main() -> int:
    """Reads the command line, runs, and prints a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="how many kills of each kind of work")
    parser.add_argument("--what", choices=[*WHAT, "both"], default="both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=20, help="the most time for each kind of work")
    parser.add_argument("--engine", choices=["inline", "processes"], default="inline")
    given = parser.parse_args()
    chosen = WHAT if given.what == "both" else (given.what,)
    outcomes = [
        kill_test(given.kills, what=what, seed=given.seed, minutes=given.minutes, engine=given.engine)
        for what in chosen
    ]
    for outcome in outcomes:
        print(outcome)
    short = [outcome for outcome in outcomes if outcome.kills < given.kills]
    if short:
        print("Not every kill happened within the time: " + ", ".join(outcome.what for outcome in short) + ".")
    return 1 if short or any(outcome.problems for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
