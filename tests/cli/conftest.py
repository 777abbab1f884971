"""Running the command line inside the test process."""

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
