"""Opening files: checks, lines with their numbers, and a hash of the content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from os import PathLike
from pathlib import Path

from pellucid.errors import CorpusError

PathName = str | PathLike[str]
_CHUNK = 1 << 20


def checked(path: PathName) -> Path:
    """The path of a file that exists and is not empty."""
    found = Path(path)
    if found.is_dir():
        raise CorpusError(f"{found} is a folder: name the file in it that holds the corpus.")
    if not found.is_file():
        raise CorpusError(f"There is no file {found}: check the path.")
    try:
        with found.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise CorpusError(f"{found} cannot be read ({error.strerror}).") from error
    if empty:
        raise CorpusError(f"{found} is empty: a corpus needs at least one sentence.")
    return found


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file with their numbers from 1, without line ends and without a byte order mark.

    Only "\\n" and "\\r\\n" end a line: the other separators that Unicode knows may stand inside a sentence.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise CorpusError(
                    f"{path}, line {number}: byte {error.start + 1} of the line is not UTF-8; save the file as UTF-8."
                ) from error


def any_line(path: Path, holds: Callable[[str], bool]) -> bool:
    """Whether a line of the file is as asked; reading stops at the first that is."""
    return any(holds(line) for _, line in numbered_lines(path))


def count_lines(path: Path) -> int:
    """How many lines a file has, without blank ones at its end."""
    return max((number for number, line in numbered_lines(path) if line.strip()), default=0)


def content_hash(path: Path) -> str:
    """A hash of the bytes of a file."""
    hashed = blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()
