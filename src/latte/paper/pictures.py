"""The embedding files of a table of the paper, from the pictures: what is to be made, how long it takes, the making.

Every file continues where an earlier call stopped, so hundreds of hours may be spread over days and calls.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from ..data.embed import CHUNK_IMAGES, EmbedPlan, embed_images, seconds_per_picture
from ..data.images import CorruptionPlan, ImageSet, open_images
from ..encoders import Encoder
from ..encoders.views import ViewPlan
from ..errors import InputError
from ..report import published
from .reproduce import PaperFile

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]  # (name, total) -> advance(steps)
_ROOM = 1.1  # of what the files need, because a chunk and its part of the file are there at the same time


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A file that is not there yet: of ``images``, ``left`` pictures have to be embedded, with ``plan``."""

    source: PaperFile
    images: ImageSet
    plan: EmbedPlan
    left: int

    @property
    def passes(self) -> int:
        """How many views the encoder has to see."""
        return self.left * self.source.views

    @property
    def bytes(self) -> int:
        """What the file and its parts need on the disk, for each dimension of an embedding."""
        return 2 * 2 * len(self.images) * self.source.views


def plan_works(files: Sequence[PaperFile], pictures: Path, plan: EmbedPlan) -> list[Work]:
    """Return the work for the files that are not there; the pictures are found, nothing is computed."""
    works = []
    for source in files:
        images = open_images(f"{source.benchmark}:{pictures}", CorruptionPlan(seed=source.seed))
        views = ViewPlan("augmix", source.views - 1, source.seed) if source.views > 1 else None
        parts = Path(f"{source.path}.partial").glob("[0-9]*.safetensors")
        done = min(len(images), CHUNK_IMAGES * len(list(parts)))
        works.append(Work(source, images, replace(plan, views=views), len(images) - done))
    return works


def check_works(works: Sequence[Work], encoder: Encoder) -> None:
    """Refuse an encoder that is not the paper's, and a disk without room: before the first hour, not after the last."""
    for work in works:
        published.comparable(work.source.benchmark, encoder.name, work.source.backbone)  # refuses another one
    folder = works[0].source.path.parent
    home = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
    need, free = int(_ROOM * encoder.dim * sum(work.bytes for work in works)), shutil.disk_usage(home).free
    if need > free:
        raise InputError(
            f"{folder}: {free / 1e9:.1f} GB are free, the files need {need / 1e9:.1f} GB: give another --data"
        )


def estimate_hours(works: Sequence[Work], encoder: Encoder) -> list[float]:
    """Return the hours of each work, from two batches of it that are measured here."""
    return [work.left * seconds_per_picture(work.images, encoder, work.plan) / 3600 for work in works]


def make_files(works: Sequence[Work], encoder: Encoder, progress: Progress) -> list[float]:
    """Make the files one after the other, and return the seconds that each took."""
    seconds = []
    for work in works:
        start = time.monotonic()
        with progress(work.source.path.name, len(work.images)) as advance:
            embed_images(work.images, encoder, work.source.path, work.plan, advance)
        seconds.append(time.monotonic() - start)
    return seconds
