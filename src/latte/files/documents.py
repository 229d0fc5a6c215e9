"""Documents: the bytes and the text of regular files, JSON and TOML, and the dataclasses that these become.

msgspec reads JSON and builds the dataclasses, whose annotations are the schema. Whatever does not fit is an InputError
of one line: the file, what it got and wants, and the place inside.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from ..core.validate import near
from ..errors import InputError, refuse

T = TypeVar("T")

MOST_FILE_BYTES = 1 << 30  # of a file that is read whole: results of a million clients stay below
MOST_DOCUMENT_BYTES = 64 << 20  # of one document: plain values take some twenty times as much memory as their text
LONGEST_PROBLEM = 240  # characters of one problem: a name may be megabytes long
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def shorten(value: object, length: int = 80) -> str:
    """Return a text as one line of at most ``length`` characters."""
    line = " ".join(str(value).split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def refuse_inside(name: object, error: InputError) -> InputError:
    """Return ``error`` as the refusal of the file ``name``, shortened to one line."""
    return InputError(f"{name}: {shorten(error, LONGEST_PROBLEM)}")


def read_json(path: Path, kind: type[T], what: str = "file", extra: bool = False) -> T:
    """Read a JSON file into ``kind``, a dataclass or a type of plain values; ``extra`` allows unknown keys.

    ``what`` is the name of a missing file in its refusal.
    """
    return structure(parse_json(read_bytes(path, what, MOST_DOCUMENT_BYTES), str(path)), kind, str(path), extra)


def parse_json(text: str | bytes, name: str, kind: type[T] | Any = Any) -> T | Any:
    """Return the value of a JSON text as ``kind``, unknown keys left out; ``name`` is its origin, for refusals."""
    content = text.removeprefix(b"\xef\xbb\xbf") if isinstance(text, bytes) else text
    try:
        return msgspec.json.decode(content, type=kind)
    except RecursionError:
        raise refuse(name, "JSON without an end of its nesting", "a flatter file") from None
    except ValueError as error:  # not JSON, not UTF-8, half a surrogate pair, or not the kind
        if kind is not Any:
            return structure(parse_json(text, name), kind, name, extra=True)
        raise refuse(name, f"text that is not JSON ({shorten(error)})", "a JSON file") from None


def read_toml(path: Path, what: str = "file") -> dict[str, Any]:
    """Read a TOML file."""
    return parse_toml(read_text(path, what, MOST_DOCUMENT_BYTES), str(path))


def parse_toml(text: str | bytes, name: str) -> dict[str, Any]:
    """Return the table of a TOML text."""
    try:
        return tomllib.loads(text.decode() if isinstance(text, bytes) else text)
    except RecursionError:
        raise refuse(name, "TOML without an end of its nesting", "a flatter file") from None
    except ValueError as error:
        raise refuse(name, f"text that is not TOML ({shorten(error)})", "a TOML file") from None


def structure(raw: Any, kind: type[T], name: str, extra: bool = False, root: str = "") -> T:
    """Return ``raw`` (plain values) as ``kind``; ``extra`` allows keys that the dataclass does not have.

    Every refusal begins with ``name``, or with ``root``, with which paths inside the value begin.
    """
    try:
        if not extra:
            _check_keys(raw, kind, root)
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{name}: {_explain(error, raw, root)}" if name else _explain(error, raw, root)) from None
    except InputError as error:
        raise (refuse_inside(name, error) if name else error) from None
    except RecursionError:
        raise refuse(name or root, "values nested without an end", "a flatter file") from None


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "keys and values",
    "null": "nothing",
}


def _explain(error: msgspec.ValidationError, raw: Any, root: str) -> str:
    """Return what msgspec says of ``raw`` in our words: what it got, what it wants, and where."""
    text, _, path = str(error).partition(" - at `$")
    text = re.sub(r"`(\w+)(?: \| null)?`", lambda match: _WORDS.get(match[1], repr(match[1])), text)
    text = re.sub(r"^Object missing required field (.+)", r"missing key \1, want a value", text)
    place = (root + path.removesuffix("`")).removeprefix(".")
    if match := re.fullmatch(r"Expected (.+), got (.+)", text):
        with suppress(LookupError, TypeError, ValueError):  # a key of a table is "..." in the path
            for key, number in re.findall(r"\.(\w+)|\[([\d.]+)\]", path):
                raw = raw[key or int(number)]
            return f"got {shorten(repr(raw))}, want {match[1]}" + (f" at {place}" if place else "")
        text = f"got {match[2]}, want {match[1]}"
    return shorten(text, LONGEST_PROBLEM) + (f" at {place}" if place else "")


def _check_keys(raw: Any, kind: Any, path: str) -> None:
    """Refuse a key that the dataclass ``kind``, or one inside it, does not have."""
    if get_origin(kind) in (tuple, dict, Mapping):
        inside = next((part for part in get_args(kind) if part is not str), str)
        places = raw.items() if isinstance(raw, Mapping) else enumerate(raw) if isinstance(raw, (list, tuple)) else ()
        for place, value in places if is_dataclass(inside) else ():
            _check_keys(value, inside, f"{path}[{place}]")
    elif is_dataclass(kind) and isinstance(raw, Mapping):
        kinds = _hints(kind)  # type: ignore[arg-type]  # a class
        for key, value in raw.items():
            if key not in kinds:
                place = path.removeprefix(".")
                want = ", ".join(near(str(key), list(kinds)))
                raise InputError(f"no key {shorten(key)!r} (want {want})" + (f" at {place}" if place else ""))
            _check_keys(value, kinds[key], f"{path}.{key}")


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


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
    try:
        text = read_bytes(path, kind, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(str(path), f"bytes that are not UTF-8 (at byte {error.start})", "text in UTF-8") from None
    if "\0" in text:
        raise refuse(str(path), "a NUL byte", "text")
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


def checksum(path: Path, kind: str = "sha256") -> str:
    """Return the checksum of a regular file; ``kind`` is an algorithm of :mod:`hashlib`."""
    with open_file(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def sha256_of(content: bytes) -> str:
    """Return the sha256 of some bytes."""
    return hashlib.sha256(content).hexdigest()
