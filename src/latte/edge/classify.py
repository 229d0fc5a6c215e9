"""Pictures to labels: zero-shot, or with a memory that adapts as it goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.types import Method, Vectors
from ..core.validate import refuse
from ..core.zero_shot import ZeroShot
from ..encoders import Encoder
from ..encoders.encoder import BATCH
from ..encoders.pictures import PICTURE_SUFFIXES
from ..encoders.stream import encode_files


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


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """A picture and its embedding ``row`` (D,), or the ``problem`` because of which it has none."""

    file: str
    row: Vectors | None
    problem: str | None = None


def find_pictures(places: Sequence[Path]) -> list[Path]:
    """Return the picture files that ``places`` name: files as given, folders with all below them, sorted."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            inside = sorted(p for p in place.rglob("*") if p.suffix.lower() in PICTURE_SUFFIXES and p.is_file())
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
    return (answer(picture, zero_shot, method) for picture in embed_files(encoder, files))


def embed_files(encoder: Encoder, files: Sequence[Path], start: int = 0) -> Iterator[Embedded]:
    """Yield the embedding of every file from position ``start`` on, the same to the last bit whatever ``start`` is."""
    first = start - start % BATCH  # whole batches: a row may depend on the batch it is computed in, in the last bits
    for batch in encode_files(encoder, list(files), BATCH, skip_bad=True, start=first):
        rows = dict(zip(batch.index.tolist(), batch.rows, strict=True))
        bad = dict(batch.bad)
        for i in range(max(start, batch.start), batch.stop):
            yield Embedded(str(files[i]), rows.get(i), bad.get(i))


def answer(picture: Embedded, zero_shot: ZeroShot, method: Method) -> Answer:
    """Return what a picture shows; ``method`` learns from it."""
    if picture.row is None:
        return Answer(picture.file, None, problem=picture.problem)
    names = zero_shot.classnames
    plain = int(zero_shot.logits(picture.row).argmax())
    prediction = method.predict(picture.row[None])
    return Answer(picture.file, names[prediction.label], 1 - prediction.entropy, names[plain])
