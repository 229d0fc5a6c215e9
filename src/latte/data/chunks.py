"""The finished chunks of an unfinished embedding: a file with a checksum each; a damaged one is computed again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, refuse
from ..files.atomic import write_text
from ..files.documents import parse_json
from ..files.reading import read_bytes
from ..files.schema import structure
from ..files.tensors import read_safetensors, write_safetensors


@dataclass(frozen=True, slots=True)
class BadImage:
    """A picture that could not be read: its position and the reason."""

    position: int
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Pictures ``start`` to ``stop``: ``rows`` (m, V, D) of the m readable ones, and the others."""

    start: int
    stop: int
    rows: NDArray[Any]
    bad: tuple[BadImage, ...]

    @property
    def note(self) -> str:
        """The unreadable pictures as JSON."""
        return json.dumps([asdict(image) for image in self.bad])

    @property
    def sha256(self) -> str:
        """The checksum of the whole chunk."""
        about = json.dumps([self.start, self.stop, list(self.rows.shape), self.rows.dtype.name, self.note])
        return hashlib.sha256(about.encode() + np.ascontiguousarray(self.rows).tobytes()).hexdigest()


class PartialEmbedding:
    """The folder of finished chunks of one embedding, rows of ``shape`` (V, D); a folder of another plan is refused."""

    def __init__(self, folder: Path, identity: dict[str, Any], shape: tuple[int, int], dtype: str) -> None:
        self.folder, self.shape, self.dtype = folder, shape, dtype
        note = folder / "plan.json"
        text = json.dumps(identity, sort_keys=True, indent=1)
        folder.mkdir(parents=True, exist_ok=True)
        if not note.exists():
            write_text(note, text)
        elif read_bytes(note) != text.encode():
            raise refuse(str(folder), "the beginning of another embedding", "the same one, or delete the folder")

    def chunk(self, start: int, stop: int, make: Callable[[int, int], Chunk]) -> Chunk:
        """Return the finished chunk if there is an undamaged one, else make a new one and store it."""
        file = self.folder / f"{start:09d}.safetensors"
        return self._finished(file, start, stop) or _write_chunk(file, make(start, stop))

    def remove(self) -> None:
        """Delete the folder: the embedding file is complete."""
        shutil.rmtree(self.folder)

    def _finished(self, file: Path, start: int, stop: int) -> Chunk | None:
        """Return a finished chunk, None where it is missing or damaged."""
        if not file.exists():
            return None
        try:
            chunk, sha256 = _read_chunk(file, start, stop)
        except InputError:
            return None
        rows = chunk.rows
        fits = rows.dtype.name == self.dtype and rows.shape == (stop - start - len(chunk.bad), *self.shape)
        return chunk if fits and chunk.sha256 == sha256 else None


def _write_chunk(file: Path, chunk: Chunk) -> Chunk:
    if not np.isfinite(chunk.rows).all():
        raise refuse(f"embeddings of images {chunk.start} to {chunk.stop - 1}", "NaN or infinite", "finite values")
    metadata = {"bad": chunk.note, "sha256": chunk.sha256}
    write_safetensors(file, {"rows": np.ascontiguousarray(chunk.rows)}, metadata)
    return chunk


def _read_chunk(file: Path, start: int, stop: int) -> tuple[Chunk, str]:
    """Return the chunk in a file, and the checksum that it should have."""
    tensors = read_safetensors(file)
    if set(tensors.arrays) != {"rows"} or not {"bad", "sha256"} <= set(tensors.metadata):
        raise refuse(str(file), "another kind of file", "a chunk")
    bad = structure(parse_json(tensors.metadata["bad"], str(file)), tuple[BadImage, ...], str(file))
    return Chunk(start, stop, tensors.arrays["rows"], bad), tensors.metadata["sha256"]
