"""From pictures to labels: zero-shot, or with a memory that adapts from picture to picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.contracts import Method
from ..core.types import Vectors
from ..core.zero_shot import ZeroShot
from ..encoders import Encoder
from ..encoders.encoder import BATCH
from ..encoders.pictures import MOST_PIXELS, PICTURE_SUFFIXES
from ..encoders.stream import encode_files
from ..errors import refuse


@dataclass(frozen=True, slots=True)
class Answer:
    """The label of a picture.

    ``probability`` is that of the label in the method's own ``Prediction.probabilities``: the adapted scores, at a
    temperature that needs no labels. It has not been compared with labels of yours; docs/calibration.md says how far
    off it was elsewhere. ``certainty`` is 1 minus the entropy of the zero-shot prediction: 1 is certain, 0 is
    undecided. ``zero_shot`` is the label without the memory, and ``zero_shot_probability`` its probability.
    ``near_copy``: the method did not learn from the picture, because its memory has almost the same picture.
    ``problem`` is the reason if there is no label.
    """

    file: str
    label: str | None
    probability: float | None = None
    certainty: float | None = None
    zero_shot: str | None = None
    zero_shot_probability: float | None = None
    near_copy: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedPicture:
    """A picture and its embedding ``row`` (D,), or the ``problem`` that prevents it."""

    file: str
    row: Vectors | None
    problem: str | None = None


def find_pictures(places: Sequence[Path]) -> list[Path]:
    """Return picture files: a file stands for itself, a folder for all pictures below it, sorted; none is hidden."""
    pictures: list[Path] = []
    for place in places:
        if place.is_dir():
            inside = sorted(path for path in place.rglob("*") if _is_picture(path, place))
            if not inside:
                kinds = " ".join(sorted(PICTURE_SUFFIXES))
                raise refuse("folder", f"{place} without images", f"at least one, of {kinds}")
            pictures += inside
        elif place.exists() or place.is_symlink():  # a link that leads nowhere is unreadable, as others may be
            pictures.append(place)
        else:
            raise refuse("image", f"{place}, which is not there", "a file or a folder")
    return pictures


def _is_picture(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return not hidden and path.suffix.lower() in PICTURE_SUFFIXES and path.is_file()


def classify_pictures(encoder: Encoder, zero_shot: ZeroShot, method: Method, files: Sequence[Path]) -> Iterator[Answer]:
    """Yield an answer per file, in order; an unreadable file is an answer with a problem."""
    return (answer_picture(picture, zero_shot, method) for picture in embed_files(encoder, files))


def embed_files(
    encoder: Encoder, files: Sequence[Path], start: int = 0, most_pixels: int = MOST_PIXELS
) -> Iterator[EmbeddedPicture]:
    """Yield the embedding of every file from position ``start`` on, the same to the last bit whatever ``start`` is.

    A picture of more than ``most_pixels`` has a problem instead.
    """
    first = start - start % BATCH  # whole batches: a row may depend on the batch it is computed in, in the last bits
    for batch in encode_files(encoder, list(files), skip_bad=True, start=first, most_pixels=most_pixels):
        rows = dict(zip(batch.index.tolist(), batch.rows, strict=True))
        bad = dict(batch.bad)
        for i in range(max(start, batch.start), batch.stop):
            yield EmbeddedPicture(str(files[i]), rows.get(i), bad.get(i))


def answer_picture(picture: EmbeddedPicture, zero_shot: ZeroShot, method: Method) -> Answer:
    """Return the label of a picture; ``method`` learns from it."""
    if picture.row is None:
        return Answer(picture.file, None, problem=picture.problem)
    names = zero_shot.classnames
    logits = zero_shot.logits(picture.row)
    plain = int(logits.argmax())
    prediction = method.predict(picture.row[None])
    return Answer(
        file=picture.file,
        label=names[prediction.label],
        probability=prediction.probability,
        certainty=1 - prediction.entropy,
        zero_shot=names[plain],
        zero_shot_probability=float(1 / np.add.reduce(np.exp(logits - logits[plain]))),  # of its softmax
        near_copy=prediction.near_copy,
    )
