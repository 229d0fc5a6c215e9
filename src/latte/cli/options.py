"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError

if TYPE_CHECKING:
    from ..encoders import Encoder


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


Command = Callable[..., Any]
DATA = click.option("--data", type=Folder(), help="Folder of embedding files (default: $LATTE_DATA).")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
ENCODER = click.option(
    "--encoder",
    required=True,
    envvar="LATTE_ENCODER",
    show_envvar=True,
    help="onnx:DIR, hf:ID, openclip:MODEL/WEIGHTS, local:DIR; DIR may be a name in the folder $LATTE_MODELS.",
)
DEVICE = click.option(
    "--device",
    metavar="NAME",
    default="auto",
    envvar="LATTE_DEVICE",
    show_default=True,
    show_envvar=True,
    help="auto, cpu, cuda, mps; with onnx: a provider such as cuda or openvino (latte doctor lists what is there).",
)
PRECISION = click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16", "fp16"]),
    default="fp32",
    show_default=True,
    help="Numbers the encoder computes with, where the device has them.",
)
BATCH = click.option(
    "--batch",
    type=click.IntRange(1, 65_536),
    default=32,
    show_default=True,
    help="Images (or texts) that the encoder gets at once; a GPU wants 256 or more.",
)
TEMPLATES = click.option("--templates", help="A template set by name, or a file with one template per line.")
DESCRIPTIONS = click.option(
    "--descriptions",
    type=InputFile(),
    help='JSON file of sentences per class, {"cat": ["A cat has whiskers.", ...], ...}, instead of the templates, or '
    "with --templates beside them.",
)
MAX_PIXELS = click.option(
    "--max-pixels",
    metavar="NUMBER",
    type=click.IntRange(1, 4_294_967_296),
    default=300_000_000,
    show_default=True,
    help="Refuse larger images. Above 89 million pixels an image is decoded at reduced size.",
)
NEAR_COPY = click.option(
    "--near-copy",
    metavar="COSINE",
    type=click.FloatRange(0, 0.9999),
    default=0.99,
    show_default=True,
    help="Do not learn from an image that is at least this similar to a remembered one; 0: learn from all.",
)
PLUGINS = click.option(
    "--plugin", "plugins", type=InputFile(), multiple=True, help="Python file with methods of your own; repeatable."
)


def open_encoder(spec: str, device: str, precision: str = "fp32", threads: int = 0) -> Encoder:
    """Return the encoder, and say on stderr where it runs and in which numbers."""
    from ..encoders import load_encoder
    from .output import line

    encoder = load_encoder(spec, threads, device, precision)
    line(f"encoder: {encoder.name} on {getattr(encoder, 'placement', device)}", err=True)
    return encoder


def load_plugins(plugins: Iterable[Path]) -> None:
    """Import the files of ``--plugin``, which register methods."""
    for plugin in plugins:
        from ..methods.plugins import load_plugin

        load_plugin(plugin)


def store_options(command: Command) -> Command:
    """Add the options that say where a server stores what it has."""
    command = click.option("--store", help="postgresql://USER@HOST/DATABASE, as given to latte serve.")(command)
    folder = click.option("--folder", type=Folder(), required=True, help="The folder given to latte serve --folder.")
    return folder(command)
