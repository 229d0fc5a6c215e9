"""Make figures: run, draw, write PNG, SVG and CSV, and return what each shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...analysis.snapshots import Collaboration, collaboration, memories, routing
from ...analysis.studies import (
    STUDIES,
    Case,
    Setup,
    decentralisation,
    period,
    used_value,
)
from ...analysis.study_runs import Score, StepProgress, measure
from ...core.extras import need
from ...core.validate import choice
from ...experiment.runner import Options
from . import captions
from .curves import draw_ablation, draw_decentralisation, draw_period, draw_sensitivity, draw_steps
from .maps import Placed, draw_collaboration, draw_memory, draw_routing, place_memories
from .record import FigureRecord, Picture, inputs_of
from .style import save_figure, settings, write_csv

FIGURES = tuple(captions.TITLES)
SCORE_COLUMNS = ("panel", "method", "value", "seed", "accuracy")
RUNS = "runs"  # the folder of the run folders, beside the figures


def make_figures(
    names: Sequence[str],
    setup: Setup,
    folder: Path,
    options: Options | None = None,
    values: Sequence[int] = (),
    progress: StepProgress = lambda what, done, total: None,
) -> list[Picture]:
    """Compute and draw the figures ``names`` into ``folder``; what is there already is not made again.

    The runs go to run folders under ``folder``/runs, so that a call that was stopped goes on where it was. ``values``
    replaces what ``decentralisation`` and ``period`` vary. ``progress(what, done, total)`` follows the work.
    """
    for name in names:
        choice("figure", name, FIGURES)
    record = FigureRecord(folder)
    inputs = {name: inputs_of(name, setup, values) for name in names}
    pictures = {name: picture for name in names if (picture := record.find(name, inputs[name])) is not None}
    for name in pictures:
        progress(f"{name}: there already", 1, 1)
    missing = [name for name in names if name not in pictures]
    need_packages(missing)
    scores = _measure(missing, setup, folder / RUNS, options, values, progress)
    for name in missing:
        progress(name, 0, 1)
        pictures[name] = _make(name, setup, folder, scores.get(name, []))
        record.add(pictures[name], inputs[name])
        progress(name, 1, 1)
    return [pictures[name] for name in names]


def need_packages(names: Sequence[str]) -> None:
    """Import what the figures ``names`` are drawn with: a missing package is named before anything is computed."""
    if names:
        need("matplotlib.figure", "report")
    if "memory" in names:
        need("sklearn.manifold", "report")


def _cases(name: str, setup: Setup, values: Sequence[int]) -> list[Case]:
    if name == "decentralisation":
        return decentralisation(setup, values)
    return period(setup, values) if name == "period" else STUDIES[name](setup)


def _measure(
    names: Sequence[str],
    setup: Setup,
    out: Path,
    options: Options | None,
    values: Sequence[int],
    progress: StepProgress,
) -> dict[str, list[Score]]:
    """Measure the studies among ``names`` in one pool, and return the scores of each."""
    cases = {name: _cases(name, setup, values) for name in names if name in STUDIES}
    if not cases:
        return {}
    every = [case for group in cases.values() for case in group]
    scores = iter(measure(setup, every, out, options, progress))
    return {name: [next(scores) for _ in range(len(group) * len(setup.seeds))] for name, group in cases.items()}


def _make(name: str, setup: Setup, folder: Path, scores: list[Score]) -> Picture:
    with settings():
        if name == "collaboration":
            caption = _collaboration(setup, folder)
        elif name == "routing":
            caption = _routing(setup, folder)
        elif name == "memory":
            caption = _memory(setup, folder)
        else:
            caption = _study(name, setup, folder, scores)
    return Picture(folder, name, captions.TITLES[name], caption)


def _study(name: str, setup: Setup, folder: Path, scores: list[Score]) -> str:
    draw: dict[str, Callable[[Sequence[Score]], Any]] = {
        "decentralisation": draw_decentralisation,
        "period": draw_period,
        "ablation": draw_ablation,
        "steps": draw_steps,
        "sensitivity": lambda measured: draw_sensitivity(measured, _used(setup, measured)),
    }
    save_figure(draw[name](scores), folder, name)
    rows = [(s.panel, s.method, s.value, s.seed, s.accuracy) for s in scores]
    write_csv(folder / f"{name}.csv", SCORE_COLUMNS, rows)
    return captions.of_study(name, setup, scores)


def _used(setup: Setup, scores: Sequence[Score]) -> dict[str, float]:
    return {panel: used_value(setup, panel) for panel in {score.panel for score in scores}}


def _collaboration(setup: Setup, folder: Path) -> str:
    counts = collaboration(setup)
    save_figure(draw_collaboration(counts), folder, "collaboration")
    header = ("client", "domain", "from_client", "from_domain", "downloads")
    write_csv(folder / "collaboration.csv", header, _downloads(counts))
    return captions.of_collaboration(setup, counts)


def _routing(setup: Setup, folder: Path) -> str:
    shares = routing(setup)
    save_figure(draw_routing(shares), folder, "routing")
    clients = list(zip(shares.clients, shares.domains, strict=True))
    rows = [
        (*clients[i], *clients[j], float(shares.downloads[i, j]))
        for i in range(len(clients))
        for j in range(len(clients))
    ]
    write_csv(folder / "routing.csv", ("client", "domain", "from_client", "from_domain", "share"), rows)
    return captions.of_routing(setup, shares)


def _downloads(counts: Collaboration) -> list[tuple[Any, ...]]:
    clients = list(zip(counts.clients, counts.domains, strict=True))
    return [
        (client, domain, donor, home, int(counts.downloads[i, j]))
        for i, (client, domain) in enumerate(clients)
        for j, (donor, home) in enumerate(clients)
    ]


def _memory(setup: Setup, folder: Path) -> str:
    placed = place_memories(memories(setup))
    classnames = setup.benchmark.embeddings.zero_shot.classnames
    save_figure(draw_memory(placed, classnames), folder, "memory")
    header = ("domain", "client", "memory", "class", "external", "entropy", "x", "y")
    write_csv(folder / "memory.csv", header, [row for client in placed for row in _items(client, classnames)])
    return captions.of_memory(setup, placed)


def _items(client: Placed, classnames: Sequence[str]) -> list[tuple[Any, ...]]:
    rows = []
    for name, items, where in (
        ("local", client.memory.local, client.local),
        ("merged", client.memory.merged, client.merged),
    ):
        for label, external, entropy, (x, y) in zip(items.label, items.external, items.entropy, where, strict=True):
            place_of = (classnames[label], int(external), float(entropy), float(x), float(y))
            rows.append((client.memory.domain, client.memory.client, name, *place_of))
    return rows
