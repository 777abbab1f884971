"""Saving: files and folders that are written whole or not at all, also when the program is killed half-way."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pellucid.errors import PellucidError


def check_free(folder: Path) -> None:
    """Raises where a folder cannot be written, or not without touching something that is there."""
    if folder.exists() and not folder.is_dir():
        raise PellucidError(f"{str(folder)!r} is a file; give the name of a folder that is new or empty.")
    if folder.is_dir() and any(folder.iterdir()):
        raise PellucidError(f"{str(folder)!r} exists and is not empty; choose another folder.")
    _check_parent(folder)
    try:  # rights alone do not tell: folders of the system refuse their owner too
        trial = _beside(folder.resolve())
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        raise _not_written(folder, error) from error


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes a folder of files under a temporary name and renames it; one that holds something already is refused."""
    with whole_folder(folder) as work:
        try:
            for name, content in files.items():
                _write_through(work / name, content)
        except OSError as error:
            raise _not_written(folder, error) from error


@contextmanager
def whole_folder(folder: Path) -> Generator[Path]:
    """A temporary folder to write into, which takes the wanted name when the block ends well, and vanishes otherwise.

    A folder that holds something already is refused.
    """
    check_free(folder)
    place = folder.resolve()
    work = _beside(place)
    try:
        try:
            work.mkdir()
        except OSError as error:
            raise _not_written(folder, error) from error
        yield work
        try:
            _sync_folder(work)
            if place.is_dir():
                place.rmdir()
            work.rename(place)
            _sync_folder(place.parent)
        except OSError as error:
            raise _not_written(folder, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def write_file(path: Path, content: bytes, *, durable: bool = True, advice: str = "Nothing changed.") -> None:
    """Writes a file under a temporary name and renames it: an older one is replaced, or left as it was.

    `durable` waits until the disk has it; `advice` ends the message where it cannot be written.
    """
    with whole_file(path, durable=durable, advice=advice) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path, *, durable: bool = True, advice: str = "Nothing changed.") -> Generator[BinaryIO]:
    """A file to write into piece by piece, which takes the wanted name when the block ends well; as `write_file`."""
    if path.is_dir():
        raise PellucidError(f"{str(path)!r} is a folder; give the name of a file.")
    _check_parent(path)
    place = path.resolve()
    work = _beside(place)
    try:
        with work.open("wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        move_file(work, place, durable=durable)
    except OSError as error:
        raise _not_written(path, error, advice) from error
    finally:
        work.unlink(missing_ok=True)


def move_file(path: Path, place: Path, *, durable: bool = True) -> None:
    """Renames a file within one disk; `durable` waits until the disk knows its new name."""
    path.replace(place)
    if durable:
        _sync_folder(place.parent)


def _check_parent(path: Path) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise PellucidError(f"There is no folder {str(parent)!r} to write {path.name!r} in; create it first.")


def _beside(place: Path) -> Path:
    """A name that nothing has, in the same folder, so that the renaming stays within one disk."""
    return place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")


def _write_through(path: Path, content: bytes, *, durable: bool = True) -> None:
    with path.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Makes a renaming last, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _not_written(path: Path, error: OSError, advice: str = "Nothing changed.") -> PellucidError:
    return PellucidError(
        f"{str(path)!r} could not be written ({error.strerror}); make room or choose another place. {advice}"
    )
