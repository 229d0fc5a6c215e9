"""``latte classify``: pictures to labels, in one line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import line, problem
from .stop import Stopped, postponed

if TYPE_CHECKING:
    from ..core.types import Method
    from ..core.zero_shot import ZeroShot
    from ..edge.classify import Answer
    from ..edge.learning import Learning
    from ..encoders import Encoder


@click.command()
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--classes", required=True, help="Class names, comma-separated, or a file with one per line.")
@click.option(
    "--encoder", required=True, envvar="LATTE_ENCODER", help="onnx:DIR, hf:ID, openclip:MODEL/WEIGHTS, local:DIR."
)
@click.option("--templates", help="A template set by name, or a file with one template per line.")
@click.option(
    "--method",
    "spec",
    metavar="NAME[:PRESET][+KEY=VALUE...]",
    default="latte",
    show_default=True,
    help="How to adapt: latte, ristretto, tda, dmn, or clip for the model's own answer.",
)
@click.option("--zero-shot", "spec", flag_value="clip", help="The same as --method clip: do not adapt.")
@click.option(
    "--memory", type=click.Path(dir_okay=False, path_type=Path), help="Continue from this file, and save to it."
)
@click.option(
    "--save-every",
    metavar="SECONDS",
    type=click.IntRange(0, 86_400),
    default=10,
    show_default=True,
    help="How often --memory is saved on the way.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines instead of a table.")
def classify(
    images: tuple[Path, ...],
    classes: str,
    encoder: str,
    templates: str | None,
    spec: str,
    memory: Path | None,
    save_every: int,
    as_json: bool,
) -> None:
    """Say what the pictures show: IMAGES are files or folders.

    The method adapts as it goes, from the pictures themselves; with --memory it goes on where it was the last time.
    Ristretto syncs with itself, after 1, 2, 4, 8 and 16 pictures and then after every 16. The file is saved on the way,
    at the end, and on Ctrl-C: after an interruption, the same command goes on with the next picture. One process at a
    time may use it. An unreadable picture is reported and makes the exit code 1.
    """
    from ..edge.classify import find_pictures

    files = find_pictures(images)
    names = _names(classes)
    with _locked(memory) as file:
        model, task = _task(encoder, names, templates)
        method = _method(task, spec, memory is not None)
        learning = _learning(file, method, task, files, save_every)
        bad = _answer_all(model, task, method, files, learning, as_json)
    if bad:
        sys.exit(1)


def _names(classes: str) -> list[str]:
    from ..files.reading import read_lines

    is_file = "," not in classes and os.path.exists(classes)  # noqa: PTH110  Path.exists fails on very long names
    names = read_lines(Path(classes), "classes") if is_file else classes.split(",")
    return [name.strip() for name in names if name.strip()]


@contextmanager
def _locked(memory: Path | None) -> Iterator[Path | None]:
    """Lock the memory file before anything is read: what another process learns meanwhile would be lost."""
    from ..edge.learning import locked_memory

    if memory is None:
        yield None
        return
    with locked_memory(memory) as file:
        yield file


def _task(encoder: str, names: list[str], templates: str | None) -> tuple[Encoder, ZeroShot]:
    from ..encoders import load_encoder, read_templates, zero_shot

    model = load_encoder(encoder)
    return model, zero_shot(model, names, None if templates is None else read_templates(templates))


def _method(task: ZeroShot, spec: str, remembers: bool) -> Method:
    from ..edge.alone import create_alone
    from ..experiment.config import parse_method

    chosen = parse_method(spec)
    method = create_alone(chosen["name"], task, chosen["params"], chosen["preset"])
    if remembers and not method.state():
        raise click.UsageError(f"{chosen['name']} remembers nothing: leave --memory out")
    return method


def _learning(file: Path | None, method: Method, task: ZeroShot, files: list[Path], every: int) -> Learning | None:
    from ..edge.learning import Learning

    if file is None:
        return None
    learning = Learning(file, method, task, files, every)
    if learning.start:
        problem(f"going on after {learning.start} of {len(files)} pictures, which {file.name} covers")
    return learning


def _answer_all(
    model: Encoder, task: ZeroShot, method: Method, files: list[Path], learning: Learning | None, as_json: bool
) -> int:
    """Show an answer per file and return how many are bad; what was printed and what is saved are the same pictures."""
    from ..edge.classify import answer_picture, embed_files

    bad = 0
    try:
        for picture in embed_files(model, files, learning.start if learning else 0):
            with postponed():  # a signal waits until the picture is learnt, printed and counted
                reply = answer_picture(picture, task, method)
                bad += reply.problem is not None
                try:
                    _show(reply, as_json)
                finally:  # it has been learnt, whether or not anybody reads the line
                    if learning:
                        learning.count()
        if learning:
            with postponed():
                learning.finish()
    except BaseException as reason:  # a signal, a pipe that nobody reads any more, a full disk, an encoder that fails
        with suppress(OSError) if isinstance(reason, Stopped) else nullcontext():  # a full disk: the last save counts
            hint = _saved(learning) if learning else ""
            if isinstance(reason, Stopped):
                reason.hint = hint
        raise
    return bad


def _saved(learning: Learning) -> str:
    """Save what was learnt until a signal came, and return how to go on."""
    file, total = learning.file.name, len(learning.files)
    if learning.finished:
        return f"all {total} pictures are done, and {file} has learnt from them"
    if learning.done > learning.start:
        learning.save()
    return f"{learning.done} of {total} pictures are done and saved in {file}: run the same command again to go on"


def _show(answer: Answer, as_json: bool) -> None:
    if as_json:
        line(json.dumps(asdict(answer)))
    elif answer.problem is not None:
        problem(answer.problem)
    else:
        changed = "" if answer.label == answer.zero_shot else f"   (zero-shot: {answer.zero_shot})"
        line(f"{answer.label:<20}{100 * (answer.certainty or 0):5.1f} %  {answer.file}{changed}")
