"""``latte edge status``, ``label`` and ``results``: what a device has done, and whether it helped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import InputFile
from .classify_text import counted
from .edge_options import STATE, state_folder
from .output import line

if TYPE_CHECKING:
    from sqlite3 import Connection

UNWELL = 3  # the exit code for a device that does not run, or has a problem: "not running" of the LSB
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@contextmanager
def _open_to_read(state: Path | None) -> Iterator[Connection]:
    from ..edge.device_file import open_to_read

    with closing(open_to_read(state_folder(state))) as database:
        yield database


@click.command()
@STATE
@_JSON
def status(state: Path | None, as_json: bool) -> None:
    """Show what a device is doing, and what can be said about its answers.

    The exit code is for health checks: 0 if the device runs and has no problem, 3 if it does not run or has one.
    """
    from ..edge.device_summary import summarise
    from .edge_text import summary_lines

    with _open_to_read(state) as database:
        summary = summarise(database, state_folder(state))
    for text in [json.dumps(summary.document())] if as_json else summary_lines(summary):
        line(text)
    if not summary.well:
        raise click.exceptions.Exit(UNWELL)


@click.command()
@STATE
@click.option("--after", type=click.IntRange(0), default=0, show_default=True, help="Only later numbers than this.")
def results(state: Path | None, after: int) -> None:
    """Print the answers of a device, each a line of JSON."""
    from ..edge.device_file import read_answers

    with _open_to_read(state) as database:
        for answer in read_answers(database, after):
            line(answer.line())


@click.command()
@STATE
def retry(state: Path | None) -> None:
    """Let a device try again to read the pictures that it could not read, as far as they are still there.

    A device with --watch does so within seconds if it runs, and otherwise at its next start; a device with FILES or
    --from, when they are named again.
    """
    from ..edge.device_file import open_record, retry_unreadable

    with closing(open_record(state_folder(state))) as database:
        count = retry_unreadable(database)
    line(f"{counted(count, 'unreadable picture')} to try again")


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.argument("classname", metavar="CLASS", required=False)
@click.option("--csv", "table", type=InputFile(), help="A file with lines FILE,CLASS instead.")
@STATE
def label(file: Path | None, classname: str | None, table: Path | None, state: Path | None) -> None:
    """Say what FILE really shows: CLASS. A few labels say how often the device is right, and whether adapting helps.

    The device does not learn from labels. FILE is a picture that it has classified or will classify. A running device
    reports what its labels say with the next sync, a few seconds later.
    """
    from ..edge.device_file import add_labels, open_record

    labels = _labels(file, classname, table, _classnames(state_folder(state)))
    with closing(open_record(state_folder(state))) as database:
        _check_files(database, labels, refusing=file is not None)
        known = add_labels(database, labels)
    line(f"{counted(len(labels), 'label')} stored, {known} of them for pictures that have been classified")


def _check_files(database: Connection, labels: dict[str, str], refusing: bool) -> None:
    """Say which labels are of files that are not there and that no picture of the record came from."""
    import os

    from ..errors import refuse
    from .output import problem

    def is_known(name: str) -> bool:
        return database.execute("SELECT 1 FROM pictures WHERE source = ?", [os.fsencode(name)]).fetchone() is not None

    missing = [name for name in labels if not os.path.lexists(name) and not is_known(name)]
    if missing and refusing:
        raise refuse("FILE", f"{missing[0]}, which does not exist and was not classified", "the name of a picture")
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        problem(f"labels of files that do not exist and were not classified: {missing[0]}{more}")


def _labels(file: Path | None, name: str | None, table: Path | None, names: tuple[str, ...]) -> dict[str, str]:
    """Return the labels; a class that the task does not have is refused: no answer could be right."""
    from ..core.validate import choice
    from ..edge.device_file import absolute_name
    from .classify_inputs import read_class_labels

    if (table is None) == (file is None or name is None) or (table is not None and file is not None):
        raise click.UsageError("give FILE and CLASS, or --csv")
    if table is not None:
        return read_class_labels(table, names)
    choice("class", name, names)
    assert file is not None
    return {absolute_name(file): str(name)}


def _classnames(folder: Path) -> tuple[str, ...]:
    from ..edge.joining import TASK_FILE
    from ..errors import refuse
    from ..wire.task_file import read_task

    if not (folder / TASK_FILE).is_file():
        raise refuse("device", f"{folder}, where no device has worked", "the --state folder of latte edge")
    return tuple(read_task(folder / TASK_FILE).zero_shot.classnames)
