"""The widget in the notebooks that people use, each started here for this machine alone."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.browser.opened import SIZE
from tests.tiny_models import save

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parent.parent.parent
CODE = "import pellucid as pl\nfrom pellucid.views import head_view\nview = head_view(pl.Model.load('model'), '{text}')"
TEXT = "the keys near the cabinet are old"
PATIENCE = 90.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def started(folder: Path, port: int, *command: str) -> Iterator[str]:
    """A server of a package, from the moment that it answers; its files stay in `folder`."""
    places = {name: str(folder / name.lower()) for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    places["JUPYTER_PATH"] = str(folder / "none")
    environment = {**os.environ, **places, "MARIMO_SKIP_UPDATE_CHECK": "1", "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                assert process.poll() is None, f"{command[0]} ended with code {process.returncode}"
                assert time.monotonic() < end, f"{command[0]} does not answer"
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def needs(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"no {package}: install it with pip install 'pellucid[test]'")


@pytest.fixture
def notebook_page(browser):
    context = browser.new_context(viewport=SIZE)
    context.set_default_timeout(1000 * PATIENCE)
    yield context.new_page()
    context.close()


def used(page) -> None:
    """The view is painted, answers the pointer, and gets its bytes from the kernel."""
    view = page.locator(".pellucid-view").first
    view.locator(".tokens.from .token").first.wait_for()
    assert view.locator(".tokens.from .token").all_inner_texts() == TEXT.split()
    view.locator(".tokens.from .token").nth(4).hover()
    view.locator(".status", has_text="looks at").wait_for()
    view.locator(".status", has_text="(exact)").wait_for()  # the model behind it was asked
    view.get_by_role("tab", name="Model").click()
    view.get_by_role("grid").wait_for()


def run_first_cell(page) -> None:
    """Runs it as a user does, again where the notebook, still being laid out, took the focus from it."""
    from playwright.sync_api import TimeoutError as TookTooLong

    cell = page.locator(".jp-Notebook-cell").first
    begun = cell.locator(".jp-InputPrompt", has_text=re.compile(r"[*\d]"))
    for _ in range(5):
        cell.locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        with suppress(TookTooLong):
            return begun.wait_for(timeout=5000)
    raise AssertionError("the cell did not begin to run")


def test_jupyterlab_shows_the_widget(notebook_page, tmp_path):
    needs("jupyterlab")
    needs("anywidget")
    save(tmp_path / "model", "gpt2")
    cell = {
        "cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [],
        "source": CODE.format(text=TEXT) + "\nview",
    }  # fmt: skip
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "view.ipynb").write_text(json.dumps(notebook))
    port = free_port()
    options = [f"--port={port}", "--ip=127.0.0.1", "--no-browser", "--allow-root", "--IdentityProvider.token="]
    with started(tmp_path, port, "jupyterlab", *options) as address:
        page = notebook_page
        page.goto(f"{address}/lab/tree/view.ipynb")
        page.locator(".jp-NotebookPanel-toolbar").wait_for()
        page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for()
        run_first_cell(page)
        used(page)


def test_marimo_shows_the_widget(notebook_page, tmp_path):
    needs("marimo")
    needs("anywidget")
    save(tmp_path / "model", "gpt2")
    lines = [*CODE.format(text=TEXT).splitlines(), "import marimo as mo", "mo.ui.anywidget(view.widget())"]
    cell = "".join(f"    {line}\n" for line in lines)
    source = f"import marimo\n\napp = marimo.App()\n\n\n@app.cell\ndef _():\n{cell}    return\n"
    (tmp_path / "view.py").write_text(source)
    port = free_port()
    options = ["--host", "127.0.0.1", "--port", str(port), "--headless", "--no-token"]
    with started(tmp_path, port, "marimo", "run", "view.py", *options) as address:
        notebook_page.goto(address)
        used(notebook_page)
