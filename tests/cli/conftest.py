"""Running the command line inside the test process, and a model for the commands on neurons."""

from __future__ import annotations

import sys

import pytest

from pellucid.cli import main


@pytest.fixture
def cli(monkeypatch, capfd):
    """Runs the command line in this process: exit code, standard output, standard error."""

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pellucid", *map(str, words)])
        capfd.readouterr()
        try:
            main()
            code = 0
        except SystemExit as done:
            code = 0 if done.code is None else int(done.code)
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def refused(cli):
    """Runs a command that must be refused: exit code 2, nothing printed, and one line that says `said`."""

    def check(*words: object, said: str) -> None:
        code, printed, told = cli(*words)
        assert (code, printed) == (2, ""), told
        assert said in told
        assert len(told.splitlines()) == 1, told

    return check


@pytest.fixture(scope="session")
def tagger(tmp_path_factory):
    """The folder of a tagger with planted neurons."""
    from tests.neurons import planted

    place = tmp_path_factory.mktemp("model") / "tagger"
    planted.network().save_pretrained(place)
    planted.tokenizer().save_pretrained(place)
    return place
