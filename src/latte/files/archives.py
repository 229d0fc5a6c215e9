"""Tar archives, packed or not."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import refuse
from .reading import open_file
from .schema import shorten

_DAMAGE = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive; damage that shows while it is open is an error that names the file."""
    with open_file(path, "archive") as file:
        try:
            with tarfile.open(fileobj=file) as tar:
                yield tar
        except _DAMAGE as error:
            raise refuse(str(path), f"a damaged archive ({shorten(error)})", "the official file") from None
