"""The paper's studies on any benchmark: what to run for each figure, and running it.

A study is a list of cases; a case is a run at one value of what is varied. :func:`measure` runs the cases of any number
of studies in one pool of processes, each distinct run once however many cases ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..data.catalogue import default_clients
from ..experiment.config import MethodConfig, RunConfig, check_items
from ..experiment.plan import Item, Opened, Plan, as_message, plan_on
from ..experiment.runner import Options, answers
from ..methods.latte import PRESETS, LatteParams
from ..simulation.records import Result
from ..simulation.schedule import Schedule
from .stats import estimate

BASELINES = ("clip", "tda", "tda-global", "dmn", "dmn-global")
PERIODS = (1, 2, 5, 10, 20, 50, 100, 200)
GRIDS: dict[str, tuple[Any, ...]] = {
    "k_l": (1, 2, 4, 8, 12, 16, 24),
    "k_e": (0, 1, 3, 5, 9, 15, 20),
    "alpha": (0.0, 0.1, 0.3, 0.7, 1.0, 1.5, 3.0),
    "beta": (0.0, 3.0, 6.0, 15.0, 35.0, 60.0, 100.0),
    "gamma": (0.0, 0.5, 1.5, 3.0, 6.0, 10.0),
}


@dataclass(frozen=True, slots=True)
class Setup:
    """What every study of one call shares: the benchmark, the seeds, and Latte's parameters.

    ``clients`` per domain; None means those that the file fixes. ``preset`` None means the dataset-free default.
    """

    opened: Opened
    seeds: tuple[int, ...]
    clients: int | None
    preset: str | None

    @property
    def latte(self) -> LatteParams:
        """Latte's parameters."""
        return LatteParams() if self.preset is None else PRESETS[self.preset]


@dataclass(frozen=True, slots=True)
class Case:
    """One point of a figure: in ``panel``, the line of ``method``, at ``value``."""

    panel: str
    method: str
    value: float | str
    config: RunConfig


@dataclass(frozen=True, slots=True)
class Score:
    """What one seed gave at one point, in per cent of all samples."""

    panel: str
    method: str
    value: float | str
    seed: int
    accuracy: float


def make_setup(opened: Opened, seeds: Sequence[int], clients: int | None = None, preset: str | None = None) -> Setup:
    """Fill in what is not told: the benchmark's own clients, and the published parameters where there are some."""
    if clients is None:
        clients = default_clients(opened.embeddings, opened.entry.name)
    return Setup(opened, tuple(seeds), clients, preset or preset_for(opened.entry.name))


def preset_for(benchmark: str) -> str | None:
    """Return the published parameters that a benchmark's name asks for; None where there are none.

    >>> preset_for("cifar10c-mini"), preset_for("cifar100c_test"), preset_for("pacs")
    ('cifar10c', 'cifar100c', None)
    """
    plain = benchmark.lower().replace("-", "").replace("_", "")
    return next((name for name in PRESETS if plain.startswith(name)), None)


# --- the studies --------------------------------------------------------------------------------------------


def decentralisation(setup: Setup, values: Sequence[int] = ()) -> list[Case]:
    """Every domain dealt to more and more clients: less data for each."""
    cases = []
    for clients in values or client_numbers(setup):
        for name in (*BASELINES, "latte"):
            cases.append(Case("", name, clients, _config(replace(setup, clients=clients), _method(setup, name))))
    return cases


def period(setup: Setup, values: Sequence[int] = ()) -> list[Case]:
    """Latte with an exchange after every T samples; CLIP, which exchanges nothing, beside it."""
    plain = _config(setup, _method(setup, "clip"))
    latte = _method(setup, "latte")
    lines = [Case("", "clip", every, plain) for every in values or PERIODS]
    return lines + [Case("", "latte", every, _config(setup, latte, Schedule(every))) for every in values or PERIODS]


def ablation(setup: Setup) -> list[Case]:
    """What is read, and by what it is weighed.

    Switching off a weight concerns the readout only: the prototypes keep their own gamma (B14).
    """
    keep = setup.latte.prototype_gamma
    panels: dict[str, dict[str, dict[str, Any]]] = {
        "memory": {"local only": {"memory": "local"}, "external only": {"memory": "external"}, "both": {}},
        "weights": {
            "similarity only": {"gamma": 0.0, "gamma_prototype": keep},
            "certainty only": {"beta": 0.0},
            "both": {},
        },
    }
    return [
        Case(panel, "latte", value, _config(setup, _method(setup, "latte", changes)))
        for panel, variants in panels.items()
        for value, changes in variants.items()
    ]


def sensitivity(setup: Setup) -> list[Case]:
    """One parameter at a time; the others, and the value that is used elsewhere, as they are."""
    return [
        Case(name, "latte", value, _config(setup, _method(setup, "latte", {name: value})))
        for name, grid in GRIDS.items()
        for value in sorted({*grid, getattr(setup.latte, name)})
    ]


STUDIES: dict[str, Callable[[Setup], list[Case]]] = {
    "decentralisation": decentralisation,
    "period": period,
    "ablation": ablation,
    "sensitivity": sensitivity,
}


def client_numbers(setup: Setup) -> tuple[int, ...]:
    """Return the clients per domain to try: those of the benchmark among them, nobody without an image."""
    least = _images_per_domain(setup)
    wanted = {1, 2, 5, 10, 20} if least >= 500 else {1, 2, 3, 4, 6, 12}
    return tuple(sorted(n for n in wanted | {setup.clients or 1} if n <= least))


def _images_per_domain(setup: Setup) -> int:
    data = setup.opened.embeddings
    return int(np.bincount(data.domain, minlength=len(data.domains)).min())


def _method(setup: Setup, name: str, changes: dict[str, Any] | None = None) -> MethodConfig:
    return MethodConfig(name, preset=setup.preset if name == "latte" else None, params=changes or {})


def _config(setup: Setup, method: MethodConfig, schedule: Schedule | None = None) -> RunConfig:
    entry = setup.opened.entry
    return RunConfig(entry.name, (method,), setup.seeds, setup.clients, schedule or Schedule())


# --- running them -------------------------------------------------------------------------------------------


def measure(
    setup: Setup,
    cases: Sequence[Case],
    options: Options | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[Score]:
    """Run the cases; one :class:`Score` per case and seed, in their order. ``progress(done, total)`` counts runs."""
    check_items("figure", len(cases) * len(setup.seeds))
    points = [(case, seed, _job(setup, case, seed)) for case in cases for seed in setup.seeds]
    names = [as_message([job]) for _, _, job in points]  # points that several panels share are run once
    found = _accuracies(dict(zip(names, (job for _, _, job in points), strict=True)), options or Options(), progress)
    return [Score(c.panel, c.method, c.value, s, found[name]) for (c, s, _), name in zip(points, names, strict=True)]


def _job(setup: Setup, case: Case, seed: int) -> tuple[Plan, Item]:
    plan = plan_on(replace(case.config, seeds=(seed,)), setup.opened)
    return plan, Item(plan.config.methods[0], seed)


def _accuracies(
    jobs: Mapping[str, tuple[Plan, Item]], options: Options, progress: Callable[[int, int], object]
) -> dict[str, float]:
    names = list(jobs)
    found: dict[str, float] = {}
    for position, answer in answers(list(jobs.values()), options):
        if isinstance(answer, BaseException):
            raise answer
        found[names[position]] = Result.from_json(answer.line).micro
        progress(len(found), len(names))
    return found


def summary(scores: Sequence[Score]) -> list[tuple[Score, float, float]]:
    """Return, per point, its first score, the mean over seeds and the standard deviation (0 for one seed)."""
    groups: dict[tuple[str, str, float | str], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.panel, score.method, score.value), []).append(score)
    estimates = {key: estimate([score.accuracy for score in group]) for key, group in groups.items()}
    return [(group[0], estimates[key].mean, estimates[key].sd or 0.0) for key, group in groups.items()]
