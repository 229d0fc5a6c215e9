"""Open the files of a user: regular files only, because a pipe may never answer and a device never ends."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

from ..errors import InputError, refuse

MOST_FILE_BYTES = 1 << 30  # of a file that is read whole: results of a million clients stay below
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_file(path: Path, kind: str = "file") -> BufferedReader:
    """Open a regular file for reading bytes; ``kind`` is its name in a refusal."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise refuse(kind, f"{path}, which is not there", "a file that exists") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL byte
        reason = getattr(error, "strerror", None) or error
        raise refuse(kind, f"{path}, which cannot be opened ({reason})", "a file that can be read") from None
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return open(path, "rb", opener=lambda *_: handle)
    os.close(handle)
    raise _special(path, kind, mode)


def check_regular(path: Path, kind: str = "file") -> None:
    """Refuse a path that exists and is no regular file."""
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:  # a loop of links, a folder that may not be searched, a NUL character
        reason = getattr(error, "strerror", None) or error
        raise refuse(kind, f"{path} ({reason})", "a regular file") from None
    if not stat.S_ISREG(mode):
        raise _special(path, kind, mode)


def _special(path: Path, kind: str, mode: int) -> InputError:
    what = _KINDS.get(stat.S_IFMT(mode), "a special file")
    return refuse(kind, f"{path}, which is {what}", "a regular file")


def size_of(file: BufferedReader) -> int:
    """Return the length of an open file in bytes."""
    return os.fstat(file.fileno()).st_size


def read_bytes(path: Path, kind: str = "file", most: int = MOST_FILE_BYTES) -> bytes:
    """Return the bytes of a regular file of at most ``most`` bytes."""
    with open_file(path, kind) as file:
        if size_of(file) > most:
            raise refuse(str(path), f"{size_of(file):,} bytes", f"at most {most:,}")
        content = file.read(size_of(file) + 1)
        if len(content) > size_of(file):
            raise refuse(str(path), "a file that grows while it is read", "one that is finished")
    return content


def read_text(path: Path, kind: str = "file", most: int = MOST_FILE_BYTES) -> str:
    """Return the text of a UTF-8 file, without the byte order mark that some editors put first."""
    return decode_text(read_bytes(path, kind, most), str(path))


def decode_text(content: bytes, name: str) -> str:
    """Return bytes as text; bytes that are not UTF-8, and NUL, are refused."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(name, f"bytes that are not UTF-8 (at byte {error.start})", "text in UTF-8") from None
    if "\0" in text:
        raise refuse(name, "a NUL byte", "text")
    return text


def check_text(text: str) -> None:
    """Refuse a string that cannot be written as UTF-8 text."""
    if "\0" in text:
        raise InputError("a text with a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("a text with half a surrogate pair") from None


def read_lines(path: Path, kind: str = "file") -> list[str]:
    """Return the lines of a text file without the spaces around them; empty lines are left out."""
    return [line.strip() for line in read_text(path, kind).splitlines() if line.strip()]
