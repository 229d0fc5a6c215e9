"""Checksums in hexadecimal, of files and of bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .reading import open_file


def checksum(path: Path, kind: str = "sha256") -> str:
    """Return the checksum of a regular file; ``kind`` is an algorithm of :mod:`hashlib`."""
    with open_file(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def sha256_of(content: bytes) -> str:
    """Return the sha256 of some bytes."""
    return hashlib.sha256(content).hexdigest()
