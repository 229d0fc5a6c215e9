"""The paper's studies on any benchmark: what to run for each figure.

A study is a list of cases; a case is a run at one value of what is varied. :func:`latte.analysis.study_runs.measure`
runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..data.catalogue import default_clients
from ..experiment.config import MethodConfig, RunConfig
from ..experiment.plan import OpenBenchmark, Plan, plan_on
from ..methods import describe
from ..methods.latte import PRESETS, LatteParams
from ..methods.ristretto import RistrettoParams
from ..simulation.schedule import Schedule

STUDY_BASELINES = ("clip", "tda", "tda-global", "dmn", "dmn-global")
PERIODS = (1, 2, 5, 10, 20, 50, 100, 200)
STUDY_GRIDS: dict[str, tuple[Any, ...]] = {
    "k_l": (1, 2, 4, 8, 12, 16, 24),
    "k_e": (0, 1, 3, 5, 9, 15, 20),
    "alpha": (0.0, 0.1, 0.3, 0.7, 1.0, 1.5, 3.0),
    "beta": (0.0, 3.0, 6.0, 15.0, 35.0, 60.0, 100.0),
    "gamma": (0.0, 0.5, 1.5, 3.0, 6.0, 10.0),
}
RISTRETTO_GRIDS: dict[str, tuple[Any, ...]] = {
    "kappa": (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0),
    "rho": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0),
    "eta": (0.0, 1.0, 2.0, 4.0, 8.0, 16.0),
    "nu": (0.0, 5.0, 15.0, 50.0, 150.0, 500.0),
}
# without one of the six steps: what each is replaced by
WITHOUT: dict[str, dict[str, Any]] = {
    "all six": {},
    "1 noise not removed": {"routing": "raw"},
    "2 everyone pooled": {"routing": "everyone"},
    "2 nobody pooled": {"routing": "alone"},
    "3 no text prior": {"kappa": 1e-9},
    "4 no covariance": {"rho": 1e4},
    "5 no head": {"eta": 0.0},
    "6 full trust": {"nu": 0.0},
}


@dataclass(frozen=True, slots=True)
class Setup:
    """What all studies of one call share: the benchmark, the seeds, and Latte's parameters.

    ``clients`` per domain; None means those that the file fixes. ``preset`` None means the default for all data.
    """

    benchmark: OpenBenchmark
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


def make_setup(
    benchmark: OpenBenchmark, seeds: Sequence[int], clients: int | None = None, preset: str | None = None
) -> Setup:
    """Fill in what is None: the benchmark's own clients, and the published parameters where there are some."""
    if clients is None:
        clients = default_clients(benchmark.embeddings, benchmark.entry.name)
    return Setup(benchmark, tuple(seeds), clients, preset or preset_for(benchmark.entry.name))


def preset_for(benchmark: str) -> str | None:
    """Return the preset of published parameters for a benchmark, by its name; None if there is none.

    >>> preset_for("cifar10c-mini"), preset_for("cifar100c_test"), preset_for("pacs")
    ('cifar10c', 'cifar100c', None)
    """
    plain = benchmark.lower().replace("-", "").replace("_", "")
    return next((name for name in PRESETS if plain.startswith(name)), None)


def decentralisation(setup: Setup, values: Sequence[int] = ()) -> list[Case]:
    """Every domain dealt to more and more clients: less data for each."""
    cases = []
    for clients in values or client_numbers(setup):
        for name in (*STUDY_BASELINES, "latte", "ristretto"):
            cases.append(Case("", name, clients, _config(replace(setup, clients=clients), _method(setup, name))))
    return cases


def period(setup: Setup, values: Sequence[int] = ()) -> list[Case]:
    """Latte and Ristretto with a sync after every T samples, and after 1, 2, 4, 8, 16 and then every T.

    CLIP, which exchanges nothing, is beside them.
    """
    plain, periods = _config(setup, _method(setup, "clip")), values or PERIODS
    cases = [Case("", "clip", every, plain) for every in periods]
    for name in ("latte", "ristretto"):
        method, plainly = _method(setup, name), "method" if describe(name).sync == "every" else "every"
        cases += [Case("", name, every, _config(setup, method, Schedule(every, sync=plainly))) for every in periods]
        cases += [
            Case("", f"{name}+doubling", every, _config(setup, method, Schedule(every, sync="doubling")))
            for every in periods
            if every > 1  # the period of the doubling schedule is 16 where none is given
        ]
    return cases


def ablation(setup: Setup) -> list[Case]:
    """The memory that is read (local, external, both) and its weights (similarity, certainty, both).

    A weight is switched off in the readout only: the prototypes have their own gamma (B14).
    """
    gamma = setup.latte.prototype_gamma
    panels: dict[str, dict[str, dict[str, Any]]] = {
        "memory": {"local only": {"memory": "local"}, "external only": {"memory": "external"}, "both": {}},
        "weights": {
            "similarity only": {"gamma": 0.0, "gamma_prototype": gamma},
            "certainty only": {"beta": 0.0},
            "both": {},
        },
    }
    return [
        Case(panel, "latte", value, _config(setup, _method(setup, "latte", changes)))
        for panel, variants in panels.items()
        for value, changes in variants.items()
    ]


def steps(setup: Setup) -> list[Case]:
    """Ristretto without each of its steps."""
    return [
        Case("", "ristretto", value, _config(setup, _method(setup, "ristretto", changes)))
        for value, changes in WITHOUT.items()
    ]


def sensitivity(setup: Setup) -> list[Case]:
    """One parameter at a time over its grid, the value of the other figures included."""
    grids = {"latte": STUDY_GRIDS, "ristretto": RISTRETTO_GRIDS}
    return [
        Case(name, method, value, _config(setup, _method(setup, method, {name: value})))
        for method, parameters in grids.items()
        for name, grid in parameters.items()
        for value in sorted({*grid, used_value(setup, name)})
    ]


def used_value(setup: Setup, parameter: str) -> float:
    """Return the value that a parameter of Latte or Ristretto has in the other figures."""
    params = setup.latte if parameter in STUDY_GRIDS else RistrettoParams()
    value: float = getattr(params, parameter)
    return value


STUDIES: dict[str, Callable[[Setup], list[Case]]] = {
    "decentralisation": decentralisation,
    "period": period,
    "ablation": ablation,
    "sensitivity": sensitivity,
    "steps": steps,
}


def client_numbers(setup: Setup) -> tuple[int, ...]:
    """Return the clients per domain to try: those of the benchmark among them, and no client without an image."""
    least = _images_per_domain(setup)
    usual = {1, 2, 5, 10, 20} if least >= 500 else {1, 2, 3, 4, 6, 12}
    return tuple(sorted(n for n in usual | {setup.clients or 1} if n <= least))


def _images_per_domain(setup: Setup) -> int:
    data = setup.benchmark.embeddings
    return int(np.bincount(data.domain, minlength=len(data.domains)).min())


def _method(setup: Setup, name: str, changes: dict[str, Any] | None = None) -> MethodConfig:
    return MethodConfig(
        name, preset=setup.preset if setup.preset in describe(name).presets else None, params=changes or {}
    )


def base_plan(setup: Setup, method: str = "latte") -> Plan:
    """Return the run that the studies vary: Latte (or another method) as ``setup`` has it."""
    return plan_on(_config(setup, _method(setup, method)), setup.benchmark)


def _config(setup: Setup, method: MethodConfig, schedule: Schedule | None = None) -> RunConfig:
    entry = setup.benchmark.entry
    return RunConfig(entry.name, (method,), setup.seeds, setup.clients, schedule or Schedule())
