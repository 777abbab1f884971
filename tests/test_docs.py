"""Every example in the README and in docs/ runs as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=lambda page: page.name)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    save(tmp_path / "my-model", "gpt2")
    for line in "".join(blocks(page, "console")).splitlines():
        command = shlex.split(line.removeprefix("$ "))
        assert line.startswith("$ pellucid "), line
        done = subprocess.run(
            [str(Path(sys.executable).parent / "pellucid"), *command[1:]], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
