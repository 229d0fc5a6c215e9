"""Labels that somebody gave for a few pictures: a CSV file with a file and its class in every line."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from ..errors import refuse
from ..files.reading import read_lines
from .device_file import absolute_name


def read_labels(path: Path, names: Sequence[str] = ()) -> dict[str, str]:
    """Return the classes of files by absolute name; a relative name starts at the folder of the CSV file.

    A first line ``file,label`` is a header. Columns after the second do not matter. With ``names``, a class that is not
    among them is refused, as are two classes for one file.
    """
    labels: dict[str, str] = {}
    for number, row in enumerate(csv.reader(read_lines(path, "labels")), 1):
        if not row or (number == 1 and [cell.strip().lower() for cell in row[:2]] == ["file", "label"]):
            continue
        if len(row) < 2 or not row[0].strip() or not row[1].strip():
            raise refuse(f"{path}, line {number}", ",".join(row), "FILE,CLASS")
        name, label = absolute_name(path.absolute().parent / row[0].strip()), row[1].strip()
        if labels.setdefault(name, label) != label:
            raise refuse(f"{path}, line {number}", f"{label!r} after {labels[name]!r} for the same file", "one class")
        if names and label not in names:
            raise refuse(f"{path}, line {number}", repr(label), "one of " + ", ".join(map(repr, names)))
    if not labels:
        raise refuse(str(path), "no labels", "lines FILE,CLASS")
    return labels
