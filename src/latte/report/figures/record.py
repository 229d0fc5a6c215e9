"""Figures on disk, and ``figures.json`` beside them: what each was made from, so that it is made once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ...analysis.studies import Setup, base_plan
from ...core.validate import choice
from ...errors import InputError
from ...files.atomic import write_text
from ...files.checksums import checksum, sha256_of
from ...files.documents import read_json
from ...version import __version__
from .captions import TITLES

RECORD_FORMAT = "latte-figures/1"
ENDINGS = ("png", "svg", "csv")


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure on disk: ``folder``/``name``.png, .svg and .csv, its title and what it shows."""

    folder: Path
    name: str
    title: str
    caption: str

    def path(self, ending: str) -> Path:
        """Return one of its files."""
        return self.folder / f"{self.name}.{ending}"


@dataclass(frozen=True, slots=True)
class PictureEntry:
    """A figure in the record: ``inputs`` is the checksum of what it was made from, ``sha256`` those of its files."""

    name: str
    inputs: str
    caption: str
    sha256: dict[str, str]


@dataclass(frozen=True, slots=True)
class RecordFile:
    """The content of figures.json."""

    format: str
    figures: tuple[PictureEntry, ...]

    def __post_init__(self) -> None:
        choice("format", self.format, (RECORD_FORMAT,))


@dataclass(frozen=True, slots=True)
class FigureRecord:
    """The record of the figures in ``folder``."""

    folder: Path

    @property
    def path(self) -> Path:
        """The file of the record."""
        return self.folder / "figures.json"

    def find(self, name: str, inputs: str) -> Picture | None:
        """Return a figure that was made from ``inputs`` and whose files are unchanged; None for any other."""
        entry = self._entries().get(name)
        picture = Picture(self.folder, name, TITLES[name], entry.caption if entry else "")
        if entry is None or entry.inputs != inputs or _checksums(picture) != entry.sha256:
            return None
        return picture

    def add(self, picture: Picture, inputs: str) -> None:
        """List a figure whose files are written."""
        entry = PictureEntry(picture.name, inputs, picture.caption, _checksums(picture))
        entries = self._entries() | {picture.name: entry}
        content = asdict(RecordFile(RECORD_FORMAT, tuple(entries.values())))
        write_text(self.path, json.dumps(content, indent=1) + "\n")

    def _entries(self) -> dict[str, PictureEntry]:
        """Return what is listed; nothing where the record is missing or damaged."""
        try:
            figures = read_json(self.path, RecordFile).figures
        except InputError:
            return {}
        return {entry.name: entry for entry in figures}


def inputs_of(name: str, setup: Setup, values: Sequence[int]) -> str:
    """Return the checksum of everything that decides a figure."""
    return sha256_of(json.dumps([__version__, name, base_plan(setup).canonical(), list(values)]).encode())


def _checksums(picture: Picture) -> dict[str, str]:
    return {ending: checksum(picture.path(ending)) for ending in ENDINGS if picture.path(ending).is_file()}
