"""Every example in the README and in docs/ runs as printed."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from pellucid.cli import main
from tests.tiny_models import save

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    assert sum(len(blocks(page, "python")) + len(blocks(page, "console")) for page in PAGES) >= 10


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "my-model", "gpt2")
    monkeypatch.chdir(tmp_path)
    source = "\n".join(blocks(page, "python"))
    exec(compile(source, str(page), "exec", dont_inherit=True), {"__name__": "example"})
    assert "pl.Model" in source


def commands(page: Path) -> list[list[str]]:
    """The commands of a page, without the program's name."""
    lines = "".join(blocks(page, "console")).splitlines()
    assert all(line.startswith("$ pellucid ") for line in lines), lines
    return [shlex.split(line.removeprefix("$ "))[1:] for line in lines]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=lambda page: page.name)
def test_commands_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process, since opening the libraries anew takes longer than most commands; test_cli types some."""
    save(tmp_path / "my-model", "gpt2")
    monkeypatch.chdir(tmp_path)
    for command in commands(page):
        monkeypatch.setattr(sys, "argv", ["pellucid", *command])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capfd.readouterr()
        assert not ended.value.code, told.err
        assert told.out.strip()
