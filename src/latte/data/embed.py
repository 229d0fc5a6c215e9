"""Pictures to an embedding file, in chunks: an interruption costs at most one chunk and changes no byte of the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Vectors
from ..core.validate import choice
from ..core.zero_shot import ZeroShot
from ..encoders import BadImageError, Encoder, zero_shot
from ..encoders.encoder import BATCH
from ..encoders.parallel import map_in_order
from ..encoders.prompts import check_templates, read_templates
from ..encoders.stream import encode_files
from ..encoders.views import ViewPlan, make_views
from ..errors import InputError, refuse
from ..files.locks import lock
from .benchmark import Embeddings
from .chunks import BadImage, Chunk, PartialEmbedding
from .embeddings import save_embeddings
from .image_set import ImageSet

CHUNK_IMAGES = 512  # pictures that an interruption may cost
EMBEDDING_DTYPES = ("float16", "float32")


@dataclass(frozen=True, slots=True)
class EmbedPlan:
    """How to embed: ``views`` besides the plain one (None: no others), templates, precision, number of threads."""

    views: ViewPlan | None = None
    templates: tuple[str, ...] | None = None
    dtype: str = "float16"
    workers: int = 2
    skip_bad: bool = False

    def __post_init__(self) -> None:
        choice("dtype", self.dtype, EMBEDDING_DTYPES)

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
    plan = plan or EmbedPlan()
    classifier = zero_shot(
        encoder, images.classnames, plan.templates
    )  # first, because it refuses bad names and templates
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    with lock(Path(f"{out}.lock"), f"embedding {out}"):
        return _embed(images, encoder, Path(out), plan, classifier, progress)


def _embed(
    images: ImageSet,
    encoder: Encoder,
    out: Path,
    plan: EmbedPlan,
    classifier: ZeroShot,
    progress: Callable[[int], object],
) -> Embeddings:
    partial = PartialEmbedding(
        Path(f"{out}.partial"), _identity(images, encoder, plan), (plan.count, encoder.dim), plan.dtype
    )
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
    partial.remove()
    return embeddings


# --- one chunk --------------------------------------------------------------------------------------------


def _encode(images: ImageSet, encoder: Encoder, plan: EmbedPlan, start: int, stop: int) -> Chunk:
    positions = np.arange(start, stop)
    pictures = images.load(positions)
    if plan.views is None:
        return _plain(encoder, pictures, plan, start)
    bad: list[BadImage] = []
    rows = []
    with closing(_views(images, encoder, plan, positions, pictures)) as views:  # its threads end with it
        for position, pixels in zip(positions, views, strict=True):
            if isinstance(pixels, BadImageError):
                bad.append(BadImage(int(position), str(pixels)))
            else:
                rows.append(encoder.images(pixels, batch_size=BATCH))
    stacked = np.stack(rows) if rows else np.zeros((0, plan.count, encoder.dim), np.float32)
    return Chunk(start, stop, stacked.astype(plan.dtype), tuple(bad))


def _plain(encoder: Encoder, pictures: Sequence[Any], plan: EmbedPlan, start: int) -> Chunk:
    batches = list(encode_files(encoder, pictures, workers=plan.workers, skip_bad=True))
    rows = np.concatenate([batch.rows for batch in batches])[:, None].astype(plan.dtype)
    bad = tuple(BadImage(start + i, message) for batch in batches for i, message in batch.bad)
    return Chunk(start, start + len(pictures), rows, bad)


def _views(
    images: ImageSet, encoder: Encoder, plan: EmbedPlan, positions: NDArray[Any], pictures: Sequence[Any]
) -> Generator[Vectors | BadImageError, None, None]:
    """Yield the views of each picture, or the error that prevents them; threads make them while the encoder works."""

    def make(job: tuple[str, Any]) -> Vectors | BadImageError:
        try:
            return make_views(job[1], job[0], encoder.preprocess, plan.views)
        except BadImageError as error:
            return error

    jobs = [(images.keys[i], picture) for i, picture in zip(positions, pictures, strict=True)]
    return map_in_order(make, jobs, plan.workers, ahead=2 * plan.workers)


# --- metadata -------------------------------------------------------------------------------------------


def _identity(images: ImageSet, encoder: Encoder, plan: EmbedPlan) -> dict[str, Any]:
    """Return everything that the bytes of the chunks depend on."""
    return {
        "chunk": CHUNK_IMAGES,
        "batch": BATCH,
        "encoder": encoder.fingerprint,
        "images": images.sources,
        "corruption": images.corruption,
        "domains": [*images.domains],
        "views": None if plan.views is None else asdict(plan.views),
        "dtype": plan.dtype,
    }


def _metadata(images: ImageSet, encoder: Encoder, plan: EmbedPlan, readable: NDArray[Any]) -> dict[str, str]:
    templates = check_templates(plan.templates or read_templates("seven"))
    views = (
        "the plain image" if plan.views is None else f"the plain image and {plan.views.count} {plan.views.kind} views"
    )
    return {
        "encoder": encoder.name,
        "encoder_fingerprint": encoder.fingerprint,
        "templates": json.dumps(templates),
        "sources": json.dumps(images.sources),
        "corruption": json.dumps(images.corruption),
        "views": json.dumps(None if plan.views is None else asdict(plan.views)),
        "paths": json.dumps([images.keys[i] for i in readable]),
        "made": f"latte embed: {len(readable)} of {len(images)} images of {images.name}, {views}",
    }
