"""Labels that somebody gave for a few pictures: a CSV file with a file and its class in every line."""

from __future__ import annotations

import csv
import os
from pathlib import Path

from ..core.validate import refuse
from ..files.reading import read_lines


def read_labels(path: Path) -> dict[str, str]:
    """Return the classes of files by absolute name; a relative name starts at the folder of the CSV file.

    A first line ``file,label`` is a header. Columns after the second do not matter.
    """
    labels: dict[str, str] = {}
    for number, row in enumerate(csv.reader(read_lines(path, "labels")), 1):
        if not row or (number == 1 and [cell.strip().lower() for cell in row[:2]] == ["file", "label"]):
            continue
        if len(row) < 2 or not row[0].strip() or not row[1].strip():
            raise refuse(f"{path}, line {number}", ",".join(row), "FILE,CLASS")
        labels[os.path.abspath(path.absolute().parent / row[0].strip())] = row[1].strip()  # noqa: PTH100  keeps links
    if not labels:
        raise refuse(str(path), "no labels", "lines FILE,CLASS")
    return labels
