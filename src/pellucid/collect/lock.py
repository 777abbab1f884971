"""A lock on a folder, so that two runs never write into it at once."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pellucid.errors import SweepError


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Makes the folder where needed and holds it for the length of a block; another holder raises.

    The system lets go of the lock when the process ends, however it ends.
    """
    try:
        import fcntl
    except ImportError:  # a system without such locks: two runs at once are the user's own care
        fcntl = None
    try:
        folder.mkdir(parents=False, exist_ok=True)
        file = (folder / ".lock").open("w")
    except FileExistsError:
        raise SweepError(f"{str(folder)!r} is a file; give the name of a folder.") from None
    except (FileNotFoundError, NotADirectoryError):
        raise SweepError(f"The folder {str(folder)!r} cannot be made: its parent is not a folder.") from None
    except OSError as error:
        raise SweepError(f"The folder {str(folder)!r} cannot be written ({error.strerror}).") from None
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                    yield  # a file system without such locks
                    return
                raise SweepError(
                    f"Another run is writing to {str(folder)!r} right now; wait for it, or give another folder."
                ) from None
        yield
