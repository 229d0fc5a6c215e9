"""The page that shows the figures of a folder with their captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...analysis.studies import Setup
from ...files.atomic import write_text
from ..html import picture_section, render_page
from .captions import clients_of
from .record import Picture

PAGE = "index.html"


def write_gallery(pictures: Sequence[Picture], setup: Setup, folder: Path) -> Path:
    """Write the page beside the figures; it shows them without the other files, and links to those."""
    sections = [
        picture_section(
            picture.title,
            picture.path("svg").read_text(encoding="utf-8"),
            picture.caption,
            {ending.upper(): f"{picture.name}.{ending}" for ending in ("csv", "png", "svg")},
        )
        for picture in pictures
    ]
    page = render_page(f"Figures: {setup.benchmark.entry.name}", sections, _subtitle(setup))
    path = folder / PAGE
    write_text(path, page)
    return path


def _subtitle(setup: Setup) -> str:
    data = setup.benchmark.embeddings
    preset = f"the published preset {setup.preset}" if setup.preset else "the default for all data"
    seeds = ", ".join(map(str, setup.seeds))
    return (
        f"{len(data):,} images, {data.zero_shot.classes} classes, {len(data.domains)} domains, {clients_of(setup)}; "
        f"Latte with {preset}; the others with their defaults; seeds {seeds}; encoder {setup.benchmark.info.encoder}."
    )
