"""Pictures to an embedding file, in chunks: an interruption costs at most one chunk and changes no byte of the file."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Vectors
from ..core.validate import at_least, choice
from ..encoders import BadImageError, Encoder, zero_shot
from ..encoders.base import BATCH, encode_files, map_in_order
from ..encoders.devices import Placement
from ..encoders.prompts import Descriptions, class_descriptions, use_templates
from ..encoders.views import ViewPlan, make_views
from ..errors import InputError, refuse
from ..files.atomic import lock, write_text
from ..files.documents import parse_json, read_bytes, structure
from ..files.tensors import read_safetensors, write_safetensors
from .embeddings import save_embeddings
from .federation import Embeddings
from .images import ImageSet

CHUNK_IMAGES = 512  # pictures that an interruption may cost
EMBEDDING_DTYPES = ("float16", "float32")


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

    def metadata(self) -> dict[str, str]:
        """Return the unreadable pictures as JSON, and the checksum of the whole chunk."""
        bad = json.dumps([asdict(image) for image in self.bad])
        about = json.dumps([self.start, self.stop, list(self.rows.shape), self.rows.dtype.name, bad])
        sha256 = hashlib.sha256(about.encode() + np.ascontiguousarray(self.rows).tobytes()).hexdigest()
        return {"bad": bad, "sha256": sha256}


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
        if file.exists() and (finished := self._finished(file, start, stop)) is not None:
            return finished
        chunk = make(start, stop)
        if not np.isfinite(chunk.rows).all():
            raise refuse(f"embeddings of images {start} to {stop - 1}", "NaN or infinite", "finite values")
        write_safetensors(file, {"rows": np.ascontiguousarray(chunk.rows)}, chunk.metadata())
        return chunk

    def _finished(self, file: Path, start: int, stop: int) -> Chunk | None:
        """Return the chunk in a file, None if it is damaged."""
        try:
            tensors = read_safetensors(file)
            note = parse_json(tensors.metadata.get("bad", ""), str(file))
            bad = structure(note, tuple[BadImage, ...], str(file))
        except InputError:
            return None
        rows = tensors.arrays.get("rows")
        if rows is None or rows.dtype.name != self.dtype or rows.shape != (stop - start - len(bad), *self.shape):
            return None
        chunk = Chunk(start, stop, rows, bad)
        return chunk if chunk.metadata() == tensors.metadata else None


@dataclass(frozen=True, slots=True)
class EmbedPlan:
    """How to embed.

    - ``views``: those besides the plain one; None: no others
    - ``templates`` and ``descriptions``: the prompts, see :func:`.zero_shot`
    - ``dtype``: "float16" or "float32"
    - ``workers``: the number of threads
    - ``batch``: the number of views, or of pictures without views, that the encoder gets at once
    - ``skip_bad``: leave unreadable pictures out instead of refusing them
    """

    views: ViewPlan | None = None
    templates: tuple[str, ...] | None = None
    dtype: str = "float16"
    workers: int = 2
    skip_bad: bool = False
    batch: int = BATCH
    descriptions: Descriptions | None = None

    def __post_init__(self) -> None:
        choice("dtype", self.dtype, EMBEDDING_DTYPES)
        at_least("batch", self.batch, 1)

    @property
    def count(self) -> int:
        """V: the number of rows per image."""
        return 1 if self.views is None else 1 + self.views.count


class BadImagesError(InputError):
    """Some pictures cannot be read; ``bad`` lists all of them."""

    def __init__(self, bad: Sequence[BadImage]) -> None:
        super().__init__(f"{len(bad)} unreadable images (use --skip-bad to leave them out)")
        self.bad = tuple(bad)


def embed_images(
    images: ImageSet,
    encoder: Encoder,
    out: Path,
    plan: EmbedPlan | None = None,
    progress: Callable[[int], object] = lambda images: None,
) -> Embeddings:
    """Embed every picture and write the embedding file ``out``; ``progress(n)`` is called after n more pictures.

    Finished chunks stay in ``out`` + ".partial" until the file is complete, so a second call computes only the missing
    ones. Unreadable pictures are collected and, unless ``plan.skip_bad``, refused together at the end.
    """
    plan, out = plan or EmbedPlan(), Path(out)
    # first: it refuses bad names and prompts
    classifier = zero_shot(encoder, images.classnames, plan.templates, plan.batch, descriptions=plan.descriptions)
    out.parent.mkdir(parents=True, exist_ok=True)
    with lock(Path(f"{out}.lock"), f"embedding {out}"):
        folder, shape = Path(f"{out}.partial"), (plan.count, encoder.dim)
        partial = PartialEmbedding(folder, _identity(images, encoder, plan), shape, plan.dtype)
        chunks = []
        for start in range(0, len(images), CHUNK_IMAGES):
            stop = min(start + CHUNK_IMAGES, len(images))
            chunks.append(partial.chunk(start, stop, lambda a, b: _encode(images, encoder, plan, a, b)))
            progress(stop - start)
        bad = [item for chunk in chunks for item in chunk.bad]
        if bad and not plan.skip_bad:
            raise BadImagesError(bad)
        if len(bad) == len(images):
            raise refuse(images.name, "no readable image", "at least one")
        readable = np.setdiff1d(np.arange(len(images)), [image.position for image in bad])
        embeddings = Embeddings(
            out.stem,
            classifier,
            np.concatenate([chunk.rows for chunk in chunks]),
            images.labels[readable],
            images.domain[readable],
            images.domains,
            _metadata(images, encoder, plan, readable),
            images.index[readable],
        )
        save_embeddings(out, embeddings)
        shutil.rmtree(folder)
        return embeddings


def seconds_per_picture(images: ImageSet, encoder: Encoder, plan: EmbedPlan) -> float:
    """Return how long a picture takes here, with reading it and making its views: two batches, after one picture."""
    count = min(len(images), max(1, 2 * plan.batch // plan.count))
    _encode(images, encoder, plan, 0, 1)
    start = time.perf_counter()
    _encode(images, encoder, plan, 0, count)
    return (time.perf_counter() - start) / count


def _encode(images: ImageSet, encoder: Encoder, plan: EmbedPlan, start: int, stop: int) -> Chunk:
    pictures = images.load(np.arange(start, stop))
    if plan.views is None:
        batches = list(encode_files(encoder, pictures, plan.batch, plan.workers, skip_bad=True))
        plain = np.concatenate([batch.rows for batch in batches])[:, None].astype(plan.dtype)
        unreadable = [BadImage(start + i, message) for batch in batches for i, message in batch.bad]
        return Chunk(start, stop, plain, tuple(unreadable))

    def make(job: tuple[str, Any]) -> Vectors | BadImageError:
        try:
            return make_views(job[1], job[0], encoder.preprocess, plan.views)
        except BadImageError as error:
            return error

    bad: list[BadImage] = []
    rows: list[Vectors] = []  # of some pictures each, (n, V, D)
    together = max(1, plan.batch // plan.count)  # pictures whose views fill a batch
    jobs = zip(images.keys[start:stop], pictures, strict=True)
    # threads make the views while the encoder works, and end with the block
    with closing(map_in_order(make, jobs, plan.workers, max(together, 2 * plan.workers))) as views:
        for first in range(start, stop, together):
            good: list[Vectors] = []
            for position, pixels in enumerate(islice(views, together), first):
                if isinstance(pixels, BadImageError):
                    bad.append(BadImage(position, str(pixels)))
                else:
                    good.append(pixels)
            # a list where there are several, because the input of a model may have two sizes
            every = good[0] if len(good) == 1 else [view for pixels in good for view in pixels]
            rows.append(encoder.images(every, batch_size=plan.batch).reshape(-1, plan.count, encoder.dim))
    return Chunk(start, stop, np.concatenate(rows).astype(plan.dtype), tuple(bad))


def _identity(images: ImageSet, encoder: Encoder, plan: EmbedPlan) -> dict[str, Any]:
    """Return everything that the bytes of the chunks depend on."""
    return {
        "chunk": CHUNK_IMAGES,
        "batch": plan.batch,
        "encoder": encoder.fingerprint,
        "device": _placement(encoder).get("device"),
        "images": images.sources,
        "corruption": images.corruption,
        "domains": [*images.domains],
        "views": plan.views and asdict(plan.views),
        "dtype": plan.dtype,
    }


def _dump(descriptions: Descriptions, classnames: Sequence[str]) -> str:
    return json.dumps(class_descriptions(descriptions, classnames), ensure_ascii=False)


def _placement(encoder: Encoder) -> dict[str, str]:
    """Return where the encoder runs and in which numbers; empty if it is somebody's own and does not say."""
    placement: Placement | None = getattr(encoder, "placement", None)
    return {} if placement is None else {"device": placement.device, "precision": placement.precision}


def _metadata(images: ImageSet, encoder: Encoder, plan: EmbedPlan, readable: NDArray[Any]) -> dict[str, str]:
    views = "the plain image" + (f" and {plan.views.count} {plan.views.kind} views" if plan.views else "")
    return {
        "encoder": encoder.name,
        "encoder_fingerprint": encoder.fingerprint,
        **_placement(encoder),
        "templates": json.dumps(use_templates(plan.templates, plan.descriptions)),
        **({"descriptions": _dump(plan.descriptions, images.classnames)} if plan.descriptions else {}),
        "sources": json.dumps(images.sources),
        "corruption": json.dumps(images.corruption),
        "views": json.dumps(plan.views and asdict(plan.views)),
        "paths": json.dumps([images.keys[i] for i in readable]),
        "made": f"latte embed: {len(readable)} of {len(images)} images of {images.name}, {views}",
    }
