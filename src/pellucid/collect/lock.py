"""A lock on a folder, so that two runs never write into it at once."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from pellucid.errors import SweepError


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Makes the folder where needed and holds it for the length of a block; another holder raises.

    The system lets go of the lock when the process ends, however it ends. A folder that was made here and into which
    nothing was written goes again.
    """
    new = not folder.exists()
    try:
        folder.mkdir(parents=False, exist_ok=True)
        file = (folder / ".lock").open("w")
    except FileExistsError:
        raise SweepError(f"{str(folder)!r} is a file; give the name of a folder.") from None
    except (FileNotFoundError, NotADirectoryError):
        raise SweepError(f"The folder {str(folder)!r} cannot be made: its parent is not a folder.") from None
    except OSError as error:
        raise SweepError(f"The folder {str(folder)!r} cannot be written ({error.strerror}).") from None
    try:
        with file:
            _hold(file, folder)
            yield
    finally:
        if new and [item.name for item in folder.iterdir()] == [".lock"]:
            (folder / ".lock").unlink()
            folder.rmdir()


def _hold(file: TextIO, folder: Path) -> None:
    """Takes the lock, where the system and the file system have such locks: else two runs are the user's own care."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            raise SweepError(
                f"Another run is writing to {str(folder)!r} right now; wait for it, or give another folder."
            ) from None
