"""Reading files that somebody names: regular ones of a bounded size. A FIFO is waited for, a device has no end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .validate import refuse

MOST_TEXT = 1 << 24  # bytes: a list of names, templates or settings is never longer
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # opening a FIFO would wait, too
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnfitFileError(ValueError):
    """What is wrong with a file, without its name: "is a FIFO, want a regular file"."""


def check_regular(name: str, path: Path) -> None:
    """Refuse a ``path`` that is there and is no regular file."""
    try:
        _check_kind(path.stat().st_mode)
    except FileNotFoundError:
        return
    except UnfitFileError as error:
        raise ValueError(f"{name}: {path} {error}") from None
    except (OSError, ValueError) as error:  # a loop of links, a folder that may not be searched, a null character
        raise refuse(name, f"{path} ({getattr(error, 'strerror', None) or error})", "a regular file") from None


def read_bytes(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes."""
    if path.is_dir():
        raise UnfitFileError("is a folder, want a regular file")  # Windows cannot open one
    descriptor = os.open(path, _FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        _check_kind(facts.st_mode)
        if facts.st_size > most:
            raise UnfitFileError(f"{facts.st_size} bytes, want at most {most}")
        content = file.read(facts.st_size + 1)
    if len(content) > facts.st_size:
        raise UnfitFileError("grows while it is read, want a file that is finished")
    return content


def read_text(name: str, path: Path, want: str) -> str:
    """Return the content of a text file; ``name`` and ``want`` say in a refusal what it is and what it should hold."""
    try:
        return read_bytes(path, MOST_TEXT).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise refuse(f"{name} {path}", "bytes that are not UTF-8", want) from None
    except UnfitFileError as error:
        raise ValueError(f"{name} {path}: {error}") from None
    except OSError as error:
        raise refuse(f"{name} {path}", f"a file that cannot be read ({error.strerror})", want) from None


def _check_kind(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise UnfitFileError(f"is {_KINDS.get(stat.S_IFMT(mode), 'a special file')}, want a regular file")
