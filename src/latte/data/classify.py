"""Pictures to labels: zero-shot, or with a memory that adapts as it goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.types import Method
from ..core.validate import refuse
from ..core.zero_shot import ZeroShot
from ..encoders import Encoder
from ..encoders.stream import encode_files
from .folders import SUFFIXES


@dataclass(frozen=True, slots=True)
class Answer:
    """What a picture shows.

    ``certainty`` is 1 minus the entropy of the zero-shot prediction: 1 certain, 0 no idea. ``zero_shot`` is what the
    model alone would say. ``problem`` says why there is no label.
    """

    file: str
    label: str | None
    certainty: float | None = None
    zero_shot: str | None = None
    problem: str | None = None


def find_pictures(places: Sequence[Path]) -> list[Path]:
    """Return the picture files that ``places`` name: files as given, folders with all below them, sorted."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            inside = sorted(p for p in place.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            if not inside:
                raise refuse("folder", f"{place} without images", "at least one image")
            found += inside
        elif place.exists():
            found.append(place)
        else:
            raise refuse("image", f"{place}, which is not there", "a file or a folder")
    return found


def classify(encoder: Encoder, zero_shot: ZeroShot, method: Method, files: Sequence[Path]) -> Iterator[Answer]:
    """Yield an answer per file, in order; an unreadable file is an answer with a problem."""
    for batch in encode_files(encoder, list(files), skip_bad=True):
        rows = dict(zip(batch.index.tolist(), batch.rows, strict=True))
        bad = dict(batch.bad)
        for i in range(batch.start, batch.stop):
            yield _answer(str(files[i]), zero_shot, method, rows[i]) if i in rows else _problem(str(files[i]), bad[i])


def _answer(file: str, zero_shot: ZeroShot, method: Method, row: Any) -> Answer:
    names = zero_shot.classnames
    plain = int(zero_shot.logits(row).argmax())
    prediction = method.predict(row[None])
    return Answer(file, names[prediction.label], 1 - prediction.entropy, names[plain])


def _problem(file: str, message: str) -> Answer:
    return Answer(file, None, problem=message)
