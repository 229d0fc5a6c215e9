"""Types of command-line arguments: a folder to read or to fill, and a file to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class Folder(click.Path):
    """A folder, to be made if it is not there: nothing else may have its name."""

    def __init__(self, exists: bool = False) -> None:
        super().__init__(exists=exists, file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail with one line on what is wrong with it."""
        path: Any = super().convert(value, param, ctx)
        if path.exists() and not path.is_dir():
            self.fail(f"{str(path)!r} is no folder.", param, ctx)
        return path


class InputFile(click.Path):
    """A file to read: there, and a regular one. A FIFO would be waited for, a device has no end."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail with one line on what is wrong with it."""
        path: Any = super().convert(value, param, ctx)
        if not path.is_file():
            self.fail(f"{str(path)!r} is no regular file.", param, ctx)
        return path
