"""Look into the heads of a run of Ristretto: replay one seed with the readable simulator.

How much evidence each head rests on and how far it is trusted, whose evidence it is (the routes), and in how many
directions images spread around their classes (the spectrum of the covariance).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from ..core.linear_heads import HeadTask, RistrettoParams, Solution, solve
from ..core.neighbourhoods import Evidence, factors_within
from ..core.types import Integers, Reals
from ..data.benchmark import Federation
from ..methods import resolve
from ..methods.ristretto import Ristretto
from ..simulation.collaboration import share_inside
from ..simulation.readable import set_up
from ..simulation.schedule import Schedule
from ..simulation.simulator import Client
from .collapse import ZeroShotAnswers, zero_shot_answers
from .diagnosis_file import DiagnosisFile
from .replay import replay

SHOWN = 10  # eigenvalues


@dataclass(frozen=True, slots=True)
class DomainReport:
    """The heads of the clients of one domain (or of all): means over the clients at the end of their streams.

    ``trust`` is the evidence weight w, from 0 to 1; ``evidence`` the images that a head rests on; ``own``: the client's
    own among them, in per cent; ``inside``: how much of the others' comes from the client's domain, in per cent (None
    where nothing comes from others).
    """

    name: str
    clients: int
    images: int
    accuracy: float
    trust: float
    evidence: float
    own: float
    inside: float | None


@dataclass(frozen=True, slots=True)
class HeadDiagnosis(DiagnosisFile):
    """The diagnosis of Ristretto on one seed.

    ``trust_after``: the mean trust of the heads in use when a client has seen 1, 2, 4, ... images. ``chance``: what
    ``inside`` would be if everyone's evidence counted alike. ``spectrum``: the largest eigenvalues of the covariance,
    in per cent of all; ``directions``: how many equal ones would spread as much.
    """

    FORMAT: ClassVar = "latte-heads/1"

    benchmark: str
    method: str
    seed: int
    params: dict[str, Any]
    clients: int
    samples: int
    accuracy: float
    zero_shot: ZeroShotAnswers
    total: DomainReport
    domains: tuple[DomainReport, ...]
    trust_after: dict[str, float]
    chance: float
    spectrum: tuple[float, ...]
    directions: float

    def best(self) -> str:
        """Return what ``inside`` is at best, in words: nothing stops a head from using its own domain only."""
        alone = any(domain.clients == 1 for domain in self.domains)
        return "100 %" + (" (0 % for a client that is alone in its domain)" if alone else "")


def diagnose_heads(
    federation: Federation,
    params: Any = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    progress: Callable[[int], object] = lambda samples: None,
) -> HeadDiagnosis:
    """Run Ristretto on ``federation`` and look at every head; ``progress(1)`` is called after each image.

    >>> from dataclasses import replace
    >>> from latte.data.bundled import bundled
    >>> federation = bundled()
    >>> few = replace(federation, clients=federation.clients[:4])
    >>> sorted(diagnose_heads(few).trust_after, key=int)
    ['1', '2', '4', '8', '16', '32']
    """
    chosen: RistrettoParams = resolve("ristretto", params)
    clients, exchange = set_up(federation, "ristretto", chosen)
    timing = (schedule or Schedule()).for_method(Ristretto.sync)
    right, trust = np.zeros(len(clients)), [np.zeros(len(client.stream)) for client in clients]
    for answer in replay(federation, clients, exchange, timing, rng):
        trust[answer.number][answer.sample] = _method(answer.client).head.trust
        right[answer.number] += answer.correct
        progress(1)
    return _diagnosis(federation, chosen, [_method(client) for client in clients], right, trust)


def _method(client: Client) -> Ristretto:
    assert isinstance(client.method, Ristretto)
    return client.method


# --- summing up -----------------------------------------------------------------------------------------------


def _diagnosis(
    federation: Federation,
    params: RistrettoParams,
    methods: Sequence[Ristretto],
    right: Reals,
    trust: Sequence[Reals],
) -> HeadDiagnosis:
    counts, solution = _solve(federation, params, methods)
    groups = np.array([client.domain for client in federation.clients])
    values = np.linalg.eigvalsh(solution.shared.covariance)[::-1]
    everyone = np.ones(len(groups), np.bool_)
    used = solution.routes * counts.sum(axis=1)  # (n, n): the images of client j that head i rests on
    report = _Reports(federation, groups, used, solution.offsets.total, params, right)
    return HeadDiagnosis(
        federation.embeddings.name,
        "ristretto",
        0,
        asdict(params),
        len(methods),
        federation.samples,
        100 * float(right.sum()) / federation.samples,
        zero_shot_answers(federation),
        report.of("all", everyone),
        tuple(report.of(federation.embeddings.domains[d], groups == d) for d in dict.fromkeys(groups.tolist())),
        _trust_after(trust),
        share_inside(1 - np.eye(len(groups)), groups) if len(groups) > 1 else 0.0,
        tuple(float(v) for v in 100 * values[:SHOWN] / values.sum()),
        float(values.sum() ** 2 / (values**2).sum()),
    )


def _solve(federation: Federation, params: RistrettoParams, methods: Sequence[Ristretto]) -> tuple[Reals, Solution]:
    """Return the counts of everyone (n, C), and what a server makes of everyone's sums at the end."""
    sums = [method.summary() for method in methods]
    counts, means = np.stack([s.counts for s in sums]), np.stack([s.means for s in sums])
    evidence = Evidence.of(counts, means).times(factors_within(counts, params.count_cap))
    return evidence.counts, solve(evidence, HeadTask.of(federation.embeddings.zero_shot, params))


@dataclass(frozen=True, eq=False)
class _Reports:
    """What the reports of all domains are made from."""

    federation: Federation
    groups: Integers
    used: Reals
    total: Reals
    params: RistrettoParams
    right: Reals

    def of(self, name: str, chosen: Any) -> DomainReport:
        """Return the report of the ``chosen`` (n,) clients."""
        images = sum(len(client) for client, counts in zip(self.federation.clients, chosen, strict=True) if counts)
        own, classes = self.used.diagonal(), self.federation.embeddings.zero_shot.classes
        others = self.used - np.diag(own)
        same = self.groups[:, None] == self.groups
        part, whole = float((others * same)[chosen].sum()), float(others[chosen].sum())
        return DomainReport(
            name,
            int(chosen.sum()),
            images,
            100 * float(self.right[chosen].sum()) / images,
            float((self.total / (self.total + self.params.nu * classes))[chosen].mean()),
            float(self.total[chosen].mean()),
            100 * float((own / self.total)[chosen].mean()),
            100 * part / whole if whole else None,
        )


def _trust_after(trust: Sequence[Reals]) -> dict[str, float]:
    """Return the mean trust of the heads that answered the image after the first 1, 2, 4, 8, ... ones."""
    longest, means, images = max(map(len, trust)), {}, 1
    while images < longest:
        means[str(images)] = float(np.mean([series[images] for series in trust if len(series) > images]))
        images *= 2
    return means
