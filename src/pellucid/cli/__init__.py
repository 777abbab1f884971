"""The command line. Each module beside this one that has a `register(app)` adds its commands; there is no list."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated

import typer

from pellucid import __version__
from pellucid.cli._options import INTERRUPTED, Stopped
from pellucid.errors import PellucidError


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"pellucid {__version__}")
        raise typer.Exit


def build_app() -> typer.Typer:
    """The application with every command found beside this file."""
    app = typer.Typer(
        name="pellucid",
        help="Open any Hugging Face transformer and see what it has learned, where it keeps it and what it uses.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def top(  # pyright: ignore[reportUnusedFunction]
        version: Annotated[
            bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
        ] = False,
    ) -> None:
        pass

    for found in iter_modules(__path__):
        if not found.name.startswith("_"):
            import_module(f"{__name__}.{found.name}").register(app)
    return app


def main() -> None:
    """Entry point: exit code 0 where all is well, 2 for bad input (one sentence, no traceback), 130 for Ctrl-C, 1 for
    anything else."""
    debug = bool(os.environ.get("PELLUCID_DEBUG"))
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        build_app()()
    except (KeyboardInterrupt, SystemExit) as stop:
        if not isinstance(stop, Stopped) and (isinstance(stop, KeyboardInterrupt) or stop.code == INTERRUPTED):
            print("pellucid: stopped; nothing was written. Run the same command to start again.", file=sys.stderr)
            sys.exit(INTERRUPTED)
        raise
    except PellucidError as error:
        if debug:
            raise
        print(f"pellucid: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: nothing to say
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        print(f"pellucid: something unexpected went wrong ({type(error).__name__}: {error}). "
              "Set PELLUCID_DEBUG=1 to see where, and please report it.", file=sys.stderr)  # fmt: skip
        sys.exit(1)
