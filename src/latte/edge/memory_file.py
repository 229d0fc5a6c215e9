"""The memory of a method in a file: a restart loses nothing, and the memory of another task is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..core.contracts import Method
from ..core.zero_shot import ZeroShot
from ..errors import InputError, refuse
from ..files.schema import refuse_inside, shorten
from ..files.tensors import Tensors, read_safetensors, write_safetensors

MEMORY_FORMAT = "latte-memory/1"


def save_memory(path: Path, method: Method, zero_shot: ZeroShot, notes: Mapping[str, str] | None = None) -> None:
    """Write the state of ``method`` to ``path``, with ``notes`` of the caller's own."""
    about = {"format": MEMORY_FORMAT, "fingerprint": zero_shot.fingerprint, "method": _kind(method)}
    write_safetensors(path, method.state(), {**(notes or {}), **about})


def load_memory(path: Path, method: Method, zero_shot: ZeroShot) -> Mapping[str, str]:
    """Let ``method`` continue from ``path``, and return the notes in it.

    A file of another method, of other classes or of another encoder is refused.
    """
    tensors = _read(path)
    check_author(path, tensors.metadata, method)
    if tensors.metadata.get("fingerprint") != zero_shot.fingerprint:
        want = "the same classes, templates and encoder, or another file"
        raise refuse(str(path), "the memory of another task", want)
    try:
        method.load(tensors.arrays)
    except InputError as error:
        raise refuse_inside(path, error) from None
    return tensors.metadata


def read_notes(path: Path) -> Mapping[str, str]:
    """Return the notes in a memory file; refuse any other file, before a model is loaded for it."""
    return _read(path).metadata


def check_author(path: Path, notes: Mapping[str, str], method: Method) -> None:
    """Refuse the memory of another method; files of earlier versions do not name their method and are accepted."""
    author = notes.get("method", _kind(method))
    if author != _kind(method):
        want = f"that of {_kind(method)}: name another file, or the method that wrote this one"
        raise refuse(str(path), f"the memory of {shorten(author)}", want)


def _kind(method: Method) -> str:
    """Return the name of a method's class; of an :class:`~.alone.Alone`, that of the method inside."""
    return type(getattr(method, "method", method)).__name__


def _read(path: Path) -> Tensors:
    tensors = read_safetensors(path, "memory file")
    if tensors.metadata.get("format") != MEMORY_FORMAT:
        raise refuse(str(path), f"format {shorten(repr(tensors.metadata.get('format')))}", repr(MEMORY_FORMAT))
    return tensors
