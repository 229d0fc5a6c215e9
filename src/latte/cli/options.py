"""Options that several commands have, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError

if TYPE_CHECKING:
    from ..encoders import Encoder


class _Place(click.Path):
    """A path with a check of its own, whose refusal becomes one line about the option."""

    def check(self, path: Path) -> None:
        """Refuse what cannot be used."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail with one line on what is wrong with it."""
        path: Any = super().convert(value, param, ctx)
        try:
            self.check(path)
        except InputError as error:
            self.fail(str(error).removeprefix(": "), param, ctx)
        return path


class Folder(_Place):
    """A folder, to be made if it is not there: nothing else may have its name."""

    def __init__(self, exists: bool = False) -> None:
        super().__init__(exists=exists, file_okay=False, path_type=Path)

    def check(self, path: Path) -> None:
        """Refuse what is not a folder."""
        if path.exists() and not path.is_dir():
            raise InputError(f"{str(path)!r} is no folder.")


class OutputFolder(Folder):
    """A folder to fill: it can be written, or made."""

    def check(self, path: Path) -> None:
        """Refuse what cannot be filled."""
        from ..files.atomic import check_writable_folder

        super().check(path)
        check_writable_folder(path, "")


class InputFile(_Place):
    """A file to read: there, and a regular one. A FIFO would be waited for, a device has no end."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)

    def check(self, path: Path) -> None:
        """Refuse what is not a regular file."""
        if not path.is_file():
            raise InputError(f"{str(path)!r} is no regular file.")


class OutputFile(_Place):
    """A file to write; with ``makes_folder``, its folder need not be there yet."""

    def __init__(self, makes_folder: bool = False) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self.makes_folder = makes_folder

    def check(self, path: Path) -> None:
        """Refuse what cannot be written."""
        from ..files.atomic import check_writable, check_writable_folder

        folder = path.absolute().parent
        if self.makes_folder:
            check_writable_folder(folder, "")
        if folder.is_dir() or not self.makes_folder:
            check_writable(path, "")


class _Jobs(click.IntRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "serial" else super().convert(value, param, ctx)


Command = Callable[..., Any]
Option = Callable[[Command], Command]
DATA = click.option("--data", type=Folder(), help="Folder of embedding files (default: $LATTE_DATA).")
RUNS = click.option("--runs", type=Folder(), default=Path("runs"), show_default=True, help="Folder of the run folders.")
JOBS = click.option(
    "--jobs",
    metavar="N|serial",
    type=_Jobs(0, 1024),
    default=0,
    help="Processes at once (default: one per core); serial: in this process, for a debugger.",
)
SET = click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Change one value; repeatable.")
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
NUMBERS = click.option(
    "--compute",
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
PRECISION = click.option(
    "--precision",
    type=click.Choice(["exact", "fp32", "fp16", "int8", "int4"]),
    default="int8",
    show_default=True,
    help="Precision of the vectors in uploads and downloads.",
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
FALLBACK = click.option(
    "--fallback/--no-fallback",
    default=True,
    show_default=True,
    help="Predict with zero-shot while labels prove that adapting hurts; learning goes on.",
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


def add_options(command: Command, options: Sequence[Option]) -> Command:
    """Add options to a command, so that its help lists them in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def collect_options(command: Command, kind: type[Any], options: Sequence[Option]) -> Command:
    """Add ``options`` to a command that takes their values together, as ``chosen``, a dataclass ``kind``."""

    def call_with_options(**values: Any) -> Any:
        chosen = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        return command(chosen=chosen, **values)

    call_with_options.__doc__, call_with_options.__name__ = command.__doc__, command.__name__
    call_with_options.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    return add_options(call_with_options, options)


def connection_options(whose: str, holder: str) -> list[Option]:
    """Return the options of somebody who calls a server: a token, and certificates of both sides."""
    return [
        click.option("--token-file", type=InputFile(), help=f"File with {whose} token (see: latte token)."),
        click.option("--server-ca", type=InputFile(), help="Certificate of the authority that signed the server's."),
        click.option("--cert", type=InputFile(), help=f"Certificate of {holder}, for a server with --client-ca."),
        click.option("--key", type=InputFile(), help="The key of --cert."),
    ]


def store_options(command: Command) -> Command:
    """Add the options that say where a server stores what it has."""
    command = click.option("--store", help="postgresql://USER@HOST/DATABASE, as given to latte serve.")(command)
    folder = click.option("--folder", type=Folder(), required=True, help="The folder given to latte serve --folder.")
    return folder(command)
