"""Types of command-line arguments: files and folders, to read or to write.

What is to be written is tried when the arguments are read: a place that cannot be written is refused before the work.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..errors import InputError


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


class OutputFolder(Folder):
    """A folder to fill: it can be written, or made."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail with one line on what is wrong with it."""
        from ..files.atomic import check_writable_folder

        path: Any = super().convert(value, param, ctx)
        _try(self, lambda: check_writable_folder(path, ""), param, ctx)
        return path


class OutputFile(click.Path):
    """A file to write; with ``makes_folder``, its folder need not be there yet."""

    def __init__(self, makes_folder: bool = False) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self.makes_folder = makes_folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail with one line on what is wrong with it."""
        from ..files.atomic import check_writable, check_writable_folder

        path: Any = super().convert(value, param, ctx)
        if self.makes_folder:
            _try(self, lambda: check_writable_folder(path.absolute().parent, ""), param, ctx)
        if path.absolute().parent.is_dir() or not self.makes_folder:
            _try(self, lambda: check_writable(path, ""), param, ctx)
        return path


def _try(kind: click.Path, check: Callable[[], None], param: click.Parameter | None, ctx: click.Context | None) -> None:
    try:
        check()
    except InputError as error:
        kind.fail(str(error).removeprefix(": "), param, ctx)
