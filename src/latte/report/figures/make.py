"""Make figures: compute, draw, write PNG, SVG and CSV, and say what each shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...analysis.snapshots import Collaboration, collaboration, memories
from ...analysis.studies import (
    STUDIES,
    Case,
    Score,
    Setup,
    decentralisation,
    measure,
    period,
)
from ...core.validate import choice
from ...experiment.runner import Options
from . import captions
from .curves import draw_ablation, draw_decentralisation, draw_period, draw_sensitivity
from .maps import Placed, draw_collaboration, draw_memory, place
from .style import save, settings, write_csv

NAMES = ("decentralisation", "period", "collaboration", "memory", "ablation", "sensitivity")
SCORE_COLUMNS = ("panel", "method", "value", "seed", "accuracy")
Progress = Callable[[str, int, int], object]


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


def make_figures(
    names: Sequence[str],
    setup: Setup,
    folder: Path,
    options: Options | None = None,
    values: Sequence[int] = (),
    progress: Progress = lambda what, done, total: None,
) -> list[Picture]:
    """Compute and draw the figures ``names`` into ``folder``.

    ``values`` replaces what ``decentralisation`` and ``period`` vary. ``progress(what, done, total)`` follows the runs.
    """
    for name in names:
        choice("figure", name, NAMES)
    cases = {name: _cases(name, setup, values) for name in names if name in STUDIES}
    scores = _measured(setup, cases, options, progress)
    return [_make(name, setup, folder, scores.get(name, []), progress) for name in names]


def _cases(name: str, setup: Setup, values: Sequence[int]) -> list[Case]:
    if name == "decentralisation":
        return decentralisation(setup, values)
    return period(setup, values) if name == "period" else STUDIES[name](setup)


def _measured(
    setup: Setup, cases: dict[str, list[Case]], options: Options | None, progress: Progress
) -> dict[str, list[Score]]:
    """Measure all studies in one pool, and share the scores out again."""
    every = [case for group in cases.values() for case in group]
    scores = iter(measure(setup, every, options, lambda done, total: progress("runs", done, total)))
    return {name: [next(scores) for _ in range(len(group) * len(setup.seeds))] for name, group in cases.items()}


def _make(name: str, setup: Setup, folder: Path, scores: list[Score], progress: Progress) -> Picture:
    progress(name, 0, 1)
    with settings():
        if name == "collaboration":
            caption = _collaboration(setup, folder)
        elif name == "memory":
            caption = _memory(setup, folder)
        else:
            caption = _study(name, setup, folder, scores)
    progress(name, 1, 1)
    return Picture(folder, name, captions.TITLES[name], caption)


def _study(name: str, setup: Setup, folder: Path, scores: list[Score]) -> str:
    draw: dict[str, Callable[[Sequence[Score]], Any]] = {
        "decentralisation": draw_decentralisation,
        "period": draw_period,
        "ablation": draw_ablation,
        "sensitivity": lambda found: draw_sensitivity(found, _used(setup, found)),
    }
    save(draw[name](scores), folder, name)
    rows = [(s.panel, s.method, s.value, s.seed, s.accuracy) for s in scores]
    write_csv(folder / f"{name}.csv", SCORE_COLUMNS, rows)
    return captions.of_study(name, setup, scores)


def _used(setup: Setup, scores: Sequence[Score]) -> dict[str, float]:
    return {panel: getattr(setup.latte, panel) for panel in {score.panel for score in scores}}


def _collaboration(setup: Setup, folder: Path) -> str:
    found = collaboration(setup)
    save(draw_collaboration(found), folder, "collaboration")
    header = ("client", "domain", "from_client", "from_domain", "downloads")
    write_csv(folder / "collaboration.csv", header, _downloads(found))
    return captions.of_collaboration(setup, found)


def _downloads(found: Collaboration) -> list[tuple[Any, ...]]:
    named = list(zip(found.clients, found.domains, strict=True))
    return [
        (client, domain, donor, home, int(found.downloads[i, j]))
        for i, (client, domain) in enumerate(named)
        for j, (donor, home) in enumerate(named)
    ]


def _memory(setup: Setup, folder: Path) -> str:
    placed = place(memories(setup))
    classnames = setup.opened.embeddings.zero_shot.classnames
    save(draw_memory(placed, classnames), folder, "memory")
    header = ("domain", "client", "memory", "class", "external", "entropy", "x", "y")
    write_csv(folder / "memory.csv", header, [row for one in placed for row in _items(one, classnames)])
    return captions.of_memory(setup, placed)


def _items(one: Placed, classnames: Sequence[str]) -> list[tuple[Any, ...]]:
    rows = []
    for name, items, where in (("local", one.memory.local, one.local), ("merged", one.memory.merged, one.merged)):
        for label, external, entropy, (x, y) in zip(items.label, items.external, items.entropy, where, strict=True):
            place_of = (classnames[label], int(external), float(entropy), float(x), float(y))
            rows.append((one.memory.domain, one.memory.client, name, *place_of))
    return rows
