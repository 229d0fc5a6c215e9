"""``latte classify``: pictures to labels, in one line."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import line, problem

if TYPE_CHECKING:
    from ..core.types import Method
    from ..core.zero_shot import ZeroShot
    from ..data.classify import Answer


@click.command()
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--classes", required=True, help="Class names, comma-separated, or a file with one per line.")
@click.option(
    "--encoder", required=True, envvar="LATTE_ENCODER", help="onnx:DIR, hf:ID, openclip:MODEL/WEIGHTS, local:DIR."
)
@click.option("--templates", help="A template set by name, or a file with one template per line.")
@click.option("--zero-shot", "plain", is_flag=True, help="Do not adapt: the model's own answer.")
@click.option(
    "--memory", type=click.Path(dir_okay=False, path_type=Path), help="Continue from this file, and save to it."
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines instead of a table.")
def classify(
    images: tuple[Path, ...],
    classes: str,
    encoder: str,
    templates: str | None,
    plain: bool,
    memory: Path | None,
    as_json: bool,
) -> None:
    """Say what the pictures show: IMAGES are files or folders.

    Latte's memory adapts as it goes, from the pictures themselves; with --memory it goes on where it was the last
    time. An unreadable picture is reported and makes the exit code 1.
    """
    from ..data.classify import classify as answers
    from ..data.classify import find_pictures
    from ..encoders import load_encoder, read_templates
    from ..encoders import zero_shot as build

    files = find_pictures(images)
    model = load_encoder(encoder)
    task = build(model, _names(classes), None if templates is None else read_templates(templates))
    method = _method(task, plain, memory)
    bad = 0
    for answer in answers(model, task, method, files):
        bad += answer.problem is not None
        _show(answer, as_json)
    if memory is not None:
        from ..data.memory_file import save_memory

        save_memory(memory, method, task)
    if bad:
        sys.exit(1)


def _names(classes: str) -> list[str]:
    from ..files.reading import read_lines

    if "," not in classes and Path(classes).is_file():
        return read_lines(Path(classes), "classes")
    return [name.strip() for name in classes.split(",") if name.strip()]


def _method(task: ZeroShot, plain: bool, memory: Path | None) -> Method:
    from ..methods import create

    if plain and memory is not None:
        raise click.UsageError("--zero-shot remembers nothing: leave --memory out")
    method = create("clip" if plain else "latte", task)
    if memory is not None and memory.exists():
        from ..data.memory_file import load_memory

        load_memory(memory, method, task)
    return method


def _show(answer: Answer, as_json: bool) -> None:
    if as_json:
        line(json.dumps(asdict(answer)))
    elif answer.problem is not None:
        problem(answer.problem)
    else:
        changed = "" if answer.label == answer.zero_shot else f"   (zero-shot: {answer.zero_shot})"
        line(f"{answer.label:<20}{100 * (answer.certainty or 0):5.1f} %  {answer.file}{changed}")
