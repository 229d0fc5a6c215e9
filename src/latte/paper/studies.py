"""The paper's studies on any benchmark: what to run for each figure, and what results do not record.

A study is a list of cases; a case is a run at one value of what is varied. :func:`measure` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.diagnose import latte_of
from ..analysis.stats import estimate
from ..core.maths import entropy_of_one
from ..core.types import Integers, Mask, Reals, Vectors
from ..data.catalogue import default_clients
from ..data.federation import Federation, federate
from ..errors import refuse
from ..experiment.config import MethodConfig, RunConfig, apply_settings, check_items
from ..experiment.folder import RunFolder
from ..experiment.item import run_item
from ..experiment.plan import OpenBenchmark, Plan, plan_on
from ..experiment.runner import IncompleteError, Options, execute_all, results
from ..methods import describe
from ..methods.latte.client import PRESETS, Latte, LatteParams
from ..methods.latte.readout import merge_memories
from ..methods.ristretto.client import RistrettoParams
from ..simulation.results import Outcome
from ..simulation.simulator import Client, set_up
from ..simulation.wrapped import InsideShare, inside_share

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
    ``settings`` change the schedule or the engine (``schedule.participation=0.5``), where a study does not vary it.
    """

    benchmark: OpenBenchmark
    seeds: tuple[int, ...]
    clients: int | None
    preset: str | None
    settings: tuple[str, ...] = ()

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
    benchmark: OpenBenchmark,
    seeds: Sequence[int],
    clients: int | None = None,
    preset: str | None = None,
    settings: Sequence[str] = (),
) -> Setup:
    """Fill in what is None: the benchmark's own clients, and the published parameters where there are some."""
    if clients is None:
        clients = default_clients(benchmark.embeddings, benchmark.entry.name)
    return Setup(benchmark, tuple(seeds), clients, preset or preset_for(benchmark.entry.name), tuple(settings))


def preset_for(benchmark: str) -> str | None:
    """Return the preset of published parameters for a benchmark, by its name; None if there is none.

    >>> preset_for("cifar10c-mini"), preset_for("cifar100c_test"), preset_for("pacs")
    ('cifar10c', 'cifar100c', None)
    """
    plain = benchmark.lower().replace("-", "").replace("_", "")
    return next((name for name in PRESETS if plain.startswith(name)), None)


def _config(setup: Setup, name: str, changes: dict[str, Any] | None = None, **schedule: Any) -> RunConfig:
    preset = setup.preset if setup.preset in describe(name).presets else None
    method = MethodConfig(name, preset=preset, params=changes or {})
    config = RunConfig(setup.benchmark.entry.name, (method,), setup.seeds, setup.clients)
    config = apply_settings(config, setup.settings)
    return replace(config, schedule=replace(config.schedule, **schedule))


def base_plan(setup: Setup, method: str = "latte") -> Plan:
    """Return the run that the studies vary: Latte (or another method) as ``setup`` has it."""
    return plan_on(_config(setup, method), setup.benchmark)


def decentralisation(setup: Setup, values: Sequence[int] = ()) -> list[Case]:
    """Every domain split among more and more clients: less data for each."""
    return [
        Case("", name, clients, _config(replace(setup, clients=clients), name))
        for clients in values or client_numbers(setup)
        for name in (*STUDY_BASELINES, "latte", "ristretto")
    ]


def period(setup: Setup, values: Sequence[int] = ()) -> list[Case]:
    """Latte and Ristretto with a sync after every T samples, and after 1, 2, 4, 8, 16 and then every T.

    CLIP, which exchanges nothing, is beside them.
    """
    periods = values or PERIODS
    cases = [Case("", "clip", every, _config(setup, "clip")) for every in periods]
    for name in ("latte", "ristretto"):
        plainly = "method" if describe(name).sync == "every" else "every"
        cases += [Case("", name, t, _config(setup, name, period=t, sync=plainly)) for t in periods]
        cases += [
            Case("", f"{name}+doubling", t, _config(setup, name, period=t, sync="doubling"))
            for t in periods
            if t > 1  # the period of the doubling schedule is 16 where none is given
        ]
    return cases


def ablation(setup: Setup) -> list[Case]:
    """The memory that is read (local, external, both) and its weights (similarity, certainty, both).

    A weight is switched off in the readout only: the prototypes have their own gamma (B14).
    """
    variants: list[tuple[str, str, dict[str, Any]]] = [
        ("memory", "local only", {"memory": "local"}),
        ("memory", "external only", {"memory": "external"}),
        ("memory", "both", {}),
        ("weights", "similarity only", {"gamma": 0.0, "gamma_prototype": setup.latte.prototype_gamma}),
        ("weights", "certainty only", {"beta": 0.0}),
        ("weights", "both", {}),
    ]
    return [Case(panel, "latte", value, _config(setup, "latte", changes)) for panel, value, changes in variants]


def steps(setup: Setup) -> list[Case]:
    """Ristretto without each of its steps."""
    return [Case("", "ristretto", value, _config(setup, "ristretto", changes)) for value, changes in WITHOUT.items()]


def sensitivity(setup: Setup) -> list[Case]:
    """One parameter at a time over its grid, the value of the other figures included."""
    return [
        Case(name, method, value, _config(setup, method, {name: value}))
        for method, parameters in (("latte", STUDY_GRIDS), ("ristretto", RISTRETTO_GRIDS))
        for name, grid in parameters.items()
        for value in sorted({*grid, used_value(setup, name)})
    ]


def used_value(setup: Setup, parameter: str) -> float:
    """Return the value that a parameter of Latte or Ristretto has in the other figures."""
    params = setup.latte if parameter in STUDY_GRIDS else RistrettoParams()
    value: float = getattr(params, parameter)
    return value


# by figure; the second argument replaces what a study varies, where that may be chosen
STUDIES: dict[str, Callable[[Setup, Sequence[int]], list[Case]]] = {
    "decentralisation": decentralisation,
    "period": period,
    "ablation": lambda setup, values: ablation(setup),
    "sensitivity": lambda setup, values: sensitivity(setup),
    "steps": lambda setup, values: steps(setup),
}


def client_numbers(setup: Setup) -> tuple[int, ...]:
    """Return the clients per domain to try: those of the benchmark among them, and no client without an image."""
    data = setup.benchmark.embeddings
    least = int(np.bincount(data.domain, minlength=len(data.domains)).min())
    usual = {1, 2, 5, 10, 20} if least >= 500 else {1, 2, 3, 4, 6, 12}
    return tuple(sorted(n for n in usual | {setup.clients or 1} if n <= least))


# --- the cases of any number of studies, run in one pool of processes, each distinct run once ---------------------

StepProgress = Callable[[str, int, int], object]  # what is done, how many steps of it, of how many


@dataclass(frozen=True, slots=True)
class Score:
    """The accuracy of one seed at one point, in per cent of all samples."""

    panel: str
    method: str
    value: float | str
    seed: int
    accuracy: float


def measure(
    setup: Setup,
    cases: Sequence[Case],
    out: Path,
    options: Options | None = None,
    progress: StepProgress = lambda what, done, total: None,
) -> list[Score]:
    """Run what is missing of the cases in run folders under ``out``; one :class:`Score` per case and seed, in order."""
    plans = [plan_on(case.config, setup.benchmark) for case in cases]
    distinct = {plan.name: plan for plan in plans}  # points of several figures are often the same run
    _execute(list(distinct.values()), out, options or Options(), progress)
    by_name = {name: results(plan, out) for name, plan in distinct.items()}
    return [
        Score(case.panel, case.method, case.value, result.seed, result.micro)
        for case, plan in zip(cases, plans, strict=True)
        for result in by_name[plan.name]
    ]


def _execute(plans: Sequence[Plan], out: Path, options: Options, progress: StepProgress) -> None:
    """Execute plans and report their progress: first what is there already, then every run."""
    total = sum(len(plan.items()) for plan in plans)
    check_items("figure", total)
    problems: list[str] = []
    existing = done = 0
    try:
        with RunFolder(out).lock():
            progress("runs", 0, total)
            for _, event in execute_all([(plan, out) for plan in plans], options):
                if event.kind == "existing":
                    existing += 1
                    continue
                if existing and not done:
                    progress("runs there already", existing, total)
                done += 1
                progress("runs", existing + done, total)
                if event.kind == "failed":
                    problems.append(f"{event.item.method.label}, seed {event.item.seed}: {event.problem}")
            if not done:
                progress("runs there already", existing, total)
    except IncompleteError as error:
        raise IncompleteError(f"{problems[0]}; {error}") from None


def summary(scores: Sequence[Score]) -> list[tuple[Score, float, float]]:
    """Return, per point, its first score, the mean over seeds and the standard deviation (0 for one seed)."""
    groups: dict[tuple[str, str, float | str], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.panel, score.method, score.value), []).append(score)
    estimates = {key: estimate([score.accuracy for score in group]) for key, group in groups.items()}
    return [(group[0], estimates[key].mean, estimates[key].sd or 0.0) for key, group in groups.items()]


# --- what results do not record: how much each client downloads from each other, and the memories of some ---------


@dataclass(frozen=True, eq=False)
class Collaboration:
    """The downloads between clients, sorted by domain.

    ``downloads`` (N, N): entry (i, j) counts the prototypes of client j that client i downloaded. ``share`` is how much
    stays inside a domain, with chance and ceiling.
    """

    clients: tuple[str, ...]
    domains: tuple[str, ...]
    downloads: Integers | Reals
    share: InsideShare


def collaboration(setup: Setup) -> Collaboration:
    """Run Latte on the first seed and count the downloads."""
    federation, outcome = _run(setup, "latte")
    if outcome.downloads is None:  # see BlockServer.downloads
        raise refuse("clients", f"{len(federation)}, too many to count who downloads from whom", "fewer per domain")
    return _sorted(federation, outcome.downloads, setup.latte.k_e)


def routing(setup: Setup) -> Collaboration:
    """Run Ristretto on the first seed and return the share of each client's evidence that each head used.

    ``downloads`` are means over the syncs of a client, without its own evidence, of which it always uses all.
    """
    federation, outcome = _run(setup, "ristretto")
    assert outcome.downloads is not None, "Ristretto's exchange is traced"
    shares = outcome.downloads / np.maximum(outcome.downloads.diagonal(), 1)[:, None]  # a sync is 1 on the diagonal
    np.fill_diagonal(shares, 0.0)
    return _sorted(federation, shares)


def _run(setup: Setup, method: str) -> tuple[Federation, Outcome]:
    seed = setup.seeds[0]
    config = replace(base_plan(setup, method).config, seeds=(seed,))
    federation = federate(setup.benchmark.embeddings, setup.clients, seed)
    return federation, run_item(federation, config, seed)


def _sorted(federation: Federation, downloads: Integers | Reals, slots: int | None = None) -> Collaboration:
    domain = np.array([client.domain for client in federation.clients])
    order = np.argsort(domain, kind="stable")
    groups, counts = domain[order], downloads[np.ix_(order, order)]
    clients = tuple(federation.clients[i].name for i in order)
    domains = tuple(federation.embeddings.domains[d] for d in groups)
    return Collaboration(clients, domains, counts, inside_share(counts, groups, slots))


@dataclass(frozen=True, eq=False)
class ClientMemory:
    """The local and the merged memory of one client: what is stored for which class, how certain, and whose it is."""

    client: str
    domain: str
    samples: int
    local: MemoryItems
    merged: MemoryItems


@dataclass(frozen=True, eq=False)
class MemoryItems:
    """Stored items: ``vectors`` (n, D), ``label`` (n,), ``entropy`` (n,), ``external`` (n,): from another client."""

    vectors: Vectors
    label: Integers
    entropy: Reals
    external: Mask

    @property
    def mean_entropy(self) -> float:
        """The mean entropy of what is stored."""
        return float(self.entropy.mean()) if len(self.entropy) else float("nan")


def memories(setup: Setup, samples: int = 300) -> list[ClientMemory]:
    """Return the memories of the first client of some domains after ``samples`` images (or its whole stream).

    On the first seed, with a sync after every round. At most four clients are chosen, evenly over the
    benchmark's domains. What a client stores of its own does not depend on what it gets from others, so the whole
    federation need not predict: all clients store, and of all exchanges only the last has to take place.
    """
    whole = federate(setup.benchmark.embeddings, setup.clients, setup.seeds[0])
    federation = replace(whole, clients=tuple(replace(c, samples=c.samples[:samples]) for c in whole.clients))
    clients, exchange = set_up(federation, "latte", setup.latte)
    assert exchange is not None, "Latte collaborates"
    first: dict[int, int] = {}
    for i, one in enumerate(federation.clients):
        first.setdefault(one.domain, i)
    firsts = [first[domain] for domain in sorted(first)]
    chosen = [firsts[round(place)] for place in np.linspace(0, len(firsts) - 1, min(4, len(firsts)))]
    last = max(map(len, federation.clients)) - 1  # there is no sync after the last round (B13)
    for client in clients:
        _store(client, 0, last)
        exchange.push(client.name, latte_of(client).summary())
    for client in (clients[i] for i in chosen):
        if last:
            latte_of(client).receive(exchange.pull(client.name))
        _store(client, last, last + 1)
    found = []
    for one, client in ((federation.clients[i], clients[i]) for i in chosen):
        domain = federation.embeddings.domains[one.domain]
        found.append(ClientMemory(one.name, domain, len(one), *memory_items(latte_of(client))))
    return found


def _store(client: Client, start: int, end: int) -> None:
    """Let a client store some samples of its stream, as it does when it predicts."""
    method = latte_of(client)
    for views in client.stream[start:end]:
        vector = method.check(views)[0]
        logits = method.zero_shot.logits(vector)
        method.local.put(int(logits.argmax()), vector, entropy_of_one(logits))


def memory_items(method: Latte) -> tuple[MemoryItems, MemoryItems]:
    """Return what is in a client's local memory, and what it reads: both merged (eq. 3)."""
    own = method.local
    local = _items(own.vectors, own.entropy, own.valid, np.zeros(own.valid.shape, np.bool_))
    return local, _items(*merge_memories(own, method.external))


def _items(vectors: Vectors, entropy: Reals, valid: Mask, external: Mask) -> MemoryItems:
    label = np.broadcast_to(np.arange(len(valid))[:, None], valid.shape)
    return MemoryItems(vectors[valid], label[valid], entropy[valid], external[valid])
