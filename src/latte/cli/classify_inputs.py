"""What ``latte classify`` is called with, and the check of all of it before a model is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import InputFile
from .options import ENCODER, MAX_PIXELS, NEAR_COPY, PLUGINS, Command, load_plugins
from .run_options import collect_options

if TYPE_CHECKING:
    from ..core.contracts import Method
    from ..core.zero_shot import ZeroShot
    from ..edge.answer_file import AnswerFile

FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS: list[Callable[[Command], Command]] = [
    click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path)),
    click.option(
        "--classes", "classnames", required=True, help="Class names, comma-separated, or a file with one per line."
    ),
    ENCODER,
    click.option("--templates", help="A template set by name, or a file with one template per line."),
    click.option(
        "--method",
        "spec",
        metavar="NAME[:PRESET][+KEY=VALUE...]",
        default="latte",
        show_default=True,
        help="How to adapt: latte, ristretto, tda, dmn, or clip for the model's own answer (see: latte methods).",
    ),
    PLUGINS,
    click.option("--zero-shot", "spec", flag_value="clip", help="The same as --method clip: do not adapt."),
    click.option("--memory", type=FILE, help="Continue from this file, and save to it."),
    click.option(
        "--save-every",
        metavar="SECONDS",
        type=click.IntRange(0, 86_400),
        default=10,
        show_default=True,
        help="How often --memory is saved on the way.",
    ),
    NEAR_COPY,
    MAX_PIXELS,
    click.option("--labels", type=InputFile(), help="CSV with FILE,CLASS of some pictures, to print the accuracy."),
    click.option("--csv", type=FILE, help="Write a row per picture to this file, too."),
    click.option("--json", "as_json", is_flag=True, help="JSON lines instead of a table."),
]


@dataclass(frozen=True, slots=True)
class ClassifyOptions:
    """The options of a call."""

    images: tuple[Path, ...]
    classnames: str
    encoder: str
    templates: str | None
    spec: str
    plugins: tuple[Path, ...]
    memory: Path | None
    save_every: int
    near_copy: float
    max_pixels: int
    labels: Path | None
    csv: Path | None
    as_json: bool

    def create_method(self, task: ZeroShot) -> Method:
        """Return the method that adapts; one that remembers nothing is refused where there is a memory file."""
        from ..edge.alone import create_alone
        from ..experiment.config import parse_method

        chosen = parse_method(self.spec)
        method = create_alone(chosen["name"], task, chosen["params"], chosen["preset"], self.near_copy)
        if self.memory is not None and not method.state():
            raise click.UsageError(f"{chosen['name']} remembers nothing: leave --memory out")
        return method


def classify_options(command: Command) -> Command:
    """Add the options; the command gets them as ``chosen``."""
    return collect_options(command, ClassifyOptions, _OPTIONS)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was checked before a model is loaded: pictures, class names, templates, and the files to write."""

    files: list[Path]
    names: list[str]
    templates: tuple[str, ...] | None
    memory: Path | None
    table: AnswerFile | None
    labels: dict[str, str]


def check_inputs(chosen: ClassifyOptions, stack: ExitStack) -> Inputs:
    """Find what is wrong with the call before the model is loaded; ``stack`` holds the locks."""
    from ..edge.answer_file import AnswerFile, locked_answers
    from ..edge.classify import find_pictures
    from ..encoders import check_encoder_spec, read_templates

    files, names = find_pictures(chosen.images), read_classnames(chosen.classnames)
    templates = None if chosen.templates is None else read_templates(chosen.templates)
    load_plugins(chosen.plugins)
    method = _small_method(chosen, names)
    _check_csv(chosen, files)
    memory = stack.enter_context(_locked(chosen.memory))
    table = stack.enter_context(locked_answers(chosen.csv)) if chosen.csv is not None else None
    start = _covered(memory, method, files) if memory is not None and memory.exists() else 0
    check_encoder_spec(chosen.encoder)
    answers = AnswerFile(table, files, start) if table is not None else None
    return Inputs(files, names, templates, memory, answers, read_class_labels(chosen.labels, names))


def read_class_labels(path: Path | None, names: Sequence[str]) -> dict[str, str]:
    """Return the true classes of some files, by absolute name; a class that is not among ``names`` is refused."""
    from ..edge.label_file import read_labels

    return read_labels(path, names) if path is not None else {}


def read_classnames(text: str) -> list[str]:
    """Return class names: separated by commas, or the lines of the file that ``text`` names."""
    from ..encoders.prompts import check_classnames
    from ..errors import refuse
    from ..files.reading import read_lines

    is_file = "," not in text and os.path.exists(text)  # noqa: PTH110  Path.exists fails on very long names
    names = read_lines(Path(text), "classes") if is_file else text.split(",")
    names = [name.strip() for name in names if name.strip()]
    if len(names) < 2:
        got = f"{len(names)} class in the file {text}" if is_file else f"{text!r}, which is no file"
        raise refuse("classes", got, "a file with one name per line, or at least two names: --classes cat,dog")
    check_classnames(names)
    return names


def _small_method(chosen: ClassifyOptions, names: list[str]) -> Method:
    """Return the method for a classifier of the same classes in two dimensions: it refuses what it cannot do."""
    import numpy as np

    from ..core.zero_shot import ZeroShot

    return chosen.create_method(ZeroShot(np.tile([1.0, 0.0], (len(names), 1)), names))


def _covered(memory: Path, method: Method, files: list[Path]) -> int:
    """Return how many of the files a memory covers; that of another method is refused."""
    from ..edge.learning import covered_files
    from ..edge.memory_file import check_author, read_notes

    notes = read_notes(memory)
    check_author(memory, notes, method)
    return covered_files(notes, files)


def _check_csv(chosen: ClassifyOptions, files: list[Path]) -> None:
    if chosen.csv is None:
        return
    target = os.path.realpath(chosen.csv)
    if chosen.memory is not None and target == os.path.realpath(chosen.memory):
        raise click.UsageError("--csv and --memory are the same file")
    if any(file.name == chosen.csv.name and os.path.realpath(file) == target for file in files):
        raise click.UsageError(f"--csv {chosen.csv} is one of the pictures")


@contextmanager
def _locked(memory: Path | None) -> Iterator[Path | None]:
    """Lock the memory file before anything is read: what another process learns meanwhile would be lost."""
    from ..edge.learning import locked_memory

    with nullcontext() if memory is None else locked_memory(memory) as file:
        yield file
